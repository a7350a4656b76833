"""The optimizer classes as values: signatures, comparison, copies, validation, translation."""

import copy
import importlib
import math
import pickle
import re

import harness
import numpy as np
import pytest
import tensorflow as tf
from optimizer_values import (
    arguments_of,
    by_name,
    changed_everywhere,
    example_arguments,
    other_value,
)

from estimator_emb import optimizers
from estimator_emb.optimizers import PARAMETERS, TF2_OPTIMIZERS, as_parameters

WITHOUT_ORIGINAL = {"AdadeltaParameters", "CenteredRMSPropParameters"}
"""Optimizers of the hardware without a class in TensorFlow."""

ADDED_ARGUMENTS = {"RMSPropParameters": ["initial_ms"]}
"""Keyword-only arguments that only our classes have."""

of_both_vocabularies = pytest.mark.parametrize("ours", [*PARAMETERS, *TF2_OPTIMIZERS], ids=by_name)
with_common_arguments = pytest.mark.parametrize(
    "ours",
    [ours for ours in PARAMETERS if ours is not optimizers.FrequencyEstimatorParameters],
    ids=by_name,
)


@of_both_vocabularies
def test_repr_is_the_call(ours):
    for arguments in (example_arguments(ours), changed_everywhere(ours)):
        value = ours(**arguments)
        if "<function" not in repr(value):  # A function cannot be evaluated.
            assert eval(repr(value), {by_name(ours): ours}) == value
        listed = ", ".join(f"{name}={argument!r}" for name, argument in arguments.items())
        assert repr(value) == f"{by_name(ours)}({listed})"


@of_both_vocabularies
def test_equality_and_hash_see_every_argument(ours):
    arguments = example_arguments(ours)
    value = ours(**arguments)
    assert value == ours(**arguments)
    assert hash(value) == hash(ours(**arguments))
    different = {value}
    for name, argument in arguments.items():
        changed = ours(**{**arguments, name: other_value(name, argument)})
        assert changed != value, name
        assert getattr(changed, name) == other_value(name, argument)
        different.add(changed)
    assert len(different) == 1 + len(arguments)
    assert value != type("Other", (ours,), {})(**arguments)


@of_both_vocabularies
def test_copies_of_an_optimizer_are_equal(ours):
    value = ours(**changed_everywhere(ours))
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other is not value
        assert other == value
        assert hash(other) == hash(value)
        assert vars(other) == vars(value)
    assert as_parameters(value, "TableConfig") is value


SLOTS = {
    "StochasticGradientDescentParameters": {},
    "AdagradParameters": {"accumulators": "/Adagrad"},
    "AdagradMomentumParameters": {
        "accumulators": "/AdagradMomentum/Accumulator",
        "momenta": "/AdagradMomentum/Momentum",
    },
    "AdamParameters": {"momenta": "/Adam/m", "velocities": "/Adam/v"},
    "FtrlParameters": {"accumulators": "/Ftrl", "linears": "/Ftrl_1"},
    "MomentumParameters": {"momenta": "/Momentum"},
    "RMSPropParameters": {"ms": "/RMSProp/ms", "mom": "/RMSProp/mom"},
    "CenteredRMSPropParameters": {slot: f"/CenteredRMSProp/{slot}" for slot in ("ms", "mom", "mg")},
    "AdadeltaParameters": {slot: f"/Adadelta/{slot}" for slot in ("accumulators", "updates")},
    "ProximalAdagradParameters": {"accumulators": "/ProximalAdagrad"},
    "ProximalYogiParameters": {"v": "/ProximalYogi", "m": "/ProximalYogi_1"},
    "FrequencyEstimatorParameters": {"last_hit_step": "/FrequencyEstimator"},
}
"""Class -> slot -> the end of the slot's name in checkpoints."""


