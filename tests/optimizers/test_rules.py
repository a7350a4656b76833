"""The update rules equal golden values and TensorFlow's own kernels, and stay finite.

The golden values come from three steps of a small batch for every optimizer: see `golden.json`. The
batch has repeated ids, weights, empty samples and one row with a gradient of exactly 0. `f64` was
computed in float64, and `f32` in float32 as on the hardware.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable

import harness
import numpy as np
import pytest
import reference
import tensorflow as tf
from descriptors import GOLDEN_CLASSES, OPTIMIZERS, RULES, TF2_GOLDEN_CLASSES
from golden_training import GOLDEN, parameters_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import estimator_emb as ee
from estimator_emb import embedding, optimizers
from estimator_emb.optimizers import NUMPY, TENSORFLOW, step

STEPS = ("step1", "step2", "step3")


def cases(more_than_one_core):
    for case in GOLDEN["cases"]:
        if more_than_one_core or case["hyper"].get("num_shards", 1) == 1:
            yield pytest.param(case, id=case["name"])


def rates(hyper):
    rate = hyper["learning_rate"]
    return rate if isinstance(rate, list) else [rate] * len(STEPS)


def batch(number):
    one = GOLDEN["steps"][number]
    return one["ids"], one["weights"], one["act_grad"]


def assert_state(actual, case, precision, name, tolerance):
    """Asserts that `actual`, a tuple (w, *slots), equals the golden values in the same order."""
    expected = case[precision][name]
    harness.assert_same(dict(zip(expected, actual, strict=True)), expected, tolerance, tolerance)


LIBRARIES = ("numpy", "complete", "tensorflow", "v1 graph")
"""The array libraries. "complete" is NumPy, with the limits and the decay that are not set."""


def stepper(library, parameters):
    """Returns `step` as a function of arrays: rate, gradient, weights and slots."""
    if library == "v1 graph":
        # In a v1 graph, `==` compares tensors as objects, and there are other traps.
        with tf.Graph().as_default():
            count = 3 + len(parameters.slots)
            fed = tuple(tf.compat.v1.placeholder(tf.float32) for _ in range(count))
            after = step(parameters, TENSORFLOW, *fed[:3], fed[3:])
            return tf.compat.v1.Session().make_callable(after, fed)

    def stepped(*arrays):
        if library in ("numpy", "complete"):
            complete = library == "complete"
            return step(parameters, NUMPY, *arrays[:3], arrays[3:], complete=complete)
        tensors = tuple(map(tf.constant, arrays))
        return [one.numpy() for one in step(parameters, TENSORFLOW, *tensors[:3], tensors[3:])]

    return stepped


def assert_three_steps_equal_golden(case, parameters, library):
    assert [slot.name for slot in parameters.slots] == list(case["f32"]["step1"])[1:]
    w = np.array(case["table"], np.float32)
    state = [w, *(np.full_like(w, parameters.initial_value(slot)) for slot in parameters.slots)]
    stepped = stepper(library, parameters)
    for number, name in enumerate(STEPS):
        summed = dict(reference.updates(*batch(number), case["hyper"]["combiner"]))
        # Only non-lazy Adam updates rows that are not in the batch, with gradient 0.
        rows = sorted(range(len(w)) if parameters.updates_untouched_rows else summed)
        zero = np.zeros(len(GOLDEN["table"][0]))
        g = np.array([summed.get(row, zero) for row in rows], np.float32)[:, : w.shape[1]]
        lr = np.float32(rates(case["hyper"])[number])
        after = stepped(lr, g, *(array[rows] for array in state))
        for array, new in zip(state, after, strict=True):
            assert new.dtype == np.float32
            array[rows] = new
        assert_state(state, case, "f32", name, 1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", cases(more_than_one_core=False))
def test_rule_and_step_equal_golden(case, library):
    parameters = parameters_of(case)[0]
    assert_three_steps_equal_golden(case, parameters, library)
    if library == "numpy" and case["optimizer"] in TF2_GOLDEN_CLASSES:
        theirs = embedding.to_tensorflow(harness.table_spec(4, 2, parameters)).features["x"].table
        translated = optimizers.as_parameters(theirs.optimizer, "TableConfig")
        assert type(translated) is TF2_GOLDEN_CLASSES[case["optimizer"]]
        assert_three_steps_equal_golden(case, translated, library)


@pytest.mark.parametrize("case", cases(more_than_one_core=True))
def test_reference_equals_golden(case):
    """`reference` has the formulas, in NumPy float64, by which other suites test the package."""
    rule = RULES[GOLDEN_CLASSES[case["optimizer"]]]
    hyper = dict(case["hyper"])
    combiner = hyper.pop("combiner")
    cores = hyper.pop("num_shards", 1)
    lazy = hyper.pop("lazy_adam", True)
    for name in ("learning_rate", "use_gradient_accumulation", "weight_exponent"):
        hyper.pop(name, None)  # No argument of a formula.
    w = np.array(case["table"])
    slots = [np.zeros_like(w) for _ in list(case["f64"]["step1"])[1:]]
    for name in ("initial_accumulator", "initial_accumulator_value", "initial_ms"):
        if name in hyper:
            slots[0][:] = hyper.pop(name)
    state = [w, *slots]
    for number, name in enumerate(STEPS):
        todo = reference.updates(*batch(number), combiner, cores)
        if not lazy:
            named = {row for row, _ in todo}
            todo += [(row, np.zeros(w.shape[1])) for row in range(len(w)) if row not in named]
        for row, g in todo:
            w_row, *slot_rows = (array[row] for array in state)
            lr = rates(case["hyper"])[number]
            new = reference.step(rule, lr, g[: w.shape[1]], w_row, slot_rows, **hyper)
            for array, values in zip(state, new, strict=True):
                array[row] = values
        assert_state(state, case, "f64", name, 1e-12)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_reference_activations_and_row_gradients_equal_golden(combiner):
    golden = GOLDEN["pipeline"][combiner]
    for number in range(len(STEPS)):
        ids, weights, act_grad = batch(number)
        activations = reference.combine(GOLDEN["table"], ids, weights, combiner)
        np.testing.assert_allclose(
            activations, golden["activations_initial_table"][number], rtol=1e-12, atol=1e-12
        )
        rows = dict(reference.updates(ids, weights, act_grad, combiner))
        got = {str(row): g for row, g in rows.items()}
        harness.assert_same(got, golden["row_gradients"][number], 1e-12, 1e-12)


SLOTS, GRADIENTS, WEIGHTS = (
    np.float32(one).reshape(-1, 1)
    for one in np.meshgrid((0, 1e-45, 1e-40, 0.1), (0, 1e-20, -1e-20, 1, 1e20, -1e20), (0, -2))
)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: one.name)
def test_rules_give_finite_results_for_extreme_values(optimizer, library):
    """Results are finite if float64 arithmetic gives values that float32 can hold.

    Slots of 1e-45 and 1e-40 are denormal: the threads of a session take them as zero.
    """
    parameters = optimizer.parameters
    slots = [SLOTS] * len(parameters.slots)
    lr = np.float32(parameters.learning_rate)
    with np.errstate(all="ignore"):
        expected = optimizer.step(lr, GRADIENTS, WEIGHTS, slots)  # In float64.
        actual = stepper(library, parameters)(lr, GRADIENTS, WEIGHTS, *slots)
    held = np.all([np.abs(array) <= np.finfo(np.float32).max for array in expected], axis=0)
    assert held.sum() >= 8  # Of 4 * 6 * 2 combinations. So some results are checked.
    for array in actual:
        wrong = held & ~np.isfinite(array)
        assert not wrong.any(), (SLOTS[wrong], GRADIENTS[wrong], WEIGHTS[wrong], array[wrong])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("multiply", [False, True])
def test_ftrl_without_history_gives_zero(library, multiply):
    """With zero accumulator and gradient, and without beta and l2, 0 / 0 gives a weight of 0."""
    parameters = optimizers.FtrlParameters(
        0.1, initial_accumulator_value=0.0, multiply_linear_by_learning_rate=multiply
    )
    zeros = np.zeros((2, 2), np.float32)
    w = np.ones((2, 2), np.float32)
    for array in stepper(library, parameters)(np.float32(0.1), zeros, w, zeros, zeros):
        np.testing.assert_array_equal(array, zeros)


@pytest.mark.parametrize("library", LIBRARIES)
def test_adagrad_without_history_keeps_the_weights(library):
    """With zero accumulator and gradient, 0 / 0 gives a step of 0."""
    w, zeros = np.array([[1.0, np.inf]], np.float32), np.zeros((1, 2), np.float32)
    for ours in (optimizers.AdagradParameters, optimizers.ProximalAdagradParameters):
        after = stepper(library, ours(0.1))(np.float32(0.1), zeros, w, zeros)
        np.testing.assert_array_equal(after, (w, zeros))


def test_frequency_estimator_counts_the_threshold_as_an_outlier():
    parameters = optimizers.FrequencyEstimatorParameters(0.25, 50.0, 3.0, 1.0)  # The threshold: 3.
    w = np.full((3, 1), 4.0, np.float32)  # Estimates. Distances from 3 * 4 steps replace them.
    last_hit_step = np.array([[9.0], [8.0], [7.0]], np.float32)  # 11, 12 and 13 steps ago
    lr = np.float32(20.0)  # The rate is the step.
    w, last_hit_step = parameters.update(NUMPY, lr, np.zeros_like(w), w, last_hit_step)
    np.testing.assert_array_equal(w, [[4 * 0.75 + 11 * 0.25], [12.0], [13.0]])
    np.testing.assert_array_equal(last_hit_step, np.full((3, 1), 20.0))


# TensorFlow's kernels in float64, so that only a wrong formula can differ.


def numbers(low, high):
    """Returns floats of float32 precision: rounding a hyper-parameter changes nothing."""
    return st.floats(np.float32(low).item(), np.float32(high).item(), width=32)


def arrays(low, high):
    return hnp.arrays(np.float64, (3, 2), elements=numbers(low, high))


signed_slots = arrays(-3, 3)
accumulators = arrays(0.015625, 10)
decays = numbers(0, 0.9990234375)
epsilons = numbers(1e-4, 1)
strengths = st.one_of(st.just(0.0), numbers(0.0009765625, 2))


def f64(x):
    return tf.constant(x, tf.float64)


DENSE, SPARSE = "ResourceApply", "ResourceSparseApply"


def as_named(lr, **hyper):
    """Returns the arguments of an op that names them as our optimizer does."""
    return {name: value if isinstance(value, bool) else f64(value) for name, value in hyper.items()}


@dataclasses.dataclass
class Kernel:
    """An op of TensorFlow that updates variables by the same rule as our optimizer."""

    parameters: Callable  # Makes our optimizer from rate and hyper-parameters.
    slots: dict  # The op's name of a slot -> its values.
    hyper: dict  # Our hyper-parameter, without the rate -> its values.
    given: Callable = as_named  # Makes the op's arguments, without the rate.
    ops: tuple[str, ...] = (DENSE, SPARSE)  # Prefixes of the op's name.


RMSPROP = {"rho": decays, "momentum": decays, "epsilon": epsilons}
KERNELS = {
    "Adagrad": Kernel(optimizers.AdagradParameters, {"accum": accumulators}, {}, ops=(SPARSE,)),
    "Ftrl": Kernel(
        lambda lr, power, l1, l2, beta, multiply: optimizers.FtrlParameters(
            lr, power, 0.1, l1, l2, multiply_linear_by_learning_rate=multiply, beta=beta
        ),
        {"accum": accumulators, "linear": signed_slots},
        {
            "power": st.sampled_from([-0.5, -0.75, -0.25, 0.0]),
            **dict.fromkeys(("l1", "l2", "beta"), strengths),
            "multiply": st.booleans(),
        },
        lambda lr, power, l1, l2, beta, multiply: {
            # The kernels have no beta: beta / lr adds to the denominator like 2 * l2.
            **as_named(lr, l1=l1, l2=l2 + beta / (2 * lr), lr_power=power),
            "multiply_linear_by_lr": multiply,
        },
    ),
    "Momentum": Kernel(
        optimizers.MomentumParameters,
        {"accum": signed_slots},
        {"momentum": decays, "use_nesterov": st.booleans()},
    ),
    "RMSProp": Kernel(
        optimizers.RMSPropParameters, {"ms": accumulators, "mom": signed_slots}, RMSPROP
    ),
    "CenteredRMSProp": Kernel(
        optimizers.CenteredRMSPropParameters,
        {"ms": accumulators, "mom": signed_slots, "mg": signed_slots},
        RMSPROP,
    ),
    "Adadelta": Kernel(
        optimizers.AdadeltaParameters,
        {"accum": accumulators, "accum_update": accumulators},
        {"rho": decays, "epsilon": epsilons},
    ),
    "ProximalAdagrad": Kernel(
        lambda lr, l1, l2: optimizers.ProximalAdagradParameters(lr, 0.1, l1, l2),
        {"accum": accumulators},
        {"l1": strengths, "l2": strengths},
    ),
    "Adam": Kernel(
        lambda lr, **hyper: optimizers.AdamParameters(
            lr, **hyper, lazy_adam=False, sum_inside_sqrt=False
        ),
        {"m": signed_slots, "v": accumulators},
        # The kernel computes v + (g * g - v) * (1 - beta2). With a beta2 of 0, no digits are left.
        {"beta1": decays, "beta2": numbers(0.0625, 0.9990234375), "epsilon": epsilons},
        # Powers of 0 turn off bias correction, as on the hardware.
        lambda lr, **hyper: as_named(lr, beta1_power=0.0, beta2_power=0.0, **hyper),
        (DENSE,),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=10)
@given(data=st.data(), lr=numbers(0.0009765625, 1), g=arrays(-10, 10), w=arrays(-5, 5))
def test_rule_equals_kernel(name, data, lr, g, w):
    kernel = KERNELS[name]
    slots = {slot: data.draw(values, slot) for slot, values in kernel.slots.items()}
    if "mg" in slots:  # Real gradients give no less than the mean's square.
        slots["ms"] = slots["ms"] + slots["mg"] ** 2
    hyper = {one: data.draw(values, one) for one, values in kernel.hyper.items()}
    op = data.draw(st.sampled_from(kernel.ops))
    variables = {"var": tf.Variable(w)} | {slot: tf.Variable(a) for slot, a in slots.items()}
    rows = np.array([2, 0] if op == SPARSE else range(len(w)))
    getattr(tf.raw_ops, op + name)(
        **{variable: value.handle for variable, value in variables.items()},
        lr=f64(lr),
        grad=g[rows],
        **({"indices": tf.constant(rows)} if op == SPARSE else {}),
        **kernel.given(lr, **hyper),
    )
    before = [w, *slots.values()]
    updated = kernel.parameters(lr, **hyper).update(
        TENSORFLOW, f64(lr), *(f64(array[rows]) for array in (g, *before))
    )
    for variable, array, new in zip(variables.values(), before, updated, strict=True):
        assert new.dtype == tf.float64
        expected = array.copy()
        expected[rows] = new.numpy()
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-9, atol=1e-9)


def written():
    """Returns the package's optimizer classes."""
    names = [one.name for one in pkgutil.iter_modules(optimizers.__path__) if one.name[0] != "_"]
    modules = [importlib.import_module(f"{optimizers.__name__}.{name}") for name in names]
    return {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


def test_every_class_has_a_descriptor():
    """Suites of all optimizers iterate over the descriptors OPTIMIZERS, and would miss a class."""
    classes = {*optimizers.PARAMETERS, *optimizers.TF2_OPTIMIZERS}
    assert {case["optimizer"] for case in GOLDEN["cases"]} == set(GOLDEN_CLASSES)
    assert {*GOLDEN_CLASSES.values(), *TF2_GOLDEN_CLASSES.values()} == classes
    assert classes == written()
    assert {type(one.parameters) for one in OPTIMIZERS} == classes
    assert set(RULES) == classes
    for one in optimizers.PARAMETERS:
        assert getattr(ee, one.__name__) is getattr(optimizers, one.__name__) is one
        assert one.__name__ in ee.__all__
    assert {one.__name__ for one in optimizers.TF2_OPTIMIZERS} < {*embedding.__all__}


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: one.name)
def test_slots_start_and_defaults_are_as_described(optimizer):
    """A descriptor has the initial values of slots and all arguments, written by hand."""
    parameters = optimizer.parameters
    assert tuple(map(parameters.initial_value, parameters.slots)) == optimizer.start
    ours = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
    for name, value in optimizer.hyper.items():
        assert getattr(parameters, ours.get(name, name)) == value
