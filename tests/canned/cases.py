"""Programs of `tf.estimator` that return numbers. Stock and ours must return equal numbers.

`GROUPS` holds programs by group and name. Each program is called with a new folder. `keras_calls`,
`one_batch` and `savers` add groups. These modules do not import estimator_emb: on our side,
`run_cases.py` has imported it before.
"""

import contextlib
import functools
import glob
import itertools
import os
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow_estimator.python.estimator.api._v1 import estimator as v1e
from tensorflow_estimator.python.estimator.api._v2 import estimator as v2e
from tensorflow_estimator.python.estimator.canned import head as v1_heads
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

v1 = tf.compat.v1
fc = tf.feature_column
keras = tf.keras

GROUPS = {}


def add(group, name, program, *arguments):
    GROUPS.setdefault(group, {})[name] = functools.partial(program, *arguments)


def case(group, name):
    return functools.partial(add, group, name)


# The data: 32 samples, with labels for each kind of task.
_random = np.random.RandomState(0)
SAMPLES = 32
FEATURES = {
    "x": _random.randn(SAMPLES, 2).astype(np.float32),
    "item": _random.randint(0, 5, [SAMPLES, 1]),
    "word": np.array([b"a", b"b", b"c", b"d"])[_random.randint(0, 4, [SAMPLES, 1])],
    "weight": _random.rand(SAMPLES, 1).astype(np.float32),
}
REAL = FEATURES["x"].sum(axis=1, keepdims=True)
BINARY = (FEATURES["x"][:, :1] > 0).astype(np.int64)
THREE = _random.randint(0, 3, [SAMPLES, 1])
MANY = _random.randint(0, 2, [SAMPLES, 3])
EXAMPLES = {
    key: tf.io.FixedLenFeature(values.shape[1:], tf.as_dtype(values.dtype))
    for key, values in FEATURES.items()
}


def input_fn(labels, epochs=None, features=None):
    def made(params=None):
        data = (FEATURES if features is None else features, labels)
        return tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True).repeat(epochs)

    return made


def config(folder, **kwargs):
    return v1e.RunConfig(model_dir=folder, tf_random_seed=7, **kwargs)


def off_a_tpu(model_fn, folder, **kwargs):
    """Returns a TPUEstimator with use_tpu=False."""
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), 8)
    run = tpu_config.RunConfig(model_dir=folder, tpu_config=tpu_config.TPUConfig(1))
    where = {"config": run, "use_tpu": False, "export_to_tpu": False}
    return tpu_estimator.TPUEstimator(model_fn, **where, **sizes, **kwargs)


def serialized(count=3):
    made = []
    for row in range(count):
        example = tf.train.Example()
        for key, values in FEATURES.items():
            feature = example.features.feature[key]
            lists = {"f": feature.float_list, "i": feature.int64_list, "S": feature.bytes_list}
            lists[values.dtype.kind].value.extend(values[row])
        made.append(example.SerializeToString())
    return tf.constant(made)


def served(path, *args, **kwargs):
    signatures = tf.saved_model.load(path.decode()).signatures
    return {name: signature(*args, **kwargs) for name, signature in signatures.items()}


def variables(estimator):
    names = [one for one in estimator.get_variable_names() if not one.startswith("_CHECKPOINT")]
    return {name: estimator.get_variable_value(name) for name in names}


def everything(estimator, labels, folder):
    """Trains, evaluates, predicts, exports and serves. Returns all numbers."""
    estimator.train(input_fn(labels), steps=4)
    receive = v1e.export.build_parsing_serving_input_receiver_fn(EXAMPLES)
    path = estimator.export_saved_model(f"{folder}/export", receive)
    return {
        "metrics": estimator.evaluate(input_fn(labels, epochs=1)),
        "predictions": list(itertools.islice(estimator.predict(input_fn(labels, epochs=1)), 3)),
        "variables": variables(estimator),
        "served": served(path, serialized()),
    }


