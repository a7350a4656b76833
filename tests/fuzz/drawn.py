"""Random trainings: tables, optimizers, forms of ids, gradients that may be infinite or NaN.

Numbers are small binary fractions, and optimizers are kept away from discontinuities of their
rules. So float32 and float64 results differ only by rounding.
"""

import dataclasses
from typing import Any

import descriptors
import harness
import numpy as np
import reference
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import optimizers

STEPS, SAMPLES, LENGTH = 3, 8, 2
"""Steps of a training, samples of a batch, positions of a sequence."""

FORMS = ("one", "dense", "sparse", "unsorted", "ragged", "weighted", "sequence", "padded sequence")
SHARES = (0, 0.01, 0.05)
"""Possible shares of infinite or NaN numbers in a training."""
CLASSES = {
    rule.__name__: ours for ours, rule in descriptors.RULES.items() if ours in optimizers.PARAMETERS
}
"""Name of an optimizer -> its class."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of a table, with its data for each step."""

    form: str  # One of FORMS.
    dtype: Any
    ids: list[list[list[int]]]
    weights: list[list[list[float]]]
    gradients: list[np.ndarray]  # [samples, dimension] or [samples, LENGTH, dimension].
    width: int = 2  # Fewest columns of dense ids.

    @property
    def sequence(self) -> bool:
        return "sequence" in self.form

    def given(self, step: int, rng: np.random.Generator) -> Any:
        """Returns the ids of a step as input_fn gives them."""
        ids = self.ids[step]
        if self.form == "one":
            return np.array([one for (one,) in ids], self.dtype)
        if self.form == "ragged":
            make = tf.compat.v1.ragged.constant_value
            return make(ids, self.dtype, ragged_rank=1, row_splits_dtype=np.int64)
        if self.form in ("dense", "padded sequence"):
            width = max(self.width, *(len(one) for one in ids))
            return harness.matrix(ids, width, self.dtype)
        value = harness.sparse(ids, self.dtype)
        if self.form != "unsorted":
            return value
        order = rng.permutation(len(value.values))
        return value._replace(indices=value.indices[order], values=value.values[order])


@dataclasses.dataclass(frozen=True)
class Table:
    """A table."""

    optimizer: descriptors.Optimizer
    rates: list[float]  # Of each step.
    rate_from: str  # "optimizer", "table" or "function".
    start: np.ndarray
    combiner: str
    features: dict[str, Feature]


