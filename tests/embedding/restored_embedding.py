"""TensorFlow's TPUEmbedding: restores a checkpoint, and trains with TensorFlow's own ops."""

import numpy as np
import tensorflow as tf


def restored(moved, made=tf.tpu.experimental.embedding.TPUEmbedding):
    """Restores a checkpoint that holds just this layer into a new layer. Returns layer and step."""
    layer = made(moved.translation.features, None)
    layer.build()
    step = tf.Variable(0, dtype=tf.int64)
    saver = tf.train.Checkpoint(embedding=layer, step=step)
    saver.restore(moved.checkpoint).assert_consumed()
    return layer, int(step)


def updated(optimizer, variables, rows, gradients):
    """Updates restored variables with TensorFlow's own ops, as the translated optimizer says."""
    w = variables["parameters"]
    lr = tf.constant(optimizer.learning_rate, tf.float32)
    low, high = optimizer.clip_gradient_min, optimizer.clip_gradient_max
    g = tf.maximum(gradients, -np.inf if low is None else low)
    g = tf.minimum(g, np.inf if high is None else high)
    if optimizer.weight_decay_factor:
        w.scatter_mul(tf.IndexedSlices(np.float32(1 - optimizer.weight_decay_factor), rows))
    kind = type(optimizer).__name__
    if kind == "SGD":
        w.scatter_sub(tf.IndexedSlices(lr * g, rows))
    elif kind == "Adagrad":
        accumulators = variables["accumulators"].handle
        tf.raw_ops.ResourceSparseApplyAdagrad(
            var=w.handle, accum=accumulators, lr=lr, grad=g, indices=rows
        )
    elif kind == "AdagradMomentum":
        a = variables["accumulators"]
        assert optimizer.beta2 <= 1
        decayed = optimizer.beta2 * tf.gather(a, rows)
        gain = 1 if optimizer.beta2 == 1 else 1 - optimizer.beta2
        a.scatter_update(tf.IndexedSlices(decayed + gain * g * g, rows))
        scaled = g * tf.pow(tf.gather(a, rows) + optimizer.epsilon, -1 / optimizer.exponent)
        tf.raw_ops.ResourceSparseApplyMomentum(
            var=w.handle,
            accum=variables["momenta"].handle,
            lr=lr,
            grad=scaled,
            indices=rows,
            momentum=optimizer.momentum,
            use_nesterov=optimizer.use_nesterov,
        )
    elif kind == "FTRL":
        tf.raw_ops.ResourceSparseApplyFtrlV2(
            var=w.handle,
            accum=variables["accumulators"].handle,
            linear=variables["linears"].handle,
            grad=g,
            indices=rows,
            lr=lr,
            l1=optimizer.l1_regularization_strength,
            l2=optimizer.l2_regularization_strength + optimizer.beta / (2 * lr),
            l2_shrinkage=0.0,
            lr_power=optimizer.learning_rate_power,
            multiply_linear_by_lr=optimizer.multiply_linear_by_learning_rate,
        )
    else:
        names = ("parameters", "momenta", "velocities")
        w_rows, m, v = (tf.Variable(tf.gather(variables[name], rows)) for name in names)
        # Powers of 0 turn off bias correction. The embedding hardware does not correct either.
        tf.raw_ops.ResourceApplyAdam(
            var=w_rows.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=lr,
            beta1=optimizer.beta_1,
            beta2=optimizer.beta_2,
            epsilon=optimizer.epsilon,
            grad=g,
        )
        for name, value in zip(names, (w_rows, m, v), strict=True):
            variables[name].scatter_update(tf.IndexedSlices(value, rows))
    if optimizer.clip_weight_max is not None:
        w.assign(tf.minimum(w, optimizer.clip_weight_max))
