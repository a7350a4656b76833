"""The TF2 vocabulary: its optimizers as values, and training with them."""

import inspect
import itertools

import harness
import numpy as np
import pytest
import tensorflow as tf
from harness import refusal
from optimizer_values import arguments_of, by_name, changed_everywhere, create_slots
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as optimization_pb2

import estimator_emb as ee
from estimator_emb import embedding
from estimator_emb.backends.tpu import embedding as hardware
from estimator_emb.optimizers import TF2_OPTIMIZERS

ORIGINALS = tf.tpu.experimental.embedding
START = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)

every_optimizer = pytest.mark.parametrize("ours", TF2_OPTIMIZERS, ids=by_name)


@every_optimizer
def test_docstring_says_everything(ours):
    """A docstring also says for which of its arguments the legacy class has no default."""
    legacy = f"`{by_name(ours.__mro__[2])}` has no default"  # The second base class.
    for part in ("Args:", "Raises:", "Source:", "float32", legacy, *arguments_of(ours)):
        assert part in inspect.getdoc(ours), part


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        (None, (None, None)),
        (2.0, (-2.0, 2.0)),
        (1, (-1, 1)),
        ((-1.0, 2.0), (-1.0, 2.0)),
        ((None, 2.0), (None, 2.0)),
        ((-2.0, None), (-2.0, None)),
        ((0.0, 0.0), (0.0, 0.0)),
        (float("inf"), (-float("inf"), float("inf"))),
    ],
    ids=str,
)
@every_optimizer
def test_clipvalue_sets_both_limits(ours, given, limits):
    value = ours(clipvalue=given)
    assert value.clipvalue == given and type(value.clipvalue) is type(given)
    assert (value.clip_gradient_min, value.clip_gradient_max) == limits
    # All ways to write the same limits are equal.
    assert ours(clipvalue=limits) == value and hash(ours(clipvalue=limits)) == hash(value)
    assert repr(value) == repr(ours()).replace("clipvalue=None", f"clipvalue={given!r}")


NUMBER_OR_PAIR = "clipvalue must be a positive number, a tuple (min, max) with min <= max in which"
NEEDS_SUMS = "clipvalue needs use_gradient_accumulation=True; got clipvalue="
REFUSED_OF_ALL = [
    *(
        ({"clipvalue": wrong}, NUMBER_OR_PAIR)
        for wrong in (0, -1.0, True, "1", float("nan"), [-1, 1], (1,), (-1, 0, 1), (2.0, 1.0))
    ),
    *(({"clipvalue": wrong}, NUMBER_OR_PAIR) for wrong in (("a", None), (0, 1j))),
    ({"clipvalue": 1.0, "use_gradient_accumulation": False}, f"{NEEDS_SUMS}1.0"),
    ({"clipvalue": (None, 2.0), "use_gradient_accumulation": False}, f"{NEEDS_SUMS}(None, 2.0)"),
    *(
        ({"learning_rate": wrong}, "learning_rate must be a number or a function without arguments")
        for wrong in ("0.1", None, [0.1], lambda step: 0.1, 1j, True)
    ),
    ({"learning_rate": float("nan")}, "learning_rate must not be NaN."),
    ({"learning_rate": -0.5}, "learning_rate must not be negative; got -0.5."),
    ({"learning_rate": float("inf")}, "learning_rate must be finite in float32; got inf."),
]
"""Arguments that every optimizer refuses, and the beginnings of the messages."""


@every_optimizer
@pytest.mark.parametrize(("arguments", "message"), REFUSED_OF_ALL, ids=itertools.count())
def test_every_optimizer_refuses_wrong_arguments(ours, arguments, message):
    error = TypeError if message.startswith("learning_rate must be a number") else ValueError
    assert refusal(error, ours, **arguments).startswith(f"{by_name(ours)}: {message}")


@every_optimizer
def test_learning_rate_may_be_a_number_or_a_function(ours):
    for rate in (0, 0.5, np.float32(0.5), lambda: 0.25, lambda step=0: 0.1, dict):
        assert ours(rate).learning_rate is rate  # `dict()` needs no arguments either.


@pytest.mark.parametrize("ours", [one for one in TF2_OPTIMIZERS if one.slots], ids=by_name)
def test_a_wrong_slot_variable_creation_fn_is_refused(ours):
    said = refusal(ValueError, ours, slot_variable_creation_fn=3)
    begin = f"{by_name(ours)}: slot_variable_creation_fn must be a function of (table, "
    assert said.startswith(begin) and said.endswith("got 3.")


