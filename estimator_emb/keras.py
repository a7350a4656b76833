"""Keras's Adagrad for the dense variables of a model. It also trains in a model_fn.

    a <- a + g * g
    w <- w - lr * g / sqrt(a + epsilon)

`epsilon` is inside the root. `tf.compat.v1.train.AdagradOptimizer` has no epsilon, and the Adagrad
of `tf.keras.optimizers.legacy` adds it to the root.

Keras does the arithmetic. The code here makes it work in a v1 graph, such as the graph of an
Estimator's model_fn. There, Keras's optimizer returns no op that would run the update, and its ops
run in any order.
"""

import functools
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.tpu import get_tpu_context
from estimator_emb.optimizers._parameters import check_finite, check_not_negative

_KerasAdagrad: Any = tf.keras.optimizers.experimental.Adagrad
_LearningRateSchedule = tf.keras.optimizers.schedules.LearningRateSchedule


def _in_v1_graph() -> bool:
    """Returns whether ops are built for a session, or in a `tf.compat.v1.wrap_function`."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return not tf.executing_eagerly() and _unordered()
    return True


def _unordered() -> bool:
    """Returns whether the ops of this graph run in any order, and only if fetched."""
    # A tf.function orders its ops. Bodies of tf.cond and tf.while_loop follow the outer graph.
    return not tf.compat.v1.get_default_graph()._add_control_dependencies


def _check_number(name: str, value: Any, not_negative: bool = True) -> None:
    if isinstance(value, numbers.Real):
        check_finite(f"Adagrad: {name}", value)
        if not_negative:
            check_not_negative(f"Adagrad: {name}", value)


class Adagrad(_KerasAdagrad):
    """`tf.keras.optimizers.experimental.Adagrad`, also for the graph of an Estimator's model_fn.

    For each variable `w` with accumulator `a` (shape and dtype of `w`) and gradient `g` (a Tensor
    like `w`, or IndexedSlices of its rows), a step is:

        g <- g, clipped                              then rows of IndexedSlices are summed by id
        w <- w - w * weight_decay * lr               if weight_decay, for all rows
        a <- a + g * g
        w <- w - lr * g / sqrt(a + epsilon)          only the rows named, if IndexedSlices
        m <- ema_momentum * m + (1 - ema_momentum) * w       if use_ema (m starts as a copy of w)
        w <- m                                       if use_ema, every ema_overwrite_frequency steps
        w <- constraint(w)                           if w has a constraint

    Then `iterations` grows by 1. A schedule is evaluated at `iterations` before that.

    In a v1 graph `minimize` and `apply_gradients` return a Tensor, the number of `iterations` after
    the step. A session that runs it takes the whole step, once. An Estimator counts steps by its
    global step, so the optimizer must use it as `iterations`:

        def model_fn(features, labels, mode, params):
            ...
            optimizer = estimator_emb.keras.Adagrad(0.1)
            optimizer.iterations = tf.compat.v1.train.get_or_create_global_step()
            train_op = optimizer.minimize(loss, tf.compat.v1.trainable_variables())
            return estimator_emb.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    With an EmbeddingConfigSpec, pass `tf.compat.v1.trainable_variables()` as above: gradients reach
    the tables through a variable in that list.

    The variables of the optimizer, `learning_rate` included, are global variables of the graph, so
    its checkpoints hold them. A training that continues from a checkpoint keeps the saved rate. A
    schedule is evaluated instead.

    Args:
      learning_rate: step size, a finite number >= 0, or a
        `tf.keras.optimizers.schedules.LearningRateSchedule`; kept in float32
        (`tf.keras.backend.floatx()`). Default 0.001.
      initial_accumulator_value: start of every `a`, a finite number >= 0. Default 0.1.
      epsilon: keeps the root above 0, a finite number. Default 1e-7.
      weight_decay: factor, as in the formula above. Default None, no decay.
      clipnorm: largest L2 norm of each gradient. Default None.
      clipvalue: largest absolute value of each entry of a gradient. Default None.
      global_clipnorm: largest L2 norm of all gradients together. Default None. One limit acts:
        `clipnorm`, else `global_clipnorm`, else `clipvalue`. A limit <= 0 is ignored.
      use_ema: True keeps a moving average `m` of every variable. Default False.
      ema_momentum: factor in [0, 1], as in the formula above. Default 0.99.
      ema_overwrite_frequency: steps between two overwrites of `w`, >= 1. Default None: only
        `finalize_variable_values` overwrites.
      jit_compile: True compiles the update with XLA if a GPU is visible. Default True.
      name: prefix of the names of the accumulators and averages. Default 'Adagrad'.

    Raises:
      ValueError: a number is negative or not finite where it must not be, `ema_momentum` or
        `ema_overwrite_frequency` is out of its range, `clipnorm` and `global_clipnorm` are both
        given, or an argument belongs to the legacy optimizer.
      TypeError: an argument is unknown, or in a v1 graph `learning_rate` is a Tensor or a function.

    Source: `Adagrad` of keras/src/optimizers/adagrad.py, Keras 2.15.0 (TF 2.15.1), and
    tf_keras/src/optimizers/adagrad.py, tf-keras 2.21.0, whichever is `tf.keras`.
    """

    @functools.wraps(_KerasAdagrad.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _check_number("initial_accumulator_value", self.initial_accumulator_value)
        _check_number("epsilon", self.epsilon, not_negative=False)
        _check_number("weight_decay", self.weight_decay, not_negative=False)

    def minimize(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Takes a gradient step that reduces `loss`.

        Args:
          loss: a callable without arguments that returns the loss, or a Tensor, which needs `tape`
            except in a v1 graph.
          var_list: variables to update, or a callable without arguments that returns them.
          tape: the `tf.GradientTape` that recorded the loss.

        Returns:
          None; in a v1 graph, what `apply_gradients` returns.

        Raises:
          ValueError: as `apply_gradients`; or outside a v1 graph, a Tensor has no tape.
        """
        step = self.apply_gradients(self.compute_gradients(loss, var_list, tape))
        return step if _in_v1_graph() else None

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Returns (gradient, variable) pairs. Arguments and errors are as for `minimize`.

        The gradient is None if the loss does not depend on the variable.
        """
        if not _in_v1_graph() or tape is not None:
            return super().compute_gradients(loss, var_list, tape)
        # A tape opened here would record only the ops that the callable adds to the graph, and not
        # how these depend on the embedding tables.
        loss = loss() if callable(loss) else loss
        variables = list(var_list() if callable(var_list) else var_list)
        return list(zip(tf.gradients(loss, variables), variables, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Takes a step with the given gradients.

        Args:
          grads_and_vars: pairs of gradient and variable. Unless `build` was called, the first call
            must name all variables. A pair whose gradient is None is left out.
          name: prefix of the names of new variables; None means the optimizer's name.
          skip_gradients_aggregation: True skips `aggregate_gradients`. False by default.
          **kwargs: `experimental_aggregate_gradients=False` does the same.

        Returns:
          The variable `iterations`; in a v1 graph a Tensor, as the class describes it.

        Raises:
          ValueError: no pair has a gradient; or in a v1 graph, a variable is not a resource
            variable or belongs to another graph, or the optimizer was created outside the graph.
          KeyError: a variable was not in the first call.
          NotImplementedError: a v1 graph has a distribution strategy.
        """
        apply = super().apply_gradients
        if not (_in_v1_graph() and _unordered()):
            return apply(grads_and_vars, name, skip_gradients_aggregation, **kwargs)
        pairs = list(grads_and_vars)
        if not skip_gradients_aggregation and kwargs.get("experimental_aggregate_gradients", True):
            pairs = list(self.aggregate_gradients(pairs))
        variables = [variable for _, variable in pairs]
        if variables:
            with tf.name_scope(name or self.name or "optimizer"), tf.init_scope():
                self.build(variables)

        def step() -> None:
            if self.use_ema:
                self._start_averages(variables)
            apply(pairs, name, skip_gradients_aggregation=True)

        return self._in_order(step)

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Sums each gradient over the replicas.

        In a v1 graph the replicas are the TPU cores, as for `tf.compat.v1.tpu.CrossShardOptimizer`,
        but the loss is not divided by their number. On a TPU, IndexedSlices become dense. Without a
        TPU, nothing changes.
        """
        if not _in_v1_graph():
            return super().aggregate_gradients(grads_and_vars)
        pairs = list(grads_and_vars)
        if get_tpu_context().number_of_shards is None:
            return pairs
        total = tf.compat.v1.tpu.cross_replica_sum
        return [(None if g is None else total(g), variable) for g, variable in pairs]

    def update_step(self, grad: Any, variable: tf.Variable) -> Any:
        """Updates a variable and its accumulator by the formula, and does no other part of a step.

        Returns None. In a v1 graph, outside a tf.function, returns a Tensor that runs the update.
        """
        update = super().update_step
        return self._in_order(lambda: update(grad, variable))

    def finalize_variable_values(self, var_list: Iterable[tf.Variable]) -> Any:
        """Overwrites each variable with its average, if `use_ema`.

        Returns None. In a v1 graph, outside a tf.function, returns a Tensor that does so when run.
        """
        finalize = super().finalize_variable_values
        return self._in_order(lambda: finalize(var_list))

    @_KerasAdagrad.learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        if _in_v1_graph():
            raise RuntimeError(
                "Adagrad: learning_rate cannot be set in a graph, where no one would run the "
                "assignment. Pass a tf.keras.optimizers.schedules.LearningRateSchedule to the "
                "constructor, or run learning_rate.assign(...) in the session."
            )
        _check_number("learning_rate", learning_rate)
        _KerasAdagrad.learning_rate.fset(self, learning_rate)

    def build(self, var_list: Iterable[tf.Variable]) -> None:
        """Creates the accumulators, and the averages if `use_ema`. Later calls change nothing.

        Raises:
          ValueError, NotImplementedError: as `apply_gradients`.
        """
        var_list = list(var_list)
        if _in_v1_graph():
            self._check_graph(var_list)
        super().build(var_list)

    def add_variable_from_reference(
        self,
        model_variable: tf.Variable,
        variable_name: str,
        shape: Any = None,
        initial_value: Any = None,
    ) -> tf.Variable:
        """Creates a variable `<variable_name>/<name of model_variable>` with that variable's dtype.

        By default it has the shape of `model_variable`, and its initial value is zero.
        """
        if _in_v1_graph() and isinstance(initial_value, tf.Variable):
            # The initializers of a graph run in any order: the other variable's may come later.
            other = initial_value
            initial_value = tf.cond(
                other.is_initialized(), other.read_value, lambda: other.initial_value
            )
        return super().add_variable_from_reference(
            model_variable, variable_name, shape, initial_value
        )

    def _in_order(self, act: Callable[[], Any]) -> Any:
        """Calls `act`. In a v1 graph, returns an op's output that runs `act` in its own order."""
        if not (_in_v1_graph() and _unordered()):
            return act()

        @tf.function(autograph=False)
        def run() -> tf.Tensor:
            act()
            return self.iterations.read_value()

        return run()

    def _check_graph(self, variables: list[tf.Variable]) -> None:
        if tf.distribute.has_strategy():
            raise NotImplementedError(
                "Adagrad does not support a distribution strategy in a graph; got "
                f"{type(tf.distribute.get_strategy()).__name__}."
            )
        with tf.init_scope():
            graph = tf.compat.v1.get_default_graph()
        for variable in (self.iterations, self.learning_rate, *variables):
            if not hasattr(variable, "handle"):
                raise ValueError(
                    f"Adagrad needs resource variables; {variable.name!r} is a "
                    f"{type(variable).__name__}. Create it with use_resource=True, or call "
                    "tf.compat.v1.enable_resource_variables() first."
                )
            if getattr(variable, "graph", None) is not graph:
                raise ValueError(
                    f"Adagrad: {variable.name!r} was created outside this graph. Create the "
                    "optimizer and the model inside model_fn."
                )

    def _start_averages(self, variables: list[tf.Variable]) -> None:
        # An Estimator warm-starts variables after model_fn. By then, the averages already have the
        # former initial values.
        def copy() -> None:
            for variable in variables:
                index = self._index_dict[self._var_key(variable)]
                self._model_variables_moving_average[index].assign(variable)

        tf.cond(tf.equal(self.iterations, 0), copy, lambda: None)

    def _internal_apply_gradients(self, grads_and_vars: list[tuple[Any, Any]]) -> Any:
        iterations = super()._internal_apply_gradients(grads_and_vars)
        frequency = self.ema_overwrite_frequency
        if _in_v1_graph() and self.use_ema and frequency:
            # Keras tests `tensor == 0`. In a v1 graph, this compares objects and is never true.
            variables = [variable for _, variable in grads_and_vars]
            tf.cond(
                tf.equal(self.iterations % frequency, 0),
                lambda: self._overwrite_model_variables_with_average_value(variables),
                lambda: None,
            )
        return iterations

    def _build_learning_rate(self, learning_rate: Any) -> Any:
        _check_number("learning_rate", learning_rate)
        if not _in_v1_graph():
            return super()._build_learning_rate(learning_rate)
        if not isinstance(learning_rate, _LearningRateSchedule):
            if tf.is_tensor(learning_rate) or callable(learning_rate):
                raise TypeError(
                    "Adagrad: in a graph learning_rate must be a number or a LearningRateSchedule; "
                    "anything else would be read only once, when variables are initialised; got "
                    f"{learning_rate!r}."
                )
            return super()._build_learning_rate(learning_rate)
        # Keras would read `iterations`, but that variable may not be initialised yet.
        with tf.init_scope():
            self._current_learning_rate = tf.Variable(
                learning_rate(tf.constant(0, tf.int64)),
                name="current_learning_rate",
                trainable=False,
            )
        return learning_rate

    def _serialize_hyperparameter(self, hyperparameter: Any) -> Any:
        if _in_v1_graph() and isinstance(hyperparameter, tf.Variable):
            # Without a session, return the constructor's value, in the type that numpy() returns.
            return tf.get_static_value(hyperparameter.initial_value)[()]
        return super()._serialize_hyperparameter(hyperparameter)
