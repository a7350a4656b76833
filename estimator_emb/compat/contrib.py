# SPDX-License-Identifier: Apache-2.0
"""The part of TensorFlow 1's `tf.contrib` that programs for TPUs use.

Most of it still exists elsewhere in TensorFlow or in tensorflow-estimator; a few functions of
`tf.contrib.layers` are written here. Any other name is an error that says where it is today, where
that is known.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from estimator_emb.compat.changes import Changes

_tf1 = tf.compat.v1

NAME = "tensorflow.contrib"


# ---- tf.contrib.layers ------------------------------------------------------------------------


def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[[Any], Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> tf.Tensor:
    """Normalizes over the axes of each sample, then applies a learned scale and offset.

    With mean m and variance v of `inputs` over the axes from `begin_norm_axis` on:

        outputs = (inputs - m) / sqrt(v + epsilon) * gamma + beta

    epsilon is 1e-12, for float16 1e-3.

    Args:
      inputs: float [batch, ...], of known rank.
      center: True creates a variable 'beta', zeros at first.
      scale: True creates a variable 'gamma', ones at first.
      activation_fn: applied to the result; None for none.
      reuse: True takes the variables of an earlier layer of the same scope.
      variables_collections: graph collections to add the variables to, a list, or a dict of lists
        by 'beta' and 'gamma'.
      outputs_collections: graph collections to add the result to.
      trainable: True makes the variables trainable.
      begin_norm_axis: first axis to normalise over.
      begin_params_axis: first axis of the shape of the variables.
      scope: variable scope, 'LayerNorm' by default.

    Returns:
      A tensor of the shape of `inputs`.

    Raises:
      ValueError: rank or the shape of the variables is unknown, or an axis is out of range.

    Source: `layer_norm` of tensorflow/contrib/layers/python/layers/layers.py, TF 1.15.
    """
    with _tf1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as variable_scope:
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.rank
        if rank is None:
            raise ValueError(f"layer_norm: inputs must have a known rank; got {inputs}.")
        axes = {}
        for name, axis in (
            ("begin_norm_axis", begin_norm_axis),
            ("begin_params_axis", begin_params_axis),
        ):
            if not -rank <= axis < rank:
                raise ValueError(
                    f"layer_norm: {name} must be an axis of inputs, which have {rank}; got {axis}."
                )
            axes[name] = axis % rank
        shape = inputs.shape[axes["begin_params_axis"] :]
        if not shape.is_fully_defined():
            raise ValueError(
                "layer_norm: the shape of inputs must be known from begin_params_axis on; got "
                f"{inputs.shape}."
            )

        def variable(name: str, initializer: Any) -> Any:
            more = variables_collections or []
            if isinstance(more, dict):
                more = more.get(name) or []
            return _tf1.get_variable(
                name,
                shape=shape,
                dtype=inputs.dtype.base_dtype,
                initializer=initializer,
                trainable=trainable,
                collections=[
                    *([more] if isinstance(more, str) else more),
                    _tf1.GraphKeys.GLOBAL_VARIABLES,
                    _tf1.GraphKeys.MODEL_VARIABLES,
                ],
            )

        beta = variable("beta", _tf1.zeros_initializer()) if center else None
        gamma = variable("gamma", _tf1.ones_initializer()) if scale else None
        mean, variance = tf.nn.moments(
            inputs, list(range(axes["begin_norm_axis"], rank)), keepdims=True
        )
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        if outputs_collections is not None:
            outputs.aliases = [variable_scope.name]
            _tf1.add_to_collections(outputs_collections, outputs)
        return outputs


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = tf.float32,
) -> Any:
    """Returns an initializer of variance `factor` / n, with n the number of inputs of a unit.

    Args:
      factor: a number.
      mode: 'FAN_IN', 'FAN_OUT' (n is the number of outputs) or 'FAN_AVG' (n is their mean).
      uniform: True draws from [-sqrt(3 factor / n), sqrt(3 factor / n)], False from a normal
        distribution of variance 1.3 factor / n, cut off at two standard deviations.
      seed: a seed.
      dtype: a float dtype.

    Raises:
      ValueError: another mode.

    Source: the function of that name in tensorflow/contrib/layers/python/layers/initializers.py,
    TF 1.15.
    """
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise ValueError(
            f"variance_scaling_initializer: mode must be FAN_IN, FAN_OUT or FAN_AVG; got {mode!r}."
        )
    if not uniform:
        # TensorFlow's initializer divides by the standard deviation of a unit normal cut off at 2.
        factor = factor * 1.3 * 0.87962566103423978**2
    return _tf1.variance_scaling_initializer(
        scale=factor,
        mode=mode.lower(),
        distribution="uniform" if uniform else "truncated_normal",
        seed=seed,
        dtype=dtype,
    )


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """Returns a `variance_scaling_initializer` of factor 1 and mode 'FAN_AVG'."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def l1_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Returns a function: `scale` times the sum of a tensor's absolute values; None for scale 0."""
    return _regularizer(scale, scope or "l1_regularizer", lambda x: tf.reduce_sum(tf.abs(x)))


