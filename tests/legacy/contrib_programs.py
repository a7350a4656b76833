"""Small programs in the styles of 2017 to 2019. TensorFlow 1.15.5 runs them too.

    python contrib_programs.py FOLDER write    # in Python 3.7 with TensorFlow 1.15.5
    python contrib_programs.py FOLDER read     # restores the checkpoints, which `write` has written

It prints the losses of each program's first ten steps, and what it predicts afterwards, as JSON.
"""

# ruff: noqa: B905, as Python 3.7 runs it
import json
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, learn, model_pruning, rnn, seq2seq, slim, timeseries
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.python.layers.core import Dense

STEPS = 10


def a(*shape):
    return np.sin(np.arange(np.prod(shape)) + 1).reshape(shape).astype(np.float32)


def i(*shape, below=3):
    return (np.arange(np.prod(shape)) * 7 % 11 % below).reshape(shape)


class Checkpoint(tf.train.SessionRunHook):
    """Writes or restores the variables at the start, and notes the loss of each step."""

    def __init__(self, path, writes):
        self.path, self.writes, self.losses = path, writes, []

    def begin(self):
        self.saver = tf.train.Saver(tf.global_variables())
        operations = tf.get_default_graph().get_operations()
        summaries = [o for o in operations if o.type == "ScalarSummary" and o.name.endswith("loss")]
        self.loss = summaries[-1].inputs[1]

    def after_create_session(self, session, coord):
        if self.writes:
            self.saver.save(session, self.path)
        else:
            self.saver.restore(session, self.path)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.losses.append(float(run_values.results))


def in_session(path, writes, loss, train_op, predicted=()):
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        saver = tf.train.Saver(tf.global_variables())
        (saver.save if writes else saver.restore)(session, path)
        losses = [float(session.run([loss, train_op])[0]) for _ in range(STEPS)]
        return losses, [np.asarray(one).tolist() for one in session.run(list(predicted))]


def input_fn():
    return {"x": tf.constant(a(12, 3))}, tf.constant(i(12, 1, below=2))


def canned(path, writes):
    column = tf.feature_column.numeric_column("x", [3])
    config = tf.estimator.RunConfig(tf_random_seed=1)
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[column],
        dnn_feature_columns=[column],
        dnn_hidden_units=[4, 3],
        config=config,
    )
    hook = Checkpoint(path, writes)
    estimator.train(input_fn, hooks=[hook], steps=STEPS)
    return hook.losses, estimator.evaluate(input_fn, steps=1)["average_loss"].tolist()


def custom(path, writes):
    def model_fn(features, labels, mode):
        net = layers.fully_connected(features["x"], 5, normalizer_fn=layers.batch_norm)
        net = layers.stack(
            net, layers.fully_connected, [4, 3], weights_regularizer=layers.l2_regularizer(0.01)
        )
        logits = layers.fully_connected(net, 2, activation_fn=None)
        loss = tf.losses.sparse_softmax_cross_entropy(labels[:, 0], logits)
        loss += tf.losses.get_regularization_loss()
        train_op = layers.optimize_loss(
            loss, tf.train.get_global_step(), 0.1, "SGD", clip_gradients=1.0,
            summaries=["gradient_norm"],
        )  # fmt: skip
        metrics = {"a": tf.contrib.metrics.streaming_accuracy(tf.argmax(logits, 1), labels[:, 0])}
        return tf.estimator.EstimatorSpec(mode, {"y": logits}, loss, train_op, metrics)

    hook = Checkpoint(path, writes)
    estimator = tf.estimator.Estimator(model_fn)
    estimator.train(input_fn, hooks=[hook], steps=STEPS)
    return hook.losses, float(estimator.evaluate(input_fn, steps=1)["a"])


def translator(path, writes):
    embeddings = tf.get_variable("embeddings", [9, 4])
    source, target = i(3, 5, below=9), i(3, 6, below=9)
    cell = rnn.MultiRNNCell([rnn.LSTMCell(4), rnn.GRUCell(5)])
    memory, state = tf.nn.dynamic_rnn(
        cell, tf.nn.embedding_lookup(embeddings, source), dtype=tf.float32
    )
    projection = Dense(9, use_bias=False)

    def decoder(memory, state, batch, helper, beams=None):
        with tf.variable_scope("decoder", reuse=tf.AUTO_REUSE):
            attention = seq2seq.BahdanauAttention(5, memory, normalize=True)
            cell = rnn.MultiRNNCell([rnn.LSTMCell(4), rnn.GRUCell(5)])
            cell = seq2seq.AttentionWrapper(cell, attention, attention_layer_size=5)
            start = cell.zero_state(batch, tf.float32).clone(cell_state=state)
            if beams:
                made = seq2seq.BeamSearchDecoder(
                    cell, embeddings, [1] * 3, 2, start, beams, projection
                )
            else:
                made = seq2seq.BasicDecoder(cell, helper, start, projection)
            return seq2seq.dynamic_decode(made, maximum_iterations=7)[0]

    helper = seq2seq.TrainingHelper(tf.nn.embedding_lookup(embeddings, target), [6, 5, 3])
    logits = decoder(memory, state, 3, helper).rnn_output
    weights = tf.sequence_mask([6, 5, 3], 6, tf.float32)
    loss = seq2seq.sequence_loss(logits, tf.constant(target, tf.int32), weights)
    train_op = tf.train.AdamOptimizer(0.05).minimize(loss)
    tiled = seq2seq.tile_batch(memory, 2), seq2seq.tile_batch(state, 2)
    beams = decoder(tiled[0], tiled[1], 6, None, beams=2).predicted_ids
    greedy = decoder(
        memory, state, 3, seq2seq.GreedyEmbeddingHelper(embeddings, [1] * 3, 2)
    ).sample_id
    return in_session(path, writes, loss, train_op, [beams, greedy])


