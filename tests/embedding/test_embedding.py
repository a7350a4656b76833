"""The TF2 vocabulary: its classes, translation in both directions, and training with them."""

import importlib
import inspect
import itertools

import harness
import numpy as np
import pytest
import tensorflow as tf
from harness import refusal
from optimizer_values import (
    arguments_of,
    by_name,
    changed_everywhere,
    create_slots,
    example_arguments,
)

import estimator_emb as ee
from estimator_emb import embedding, optimizers
from estimator_emb.optimizers import TF2_OPTIMIZERS

ORIGINALS = tf.tpu.experimental.embedding
START = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)

CONFIGS = (embedding.TableConfig, embedding.FeatureConfig, embedding.QuantizationConfig)
LATER_ARGUMENTS = {"TableConfig": ["layout", "dtype"]}
"""Arguments of TensorFlow 2.21 that our classes leave out."""

LEGACY = {
    embedding.SGD: optimizers.StochasticGradientDescentParameters,
    embedding.Adagrad: optimizers.AdagradParameters,
    embedding.AdagradMomentum: optimizers.AdagradMomentumParameters,
    embedding.Adam: optimizers.AdamParameters,
    embedding.FTRL: optimizers.FtrlParameters,
}


every_optimizer = pytest.mark.parametrize("ours", TF2_OPTIMIZERS, ids=by_name)


def constant_rate():
    return 0.25


# Signatures.


@pytest.mark.parametrize("ours", [*TF2_OPTIMIZERS, *CONFIGS], ids=by_name)
def test_signature_equals_the_original(ours):
    theirs = arguments_of(getattr(ORIGINALS, by_name(ours)))
    later = [name for name in LATER_ARGUMENTS.get(by_name(ours), ()) if name in theirs]
    assert later == list(theirs)[len(theirs) - len(later) :]
    assert [
        (name, argument.default, argument.kind) for name, argument in arguments_of(ours).items()
    ] == [
        (name, argument.default, argument.kind)
        for name, argument in theirs.items()
        if name not in later
    ]


@pytest.mark.parametrize("ours", [*TF2_OPTIMIZERS, *CONFIGS], ids=by_name)
def test_docstring_says_everything(ours):
    documented = inspect.getdoc(ours)
    for part in ("Args:", "Raises:", "Source:", "float32", *arguments_of(ours)):
        assert part in documented, part
    if ours in TF2_OPTIMIZERS:
        assert "w <- " in inspect.getmodule(ours).__doc__
        assert f"`{by_name(LEGACY[ours])}` has no default" in documented


# Optimizers as values.


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        (None, (None, None)),
        ((None, None), (None, None)),
        (2.0, (-2.0, 2.0)),
        (1, (-1, 1)),
        ((-2.0, 2.0), (-2.0, 2.0)),
        ((-1.0, 2.0), (-1.0, 2.0)),
        ((None, 2.0), (None, 2.0)),
        ((-2.0, None), (-2.0, None)),
        ((0.0, 0.0), (0.0, 0.0)),
        ((0.5, 2.0), (0.5, 2.0)),
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


# Validation.

REFUSED_OF_ALL = [
    *(
        (
            {"clipvalue": wrong},
            "clipvalue must be a positive number, a tuple (min, max) with min <= max in which None "
            f"means no limit, or None; got {wrong!r}.",
        )
        for wrong in (
            *(0, -1.0, True, "1", float("nan"), [-1, 1]),
            *((1,), (-1, 0, 1), (2.0, 1.0), ("a", None), (0, 1j)),
        )
    ),
    *(
        (
            {"clipvalue": limits, "use_gradient_accumulation": False},
            f"clipvalue needs use_gradient_accumulation=True; got clipvalue={limits!r} with "
            "use_gradient_accumulation=False.",
        )
        for limits in (1.0, (None, 2.0))
    ),
    *(
        (
            {"learning_rate": wrong},
            f"learning_rate must be a number or a function without arguments; got {wrong!r}.",
        )
        for wrong in ("0.1", None, [0.1], lambda step: 0.1, 1j, True)
    ),
    ({"learning_rate": float("nan")}, "learning_rate must not be NaN."),
    ({"learning_rate": -0.5}, "learning_rate must not be negative; got -0.5."),
    ({"learning_rate": float("inf")}, "learning_rate must be finite in float32; got inf."),
]
"""Arguments that every optimizer refuses, and the error messages."""


