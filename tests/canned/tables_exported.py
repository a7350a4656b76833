"""Exports a model with a table for all modes, and serves the export, in two processes.

    tables_exported.py export FOLDER
    tables_exported.py serve FOLDER

`export` writes the results of `predict`, `evaluate` and a further step to FOLDER/expected.json.
`serve` runs on any TensorFlow without estimator_emb, and writes the export's results to
FOLDER/served.json.
"""

import glob
import json
import os
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
IDS = np.array([[3, 7], [1, 1], [0, 9], [5, 3]])
LABELS = np.array([[0.5], [-1.0], [2.0], [0.25]], np.float32)


def export(folder):
    import estimator_emb as ee

    def model_fn(features, labels, mode, params):
        y = tf.reduce_sum(features["x"] * [0.5, -1.0, 2.0], axis=1, keepdims=True)
        y += v1.get_variable("bias", initializer=[0.1])
        predictions = {"y": y, "activation": features["x"]}
        if mode == ee.ModeKeys.PREDICT:
            outputs = {
                "serving_default": ee.export.PredictOutput(predictions),
                "classified": ee.export.ClassificationOutput(scores=tf.nn.sigmoid(y)),
                "regressed": ee.export.RegressionOutput(y),
            }
            return ee.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
        loss = tf.reduce_mean(tf.square(y - labels))
        optimizer = v1.train.GradientDescentOptimizer(0.125)
        step = optimizer.minimize(loss, v1.train.get_global_step())
        error = v1.metrics.mean_absolute_error
        metrics = (lambda labels, y: {"error": error(labels, y)}, [labels, y])
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=step, eval_metrics=metrics)

    def input_fn(params):
        features = {"x": tf.RaggedTensor.from_tensor(IDS).to_sparse()}
        return tf.data.Dataset.from_tensors((features, LABELS)).repeat()

    def receiver():
        examples = v1.placeholder(tf.string, [None], "examples")
        features = tf.io.parse_example(examples, {"x": tf.io.VarLenFeature(tf.int64)})
        return ee.export.ServingInputReceiver(features, {"examples": examples})

    def supervised():
        from tensorflow_estimator.python.estimator.export import export as exports

        given = receiver()
        labels = v1.placeholder(tf.float32, [None, 1], "labels")
        tensors = {**given.receiver_tensors, "labels": labels}
        return exports.SupervisedInputReceiver(given.features, labels, tensors)

    table = ee.TableConfig(10, 3, v1.random_normal_initializer(seed=2), "sum")
    features, tables = {"x": ee.FeatureConfig("t")}, {"t": table}
    dicts = {"feature_to_config_dict": features, "table_to_config_dict": tables}
    spec = ee.EmbeddingConfigSpec(optimization_parameters=ee.AdagradParameters(0.25), **dicts)
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), 4)
    program = {"config": ee.RunConfig(model_dir=f"{folder}/model"), "embedding_config_spec": spec}
    estimator = ee.TPUEstimator(model_fn, use_tpu=False, **program, **sizes)
    estimator.train(input_fn, steps=8)
    modes = {"train": supervised, "eval": supervised, "infer": receiver}
    estimator.experimental_export_all_saved_models(f"{folder}/all", modes)
    predicted = next(estimator.predict(input_fn, yield_single_examples=False))
    metrics = estimator.evaluate(input_fn, steps=1)
    estimator.train(input_fn, steps=1)
    trained = {name: estimator.get_variable_value(name) for name in ("t", "bias")}
    return {**predicted, **metrics, "trained": trained}


def serialized():
    made = []
    for row in IDS:
        ids = tf.train.Feature(int64_list=tf.train.Int64List(value=row))
        example = tf.train.Example(features=tf.train.Features(feature={"x": ids}))
        made.append(example.SerializeToString())
    return made


def run_graph(path, mode):
    """Returns loss and metrics of a mode's graph, and the trained variables if it trains."""
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, [mode], path).signature_def[mode]
        examples, labels = (signature.inputs[name].name for name in ("examples", "labels"))
        feeds = {examples: serialized(), labels: LABELS}
        names = {key: info.name for key, info in signature.outputs.items()}
        result = {"loss": session.run(names["loss"], feeds)}
        if mode == "eval":
            session.run(names["metrics/error/update_op"], feeds)
            return {**result, "error": session.run(names["metrics/error/value"])}
        session.run(session.graph.get_collection("saved_model_train_op"), feeds)
        variables = {one.op.name: one for one in v1.global_variables()}
        return {**result, "trained": session.run({name: variables[name] for name in ("t", "bias")})}


def serve(folder):
    assert "estimator_emb" not in sys.modules
    (path,) = glob.glob(f"{folder}/all/*")
    signatures = tf.saved_model.load(path, ["serve"]).signatures.items()
    given = tf.constant(serialized())
    found = {mode: run_graph(path, mode) for mode in ("train", "eval")}
    for name, signature in signatures:
        (argument,) = signature.structured_input_signature[1]
        outputs = signature(**{argument: given}).items()
        found[name] = {key: value.numpy() for key, value in outputs}
    return found


if __name__ == "__main__":
    job, directory = sys.argv[1:]
    results, name = (export, "expected") if job == "export" else (serve, "served")
    with open(os.path.join(directory, f"{name}.json"), "w") as file:
        json.dump(results(directory), file, default=lambda value: value.tolist())