# Canned estimators of v1 and v2.
X = fc.numeric_column("x", [2])
ITEM = fc.categorical_column_with_identity("item", 5)
WORD = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"], num_oov_buckets=1)
DEEP = [X, fc.embedding_column(ITEM, 3), fc.indicator_column(WORD)]
WIDE = [X, ITEM, WORD]
BOTH = {"linear_feature_columns": WIDE, "dnn_feature_columns": DEEP, "dnn_hidden_units": [4]}
NETWORK = {"hidden_units": [6, 4], "feature_columns": DEEP, "batch_norm": True}
CANNED = {
    "DNNClassifier": ({**NETWORK, "n_classes": 3, "weight_column": "weight"}, THREE),
    "DNNRegressor": ({**NETWORK, "optimizer": "Adam", "dropout": 0.0}, REAL),
    "LinearClassifier": ({"feature_columns": WIDE, "weight_column": "weight"}, BINARY),
    "LinearRegressor": ({"feature_columns": WIDE, "optimizer": "RMSProp"}, REAL),
    "DNNLinearCombinedClassifier": (BOTH, BINARY),
    "DNNLinearCombinedRegressor": ({**BOTH, "dnn_optimizer": "SGD"}, REAL),
    "BaselineClassifier": ({"n_classes": 3}, THREE),
    "BaselineRegressor": ({"weight_column": "weight"}, REAL),
}
WITH_HEAD = {
    "DNNEstimator": {"hidden_units": [4], "feature_columns": DEEP},
    "LinearEstimator": {"feature_columns": WIDE},
    "DNNLinearCombinedEstimator": BOTH,
    "BaselineEstimator": {},
}
HEADS = {
    "BinaryClassHead": ({"thresholds": [0.3, 0.6], "weight_column": "weight"}, BINARY),
    "MultiClassHead": ({"n_classes": 3}, THREE),
    "MultiLabelHead": ({"n_classes": 3, "classes_for_class_based_metrics": [0, 2]}, MANY),
    "RegressionHead": ({"label_dimension": 2}, 2 * FEATURES["x"]),
    "PoissonRegressionHead": ({}, np.abs(REAL)),
    "LogisticRegressionHead": ({}, BINARY.astype(np.float32)),
}


def canned(make, arguments, labels, folder):
    return everything(make(config=config(folder), **arguments), labels, folder)


for version, api in (("v1", v1e), ("v2", v2e)):
    for name, (arguments, labels) in CANNED.items():
        add(f"canned {version}", name, canned, getattr(api, name), arguments, labels)
    # Heads of tf.estimator use Keras optimizers, which v1 estimators do not support.
    head = v1_heads._regression_head() if version == "v1" else v2e.RegressionHead()
    for name, arguments in WITH_HEAD.items():
        add(f"heads {version}", name, canned, getattr(api, name), {"head": head, **arguments}, REAL)


def headed(make, arguments, labels, folder):
    network = {"head": make(**arguments), **WITH_HEAD["DNNEstimator"]}
    return canned(v2e.DNNEstimator, network, labels, folder)


for name, (arguments, labels) in HEADS.items():
    add("heads v2", name, headed, getattr(v2e, name), arguments, labels)


def optimized(make, rate, arguments, folder):
    api = v2e if issubclass(make, keras.optimizers.legacy.Optimizer) else v1e
    given = {"optimizer": lambda: make(rate(), **arguments), "config": config(folder)}
    estimator = api.DNNRegressor([4], [X], **given)
    estimator.train(input_fn(REAL), steps=4)
    return variables(estimator)


def decaying():
    return v1.train.exponential_decay(0.1, v1.train.get_global_step(), 2, 0.5)


def scheduled():
    return keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)


for name in ("SGD", "Adam", "Adagrad", "Ftrl", "RMSprop"):
    make = getattr(keras.optimizers.legacy, name)
    add("optimizers", f"{name} of Keras", optimized, make, scheduled, {})
for name, arguments in {"Momentum": {"momentum": 0.9}, "Ftrl": {}, "ProximalAdagrad": {}}.items():
    make = getattr(v1.train, f"{name}Optimizer")
    add("optimizers", name, optimized, make, decaying, arguments)