@every_optimizer
def test_hardware_messages_equal_tensorflows(ours):
    """TensorFlow's optimizer and ours write the same message for TPU v2 to v4."""
    arguments = changed_everywhere(ours)
    arguments.pop("slot_variable_creation_fn", None)
    if "low_dimensional_packing_status" in arguments:
        arguments["low_dimensional_packing_status"] = 1  # protobuf 7 refuses a bool.
    arguments["learning_rate"] = 0.25
    theirs = optimization_pb2.OptimizationParameters()
    getattr(ORIGINALS, by_name(ours))(**arguments)._set_optimization_parameters(theirs)
    engine = hardware.TPUEmbedding(
        {"t": ee.TableConfig(7, 2)},
        {"x": ee.FeatureConfig("t")},
        8,  # Samples of a batch.
        hardware.TRAINING,
        optimization_parameters=ours(**arguments),
        device_config=hardware.DeviceConfig(1, 2, "/job:worker"),
    )
    (table,) = engine.config_proto.table_descriptor
    assert table.optimization_parameters.learning_rate.constant == 0.25
    table.optimization_parameters.ClearField("learning_rate")  # TensorFlow sets it elsewhere.
    assert table.optimization_parameters == theirs


def spec_of(parameters, tables=None):
    tables = tables or {"t": {}}
    initial = harness.initializer(START)
    made = {name: ee.TableConfig(4, 2, initial, "sum", **more) for name, more in tables.items()}
    return harness.tables_spec(made, parameters)


def make(spec, model_dir, **kwargs):
    model_fn = harness.gradient_model_fn(sorted(spec.table_to_config_dict))
    return harness.estimator(model_fn, spec, model_dir, 1, run=harness.SILENT, **kwargs)


def train(spec, model_dir, steps, **kwargs):
    """Trains with gradient 1 on row 1 of every table, and returns the last checkpoint."""
    tables = sorted(spec.table_to_config_dict)
    ids, gradient = np.array([1]), np.ones([1, 2], np.float32)
    batch = dict.fromkeys(tables, ids), dict.fromkeys(tables, gradient)
    make(spec, model_dir, **kwargs).train(harness.input_fn_of([batch] * steps), steps=steps)
    return harness.saved(model_dir, steps)


@pytest.mark.parametrize("pipelined", [False, harness.slow(True)])
def test_a_learning_rate_that_is_a_function_sees_the_step(tmp_path, pipelined):
    calls = []

    def rate():
        calls.append(tf.compat.v1.get_default_graph())
        step = tf.compat.v1.train.get_global_step()
        return tf.cast(step + 1, tf.float64) / 8  # The step casts it to float32.

    def rate_of_both(step=None):
        return tf.constant(0.5) if step is None else tf.constant(0.25)

    optimizer, sgd = "optimization_parameters", embedding.SGD
    # Settings of a table -> how much row 1 moves in three steps with gradient 1.
    cases = {
        "optimizer_of_the_spec": ({}, (1 + 2 + 3) / 8),
        "rate_of_the_step": ({optimizer: sgd(rate)}, (1 + 2 + 3) / 8),
        "constant_function": ({optimizer: sgd(lambda: 0.5)}, 3 * 0.5),
        "number": ({"learning_rate": 0.0}, 0.0),
        "learning_rate_fn": ({"learning_rate_fn": lambda step: tf.constant(0.25)}, 3 * 0.25),
        "clipped": ({optimizer: sgd(lambda: np.float64(0.75), clipvalue=0.5)}, 3 * 0.75 * 0.5),
        "both_with_step": ({"learning_rate_fn": rate_of_both}, 3 * 0.25),
        "both_without_step": ({optimizer: sgd(rate_of_both)}, 3 * 0.5),
    }
    spec = spec_of(embedding.SGD(rate), {name: settings for name, (settings, _) in cases.items()})
    got = train(spec._replace(pipeline_execution_with_tensor_core=pipelined), tmp_path, steps=3)
    for name, (_, amount) in cases.items():
        moved = START[1] - got[name][1]
        np.testing.assert_allclose(moved, [amount, amount], rtol=1e-6, err_msg=name)
    assert len(calls) == 1  # Two tables share the rate.


def test_a_rate_may_depend_on_what_model_fn_made(tmp_path):
    made = {}

    def model_fn(features, labels, mode, params):
        made["loss"] = tf.reduce_sum(features["t"])
        return harness.minimized(mode, made["loss"])

    spec = spec_of(embedding.SGD(lambda: made["loss"]))  # The sum of row 1, which is 0.75.
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=1)
    estimator.train(harness.input_fn_of([({"t": np.array([1])}, np.zeros(1))]), steps=1)
    np.testing.assert_allclose(harness.saved(tmp_path, 1)["t"][1], START[1] - 0.75 * 1)


