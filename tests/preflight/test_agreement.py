"""`check` and `use_tpu=True` agree on programs, good and bad.

The judge is `tpu_described`: it makes the program's estimator with `use_tpu=True`, and trains,
evaluates or predicts on a TPU with a made-up master, until a session would open. The check runs as
in the command, with a TPU emulated by the environment.
"""

import numpy as np
import programs
import pytest
import tensorflow as tf
import tpu_described
from tpu_described import sparse_of

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import embedding, preflight

v1 = tf.compat.v1
PIPELINES = ee.InputPipelineConfig
SGD = ee.StochasticGradientDescentParameters
ADAGRAD = ee.AdagradParameters


def spec(tables=None, features=None, **kwargs):
    """Returns a spec with a table of 6 rows and dimension 4, and a feature 'a'."""
    return ee.EmbeddingConfigSpec(
        table_to_config_dict=tables or {"t": ee.TableConfig(6, 4, combiner="mean")},
        feature_to_config_dict=features or {"a": ee.FeatureConfig("t")},
        **{"optimization_parameters": SGD(0.1), **kwargs},
    )


def of_table(parameters=None, combiner="mean", dimension=4, rows=6, features=None, **config):
    """Returns a spec of a table with its own optimizer."""
    table = ee.TableConfig(
        rows, dimension, combiner=combiner, optimization_parameters=parameters or SGD(0.1), **config
    )
    return spec({"t": table}, features, optimization_parameters=None)


def of_columns(*columns):
    return ee.EmbeddingConfigSpec(feature_columns=list(columns), optimization_parameters=SGD(0.1))


def ids(key="a"):
    return fc.categorical_column_with_identity(key, 6)


def dense(value, dtype=tf.int64):
    return lambda batch: tf.constant(np.stack([value] * batch), dtype)


def ragged(batch):
    return tf.RaggedTensor.from_row_lengths(tf.ones([2 * batch], tf.int64), [2] * batch)


def to_number(loss, features):
    return loss + programs.to_number(loss)


def numpy_rate(step):
    return tf.ensure_shape(tf.numpy_function(lambda: np.float32(0.1), [], tf.float32), [])


def fails(*_):
    raise ZeroDivisionError("of the program")


def host_call(function, tensors=lambda loss: [loss[None]]):
    return lambda loss: {"host_call": (function, tensors(loss))}


def of_model():
    """Returns the variable w of the model."""
    return next(one for one in v1.global_variables() if one.op.name == "w")


def assigns_in_a_branch(loss):
    return tf.cond(loss[0] > 0, lambda: of_model().assign(2.0).op, lambda: tf.no_op())


def assigns_an_argument(loss):
    @tf.function
    def assign(handle):
        tf.raw_ops.AssignVariableOp(resource=handle, value=2.0)
        return loss[0]

    return assign(of_model().handle)


def reads_in_a_dataset(loss):
    w = of_model()
    return tf.data.Dataset.range(2).reduce(loss[0], lambda total, _: total + tf.reduce_sum(w))


def assigns_its_own(loss):
    own = v1.get_local_variable("of_host_call", initializer=0.0)
    return own.assign_add(loss[0])


def case(found=None, mode="train", steps=None, **fields):
    """Returns a program with batches for each core, and how to judge and check it.

    Args:
      found: a part of the first finding, or None if the program is good.
      mode: "train", "eval" or "infer".
      steps: arguments of train or evaluate that leave the number of steps open.
      **fields: of the Program.
    """
    fields = {"spec": spec(), "features": {"a": sparse_of([1, 2])}, **fields}
    fields["tpu"] = {"per_host_input_for_training": PIPELINES.PER_HOST_V2, **fields.get("tpu", {})}
    return tpu_described.Program(**fields), found, mode, steps or {}


def judged(program, mode, steps, model_dir):
    """Returns the error that `use_tpu=True` raises on the described TPU, or None."""
    try:
        made = program.described(model_dir)
        if mode == "train":
            tpu_described.train(made, program.input_fn, **steps)
        elif mode == "eval":
            tpu_described.evaluate(made, program.input_fn, **steps)
        else:
            with tpu_described._stopped_at(v1.train, "MonitoredSession", made, {}):
                next(made.predict(program.input_fn))
    except Exception as error:
        return error
    return None


