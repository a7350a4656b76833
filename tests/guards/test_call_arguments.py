"""Arguments of a plain Estimator's calls. tests/mistakes has a TPUEstimator's own calls."""

import harness
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1


def test_missing_labels_of_a_plain_estimator_are_named(installed, tmp_path):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [])
        loss = tf.reduce_sum(w * features - labels)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return ee.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.constant([1.0])

    estimator = ee.Estimator(model_fn, str(tmp_path))
    message = harness.refusal(ValueError, estimator.train, input_fn, steps=1)
    assert message.endswith(
        "In model_fn, labels is None in mode 'train', for input_fn returned only features: "
        "return a Dataset of (features, labels), or both."
    )
    estimator.train(lambda: (tf.constant([1.0]), tf.constant([2.0])), steps=1)


def test_what_tensorflow_estimator_takes_trains(installed, tmp_path):
    """Steps that are no integer, hooks of a generator, and specs without a mode."""
    steps = []

    class Counts(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            steps.append(1)

    def model_fn(features, labels, mode):
        loss = tf.reduce_sum(v1.get_variable("w", []) * features)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return ee.EstimatorSpec(None, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors([1.0]).repeat()

    estimator = ee.Estimator(model_fn, str(tmp_path))
    estimator.train(input_fn, hooks=(hook for hook in [Counts()]), steps=2.5)
    assert len(steps) == 3
