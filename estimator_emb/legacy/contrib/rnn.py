"""Recurrent cells of `tf.contrib.rnn` that TensorFlow 2 has removed.

Source: tensorflow/contrib/rnn/python/ops/rnn_cell.py, TensorFlow 1.15.
"""

from typing import Any

import tensorflow as tf

from estimator_emb.legacy.contrib.layers import layer_norm

_tf1 = tf.compat.v1
_cells: Any = _tf1.nn.rnn_cell


class LayerNormBasicLSTMCell(_cells.RNNCell):
    """An LSTM cell with layer normalization and recurrent dropout.

    With `layer_norm`, the four gates and the new state are normalized. Gain and shift begin as
    `norm_gain` and `norm_shift`. Without it, the gates have a bias. `dropout_keep_prob` applies
    only to the candidate state.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Any = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: bool | None = None,
    ):
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._activation = activation
        self._layer_norm = layer_norm
        self._gain_and_shift = norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> Any:
        return _cells.LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def call(self, inputs: tf.Tensor, state: Any) -> Any:
        c, h = state
        joined = tf.concat([inputs, h], 1)
        kernel = _tf1.get_variable(
            "kernel", [joined.shape[-1], 4 * self._num_units], dtype=joined.dtype
        )
        gates = tf.matmul(joined, kernel)
        if not self._layer_norm:
            bias = _tf1.get_variable("bias", [4 * self._num_units], dtype=joined.dtype)
            gates = tf.nn.bias_add(gates, bias)
        names = ("input", "transform", "forget", "output")
        i, j, f, o = map(self._norm, tf.split(gates, 4, axis=1), names)
        candidate = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            candidate = _tf1.nn.dropout(candidate, self._keep_prob, seed=self._seed)
        new_c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * candidate
        new_c = self._norm(new_c, "state")
        new_h = self._activation(new_c) * tf.sigmoid(o)
        return new_h, _cells.LSTMStateTuple(new_c, new_h)

    def _norm(self, values: tf.Tensor, scope: str) -> tf.Tensor:
        if not self._layer_norm:
            return values
        shape = values.shape[-1:]
        with _tf1.variable_scope(scope):
            for name, start in zip(("gamma", "beta"), self._gain_and_shift, strict=True):
                initializer = _tf1.constant_initializer(start)
                _tf1.get_variable(name, shape, values.dtype, initializer)
        return layer_norm(values, reuse=True, scope=scope)


class NASCell(_cells.RNNCell):
    """The recurrent cell that neural architecture search found, https://arxiv.org/abs/1611.01578.

    `num_proj` is the size of an optional projection of the output. The variables are
    `recurrent_kernel` and `kernel`, with `bias` and `projection_weights` if asked for.
    """

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_bias: bool = False,
        reuse: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units, self._num_proj, self._use_bias = num_units, num_proj, use_bias

    @property
    def output_size(self) -> int:
        return self._num_units if self._num_proj is None else self._num_proj

    @property
    def state_size(self) -> Any:
        return _cells.LSTMStateTuple(self._num_units, self.output_size)

    def call(self, inputs: tf.Tensor, state: Any) -> Any:
        c, m = state
        if inputs.shape[-1] is None:
            raise ValueError("Could not infer input size from inputs.get_shape()[-1]")
        units = 8 * self._num_units
        recurrent = _tf1.get_variable("recurrent_kernel", [self.output_size, units])
        kernel = _tf1.get_variable("kernel", [inputs.shape[-1], units])
        of_state, of_inputs = tf.matmul(m, recurrent), tf.matmul(inputs, kernel)
        if self._use_bias:
            bias = _tf1.get_variable("bias", [units], initializer=_tf1.zeros_initializer())
            of_state = tf.nn.bias_add(of_state, bias)
        s, x = tf.split(of_state, 8, axis=1), tf.split(of_inputs, 8, axis=1)
        first = tf.tanh(tf.sigmoid(x[0] + s[0]) * tf.nn.relu(x[1] + s[1]))
        second = tf.tanh(tf.sigmoid(x[2] + s[2]) + tf.nn.relu(x[3] * s[3]))
        third = tf.tanh(tf.tanh(x[4] + s[4]) * tf.sigmoid(x[5] + s[5]))
        fourth = tf.sigmoid(tf.tanh(x[6] + s[6]) + tf.sigmoid(x[7] + s[7]))
        new_c = tf.tanh(first + c) * second
        new_m = tf.tanh(new_c * tf.tanh(third + fourth))
        if self._num_proj is not None:
            shape = [self._num_units, self._num_proj]
            new_m = tf.matmul(new_m, _tf1.get_variable("projection_weights", shape))
        return new_m, _cells.LSTMStateTuple(new_c, new_m)
