"""Private modules of TensorFlow: protocol buffers. Their fields do not change once published."""

# Names of dtypes as graphs hold them, for `preflight`.
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import (
    # What the index of a checkpoint holds: where each variable lies in its files.
    tensor_bundle_pb2,
    # The objects of a checkpoint of `tf.train.Checkpoint`, and the names of their values in it.
    trackable_object_graph_pb2,
)

# The optimizers of the embedding hardware.
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as optimization_pb2

# What a TPU says of its generation.
from tensorflow.core.protobuf.tpu import topology_pb2

# The tables, as the embedding hardware is told them.
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration
