# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what a program says of its tables, of itself and of where it runs."""

import os

import tensorflow as tf
from program import Program, mistake

import estimator_emb as ee
import feature_columns as fc

# Batch sizes and parameters.


@mistake(
    "train",
    KeyError,
    "\"params has no 'batch_size' in mode 'train': TPUEstimator was given no train_batch_size.\"",
    host=(
        ValueError,
        "`train_batch_size` cannot be `None`",
    ),
)
def no_train_batch_size(program):
    del program.estimator["train_batch_size"]


@mistake(
    "evaluate",
    KeyError,
    "\"params has no 'batch_size' in mode 'eval': TPUEstimator was given no eval_batch_size.\"",
    host=(
        ValueError,
        "eval_batch_size in TPUEstimator constructor cannot be `None` if .evaluate is running "
        "on TPU.",
    ),
)
def no_eval_batch_size(program):
    del program.estimator["eval_batch_size"]


@mistake(
    "predict",
    KeyError,
    "\"params has no 'batch_size' in mode 'infer': TPUEstimator was given no predict_batch_size.\"",
    host=(
        ValueError,
        "predict_batch_size in TPUEstimator constructor cannot be `None` if .predict is "
        "running on TPU.",
    ),
)
def no_predict_batch_size(program):
    del program.estimator["predict_batch_size"]


@mistake(
    "train",
    TypeError,
    "TPUEstimator: train_batch_size must be int, got <class 'str'>: '4'.",
)
def batch_size_as_text(program):
    program.estimator["train_batch_size"] = "4"


@mistake(
    "evaluate",
    TypeError,
    "TPUEstimator: eval_batch_size must be int, got <class 'float'>: 4.0.",
)
def batch_size_as_a_float(program):
    program.estimator["eval_batch_size"] = 4.0


@mistake(
    "train",
    ValueError,
    "TPUEstimator: train_batch_size must be positive, got 0.",
)
def batch_size_of_zero(program):
    program.estimator["train_batch_size"] = 0


@mistake(
    "predict",
    ValueError,
    "TPUEstimator: predict_batch_size must be positive, got -4.",
)
def batch_size_below_zero(program):
    program.estimator["predict_batch_size"] = -4


@mistake(
    "train",
    ValueError,
    "train batch size 4 must be divisible by number of replicas 3",
    only="host",
)
def batch_size_that_the_cores_do_not_divide(program):
    program.tpu["num_shards"] = 3


@mistake(
    "build",
    ValueError,
    "['batch_size', 'context'] are reserved keys but existed in params {'batch_size': 4}.",
)
def batch_size_in_params(program):
    program.estimator["params"] = {"batch_size": 4}


@mistake(
    "build",
    TypeError,
    "TPUEstimator: params must be a dict; got ['learning_rate'].",
)
def params_as_a_list(program):
    program.estimator["params"] = ["learning_rate"]


@mistake(
    "build",
    TypeError,
    "TPUEstimator: params must be a dict; got 'learning_rate=0.1'.",
)
def params_as_flags(program):
    program.estimator["params"] = "learning_rate=0.1"


# Names of arguments.


@mistake(
    "build",
    TypeError,
    "TPUEstimator() got an unexpected keyword argument 'train_batchsize'. Did you mean "
    "'train_batch_size'?",
)
def misspelt_argument_of_estimator(program):
    program.estimator["train_batchsize"] = 4


@mistake(
    "build",
    TypeError,
    "TPUEstimator() got an unexpected keyword argument 'optimizer'. It takes model_fn, "
    "model_dir, config, params, use_tpu, train_batch_size, eval_batch_size, "
    "predict_batch_size, batch_axis, eval_on_tpu, export_to_tpu, export_to_cpu, "
    "warm_start_from, embedding_config_spec, export_saved_model_api_version.",
)
def keras_argument_of_estimator(program):
    program.estimator["optimizer"] = "adam"


@mistake(
    "train",
    TypeError,
    "TPUEstimator.train() got an unexpected keyword argument 'max_step'. Did you mean 'max_steps'?",
)
def misspelt_argument_of_train(program):
    program.train["max_step"] = 4


@mistake(
    "train",
    TypeError,
    "TPUEstimator.train() got an unexpected keyword argument 'epochs'. It takes input_fn, "
    "hooks, steps, max_steps, saving_listeners.",
)
def epochs_in_train(program):
    program.train["epochs"] = 4


@mistake(
    "evaluate",
    TypeError,
    "TPUEstimator.evaluate() got an unexpected keyword argument 'step'. Did you mean 'steps'?",
)
def misspelt_argument_of_evaluate(program):
    program.evaluate["step"] = 4


@mistake(
    "predict",
    TypeError,
    "TPUEstimator.predict() got an unexpected keyword argument 'checkpoint'. Did you mean "
    "'checkpoint_path'?",
)
def misspelt_argument_of_predict(program):
    program.predict["checkpoint"] = "model.ckpt-1"


@mistake(
    "export",
    TypeError,
    "TPUEstimator.export_saved_model() got an unexpected keyword argument 'asset_extra'. Did you "
    "mean 'assets_extra'?",
)
def misspelt_argument_of_export(program):
    program.export["asset_extra"] = {}


@mistake(
    "build",
    TypeError,
    "RunConfig() got an unexpected keyword argument 'save_checkpoint_steps'. Did you mean "
    "'save_checkpoints_steps'?",
)
def misspelt_argument_of_run_config(program):
    program.config["save_checkpoint_steps"] = 10


@mistake(
    "build",
    TypeError,
    "TPUConfig() got an unexpected keyword argument 'iteration_per_loop'. Did you mean "
    "'iterations_per_loop'?",
)
def misspelt_argument_of_tpu_config(program):
    program.tpu["iteration_per_loop"] = 10


@mistake(
    "build",
    TypeError,
    "EmbeddingConfigSpec() got an unexpected keyword argument 'clip_limit'. Did you mean "
    "'clipping_limit'?",
)
def misspelt_argument_of_spec(program):
    program.spec["clip_limit"] = 1.0


@mistake(
    "build",
    TypeError,
    "AdagradParameters() got an unexpected keyword argument 'initial_acumulator'. Did you mean "
    "'initial_accumulator'?",
)
def misspelt_argument_of_optimizer(program):
    program.optimizer["initial_acumulator"] = 0.1


@mistake(
    "build",
    TypeError,
    "TableConfig() got an unexpected keyword argument 'vocab_size'. Did you mean "
    "'vocabulary_size'?",
)
def misspelt_argument_of_table(program):
    program.dicts = True
    program.tables["items"]["vocab_size"] = program.tables["items"].pop("vocabulary_size")


@mistake(
    "build",
    TypeError,
    "FeatureConfig() got an unexpected keyword argument 'max_sequence_len'. Did you mean "
    "'max_sequence_length'?",
)
def misspelt_argument_of_feature(program):
    program.dicts = True
    program.lookups["words"]["max_sequence_len"] = 2


@mistake(
    "train",
    TypeError,
    "TPUEstimatorSpec() got an unexpected keyword argument 'train_ops'. Did you mean 'train_op'?",
)
def misspelt_argument_of_estimator_spec(program):
    program.returned = {"train_ops": None}


# Tables.


@mistake(
    "build",
    ValueError,
    "AdagradParameters: learning_rate must not be negative; got -0.1.",
)
def negative_learning_rate(program):
    program.optimizer["learning_rate"] = -0.1


@mistake(
    "build",
    ValueError,
    "AdagradParameters: learning_rate must not be NaN.",
)
def learning_rate_of_nan(program):
    program.optimizer["learning_rate"] = float("nan")


@mistake(
    "build",
    ValueError,
    "AdagradParameters: learning_rate must be finite in float32; got inf.",
)
def infinite_learning_rate(program):
    program.optimizer["learning_rate"] = float("inf")


@mistake(
    "build",
    TypeError,
    "AdagradParameters: learning_rate must be a number; got '0.1'.",
)
def learning_rate_as_text(program):
    program.optimizer["learning_rate"] = "0.1"


@mistake(
    "build",
    TypeError,
    "AdagradParameters: learning_rate must be a number; got <built-in function abs>.",
)
def learning_rate_schedule_as_a_number(program):
    program.optimizer["learning_rate"] = abs


@mistake(
    "build",
    ValueError,
    "AdagradParameters: initial_accumulator must be positive; got 0.0.",
)
def accumulator_of_zero(program):
    program.optimizer["initial_accumulator"] = 0.0