@every_optimizer
@pytest.mark.parametrize(("arguments", "message"), REFUSED_OF_ALL, ids=itertools.count())
def test_every_optimizer_refuses_wrong_arguments(ours, arguments, message):
    error = TypeError if message.startswith("learning_rate must be a number") else ValueError
    got = refusal(error, ours, **arguments)
    assert got == f"{by_name(ours)}: {message}"


@every_optimizer
def test_learning_rate_may_be_a_number_or_a_function(ours):
    for rate in (0, 0.5, np.float32(0.5), constant_rate, lambda step=0: 0.1, dict):
        assert ours(rate).learning_rate is rate


TABLE = {"vocabulary_size": 4, "dim": 2}
OPTIMIZERS = "optimizer must be one of SGD, Adagrad, AdagradMomentum, Adam, FTRL, or None; got "
SHAPE = "a list of ints, a tf.TensorShape or None"
ALLOWED = {
    embedding.TableConfig: TABLE,
    embedding.FeatureConfig: {"table": embedding.TableConfig(**TABLE)},
    embedding.QuantizationConfig: {"num_buckets": 2, "lower": 0.0, "upper": 1.0},
}
REFUSED = [
    *(
        (ours, {name: wrong}, f"{name} must be {allowed}; got {wrong!r}.")
        for ours, name, values, allowed in (
            (embedding.TableConfig, "vocabulary_size", [0, 4.0], "an int >= 1"),
            (embedding.TableConfig, "dim", [-2, True], "an int >= 1"),
            (embedding.TableConfig, "initializer", [3], "callable or None"),
            (embedding.TableConfig, "combiner", [None, "max"], "'mean', 'sum' or 'sqrtn'"),
            (embedding.TableConfig, "name", [3], "a string or None"),
            (embedding.TableConfig, "quantization_config", [3], "a QuantizationConfig or None"),
            (embedding.FeatureConfig, "max_sequence_length", [-1, 1.0], "an int >= 0"),
            (embedding.FeatureConfig, "validate_weights_and_indices", [1], "True or False"),
            (embedding.FeatureConfig, "output_shape", ["wide"], SHAPE),
            (embedding.FeatureConfig, "name", [3], "a string or None"),
            (embedding.QuantizationConfig, "num_buckets", [1, 2.5], "an int >= 2"),
        )
        for wrong in values
    ),
    *(
        (
            ours,
            {"slot_variable_creation_fn": 3},
            "slot_variable_creation_fn must be a function of (table, slot_names, "
            "slot_initializers) that returns {slot name: variable}, or None; got 3.",
        )
        for ours in TF2_OPTIMIZERS
        if ours is not embedding.SGD
    ),
    (
        embedding.FTRL,
        {"initial_accumulator_value": 0, "allow_zero_accumulator": True},
        "initial_accumulator_value must be positive; got 0.",
    ),
    *(
        (
            embedding.TableConfig,
            {"optimizer": wrong},
            f"{OPTIMIZERS}{wrong!r}. from_legacy translates a legacy one.",
        )
        for wrong in (0.1, ee.StochasticGradientDescentParameters(0.5))
    ),
    (
        embedding.FeatureConfig,
        {"table": "t"},
        "table must be a TableConfig of estimator_emb.embedding; got 't'. from_tensorflow "
        "translates TensorFlow's features with their tables.",
    ),
    *(
        (
            embedding.QuantizationConfig,
            {"lower": wrong},
            f"lower and upper must be numbers, lower below upper; got {wrong!r} and 1.0.",
        )
        for wrong in (1.0, "a")
    ),
]


@pytest.mark.parametrize(("ours", "arguments", "message"), REFUSED, ids=itertools.count())
def test_classes_refuse_wrong_values(ours, arguments, message):
    got = refusal(ValueError, ours, **{**ALLOWED.get(ours, {}), **arguments})
    assert got == f"{by_name(ours)}: {message}"