@pytest.mark.parametrize("ours", PARAMETERS, ids=by_name)
def test_slots_have_legacy_checkpoint_names(ours):
    slots = [(slot.name, slot.suffix) for slot in ours(**example_arguments(ours)).slots]
    assert slots == [*SLOTS[by_name(ours)].items()]


def test_frequency_estimator_fixes_the_common_arguments():
    """It trains nothing. Its table has one column: the steps between two lookups of a row."""
    columns = {by_name(ours): ours.required_dimension for ours in PARAMETERS}
    assert columns == {**dict.fromkeys(columns), "FrequencyEstimatorParameters": 1}
    value = optimizers.FrequencyEstimatorParameters(0.1, 50.0, 3.0, 1.0)
    assert list(value.arguments()) == ["tau", "max_delta", "outlier_threshold", "weight_exponent"]
    assert value.learning_rate == 1.0
    assert value.use_gradient_accumulation is True
    limits_and_decay = [*arguments_of(optimizers.OptimizationParameters)][2:]
    assert {getattr(value, name) for name in limits_and_decay} == {None}


def test_only_non_lazy_adam_updates_untouched_rows():
    for ours in PARAMETERS:
        value = ours(**example_arguments(ours))
        assert value.use_gradient_accumulation is True and value.updates_untouched_rows is False
    assert optimizers.AdamParameters(0.1, lazy_adam=False).updates_untouched_rows is True


def test_other_defaults_are_those_of_tensorflow_2_15():
    """Tests of the formulas give these arguments, so they do not see the defaults."""
    assert optimizers.AdagradParameters(0.5).initial_accumulator == 0.1
    assert optimizers.ProximalAdagradParameters(0.5).initial_accumulator == 0.1
    yogi = optimizers.ProximalYogiParameters()
    assert (yogi.learning_rate, yogi.l1_regularization_strength) == (0.01, 0.0)
    assert optimizers.FtrlParameters(0.5).allow_zero_accumulator is False
    assert optimizers.FtrlParameters(0.5).initial_linear_value == 0.0
    assert optimizers.RMSPropParameters(0.5, 0.5, 0.5, 0.5).initial_ms == 0.0


POSITIVE = ("positive", [0, -0.5, -1e-10])
NON_NEGATIVE = ("at least 0", [-0.5])
BETA = ("in [0, 1)", [-0.5, 1, 1.5])
BETAS = {"beta1": BETA, "beta2": BETA, "epsilon": POSITIVE}
STRENGTHS = {f"{one}_regularization_strength": NON_NEGATIVE for one in ("l1", "l2")}

RANGES = {
    "AdagradParameters": {"initial_accumulator": POSITIVE},
    "AdagradMomentumParameters": {"exponent": POSITIVE, "epsilon": POSITIVE},
    "AdamParameters": BETAS,
    "FtrlParameters": {
        "learning_rate_power": ("at most 0", [0.5]),
        "initial_accumulator_value": NON_NEGATIVE,
        **STRENGTHS,
    },
    "ProximalAdagradParameters": {"initial_accumulator": POSITIVE, **STRENGTHS},
    "ProximalYogiParameters": {**BETAS, **STRENGTHS},
    "Adagrad": {"initial_accumulator_value": POSITIVE},
    "AdagradMomentum": {"exponent": POSITIVE, "epsilon": POSITIVE},
    "Adam": {"beta_1": BETA, "beta_2": BETA, "epsilon": POSITIVE},
    "FTRL": {
        "learning_rate_power": ("at most 0", [0.5]),
        "initial_accumulator_value": POSITIVE,
        **STRENGTHS,
    },
}
"""Class -> argument -> its allowed range, and values outside that range."""

NO_NUMBERS = {
    *("clipvalue", "slot_variable_creation_fn"),
    "multiply_weight_decay_factor_by_learning_rate",
}
"""Arguments that are no numbers, besides those that are True or False by default."""