@mistake(
    "build",
    ValueError,
    "TableConfig: learning_rate must not be negative; got -0.1.",
)
def negative_learning_rate_of_a_table(program):
    program.dicts = True
    program.tables["items"]["learning_rate"] = -0.1


@mistake(
    "build",
    ValueError,
    "TableConfig: at most one of learning_rate and learning_rate_fn may be given; got 0.1 and "
    "<class 'float'>.",
)
def two_learning_rates_of_a_table(program):
    program.dicts = True
    program.tables["items"] |= {"learning_rate": 0.1, "learning_rate_fn": float}


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: optimization_parameters must be given with feature_columns.",
)
def no_optimizer(program):
    program.spec["optimization_parameters"] = None


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: optimization_parameters must be one of AdadeltaParameters, Adagrad, "
    "AdagradMomentum, AdagradMomentumParameters, AdagradParameters, Adam, AdamParameters, "
    "CenteredRMSPropParameters, FTRL, FrequencyEstimatorParameters, FtrlParameters, "
    "MomentumParameters, ProximalAdagradParameters, ProximalYogiParameters, RMSPropParameters, "
    "SGD, StochasticGradientDescentParameters; got 'adagrad'.",
)
def dense_optimizer_for_the_tables(program):
    program.spec["optimization_parameters"] = "adagrad"


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: feature 'words' names table 'text', which is not in "
    "table_to_config_dict; its tables are ['items', 'texts']. Did you mean 'texts'?",
)
def unknown_table(program):
    program.dicts = True
    program.lookups["words"]["table_id"] = "text"


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: no feature uses the tables ['texts'] of table_to_config_dict.",
)
def table_that_no_feature_uses(program):
    program.dicts = True
    del program.lookups["words"]


@mistake(
    "build",
    ValueError,
    "TableConfig: combiner must be 'mean', 'sum', 'sqrtn' or None; got 'average'.",
)
def unknown_combiner(program):
    program.dicts = True
    program.tables["items"]["combiner"] = "average"


@mistake(
    "build",
    ValueError,
    "TableConfig: dimension must be an int >= 1; got 0.",
)
def dimension_of_zero(program):
    program.dicts = True
    program.tables["items"]["dimension"] = 0


@mistake(
    "build",
    TypeError,
    "'<' not supported between instances of 'str' and 'int'",
)
def dimension_of_a_column_as_text(program):
    program.item["dimension"] = "2"


@mistake(
    "build",
    ValueError,
    "TableConfig: vocabulary_size must be an int >= 1; got 5000000.0.",
)
def vocabulary_size_as_a_float(program):
    program.dicts = True
    program.tables["items"]["vocabulary_size"] = 5e6


@mistake(
    "build",
    ValueError,
    "TableConfig: initializer must be callable or None; got 'zeros'.",
)
def initializer_as_text(program):
    program.dicts = True
    program.tables["items"]["initializer"] = "zeros"


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: clipping_limit must be a positive number or None; got 0.0.",
)
def clipping_limit_of_zero(program):
    program.spec["clipping_limit"] = 0.0


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: partition_strategy must be 'div' or 'mod'; got 'modulo'.",
)
def unknown_partition_strategy(program):
    program.spec["partition_strategy"] = "modulo"


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn must be a function of the global "
    "step or None; got 0.5.",
)
def multiplier_as_a_number(program):
    program.spec["experimental_gradient_multiplier_fn"] = 0.5


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair "
    "`feature_to_config_dict` and `table_to_config_dict` must be specified.",
)
def columns_and_dicts(program):
    program.spec["table_to_config_dict"] = {"items": ee.TableConfig(5, 2)}


@mistake(
    "build",
    ValueError,
    "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair "
    "`feature_to_config_dict` and `table_to_config_dict` must be specified.",
)
def an_empty_spec(program):
    program.spec["feature_columns"] = []


@mistake(
    "build",
    TypeError,
    "Unsupported feature column 'item_embedding', of type EmbeddingColumn: it has no table on "
    "a TPU. Supported types are those that feature_columns.embedding_column and "
    "feature_columns.shared_embedding_columns make. Make it with one of the two, or leave it out "
    "of the EmbeddingConfigSpec and use it in model_fn; with use_tpu=False the spec takes it.",
    only="host",
)
def a_plain_embedding_column(program):
    item = fc.categorical_column_with_identity("item", 5)
    program.columns = lambda: [tf.feature_column.embedding_column(item, 2)]