@case("heads v2", "MultiHead")
def several_heads(folder):
    heads = [v2e.RegressionHead(name="real"), v2e.BinaryClassHead(name="binary")]
    estimator = v2e.DNNEstimator(v2e.MultiHead(heads, [1.0, 2.0]), [4], DEEP, config=config(folder))
    return everything(estimator, {"real": REAL, "binary": BINARY}, folder)


@case("heads v2", "eagerly")
def eager_heads(folder):
    found = {}
    for name, (arguments, labels) in HEADS.items():
        head = getattr(v2e, name)(**arguments)
        logits = tf.constant(FEATURES["x"] @ np.ones([2, head.logits_dimension], np.float32))
        loss = head.loss(tf.constant(labels), logits, FEATURES, "train")
        metrics = head.update_metrics(head.metrics(), FEATURES, logits, tf.constant(labels))
        metrics = {key: metric.result() for key, metric in metrics.items()}
        predictions = {str(key): one for key, one in head.predictions(logits).items()}
        found[name] = {"loss": loss, "metrics": metrics, "predictions": predictions}
    return found


@case("columns", "every column")
def columns(folder):
    path = f"{folder}.words"
    pathlib.Path(path).write_text("a\nb\nc\n")
    of_file = fc.categorical_column_with_vocabulary_file("word", path, 3, default_value=1)
    buckets = fc.bucketized_column(fc.numeric_column("weight"), [0.2, 0.5])
    crossed = fc.crossed_column(["word", ITEM], 11)
    hashed = fc.categorical_column_with_hash_bucket("item", 7, tf.int64)
    weighted = fc.weighted_categorical_column(hashed, "weight")
    deep = [buckets, fc.embedding_column(crossed, 2, "sqrtn", max_norm=1.0)]
    deep += [fc.indicator_column(weighted), fc.embedding_column(of_file, 2, trainable=False)]
    given = {"dnn_feature_columns": deep, "dnn_hidden_units": [4], "config": config(folder)}
    wide = [buckets, crossed, weighted, of_file]
    estimator = v2e.DNNLinearCombinedClassifier(linear_feature_columns=wide, **given)
    return everything(estimator, BINARY, folder)


@case("columns", "shared embeddings")
def shared(folder):
    features = {"item": FEATURES["item"], "other": 4 - FEATURES["item"]}
    found = {}
    with tf.Graph().as_default():
        pair = [fc.categorical_column_with_identity(key, 5) for key in features]
        of_v1 = v1.feature_column.shared_embedding_columns(pair, 2)
        for api, shared_columns in ((v1e, of_v1), (v2e, fc.shared_embeddings(pair, 2))):
            estimator = api.DNNRegressor([4], shared_columns, config=config(folder + api.__name__))
            estimator.train(input_fn(REAL, features=features), steps=3)
            found[api.__name__] = variables(estimator)
    return found


@case("columns", "parse_example_spec")
def parse_example_spec(folder):
    label = {"label_key": "label", "weight_column": fc.numeric_column("weight")}
    found = {}
    for api in (v1e, v2e):
        of_classifier = api.classifier_parse_example_spec(WIDE, label_dtype=tf.string, **label)
        of_regressor = api.regressor_parse_example_spec(DEEP, **label)
        for name, one in (("classifier", of_classifier), ("regressor", of_regressor)):
            found[f"{api.__name__}/{name}"] = sorted(map(str, one.items()))
    return found


@case("columns", "logit functions")
def logits(folder):
    columns = [fc.numeric_column("x", [2], normalizer_fn=lambda value: value / 2)]
    api, features = v1e.experimental, {"x": FEATURES["x"]}
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(3)
        dnn = api.dnn_logit_fn_builder(3, [4], columns, tf.nn.relu, None, None, True)
        built = {"dnn": dnn, "linear": api.linear_logit_fn_builder(2, columns)}
        found = {}
        for name, logit_fn in built.items():
            with v1.variable_scope(name):
                found[name] = api.call_logit_fn(logit_fn, features, "train", None, None)
        session.run(v1.global_variables_initializer())
        return session.run(found)