def test_configs_have_repr_and_equality():
    quantization = embedding.QuantizationConfig(4, -1.0, 1.0)
    assert quantization == embedding.QuantizationConfig(4, -1.0, 1.0)
    assert repr(quantization) == "QuantizationConfig(num_buckets=4, lower=-1.0, upper=1.0)"
    table = embedding.TableConfig(4, 2, initializer=tf.zeros, name="t")
    assert table != embedding.TableConfig(4, 2, initializer=tf.zeros, name="t")
    assert repr(table) == (
        f"TableConfig(vocabulary_size=4, dim=2, initializer={tf.zeros!r}, optimizer=None, "
        "combiner='mean', name='t', quantization_config=None)"
    )
    feature = embedding.FeatureConfig(table, 3, True, [4, None], "f")
    assert feature.output_shape.as_list() == [4, None]
    assert repr(feature) == (
        f"FeatureConfig(table={table!r}, max_sequence_length=3, "
        "validate_weights_and_indices=True, output_shape=TensorShape([4, None]), name='f')"
    )


def test_default_initializer_scales_with_the_dimension():
    initializer = embedding.TableConfig(2000, 16).initializer
    assert isinstance(initializer, tf.compat.v1.truncated_normal_initializer)
    assert (initializer.mean, initializer.stddev) == (0.0, 0.25)


# TensorFlow's own objects.


@every_optimizer
def test_tensorflows_optimizers_keep_every_field(ours):
    for arguments in ({}, changed_everywhere(ours), {"learning_rate": constant_rate}):
        original = getattr(ORIGINALS, by_name(ours))(**arguments)
        back = embedding.to_tensorflow(ours(**arguments))
        assert type(back) is type(original) and vars(back) == vars(original)
        for translated in (
            optimizers.as_parameters(original, "TableConfig"),
            embedding.from_tensorflow(original),
            embedding.TableConfig(4, 2, optimizer=original).optimizer,
        ):
            assert type(translated) is ours
            assert translated == ours(**arguments)
            for name, value in vars(original).items():
                assert getattr(translated, name) == value, name
        own = type("Own", (type(original),), {"__module__": "program"})(**arguments)
        assert embedding.from_tensorflow(own) == ours(**arguments)


def test_an_optimizer_of_keras_is_refused():
    legacy = importlib.import_module("tensorflow.python.keras.optimizer_v2.adam")
    for value in (legacy.Adam(), tf.keras.optimizers.SGD()):
        with pytest.raises(ValueError, match="TableConfig: optimization_parameters must be one of"):
            optimizers.as_parameters(value, "TableConfig")


def test_from_tensorflow_refuses_unknown_objects():
    names = (
        "Expected one of SGD, Adagrad, AdagradMomentum, Adam, FTRL, TableConfig, FeatureConfig, "
        "QuantizationConfig of estimator_emb.embedding or tf.tpu.experimental.embedding; got "
    )
    for value in (3, None, ee.AdagradParameters(0.1)):
        assert refusal(ValueError, embedding.from_tensorflow, value) == f"{names}{value!r}."
    if hasattr(ORIGINALS, "CustomOptimizer"):
        custom = ORIGINALS.CustomOptimizer(lambda *args: args)
        assert refusal(ValueError, embedding.from_tensorflow, custom) == f"{names}{custom!r}."


@pytest.mark.skipif(
    "dtype" not in arguments_of(ORIGINALS.TableConfig), reason="arguments of later versions"
)
def test_from_tensorflow_refuses_layouts_and_integer_tables():
    got = embedding.from_tensorflow(ORIGINALS.TableConfig(4, 2, dtype=tf.float32))
    assert (got.vocabulary_size, got.dim) == (4, 2)
    wide = ORIGINALS.TableConfig(4, 2, layout="wide", dtype=tf.int32)
    assert refusal(ValueError, embedding.from_tensorflow, wide) == (
        "TableConfig: estimator_emb.embedding has no counterpart of layout='wide', "
        "dtype=tf.int32. Leave them at their defaults."
    )


# Translation between the vocabularies.


def arguments_for(legacy, value):
    """Returns the legacy arguments that correspond to the attributes of a TF2 object."""
    return {name: getattr(value, name) for name in arguments_of(legacy)}


@pytest.mark.parametrize("everywhere", [False, True], ids=["defaults", "changed"])
@every_optimizer
def test_optimizers_translate_both_ways(ours, everywhere):
    arguments = changed_everywhere(ours) if everywhere else example_arguments(ours)
    for name in ("slot_variable_creation_fn", "low_dimensional_packing_status"):
        if name in arguments:
            arguments[name] = example_arguments(ours)[name]
    value = ours(**arguments)
    legacy = embedding.to_legacy(value)
    assert type(legacy) is LEGACY[ours]
    assert legacy.arguments() == arguments_for(LEGACY[ours], value)
    assert embedding.from_legacy(legacy) == value
    assert value != legacy and legacy != value
    assert embedding.to_legacy(getattr(ORIGINALS, by_name(ours))(**arguments)) == legacy

    legacy = LEGACY[ours](
        **changed_everywhere(LEGACY[ours]) if everywhere else example_arguments(LEGACY[ours])
    )
    value = embedding.from_legacy(legacy)
    assert type(value) is ours
    assert arguments_for(LEGACY[ours], value) == legacy.arguments()
    assert embedding.to_legacy(value) == legacy
    assert embedding.from_legacy(value) is value


@every_optimizer
def test_to_legacy_refuses_optimizer_fields_without_counterpart(ours):
    lost = {
        "learning_rate": constant_rate,
        "slot_variable_creation_fn": create_slots,
        "low_dimensional_packing_status": True,
    }
    lost = {name: value for name, value in lost.items() if name in arguments_of(ours)}
    listed = ", ".join(f"{name}={value!r}" for name, value in lost.items())
    assert refusal(ValueError, embedding.to_legacy, ours(**lost)) == (
        f"{by_name(ours)}: the legacy vocabulary has no counterpart of {listed}. Give the "
        "optimizer itself as optimization_parameters, which takes it as it is."
    )


def test_tables_translate_both_ways():
    table = embedding.TableConfig(
        4, 2, initializer=tf.zeros, optimizer=embedding.Adam(0.5), combiner="sqrtn", name="t"
    )
    legacy = embedding.to_legacy(table)
    assert legacy == ee.TableConfig(
        4,
        2,
        initializer=tf.zeros,
        combiner="sqrtn",
        optimization_parameters=ee.AdamParameters(0.5, epsilon=1e-7),
    )
    assert vars(embedding.from_legacy(legacy, name="t")) == vars(table)
    plain = embedding.TableConfig(4, 2)
    assert vars(embedding.from_legacy(embedding.to_legacy(plain))) == vars(plain)

    legacy = ee.TableConfig(7, 3, combiner="sum")
    assert embedding.to_legacy(embedding.from_legacy(legacy)) == legacy
    original = ORIGINALS.TableConfig(4, 2, tf.zeros, ORIGINALS.SGD(0.5), "sum", "t")
    assert embedding.to_legacy(original) == ee.TableConfig(
        4, 2, tf.zeros, "sum", optimization_parameters=ee.StochasticGradientDescentParameters(0.5)
    )


def test_features_translate_both_ways():
    table = embedding.TableConfig(4, 2, name="t")
    feature = embedding.FeatureConfig(table, 5, name="f")
    legacy = embedding.to_legacy(feature)
    assert legacy == ee.FeatureConfig("t", 5)
    back = embedding.from_legacy(legacy, name="f", table=table)
    assert repr(back) == repr(feature)
    assert back.table is table


def rate_of_step(step):
    return 0.5


