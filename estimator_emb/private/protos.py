"""Private modules of TensorFlow: protocol buffers. Their fields do not change once published."""

from tensorflow.core.framework import types_pb2 as _types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2 as _tensor_bundle_pb2
from tensorflow.core.protobuf import trackable_object_graph_pb2 as _trackable_object_graph_pb2
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as _optimization_pb2
from tensorflow.core.protobuf.tpu import topology_pb2 as _topology_pb2
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2 as _embedding_pb2
from tensorflow.core.util import event_pb2 as _event_pb2

types_pb2 = _types_pb2
"""Names of dtypes as graphs hold them, for `preflight`."""

tensor_bundle_pb2 = _tensor_bundle_pb2
"""What the index of a checkpoint holds: where each variable lies in its files."""

trackable_object_graph_pb2 = _trackable_object_graph_pb2
"""The objects of a checkpoint of `tf.train.Checkpoint`, and the names of their values in it."""

optimization_pb2 = _optimization_pb2
"""The optimizers of the embedding hardware."""

TPUEmbeddingConfiguration = _embedding_pb2.TPUEmbeddingConfiguration
"""The tables, as the embedding hardware is told them."""

topology_pb2 = _topology_pb2
"""What a TPU says of its generation."""

event_pb2 = _event_pb2
"""Heartbeats of the hosts of a TPU."""