@case("experimental", "KMeans")
def kmeans(folder):
    points = FEATURES["x"]

    def whole(repeats=None):
        return lambda: tf.data.Dataset.from_tensors(points).repeat(repeats)

    found = {}
    for name, arguments in {
        # Initial clusters are given, because KMeans would draw different ones in each run.
        "full": {"use_mini_batch": False},
        "mini": {"mini_batch_steps_per_iteration": 2},
        "cosine": {"distance_metric": "cosine", "use_mini_batch": False},
    }.items():
        arguments = {"config": config(folder + name), "initial_clusters": points[:3], **arguments}
        estimator = v1e.experimental.KMeans(3, **arguments)
        estimator.train(whole(), steps=4)
        centers, score = estimator.cluster_centers(), estimator.score(whole(1))
        clusters = list(estimator.predict_cluster_index(whole(1)))
        found[name] = [centers, score, clusters, list(estimator.transform(whole(1)))]
    return found


@case("experimental", "LinearSDCA")
def sdca(folder):
    features = {**FEATURES, "id": np.array([str(i) for i in range(SAMPLES)])}
    hashed = fc.categorical_column_with_hash_bucket("word", 7)
    found = {}
    made = {"v1": (v1e.LinearRegressor, REAL), "v2": (v2e.LinearClassifier, BINARY)}
    for name, (make, labels) in made.items():
        optimizer = v2e.experimental.LinearSDCA("id", symmetric_l2_regularization=1.0)
        estimator = make([X, ITEM, hashed], optimizer=optimizer, config=config(folder + name))
        estimator.train(input_fn(labels, features=features), steps=6)
        metrics = estimator.evaluate(input_fn(labels, 1, features))
        # It visits the samples in a different order in each run.
        found[name] = [metrics["average_loss"] < 0.5, estimator.get_variable_names()]
    return found


def sequences(labels, epochs=None):
    def made():
        words = tf.ragged.constant([["a", "b", "c"], ["b"], ["c", "d"], ["a", "a"]])
        prices = tf.ragged.constant([[1.0, 2.0, 3.0], [2.0], [3.0, 4.0], [1.0, 1.0]])
        context = tf.constant([[1.0], [2.0], [3.0], [4.0]])
        features = {"words": words.to_sparse(), "price": prices.to_sparse(), "context": context}
        return tf.data.Dataset.from_tensors((features, labels)).repeat(epochs)

    return made


@case("experimental", "RNN")
def recurrent(folder):
    words = fc.sequence_categorical_column_with_hash_bucket("words", 10)
    columns = [fc.embedding_column(words, 2), fc.sequence_numeric_column("price")]
    context = [fc.numeric_column("context")]
    binary, real = np.array([[0], [1], [0], [1]]), np.float32([[0], [1], [2], [1]])
    rnn = v2e.experimental
    lstm = rnn.RNNClassifier(columns, context, [3, 2], "lstm", config=config(folder))
    given = {"rnn_cell_fn": lambda: keras.layers.GRUCell(3), "optimizer": "Adam"}
    cell = rnn.RNNEstimator(v2e.RegressionHead(), columns, config=config(folder + "cell"), **given)
    found = {}
    for name, estimator, labels in (("lstm", lstm, binary), ("cell", cell, real)):
        estimator.train(sequences(labels), steps=3)
        predictions = list(estimator.predict(sequences(labels, 1)))
        metrics = estimator.evaluate(sequences(labels, 1))
        found[name] = [metrics, predictions, variables(estimator)]
    return found


# Estimators with a model_fn, their exports, hooks and inputs.
def model_fn(features, labels, mode, params):
    weights = v1.get_variable("w", [2, 1], initializer=v1.constant_initializer(0.5))
    y = features["x"] @ weights
    outputs = {
        "serving_default": v1e.export.PredictOutput({"y": y}),
        "regressed": v1e.export.RegressionOutput(y),
        "classified": v1e.export.ClassificationOutput(scores=tf.nn.sigmoid(y)),
    }
    if mode == v1e.ModeKeys.PREDICT:
        return v1e.EstimatorSpec(mode, predictions={"y": y}, export_outputs=outputs)
    loss = tf.reduce_mean(tf.square(y - labels))
    v1.summary.scalar("of_model", loss)
    optimizer = v1.train.GradientDescentOptimizer(params["rate"])
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    metrics = {"error": v1.metrics.mean_absolute_error(labels, y)}
    return v1e.EstimatorSpec(mode, {"y": y}, loss, train_op, eval_metric_ops=metrics)


