"""Mistakes in the good program's functions, and in their results."""

import program
import tensorflow as tf
from program import Program, v1

import feature_columns as fc

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
    `model_dir` are set both in constructor and `RunConfig`, but with different values.
[train ValueError]
model_fn = lambda program, features, labels, mode: None
    does not include params argument, required by TPUEstimator to pass batch size as
model_fn = lambda program, features, mode, params: None
    model_fn does not take labels, but input_fn returns labels.
train.input_fn = mapped(lambda x, y: x)
    Argument `multi_class_labels` must not be None.
model_fn = lambda features, labels, mode, params: None
    returned None. Is its `return` missing?
model_fn = lambda features, labels, mode, params: (labels, features)
    returned a tuple.
model_fn = in_mode('eval')
    was called with mode 'train', and returned a TPUEstimatorSpec of mode 'eval'.
train_op = lambda loss: None
    Missing train_op.
loss = lambda logits, labels: tf.identity(logits - labels, name='each')
    Loss must be scalar, given: Tensor("each:0", shape=(4, 1), dtype=float32)
loss = lambda logits, labels: tf.constant(1, name='whole')
    Invalid type tf.int32 for whole:0
train_op = lambda loss: tf.keras.optimizers.Adam(0.1).minimize(loss, v1.trainable_variables())
    Adam.minimize: A Keras optimizer does not train in a model_fn
train_op = lambda loss: tf.keras.optimizers.AdamW(0.1).apply_gradients(pairs(loss))
    AdamW.apply_gradients: A Keras optimizer does not train in a model_fn
train_op = lambda loss: tf.keras.optimizers.Adam(0.1, weight_decay=0.5).get_updates(loss, [])
    which does not know weight_decay=0.5: leave it out.
train_op = lambda loss: tf.keras.optimizers.legacy.SGD(0.1).minimize(loss, v1.trainable_variables())
    SGD.minimize: A Keras optimizer does not train in a model_fn
train_op = lambda program, loss: program.dense_optimizer().minimize(loss, None, [])
    No variables to optimize.
train.input_fn = lambda params: None
    must return a Dataset, or features and labels; it returned None. Is its `return` missing?
train.input_fn = lambda program: program.input_fn({'batch_size': 4})
    does not include params argument, required by TPUEstimator to pass batch size as
train.input_fn = mapped(lambda x, y: (x, y, y))
    input_fn should return (features, labels) as a len 2 tuple; got 3 parts.
train.input_fn = mapped(lambda x, y: (y, x))
    returned a tensor. Are features and labels swapped?
train.input_fn = mapped(lambda x, y: (x['item'], y))
    With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn
spec.feature_columns = COLUMNS[:1]
embeddings = lambda features: fc.DenseFeatures(COLUMNS)(features)
    model_fn uses the TPU embedding columns of tables ['words'], which are not in the
embeddings = lambda features: fc.DenseFeatures([fc.embedding_column(item(), 3)])(features)
    model_fn uses a column of table 'tbl_item' with dimension 3, and the EmbeddingConfigSpec
[train TypeError]
train_op = lambda loss: [loss]
    train_op must be Operation or Tensor, given: [<tf.Tensor 'Mean:0' shape=() dtype=float32>]
item.learning_rate_fn = lambda step: None
    returned None; it must return a number or a scalar tensor. Is its `return` missing?
train.input_fn = tf.data.Dataset.from_tensors(1)
    input_fn must be a function that returns a Dataset, or features and labels; got a Dataset.
train.input_fn = lambda params: (one for one in [])
    must return a Dataset, or features and labels; it returned a generator.
train.input_fn = lambda program, params: v1.data.make_one_shot_iterator(program.input_fn(params))
    must return a Dataset, or features and labels; it returned an iterator, Iterator.
[train KeyError]
logits = lambda features: features['ages']
    "'ages'. The features that model_fn is given are ['age', 'item', 'words'].
estimator.params = {'hidden_units': 8}
model_fn = lambda features, labels, mode, params: params['hidden_unit']
    "params has no 'hidden_unit'; it has ['batch_size', 'context', 'hidden_units', 'use_tpu'].