NO_TABLES = {"spec": None, "features": {}}
PLAIN_EVALUATION = {"mode": "eval", **NO_TABLES}
ON_CORE = {"embedding_lookup_device": "tpu_tensor_core", "tensor_core_shape": [None, 3]}
FALLING = {"learning_rate_fn": lambda step: 0.1 / (1 + tf.cast(step, tf.float32))}
WITH_WEIGHTS = ("floats", "integers", "in_a_row")
OF_EVERY_FORM = {
    "a": ee.FeatureConfig("t", max_sequence_length=3),
    **{key: ee.FeatureConfig("t") for key in ("int32", "int16", "dense", "ragged")},
    **{key: ee.FeatureConfig("t", weight_key=f"{key}_weights") for key in WITH_WEIGHTS},
}
GOOD = {
    "config dicts": case(tpu={"per_host_input_for_training": PIPELINES.PER_HOST_V1}),
    "features of every form": case(
        spec=spec(features=OF_EVERY_FORM),
        features={
            **{key: sparse_of([1, 2]) for key in ("a", "floats", "integers", "integers_weights")},
            **{key: dense([1, 2]) for key in ("dense", "in_a_row")},
            "int32": sparse_of([1, 2], tf.int32),
            "int16": sparse_of([1, 2], tf.int16),
            "ragged": ragged,
            "floats_weights": sparse_of([0.5, 1.5], tf.float32),
            "in_a_row_weights": dense([0.5, 1.5], tf.float32),
        },
    ),
    "one dense id for each sample": case(spec=of_table(combiner=None), features={"a": dense(1)}),
    "columns": case(
        spec=of_columns(
            fc.embedding_column(ids("c"), 4),
            *fc.shared_embedding_columns([ids("a"), ids("b")], 4),
            fc.embedding_column(ids("d"), 4, **ON_CORE),
        ),
        features={
            **dict.fromkeys("ad", sparse_of([1, 2])),
            "b": sparse_of([3], tf.int32),
            "c": sparse_of([4]),
        },
    ),
    "a host_call with a variable of its own": case(fields=host_call(assigns_its_own)),
    "a host_call that reads in a dataset": case(fields=host_call(reads_in_a_dataset)),
    "an evaluation": case(mode="eval"),
    "an evaluation on the host without steps": case(
        loss=to_number, arguments={"eval_on_tpu": False}, steps={"steps": None}, **PLAIN_EVALUATION
    ),
    "no tables": case(**NO_TABLES),
    "a prediction from features alone": case(
        mode="infer", given=lambda features, labels: features, **NO_TABLES
    ),
    "a prediction whose last batch is smaller": case(mode="infer", static=False, **NO_TABLES),
    "an evaluation in slices": case(
        tpu={"eval_training_input_configuration": PIPELINES.SLICED},
        loss=lambda loss, features: loss * tf.ensure_shape(features["x"], [4, 3])[0, 0],
        **PLAIN_EVALUATION,
    ),
    "two tables and the fields of the spec": case(
        spec=spec(
            {
                "t": ee.TableConfig(6, 4, combiner="sum", optimization_parameters=ADAGRAD(0.1)),
                "u": ee.TableConfig(
                    6, 2, combiner="sum", optimization_parameters=SGD(0.1), **FALLING
                ),
            },
            {"a": ee.FeatureConfig("t"), "b": ee.FeatureConfig("u")},
            optimization_parameters=None,
            partition_strategy="mod",
            pipeline_execution_with_tensor_core=True,
            clipping_limit=0.5,
            experimental_gradient_multiplier_fn=lambda step: -0.5,
        ),
        features={"a": sparse_of([1, 2]), "b": dense([3, -1])},
    ),
}