def plain(folder, api=v2e, **kwargs):
    return api.Estimator(model_fn, config=config(folder, **kwargs), params={"rate": 0.1})


def receiver():
    given = {"x": v1.placeholder(tf.float32, [None, 2])}
    return v1e.export.ServingInputReceiver(given, given)


def supervised():
    make = v1e.experimental.build_raw_supervised_input_receiver_fn
    return make({"x": tf.zeros([1, 2])}, tf.zeros([1, 1]))()


def events(folder):
    """Returns the scalars of event files, without the speed."""
    found = {}
    for path in sorted(glob.glob(f"{folder}/events*")):
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.HasField("simple_value") and not value.tag.endswith("/sec"):
                    found[f"{event.step}/{value.tag}"] = value.simple_value
    return found


@case("around", "Estimator")
def estimators(folder):
    found = {}
    for api in (v1e, v2e):
        estimator = plain(folder + api.__name__, api)
        estimator.train(input_fn(REAL), max_steps=4)
        metrics = estimator.evaluate(input_fn(REAL, 1), name="named")
        batches = list(estimator.predict(input_fn(REAL, 1), yield_single_examples=False))
        logged = [events(estimator.model_dir), os.listdir(estimator.eval_dir("named")) != []]
        found[api.__name__] = [metrics, batches, variables(estimator), *logged]
    return found


@case("around", "exporters")
def exporters(folder):
    estimator = plain(folder, save_checkpoints_steps=3)
    made = [
        v2e.BestExporter("best", receiver, exports_to_keep=2),
        v2e.LatestExporter("latest", receiver, exports_to_keep=2),
        v2e.FinalExporter("final", receiver),
    ]
    training = v2e.TrainSpec(input_fn(REAL), max_steps=9)
    evaluation = v2e.EvalSpec(input_fn(REAL, 1), steps=None, exporters=made, throttle_secs=0)
    metrics, results = v2e.train_and_evaluate(estimator, training, evaluation)
    paths = {name: glob.glob(f"{folder}/export/{name}/[0-9]*") for name in ("best", "final")}
    return {
        "metrics": metrics,
        "exported": [result is not None for result in results],
        "kept": {name: len(found) for name, found in paths.items()},
        "served": served(max(paths["best"]).encode(), x=tf.constant(FEATURES["x"])),
    }


@case("around", "all graphs")
def all_graphs(folder):
    estimator = plain(folder)
    estimator.train(input_fn(REAL), steps=2)
    keys = v1e.ModeKeys
    receivers = {keys.TRAIN: supervised, keys.EVAL: supervised, keys.PREDICT: receiver}
    path = estimator.experimental_export_all_saved_models(f"{folder}/all", receivers)
    found = {}
    for tag in ("train", "eval", "serve"):
        with tf.Graph().as_default(), v1.Session() as session:
            meta = v1.saved_model.load(session, [tag], path.decode())
            for name, signature in meta.signature_def.items():
                names = sorted(signature.inputs), sorted(signature.outputs)
                found[f"{tag}/{name}"] = [*names, signature.method_name]
    return found


@case("around", "receivers")
def receivers(folder):
    make = v1e.export.build_raw_serving_input_receiver_fn
    with tf.Graph().as_default():
        raw = make({"x": tf.zeros([3, 2]), "word": tf.constant(["a"])}, default_batch_size=None)()
        one = v1e.export.TensorServingInputReceiver(raw.features["x"], raw.receiver_tensors)
        labelled = supervised()
        found = [raw.receiver_tensors, labelled.receiver_tensors, {"x": one.features}]
        return [{key: str(value.shape) for key, value in each.items()} for each in found]


