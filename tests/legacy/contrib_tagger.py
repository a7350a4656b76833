"""A tagger as of 2019: BERT's layers and optimizer, and a CRF. `learn_runner` starts it.

    python contrib_tagger.py FOLDER write    # in Python 3.7 with TensorFlow 1.15.5
    python contrib_tagger.py FOLDER read     # restores the checkpoint of `write`

It prints the losses of the first ten steps and its predictions afterwards, as JSON.
"""

# ruff: noqa: B905, as Python 3.7 runs it
import json
import re
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, learn
from tensorflow.contrib.learn.python.learn import learn_runner


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


class WeightDecayOptimizer(tf.train.Optimizer):
    """Momentum with decoupled weight decay, written by hand as in BERT's optimization.py."""

    def __init__(self, learning_rate, weight_decay_rate):
        super().__init__(False, "WeightDecayOptimizer")
        self.learning_rate, self.weight_decay_rate = learning_rate, weight_decay_rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            param_name = re.match("^(.*):\\d+$", param.name).group(1)
            m = tf.get_variable(
                name=param_name + "/m", shape=param.shape.as_list(), dtype=tf.float32,
                trainable=False, initializer=tf.zeros_initializer(),
            )  # fmt: skip
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, grad)
            update = next_m + self.weight_decay_rate * param
            assignments += [m.assign(next_m), param.assign(param - self.learning_rate * update)]
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
    optimizer = WeightDecayOptimizer(params.rate, 0.01)
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


def main(folder, way):
    tf.logging.set_verbosity(tf.logging.FATAL)
    hook, made = Checkpoint(folder + "/tagger", way == "write"), []

    def experiment_fn(run_config, hparams):
        made.append(tf.estimator.Estimator(model_fn, config=run_config, params=hparams))
        experiment = learn.Experiment(
            made[0], lambda: sentences().repeat(), sentences, train_steps=hparams.train_steps,
            eval_steps=1, min_eval_frequency=None,
        )  # fmt: skip
        experiment.extend_train_hooks([hook])
        return experiment

    hparams = tf.contrib.training.HParams(layers=2, rate=1.0, train_steps=1)
    hparams.parse("rate=0.2,train_steps=10")
    learn_runner.run(
        experiment_fn, run_config=learn.RunConfig(tf_random_seed=1, model_dir=folder + "/" + way),
        schedule="train_and_evaluate", hparams=hparams,
    )  # fmt: skip
    paths = []
    for one in made[0].predict(sentences):
        viterbi, score = tf.contrib.crf.viterbi_decode(
            one["logits"][: one["lengths"]], one["trans"]
        )
        assert viterbi == one["tags"][: one["lengths"]].tolist()
        paths.append([[int(tag) for tag in viterbi], float(score)])
    accuracy = float(made[0].evaluate(sentences)["accuracy"])
    print("trained " + json.dumps([hook.losses, [paths, accuracy]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
