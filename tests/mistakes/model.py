# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a model_fn and in what it returns."""

import functools

import tensorflow as tf
from program import Program, mistakes, v1

import estimator_emb as ee

MODEL_FN = "model_fn (<lambda> (model.py, line {line}))"
RATE_FN = "Table 'tbl_item': learning_rate_fn <lambda> (model.py, line {line})"
MULTIPLIER_FN = (
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn <lambda> (model.py, line {line})"
)
METRIC_FN = "eval_metrics: metric_fn (<lambda> (model.py, line {line}))"
NO_RETURN = "returned None; it must return a number or a scalar tensor. Is its `return` missing?"
MORE_ARGUMENTS = (
    " has following not expected args: {}. A model_fn takes features, labels, mode, params and "
    "config; give it other values by params, or by functools.partial."
)
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

WITHOUT_STEP = {"train_op": lambda program, loss: program.dense_optimizer().minimize(loss)}


def model(program, features, labels, mode, params):
    return Program.model_fn(program, features, labels, mode, params)


def no_spec(mode, returned):
    return (
        f"model_fn should return an EstimatorSpec. In mode {mode!r}, {MODEL_FN} returned {returned}"
    )


def other_mode(given, returned):
    return (
        f"{MODEL_FN} was called with mode {given!r}, and returned a TPUEstimatorSpec of mode "
        f"{returned!r}. Pass it the mode that model_fn is given."
    )


def pairs(loss):
    variables = v1.trainable_variables()
    return zip(tf.gradients(loss, variables), variables, strict=True)