OTHER_IDS = "Feature a of table t: ids must be int32 or int64; got"
UNSUMMED = ADAGRAD(0.1, use_gradient_accumulation=False)
RAISE = {
    "ids that are floats": case(
        found=f"{OTHER_IDS} float32", features={"a": sparse_of([1.0, 2.0], tf.float32)}
    ),
    "ids of int16": case(found=f"{OTHER_IDS} int16", features={"a": sparse_of([1, 2], tf.int16)}),
    "a feature that is missing": case(
        found="Feature a of table t is not among the features of the batch",
        features={"b": dense([1, 2])},
    ),
    "clipping without accumulation": case(
        found="clipping_limit=0.5",
        spec=spec(clipping_limit=0.5, optimization_parameters=UNSUMMED),
    ),
    "slot_variable_creation_fn": case(
        found="works on the host only",
        spec=of_table(embedding.Adagrad(0.1, slot_variable_creation_fn=fails)),
    ),
    "an optimizer of one dimension": case(
        found="FrequencyEstimatorParameters needs dimension 1; got 4",
        spec=of_table(ee.FrequencyEstimatorParameters(0.2, 50.0, 3.0, 0.7)),
    ),
    "v6e": case(found="no TPUEstimator runs by TensorFlow on TPUs", tpu={"tpu_generation": "v6e"}),
    "bad_ids": case(found="bad_ids='drop' works on the host only", tpu={"bad_ids": "drop"}),
    "table_summaries": case(
        found="table_summaries=True works on the host only", tpu={"table_summaries": True}
    ),
    "a prediction with tables": case(
        found="tensorflow-estimator looks up no embedding tables when it predicts on a TPU",
        mode="infer",
    ),
    "one shard": case(found="num_shards", tpu={"num_shards": 1}),
    "an evaluation without steps": case(
        found="Evaluate `steps` must be set on TPU", mode="eval", steps={"steps": None}
    ),
    "no batch size of evaluation": case(
        found="eval_batch_size", mode="eval", arguments={"eval_batch_size": None}
    ),
    "a negative rate": case(
        found="Table 't': learning_rate_fn", spec=of_table(learning_rate_fn=lambda step: -0.1)
    ),
    "a rate that fails": case(found="of the program", spec=of_table(learning_rate_fn=fails)),
    "a multiplier that returns nothing": case(
        found="experimental_gradient_multiplier_fn <lambda>",
        spec=spec(experimental_gradient_multiplier_fn=lambda step: None),
    ),
    "a dynamic batch": case(
        found="features['x'] (float32) has the dynamic shape (None, 3)", static=False
    ),
    "features that are no dict": case(
        found="use_tpu=True raises", given=lambda features, labels: (features["x"], labels)
    ),
    "a host_call that fails": case(found="of the program", fields=host_call(fails)),
    "an EstimatorSpec of an evaluation": case(
        found="estimator_spec used by TPU evaluation must have type`TPUEstimatorSpec`",
        mode="eval",
        returns=lambda made: made.as_estimator_spec(),
    ),
}

LATER = {
    "weights that are strings": case(
        found="Feature a of table t: weights w must be numbers; got string",
        spec=spec(features={"a": ee.FeatureConfig("t", weight_key="w")}),
        features={"a": sparse_of([1, 2]), "w": sparse_of(["ant", "bee"], tf.string)},
    ),
    "a string op": case(found="no TPU kernel has this op", loss=to_number),
    "a rate from NumPy": case(found="PyFunc", spec=of_table(learning_rate_fn=numpy_rate)),
    "a host_call that assigns the step": case(
        found="host_call assigns the variable 'global_step'",
        fields=host_call(lambda loss: v1.assign_add(v1.train.get_global_step(), 1)),
    ),
    "a host_call that assigns in a branch": case(
        found="host_call assigns the variable 'w'", fields=host_call(assigns_in_a_branch)
    ),
    "a host_call that assigns an argument": case(
        found="host_call assigns the variable 'w'", fields=host_call(assigns_an_argument)
    ),
    "tables that do not fit": case(
        found="Tables and slots take", spec=of_table(ADAGRAD(0.1), rows=2**31, dimension=64)
    ),
}
"""Programs that only a session refuses: `use_tpu=True` raises no error before."""

FAST = ("columns", "a rate that fails")
CASES = [
    pytest.param(kind, case, id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for kind, cases in (("good", GOOD), ("raises", RAISE), ("later", LATER))
    for name, case in cases.items()
]


@pytest.mark.sampled(12)  # CI draws 12 of the cases.
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_check_agrees_with_use_tpu(kind, case, tmp_path):
    """Both accept GOOD, and refuse RAISE. The check also refuses LATER."""
    program, found, mode, steps = case
    error = judged(program, mode, steps, tmp_path / "judged")
    assert (error is not None) == (kind == "raises"), error
    report = preflight.check_program(
        program.emulated(tmp_path / "checked"),
        program.input_fn,
        mode,
        compile=False,
        replicas=program.tpu.get("num_shards", program.replicas),
        has_steps=not steps,  # See `case`.
    )
    refusals = [*map(str, report.findings)]
    refusals += [str(one) for one in report.tables if one.outcome == "refused"]
    assert report.status == (0 if kind == "good" else 1), refusals
    if kind == "good":
        assert not refusals
        assert all(one.outcome == "accepted" for one in report.tables)
    else:
        assert any(found in one for one in refusals), refusals
    assert not (tmp_path / "checked").exists()  # The check writes nothing.
