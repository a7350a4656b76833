# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a model_fn and in what it returns."""

import functools

import tensorflow as tf
from program import Program, mistake, v1

import estimator_emb as ee


@mistake(
    "build",
    ValueError,
    "model_fn must be provided to Estimator.",
)
def no_model_fn(program):
    program.estimator["model_fn"] = None


@mistake(
    "build",
    TypeError,
    "TPUEstimator: model_fn must be a function; got 'my_model'.",
)
def model_fn_is_a_name(program):
    program.estimator["model_fn"] = "my_model"


@mistake(
    "build",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) must include features argument; it takes "
    "['x', 'labels', 'mode', 'params'].",
)
def model_fn_without_features(program):
    def model_fn(x, labels, mode, params):
        return None

    program.model_fn = model_fn


@mistake(
    "build",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) has following not expected args: ['flags']. A "
    "model_fn takes features, labels, mode, params and config; give it other values by params, "
    "or by functools.partial.",
)
def model_fn_with_another_argument(program):
    def model_fn(features, labels, mode, params, flags):
        return None

    program.model_fn = model_fn


@mistake(
    "build",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) has following not expected args: ['label']. A "
    "model_fn takes features, labels, mode, params and config; give it other values by params, "
    "or by functools.partial. Did you mean 'labels'?",
)
def model_fn_with_a_misspelt_argument(program):
    def model_fn(features, label, mode, params):
        return None

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) does not include params argument, required by "
    "TPUEstimator to pass batch size as params['batch_size'].",
)
def model_fn_without_params(program):
    good = program.model_fn

    def model_fn(features, labels, mode):
        return good(features, labels, mode, {})

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn does not take labels, but input_fn returns labels.",
)
def model_fn_without_labels(program):
    good = program.model_fn

    def model_fn(features, mode, params):
        return good(features, None, mode, params)

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'train', model_fn (model_fn (model.py, "
    "line {line})) returned None. Is its `return` missing?",
)
def model_fn_returns_nothing_in_training(program):
    def model_fn(features, labels, mode, params):
        program_of_the_model = Program.model_fn(program, features, labels, mode, params)
        del program_of_the_model

    program.model_fn = model_fn


@mistake(
    "evaluate",
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'eval', model_fn (model_fn (model.py, "
    "line {line})) returned None. Is its `return` missing?",
)
def model_fn_returns_nothing_in_evaluation(program):
    def model_fn(features, labels, mode, params):
        if mode == ee.ModeKeys.TRAIN:
            return Program.model_fn(program, features, labels, mode, params)
        return None

    program.model_fn = model_fn


@mistake(
    "predict",
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'infer', model_fn (model_fn (model.py, "
    "line {line})) returned None. Is its `return` missing?",
)
def model_fn_returns_nothing_in_prediction(program):
    def model_fn(features, labels, mode, params):
        if mode == ee.ModeKeys.TRAIN:
            return Program.model_fn(program, features, labels, mode, params)
        return None

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'train', model_fn (model_fn (model.py, "
    "line {line})) returned a tuple.",
)
def model_fn_returns_loss_and_train_op(program):
    def model_fn(features, labels, mode, params):
        spec = Program.model_fn(program, features, labels, mode, params)
        return spec.loss, spec.train_op

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'train', model_fn (model_fn (model.py, "
    "line {line})) returned {'mode': 'train'}.",
)
def model_fn_returns_a_dict(program):
    def model_fn(features, labels, mode, params):
        return {"mode": mode}

    program.model_fn = model_fn


@mistake(
    "evaluate",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) was called with mode 'eval', and returned a "
    "TPUEstimatorSpec of mode 'train'. Pass it the mode that model_fn is given.",
)
def model_fn_takes_evaluation_for_training(program):
    def model_fn(features, labels, mode, params):
        return Program.model_fn(program, features, labels, "train", params)

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) was called with mode 'train', and returned a "
    "TPUEstimatorSpec of mode 'eval'. Pass it the mode that model_fn is given.",
)
def model_fn_takes_training_for_evaluation(program):
    def model_fn(features, labels, mode, params):
        return Program.model_fn(program, features, labels, "eval", params)

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "model_fn (model_fn (model.py, line {line})) was called with mode 'train', and returned a "
    "TPUEstimatorSpec of mode 'training'. Pass it the mode that model_fn is given.",
)
def a_mode_that_does_not_exist(program):
    def model_fn(features, labels, mode, params):
        spec = Program.model_fn(program, features, labels, mode, params)
        return ee.TPUEstimatorSpec("training", loss=spec.loss, train_op=spec.train_op)

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "Missing train_op.",
)
def no_train_op(program):
    program.train_op = lambda loss: None


@mistake(
    "train",
    TypeError,
    "train_op must be Operation or Tensor, given: [<tf.Tensor 'Mean:0' shape=() dtype=float32>]",
)
def train_op_is_a_function(program):
    program.train_op = lambda loss: [loss]


@mistake(
    "train",
    ValueError,
    "Missing loss.",
)
def no_loss(program):
    program.returned = {"loss": None}


@mistake(
    "train",
    TypeError,
    "loss must be Tensor, given: 1.0",
)
def loss_is_a_number(program):
    program.returned = {"loss": 1.0}


@mistake(
    "train",
    ValueError,
    'Loss must be scalar, given: Tensor("each:0", shape=(4, 1), dtype=float32)',
)
def loss_of_each_example(program):
    def loss(logits, labels):
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.identity(each, name="each")

    program.loss = loss


@mistake(
    "train",
    ValueError,
    "Invalid type tf.int32 for whole:0, expected: [tf.float32, tf.float64, tf.float16, "
    "tf.bfloat16].",
)
def loss_of_integers(program):
    good = program.loss
    program.loss = lambda logits, labels: tf.cast(good(logits, labels), tf.int32, name="whole")


@mistake(
    "train",
    KeyError,
    "\"'ages'. The features that model_fn is given are ['age', 'item', 'words']. Did you mean "
    "'age'?\"",
)
def a_feature_by_a_misspelt_name(program):
    def logits(features):
        return v1.layers.dense(features["ages"], 1)

    program.logits = logits


@mistake(
    "train",
    KeyError,
    "\"params has no 'hidden_unit'; it has ['batch_size', 'context', 'hidden_units', "
    "'use_tpu']. Did you mean 'hidden_units'?\"",
)
def a_parameter_that_was_not_given(program):
    program.estimator["params"] = {"hidden_units": 8}

    def model_fn(features, labels, mode, params):
        return params["hidden_unit"]

    program.model_fn = model_fn


@mistake(
    "train",
    ValueError,
    "Shapes (4, 1) and (4,) are incompatible",
)
def labels_of_another_shape(program):
    program.labels = [1.0, 0.0, 1.0, 0.0]


# Optimizers.


@mistake(
    "train",
    ValueError,
    "Adam.minimize: A Keras optimizer does not train in a model_fn: use an optimizer of "
    "tf.compat.v1.train, such as tf.compat.v1.train.AdamOptimizer, or "
    "estimator_emb.keras.Adagrad.",
)
def keras_optimizer_minimizes(program):
    program.dense_optimizer = lambda: tf.keras.optimizers.Adam(0.1)
    program.train_op = lambda loss: tf.keras.optimizers.Adam(0.1).minimize(
        loss, v1.trainable_variables()
    )


@mistake(
    "train",
    ValueError,
    "Adagrad.minimize: A Keras optimizer does not train in a model_fn: use an optimizer of "
    "tf.compat.v1.train, such as tf.compat.v1.train.AdamOptimizer, or "
    "estimator_emb.keras.Adagrad.",
)
def keras_optimizer_takes_the_place_of_another(program):
    program.dense_optimizer = lambda: tf.keras.optimizers.Adagrad(0.1)


@mistake(
    "train",
    ValueError,
    "SGD.apply_gradients: A Keras optimizer does not train in a model_fn: use an optimizer of "
    "tf.compat.v1.train, such as tf.compat.v1.train.AdamOptimizer, or "
    "estimator_emb.keras.Adagrad.",
)
def keras_optimizer_applies_gradients(program):
    def train_op(loss):
        variables = v1.trainable_variables()
        pairs = zip(tf.gradients(loss, variables), variables, strict=True)
        trained = tf.keras.optimizers.SGD(0.1).apply_gradients(pairs)
        return tf.group(trained, v1.train.get_global_step().assign_add(1))

    program.train_op = train_op


@mistake(
    "train",
    ValueError,
    "The train_op of model_fn does not increase the global step, so that training would never "
    "end: the global step (tf.train.get_global_step) has not been increased. Pass "
    "tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give "
    "it to a Keras optimizer as its iterations.",
)
def keras_optimizer_counts_its_own_steps(program):
    def train_op(loss):
        variables = v1.trainable_variables()
        pairs = zip(tf.gradients(loss, variables), variables, strict=True)
        return tf.keras.optimizers.legacy.SGD(0.1).apply_gradients(pairs)

    program.train_op = train_op


@mistake(
    "train",
    ValueError,
    "SGD.minimize: A Keras optimizer does not train in a model_fn: use an optimizer of "
    "tf.compat.v1.train, such as tf.compat.v1.train.AdamOptimizer, or "
    "estimator_emb.keras.Adagrad.",
)
def legacy_keras_optimizer_minimizes(program):
    program.train_op = lambda loss: tf.keras.optimizers.legacy.SGD(0.1).minimize(
        loss, v1.trainable_variables()
    )


@mistake(
    "train",
    ValueError,
    "The train_op of model_fn does not increase the global step, so that training would never "
    "end: the global step (tf.train.get_global_step) has not been increased. Pass "
    "tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give "
    "it to a Keras optimizer as its iterations.",
)
def minimize_without_the_global_step(program):
    program.train_op = lambda loss: program.dense_optimizer().minimize(loss)


@mistake(
    "train",
    AttributeError,
    "'AdagradParameters' object has no attribute 'minimize': it trains embedding tables, as "
    "optimization_parameters of an EmbeddingConfigSpec. For the other variables, use an "
    "optimizer of tf.compat.v1.train.",
)
def the_tables_optimizer_for_the_model(program):
    program.dense_optimizer = program.parameters


@mistake(
    "train",
    ValueError,
    "No variables to optimize.",
)
def no_variable_to_optimize(program):
    program.train_op = lambda loss: program.dense_optimizer().minimize(
        loss, v1.train.get_global_step(), var_list=[]
    )


# Metrics and predictions.


@mistake(
    "evaluate",
    ValueError,
    "eval_metrics should be tuple or list",
)
def metrics_without_their_tensors(program):
    program.metrics = lambda labels, logits: {"mean": v1.metrics.mean(logits)}


@mistake(
    "evaluate",
    RuntimeError,
    "In TPUEstimatorSpec.eval_metrics, length of tensors 1 does not match method args of the "
    "function, which takes 2.",
)
def metrics_with_too_few_tensors(program):
    good = program.metrics
    program.metrics = lambda labels, logits: (good(labels, logits)[0], [logits])


@mistake(
    "evaluate",
    TypeError,
    "metrics_with_a_misspelt_tensor.<locals>.metrics.<locals>.metric_fn() got an unexpected "
    "keyword argument 'logit'",
)
def metrics_with_a_misspelt_tensor(program):
    def metrics(labels, logits):
        def metric_fn(labels, logits):
            return {"mean": v1.metrics.mean(logits)}

        return metric_fn, {"labels": labels, "logit": logits}

    program.metrics = metrics


@mistake(
    "evaluate",
    TypeError,
    "eval_metrics: metric_fn (metric_fn (model.py, line {line})) must return a dict of "
    "metrics; it returned None. Is its `return` missing?",
)
def metrics_return_nothing(program):
    def metrics(labels, logits):
        def metric_fn(labels, logits):
            v1.metrics.mean(logits)

        return metric_fn, [labels, logits]

    program.metrics = metrics


@mistake(
    "evaluate",
    TypeError,
    "eval_metrics[0] should be callable.",
)
def metrics_are_not_callable(program):
    program.metrics = lambda labels, logits: ([labels], logits)


@mistake(
    "evaluate",
    ValueError,
    'Metric with name "loss" is not allowed, because Estimator already defines a default '
    "metric with the same name.",
)
def a_metric_called_loss(program):
    def metrics(labels, logits):
        def metric_fn(logits):
            return {"loss": v1.metrics.mean(logits)}

        return metric_fn, [logits]

    program.metrics = metrics


@mistake(
    "predict",
    ValueError,
    "Missing predictions.",
)
def no_predictions(program):
    program.returned = {"predictions": None}


@mistake(
    "predict",
    ValueError,
    "model_fn (Program.model_fn (program.py, line {line})): predictions['mean'] is a scalar, "
    "mean_of_all:0; it must have the batch as its first dimension, for predict hands it out "
    "one example at a time.",
)
def a_prediction_of_the_whole_batch(program):
    def predictions(logits):
        return {"mean": tf.reduce_mean(logits, name="mean_of_all")}

    program.predictions = predictions


@mistake(
    "predict",
    ValueError,
    "Argument `multi_class_labels` must not be None.",
)
def predictions_that_need_labels(program):
    program.predictions = lambda logits: {"loss": program.loss(logits, None)}


@mistake(
    "predict",
    ValueError,
    "Expected to run at least one output from dict_keys(['logits']), provided ['probability'].",
)
def a_prediction_key_that_does_not_exist(program):
    program.predict = {"predict_keys": ["probability"]}


# Rates and factors.


def rate(program, function):
    program.item["learning_rate_fn"] = function


@mistake(
    "train",
    TypeError,
    "Table 'tbl_item': learning_rate_fn decay (model.py, line {line}) returned None; it must "
    "return a number or a scalar tensor. Is its `return` missing?",
)
def a_rate_function_without_return(program):
    def decay(step):
        0.1 * tf.cast(step, tf.float32)

    rate(program, decay)


@mistake(
    "train",
    RuntimeError,
    "Table 'tbl_item': learning_rate_fn decay (model.py, line {line}) failed: KeyError: 'item'",
)
def a_rate_function_that_fails(program):
    def decay(step):
        return 0.1 * rates["item"]

    rates = {}
    rate(program, decay)


@mistake(
    "train",
    TypeError,
    "Table 'tbl_item': learning_rate_fn decay (model.py, line {line}) failed: TypeError: "
    "a_rate_function_without_step.<locals>.decay() takes 0 positional arguments but 1 was given",
)
def a_rate_function_without_step(program):
    def decay():
        return 0.1

    rate(program, decay)


@mistake(
    "train",
    ValueError,
    "Table 'tbl_item': learning_rate_fn decay (model.py, line {line}) must return a number or "
    "a scalar tensor; got the shape (2,).",
)
def a_rate_for_each_column(program):
    def decay(step):
        return tf.constant([0.1, 0.2])

    rate(program, decay)


@mistake(
    "train",
    ValueError,
    "Table 'tbl_item': learning_rate_fn decay (model.py, line {line}): its value must not be "
    "negative; got -0.5.",
)
def a_rate_below_zero(program):
    def decay(step):
        return -0.5

    rate(program, functools.partial(decay))


@mistake(
    "train",
    TypeError,
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn factor (model.py, line {line}) "
    "returned None; it must return a number or a scalar tensor. Is its `return` missing?",
)
def a_multiplier_without_return(program):
    def factor(step):
        pass

    program.spec["experimental_gradient_multiplier_fn"] = factor


@mistake(
    "train",
    ValueError,
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn factor (model.py, line {line}): "
    "its value must be finite in float32; got inf.",
)
def a_multiplier_that_is_infinite(program):
    def factor(step):
        return float("inf")

    program.spec["experimental_gradient_multiplier_fn"] = factor


@mistake(
    "export",
    KeyError,
    "\"Feature words of table tbl_words is not among the features of the batch, ['age', "
    "'item', 'word']. Did you mean 'word'?\"",
)
def exported_feature_by_another_name(program):
    program.exported_features = {"item": [None, 1], "word": [None, 2]}


@mistake(
    "export",
    TypeError,
    "Values in `export_outputs` must be ExportOutput objects, received: {'serving_default': 1.0}.",
)
def export_outputs_of_tensors(program):
    program.returned = {"export_outputs": {"serving_default": 1.0}}


@mistake(
    "export",
    ValueError,
    "An input_receiver_fn must be defined.",
)
def no_serving_input_fn(program):
    program.export["serving_input_receiver_fn"] = None


@mistake(
    "export",
    ValueError,
    "serving_input_receiver_fn (<lambda> (model.py, line {line})) must return a "
    "ServingInputReceiver; it returned None. Is its `return` missing?",
)
def serving_input_fn_returns_nothing(program):
    program.export["serving_input_receiver_fn"] = lambda: None