def l2_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Returns a function: `scale` times half the sum of a tensor's squares; None for scale 0."""
    return _regularizer(scale, scope or "l2_regularizer", tf.nn.l2_loss)


def _regularizer(scale: float, scope: str, norm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not scale >= 0 or isinstance(scale, bool):
        raise ValueError(f"{scope}: scale must be a number >= 0; got {scale!r}.")

    def regularizer(weights: Any) -> Any:
        if scale == 0:
            return None
        with tf.name_scope(scope):
            return tf.multiply(tf.cast(scale, weights.dtype.base_dtype), norm(weights))

    return regularizer


# ---- Where everything else is -----------------------------------------------------------------


def _batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def _same(prefix: str, names: str) -> dict[str, str]:
    return {name: f"{prefix}.{name}" for name in names.split()}


_SUMMARY = "tensorflow.python.ops.summary_ops_v2"

_MEMBERS: dict[str, dict[str, Any]] = {
    "cluster_resolver": {
        **_same(
            "tf.distribute.cluster_resolver",
            "ClusterResolver GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver "
            "SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver",
        ),
        "GceClusterResolver": "tf.distribute.cluster_resolver.GCEClusterResolver",
        "UnionClusterResolver": "tf.distribute.cluster_resolver.UnionResolver",
    },
    "data": {
        **_same(
            "tf.data.experimental",
            "AUTOTUNE CheckpointInputPipelineHook Counter Optional RaggedTensorStructure "
            "bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_ragged_batch "
            "dense_to_sparse_batch enumerate_dataset get_next_as_optional get_single_element "
            "group_by_reducer group_by_window ignore_errors make_batched_features_dataset "
            "make_csv_dataset make_saveable_from_iterator map_and_batch parallel_interleave "
            "prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat "
            "take_while unbatch unique",
        ),
        "batch_and_drop_remainder": _batch_and_drop_remainder,
    },
    "framework": {
        "get_or_create_global_step": "tf.train.get_or_create_global_step",
        "nest": "tf.nest",
    },
    "layers": {
        "flatten": "tf.layers.flatten",
        "l1_regularizer": l1_regularizer,
        "l2_regularizer": l2_regularizer,
        "layer_norm": layer_norm,
        "variance_scaling_initializer": variance_scaling_initializer,
        "xavier_initializer": xavier_initializer,
        "xavier_initializer_conv2d": xavier_initializer,
    },
    "summary": {
        **_same(
            _SUMMARY,
            "always_record_summaries audio create_file_writer create_summary_file_writer eval_dir "
            "flush generic graph histogram image import_event initialize never_record_summaries "
            "record_summaries_every_n_global_steps scalar should_record_summaries "
            "summary_writer_initializer_op",
        ),
        "all_summary_ops": f"{_SUMMARY}.all_v2_summary_ops",
    },
    "tpu": {
        **_same(
            "tf.estimator.tpu",
            "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
        ),
        **_same(
            "tf.tpu",
            "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
            "initialize_system outside_compilation replicate rewrite shard shutdown_system",
        ),
        **_same("tensorflow.python.tpu.training_loop", "repeat while_loop"),
        "AsyncCheckpointSaverHook": "tensorflow.python.tpu.async_checkpoint."
        "AsyncCheckpointSaverHook",
        "DeviceAssignment": "tf.tpu.experimental.DeviceAssignment",
        "device_assignment": "tensorflow.python.tpu.device_assignment.device_assignment",
        "Topology": "tensorflow.python.tpu.topology.Topology",
        "TPUContext": "tensorflow_estimator.python.estimator.tpu.tpu_context.TPUContext",
    },
    "training": {"checkpoints_iterator": "tf.train.checkpoints_iterator"},
    "training.python.training.evaluation": {
        "checkpoints_iterator": "tf.train.checkpoints_iterator"
    },
}
"""Module of tf.contrib -> its names -> where they are (below `tf.compat.v1` for tf), or a value."""

_MODULES = {
    "cluster_resolver.python.training.tpu_cluster_resolver": "tensorflow.python.distribute."
    "cluster_resolver.tpu.tpu_cluster_resolver",
    "tpu.python.ops.tpu_ops": "tensorflow.python.tpu.ops.tpu_ops",
    **{
        f"tpu.python.tpu.{name}": f"tensorflow.python.tpu.{name}"
        for name in (
            "async_checkpoint bfloat16 device_assignment error_handling feature_column functional "
            "session_support topology tpu tpu_config tpu_context tpu_embedding tpu_estimator "
            "tpu_feed tpu_function tpu_optimizer tpu_sharding training_loop util"
        ).split()
    },
}
"""Module of tf.contrib -> the module that takes its place."""

_ELSEWHERE = {
    "crf": "the package tensorflow-addons had it (tfa.text.crf_*)",
    "distribute": "tf.distribute",
    "eager": "tf (tf.function, tf.GradientTape, tf.train.Checkpoint)",
    "estimator": "tf.estimator",
    "feature_column": "tf.feature_column",
    "framework.arg_scope": "the package tf_slim (tf_slim.arg_scope)",
    "image": "tf.image; the package tensorflow-addons had the rest",
    "layers.batch_norm": "tf.layers.batch_normalization",
    "layers.conv2d": "tf.layers.conv2d",
    "layers.dropout": "tf.layers.dropout",
    "layers.embedding_column": "tf.feature_column.embedding_column",
    "layers.fully_connected": "tf.layers.dense",
    "layers.max_pool2d": "tf.layers.max_pooling2d",
    "layers.optimize_loss": "an optimizer's minimize(), with tf.clip_by_global_norm",
    "learn": "tf.estimator",
    "lookup": "tf.lookup",
    "metrics": "tf.metrics, or the package tf_slim (tf_slim.metrics)",
    "opt": "the package tensorflow-addons had it (tfa.optimizers)",
    "quantize": "the package tensorflow-model-optimization",
    "rnn": "tf.nn.rnn_cell",
    "saved_model": "tf.saved_model",
    "seq2seq": "the package tensorflow-addons had it (tfa.seq2seq)",
    "slim": "the package tf_slim",
    "tpu.keras_to_tpu_model": "tf.distribute.TPUStrategy",
    "training.HParams": "a class of the program's own; types.SimpleNamespace has its attributes",
}
"""Names that this module lacks -> what to use in their place."""


class _Namespace(ModuleType):
    """The module `tf.contrib`, or a module of it."""

    def __init__(self, path: str):
        super().__init__(f"{NAME}.{path}" if path else NAME)
        self.__path__: list[str] = []
        self._path = path

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(_not_here(path))


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that explains imports of lacking modules; the others are in `sys.modules`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname.startswith(NAME + "."):
            raise ImportError(_not_here(fullname.removeprefix(NAME + ".")), name=fullname)


def install(changes: Changes) -> ModuleType:
    """Makes `tensorflow.contrib` importable by changes that can be undone, and returns it."""
    top = _Namespace("")
    changes.set_module(NAME, top)
    for path, members in _MEMBERS.items():
        namespace = _namespace(path, changes)
        for name, where in members.items():
            if isinstance(where, str):
                if not has_path(*_start(where)):
                    continue  # Only some versions of TensorFlow have it.
                where = _follow(*_start(where))
            setattr(namespace, name, where)
    for path, module_name in _MODULES.items():
        parent, _, leaf = path.rpartition(".")
        module = importlib.import_module(module_name)
        setattr(_namespace(parent, changes), leaf, module)
        changes.set_module(f"{NAME}.{path}", module)
    changes.add_finder(_Finder())
    return top


def has_path(owner: Any, path: str) -> bool:
    """Returns whether `owner` has an attribute by the dotted name `path`."""
    try:
        _follow(owner, path)
    except AttributeError:
        return False
    return True


def _follow(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def _start(where: str) -> tuple[Any, str]:
    """Returns the module in which a dotted name begins, and the rest of the name."""
    if where.startswith("tf."):
        return _tf1, where.removeprefix("tf.")
    module, _, name = where.rpartition(".")
    return importlib.import_module(module), name


def _namespace(path: str, changes: Changes) -> ModuleType:
    name = f"{NAME}.{path}" if path else NAME
    if name not in sys.modules:
        changes.set_module(name, _Namespace(path))
        parent, _, leaf = path.rpartition(".")
        setattr(_namespace(parent, changes), leaf, sys.modules[name])
    return sys.modules[name]


def _not_here(path: str) -> str:
    known = path
    while known and known not in _ELSEWHERE:
        known = known.rpartition(".")[0]
    if known:
        return f"tf.contrib.{path} left TensorFlow with version 2. Today: {_ELSEWHERE[known]}."
    return (
        f"tf.contrib.{path} left TensorFlow with version 2, and estimator_emb does not have it. "
        "The package tf_slim has much of tf.contrib."
    )
