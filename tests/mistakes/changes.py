"""Mistakes in the values of the good program's attributes."""

import program

CHANGES = r"""
[build ValueError]
estimator.params = {'batch_size': 4}
    ['batch_size', 'context'] are reserved keys but existed in params {'batch_size': 4}.
dicts = True
lookups.words.table_id = 'text'
    EmbeddingConfigSpec: feature 'words' names table 'text', which is not in
    table_to_config_dict; its tables are ['items', 'texts']. Did you mean 'texts'?
tpu.device = 'cpu'
    TPUConfig: device must be 'emulate' or 'pjrt' or 'tpu'; got 'cpu'.
tpu.device = ['host']
    TPUConfig: device must be 'emulate' or 'pjrt' or 'tpu'; got ['host'].
tpu.device = None
environment.ESTIMATOR_EMB_DEVICE = 'gpu'
estimator.use_tpu = True
    Environment variable ESTIMATOR_EMB_DEVICE must be 'emulate' or 'pjrt' or 'tpu'; got 'gpu'.
environment.ESTIMATOR_EMB_BAD_IDS = 'ignore'
    Environment variable ESTIMATOR_EMB_BAD_IDS must be 'error' or 'drop'; got 'ignore'.
tpu.bad_ids = 'ignore'
    TPUConfig: bad_ids must be 'error' or 'drop'; got 'ignore'.
tpu.tpu_generation = 'v9'
    TPUConfig: tpu_generation must be one of v2, v3, v4, v5e, v5p, v6e, or None; got 'v9'.
estimator.config = {'model_dir': 'x'}
    `config` must be provided with type `tpu_config.RunConfig`
estimator.warm_start_from = 7
    warm_start_from must be a string or a WarmStartSettings, instead got <class 'int'>
[build ValueError host]
environment.ESTIMATOR_EMB_SHARDS = 'two'
    Environment variable ESTIMATOR_EMB_SHARDS must be a number of cores, at least 1; got 'two'.
tpu.device = 'tpu'
tpu.bad_ids = 'drop'
    bad_ids='drop' works on the host only: a TPU does not check ids.
tpu.device = 'tpu'
tpu.table_summaries = True
    table_summaries=True works on the host only, where the tables train beside the summaries;
    leave it out of TPUConfig, and ESTIMATOR_EMB_TABLE_SUMMARIES out of the environment.
[train KeyError cpu]
estimator.train_batch_size = MISSING
    "params has no 'batch_size' in mode 'train': TPUEstimator was given no train_batch_size."
[train ValueError host]
estimator.train_batch_size = MISSING
    `train_batch_size` cannot be `None`
features.item = [['1'], ['2'], ['3'], ['0']]
    Feature 'item' of table 'tbl_item': SparseTensor with string as values are not supported on
    a TPU, and neither are other strings. Turn them into ids in input_fn, for example with a
    tf.lookup.StaticHashTable or tf.strings.to_hash_bucket_fast. feature_key = item.
tpu.num_shards = 3
    train batch size 4 must be divisible by number of replicas 3
train = {}
    For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`.
[train TypeError]
dicts = True
estimator.embedding_config_spec = None
    Tensors in list passed to 'values' of 'ConcatV2' Op have types [int32, float32] that don't
    all match. TPUEstimator was given no embedding_config_spec, so that model_fn gets features
    ['item', 'words'] as input_fn yields them, not their activations: give it the
    EmbeddingConfigSpec whose feature_to_config_dict has them.
train.input_fn = None
    input_fn must be a function that returns a Dataset, or features and labels; got
    None. Give the function itself, and make the Dataset inside of it.
returned = {'loss': 1.0}
    loss must be Tensor, given: 1.0
[train ValueError]
train.steps = 2
    Can not provide both steps and max_steps.
features.item = [[[1], [0]], [[2], [0]], [[3], [0]], [[0], [0]]]
    Feature item of table tbl_item: dense ids must have shape [batch] or [batch, n]; got (4, 2,
    1). Was the dataset batched twice?
features.item = [[1.0], [2.0], [3.0], [0.0]]
    Feature item of table tbl_item: ids must be int32 or int64; got float32.
returned = {'loss': None}
    Missing loss.
labels = [1.0, 0.0, 1.0, 0.0]
    Shapes (4, 1) and (4,) are incompatible\nIf these are labels and predictions, give both one
    shape, as by tf.reshape(labels, [-1, 1]) or tf.squeeze(logits, 1).
[train NotFoundError]
config.model_dir = '/proc/model'
    train: model_dir '/proc/model' cannot be made: /proc/model; No such file or directory.\nWhat
    to do: give a folder below a folder in which this user may write. No part of the path can be
    a file.
estimator.warm_start_from = '/nowhere/model'
    warm_start_from: this checkpoint does not exist: '/nowhere/model'.\nWhat to do: give the
    model_dir of a finished training, or one of its checkpoints, such as
    'model_dir/model.ckpt-1000'; to train from initial values, leave warm_start_from out.
[evaluate KeyError cpu]
estimator.eval_batch_size = MISSING
    "params has no 'batch_size' in mode 'eval': TPUEstimator was given no eval_batch_size."
[evaluate ValueError host]
estimator.eval_batch_size = MISSING
    eval_batch_size in TPUEstimator constructor cannot be `None` if .evaluate is running on TPU.
evaluate = {'steps': None}
    Evaluate `steps` must be set on TPU. Cannot be `None`.
[predict KeyError cpu]
estimator.predict_batch_size = MISSING
    "params has no 'batch_size' in mode 'infer': TPUEstimator was given no predict_batch_size."
[predict ValueError host]
estimator.predict_batch_size = MISSING
    predict_batch_size in TPUEstimator constructor cannot be `None` if .predict is running on
    TPU.
[predict ValueError]
returned = {'predictions': None}
    Missing predictions.
predict = {'predict_keys': ['probability']}
    Expected to run at least one output from dict_keys(['logits']), provided ['probability'].
[export KeyError]
exported_features = {'item': [None, 1], 'word': [None, 2]}
    "Feature words of table tbl_words is not among the features of the batch, ['age', 'item',
    'word']. Did you mean 'word'?"
[export TypeError]
returned = {'export_outputs': {'serving_default': 1.0}}
    Values in `export_outputs` must be ExportOutput objects, received: {'serving_default': 1.0}.
[export ValueError]
config.model_dir = '/nowhere'
    Couldn't find trained model at /nowhere.
export.serving_input_receiver_fn = None
    An input_receiver_fn must be defined.
"""

program.add(CHANGES, __file__, {})
