"""Calls that every estimator refuses. Prints {estimator: {call: [type of the error, message]}}.

Uses only tensorflow-estimator's API, so that it runs with stock and with this package.
"""

import json
import sys

import tensorflow as tf

v1 = tf.compat.v1

if sys.argv[1] == "ours":
    import estimator_emb as ee

    ee.install()
else:
    from tensorflow.python.tpu import tpu_system_metadata

    # A TPU that cannot open sessions. All calls end before they need one.
    tpu_system_metadata._query_tpu_system_metadata = lambda *args, **kwargs: (
        tpu_system_metadata.TPUSystemMetadata(
            num_cores=1, num_hosts=1, num_of_cores_per_host=1, topology=None, devices=()
        )
    )
from tensorflow_estimator.python.estimator import estimator as estimator_lib  # noqa: E402
from tensorflow_estimator.python.estimator import model_fn as model_fn_lib  # noqa: E402
from tensorflow_estimator.python.estimator.export import export  # noqa: E402
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator  # noqa: E402

HOOK = v1.train.StopAtStepHook(2)
NOWHERE = {"checkpoint_path": "/nowhere/model.ckpt-1"}


def model_fn(features, labels, mode, params):
    weight = v1.get_variable("w", [])
    loss = tf.reduce_mean(weight * tf.cast(features, tf.float32))
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return model_fn_lib.EstimatorSpec(mode, {"x": features}, loss, train_op)


def without_spec(features, labels, mode, params): ...
def without_features(labels, mode, params): ...
def without_params(features, labels, mode): ...
def unknown(features, labels, mode, params, extra): ...


def input_fn(params):
    return tf.data.Dataset.from_tensors(([1.0, 2.0], [1.0, 2.0]))


def receiver():
    features = v1.placeholder(tf.float32, [None])
    return export.ServingInputReceiver(features, features)


def exported_unfit(estimator):
    """Exports by the checkpoint of another program."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.create_global_step()
        v1.get_variable("other", [])
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, f"{estimator.model_dir}/model.ckpt", global_step=1)
    estimator.export_saved_model(f"{estimator.model_dir}/to", receiver)


CALLS = {
    "no model_fn": lambda make: make(None),
    "model_fn without features": lambda make: make(without_features),
    "model_fn with an unknown argument": lambda make: make(unknown),
    "model_fn without params": lambda make: make(without_params, params={"x": 1}),
    "model_fn returns None": lambda make: make(without_spec).train(input_fn, steps=1),
    "both numbers of steps": lambda make: make().train(input_fn, steps=1, max_steps=1),
    "train 0 steps": lambda make: make().train(input_fn, steps=0),
    "train -1 steps": lambda make: make().train(input_fn, steps=-1),
    "train to step 0": lambda make: make().train(input_fn, max_steps=0),
    "train half a step": lambda make: make().train(input_fn, steps=1.5),
    "train to half a step": lambda make: make().train(input_fn, max_steps=1.5),
    "train no steps": lambda make: make().train(input_fn),
    "train with a class of hooks": lambda make: make().train(input_fn, [type(HOOK)], steps=1),
    "train with a name of a hook": lambda make: make().train(input_fn, ["log"], steps=1),
    "train with a wrong listener": lambda make: make().train(
        input_fn, steps=1, saving_listeners=[HOOK]
    ),
    "evaluate 0 steps": lambda make: make().evaluate(input_fn, steps=0),
    "evaluate -321 steps": lambda make: make().evaluate(input_fn, steps=-321),
    "evaluate 1.5 steps": lambda make: make().evaluate(input_fn, steps=1.5),
    "evaluate a text of steps": lambda make: make().evaluate(input_fn, steps="1"),
    "evaluate no steps": lambda make: make().evaluate(input_fn),
    "evaluate with a wrong hook": lambda make: make().evaluate(input_fn, steps=1, hooks=[1]),
    "evaluate no checkpoint": lambda make: make().evaluate(input_fn, steps=1, **NOWHERE),
    "predict no checkpoint": lambda make: next(make().predict(input_fn, **NOWHERE)),
    "predict with a wrong hook": lambda make: next(make().predict(input_fn, hooks=[1])),
    "export without training": lambda make: make().export_saved_model("/tmp/to", receiver),
    "export without a receiver": lambda make: make().export_saved_model("/tmp/to", None),
    "export of no checkpoint": lambda make: make().export_saved_model(
        "/tmp/to", receiver, **NOWHERE
    ),
    "export of what a checkpoint lacks": lambda make: exported_unfit(make()),
    "name of no variable": lambda make: make().get_variable_value("x"),
    "warm start from a number": lambda make: make(warm_start_from=1),
}


def plain(given=model_fn, params=None, **more):
    return estimator_lib.EstimatorV2(given, params=params or {}, **more)


def tpu(use_tpu):
    def make(given=model_fn, **more):
        more |= dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), 2)
        config = tpu_config.RunConfig(tpu_config=tpu_config.TPUConfig(1))
        return tpu_estimator.TPUEstimator(given, config=config, use_tpu=use_tpu, **more)

    return make


found = {}
for of_class, make in {"Estimator": plain, "on CPU": tpu(False), "on TPU": tpu(True)}.items():
    found[of_class] = {}
    for name, call in CALLS.items():
        try:
            call(make)
        except Exception as error:
            found[of_class][name] = [type(error).__name__, str(error)]
print(json.dumps(found))