@pytest.mark.parametrize("device", [None, harness.slow("host")], ids=["cpu", "emulated"])
def test_slot_variable_creation_fn_creates_the_slots(tmp_path, device):
    """Tables t and u get slots from `create`. They train like v and w, which have usual slots."""
    called = []

    def create(table, slot_names, slot_initializers):
        called.append((table.shape.as_list(), slot_names))
        assert isinstance(slot_initializers, list)
        return create_slots(table, slot_names, slot_initializers)

    own = {"slot_variable_creation_fn": create}
    tables = {
        "t": {},
        "u": {"optimization_parameters": embedding.Adam(0.5, 0.5, 0.75, **own)},
        "v": {"optimization_parameters": embedding.Adagrad(0.5, 3.0)},  # t with usual slots.
        "w": {"optimization_parameters": embedding.Adam(0.5, 0.5, 0.75)},  # u with usual slots.
    }
    spec = spec_of(embedding.Adagrad(0.5, 3.0, **own), tables)
    got = train(spec, tmp_path, 1, device=device)
    # Prediction creates no slots.
    ids = harness.input_fn_of([(dict.fromkeys(tables, np.array([1])), {})])
    (prediction,) = make(spec, tmp_path, device=device).predict(ids)
    np.testing.assert_array_equal(prediction["t"], got["t"][1])
    assert called == [([4, 2], ["accumulators"]), ([4, 2], ["momenta", "velocities"])]
    part = "/part_0" if device else ""  # An emulated TPU holds tables in parts.
    like = {
        f"program/t{part}/of_accumulators": "v/Adagrad",
        f"program/u{part}/of_momenta": "w/Adam/m",
        f"program/u{part}/of_velocities": "w/Adam/v",
        "t": "v",
        "u": "w",
    }
    assert set(got) == {"global_step", *like, *like.values()}
    for name, usual in like.items():
        np.testing.assert_array_equal(got[name], got[usual])
    np.testing.assert_array_equal(got["v/Adagrad"][:2, 0], [3.0, 3.0 + 1.0**2])
    np.testing.assert_allclose(got["v"][1], START[1] - 0.5 / np.sqrt(3.0 + 1.0**2))


def test_slots_may_be_plain_variables(tmp_path):
    def create(table, slot_names, slot_initializers):
        (name,), (initializer,) = slot_names, slot_initializers
        return {
            name: tf.Variable(lambda: initializer(shape=table.shape, dtype=tf.float32), name="mine")
        }

    spec = spec_of(embedding.Adagrad(0.5, 3.0, slot_variable_creation_fn=create))
    got = train(spec, tmp_path, steps=1)
    assert set(got) == {"global_step", "t", "mine"}
    np.testing.assert_array_equal(got["mine"][:2, 0], [3.0, 3.0 + 1.0**2])
    np.testing.assert_allclose(got["t"][1], START[1] - 0.5 / np.sqrt(3.0 + 1.0**2))


def variable(shape, dtype=tf.float32, resource=True):
    return tf.compat.v1.get_variable("x", shape, dtype, use_resource=resource)


@pytest.mark.parametrize(
    ("made", "got"),
    [
        (lambda: {"m": 3}, "got the keys ['m']."),
        (lambda: None, "got None."),
        (lambda: {"accumulators": 3}, "for slot 'accumulators'; got 3."),
        (lambda: {"accumulators": variable([4, 2], resource=False)}, "shape=(4, 2) dtype=float32_"),
        (lambda: {"accumulators": variable([4, 3])}, "shape=(4, 3) dtype=float32>."),
        (lambda: {"accumulators": variable([4, 2], tf.float64)}, "shape=(4, 2) dtype=float64>."),
    ],
    ids=["keys", "none", "number", "ref", "shape", "dtype"],
)
def test_bad_slots_are_refused(tmp_path, made, got):
    spec = spec_of(embedding.Adagrad(0.5, slot_variable_creation_fn=lambda *_: made()))
    said = refusal(ValueError, train, spec, tmp_path, steps=1)
    assert said.startswith("Table 't': slot_variable_creation_fn of Adagrad must return a")
    assert got in said


def test_a_spec_takes_tensorflows_objects():
    for name in ("FeatureConfig", "QuantizationConfig", "TableConfig"):
        assert getattr(embedding, name) is getattr(ORIGINALS, name)
    sgd = embedding.SGD(lambda: 0.25, clipvalue=(None, 0.5))
    own = {"optimization_parameters": ORIGINALS.SGD(sgd.learning_rate, clipvalue=(None, 0.5))}
    spec = spec_of(ORIGINALS.Adagrad(0.5, 3.0), {"t": own})
    assert spec.optimization_parameters == embedding.Adagrad(0.5, 3.0)
    assert spec.table_to_config_dict["t"].optimization_parameters == sgd
