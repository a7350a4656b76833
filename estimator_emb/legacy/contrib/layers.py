"""The functions of `tf.contrib.layers` that programs for TPUs use most."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_tf1 = tf.compat.v1


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

    epsilon is 1e-12, or 1e-3 for float16. `inputs` [batch, ...] has a known rank, like the result.
    With `center` there is a variable 'beta', initially zeros. With `scale` there is 'gamma',
    initially ones. They have the shape of `inputs` from `begin_params_axis` on, and this part must
    be known. `variables_collections` is a list, or a dict of lists by 'beta' and 'gamma'.

    Source: `layer_norm` of tensorflow/contrib/layers/python/layers/layers.py, TF 1.15.
    """
    with _tf1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as variable_scope:
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.rank
        if rank is None:
            raise ValueError(f"layer_norm: inputs must have a known rank; got {inputs}.")
        for name, axis in (
            ("begin_norm_axis", begin_norm_axis),
            ("begin_params_axis", begin_params_axis),
        ):
            if not -rank <= axis < rank:
                raise ValueError(
                    f"layer_norm: {name} must be an axis of inputs, which have {rank}; got {axis}."
                )
        shape = inputs.shape[begin_params_axis:]
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
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
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
    """Returns an initializer of variance `factor` / n, where n depends on `mode`.

    n is the number of a unit's inputs ('FAN_IN') or outputs ('FAN_OUT'), or their mean ('FAN_AVG').
    With `uniform`, values are drawn from [-sqrt(3 factor / n), sqrt(3 factor / n)]. Otherwise they
    come from a normal distribution of variance 1.3 factor / n, cut off at two standard deviations.

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
    """Returns a function of a tensor x: `scale` * sum(|x|). For scale 0 it returns None."""
    return _regularizer(scale, scope or "l1_regularizer", lambda x: tf.reduce_sum(tf.abs(x)))


def l2_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Returns a function of a tensor x: `scale` * sum(x^2) / 2. For scale 0 it returns None."""
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