MOVING = LEGACY.values()
NO_COUNTERPART = "the {} vocabulary has no counterpart of "
NAMED = embedding.TableConfig(4, 2, name="t")
TO_LEGACY_REFUSES = [
    (
        embedding.QuantizationConfig(4, -1.0, 1.0),
        f"to_legacy: {NO_COUNTERPART}QuantizationConfig(num_buckets=4, lower=-1.0, upper=1.0).",
    ),
    (
        embedding.TableConfig(4, 2, quantization_config=embedding.QuantizationConfig(4, -1.0, 1.0)),
        f"TableConfig: {NO_COUNTERPART}quantization_config=QuantizationConfig(num_buckets=4, "
        "lower=-1.0, upper=1.0). Only TPU hardware quantizes; set it to None.",
    ),
    (
        embedding.FeatureConfig(embedding.TableConfig(4, 2), 0, False, [4]),
        f"FeatureConfig: {NO_COUNTERPART}validate_weights_and_indices=False, "
        "output_shape=TensorShape([4]). Leave them at their defaults.",
    ),
    (
        embedding.FeatureConfig(embedding.TableConfig(4, 2)),
        "FeatureConfig: its table has no name, and the legacy FeatureConfig needs one for "
        "table_id; give the TableConfig a name.",
    ),
]
FROM_LEGACY_REFUSES = [
    *(
        (
            value,
            None,
            f"from_legacy: {NO_COUNTERPART}{value!r}; it has SGD, Adagrad, AdagradMomentum, Adam, "
            "FTRL, TableConfig and FeatureConfig.",
        )
        for value in (
            object,
            *(one(**example_arguments(one)) for one in optimizers.PARAMETERS if one not in MOVING),
        )
    ),
    (
        optimizers.FtrlParameters(0.1, initial_accumulator_value=0),
        None,
        "FTRL: initial_accumulator_value must be positive; got 0.",
    ),
    *(
        (
            ee.TableConfig(4, 2, **{name: value}),
            None,
            f"TableConfig: {NO_COUNTERPART}{name}={value!r}. A rate belongs in the table's "
            "optimizer, and a table of one id per sample may as well have the combiner 'sum'.",
        )
        for name, value in {
            "hot_id_replication": True,
            "learning_rate": 0.5,
            "learning_rate_fn": rate_of_step,
            "combiner": None,
        }.items()
    ),
    (
        ee.FeatureConfig("t", weight_key="w"),
        NAMED,
        f"FeatureConfig: {NO_COUNTERPART}weight_key='w'. There, weights go into the lookup beside "
        "the ids.",
    ),
    *(
        (
            ee.FeatureConfig("u"),
            wrong,
            "from_legacy: a FeatureConfig needs its table, a TableConfig whose name is the "
            f"table_id 'u'; got {wrong!r}.",
        )
        for wrong in (None, NAMED)
    ),
]


@pytest.mark.parametrize(("value", "message"), TO_LEGACY_REFUSES, ids=itertools.count())
def test_to_legacy_refuses_configs_without_counterpart(value, message):
    assert refusal(ValueError, embedding.to_legacy, value) == message.replace("{}", "legacy")


@pytest.mark.parametrize(("value", "table", "message"), FROM_LEGACY_REFUSES, ids=itertools.count())
def test_from_legacy_refuses_values_without_counterpart(value, table, message):
    got = refusal(ValueError, embedding.from_legacy, value, table=table)
    assert got == message.replace("{}", "TF2")


# Whole trainings.


def spec_of(parameters, tables=None):
    tables = tables or {"t": {}}
    initial = harness.initializer(START)
    made = {name: ee.TableConfig(4, 2, initial, "sum", **more) for name, more in tables.items()}
    return harness.tables_spec(made, parameters)


def make(spec, model_dir, **kwargs):
    model_fn = harness.gradient_model_fn(sorted(spec.table_to_config_dict))
    return harness.estimator(model_fn, spec, model_dir, batch_size=1, **kwargs)


def train(spec, model_dir, steps, **kwargs):
    """Trains with gradient 1 on row 1 of every table, and returns the last checkpoint."""
    tables = sorted(spec.table_to_config_dict)
    ids, gradient = np.array([1]), np.ones([1, 2], np.float32)
    batch = dict.fromkeys(tables, ids), dict.fromkeys(tables, gradient)
    make(spec, model_dir, **kwargs).train(harness.input_fn_of([batch] * steps), steps=steps)
    return harness.saved(model_dir, steps)


