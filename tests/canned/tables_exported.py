"""Trains and exports tables in every way, and serves the exports, in two processes.

    tables_exported.py export FOLDER DEVICE
    tables_exported.py serve FOLDER

`export` writes the results of `predict` and `evaluate` to FOLDER/expected.json. `serve` runs on any
TensorFlow without estimator_emb, and writes the exports' results to FOLDER/served.json.
"""

import glob
import json
import os
import sys

import numpy as np
import tensorflow as tf

if sys.argv[1:2] == ["export"]:
    import estimator_emb as ee

v1 = tf.compat.v1
IDS = np.array([[3, 7], [1, 1], [0, 9], [5, 3]])
LABELS = np.array([[0.5], [-1.0], [2.0], [0.25]], np.float32)
EXPORTERS = ("best", "latest", "final")
TRAINED = ("t", "bias")


def serialized():
    made = []
    for row in IDS:
        ids = tf.train.Feature(int64_list=tf.train.Int64List(value=row))
        example = tf.train.Example(features=tf.train.Features(feature={"x": ids}))
        made.append(example.SerializeToString())
    return made


def estimator(folder, device):
    def model_fn(features, labels, mode, params):
        y = tf.reduce_sum(features["x"] * [0.5, -1.0, 2.0], axis=1, keepdims=True)
        bias = v1.get_variable("bias", initializer=[0.1])
        y += bias
        predictions = {"y": y, "activation": features["x"]}
        if mode == ee.ModeKeys.PREDICT:
            scores = tf.nn.sigmoid(tf.concat([-y, y], axis=1))
            classes = tf.tile(tf.constant([["no", "yes"]]), [tf.shape(y)[0], 1])
            outputs = {
                "serving_default": ee.export.PredictOutput(predictions),
                "classified": ee.export.ClassificationOutput(scores=scores, classes=classes),
                "regressed": ee.export.RegressionOutput(y),
            }
            return ee.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
        loss = tf.reduce_mean(tf.square(y - labels))
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.125))
        step = optimizer.minimize(loss, v1.train.get_global_step())
        return ee.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=step if mode == ee.ModeKeys.TRAIN else None,
            predictions=predictions,
            eval_metrics=(
                lambda labels, y: {"error": v1.metrics.mean_absolute_error(labels, y)},
                [labels, y],
            ),
        )

    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t")},
        table_to_config_dict={
            "t": ee.TableConfig(10, 3, v1.random_normal_initializer(seed=2), "sum")
        },
        optimization_parameters=ee.AdagradParameters(0.25),
    )
    return ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            model_dir=f"{folder}/model",
            save_checkpoints_steps=4,
            tpu_config=ee.TPUConfig(1, device=device),
        ),
        use_tpu=device is not None,
        train_batch_size=4,
        eval_batch_size=4,
        predict_batch_size=4,
        embedding_config_spec=spec,
    )


def input_fn(params):
    features = {"x": tf.sparse.from_dense(IDS + 1)}
    features["x"] = features["x"].with_values(features["x"].values - 1)
    return tf.data.Dataset.from_tensors((features, LABELS)).repeat()


def receiver():
    examples = v1.placeholder(tf.string, [None], "examples")
    features = tf.io.parse_example(examples, {"x": tf.io.VarLenFeature(tf.int64)})
    return ee.export.ServingInputReceiver(features, {"examples": examples})


def supervised():
    from tensorflow_estimator.python.estimator.export import export

    received = receiver()
    labels = v1.placeholder(tf.float32, [None, 1], "labels")
    tensors = {**received.receiver_tensors, "labels": labels}
    return export.SupervisedInputReceiver(received.features, labels, tensors)


def export(folder, device):
    made = estimator(folder, device)
    best, latest, final = EXPORTERS
    exporters = [
        ee.BestExporter(best, receiver, exports_to_keep=1),
        ee.LatestExporter(latest, receiver, exports_to_keep=1),
        ee.FinalExporter(final, receiver),
    ]
    ee.train_and_evaluate(
        made,
        ee.TrainSpec(input_fn, max_steps=8),
        ee.EvalSpec(input_fn, steps=1, exporters=exporters, throttle_secs=0),
    )
    modes = {"train": supervised, "eval": supervised, "infer": receiver}
    made.experimental_export_all_saved_models(f"{folder}/all", modes)
    predicted = made.predict(input_fn, yield_single_examples=False)
    expected = {**next(predicted), **made.evaluate(input_fn, steps=1)}
    made.train(input_fn, steps=1)
    return {**expected, "trained": {name: made.get_variable_value(name) for name in TRAINED}}


def signatures(path):
    """Returns the output of each serving signature, with TensorFlow 2's loader."""
    loaded = tf.saved_model.load(path, ["serve"])
    given = tf.constant(serialized())
    outputs = {
        name: signature(**{next(iter(signature.structured_input_signature[1])): given})
        for name, signature in loaded.signatures.items()
    }
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), outputs)


def run_graph(path, mode):
    """Returns loss and metrics of a mode's graph, and the trained variables if it trains."""
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, [mode], path)
        signature = meta.signature_def[mode]
        feeds = {
            signature.inputs["examples"].name: serialized(),
            signature.inputs["labels"].name: LABELS,
        }
        names = {key: info.name for key, info in signature.outputs.items()}
        result = {"loss": session.run(names["loss"], feeds)}
        if mode == "eval":
            session.run(names["metrics/error/update_op"], feeds)
            result["error"] = session.run(names["metrics/error/value"])
        else:
            step = session.graph.get_collection("saved_model_train_op")
            session.run(step, feeds)
            result["trained"] = {
                variable.op.name: session.run(variable)
                for variable in v1.global_variables()
                if variable.op.name in TRAINED
            }
    return result


def serve(folder):
    assert "estimator_emb" not in sys.modules
    served = {}
    for place in (*(f"model/export/{name}" for name in EXPORTERS), "all"):
        (path,) = glob.glob(f"{folder}/{place}/*")
        served[os.path.basename(place)] = signatures(path)
    for mode in ("train", "eval"):
        served[mode] = run_graph(path, mode)
    return served


def written(value):
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist()


if __name__ == "__main__":
    job, directory, *device = sys.argv[1:]
    if job == "export":
        found, name = export(directory, None if device == ["none"] else device[0]), "expected"
    else:
        found, name = serve(directory), "served"
    with open(os.path.join(directory, f"{name}.json"), "w") as file:
        json.dump(found, file, default=written)
