"""Private names of TensorFlow: feature columns, its own and those of TPU tables."""

from tensorflow.python.feature_column import feature_column as _feature_column
from tensorflow.python.feature_column import feature_column_v2 as _feature_column_v2
from tensorflow.python.tpu import feature_column as _tpu_feature_column
from tensorflow.python.tpu import feature_column_v2 as _tpu_feature_column_v2

# ---- Columns of TPU tables --------------------------------------------------------------------

tpu_feature_column = _tpu_feature_column
"""The module of TensorFlow 1's TPU columns. We replace its record of scopes by ours."""

tpu_feature_column_v2 = _tpu_feature_column_v2
"""The module of TensorFlow 2's TPU columns. It keeps a separate record of scopes."""

LegacyTPUEmbeddingColumn = _tpu_feature_column._TPUEmbeddingColumn
"""Class of TensorFlow 1's `tpu.embedding_column`. An `EmbeddingConfigSpec` may list it."""

LegacyTPUSharedEmbeddingColumn = _tpu_feature_column._TPUSharedEmbeddingColumn
"""Class of TensorFlow 1's `tpu.shared_embedding_columns`. An `EmbeddingConfigSpec` may list it."""

TPUEmbeddingColumn = _tpu_feature_column_v2._TPUEmbeddingColumnV2
"""Class of today's `embedding_column`. We wrap its methods to record names of variables."""

TPUSharedEmbeddingColumn = _tpu_feature_column_v2._TPUSharedEmbeddingColumnV2
"""Class of today's `shared_embedding_columns`. We wrap its methods likewise."""

EmbeddingDevice = _tpu_feature_column_v2.EmbeddingDevice
"""Where a column's table is looked up, as the column can request."""

pad_sparse_embedding_lookup_indices = _tpu_feature_column_v2.pad_sparse_embedding_lookup_indices
"""Pads ids to a fixed shape and makes their mask, for columns that the model itself looks up."""

TENSOR_CORE_MASK_KEY_SUFFIX = _tpu_feature_column_v2._TENSOR_CORE_MASK_KEY_SUFFIX
"""End of the feature key of the mask from `pad_sparse_embedding_lookup_indices`."""

sequence_length_key = _tpu_feature_column.get_sequence_length_feature_key_name_from_feature_key_name
"""Returns the feature key where a sequence column of a TPU table finds the sequence lengths."""

TPU_FC_TO_SCOPE = _tpu_feature_column._TPU_FC_TO_SCOPE
"""The graph collection in which TPU columns record scopes while we do not record names."""

# ---- TensorFlow's own columns -----------------------------------------------------------------

BucketizedColumn = _feature_column_v2.BucketizedColumn
"""A categorical column that computes its ids from numbers."""

CrossedColumn = _feature_column_v2.CrossedColumn
"""A categorical column that computes its ids from the features of other columns."""

LegacyNumericColumn = _feature_column._NumericColumn
"""A column that the model computes and that has no table on a TPU, like the next four classes."""

LegacyEmbeddingColumn = _feature_column._EmbeddingColumn
"""Class of TensorFlow 1's own `embedding_column`."""

LegacySharedEmbeddingColumn = _feature_column._SharedEmbeddingColumn
"""Class of TensorFlow 1's own `shared_embedding_columns`."""

NumericColumn = _feature_column_v2.NumericColumn
"""Class of `tf.feature_column.numeric_column`."""

EmbeddingColumn = _feature_column_v2.EmbeddingColumn
"""Class of `tf.feature_column.embedding_column`."""

SharedEmbeddingColumn = _feature_column_v2.SharedEmbeddingColumn
"""Class of `tf.feature_column.shared_embeddings`. An `EmbeddingConfigSpec` refuses it."""

HashedCategoricalColumn = _feature_column_v2.HashedCategoricalColumn
"""A hashed column. The native kernels compute its ids and those of the next three classes."""

VocabularyFileCategoricalColumn = _feature_column_v2.VocabularyFileCategoricalColumn
"""A column with a vocabulary file."""

VocabularyListCategoricalColumn = _feature_column_v2.VocabularyListCategoricalColumn
"""A column with a vocabulary list."""

IdentityCategoricalColumn = _feature_column_v2.IdentityCategoricalColumn
"""A column with ids as its input, and an optional default value."""

StateManagerImpl = _feature_column_v2._StateManagerImpl
"""Creates the variables of a layer's columns. Its own `create_variable` uses variable scopes."""

LazyBuilder = _feature_column._LazyBuilder
"""Transforms each feature once for all columns of a v1 input layer. We wrap its `get`."""

FeatureTransformationCache = _feature_column_v2.FeatureTransformationCache
"""Transforms each feature once for all columns of a Keras layer. We wrap its `get`."""

normalize_feature_columns = _feature_column._normalize_feature_columns
"""Checks the columns passed to `sequence_input_layer`, as TensorFlow's own input layers do."""