def numeric_arguments():
    for ours in (*PARAMETERS, *TF2_OPTIMIZERS):
        for name, value in example_arguments(ours).items():
            # In the TF2 vocabulary, the learning rate may be a function.
            of_tf2 = name == "learning_rate" and ours in TF2_OPTIMIZERS
            if name not in NO_NUMBERS and not isinstance(value, bool) and not of_tf2:
                yield pytest.param(ours, name, id=f"{by_name(ours)}-{name}")


def assert_refused(error, message, ours, **arguments):
    got = harness.refusal(error, ours, **{**example_arguments(ours), **arguments})
    assert got == f"{by_name(ours)}: {message}"


@pytest.mark.parametrize(("ours", "name"), numeric_arguments())
def test_numeric_arguments_must_be_finite_numbers(ours, name):
    for wrong in ("0.1", [0.1], True, 1j):
        message = f"{name} must be a number; got {wrong!r}."
        assert_refused(TypeError, message, ours, **{name: wrong})
    assert_refused(ValueError, f"{name} must not be NaN.", ours, **{name: float("nan")})
    # As a limit, this infinity means no limit.
    no_limit = {"min": -math.inf, "max": math.inf}.get(name[-3:]) if "clip" in name else None
    for infinite in (math.inf, -math.inf, 1e39, -(10**400)):  # float32 ends at 3.4e38.
        sign = math.inf if infinite > 0 else -math.inf
        if sign == no_limit:
            ours(**{**example_arguments(ours), name: infinite})
            continue
        shown = infinite if isinstance(infinite, float) else sign  # Not 401 digits.
        message = f"{name} must be finite in float32; got {shown!r}."
        assert_refused(ValueError, message, ours, **{name: infinite})
    # NumPy's numbers are accepted.
    value = other_value(name, example_arguments(ours)[name])
    made = ours(**{**example_arguments(ours), name: np.float32(value)})
    assert getattr(made, name) == np.float32(value)
    assert made == ours(**{**example_arguments(ours), name: float(np.float32(value))})


@with_common_arguments
def test_a_learning_rate_is_not_negative(ours):
    for rate in (-0.1, -1, np.float32(-0.5)):
        message = f"learning_rate must not be negative; got {rate!r}."
        assert_refused(ValueError, message, ours, learning_rate=rate)
    ours(**{**example_arguments(ours), "learning_rate": 0.0})


@pytest.mark.parametrize(
    ("class_name", "name", "wrong", "allowed"),
    [
        (class_name, name, wrong, allowed)
        for class_name, names in RANGES.items()
        for name, (allowed, values) in names.items()
        for wrong in values
    ],
)
def test_values_outside_their_range_are_refused(class_name, name, wrong, allowed):
    (ours,) = (one for one in (*PARAMETERS, *TF2_OPTIMIZERS) if by_name(one) == class_name)
    assert_refused(ValueError, f"{name} must be {allowed}; got {wrong}.", ours, **{name: wrong})


@pytest.mark.parametrize(
    ("ours", "arguments"),
    [
        (optimizers.AdamParameters, {"beta1": 0, "beta2": 0}),
        (optimizers.ProximalYogiParameters, {"beta1": 0, "beta2": 0}),
        (optimizers.ProximalYogiParameters, {"initial_accumulator_value": 0}),
        (optimizers.FtrlParameters, {"learning_rate_power": 0, "initial_accumulator_value": 0}),
        (optimizers.RMSPropParameters, {"rho": 0, "momentum": 0, "epsilon": 0}),
    ],
)
def test_limits_of_ranges_are_accepted(ours, arguments):
    made = ours(**{**example_arguments(ours), "learning_rate": 0, **arguments})
    assert made.arguments().items() >= {"learning_rate": 0, **arguments}.items()


NEEDS_SUMS = "clip_gradient_min and clip_gradient_max need use_gradient_accumulation=True; got "