def row_1_minus(*amount):
    return START[1] - np.array(amount)


@pytest.mark.parametrize("pipelined", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_learning_rate_that_is_a_function_sees_the_step(tmp_path, pipelined):
    calls = []

    def rate():
        calls.append(tf.compat.v1.get_default_graph())
        step = tf.compat.v1.train.get_global_step()
        return tf.cast(step + 1, tf.float64) / 8  # The step casts it to float32.

    def rate_of_both(step=None):
        return tf.constant(0.5) if step is None else tf.constant(0.25)

    tables = {
        "a": {},
        "b": {"optimization_parameters": embedding.SGD(rate)},
        "c": {"optimization_parameters": embedding.SGD(lambda: 0.5)},
        "d": {"learning_rate": 0.0},
        "e": {"learning_rate_fn": lambda step: tf.constant(0.25)},
        "f": {"optimization_parameters": embedding.SGD(lambda: np.float64(0.75), clipvalue=0.5)},
        "g": {"learning_rate_fn": rate_of_both},
        "h": {"optimization_parameters": embedding.SGD(rate_of_both)},
    }
    spec = spec_of(embedding.SGD(rate), tables)
    spec = spec._replace(pipeline_execution_with_tensor_core=pipelined)
    got = train(spec, tmp_path, steps=3)
    moved = {name: START[1] - got[name][1] for name in tables}
    # a and b: (1 + 2 + 3) / 8, c and h: 3 * 0.5, d: 0, e and g: 3 * 0.25, f: 3 * 0.75 * 0.5.
    amounts = [0.75, 0.75, 1.5, 0.0, 0.75, 1.125, 0.75, 1.5]
    for name, amount in zip("abcdefgh", amounts, strict=True):
        np.testing.assert_allclose(moved[name], [amount, amount], rtol=1e-6, err_msg=name)
    assert len(calls) == 1


def test_rates_are_read_before_the_step_is_incremented(tmp_path):
    """A slow rate, with a while loop of 20000 turns, still reads the step before its increment."""

    def rate():
        turns = tf.while_loop(
            lambda i: i < 20000, lambda i: (i + 1,), [tf.constant(0)], parallel_iterations=1
        )
        with tf.control_dependencies(turns):
            step = tf.compat.v1.train.get_global_step().read_value()
        return tf.cast(step + 1, tf.float32) / 8

    got = train(spec_of(embedding.SGD(rate)), tmp_path, steps=2)
    np.testing.assert_allclose(got["t"][1], row_1_minus(0.375, 0.375))


def test_a_rate_may_depend_on_what_model_fn_made(tmp_path):
    made = {}

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["t"])
        made["loss"] = loss
        return harness.minimized(mode, loss)

    spec = spec_of(embedding.SGD(lambda: made["loss"]))
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=1)
    estimator.train(harness.input_fn_of([({"t": np.array([1])}, np.zeros(1))]), steps=1)
    np.testing.assert_allclose(harness.saved(tmp_path, 1)["t"][1], row_1_minus(0.75, 0.75))


