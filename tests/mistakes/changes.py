# SPDX-License-Identifier: Apache-2.0
"""Mistakes that are other values of the good program's attributes: {name: (change, message)}."""

import tensorflow as tf
from program import MISSING, mistakes

mistakes(
    "build",
    TypeError,
    {
        "params_as_a_list": (
            {"estimator.params": ["learning_rate"]},
            "TPUEstimator: params must be a dict; got ['learning_rate'].",
        ),
        "params_as_flags": (
            {"estimator.params": "learning_rate=0.1"},
            "TPUEstimator: params must be a dict; got 'learning_rate=0.1'.",
        ),
        "misspelt_argument_of_estimator": (
            {"estimator.train_batchsize": 4},
            "TPUEstimator() got an unexpected keyword argument 'train_batchsize'. Did you mean "
            "'train_batch_size'?",
        ),
        "keras_argument_of_estimator": (
            {"estimator.optimizer": "adam"},
            "TPUEstimator() got an unexpected keyword argument 'optimizer'. It takes model_fn, "
            "model_dir, config, params, use_tpu, train_batch_size, eval_batch_size, "
            "predict_batch_size, batch_axis, eval_on_tpu, export_to_tpu, export_to_cpu, "
            "warm_start_from, embedding_config_spec, export_saved_model_api_version.",
        ),
        "misspelt_argument_of_run_config": (
            {"config.save_checkpoint_steps": 10},
            "RunConfig() got an unexpected keyword argument 'save_checkpoint_steps'. Did you mean "
            "'save_checkpoints_steps'?",
        ),
        "misspelt_argument_of_tpu_config": (
            {"tpu.iteration_per_loop": 10},
            "TPUConfig() got an unexpected keyword argument 'iteration_per_loop'. Did you mean "
            "'iterations_per_loop'?",
        ),
        "misspelt_argument_of_spec": (
            {"spec.clip_limit": 1.0},
            "EmbeddingConfigSpec() got an unexpected keyword argument 'clip_limit'. Did you mean "
            "'clipping_limit'?",
        ),
        "misspelt_argument_of_optimizer": (
            {"optimizer.initial_acumulator": 0.1},
            "AdagradParameters() got an unexpected keyword argument 'initial_acumulator'. Did you "
            "mean 'initial_accumulator'?",
        ),
        "misspelt_argument_of_feature": (
            {"dicts": True, "lookups.words.max_sequence_len": 2},
            "FeatureConfig() got an unexpected keyword argument 'max_sequence_len'. Did you mean "
            "'max_sequence_length'?",
        ),
        "learning_rate_as_text": (
            {"optimizer.learning_rate": "0.1"},
            "AdagradParameters: learning_rate must be a number; got '0.1'.",
        ),
        "learning_rate_schedule_as_a_number": (
            {"optimizer.learning_rate": abs},
            "AdagradParameters: learning_rate must be a number; got <built-in function abs>.",
        ),
        "dimension_of_a_column_as_text": (
            {"item.dimension": "2"},
            "'<' not supported between instances of 'str' and 'int'",
        ),
        "spec_as_a_dict": (
            {"estimator.embedding_config_spec": {"feature_columns": []}},
            "embedding_config_spec must be an EmbeddingConfigSpec; got {'feature_columns': []}.",
        ),
        "model_fn_is_a_name": (
            {"estimator.model_fn": "my_model"},
            "TPUEstimator: model_fn must be a function; got 'my_model'.",
        ),
    },
)
mistakes(
    "build",
    ValueError,
    {
        "batch_size_in_params": (
            {"estimator.params": {"batch_size": 4}},
            "['batch_size', 'context'] are reserved keys but existed in params {'batch_size': 4}.",
        ),
        "negative_learning_rate": (
            {"optimizer.learning_rate": -0.1},
            "AdagradParameters: learning_rate must not be negative; got -0.1.",
        ),
        "learning_rate_of_nan": (
            {"optimizer.learning_rate": float("nan")},
            "AdagradParameters: learning_rate must not be NaN.",
        ),
        "infinite_learning_rate": (
            {"optimizer.learning_rate": float("inf")},
            "AdagradParameters: learning_rate must be finite in float32; got inf.",
        ),
        "accumulator_of_zero": (
            {"optimizer.initial_accumulator": 0.0},
            "AdagradParameters: initial_accumulator must be positive; got 0.0.",
        ),
        "negative_learning_rate_of_a_table": (
            {"dicts": True, "tables.items.learning_rate": -0.1},
            "TableConfig: learning_rate must not be negative; got -0.1.",
        ),
        "two_learning_rates_of_a_table": (
            {
                "dicts": True,
                "tables.items.learning_rate": 0.1,
                "tables.items.learning_rate_fn": float,
            },
            "TableConfig: at most one of learning_rate and learning_rate_fn may be given; got 0.1 "
            "and <class 'float'>.",
        ),
        "no_optimizer": (
            {"spec.optimization_parameters": None},
            "EmbeddingConfigSpec: optimization_parameters must be given with feature_columns.",
        ),
        "dense_optimizer_for_the_tables": (
            {"spec.optimization_parameters": "adagrad"},
            "EmbeddingConfigSpec: optimization_parameters must be one of AdadeltaParameters, "
            "Adagrad, AdagradMomentum, AdagradMomentumParameters, AdagradParameters, Adam, "
            "AdamParameters, CenteredRMSPropParameters, FTRL, FrequencyEstimatorParameters, "
            "FtrlParameters, MomentumParameters, ProximalAdagradParameters, "
            "ProximalYogiParameters, RMSPropParameters, SGD, StochasticGradientDescentParameters; "
            "got 'adagrad'.",
        ),
        "unknown_table": (
            {"dicts": True, "lookups.words.table_id": "text"},
            "EmbeddingConfigSpec: feature 'words' names table 'text', which is not in "
            "table_to_config_dict; its tables are ['items', 'texts']. Did you mean 'texts'?",
        ),
        "table_that_no_feature_uses": (
            {"dicts": True, "lookups.words": MISSING},
            "EmbeddingConfigSpec: no feature uses the tables ['texts'] of table_to_config_dict.",
        ),
        "unknown_combiner": (
            {"dicts": True, "tables.items.combiner": "average"},
            "TableConfig: combiner must be 'mean', 'sum', 'sqrtn' or None; got 'average'.",
        ),
        "dimension_of_zero": (
            {"dicts": True, "tables.items.dimension": 0},
            "TableConfig: dimension must be an int >= 1; got 0.",
        ),
        "vocabulary_size_as_a_float": (
            {"dicts": True, "tables.items.vocabulary_size": 5e6},
            "TableConfig: vocabulary_size must be an int >= 1; got 5000000.0.",
        ),
        "initializer_as_text": (
            {"dicts": True, "tables.items.initializer": "zeros"},
            "TableConfig: initializer must be callable or None; got 'zeros'.",
        ),
        "clipping_limit_of_zero": (
            {"spec.clipping_limit": 0.0},
            "EmbeddingConfigSpec: clipping_limit must be a positive number or None; got 0.0.",
        ),
        "unknown_partition_strategy": (
            {"spec.partition_strategy": "modulo"},
            "EmbeddingConfigSpec: partition_strategy must be 'div' or 'mod'; got 'modulo'.",
        ),
        "multiplier_as_a_number": (
            {"spec.experimental_gradient_multiplier_fn": 0.5},
            "EmbeddingConfigSpec: experimental_gradient_multiplier_fn must be a function of the "
            "global step or None; got 0.5.",
        ),
        "an_empty_spec": (
            {"spec.feature_columns": []},
            "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair "
            "`feature_to_config_dict` and `table_to_config_dict` must be specified.",
        ),
        "unknown_device": (
            {"tpu.device": "cpu"},
            "TPUConfig: device must be 'host' or 'tpu'; got 'cpu'.",
        ),
        "unknown_device_in_the_environment": (
            {
                "tpu.device": None,
                "environment.ESTIMATOR_EMB_DEVICE": "gpu",
                "estimator.use_tpu": True,
            },
            "Environment variable ESTIMATOR_EMB_DEVICE must be 'host' or 'tpu'; got 'gpu'.",
        ),
        "bad_ids_in_the_environment": (
            {"environment.ESTIMATOR_EMB_BAD_IDS": "ignore"},
            "Environment variable ESTIMATOR_EMB_BAD_IDS must be 'error' or 'drop'; got 'ignore'.",
        ),
        "unknown_treatment_of_bad_ids": (
            {"tpu.bad_ids": "ignore"},
            "TPUConfig: bad_ids must be 'error' or 'drop'; got 'ignore'.",
        ),
        "unknown_tpu_generation": (
            {"tpu.tpu_generation": "v9"},
            "TPUConfig: tpu_generation must be one of v2, v3, v4, v5e, v5p, v6e, or None; got "
            "'v9'.",
        ),
        "loop_of_no_steps": (
            {"tpu.iterations_per_loop": 0},
            "Invalid TPUConfig `iterations_per_loop` value. Value must be positive integer value "
            "or time-based value `<N><s|m|h>` where <N> is anypositive integer and `s`, `m`, `h` "
            "are unit of time in seconds, minutes, hours respectively. Examples of valid values: "
            "`3600s`, `60m`, `1h`.",
        ),
        "config_of_another_class": (
            {"estimator.config": {"model_dir": "x"}},
            "`config` must be provided with type `tpu_config.RunConfig`",
        ),
        "warm_start_from_a_number": (
            {"estimator.warm_start_from": 7},
            "warm_start_from must be a string or a WarmStartSettings, instead got <class 'int'>",
        ),
        "two_savings_of_checkpoints": (
            {"config.save_checkpoints_steps": 10, "config.save_checkpoints_secs": 10},
            "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.",
        ),
        "no_model_fn": ({"estimator.model_fn": None}, "model_fn must be provided to Estimator."),
    },
)
mistakes(
    "build",
    ValueError,
    {
        "cores_in_the_environment": (
            {"environment.ESTIMATOR_EMB_SHARDS": "two"},
            "Environment variable ESTIMATOR_EMB_SHARDS must be a number of cores, at least 1; got "
            "'two'.",
        ),
    },
    only="host",
)
mistakes(
    "train",
    KeyError,
    {
        "no_train_batch_size": (
            {"estimator.train_batch_size": MISSING},
            "\"params has no 'batch_size' in mode 'train': TPUEstimator was given no "
            'train_batch_size."',
            (ValueError, "`train_batch_size` cannot be `None`"),
        ),
        "a_feature_is_missing": (
            {"features.words": MISSING},
            "\"Feature words of table tbl_words is not among the features of the batch, ['age', "
            "'item'].\"",
        ),
    },
)
mistakes(
    "train",
    TypeError,
    {
        "batch_size_as_text": (
            {"estimator.train_batch_size": "4"},
            "TPUEstimator: train_batch_size must be int, got <class 'str'>: '4'.",
        ),
        "misspelt_argument_of_train": (
            {"train.max_step": 4},
            "TPUEstimator.train() got an unexpected keyword argument 'max_step'. Did you mean "
            "'max_steps'?",
        ),
        "epochs_in_train": (
            {"train.epochs": 4},
            "TPUEstimator.train() got an unexpected keyword argument 'epochs'. It takes input_fn, "
            "hooks, steps, max_steps, saving_listeners.",
        ),
        "misspelt_argument_of_estimator_spec": (
            {"returned": {"train_ops": None}},
            "TPUEstimatorSpec() got an unexpected keyword argument 'train_ops'. Did you mean "
            "'train_op'?",
        ),
        "a_forgotten_spec_of_dicts": (
            {"dicts": True, "estimator.embedding_config_spec": None},
            "Tensors in list passed to 'values' of 'ConcatV2' Op have types [int32, float32] that "
            "don't all match. TPUEstimator was given no embedding_config_spec, so that model_fn "
            "gets features ['item', 'words'] as input_fn yields them, not their activations: give "
            "it the EmbeddingConfigSpec whose feature_to_config_dict has them.",
        ),
        "hooks_that_are_none": (
            {"train.hooks": ["log"]},
            "Hooks must be a SessionRunHook, given: log",
        ),
        "no_input_fn": (
            {"train.input_fn": None},
            "input_fn must be a function of params that returns a Dataset, or features and "
            "labels; got None. Give the function itself, and make the Dataset inside of it.",
        ),
        "loss_is_a_number": ({"returned": {"loss": 1.0}}, "loss must be Tensor, given: 1.0"),
    },
)
mistakes(
    "train",
    ValueError,
    {
        "batch_size_of_zero": (
            {"estimator.train_batch_size": 0},
            "TPUEstimator: train_batch_size must be positive, got 0.",
        ),
        "steps_and_max_steps": ({"train.steps": 2}, "Can not provide both steps and max_steps."),
        "steps_below_zero": ({"train": {"steps": -1}}, "Must specify steps > 0, given: -1"),
        "max_steps_of_zero": ({"train.max_steps": 0}, "Must specify max_steps > 0, given: 0"),
        "ids_are_floats": (
            {"features.item": [[1.0], [2.0], [3.0], [0.0]]},
            "Feature item of table tbl_item: ids must be int32 or int64; got float32.",
        ),
        "ids_are_strings": (
            {"features.item": [["1"], ["2"], ["3"], ["0"]]},
            "Feature item of table tbl_item: ids must be int32 or int64; got strings. Strings "
            "need a categorical column with a vocabulary or hash buckets.",
            (
                ValueError,
                "Feature 'item' of table 'tbl_item': SparseTensor with string as values are not "
                "supported on a TPU, and neither are other strings. Turn them into ids in "
                "input_fn, for example with a tf.lookup.StaticHashTable or "
                "tf.strings.to_hash_bucket_fast. feature_key = item.",
            ),
        ),
        "ids_have_three_dimensions": (
            {"features.item": [[[1]], [[2]], [[3]], [[0]]]},
            "Feature item of table tbl_item: dense ids must have shape [batch] or [batch, n]; got "
            "(4, 1, 1).",
        ),
        "weights_are_missing": (
            {"dicts": True, "lookups.words.weight_key": "word_weights"},
            "Feature words of table texts: Cannot find weights word_weights for "
            "weighted_categorical_column among the features of the batch, ['age', 'item', "
            "'words'].",
        ),
        "weights_of_another_shape": (
            {
                "dicts": True,
                "lookups.words.weight_key": "word_weights",
                "features.word_weights": [[1.0], [1.0], [1.0], [1.0]],
            },
            "Feature words of table texts: weights word_weights must have the shape of the ids, "
            "(4, 2); got (4, 1).",
        ),
        "weights_are_strings": (
            {
                "dicts": True,
                "lookups.words.weight_key": "word_weights",
                "features.word_weights": [["a", "b"]] * 4,
            },
            "Feature words of table texts: weights word_weights must be numbers; got string.",
        ),
        "a_sequence_with_weights": (
            {
                "dicts": True,
                "lookups.words.weight_key": "word_weights",
                "lookups.words.max_sequence_length": 2,
                "features.word_weights": [[1.0, 1.0]] * 4,
            },
            "Feature words of table texts: a sequence feature takes no weights; got weight key "
            "word_weights.",
        ),
        "many_ids_without_combiner": (
            {"dicts": True, "tables.texts.combiner": None},
            "Feature words of table texts: its table has combiner None, so ids must have shape "
            "[batch] or [batch, 1]; got (4, 2).",
        ),
        "no_loss": ({"returned": {"loss": None}}, "Missing loss."),
        "labels_of_another_shape": (
            {"labels": [1.0, 0.0, 1.0, 0.0]},
            "Shapes (4, 1) and (4,) are incompatible",
        ),
    },
)
mistakes(
    "train",
    ValueError,
    {
        "batch_size_that_the_cores_do_not_divide": (
            {"tpu.num_shards": 3},
            "train batch size 4 must be divisible by number of replicas 3",
        ),
        "no_steps": (
            {"train": {}},
            "For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`.",
        ),
    },
    only="host",
)
mistakes(
    "train",
    tf.errors.NotFoundError,
    {
        "warm_start_from_nothing": (
            {"estimator.warm_start_from": "/nowhere/model"},
            "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
            "/nowhere/model",
        ),
    },
)
mistakes(
    "evaluate",
    KeyError,
    {
        "no_eval_batch_size": (
            {"estimator.eval_batch_size": MISSING},
            "\"params has no 'batch_size' in mode 'eval': TPUEstimator was given no "
            'eval_batch_size."',
            (
                ValueError,
                "eval_batch_size in TPUEstimator constructor cannot be `None` if .evaluate is "
                "running on TPU.",
            ),
        ),
    },
)
mistakes(
    "evaluate",
    TypeError,
    {
        "batch_size_as_a_float": (
            {"estimator.eval_batch_size": 4.0},
            "TPUEstimator: eval_batch_size must be int, got <class 'float'>: 4.0.",
        ),
        "misspelt_argument_of_evaluate": (
            {"evaluate.step": 4},
            "TPUEstimator.evaluate() got an unexpected keyword argument 'step'. Did you mean "
            "'steps'?",
        ),
    },
)
mistakes(
    "evaluate",
    ValueError,
    {
        "no_steps_in_evaluation": (
            {"evaluate": {"steps": None}},
            "Evaluate `steps` must be set on TPU. Cannot be `None`.",
        ),
    },
    only="host",
)
mistakes(
    "predict",
    KeyError,
    {
        "no_predict_batch_size": (
            {"estimator.predict_batch_size": MISSING},
            "\"params has no 'batch_size' in mode 'infer': TPUEstimator was given no "
            'predict_batch_size."',
            (
                ValueError,
                "predict_batch_size in TPUEstimator constructor cannot be `None` if .predict is "
                "running on TPU.",
            ),
        ),
    },
)
mistakes(
    "predict",
    TypeError,
    {
        "misspelt_argument_of_predict": (
            {"predict.checkpoint": "model.ckpt-1"},
            "TPUEstimator.predict() got an unexpected keyword argument 'checkpoint'. Did you mean "
            "'checkpoint_path'?",
        ),
    },
)
mistakes(
    "predict",
    ValueError,
    {
        "batch_size_below_zero": (
            {"estimator.predict_batch_size": -4},
            "TPUEstimator: predict_batch_size must be positive, got -4.",
        ),
        "no_predictions": ({"returned": {"predictions": None}}, "Missing predictions."),
        "a_prediction_key_that_does_not_exist": (
            {"predict": {"predict_keys": ["probability"]}},
            "Expected to run at least one output from dict_keys(['logits']), provided "
            "['probability'].",
        ),
    },
)
mistakes(
    "export",
    KeyError,
    {
        "exported_feature_by_another_name": (
            {"exported_features": {"item": [None, 1], "word": [None, 2]}},
            "\"Feature words of table tbl_words is not among the features of the batch, ['age', "
            "'item', 'word']. Did you mean 'word'?\"",
        ),
    },
)
mistakes(
    "export",
    TypeError,
    {
        "misspelt_argument_of_export": (
            {"export.asset_extra": {}},
            "Estimator.export_saved_model() got an unexpected keyword argument 'asset_extra'. Did "
            "you mean 'assets_extra'?",
        ),
        "export_outputs_of_tensors": (
            {"returned": {"export_outputs": {"serving_default": 1.0}}},
            "Values in `export_outputs` must be ExportOutput objects, received: "
            "{'serving_default': 1.0}.",
        ),
    },
)
mistakes(
    "export",
    ValueError,
    {
        "no_serving_input_fn": (
            {"export.serving_input_receiver_fn": None},
            "An input_receiver_fn must be defined.",
        ),
    },
)
