"""Describes the embedding ops of a graph, so that two graphs can be compared."""

import collections
import hashlib

import tensorflow as tf

import estimator_emb as ee
from estimator_emb.legacy import tpu_embedding as ours


def one_table(table=None, hosts=1, **changed):
    """Returns our TPUEmbedding with one table "t" and its feature "x", on hosts with two cores.

    Args:
      table: its TableConfig.
      hosts: number of hosts of the TPU.
      **changed: other arguments of TPUEmbedding.
    """
    arguments = {
        "table_to_config_dict": {"t": table or ee.TableConfig(7, 2)},
        "feature_to_config_dict": {"x": ee.FeatureConfig("t")},
        "batch_size": 8 * hosts,
        "mode": ours.TRAINING,
        "optimization_parameters": ee.AdagradParameters(0.3),
        "device_config": ours.DeviceConfig(hosts, 2 * hosts, "/job:worker"),
    }
    return ours.TPUEmbedding(**{**arguments, **changed})


def build(embedding, module, ragged=False):
    """Returns the graph in which `embedding` (of `module`) trains or looks up."""
    with tf.Graph().as_default() as graph:
        step = tf.compat.v1.train.get_or_create_global_step()
        variables = embedding.create_variables_and_ops()
        variables.load_ops()
        data = []
        for host in embedding.hosts:
            with tf.device(host):
                for core in range(embedding.num_cores_per_host):
                    data.append(_data(embedding, module, f"{len(data)}_{core}", ragged))
        embedding.generate_enqueue_ops(data, ragged=ragged)
        with tf.name_scope("computation"):
            activations = embedding.get_activations()
            if embedding.config_proto.mode == module.TRAINING:
                gradients = {
                    feature: tf.multiply(activation, 2.0, name=f"gradient_{feature}")
                    for feature, activation in activations.items()
                }
                with tf.name_scope("rates"):
                    embedding.generate_send_gradients_op(gradients, step)
        variables.retrieve_ops()
    return graph


def _data(embedding, module, core, ragged):
    """Returns placeholders for every form of ids: weighted, unweighted, and without places."""
    data = collections.OrderedDict()
    for feature, config in sorted(embedding.feature_to_config_dict.items()):
        combiner = embedding.table_to_config_dict[config.table_id].combiner

        def placeholder(what, dtype, shape, feature=feature):
            return tf.compat.v1.placeholder(dtype, shape, f"{feature}_{what}_{core}")

        ids = placeholder("ids", tf.int64, [None])
        weights = placeholder("weights", tf.float32, [None]) if config.weight_key else None
        if ragged:
            splits = placeholder("splits", tf.int64, [None]) if combiner else None
            data[feature] = module.RaggedEnqueueData(ids, splits, weights)
        else:
            places = placeholder("places", tf.int64, [None, 2]) if combiner else None
            data[feature] = module.EnqueueData(ids, places, weights)
    return data


def describe(graph):
    """Describes every embedding op, and every assignment of a retrieved value, sorted.

    Each description is a list of lines: type and attributes, then the op's inputs down to
    variables, placeholders and constants. Configurations are replaced by a digest. Node names are
    left out, except those of variables and placeholders.
    """
    described = []
    for op in graph.get_operations():
        from_hardware = any("TPUEmbedding" in one.op.type for one in op.inputs)
        if "TPUEmbedding" in op.type or ("Assign" in op.type and from_hardware):
            described.append(_lines(op, 0))
    return sorted(described)


_LEAVES = ("VarHandleOp", "VariableV2", "Placeholder")


def _lines(op, depth):
    attributes = {
        name: _attribute(name, value)
        for name, value in sorted(op.node_def.attr.items())
        if not name.startswith("_") or name == "_class"
    }
    leaf = op.type in _LEAVES
    if leaf:
        attributes = {name: attributes[name] for name in ("dtype", "shape")}
    line = "  " * depth + op.type
    line += f" {op.name}" if leaf else ""
    line += f" on {op.device}" if op.device else ""
    line += "".join(f" {name}={value}" for name, value in attributes.items())
    if leaf:
        return [line]
    return [line, *(text for one in op.inputs for text in _lines(one.op, depth + 1))]


def _attribute(name, value):
    kind = value.WhichOneof("value")
    if name == "config" and value.s:
        return hashlib.sha256(value.s).hexdigest()[:12]
    if kind == "tensor":
        return tf.make_ndarray(value.tensor).tolist()
    if kind == "list":
        return str(value.list).replace("\n", " ").strip()
    return str(value).replace("\n", " ").strip()
