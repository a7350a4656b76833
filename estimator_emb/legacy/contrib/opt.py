"""Optimizers of `tf.contrib.opt`: decoupled weight decay, LARS and lazy Adam.

Slot variables have the same names as in TensorFlow 1.15, so its checkpoints can be restored.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_tf1 = tf.compat.v1


def _called(value: Any) -> Any:
    return value() if callable(value) else value


class DecoupledWeightDecayExtension:
    """Decays variables by `weight_decay` times their value, before an optimizer updates them.

    It stands before the optimizer among the base classes. With weight decay w, gradient g and the
    optimizer's update U(g), which must not depend on the variable:

        variable = variable - w variable - U(g)

    A sparse gradient decays only its own rows. `weight_decay` is a number, a float tensor, or a
    function that returns a number or tensor. It is not scaled by the learning rate.

    Source: the class of that name in tensorflow/contrib/opt/python/training/
    weight_decay_optimizers.py, TF 1.15, after Loshchilov and Hutter, arXiv:1711.05101.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any):
        self._decayed: frozenset[Any] = frozenset()
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def minimize(
        self, loss: Any, *args: Any, decay_var_list: Sequence[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Minimizes like the optimizer. `decay_var_list` has no effect, as in TF 1.15."""
        if decay_var_list:
            _tf1.logging.warning(
                "%s.minimize: decay_var_list has no effect, as in TensorFlow 1.15: every variable "
                "that is updated decays. apply_gradients heeds it.",
                type(self).__name__,
            )
        return super().minimize(loss, *args, **kwargs)  # type: ignore[misc]

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Sequence[Any] | None = None,
    ) -> Any:
        """Decays the variables of `decay_var_list`, by default all, then applies gradients."""
        self._decayed = frozenset(variable.ref() for variable in decay_var_list or ())
        return super().apply_gradients(  # type: ignore[misc]
            grads_and_vars, global_step=global_step, name=name
        )

    def _prepare(self) -> None:
        decay = _called(self._weight_decay)
        self._weight_decay_tensor = tf.convert_to_tensor(decay, name="weight_decay")
        super()._prepare()  # type: ignore[misc]

    def _decay(self, variable: Any, indices: Any = None) -> tf.Operation:
        if self._decayed and variable.ref() not in self._decayed:
            return tf.no_op()
        rate = tf.cast(self._weight_decay_tensor, variable.dtype.base_dtype)
        locking = self._use_locking  # type: ignore[attr-defined]
        if indices is None:
            return variable.assign_sub(rate * variable, locking, read_value=False)
        rows = tf.gather(variable, indices)
        return _tf1.scatter_sub(variable, indices, rate * rows, use_locking=locking)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        with tf.control_dependencies([self._decay(var)]):
            return super()._apply_dense(grad, var)  # type: ignore[misc]

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        with tf.control_dependencies([self._decay(var)]):
            return super()._resource_apply_dense(grad, var)  # type: ignore[misc]

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        with tf.control_dependencies([self._decay(var, grad.indices)]):
            return super()._apply_sparse(grad, var)  # type: ignore[misc]

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        with tf.control_dependencies([self._decay(var, indices)]):
            return super()._resource_apply_sparse(grad, var, indices)  # type: ignore[misc]


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Returns a subclass of `base_optimizer` that decays variables before it updates them.

    The subclass takes `weight_decay` first, then the arguments of `base_optimizer` by name. See
    `DecoupledWeightDecayExtension`.
    """

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[misc, valid-type]
        """An optimizer with decoupled weight decay."""

    return OptimizerWithDecoupledWeightDecay


class AdamWOptimizer(DecoupledWeightDecayExtension, _tf1.train.AdamOptimizer):  # type: ignore[misc, name-defined]
    """Adam with decoupled weight decay, see `DecoupledWeightDecayExtension`."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ):
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, _tf1.train.MomentumOptimizer):  # type: ignore[misc, name-defined]
    """SGD with momentum and decoupled weight decay, see `DecoupledWeightDecayExtension`."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ):
        super().__init__(weight_decay, learning_rate, momentum, use_locking, name, use_nesterov)


class LARSOptimizer(_tf1.train.MomentumOptimizer):  # type: ignore[misc, name-defined]
    """SGD with momentum. The rate of each variable is scaled by its norm and its gradient's norm.

    For variable v, gradient g and weight decay w, if both norms are positive:

        trust = eeta |v| / (|g| + w |v| + epsilon)
        momentum = momentum_rate momentum + learning_rate trust (g + w v)
        v = v - momentum

    Otherwise trust is 1. Sparse gradients use plain momentum, without trust and decay. The same
    holds for variables if their name contains a text of `skip_list`.

    Source: tensorflow/contrib/opt/python/training/lars_optimizer.py, TF 1.15, after You, Gitman and
    Ginsburg, arXiv:1708.03888.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: float = 0.9,
        weight_decay: float = 0.0001,
        eeta: float = 0.001,
        epsilon: float = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ):
        for what, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0.0:
                raise ValueError(f"LARSOptimizer: {what} should be positive; got {value}.")
        super().__init__(learning_rate, momentum, name=name, use_nesterov=use_nesterov)
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list

    def compute_lr(self, grad: Any, var: Any) -> tuple[Any, Any]:
        """Returns the scaled rate of a variable, and its gradient with the weight decay."""
        rate = _called(self._learning_rate)
        if any(part in var.name for part in self._skip_list or ()):
            return rate, grad
        norm, gradient_norm = tf.norm(var), tf.norm(grad)
        trust = self._eeta * norm / (gradient_norm + self._weight_decay * norm + self._epsilon)
        trust = tf.where((norm > 0) & (gradient_norm > 0), trust, tf.ones_like(trust))
        return rate * trust, grad + self._weight_decay * var

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        rate, grad = self.compute_lr(grad, var)
        slot = self.get_slot(var, "momentum")
        kind = "ResourceApplyMomentum" if hasattr(var, "handle") else "ApplyMomentum"
        updated = getattr(tf.raw_ops, kind)(
            var=getattr(var, "handle", var),
            accum=getattr(slot, "handle", slot),
            lr=tf.ones([], grad.dtype),
            grad=grad * rate,
            momentum=tf.cast(self._momentum_tensor, grad.dtype),
            use_nesterov=self._use_nesterov,
        )
        return getattr(updated, "op", updated)

    _resource_apply_dense = _apply_dense


class LazyAdamOptimizer(_tf1.train.AdamOptimizer):  # type: ignore[misc, name-defined]
    """Adam that updates only the rows of a sparse gradient, in the variable and its slots.

    Source: tensorflow/contrib/opt/python/training/lazy_adam_optimizer.py, TF 1.15.
    """

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power = (
            tf.cast(power, dtype) for power in self._get_beta_accumulators()
        )
        rate, beta1, beta2, epsilon = (
            tf.cast(value, dtype)
            for value in (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        )
        rate = rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m_rows = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
        v_rows = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(grad)
        step = rate * m_rows / (tf.sqrt(v_rows) + epsilon)
        locking = self._use_locking
        return tf.group(
            _tf1.scatter_update(m, indices, m_rows, use_locking=locking),
            _tf1.scatter_update(v, indices, v_rows, use_locking=locking),
            _tf1.scatter_sub(var, indices, step, use_locking=locking),
        )


def clip_gradients_by_global_norm(
    gradients_variables: Sequence[tuple[Any, Any]], clip_norm: float = 20.0
) -> tuple[list[tuple[Any, Any]], Any]:
    """Clips gradients to the global norm `clip_norm`. Returns new pairs, and the norm before.

    Source: the function of that name in tensorflow/contrib/opt/python/training/
    multitask_optimizer_wrapper.py, TF 1.15.
    """
    gradients, variables = zip(*gradients_variables, strict=True)
    norm = _tf1.global_norm(gradients)
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
    return list(zip(clipped, variables, strict=True)), norm


class MovingAverageOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer that keeps moving averages of the variables that it trains.

    `swapping_saver` saves the averages under the names of the variables, and vice versa.

    Source: tensorflow/contrib/opt/python/training/moving_average_optimizer.py, TensorFlow 1.15.

    Args:
      opt: the optimizer that trains.
      average_decay: decay of the averages, see `tf.train.ExponentialMovingAverage`.
      num_updates: see `tf.train.ExponentialMovingAverage`.
      sequential_update: False averages while the variables are being updated.
    """

    def __init__(
        self,
        opt: Any,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ):
        super().__init__(False, type(self).__name__)
        self._optimizer = opt
        self._ema = tf.train.ExponentialMovingAverage(average_decay, num_updates)
        self._swapped: dict[str, str] | None = None
        self._sequential_update = sequential_update

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        grads_and_vars = list(grads_and_vars)
        train_op = self._optimizer.apply_gradients(grads_and_vars, global_step, name)
        trained = [variable for gradient, variable in grads_and_vars if gradient is not None]
        with tf.control_dependencies([train_op] if self._sequential_update else []):
            averaged = self._ema.apply(trained)
        self._swapped = {}
        for variable in trained:
            average = self._ema.average(variable)
            self._swapped[variable.op.name] = average.op.name
            self._swapped[average.op.name] = variable.op.name
        return tf.group(train_op, averaged, name="train_with_avg")

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Any:
        """Returns a saver for training. An evaluation with any other saver then uses the averages.

        Raises RuntimeError before `minimize` or `apply_gradients`, and ValueError if `var_list` has
        a variable without its average.
        """
        if self._swapped is None:
            raise RuntimeError(
                "Must call apply_gradients or minimize before creating the swapping_saver"
            )
        listed = _tf1.global_variables() if var_list is None else var_list
        if not isinstance(listed, dict):
            listed = {variable.op.name: variable for variable in listed}
        for saved in listed:
            if self._swapped.get(saved, saved) not in listed:
                raise ValueError(
                    f"Variable to swap {self._swapped[saved]} is not part of variables to save. "
                    "This breaks MovingAverageOptimizer."
                )
        swapped = {saved: listed[self._swapped.get(saved, saved)] for saved in listed}
        return _tf1.train.Saver(swapped, name=name, **kwargs)