@case("around", "hooks")
def hooks(folder):
    seen = []

    class Listener(v1e.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            seen.append(["saved", int(global_step_value)])

    class Seeing(v1e.SessionRunHook):
        def before_run(self, run_context):
            assert isinstance(run_context, v1e.SessionRunContext)
            return v1e.SessionRunArgs({"w": "w/Read/ReadVariableOp:0"})

        def after_run(self, run_context, run_values):
            assert isinstance(run_values, v1e.SessionRunValues)
            seen.append(run_values.results["w"].tolist())

    class Final(v1e.FinalOpsHook):
        def __init__(self):
            super().__init__(None)

        def begin(self):
            self._final_ops = v1.train.get_global_step()

    final = Final()
    estimator = plain(folder)
    with tf.Graph().as_default():  # Summary writers need a graph.
        made = [
            Seeing(),
            final,
            v1e.CheckpointSaverHook(f"{folder}/saved", save_steps=2, listeners=[Listener()]),
            v1e.FeedFnHook(dict),
            v1e.GlobalStepWaiterHook(0),
            v1e.LoggingTensorHook({"step": "global_step:0"}, every_n_iter=2),
            v1e.StopAtStepHook(last_step=5),
            v1e.ProfilerHook(save_steps=3, output_dir=f"{folder}/profiled"),
            v1e.StepCounterHook(2, output_dir=f"{folder}/counted"),
            v1e.SummarySaverHook(2, output_dir=f"{folder}/s", scaffold=v1.train.Scaffold()),
            v1e.experimental.InMemoryEvaluatorHook(estimator, input_fn(REAL, 1), every_n_iter=2),
        ]
        estimator.train(input_fn(REAL), hooks=made)
    timer = v1e.SecondOrStepTimer(every_steps=2)
    timer.update_last_triggered_step(1)
    return {
        "seen": seen,
        "final": int(final.final_ops_values),
        "timer": [timer.should_trigger_for_step(step) for step in (1, 2, 3)],
        "evaluated": [events(one) for one in sorted(glob.glob(f"{folder}/eval*"))],
        "summaries": events(f"{folder}/s"),
        # Which steps are profiled is random, because another op increments the global step
        # meanwhile.
        "profiled": bool(glob.glob(f"{folder}/profiled/timeline-*.json")),
    }


@case("around", "errors of hooks")
def errors(folder):
    def diverging(features, labels, mode):
        nan = tf.math.log(v1.get_variable("w", initializer=-1.0))
        loss = tf.reduce_sum(features["x"]) * nan
        step = v1.assign_add(v1.train.get_global_step(), 1)
        return v1e.EstimatorSpec(mode, loss=loss, train_op=step)

    try:
        v1e.Estimator(diverging, folder).train(input_fn(REAL), steps=2)
    except v1e.NanLossDuringTrainingError as error:
        return str(error).partition("\n")[0]  # Ours also names the op.
    with tf.Graph().as_default(), v1.Session():
        v1e.NanTensorHook(tf.constant(1.0), fail_on_nan_loss=False)
    return "none"


@case("around", "add_metrics")
def add_metrics(folder):
    def first(labels, predictions):
        return {"more": v1.metrics.mean_squared_error(labels, predictions["predictions"])}

    def second(labels, predictions, features, config):
        metric = keras.metrics.MeanSquaredError()
        metric.update_state(labels, predictions["predictions"], features["weight"])
        return {"more": metric}

    found = {}
    for api, more in ((v1e, first), (v2e, second)):
        estimator = api.LinearRegressor([X], config=config(folder + api.__name__))
        estimator = api.add_metrics(estimator, more)
        estimator.train(input_fn(REAL), steps=3)
        found[api.__name__] = estimator.evaluate(input_fn(REAL, 1))
    return found


@case("around", "warm start")
def warm_start(folder):
    columns = {}
    for name, words in (("old", "abc"), ("new", "cazd")):
        path = f"{folder}.{name}"
        pathlib.Path(path).write_text("\n".join(words) + "\n")
        words = fc.categorical_column_with_vocabulary_file("word", path, len(words))
        columns[name] = [X, fc.embedding_column(words, 3)]
    found = {}
    for api in (v1e, v2e):
        old, new = f"{folder}/{api.__name__}/old", f"{folder}/{api.__name__}/new"
        estimator = api.DNNRegressor([4], columns["old"], config=config(old))
        estimator.train(input_fn(REAL), steps=3)
        (table,) = (one for one in estimator.get_variable_names() if one.endswith("weights"))
        mapped = {table: api.VocabInfo(f"{folder}.new", 4, 0, f"{folder}.old", 3)}
        settings = api.WarmStartSettings(old, ".*(weights|hidden).*", var_name_to_vocab_info=mapped)
        given = {"config": config(new), "warm_start_from": settings}
        estimator = api.DNNRegressor([4], columns["new"], **given)
        estimator.train(input_fn(REAL), steps=1)
        found[api.__name__] = variables(estimator)
    return found


@case("around", "inputs")
def inputs(folder):
    x = {"x": FEATURES["x"]}
    kwargs = {"batch_size": 8, "shuffle": False}
    estimator = plain(folder)
    estimator.train(v1e.inputs.numpy_input_fn(x, REAL, num_epochs=None, **kwargs), steps=5)
    found = [variables(estimator), estimator.evaluate(v1e.inputs.numpy_input_fn(x, REAL, **kwargs))]
    with contextlib.suppress(ImportError):
        import pandas as pd

        frame = pd.DataFrame({"a": FEATURES["weight"][:, 0]})
        made = v1e.inputs.pandas_input_fn(frame, frame["a"], **kwargs)
        with tf.Graph().as_default():
            batch = made()
            with v1.train.MonitoredSession() as session:
                found.append(session.run(batch))
    return found


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.hidden = keras.layers.Dense(4, "relu", kernel_initializer="ones")
        self.last = keras.layers.Dense(1, kernel_initializer="ones")

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls()

    def call(self, inputs):
        return self.last(self.hidden(inputs))


def functional():
    x = keras.Input([2], name="x")
    # A bias before a batch normalization has gradient 0 up to rounding, which Adam amplifies.
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(4, "relu", use_bias=False)(x))
    return keras.Model(x, keras.layers.Dense(1, name="y")(hidden))