@mistake(
    "build",
    TypeError,
    "Unsupported feature column 'age', of type NumericColumn: it has no table on "
    "a TPU. Supported types are those that feature_columns.embedding_column and "
    "feature_columns.shared_embedding_columns make. Make it with one of the two, or leave it out "
    "of the EmbeddingConfigSpec and use it in model_fn; with use_tpu=False the spec takes it.",
    only="host",
)
def a_numeric_column_in_the_spec(program):
    good = program.columns()
    program.columns = lambda: [*good, fc.numeric_column("age")]


@mistake(
    "build",
    TypeError,
    "EmbeddingConfigSpec: All feature columns must be supported types, made by "
    "feature_columns.embedding_column or feature_columns.shared_embedding_columns; got "
    "IdentityCategoricalColumn(key='item', number_buckets=5, default_value=None).",
)
def a_categorical_column_in_the_spec(program):
    program.columns = lambda: [fc.categorical_column_with_identity("item", 5)]


@mistake(
    "build",
    ValueError,
    "Feature 'item' is used with multiple embeddings and this is not supported: column "
    "'item_embedding' (table "
    "'tbl_item', 5 x 2, combiner 'mean') and column 'item_embedding' (table 'tbl_item', 5 x 4, "
    "combiner 'mean'). A feature can feed one table only. Give the second column its own key, "
    "and copy the feature under that key in input_fn.",
    only="host",
)
def two_columns_on_one_feature(program):
    item = fc.categorical_column_with_identity("item", 5)
    program.columns = lambda: [fc.embedding_column(item, width) for width in (2, 4)]


@mistake(
    "build",
    ValueError,
    "Column 'item_embedding' is in the EmbeddingConfigSpec twice; take one of the two out.",
    only="host",
)
def one_column_twice(program):
    good = program.columns()
    program.columns = lambda: [*good, good[0]]


@mistake(
    "build",
    TypeError,
    "embedding_config_spec must be an EmbeddingConfigSpec; got {'feature_columns': []}.",
)
def spec_as_a_dict(program):
    program.estimator["embedding_config_spec"] = {"feature_columns": []}


@mistake(
    "train",
    ValueError,
    "model_fn uses the TPU embedding columns of tables ['item', 'words'], but TPUEstimator was "
    "given no embedding_config_spec: give it one with these columns.",
    only="host",
)
def a_forgotten_spec(program):
    program.used = program.columns()
    program.estimator["embedding_config_spec"] = None


@mistake(
    "train",
    TypeError,
    "Tensors in list passed to 'values' of 'ConcatV2' Op have types [int32, float32] that don't "
    "all match. TPUEstimator was given no embedding_config_spec, so that model_fn gets features "
    "['item', 'words'] as input_fn yields them, not their activations: give it the "
    "EmbeddingConfigSpec whose feature_to_config_dict has them.",
)
def a_forgotten_spec_of_dicts(program):
    program.dicts = True
    program.estimator["embedding_config_spec"] = None


@mistake(
    "train",
    ValueError,
    "model_fn uses the TPU embedding columns of tables ['words'], which are not in the "
    "EmbeddingConfigSpec: add them to its feature_columns. It has the tables ['tbl_item'].",
)
def a_column_that_the_spec_lacks(program):
    good = program.columns()
    program.spec["feature_columns"] = good[:1]
    program.embeddings = lambda features: fc.DenseFeatures(good)(features)


# Where and how it runs.


@mistake(
    "build",
    ValueError,
    "`model_dir` are set both in constructor and `RunConfig`, but with different values. In "
    "constructor: '{directory}-2', in `RunConfig`: '{directory}' ",
)
def another_model_dir(program):
    program.estimator["model_dir"] = program.config["model_dir"] + "-2"


@mistake(
    "build",
    ValueError,
    "TPUConfig: device must be 'host' or 'tpu'; got 'cpu'.",
)
def unknown_device(program):
    program.tpu["device"] = "cpu"


@mistake(
    "build",
    ValueError,
    "Environment variable ESTIMATOR_EMB_DEVICE must be 'host' or 'tpu'; got 'gpu'.",
)
def unknown_device_in_the_environment(program):
    program.tpu["device"] = None
    program.environment["ESTIMATOR_EMB_DEVICE"] = "gpu"
    program.estimator["use_tpu"] = True


