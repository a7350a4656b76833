# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a model_fn and in what it returns."""

import functools

import tensorflow as tf
from program import Program, build, evaluate, export, predict, train, v1

import estimator_emb as ee

KERAS = (
    "A Keras optimizer does not train in a model_fn: use an optimizer of tf.compat.v1.train, such "
    "as tf.compat.v1.train.AdamOptimizer, or estimator_emb.keras.Adagrad."
)
NO_STEP = (
    "The train_op of model_fn does not increase the global step, so that training would never "
    "end: the global step (tf.train.get_global_step) has not been increased. Pass "
    "tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give it "
    "to a Keras optimizer as its iterations."
)


@build(
    ValueError,
    "model_fn ({name} (model.py, line {line})) must include features argument; it takes ['x', "
    "'labels', 'mode', 'params'].",
    at="model_fn",
)
def model_fn_without_features(x, labels, mode, params):
    return None


@build(
    ValueError,
    "model_fn ({name} (model.py, line {line})) has following not expected args: ['flags']. A "
    "model_fn takes features, labels, mode, params and config; give it other values by params, or "
    "by functools.partial.",
    at="model_fn",
)
def model_fn_with_another_argument(features, labels, mode, params, flags):
    return None


@build(
    ValueError,
    "model_fn ({name} (model.py, line {line})) has following not expected args: ['label']. A "
    "model_fn takes features, labels, mode, params and config; give it other values by params, or "
    "by functools.partial. Did you mean 'labels'?",
    at="model_fn",
)
def model_fn_with_a_misspelt_argument(features, label, mode, params):
    return None


@train(
    ValueError,
    "model_fn ({name} (model.py, line {line})) does not include params argument, required by "
    "TPUEstimator to pass batch size as params['batch_size'].",
    at="model_fn",
)
def model_fn_without_params(program, features, labels, mode):
    return Program.model_fn(program, features, labels, mode, {})


@train(
    ValueError,
    "model_fn does not take labels, but input_fn returns labels.",
    at="model_fn",
)
def model_fn_without_labels(program, features, mode, params):
    return Program.model_fn(program, features, None, mode, params)


