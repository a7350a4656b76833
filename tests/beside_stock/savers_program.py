"""Savers made by a model_fn. Prints {way: checkpoints, metrics and predictions}.

A program with a table and use_tpu=False that runs with stock and with this package.
"""

import json
import sys
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
if sys.argv[1] == "ours":
    import estimator_emb as ee

    ee.install()
from tensorflow_estimator.python.estimator.tpu import (  # noqa: E402
    _tpu_estimator_embedding as embedding,
)
from tensorflow_estimator.python.estimator.tpu import (  # noqa: E402
    tpu_config,
    tpu_estimator,
)

train = v1.train
spec_of = embedding.EmbeddingConfigSpec
AVERAGE = "ExponentialMovingAverage"
column = v1.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("x", 5),
    2,
    initializer=lambda shape, dtype=tf.float32, partition_info=None: tf.reshape(
        tf.range(float(np.prod(shape))), shape
    ),
)


def kernel():
    return [one for one in v1.global_variables() if one.op.name == "dense/kernel"]


def averaged(averages):
    """Returns {saved name: variable}: for evaluation, variables restore their averages."""
    names = {f"dense/kernel/{AVERAGE}": kernel()[0]}
    return {**names, **{one.op.name: one for one in v1.global_variables() if one not in kernel()}}


MAKES = {
    "all": lambda averages: train.Saver(),
    "sharded": lambda averages: train.Saver(sharded=True),
    "list": lambda averages: train.Saver(v1.global_variables()),
    "dict": lambda averages: train.Saver({one.op.name: one for one in v1.global_variables()}),
    "averages": lambda averages: train.Saver(averages.variables_to_restore(kernel())),
    "averages by names": lambda averages: train.Saver(averaged(averages)),
    "collection": lambda averages: v1.add_to_collection(v1.GraphKeys.SAVERS, train.Saver()),
}


def run(way):
    def model_fn(features, labels, mode, params):
        x = tf.keras.layers.DenseFeatures([column])(features)
        logits = v1.layers.dense(
            x, 1, name="dense", use_bias=False, kernel_initializer=v1.ones_initializer()
        )
        averages = tf.train.ExponentialMovingAverage(0.5)
        step = train.get_global_step()
        loss = train_op = None
        if mode != "infer":
            loss = tf.reduce_mean(tf.square(logits - labels))
        if mode == "train":
            train_op = train.GradientDescentOptimizer(0.01).minimize(loss, step)
            with tf.control_dependencies([train_op]):
                train_op = averages.apply(kernel())
        scaffold = None
        evaluates = way.startswith("averages")
        if mode != "train" or not evaluates:
            saver = MAKES[way](averages)
            scaffold = saver and train.Scaffold(saver=saver)
        predictions = {"logits": logits}
        outputs = {"serving_default": tf.compat.v1.estimator.export.PredictOutput(predictions)}
        return tf.compat.v1.estimator.EstimatorSpec(
            mode, predictions, loss, train_op, scaffold=scaffold, export_outputs=outputs
        )

    def input_fn(params):
        features = {"x": np.array([[0, 1], [2, 3]])}
        dataset = tf.data.Dataset.from_tensors((features, np.float32([[1], [2]])))
        return dataset.repeat(3)

    folder = tempfile.mkdtemp()
    estimator = tpu_estimator.TPUEstimator(
        model_fn,
        config=tpu_config.RunConfig(model_dir=folder, tpu_config=tpu_config.TPUConfig(1)),
        use_tpu=False,
        export_to_tpu=False,
        train_batch_size=2,
        eval_batch_size=2,
        predict_batch_size=2,
        embedding_config_spec=spec_of(
            feature_columns=[column],
            optimization_parameters=v1.tpu.experimental.StochasticGradientDescentParameters(0.01),
        ),
    )
    estimator.train(input_fn, steps=2)
    estimator.train(input_fn, steps=1)  # Starts from the checkpoint.
    reader = train.load_checkpoint(train.latest_checkpoint(folder))
    names = sorted(reader.get_variable_to_shape_map())
    predicted = estimator.predict(input_fn, yield_single_examples=False)

    def receiver():
        fed = v1.placeholder(tf.int64, [None, 2])
        return tf.compat.v1.estimator.export.ServingInputReceiver({"x": fed}, {"x": fed})

    path = estimator.export_saved_model(f"{folder}/export", receiver)
    with tf.Graph().as_default(), v1.Session() as session:
        graph = v1.saved_model.load(session, ["serve"], path.decode())
        signature = graph.signature_def["serving_default"]
        fed = {next(iter(signature.inputs.values())).name: [[0, 1], [2, 3]]}
        served = session.run(signature.outputs["logits"].name, fed)
    return {
        "checkpoint": {name: reader.get_tensor(name).tolist() for name in names},
        "loss": float(estimator.evaluate(input_fn)["loss"]),
        "predicted": next(predicted)["logits"].tolist(),
        "served": served.tolist(),
    }


found = {way: run(way) for way in MAKES}
assert found["averages"]["loss"] != found["all"]["loss"]  # They are not the last step's values.
print(json.dumps(found))