def tagger(path, writes):
    lengths = tf.constant([5, 3, 4])
    t = tf.transpose(tf.constant(a(3, 5, 4)), [1, 0, 2])
    forward = rnn.LSTMBlockFusedCell(4)
    backward = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(4))
    with tf.variable_scope("fw"):
        output_fw, _ = forward(t, dtype=tf.float32, sequence_length=lengths)
    with tf.variable_scope("bw"):
        output_bw, _ = backward(t, dtype=tf.float32, sequence_length=lengths)
    output = tf.transpose(tf.concat([output_fw, output_bw], axis=-1), [1, 0, 2])
    logits = tf.layers.dense(output, 3)
    params = tf.get_variable("crf", [3, 3], dtype=tf.float32)
    tags, _ = tf.contrib.crf.crf_decode(logits, params, lengths)
    likelihood, _ = tf.contrib.crf.crf_log_likelihood(logits, tf.constant(i(3, 5)), lengths, params)
    loss = tf.reduce_mean(-likelihood)
    return in_session(path, writes, loss, tf.train.AdamOptimizer(0.1).minimize(loss), [tags])


def pruned(path, writes):
    step = tf.train.get_or_create_global_step()
    net = model_pruning.masked_fully_connected(tf.constant(a(12, 3)), 6)
    logits = model_pruning.masked_fully_connected(net, 2, activation_fn=None)
    loss = tf.losses.sparse_softmax_cross_entropy(i(12, below=2), logits)
    hparams = model_pruning.get_pruning_hparams().parse(
        "begin_pruning_step=0,end_pruning_step=8,pruning_frequency=2,target_sparsity=0.5,"
        "sparsity_function_begin_step=0,sparsity_function_end_step=8"
    )
    pruning = model_pruning.Pruning(hparams, global_step=step)
    train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    with tf.control_dependencies([train_op]):
        update = pruning.conditional_mask_update_op()
    with tf.control_dependencies([update]):  # The update reads the step before.
        update = step.assign_add(1).op
    return in_session(path, writes, loss, update, model_pruning.get_weight_sparsity())


def experiment(path, writes):
    def model_fn(features, targets, mode, params):
        logits = layers.fully_connected(
            layers.fully_connected(features["x"], 4), 1, activation_fn=None
        )
        loss = tf.losses.sigmoid_cross_entropy(targets, logits)
        train_op = layers.optimize_loss(
            loss, tf.train.get_global_step(), params.rate, "Momentum" if False else "SGD"
        )
        return learn.ModelFnOps(mode, {"p": tf.sigmoid(logits)}, loss, train_op)

    hook, found = Checkpoint(path, writes), []

    def make(run_config, hparams):
        estimator = learn.Estimator(model_fn, config=run_config, params=hparams)
        found.append(estimator)
        return learn.Experiment(
            estimator, input_fn, input_fn, train_steps=STEPS, eval_steps=1, train_monitors=[hook]
        )

    folder = path + "-model"
    learn_runner.run(
        make, run_config=learn.RunConfig(model_dir=folder), schedule="train_and_evaluate",
        hparams=tf.contrib.training.HParams(rate=0.2),
    )  # fmt: skip
    return hook.losses[:STEPS], float(found[0].evaluate(input_fn=input_fn, steps=1)["loss"])


def network(path, writes):
    def arg_scope():
        with slim.arg_scope(
            [slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(5e-3),
            normalizer_fn=slim.batch_norm, normalizer_params={"decay": 0.9, "scale": True},
        ) as scope:  # fmt: skip
            return scope

    with slim.arg_scope(arg_scope()):
        net = slim.repeat(tf.constant(a(4, 8, 8, 3)), 2, slim.conv2d, 4, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2], scope="pool1")
        net = slim.separable_conv2d(net, 5, [3, 3], 1, scope="conv2")
        net = slim.flatten(slim.avg_pool2d(net, [2, 2]))
        logits = slim.fully_connected(net, 3, activation_fn=None, normalizer_fn=None)
    loss = slim.losses.sparse_softmax_cross_entropy(logits, tf.constant(i(4)))
    total = slim.losses.get_total_loss()
    optimizer = tf.contrib.opt.MovingAverageOptimizer(tf.train.MomentumOptimizer(0.05, 0.9))
    train_op = slim.learning.create_train_op(total, optimizer, tf.train.get_or_create_global_step())
    return in_session(path, writes, loss, train_op, [tf.argmax(logits, 1)])


def gan(path, writes):
    def discriminate(x):
        with tf.variable_scope("D", reuse=tf.AUTO_REUSE):
            return layers.linear(layers.fully_connected(x, 6, activation_fn=tf.nn.leaky_relu), 1)

    with tf.variable_scope("G"):
        fake = layers.linear(layers.fully_connected(tf.constant(a(8, 2)), 6), 3)
    real_logits, fake_logits = discriminate(tf.constant(a(8, 3) * 2)), discriminate(fake)
    cross = tf.nn.sigmoid_cross_entropy_with_logits
    of_d = tf.reduce_mean(
        cross(labels=tf.ones_like(real_logits), logits=real_logits)
        + cross(labels=tf.zeros_like(fake_logits), logits=fake_logits)
    )
    of_g = tf.reduce_mean(cross(labels=tf.ones_like(fake_logits), logits=fake_logits))
    of_both = tf.train.AdamOptimizer(0.02, beta1=0.5).compute_gradients(
        of_d, tf.trainable_variables("D/")
    )
    of_both += tf.train.AdamOptimizer(0.02, beta1=0.5).compute_gradients(
        of_g, tf.trainable_variables("G/")
    )
    with tf.control_dependencies([gradient for gradient, _ in of_both]):
        train_op = tf.train.AdamOptimizer(0.02, beta1=0.5).apply_gradients(
            [(tf.identity(gradient), variable) for gradient, variable in of_both]
        )
    return in_session(path, writes, of_d + of_g, train_op, [fake])


def forecast(path, writes):
    data = {
        timeseries.TrainEvalFeatures.TIMES: np.arange(8),
        timeseries.TrainEvalFeatures.VALUES: np.sin(np.arange(8.0)),
    }
    estimator = timeseries.ARRegressor(
        periodicities=4, input_window_size=4, output_window_size=4, num_features=1,
        loss=timeseries.ARModel.SQUARED_LOSS,
    )  # fmt: skip
    hook = Checkpoint(path, writes)
    reader = timeseries.NumpyReader(data)
    estimator.train(
        timeseries.RandomWindowInputFn(reader, batch_size=2, window_size=8),
        hooks=[hook],
        steps=STEPS,
    )
    return hook.losses, []


def speech(path, writes):
    """Sessions with a placeholder, an attention cell and a decoder that feeds itself."""
    frames = tf.placeholder_with_default(a(2, 6, 4), [2, None, 4])
    encoded = rnn.stack_bidirectional_dynamic_rnn(
        [rnn.GRUCell(4)], [rnn.GRUCell(4)], frames, dtype=tf.float32, sequence_length=[6, 4]
    )[0]
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(5), seq2seq.LuongAttention(5, encoded))
    cell = rnn.OutputProjectionWrapper(cell, 4)
    helper = seq2seq.CustomHelper(
        lambda: (tf.zeros([2], tf.bool), tf.zeros([2, 4])),
        lambda time, outputs, state: tf.zeros([2], tf.int32),
        lambda time, outputs, state, sample_ids: (tf.fill([2], time + 1 >= 6), outputs, state),
    )
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32))
    outputs = seq2seq.dynamic_decode(decoder)[0].rnn_output
    loss = tf.contrib.losses.mean_squared_error(outputs, frames)
    gradients, variables = zip(*tf.train.AdamOptimizer(0.05).compute_gradients(loss))
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    train_op = tf.train.AdamOptimizer(0.05).apply_gradients(zip(clipped, variables))
    return in_session(path, writes, loss, train_op, [outputs])


PROGRAMS = [
    canned, custom, translator, tagger, pruned, experiment, network, gan, forecast, speech,
]  # fmt: skip


def main(folder, way, names):
    tf.logging.set_verbosity(tf.logging.FATAL)
    said = {}
    for program in PROGRAMS:
        if names and program.__name__ not in names:
            continue
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            np.random.seed(1)
            result = program(os.path.join(folder, program.__name__), way == "write")
            variables = sorted(v.op.name for v in tf.global_variables())
            said[program.__name__] = [result, variables]
    print("losses " + json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