@train(
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'train', model_fn ({name} (model.py, line "
    "{line})) returned None. Is its `return` missing?",
    at="model_fn",
)
def model_fn_returns_nothing_in_training(program, features, labels, mode, params):
    program_of_the_model = Program.model_fn(program, features, labels, mode, params)
    del program_of_the_model


@evaluate(
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'eval', model_fn ({name} (model.py, line "
    "{line})) returned None. Is its `return` missing?",
    at="model_fn",
)
def model_fn_returns_nothing_in_evaluation(program, features, labels, mode, params):
    if mode == ee.ModeKeys.TRAIN:
        return Program.model_fn(program, features, labels, mode, params)
    return None


@predict(
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'infer', model_fn ({name} (model.py, line "
    "{line})) returned None. Is its `return` missing?",
    at="model_fn",
)
def model_fn_returns_nothing_in_prediction(program, features, labels, mode, params):
    if mode == ee.ModeKeys.TRAIN:
        return Program.model_fn(program, features, labels, mode, params)
    return None


@train(
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'train', model_fn ({name} (model.py, line "
    "{line})) returned a tuple.",
    at="model_fn",
)
def model_fn_returns_loss_and_train_op(program, features, labels, mode, params):
    spec = Program.model_fn(program, features, labels, mode, params)
    return spec.loss, spec.train_op


@train(
    ValueError,
    "model_fn should return an EstimatorSpec. In mode 'train', model_fn ({name} (model.py, line "
    "{line})) returned {'mode': 'train'}.",
    at="model_fn",
)
def model_fn_returns_a_dict(features, labels, mode, params):
    return {"mode": mode}


@evaluate(
    ValueError,
    "model_fn ({name} (model.py, line {line})) was called with mode 'eval', and returned a "
    "TPUEstimatorSpec of mode 'train'. Pass it the mode that model_fn is given.",
    at="model_fn",
)
def model_fn_takes_evaluation_for_training(program, features, labels, mode, params):
    return Program.model_fn(program, features, labels, "train", params)


@train(
    ValueError,
    "model_fn ({name} (model.py, line {line})) was called with mode 'train', and returned a "
    "TPUEstimatorSpec of mode 'eval'. Pass it the mode that model_fn is given.",
    at="model_fn",
)
def model_fn_takes_training_for_evaluation(program, features, labels, mode, params):
    return Program.model_fn(program, features, labels, "eval", params)


@train(
    ValueError,
    "model_fn ({name} (model.py, line {line})) was called with mode 'train', and returned a "
    "TPUEstimatorSpec of mode 'training'. Pass it the mode that model_fn is given.",
    at="model_fn",
)
def a_mode_that_does_not_exist(program, features, labels, mode, params):
    spec = Program.model_fn(program, features, labels, mode, params)
    return ee.TPUEstimatorSpec("training", loss=spec.loss, train_op=spec.train_op)


@train(
    ValueError,
    "Missing train_op.",
    at="train_op",
)
def no_train_op(loss):
    return None


@train(
    TypeError,
    "train_op must be Operation or Tensor, given: [<tf.Tensor 'Mean:0' shape=() dtype=float32>]",
    at="train_op",
)
def train_op_is_a_function(loss):
    return [loss]


@train(
    ValueError,
    'Loss must be scalar, given: Tensor("each:0", shape=(4, 1), dtype=float32)',
    at="loss",
)
def loss_of_each_example(logits, labels):
    each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.identity(each, name="each")


@train(
    ValueError,
    "Invalid type tf.int32 for whole:0, expected: [tf.float32, tf.float64, tf.float16, "
    "tf.bfloat16].",
)
def loss_of_integers(program):
    good = program.loss
    program.loss = lambda logits, labels: tf.cast(good(logits, labels), tf.int32, name="whole")


@train(
    KeyError,
    "\"'ages'. The features that model_fn is given are ['age', 'item', 'words']. Did you mean "
    "'age'?\"",
    at="logits",
)
def a_feature_by_a_misspelt_name(features):
    return v1.layers.dense(features["ages"], 1)


@train(
    KeyError,
    "\"params has no 'hidden_unit'; it has ['batch_size', 'context', 'hidden_units', 'use_tpu']. "
    "Did you mean 'hidden_units'?\"",
)
def a_parameter_that_was_not_given(program):
    program.estimator["params"] = {"hidden_units": 8}

    def model_fn(features, labels, mode, params):
        return params["hidden_unit"]

    program.model_fn = model_fn


# Optimizers.


@train(
    ValueError,
    f"Adam.minimize: {KERAS}",
)
def keras_optimizer_minimizes(program):
    program.dense_optimizer = lambda: tf.keras.optimizers.Adam(0.1)
    program.train_op = lambda loss: tf.keras.optimizers.Adam(0.1).minimize(
        loss, v1.trainable_variables()
    )


@train(
    ValueError,
    f"Adagrad.minimize: {KERAS}",
    at="dense_optimizer",
)
def keras_optimizer_takes_the_place_of_another():
    return tf.keras.optimizers.Adagrad(0.1)


@train(
    ValueError,
    f"SGD.apply_gradients: {KERAS}",
    at="train_op",
)
def keras_optimizer_applies_gradients(loss):
    variables = v1.trainable_variables()
    pairs = zip(tf.gradients(loss, variables), variables, strict=True)
    trained = tf.keras.optimizers.SGD(0.1).apply_gradients(pairs)
    return tf.group(trained, v1.train.get_global_step().assign_add(1))


@train(
    ValueError,
    NO_STEP,
    at="train_op",
)
def keras_optimizer_counts_its_own_steps(loss):
    variables = v1.trainable_variables()
    pairs = zip(tf.gradients(loss, variables), variables, strict=True)
    return tf.keras.optimizers.legacy.SGD(0.1).apply_gradients(pairs)


@train(
    ValueError,
    f"SGD.minimize: {KERAS}",
    at="train_op",
)
def legacy_keras_optimizer_minimizes(loss):
    return tf.keras.optimizers.legacy.SGD(0.1).minimize(loss, v1.trainable_variables())


@train(
    ValueError,
    NO_STEP,
    at="train_op",
)
def minimize_without_the_global_step(program, loss):
    return program.dense_optimizer().minimize(loss)


@train(
    AttributeError,
    "'AdagradParameters' object has no attribute 'minimize': it trains embedding tables, as "
    "optimization_parameters of an EmbeddingConfigSpec. For the other variables, use an optimizer "
    "of tf.compat.v1.train.",
)
def the_tables_optimizer_for_the_model(program):
    program.dense_optimizer = program.parameters


@train(
    ValueError,
    "No variables to optimize.",
    at="train_op",
)
def no_variable_to_optimize(program, loss):
    return program.dense_optimizer().minimize(loss, v1.train.get_global_step(), var_list=[])


# Metrics and predictions.


@evaluate(
    ValueError,
    "eval_metrics should be tuple or list",
    at="metrics",
)
def metrics_without_their_tensors(labels, logits):
    return {"mean": v1.metrics.mean(logits)}


@evaluate(
    RuntimeError,
    "In TPUEstimatorSpec.eval_metrics, length of tensors 1 does not match method args of the "
    "function, which takes 2.",
)
def metrics_with_too_few_tensors(program):
    good = program.metrics
    program.metrics = lambda labels, logits: (good(labels, logits)[0], [logits])


@evaluate(
    TypeError,
    "{name}.<locals>.metric_fn() got an unexpected keyword argument 'logit'",
    at="metrics",
)
def metrics_with_a_misspelt_tensor(labels, logits):
    def metric_fn(labels, logits):
        return {"mean": v1.metrics.mean(logits)}

    return metric_fn, {"labels": labels, "logit": logits}


@evaluate(
    TypeError,
    "eval_metrics: metric_fn (metric_fn (model.py, line {line})) must return a dict of metrics; "
    "it returned None. Is its `return` missing?",
    at="metrics",
)
def metrics_return_nothing(labels, logits):
    def metric_fn(labels, logits):
        v1.metrics.mean(logits)

    return metric_fn, [labels, logits]


@evaluate(
    TypeError,
    "eval_metrics[0] should be callable.",
    at="metrics",
)
def metrics_are_not_callable(labels, logits):
    return ([labels], logits)


@evaluate(
    ValueError,
    'Metric with name "loss" is not allowed, because Estimator already defines a default metric '
    "with the same name.",
    at="metrics",
)
def a_metric_called_loss(labels, logits):
    def metric_fn(logits):
        return {"loss": v1.metrics.mean(logits)}

    return metric_fn, [logits]


@predict(
    ValueError,
    "model_fn (Program.model_fn (program.py, line {line})): predictions['mean'] is a scalar, "
    "mean_of_all:0; it must have the batch as its first dimension, for predict hands it out one "
    "example at a time.",
    at="predictions",
)
def a_prediction_of_the_whole_batch(logits):
    return {"mean": tf.reduce_mean(logits, name="mean_of_all")}


@predict(
    ValueError,
    "Argument `multi_class_labels` must not be None.",
    at="predictions",
)
def predictions_that_need_labels(program, logits):
    return {"loss": program.loss(logits, None)}


# Rates and factors.


@train(
    TypeError,
    "Table 'tbl_item': learning_rate_fn {name} (model.py, line {line}) returned None; it must "
    "return a number or a scalar tensor. Is its `return` missing?",
    at="item.learning_rate_fn",
)
def a_rate_function_without_return(step):
    0.1 * tf.cast(step, tf.float32)


@train(
    RuntimeError,
    "Table 'tbl_item': learning_rate_fn {name} (model.py, line {line}) failed: KeyError: 'item'",
    at="item.learning_rate_fn",
)
def a_rate_function_that_fails(step):
    return 0.1 * {}["item"]


@train(
    TypeError,
    "Table 'tbl_item': learning_rate_fn {name} (model.py, line {line}) failed: TypeError: "
    "{name}() takes 0 positional arguments but 1 was given",
    at="item.learning_rate_fn",
)
def a_rate_function_without_step():
    return 0.1


@train(
    ValueError,
    "Table 'tbl_item': learning_rate_fn {name} (model.py, line {line}) must return a number or a "
    "scalar tensor; got the shape (2,).",
    at="item.learning_rate_fn",
)
def a_rate_for_each_column(step):
    return tf.constant([0.1, 0.2])


@train(
    ValueError,
    "Table 'tbl_item': learning_rate_fn decay (model.py, line {line}): its value must not be "
    "negative; got -0.5.",
)
def a_rate_below_zero(program):
    def decay(step):
        return -0.5

    program.item["learning_rate_fn"] = functools.partial(decay)


@train(
    TypeError,
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn {name} (model.py, line {line}) "
    "returned None; it must return a number or a scalar tensor. Is its `return` missing?",
    at="spec.experimental_gradient_multiplier_fn",
)
def a_multiplier_without_return(step):
    pass


@train(
    ValueError,
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn {name} (model.py, line {line}): its "
    "value must be finite in float32; got inf.",
    at="spec.experimental_gradient_multiplier_fn",
)
def a_multiplier_that_is_infinite(step):
    return float("inf")


@export(
    ValueError,
    "serving_input_receiver_fn (<lambda> (model.py, line {line})) must return a "
    "ServingInputReceiver; it returned None. Is its `return` missing?",
)
def serving_input_fn_returns_nothing(program):
    program.export["serving_input_receiver_fn"] = lambda: None
