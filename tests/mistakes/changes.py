"""Mistakes in the values of the good program's attributes."""

import program

CHANGES = r"""
[build ValueError]
estimator.params = {'batch_size': 4}
    ['batch_size', 'context'] are reserved keys but existed in params {'batch_size': 4}.
dicts = True
lookups.words.table_id = 'text'
    names table 'text', which is not in table_to_config_dict;
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
    Environment variable ESTIMATOR_EMB_SHARDS must be a number of cores, at least 1;
tpu.device = 'tpu'
tpu.bad_ids = 'drop'
    bad_ids='drop' works on the host only: a TPU does not check ids.
tpu.device = 'tpu'
tpu.table_summaries = True
    table_summaries=True works on the host only, where the tables train beside the summaries;
[train KeyError cpu]
estimator.train_batch_size = MISSING
    "params has no 'batch_size' in mode 'train': TPUEstimator was given no train_batch_size."
[train ValueError host]
estimator.train_batch_size = MISSING
    `train_batch_size` cannot be `None`
features.item = [['1'], ['2'], ['3'], ['0']]
    SparseTensor with string as values are not supported on a TPU
tpu.num_shards = 3
    train batch size 4 must be divisible by number of replicas 3
train = {}
    For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`.
[train TypeError]
dicts = True
estimator.embedding_config_spec = None
    Tensors in list passed to 'values' of 'ConcatV2' Op have types [int32, float32] that
train.input_fn = None
    input_fn must be a function that returns a Dataset, or features and labels; got None.
returned = {'loss': 1.0}
    loss must be Tensor, given: 1.0
[train ValueError]
train.steps = 2
    Can not provide both steps and max_steps.
features.item = [[[1], [0]], [[2], [0]], [[3], [0]], [[0], [0]]]
    Feature item of table tbl_item: dense ids must have shape [batch] or [batch, n];
features.item = [[1.0], [2.0], [3.0], [0.0]]
    Feature item of table tbl_item: ids must be int32 or int64; got float32.
returned = {'loss': None}
    Missing loss.
labels = [1.0, 0.0, 1.0, 0.0]
    Shapes (4, 1) and (4,) are incompatible
[train NotFoundError]
config.model_dir = '/proc/model'
    train: model_dir '/proc/model' cannot be made: /proc/model; No such file or directory.
estimator.warm_start_from = '/nowhere/model'
    warm_start_from: this checkpoint does not exist: '/nowhere/model'.
[evaluate KeyError cpu]
estimator.eval_batch_size = MISSING
    "params has no 'batch_size' in mode 'eval': TPUEstimator was given no eval_batch_size."
[evaluate ValueError host]
estimator.eval_batch_size = MISSING
    eval_batch_size in TPUEstimator constructor cannot be `None` if .evaluate is running on
evaluate = {'steps': None}
    Evaluate `steps` must be set on TPU. Cannot be `None`.
[predict KeyError cpu]
estimator.predict_batch_size = MISSING
    params has no 'batch_size' in mode 'infer'
[predict ValueError host]
estimator.predict_batch_size = MISSING
    predict_batch_size in TPUEstimator constructor cannot be `None` if .predict is running on
[predict ValueError]
returned = {'predictions': None}
    Missing predictions.
predict = {'predict_keys': ['probability']}
    Expected to run at least one output from dict_keys(['logits']), provided ['probability'].
[export KeyError]
exported_features = {'item': [None, 1], 'word': [None, 2]}
    "Feature words of table tbl_words is not among the features of the batch, ['age', 'item',
[export TypeError]
returned = {'export_outputs': {'serving_default': 1.0}}
    Values in `export_outputs` must be ExportOutput objects, received: {'serving_default':
[export ValueError]
config.model_dir = '/nowhere'
    Couldn't find trained model at /nowhere.
export.serving_input_receiver_fn = None
    An input_receiver_fn must be defined.
"""

program.add(CHANGES, __file__, {})
