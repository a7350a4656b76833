"""Private names of TensorFlow: feature columns, its own and those of TPU tables."""

from tensorflow.python.feature_column import feature_column as _feature_column
from tensorflow.python.feature_column import feature_column_v2 as _feature_column_v2
from tensorflow.python.tpu import feature_column as _tpu_feature_column
from tensorflow.python.tpu import feature_column_v2 as _tpu_feature_column_v2

# ---- Columns of TPU tables --------------------------------------------------------------------

tpu_feature_column = _tpu_feature_column
"""The module of TensorFlow 1's TPU columns, whose record of scopes is replaced by ours."""

tpu_feature_column_v2 = _tpu_feature_column_v2
"""The module of TensorFlow 2's TPU columns, which has a record of scopes of its own."""

LegacyTPUEmbeddingColumn = _tpu_feature_column._TPUEmbeddingColumn
"""A column that an `EmbeddingConfigSpec` may list: `tpu.embedding_column` with TensorFlow 1."""

LegacyTPUSharedEmbeddingColumn = _tpu_feature_column._TPUSharedEmbeddingColumn
"""The same of `tpu.shared_embedding_columns`."""

TPUEmbeddingColumn = _tpu_feature_column_v2._TPUEmbeddingColumnV2
"""The same of today's `embedding_column`; its methods are wrapped to record names of variables."""

TPUSharedEmbeddingColumn = _tpu_feature_column_v2._TPUSharedEmbeddingColumnV2
"""The same of today's `shared_embedding_columns`."""

EmbeddingDevice = _tpu_feature_column_v2.EmbeddingDevice
"""The places where a column can say that its table is looked up."""

pad_sparse_embedding_lookup_indices = _tpu_feature_column_v2.pad_sparse_embedding_lookup_indices
"""Ids of fixed shape and their mask, as columns that the model looks up itself read them."""

TENSOR_CORE_MASK_KEY_SUFFIX = _tpu_feature_column_v2._TENSOR_CORE_MASK_KEY_SUFFIX
"""Ends the feature key of that mask."""

sequence_length_key = _tpu_feature_column.get_sequence_length_feature_key_name_from_feature_key_name
"""The feature key under which a sequence column of a TPU table finds the lengths."""

TPU_FC_TO_SCOPE = _tpu_feature_column._TPU_FC_TO_SCOPE
"""The graph collection in which TPU columns record scopes, where we do not record names."""

# ---- TensorFlow's own columns -----------------------------------------------------------------

BucketizedColumn = _feature_column_v2.BucketizedColumn
"""A categorical column that computes its ids from numbers."""

CrossedColumn = _feature_column_v2.CrossedColumn
"""A categorical column that computes its ids from what other columns read."""

LegacyNumericColumn = _feature_column._NumericColumn
"""A column that the model computes, of no meaning on a TPU; so are the next four."""

LegacyEmbeddingColumn = _feature_column._EmbeddingColumn
"""The column of TensorFlow 1's own `embedding_column`."""

LegacySharedEmbeddingColumn = _feature_column._SharedEmbeddingColumn
"""The column of TensorFlow 1's own `shared_embedding_columns`."""

NumericColumn = _feature_column_v2.NumericColumn
"""The column of `tf.feature_column.numeric_column`."""

EmbeddingColumn = _feature_column_v2.EmbeddingColumn
"""The column of `tf.feature_column.embedding_column`."""

SharedEmbeddingColumn = _feature_column_v2.SharedEmbeddingColumn
"""The column of `tf.feature_column.shared_embeddings`, refused in an `EmbeddingConfigSpec`."""

HashedCategoricalColumn = _feature_column_v2.HashedCategoricalColumn
"""A column whose ids the native kernels compute; so are those of the next three."""

VocabularyFileCategoricalColumn = _feature_column_v2.VocabularyFileCategoricalColumn
"""The column of a vocabulary file."""

VocabularyListCategoricalColumn = _feature_column_v2.VocabularyListCategoricalColumn
"""The column of a vocabulary in a list."""

IdentityCategoricalColumn = _feature_column_v2.IdentityCategoricalColumn
"""The column of ids, perhaps with a default value."""

StateManagerImpl = _feature_column_v2._StateManagerImpl
"""Creates the variables of a layer's columns; one of this very kind goes by variable scopes."""

LazyBuilder = _feature_column._LazyBuilder
"""Transforms each feature once for all columns of a v1 input layer; its `get` is wrapped."""

FeatureTransformationCache = _feature_column_v2.FeatureTransformationCache
"""The same for the layers of Keras."""

normalize_feature_columns = _feature_column._normalize_feature_columns
"""Checks the columns given to `sequence_input_layer`, as TensorFlow's own input layers do."""