def sequential():
    layers = [keras.layers.Dense(4, "relu", input_shape=[2]), keras.layers.Dropout(0.0)]
    return keras.Sequential([*layers, keras.layers.Dense(1)])


MODELS = {
    "functional": (functional, "adam", {}),
    "functional by a saver": (functional, "adagrad", {"checkpoint_format": "saver"}),
    "optimizer of v1": (functional, v1.train.AdamOptimizer(0.1), {"checkpoint_format": "saver"}),
    "sequential": (sequential, keras.optimizers.legacy.SGD(0.1), {}),
    "subclassed": (Subclassed, "rmsprop", {"checkpoint_format": "saver"}),
    "renamed metrics": (functional, "nadam", {"metric_names_map": {"mae": "renamed"}}),
}


def model(make, optimizer, arguments, folder):
    made = make()
    made.compile(optimizer, "mse", ["mae"])
    estimator = keras.estimator.model_to_estimator(made, config=config(folder), **arguments)
    estimator.train(input_fn(REAL, features=FEATURES["x"]), steps=4)
    one_epoch = input_fn(REAL, 1, FEATURES["x"])
    predictions = list(itertools.islice(estimator.predict(one_epoch), 3))
    return [estimator.evaluate(one_epoch), predictions, variables(estimator)]


for name, (make, optimizer, arguments) in MODELS.items():
    add("Keras", name, model, make, optimizer, arguments)

# Strategies on two logical CPUs, which `run_cases.py` creates.
CPUS = ["/cpu:0", "/cpu:1"]
STRATEGIES = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(CPUS),
    "mirrored v1": lambda: v1.distribute.MirroredStrategy(CPUS),
    "one device": lambda: tf.distribute.OneDeviceStrategy("/cpu:1"),
    "parameter servers": lambda: v1.distribute.experimental.ParameterServerStrategy(),
}


def distributed(make, folder):
    strategy = make()
    both = {"train_distribute": strategy, "eval_distribute": strategy}
    # The session's devices differ from the devices of eager execution.
    session = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
    configured = config(folder, session_config=session, **both)
    return everything(v2e.DNNRegressor([4], [X], config=configured), REAL, folder)


for name, make in STRATEGIES.items():
    add("strategies", name, distributed, make)
