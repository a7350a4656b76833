"""Mistakes in the good program's functions, and in their results."""

import program
import tensorflow as tf
from program import Program, v1

import feature_columns as fc

KERAS = (
    "A Keras optimizer does not train in a model_fn: use an optimizer of tf.compat.v1.train, such "
    "as tf.compat.v1.train.AdamOptimizer, or estimator_emb.keras.Adagrad."
)
COLUMNS = Program("", None).columns()


def item():
    return fc.categorical_column_with_identity("item", 5)


def in_mode(other):
    return lambda program, features, labels, mode, params: Program.model_fn(
        program, features, labels, other, params
    )


def pairs(loss):
    variables = v1.trainable_variables()
    return zip(tf.gradients(loss, variables), variables, strict=True)


def mapped(change):
    return lambda program, params: program.input_fn(params).map(change)


CHANGES = r"""
[build ValueError]
estimator.model_dir = '/elsewhere'
    `model_dir` are set both in constructor and `RunConfig`, but with different values. In
    constructor: '/elsewhere', in `RunConfig`: '{directory}'
[train ValueError]
model_fn = lambda program, features, labels, mode: None
    model_fn ({lambda}) does not include params argument, required by TPUEstimator to pass batch
    size as params['batch_size'].
model_fn = lambda program, features, mode, params: None
    model_fn does not take labels, but input_fn returns labels.
train.input_fn = mapped(lambda x, y: x)
    Argument `multi_class_labels` must not be None. In model_fn, labels is None in mode 'train',
    for input_fn returned only features: return a Dataset of (features, labels), or both.
model_fn = lambda features, labels, mode, params: None
    model_fn should return an EstimatorSpec. In mode 'train', model_fn ({lambda}) returned None.
    Is its `return` missing?
model_fn = lambda features, labels, mode, params: (labels, features)
    model_fn should return an EstimatorSpec. In mode 'train', model_fn ({lambda}) returned a
    tuple.
model_fn = in_mode('eval')
    model_fn ({lambda}) was called with mode 'train', and returned a TPUEstimatorSpec of mode
    'eval'. Pass it the mode that model_fn is given.
train_op = lambda loss: None
    Missing train_op.\nIn mode 'train', model_fn must return the op that trains the model as
    train_op; it returned None. minimize and apply_gradients of a Keras optimizer return None in
    a graph: use an optimizer of tf.compat.v1.train, or estimator_emb.keras.Adagrad.
loss = lambda logits, labels: tf.identity(logits - labels, name='each')
    Loss must be scalar, given: Tensor("each:0", shape=(4, 1), dtype=float32)
loss = lambda logits, labels: tf.constant(1, name='whole')
    Invalid type tf.int32 for whole:0, expected: [tf.float32, tf.float64, tf.float16,
    tf.bfloat16].
train_op = lambda loss: tf.keras.optimizers.Adam(0.1).minimize(loss, v1.trainable_variables())
    Adam.minimize: {KERAS}
train_op = lambda loss: tf.keras.optimizers.AdamW(0.1).apply_gradients(pairs(loss))
    AdamW.apply_gradients: {KERAS}
train_op = lambda loss: tf.keras.optimizers.Adam(0.1, weight_decay=0.5).get_updates(loss, [])
    Adam: An Estimator trains by tf.keras.optimizers.legacy.Adam, which does not know
    weight_decay=0.5: leave it out. It takes amsgrad, beta_1, beta_2, clipnorm, clipvalue, decay,
    epsilon, global_clipnorm, learning_rate, lr, name.
train_op = lambda loss: tf.keras.optimizers.legacy.SGD(0.1).minimize(loss, v1.trainable_variables())
    SGD.minimize: {KERAS}
train_op = lambda program, loss: program.dense_optimizer().minimize(loss, None, [])
    No variables to optimize.
train.input_fn = lambda params: None
    input_fn ({lambda}) must return a Dataset, or features and labels; it returned None. Is its
    `return` missing?
train.input_fn = lambda program: program.input_fn({'batch_size': 4})
    input_fn ({lambda}) does not include params argument, required by TPUEstimator to pass batch
    size as params["batch_size"].
train.input_fn = mapped(lambda x, y: (x, y, y))
    input_fn ({lambda}): input_fn should return (features, labels) as a len 2 tuple; got 3
    parts.
train.input_fn = mapped(lambda x, y: (y, x))
    With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn
    ({lambda}) returned a tensor. Are features and labels swapped?
train.input_fn = mapped(lambda x, y: (x['item'], y))
    With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn
    ({lambda}) returned a tensor.
spec.feature_columns = COLUMNS[:1]
embeddings = lambda features: fc.DenseFeatures(COLUMNS)(features)
    model_fn uses the TPU embedding columns of tables ['words'], which are not in the
    EmbeddingConfigSpec: add them to its feature_columns. It has the tables ['tbl_item'].
embeddings = lambda features: fc.DenseFeatures([fc.embedding_column(item(), 3)])(features)
    model_fn uses a column of table 'tbl_item' with dimension 3, and the EmbeddingConfigSpec has
    it with dimension 2. Use the spec's own columns in model_fn.
[train TypeError]
train_op = lambda loss: [loss]
    train_op must be Operation or Tensor, given: [<tf.Tensor 'Mean:0' shape=() dtype=float32>]
item.learning_rate_fn = lambda step: None
    Table 'tbl_item': learning_rate_fn {lambda} returned None; it must return a number or a
    scalar tensor. Is its `return` missing?
train.input_fn = tf.data.Dataset.from_tensors(1)
    input_fn must be a function that returns a Dataset, or features and labels; got a
    Dataset. Give the function itself, and make the Dataset inside of it.
train.input_fn = lambda params: (one for one in [])
    input_fn ({lambda}) must return a Dataset, or features and labels; it returned a generator.
    For Python's values, see tf.data.Dataset.from_generator.
train.input_fn = lambda program, params: v1.data.make_one_shot_iterator(program.input_fn(params))
    input_fn ({lambda}) must return a Dataset, or features and labels; it returned an iterator,
    Iterator. Return the Dataset, or what get_next() returns.
[train KeyError]
logits = lambda features: features['ages']
    "'ages'. The features that model_fn is given are ['age', 'item', 'words']. Did you mean
    'age'?"
estimator.params = {'hidden_units': 8}
model_fn = lambda features, labels, mode, params: params['hidden_unit']
    "params has no 'hidden_unit'; it has ['batch_size', 'context', 'hidden_units', 'use_tpu'].
    Did you mean 'hidden_units'?"
train.input_fn = lambda params: params['batchsize']
    "params has no 'batchsize'; it has ['batch_size', 'context']. Did you mean 'batch_size'?"
features.words = MISSING
features.word = [[1], [2], [3], [0]]
    "Feature words of table tbl_words is not among the features of the batch, ['age', 'item',
    'word']. Did you mean 'word'?"
[train AttributeError]
dense_optimizer = lambda program: program.parameters()
    'AdagradParameters' object has no attribute 'minimize': it trains embedding tables, as
    optimization_parameters of an EmbeddingConfigSpec. For the other variables, use an optimizer
    of tf.compat.v1.train.
[evaluate ValueError]
metrics = lambda labels, logits: {'mean': v1.metrics.mean(logits)}
    eval_metrics should be tuple or list
metrics = lambda labels, logits: (lambda logits: {'loss': v1.metrics.mean(logits)}, [logits])
    Metric with name "loss" is not allowed, because Estimator already defines a default metric
    with the same name.
evaluate.checkpoint_path = '/nowhere/model.ckpt-7'
    checkpoint_path: The passed save_path is not a valid checkpoint:
    '/nowhere/model.ckpt-7'.\nWhat to do: give the path of a checkpoint without the ends of its
    files' names.
[evaluate TypeError]
metrics = lambda labels, logits: (lambda logits: {}, {'score': logits})
    <lambda>.<locals>.<lambda>() got an unexpected keyword argument 'score'
metrics = lambda labels, logits: (lambda logits: None, [logits])
    eval_metrics: metric_fn ({lambda}) must return a dict of metrics; it returned None. Is its
    `return` missing?
metrics = lambda labels, logits: (lambda logits: {'score': [1]}, [logits])
    eval_metrics: metric_fn ({lambda}) must return a dict of names and pairs (value, update op),
    as functions of tf.compat.v1.metrics return, or Keras metrics; it returned [1] for 'score'.
metrics = lambda labels, logits: (lambda logits: {'score': 3}, [logits])
    eval_metrics: metric_fn ({lambda}) must return a dict of names and pairs (value, update op),
    as functions of tf.compat.v1.metrics return, or Keras metrics; it returned 3 for 'score'.
metrics = lambda labels, logits: (lambda logits: {1: v1.metrics.mean(logits)}, [logits])
    eval_metrics: metric_fn ({lambda}) must return a dict of names and pairs (value, update op),
    as functions of tf.compat.v1.metrics return, or Keras metrics; it returned a tuple for 1.
[evaluate TypeError host]
metrics = lambda labels, logits: (lambda logits: {'m': tf.keras.metrics.Mean()}, [logits])
    eval_metrics: metric_fn ({lambda}) returned a Keras metric for 'm'. A TPU takes only pairs
    (value, update op): use a function of tf.compat.v1.metrics.
[evaluate TypeError]
metrics = lambda labels, logits: ([labels], logits)
    eval_metrics[0] should be callable.
[evaluate RuntimeError]
metrics = lambda labels, logits: (lambda labels, logits: {}, [logits])
    In TPUEstimatorSpec.eval_metrics, length of tensors 1 does not match method args of the
    function, which takes 2.
[predict ValueError]
predictions = lambda logits: {'mean': tf.reduce_mean(logits, name='mean_of_all')}
    model_fn (Program.model_fn (program.py, line {line})): predictions['mean'] is a scalar,
    mean_of_all:0; it must have the batch as its first dimension, for predict hands it out one
    example at a time.
[predict ValueError cpu]
predictions = lambda program, logits: {'loss': program.loss(logits, None)}
    Argument `multi_class_labels` must not be None. In model_fn, labels is None in mode 'infer',
    as for every prediction and export: return its EstimatorSpec before the loss.
[build TypeError host]
columns = lambda program: [*Program.columns(program), fc.numeric_column('age')]
    Unsupported feature column 'age', of type NumericColumn: it has no table on a TPU. Supported
    types are those that feature_columns.embedding_column and
    feature_columns.shared_embedding_columns make. Make it with one of the two, or leave it out
    of the EmbeddingConfigSpec and use it in model_fn; with use_tpu=False the spec takes it.
[build TypeError]
columns = lambda program: [fc.categorical_column_with_identity(5, 'item')]
    categorical_column_with_identity: key must be a string and num_buckets a number; got 5 and
    'item', perhaps swapped: the key comes first.
columns = lambda program: [fc.categorical_column_with_hash_bucket(5, 'item')]
    categorical_column_with_hash_bucket: key must be a string and hash_bucket_size a number; got
    5 and 'item', perhaps swapped: the key comes first.
columns = lambda program: [fc.sequence_categorical_column_with_identity(5, 'item')]
    sequence_categorical_column_with_identity: key must be a string and num_buckets a number;
    got 5 and 'item', perhaps swapped: the key comes first.
columns = lambda program: [fc.sequence_categorical_column_with_hash_bucket(5, 'item')]
    sequence_categorical_column_with_hash_bucket: key must be a string and hash_bucket_size a
    number; got 5 and 'item', perhaps swapped: the key comes first.
columns = lambda program: [fc.categorical_column_with_vocabulary_list(['a'], 'item')]
    categorical_column_with_vocabulary_list: key must be a string and vocabulary_list a list;
    got ['a'] and 'item', perhaps swapped: the key comes first.
columns = lambda program: [fc.sequence_categorical_column_with_vocabulary_list(['a'], 'item')]
    sequence_categorical_column_with_vocabulary_list: key must be a string and vocabulary_list a
    list; got ['a'] and 'item', perhaps swapped: the key comes first.
build = lambda program: ee.Estimator(program.model_fn, embedding_config_spec=None)
    Estimator.__init__() got an unexpected keyword argument 'embedding_config_spec'
[train ValueError host]
estimator.embedding_config_spec = None
embeddings = lambda program, features: fc.DenseFeatures(program.columns())(features)
    model_fn uses the TPU embedding columns of tables ['item', 'words'], but TPUEstimator was
    given no embedding_config_spec: give it one with these columns.
"""

program.add(CHANGES, __file__, globals())