@pytest.mark.parametrize(
    "device", [None, pytest.param("host", marks=pytest.mark.slow)], ids=["cpu", "emulated"]
)
def test_slot_variable_creation_fn_creates_the_slots(tmp_path, device):
    called = []

    def create(table, slot_names, slot_initializers):
        called.append((table.shape.as_list(), slot_names))
        assert isinstance(slot_initializers, list)
        return create_slots(table, slot_names, slot_initializers)

    adam = embedding.Adam(0.5, 0.5, 0.75, slot_variable_creation_fn=create)
    tables = {
        "t": {},
        "u": {"optimization_parameters": adam},
        "v": {"optimization_parameters": embedding.Adagrad(0.5, 3.0)},
    }
    parameters = embedding.Adagrad(0.5, 3.0, slot_variable_creation_fn=create)
    spec = spec_of(parameters, tables)
    got = train(spec, tmp_path, 1, device=device)
    # Prediction creates no slots.
    ids = harness.input_fn_of([(dict.fromkeys(tables, np.array([1])), {})])
    (prediction,) = make(spec, tmp_path, device=device).predict(ids)
    np.testing.assert_array_equal(prediction["t"], got["t"][1])
    assert called == [([4, 2], ["accumulators"]), ([4, 2], ["momenta", "velocities"])]
    part = "/part_0" if device else ""
    of_t, of_u = f"program/t{part}/of_", f"program/u{part}/of_"
    slots = {of_t + "accumulators", of_u + "momenta", of_u + "velocities", "v/Adagrad"}
    assert set(got) == {"global_step", *tables, *slots}
    accumulators = np.full([4, 2], 3.0)
    accumulators[1] = 4.0
    np.testing.assert_array_equal(got[of_t + "accumulators"], accumulators)
    np.testing.assert_array_equal(got["v/Adagrad"], accumulators)
    np.testing.assert_allclose(got["t"][1], row_1_minus(0.25, 0.25))
    np.testing.assert_allclose(got["v"][1], row_1_minus(0.25, 0.25))
    np.testing.assert_array_equal(got[of_u + "momenta"][:3, 0], [0, 0.5, 0])
    np.testing.assert_array_equal(got[of_u + "velocities"][:3, 0], [0, 0.25, 0])
    np.testing.assert_allclose(got["u"][1], row_1_minus(0.5, 0.5), rtol=1e-6)


def test_slots_may_be_plain_variables(tmp_path):
    def create(table, slot_names, slot_initializers):
        (name,), (initializer,) = slot_names, slot_initializers
        return {
            name: tf.Variable(lambda: initializer(shape=table.shape, dtype=tf.float32), name="mine")
        }

    spec = spec_of(embedding.Adagrad(0.5, 3.0, slot_variable_creation_fn=create))
    got = train(spec, tmp_path, steps=1)
    assert set(got) == {"global_step", "t", "mine"}
    np.testing.assert_array_equal(got["mine"][:2, 0], [3.0, 4.0])
    np.testing.assert_allclose(got["t"][1], row_1_minus(0.25, 0.25))


OWNER = "Table 't': slot_variable_creation_fn of Adagrad must return "


KEYS = "a dict of variables with the keys ['accumulators']; got "
SLOT = (
    "a resource variable (use_resource=True) of the table's shape (4, 2) and dtype float32 for "
    "slot 'accumulators'; got "
)


def variable(shape, dtype=tf.float32, resource=True):
    return tf.compat.v1.get_variable("x", shape, dtype, use_resource=resource)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: {"m": 3}, f"{KEYS}the keys ['m']."),
        (lambda: None, f"{KEYS}None."),
        (lambda: {"accumulators": 3}, f"{SLOT}3."),
        *(
            (
                lambda arguments=arguments: {"accumulators": variable(*arguments)},
                f"{SLOT}<tf.Variable 'x:0' shape={shown}>.",
            )
            for arguments, shown in (
                (([4, 2], tf.float32, False), "(4, 2) dtype=float32_ref"),
                (([4, 3],), "(4, 3) dtype=float32"),
                (([4, 2], tf.float64), "(4, 2) dtype=float64"),
            )
        ),
    ],
    ids=["keys", "none", "number", "ref", "shape", "dtype"],
)
def test_bad_slots_are_refused(tmp_path, made, message):
    spec = spec_of(embedding.Adagrad(0.5, slot_variable_creation_fn=lambda *_: made()))
    assert refusal(ValueError, train, spec, tmp_path, steps=1) == OWNER + message


def test_a_spec_takes_tensorflows_objects():
    own = {"optimization_parameters": ORIGINALS.SGD(constant_rate, clipvalue=(None, 0.5))}
    spec = spec_of(ORIGINALS.Adagrad(0.5, 3.0), {"t": own})
    assert spec.optimization_parameters == embedding.Adagrad(0.5, 3.0)
    assert spec.table_to_config_dict["t"].optimization_parameters == embedding.SGD(
        constant_rate, clipvalue=(None, 0.5)
    )
