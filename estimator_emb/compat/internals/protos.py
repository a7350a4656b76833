"""Private protocol buffer modules of TensorFlow. Published fields do not change."""

# Names of dtypes as graphs hold them, for `preflight`.
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import (
    # The contents of a checkpoint's index: where each variable is in the data files.
    tensor_bundle_pb2,
    # The objects of a checkpoint of `tf.train.Checkpoint`, and the names of their values in it.
    trackable_object_graph_pb2,
)

# The optimizers of the embedding hardware.
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as optimization_pb2

# The configuration of the tables for the embedding hardware.
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration
