"""Small programs in the styles of 2017 to 2019. TensorFlow 1.15.5 runs them too.

    python contrib_programs.py FOLDER write    # in Python 3.7 with TensorFlow 1.15.5
    python contrib_programs.py FOLDER read     # restores the checkpoints, which `write` has written

It prints the losses of each program's first ten steps, and what it predicts afterwards, as JSON.
"""

# ruff: noqa: B905, as Python 3.7 runs it
import json
import os
import re
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, learn, rnn, seq2seq, slim
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
    train_op = layers.optimize_loss(
        loss, tf.train.get_or_create_global_step(), 0.05, "Adam", clip_gradients=5.0,
        learning_rate_decay_fn=lambda rate, step: tf.train.exponential_decay(rate, step, 5, 0.9),
        summaries=["loss", "gradients", "learning_rate"], name="train_op",
    )  # fmt: skip
    tiled = seq2seq.tile_batch(memory, 2), seq2seq.tile_batch(state, 2)
    beams = decoder(tiled[0], tiled[1], 6, None, beams=2).predicted_ids
    greedy = decoder(
        memory, state, 3, seq2seq.GreedyEmbeddingHelper(embeddings, [1] * 3, 2)
    ).sample_id
    return in_session(path, writes, loss, train_op, [beams, greedy])


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


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam with decoupled weight decay, as BERT's optimization.py has it."""

    def __init__(self, learning_rate, weight_decay_rate, exclude_from_weight_decay):
        super().__init__(False, "AdamWeightDecayOptimizer")
        self.learning_rate, self.weight_decay_rate = learning_rate, weight_decay_rate
        self.exclude_from_weight_decay = exclude_from_weight_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None or param is None:
                continue
            param_name = re.match("^(.*):\\d+$", param.name).group(1)
            m, v = (
                tf.get_variable(
                    name=param_name + slot, shape=param.shape.as_list(), dtype=tf.float32,
                    trainable=False, initializer=tf.zeros_initializer(),
                )
                for slot in ("/adam_m", "/adam_v")
            )  # fmt: skip
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, grad)
            next_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(grad))
            update = next_m / (tf.sqrt(next_v) + 1e-6)
            if not any(re.search(one, param_name) for one in self.exclude_from_weight_decay):
                update += self.weight_decay_rate * param
            next_param = param - self.learning_rate * update
            assignments.extend([param.assign(next_param), m.assign(next_m), v.assign(next_v)])
        return tf.group(*assignments, name=name)


def attention(net, units, heads, bias):
    """Returns the attention of [batch, time, units] to itself, by several heads."""

    def split(x):
        shape = tf.shape(x)
        x = tf.reshape(x, [shape[0], shape[1], heads, units // heads])
        return tf.transpose(x, [0, 2, 1, 3])

    q, k, v = (split(tf.layers.dense(net, units, name=name)) for name in ("query", "key", "value"))
    scores = tf.matmul(q, k, transpose_b=True) * (units / float(heads)) ** -0.5
    context = tf.matmul(tf.nn.softmax(scores + bias), v)
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), tf.shape(net))


def bert(path, writes):
    """A tagger as of 2019, started by `learn_runner`: BERT's layers and optimizer, and a CRF."""

    def layer_norm(x):
        return layers.layer_norm(inputs=x, begin_norm_axis=-1, begin_params_axis=-1)

    def gelu(x):
        return x * 0.5 * (1.0 + tf.erf(x / tf.sqrt(2.0)))

    def model_fn(features, labels, mode, params):
        ids, mask = features["input_ids"], features["input_mask"]
        initializer = tf.truncated_normal_initializer(stddev=0.2)
        with tf.variable_scope("bert/embeddings"):
            table = tf.get_variable("word_embeddings", [11, 6], initializer=initializer)
            net = tf.reshape(tf.gather(table, tf.reshape(ids, [-1])), [-1, ids.shape[1].value, 6])
            positions = tf.get_variable("position_embeddings", [8, 6], initializer=initializer)
            net = layer_norm(net + tf.slice(positions, [0, 0], [ids.shape[1].value, -1]))
        bias = (1.0 - tf.to_float(mask))[:, None, None, :] * -10000.0
        for layer in range(params.layers):
            with tf.variable_scope(f"bert/encoder/layer_{layer}"):
                net = layer_norm(net + attention(net, 6, 2, bias))
                between = tf.layers.dense(net, 12, gelu, kernel_initializer=initializer)
                net = layer_norm(net + tf.layers.dense(between, 6))
        lengths = tf.reduce_sum(tf.sign(mask), reduction_indices=1)
        xavier = layers.xavier_initializer()
        logits = tf.layers.dense(net, 3, kernel_initializer=xavier, name="project")
        trans = tf.get_variable("transitions", [3, 3], initializer=xavier)
        tags = tf.contrib.crf.crf_decode(logits, trans, lengths)[0]
        if mode == tf.estimator.ModeKeys.PREDICT:
            tiled = tf.tile(trans[None], [tf.shape(ids)[0], 1, 1])
            predictions = {"logits": logits, "lengths": lengths, "trans": tiled, "tags": tags}
            return tf.estimator.EstimatorSpec(mode, predictions)
        log_likelihood, trans = tf.contrib.crf.crf_log_likelihood(
            inputs=logits, tag_indices=labels, transition_params=trans, sequence_lengths=lengths
        )
        loss = tf.reduce_mean(-log_likelihood)
        optimizer = AdamWeightDecayOptimizer(params.rate, 0.01, ["LayerNorm", "layer_norm", "bias"])
        variables = tf.trainable_variables()
        gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), clip_norm=1.0)
        step = tf.train.get_or_create_global_step()
        with tf.control_dependencies([loss]):  # Else the loss may read the new transitions.
            train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=step)
        train_op = tf.group(train_op, [step.assign(step + 1)])
        metrics = {"accuracy": tf.metrics.accuracy(labels, tags, tf.sequence_mask(lengths, 5))}
        return tf.estimator.EstimatorSpec(mode, None, loss, train_op, metrics)

    def sentences():
        mask = (np.arange(5) < np.array([[5], [3], [4]])).astype(np.int32)
        features = {"input_ids": i(3, 5, below=11), "input_mask": mask}
        return tf.data.Dataset.from_tensors((features, i(3, 5)))

    hook, made = Checkpoint(path, writes), []

    def experiment_fn(run_config, hparams):
        made.append(tf.estimator.Estimator(model_fn, config=run_config, params=hparams))
        experiment = learn.Experiment(
            made[0], lambda: sentences().repeat(), sentences, train_steps=hparams.train_steps,
            eval_steps=1, min_eval_frequency=None,
        )  # fmt: skip
        experiment.extend_train_hooks([hook])
        return experiment

    hparams = tf.contrib.training.HParams(layers=2, rate=0.1, train_steps=1)
    hparams.parse(f"rate=0.005,train_steps={STEPS}")
    learn_runner.run(
        experiment_fn, run_config=learn.RunConfig(tf_random_seed=1, model_dir=path + "-model"),
        schedule="train_and_evaluate", hparams=hparams,
    )  # fmt: skip
    paths = []
    for one in made[0].predict(sentences):
        viterbi, score = tf.contrib.crf.viterbi_decode(
            one["logits"][: one["lengths"]], one["trans"]
        )
        assert viterbi == one["tags"][: one["lengths"]].tolist()
        paths.append([[int(tag) for tag in viterbi], float(score)])
    return hook.losses, [paths, float(made[0].evaluate(sentences)["accuracy"])]


PROGRAMS = [translator, network, bert]


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