@with_common_arguments
def test_a_lower_limit_must_not_exceed_the_upper_limit(ours):
    for kind in ("weight", "gradient"):
        low, high = f"clip_{kind}_min", f"clip_{kind}_max"
        message = f"{low} must not exceed {high}; got 2.0 and 1.0."
        assert_refused(ValueError, message, ours, **{low: 2.0, high: 1.0})
        ours(**{**example_arguments(ours), low: 1.0, high: 1.0})


@with_common_arguments
def test_limits_of_gradients_need_accumulation(ours):
    """The limits are those of a row's gradient summed over the batch."""
    for low, high in ((-1.0, None), (None, 1.0), (-1.0, 1.0)):
        wrong = {"clip_gradient_min": low, "clip_gradient_max": high}
        message = f"{NEEDS_SUMS}{low} and {high} with use_gradient_accumulation=False."
        assert_refused(ValueError, message, ours, use_gradient_accumulation=False, **wrong)


@pytest.mark.parametrize("ours", [optimizers.AdamParameters, optimizers.Adam], ids=by_name)
def test_non_lazy_adam_needs_accumulation(ours):
    """It updates every row once in a step, not once for each gradient."""
    message = "lazy_adam=False needs use_gradient_accumulation=True; got False."
    assert_refused(ValueError, message, ours, lazy_adam=False, use_gradient_accumulation=False)


def originals():
    """Yields each of our classes that this TensorFlow has too, and TensorFlow's."""
    for ours in TF2_OPTIMIZERS:
        yield ours, getattr(tf.tpu.experimental.embedding, by_name(ours))
    if harness.IS_2_15:
        legacy = importlib.import_module("tensorflow.python.tpu.tpu_embedding")
        names = {name for name in vars(legacy) if re.fullmatch(r"[A-Z]\w+Parameters", name)}
        assert names | WITHOUT_ORIGINAL == {by_name(ours) for ours in PARAMETERS}
        for ours in PARAMETERS:
            if by_name(ours) in names:
                yield ours, getattr(legacy, by_name(ours))


with_original = pytest.mark.parametrize("ours, original", [*originals()], ids=by_name)


@with_original
def test_signature_equals_the_original(ours, original):
    def described(arguments):
        return [(a.name, a.default, a.kind) for a in arguments]

    added = ADDED_ARGUMENTS.get(by_name(ours), [])
    mine = arguments_of(ours).values()
    if ours in PARAMETERS:
        assert [a.name for a in mine if a.kind is a.KEYWORD_ONLY] == added
    theirs = arguments_of(original).values()
    assert described(a for a in mine if a.name not in added) == described(theirs)


@with_original
def test_as_parameters_keeps_every_field(ours, original):
    examples = [example_arguments(ours), changed_everywhere(ours)]
    if ours in TF2_OPTIMIZERS:
        examples.append({"learning_rate": lambda: 0.25, "clipvalue": (0.0, 0.0)})
    for arguments in examples:
        for added in ADDED_ARGUMENTS.get(by_name(ours), []):
            del arguments[added]
        theirs = original(**arguments)
        translated = as_parameters(theirs, "TableConfig")
        assert type(translated) is ours
        assert translated == ours(**arguments)
        for name in vars(theirs):
            assert getattr(translated, name) == getattr(theirs, name), name
        own = type("Own", (original,), {"__module__": "program"})  # A subclass of a program.
        assert as_parameters(own(**arguments), "TableConfig") == translated


def test_as_parameters_refuses_other_objects():
    class AdamParameters:  # The right name from the wrong module.
        def __repr__(self):
            return "not ours"

    names = ", ".join(sorted(map(by_name, (*PARAMETERS, *TF2_OPTIMIZERS))))
    for wrong in (AdamParameters(), optimizers.OptimizationParameters(0.1)):
        said = harness.refusal(ValueError, as_parameters, wrong, "TableConfig")
        begin = f"TableConfig: optimization_parameters must be one of {names}; "
        assert said == f"{begin}got {wrong!r}."