@dataclasses.dataclass(frozen=True)
class Training:
    """A training."""

    seed: int
    native: bool
    cores: int
    shards: int
    pipelined: bool  # Lookups are a step ahead.
    summarized: bool  # The figures of tables are computed.
    optimized: bool  # TensorFlow's graph optimizers run.
    limit: float | None
    multipliers: list[float] | None
    tables: dict[str, Table]

    def spec(self) -> ee.EmbeddingConfigSpec:
        features, tables = {}, {}
        for name, table in self.tables.items():
            for key, feature in table.features.items():
                features[key] = ee.FeatureConfig(
                    name,
                    max_sequence_length=LENGTH if feature.sequence else 0,
                    weight_key=f"{key}_weights" if feature.form == "weighted" else None,
                )
            tables[name] = ee.TableConfig(
                *table.start.shape,
                harness.initializer(table.start),
                table.combiner,
                learning_rate=table.rates[0] if table.rate_from == "table" else None,
                learning_rate_fn=_of_step(table.rates) if table.rate_from == "function" else None,
                optimization_parameters=table.optimizer.parameters,
            )
        return ee.EmbeddingConfigSpec(
            feature_to_config_dict=features,
            table_to_config_dict=tables,
            clipping_limit=self.limit,
            pipeline_execution_with_tensor_core=self.pipelined,
            experimental_gradient_multiplier_fn=(
                None if self.multipliers is None else _of_step(self.multipliers)
            ),
        )

    def batches(self) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """Returns (features, gradients of activations) of each step."""
        rng = np.random.default_rng(self.seed)
        made = []
        for step in range(STEPS):
            features, gradients = {}, {}
            for table in self.tables.values():
                for key, feature in table.features.items():
                    features[key] = feature.given(step, rng)
                    gradients[key] = feature.gradients[step]
                    if feature.form == "weighted":
                        weights = harness.sparse(feature.weights[step], np.float32)
                        features[f"{key}_weights"] = weights
            made.append((features, gradients))
        return made

    def activation(self, table: Table, feature: Feature, step: int, weights: np.ndarray) -> Any:
        """Returns a feature's expected activation, in float64, given its table's weights."""
        ids = feature.ids[step]
        if not feature.sequence:
            return reference.combine(weights, ids, feature.weights[step], table.combiner)
        found = np.zeros([SAMPLES, LENGTH, weights.shape[1]])
        for sample, of_sample in enumerate(ids):
            found[sample, : len(of_sample)] = weights[of_sample[:LENGTH]]
        return found

    def updated(
        self, table: Table, step: int, state: list[np.ndarray]
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns a table's float64 weights and slots after a step, and a mask of known values."""
        parts = []
        for feature in table.features.values():
            given = feature.ids[step], feature.weights[step], feature.gradients[step]
            if feature.sequence:
                parts.append(reference.of_positions(given[0], given[2]))
            else:
                parts.append(reference.of_samples(*given, table.combiner))
        parameters = table.optimizer.parameters
        cores = 1 if parameters.use_gradient_accumulation else self.cores
        updates = reference.updates_of(parts, cores)
        if parameters.updates_untouched_rows:
            untouched = set(range(len(table.start))) - {row for row, _ in updates}
            updates += [(row, np.zeros(table.start.shape[1])) for row in untouched]
        after = [array.copy() for array in state]
        known = np.ones(state[0].shape, bool)
        for row, g in updates:
            if self.multipliers is not None:
                g = g * self.multipliers[step]
            if self.limit is not None:
                g = np.clip(g, -self.limit, self.limit)
            w, *slots = (array[row] for array in after)
            # After an infinity or NaN, the result depends on the order of a rule's sums.
            known[row] &= np.all([np.isfinite(one) for one in (w, *slots)], axis=0)
            for array, values in zip(
                after, table.optimizer.step(table.rates[step], g, w, slots), strict=True
            ):
                array[row] = values
        return after, known


def _of_step(values):
    return lambda step: tf.gather(tf.constant(values, tf.float32), step % len(values))


def training(
    seed: int,
    native: bool,
    classes: tuple[str, ...] = tuple(CLASSES),
    cores: int | None = None,
    wrong: float | None = None,
) -> Training:
    """Draws a training with optimizers from `classes`.

    If None, `cores` and `wrong` (a value of SHARES) are drawn.
    """
    rng = np.random.default_rng(seed)
    drawn = int(rng.choice([1, 1, 2, 4, 8])), int(rng.choice([1, 1, 3])), rng.choice(SHARES)
    cores, shards = drawn[0] if cores is None else cores, drawn[1]
    wrong = float(drawn[2]) if wrong is None else wrong
    limit = _one_of(rng, None, 1.0)
    # Native kernels do not support updates per core for tables in shards.
    may_take_turns = cores > 1 and not (native and shards > 1)
    tables = {}
    for number in range(int(rng.integers(1, 4))):
        optimizer = _optimizer(rng, str(rng.choice(classes)), may_take_turns)
        tables[f"t{number}"] = _table(rng, f"x{number}", optimizer, wrong)
    return Training(
        seed,
        native,
        cores,
        shards,
        bool(rng.random() < 0.3),
        bool(rng.random() < 0.3),
        bool(rng.random() < 0.3),
        limit,
        _one_of(rng, None, [0.5, -2.0, 1.0]),
        tables,
    )


def _table(rng, prefix, optimizer, wrong):
    rows = int(rng.choice([3, 5, 12, 40]))
    dimension = optimizer.parameters.required_dimension or int(rng.choice([1, 3, 8, 16]))
    start = rng.integers(-16, 17, [rows, dimension]) / 8
    if rng.random() < 0.2:
        start = _made_wrong(rng, start, wrong)
    rate_from = str(rng.choice(["optimizer", "table", "function"]))
    rates = [getattr(optimizer.parameters, "learning_rate", 1.0)] * STEPS
    if optimizer.name == "frequency_estimator":
        rate_from, rates = "function", [3.0, 4.0, 60.0]
    elif rate_from == "table":
        rates = [0.125] * STEPS
    elif rate_from == "function":
        rates = [0.5, 0.25, 0.0625]
    features = {
        f"{prefix}{letter}": _feature(rng, rows, dimension, wrong)
        for letter in "ab"[: rng.integers(1, 3)]
    }
    combiner = str(rng.choice(["sum", "mean", "sqrtn"]))
    return Table(optimizer, rates, rate_from, start.astype(np.float32), combiner, features)


def _feature(rng, rows, dimension, wrong):
    form = str(rng.choice(FORMS))
    ids, weights, gradients = [], [], []
    for _ in range(STEPS):
        counts = np.ones(SAMPLES, int) if form == "one" else rng.integers(0, 5, SAMPLES)
        ids.append([rng.integers(0, rows, count).tolist() for count in counts])
        # Zeros, and weights that add up to zero.
        values = (-1.0, 0.0, 0.5, 1.0, 2.0) if form == "weighted" else (1.0,)
        weights.append([rng.choice(values, count).tolist() for count in counts])
        shape = [SAMPLES, LENGTH, dimension] if "sequence" in form else [SAMPLES, dimension]
        slopes = rng.integers(-16, 17, shape) / 8
        gradients.append(_made_wrong(rng, slopes, wrong).astype(np.float32))
    return Feature(form, rng.choice([np.int32, np.int64]), ids, weights, gradients)


def _made_wrong(rng, values, share):
    others = rng.choice([np.inf, -np.inf, np.nan], values.shape)
    return np.where(rng.random(values.shape) < share, others, values)


def _one_of(rng, *values):
    return values[rng.integers(len(values))]


def _optimizer(rng, name, may_take_turns):
    accumulates = not (may_take_turns and rng.random() < 0.7)
    arguments: dict[str, Any] = {"use_gradient_accumulation": accumulates}
    around: dict[str, Any] = {}
    if accumulates and rng.random() < 0.3:
        around["clip_gradient"] = _one_of(rng, (-0.5, 0.75), (None, 0.25), (-0.5, None))
    if rng.random() < 0.3:
        around["clip_weight"] = _one_of(rng, (-1.0, 0.5), (None, 0.5), (-0.5, None))
    if rng.random() < 0.3:
        around["weight_decay_factor"] = 0.125
        around["multiply_weight_decay_factor_by_learning_rate"] = bool(rng.random() < 0.5)
    arguments |= descriptors.arguments(around)
    start: tuple[float, ...] = (0.25,)
    rate: tuple[float, ...] = (0.25,)
    flag, share, other = bool(rng.random() < 0.5), _one_of(rng, 0.0, 0.5, 0.75), 0.875
    strengths = {"l1": _one_of(rng, 0.0, 0.125), "l2": _one_of(rng, 0.0, 0.25)}
    nesterov = {"momentum": share, "use_nesterov": flag}
    decayed = {"rho": other, "momentum": share, "epsilon": 0.125}
    betas = {"beta1": share, "beta2": other, "epsilon": 0.125}
    hyper: dict[str, Any] = {}
    named: dict[str, Any] = {}  # Arguments outside the formula.
    if name == "sgd":
        start = ()
    elif name == "adagrad":
        named = {"initial_accumulator": 0.25}
    elif name == "proximal_adagrad":
        hyper, named = strengths, {"initial_accumulator": 0.25}
    elif name == "adagrad_momentum":
        hyper, start = {**nesterov, "exponent": int(rng.choice([2, 3]))}, (0, 0)
        hyper |= {"beta2": _one_of(rng, 1.0, 0.5), "epsilon": 0.125}
    elif name == "adam":
        hyper, start = {**betas, "sum_inside_sqrt": flag}, (0, 0)
        named = {"lazy_adam": not accumulates or bool(rng.random() < 0.5)}
    elif name == "ftrl":
        hyper = {"learning_rate_power": _one_of(rng, -0.5, -0.25), "beta": share, **strengths}
        hyper |= {"multiply_linear_by_learning_rate": flag}
        named, start = {"initial_accumulator_value": 0.25}, (0.25, 0)
    elif name == "momentum":
        hyper, start = nesterov, (0,)
    elif name == "rmsprop":
        hyper, named, start = decayed, {"initial_ms": 0.5}, (0.5, 0)
    elif name == "centered_rmsprop":
        hyper, start = decayed, (0, 0, 0)
    elif name == "adadelta":
        hyper, start = {"rho": other, "epsilon": 0.125}, (0, 0)
    elif name == "proximal_yogi":
        hyper, start = {**betas, **strengths}, (0.25, 0)
        named = {"initial_accumulator_value": 0.25}
    else:  # FrequencyEstimator: its rate is the step number. It takes no other argument.
        hyper, start = {"tau": 0.25, "max_delta": 50.0, "outlier_threshold": 3.0}, (0,)
        named, rate, arguments, around = {"weight_exponent": 1.0}, (), {}, {}
    called = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
    named |= {called.get(one, one): value for one, value in hyper.items()}
    return descriptors.Optimizer(
        name, CLASSES[name](*rate, **named, **arguments), hyper, start, around
    )