train.input_fn = lambda params: params['batchsize']
    "params has no 'batchsize'; it has ['batch_size', 'context']. Did you mean 'batch_size'?"
features.words = MISSING
features.word = [[1], [2], [3], [0]]
    "Feature words of table tbl_words is not among the features of the batch, ['age', 'item',
[train AttributeError]
dense_optimizer = lambda program: program.parameters()
    'AdagradParameters' object has no attribute 'minimize': it trains embedding tables
[evaluate ValueError]
metrics = lambda labels, logits: {'mean': v1.metrics.mean(logits)}
    eval_metrics should be tuple or list
metrics = lambda labels, logits: (lambda logits: {'loss': v1.metrics.mean(logits)}, [logits])
    Metric with name "loss" is not allowed, because Estimator already defines a default
evaluate.checkpoint_path = '/nowhere/model.ckpt-7'
    checkpoint_path: The passed save_path is not a valid checkpoint: '/nowhere/model.ckpt-7'.
[evaluate TypeError]
metrics = lambda labels, logits: (lambda logits: {}, {'score': logits})
    <lambda>.<locals>.<lambda>() got an unexpected keyword argument 'score'
metrics = lambda labels, logits: (lambda logits: None, [logits])
    must return a dict of metrics; it returned None. Is its `return` missing?
metrics = lambda labels, logits: (lambda logits: {'score': [1]}, [logits])
    or Keras metrics; it returned [1] for 'score'.
metrics = lambda labels, logits: (lambda logits: {'score': 3}, [logits])
    or Keras metrics; it returned 3 for 'score'.
metrics = lambda labels, logits: (lambda logits: {1: v1.metrics.mean(logits)}, [logits])
    or Keras metrics; it returned a tuple for 1.
[evaluate TypeError host]
metrics = lambda labels, logits: (lambda logits: {'m': tf.keras.metrics.Mean()}, [logits])
    returned a Keras metric for 'm'. A TPU takes only pairs (value, update op)
[evaluate TypeError]
metrics = lambda labels, logits: ([labels], logits)
    eval_metrics[0] should be callable.
[evaluate RuntimeError]
metrics = lambda labels, logits: (lambda labels, logits: {}, [logits])
    In TPUEstimatorSpec.eval_metrics, length of tensors 1 does not match method args of the
[predict ValueError]
predictions = lambda logits: {'mean': tf.reduce_mean(logits, name='mean_of_all')}
    predictions['mean'] is a scalar, mean_of_all:0;
predictions = lambda program, logits: {'loss': program.loss(logits, None)}
    Argument `multi_class_labels` must not be None.
[build TypeError host]
columns = lambda program: [*Program.columns(program), fc.numeric_column('age')]
    Unsupported feature column 'age', of type NumericColumn: it has no table on a TPU.
[build TypeError]
columns = lambda program: [fc.categorical_column_with_identity(5, 'item')]
    categorical_column_with_identity: key must be a string and num_buckets a number;
columns = lambda program: [fc.categorical_column_with_hash_bucket(5, 'item')]
    categorical_column_with_hash_bucket: key must be a string and hash_bucket_size a number;
columns = lambda program: [fc.sequence_categorical_column_with_identity(5, 'item')]
    sequence_categorical_column_with_identity: key must be a string and num_buckets a number;
columns = lambda program: [fc.sequence_categorical_column_with_hash_bucket(5, 'item')]
    got 5 and 'item', perhaps swapped: the key comes first.
columns = lambda program: [fc.categorical_column_with_vocabulary_list(['a'], 'item')]
    categorical_column_with_vocabulary_list: key must be a string and vocabulary_list a list;
columns = lambda program: [fc.sequence_categorical_column_with_vocabulary_list(['a'], 'item')]
    got ['a'] and 'item', perhaps swapped: the key comes first.
build = lambda program: ee.Estimator(program.model_fn, embedding_config_spec=None)
    Estimator.__init__() got an unexpected keyword argument 'embedding_config_spec'
[train ValueError host]
estimator.embedding_config_spec = None
embeddings = lambda program, features: fc.DenseFeatures(program.columns())(features)
    model_fn uses the TPU embedding columns of tables ['item', 'words'], but TPUEstimator was
"""

program.add(CHANGES, __file__, globals())