@mistake(
    "build",
    ValueError,
    "Environment variable ESTIMATOR_EMB_SHARDS must be a number of cores, at least 1; got 'two'.",
    only="host",
)
def cores_in_the_environment(program):
    program.environment["ESTIMATOR_EMB_SHARDS"] = "two"


@mistake(
    "build",
    ValueError,
    "Environment variable ESTIMATOR_EMB_BAD_IDS must be 'error' or 'drop'; got 'ignore'.",
)
def bad_ids_in_the_environment(program):
    program.environment["ESTIMATOR_EMB_BAD_IDS"] = "ignore"


@mistake(
    "build",
    ValueError,
    "TPUConfig: bad_ids must be 'error' or 'drop'; got 'ignore'.",
)
def unknown_treatment_of_bad_ids(program):
    program.tpu["bad_ids"] = "ignore"


@mistake(
    "build",
    ValueError,
    "TPUConfig: tpu_generation must be one of v2, v3, v4, v5e, v5p, v6e, or None; got 'v9'.",
)
def unknown_tpu_generation(program):
    program.tpu["tpu_generation"] = "v9"


@mistake(
    "build",
    ValueError,
    "Invalid TPUConfig `iterations_per_loop` value. Value must be positive integer value or "
    "time-based value `<N><s|m|h>` where <N> is anypositive integer and `s`, `m`, `h` are unit "
    "of time in seconds, minutes, hours respectively. Examples of valid values: `3600s`, "
    "`60m`, `1h`.",
)
def loop_of_no_steps(program):
    program.tpu["iterations_per_loop"] = 0


@mistake(
    "build",
    ValueError,
    "`config` must be provided with type `tpu_config.RunConfig`",
)
def config_of_another_class(program):
    program.estimator["config"] = {"model_dir": "x"}


@mistake(
    "train",
    ValueError,
    "Can not provide both steps and max_steps.",
)
def steps_and_max_steps(program):
    program.train["steps"] = 2


@mistake(
    "train",
    ValueError,
    "Must specify steps > 0, given: -1",
)
def steps_below_zero(program):
    program.train = {"steps": -1}


@mistake(
    "train",
    ValueError,
    "Must specify max_steps > 0, given: 0",
)
def max_steps_of_zero(program):
    program.train["max_steps"] = 0


@mistake(
    "train",
    TypeError,
    "Hooks must be a SessionRunHook, given: log",
)
def hooks_that_are_none(program):
    program.train["hooks"] = ["log"]


@mistake(
    "train",
    ValueError,
    "For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`.",
    only="host",
)
def no_steps(program):
    program.train = {}


@mistake(
    "evaluate",
    ValueError,
    "Evaluate `steps` must be set on TPU. Cannot be `None`.",
    only="host",
)
def no_steps_in_evaluation(program):
    program.evaluate = {"steps": None}


@mistake(
    "evaluate",
    ValueError,
    "checkpoint_path: The passed save_path is not a valid checkpoint: "
    "'{directory}/model.ckpt-7'.\nWhat to do: give the path of a checkpoint without the ends of "
    "its files' names.",
)
def no_such_checkpoint(program):
    program.evaluate["checkpoint_path"] = os.path.join(program.config["model_dir"], "model.ckpt-7")


@mistake(
    "build",
    ValueError,
    "warm_start_from must be a string or a WarmStartSettings, instead got <class 'int'>",
)
def warm_start_from_a_number(program):
    program.estimator["warm_start_from"] = 7


@mistake(
    "train",
    tf.errors.NotFoundError,
    "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
    "/nowhere/model",
)
def warm_start_from_nothing(program):
    program.estimator["warm_start_from"] = "/nowhere/model"


@mistake(
    "export",
    ValueError,
    "Couldn't find trained model at {directory}-untrained.",
)
def export_without_training(program):
    program.config["model_dir"] += "-untrained"


@mistake(
    "build",
    ValueError,
    "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.",
)
def two_savings_of_checkpoints(program):
    program.config |= {"save_checkpoints_steps": 10, "save_checkpoints_secs": 10}


@mistake(
    "build",
    TypeError,
    "Estimator.__init__() got an unexpected keyword argument 'embedding_config_spec'",
)
def estimator_without_tables_for_tables(program):
    program.build = lambda: ee.Estimator(
        program.model_fn,
        config=program.run_config(),
        embedding_config_spec=Program.embedding_config_spec(program),
    )