mistakes(
    "build",
    ValueError,
    {
        "model_fn_without_features": (
            {"model_fn": lambda x, labels, mode, params: None},
            f"{MODEL_FN} must include features argument; it takes ['x', 'labels', 'mode', "
            "'params'].",
        ),
        "model_fn_with_another_argument": (
            {"model_fn": lambda features, labels, mode, params, flags: None},
            MODEL_FN + MORE_ARGUMENTS.format(["flags"]),
        ),
        "model_fn_with_a_misspelt_argument": (
            {"model_fn": lambda features, label, mode, params: None},
            f"{MODEL_FN}{MORE_ARGUMENTS.format(['label'])} Did you mean 'labels'?",
        ),
    },
)
mistakes(
    "train",
    ValueError,
    {
        "model_fn_without_params": (
            {"model_fn": lambda program, features, labels, mode: None},
            f"{MODEL_FN} does not include params argument, required by TPUEstimator to pass batch "
            "size as params['batch_size'].",
        ),
        "model_fn_without_labels": (
            {"model_fn": lambda program, features, mode, params: None},
            "model_fn does not take labels, but input_fn returns labels.",
        ),
        "model_fn_returns_nothing_in_training": (
            {"model_fn": lambda features, labels, mode, params: None},
            no_spec("train", "None. Is its `return` missing?"),
        ),
        "model_fn_returns_loss_and_train_op": (
            {"model_fn": lambda features, labels, mode, params: (labels, features)},
            no_spec("train", "a tuple."),
        ),
        "model_fn_returns_a_dict": (
            {"model_fn": lambda features, labels, mode, params: {"mode": mode}},
            no_spec("train", "{'mode': 'train'}."),
        ),
        "model_fn_takes_training_for_evaluation": (
            {
                "model_fn": lambda program, features, labels, mode, params: model(
                    program, features, labels, "eval", params
                )
            },
            other_mode("train", "eval"),
        ),
        "a_mode_that_does_not_exist": (
            {
                "model_fn": lambda program, features, labels, mode, params: ee.TPUEstimatorSpec(
                    "training", loss=tf.constant(1.0), train_op=tf.no_op()
                )
            },
            other_mode("train", "training"),
        ),
        "no_train_op": ({"train_op": lambda loss: None}, "Missing train_op."),
        "loss_of_each_example": (
            {"loss": lambda logits, labels: tf.identity(logits - labels, name="each")},
            'Loss must be scalar, given: Tensor("each:0", shape=(4, 1), dtype=float32)',
        ),
        "loss_of_integers": (
            {"loss": lambda logits, labels: tf.constant(1, name="whole")},
            "Invalid type tf.int32 for whole:0, expected: [tf.float32, tf.float64, tf.float16, "
            "tf.bfloat16].",
        ),
        # Optimizers.
        "keras_optimizer_minimizes": (
            {
                "train_op": lambda loss: tf.keras.optimizers.Adam(0.1).minimize(
                    loss, v1.trainable_variables()
                )
            },
            f"Adam.minimize: {KERAS}",
        ),
        "keras_optimizer_takes_the_place_of_another": (
            {"dense_optimizer": lambda: tf.keras.optimizers.Adagrad(0.1)},
            f"Adagrad.minimize: {KERAS}",
        ),
        "keras_optimizer_applies_gradients": (
            {"train_op": lambda loss: tf.keras.optimizers.SGD(0.1).apply_gradients(pairs(loss))},
            f"SGD.apply_gradients: {KERAS}",
        ),
        "keras_optimizer_counts_its_own_steps": (
            {
                "train_op": lambda loss: tf.keras.optimizers.legacy.SGD(0.1).apply_gradients(
                    pairs(loss)
                )
            },
            NO_STEP,
        ),
        "legacy_keras_optimizer_minimizes": (
            {
                "train_op": lambda loss: tf.keras.optimizers.legacy.SGD(0.1).minimize(
                    loss, v1.trainable_variables()
                )
            },
            f"SGD.minimize: {KERAS}",
        ),
        "minimize_without_the_global_step": (WITHOUT_STEP, NO_STEP),
        "no_variable_to_optimize": (
            {"train_op": lambda program, loss: program.dense_optimizer().minimize(loss, None, [])},
            "No variables to optimize.",
        ),
        # Rates and factors.
        "a_rate_for_each_column": (
            {"item.learning_rate_fn": lambda step: tf.constant([0.1, 0.2])},
            f"{RATE_FN} must return a number or a scalar tensor; got the shape (2,).",
        ),
        "a_rate_below_zero": (
            {"item.learning_rate_fn": functools.partial(lambda step: -0.5)},
            f"{RATE_FN}: its value must not be negative; got -0.5.",
        ),
        "a_multiplier_that_is_infinite": (
            {"spec.experimental_gradient_multiplier_fn": lambda step: float("inf")},
            f"{MULTIPLIER_FN}: its value must be finite in float32; got inf.",
        ),
    },
)
mistakes(
    "train",
    TypeError,
    {
        "train_op_is_a_list": (
            {"train_op": lambda loss: [loss]},
            "train_op must be Operation or Tensor, given: [<tf.Tensor 'Mean:0' shape=() "
            "dtype=float32>]",
        ),
        "a_rate_function_without_return": (
            {"item.learning_rate_fn": lambda step: None},
            f"{RATE_FN} {NO_RETURN}",
        ),
        "a_rate_function_without_step": (
            {"item.learning_rate_fn": lambda: 0.1},
            f"{RATE_FN} failed: TypeError: <lambda>() takes 0 positional arguments but 1 was given",
        ),
        "a_multiplier_without_return": (
            {"spec.experimental_gradient_multiplier_fn": lambda step: None},
            f"{MULTIPLIER_FN} {NO_RETURN}",
        ),
    },
)
mistakes(
    "train",
    RuntimeError,
    {
        "a_rate_function_that_fails": (
            {"item.learning_rate_fn": lambda step: {}["item"]},
            f"{RATE_FN} failed: KeyError: 'item'",
        ),
    },
)
mistakes(
    "train",
    KeyError,
    {
        "a_feature_by_a_misspelt_name": (
            {"logits": lambda features: features["ages"]},
            "\"'ages'. The features that model_fn is given are ['age', 'item', 'words']. Did you "
            "mean 'age'?\"",
        ),
        "a_parameter_that_was_not_given": (
            {
                "estimator.params": {"hidden_units": 8},
                "model_fn": lambda features, labels, mode, params: params["hidden_unit"],
            },
            "\"params has no 'hidden_unit'; it has ['batch_size', 'context', 'hidden_units', "
            "'use_tpu']. Did you mean 'hidden_units'?\"",
        ),
    },
)
mistakes(
    "train",
    AttributeError,
    {
        "the_tables_optimizer_for_the_model": (
            {"dense_optimizer": lambda program: program.parameters()},
            "'AdagradParameters' object has no attribute 'minimize': it trains embedding tables, "
            "as optimization_parameters of an EmbeddingConfigSpec. For the other variables, use "
            "an optimizer of tf.compat.v1.train.",
        ),
    },
)
mistakes(
    "evaluate",
    ValueError,
    {
        "model_fn_returns_nothing_in_evaluation": (
            {"model_fn": lambda features, labels, mode, params: None},
            no_spec("eval", "None. Is its `return` missing?"),
        ),
        "model_fn_takes_evaluation_for_training": (
            {
                "model_fn": lambda program, features, labels, mode, params: model(
                    program, features, labels, "train", params
                )
            },
            other_mode("eval", "train"),
        ),
        "metrics_without_their_tensors": (
            {"metrics": lambda labels, logits: {"mean": v1.metrics.mean(logits)}},
            "eval_metrics should be tuple or list",
        ),
        "a_metric_called_loss": (
            {
                "metrics": lambda labels, logits: (
                    lambda logits: {"loss": v1.metrics.mean(logits)},
                    [logits],
                )
            },
            'Metric with name "loss" is not allowed, because Estimator already defines a default '
            "metric with the same name.",
        ),
    },
)
mistakes(
    "evaluate",
    TypeError,
    {
        "metrics_with_a_misspelt_tensor": (
            {"metrics": lambda labels, logits: (lambda logits: {}, {"logit": logits})},
            "<lambda>.<locals>.<lambda>() got an unexpected keyword argument 'logit'",
        ),
        "metrics_return_nothing": (
            {"metrics": lambda labels, logits: (lambda logits: None, [logits])},
            f"{METRIC_FN} must return a dict of metrics; it returned None. Is its `return` "
            "missing?",
        ),
        "metrics_are_not_callable": (
            {"metrics": lambda labels, logits: ([labels], logits)},
            "eval_metrics[0] should be callable.",
        ),
    },
)
mistakes(
    "evaluate",
    RuntimeError,
    {
        "metrics_with_too_few_tensors": (
            {"metrics": lambda labels, logits: (lambda labels, logits: {}, [logits])},
            "In TPUEstimatorSpec.eval_metrics, length of tensors 1 does not match method args of "
            "the function, which takes 2.",
        ),
    },
)
mistakes(
    "predict",
    ValueError,
    {
        "model_fn_returns_nothing_in_prediction": (
            {"model_fn": lambda features, labels, mode, params: None},
            no_spec("infer", "None. Is its `return` missing?"),
        ),
        "a_prediction_of_the_whole_batch": (
            {"predictions": lambda logits: {"mean": tf.reduce_mean(logits, name="mean_of_all")}},
            "model_fn (Program.model_fn (program.py, line {line})): predictions['mean'] is a "
            "scalar, mean_of_all:0; it must have the batch as its first dimension, for predict "
            "hands it out one example at a time.",
        ),
        "predictions_that_need_labels": (
            {"predictions": lambda program, logits: {"loss": program.loss(logits, None)}},
            "Argument `multi_class_labels` must not be None.",
        ),
    },
)
mistakes(
    "export",
    ValueError,
    {
        "serving_input_fn_returns_nothing": (
            {"export.serving_input_receiver_fn": lambda: None},
            "serving_input_receiver_fn (<lambda> (model.py, line {line})) must return a "
            "ServingInputReceiver; it returned None. Is its `return` missing?",
        ),
    },
)
