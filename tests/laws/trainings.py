"""Draws trainings: tables, optimizers, forms of ids, gradients that may be infinite or NaN.

Ids, weights and gradients are small binary fractions. So float32 and float64 results differ only by
rounding.
"""

import dataclasses
from typing import Any

import descriptors
import features
import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import optimizers

STEPS, SAMPLES, LENGTH = 3, 8, 2
"""Steps of a training, samples of a batch, positions of a sequence."""

FORMS = ("one", "matrix", "sparse", "ragged")
SHARES = (0, 0.01, 0.05)
"""Possible shares of infinite or NaN numbers in a training."""
CLASSES = {
    rule.__name__: ours for ours, rule in descriptors.RULES.items() if ours in optimizers.PARAMETERS
}
"""Name of an optimizer -> its class."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature(features.Feature):
    """A feature of a table, with its data for each step."""

    ids: list[list[list[int]]]
    weights: list[list[list[float]]]
    gradients: list[np.ndarray]  # [samples, dimension] or [samples, LENGTH, dimension].
    shuffled: bool = False  # Whether sparse ids are in no order.

    def given(self, step: int, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the ids and weights of a step as input_fn gives them."""
        parts = features.batch_of(self, self.ids[step], self.weights[step])
        if self.shuffled:
            parts = features.shuffled(self, parts, rng)
        given = {self.key: features.value_of(parts)}
        return given | ({f"{self.key}_w": features.value_of(parts, "w_")} if self.weighted else {})


@dataclasses.dataclass(frozen=True)
class Table:
    optimizer: descriptors.Optimizer
    rates: list[float]  # Of each step.
    rate_from: str  # "optimizer", "table" or "function".
    start: np.ndarray
    combiner: str
    features: list[Feature]


@dataclasses.dataclass(frozen=True)
class Training:
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

    @property
    def features(self) -> list[Feature]:
        return [feature for table in self.tables.values() for feature in table.features]

    def spec(self) -> ee.EmbeddingConfigSpec:
        configs, tables = {}, {}
        for name, table in self.tables.items():
            for feature in table.features:
                length = LENGTH if feature.sequence else 0
                weight_key = f"{feature.key}_w" if feature.weighted else None
                configs[feature.key] = ee.FeatureConfig(name, length, weight_key)
            tables[name] = ee.TableConfig(
                *table.start.shape,
                harness.initializer(table.start),
                table.combiner,
                learning_rate=table.rates[0] if table.rate_from == "table" else None,
                learning_rate_fn=_of_step(table.rates) if table.rate_from == "function" else None,
                optimization_parameters=table.optimizer.parameters,
            )
        multiplier_fn = None if self.multipliers is None else _of_step(self.multipliers)
        fields = {"feature_to_config_dict": configs, "table_to_config_dict": tables}
        fields |= {
            "clipping_limit": self.limit,
            "experimental_gradient_multiplier_fn": multiplier_fn,
        }
        fields["pipeline_execution_with_tensor_core"] = self.pipelined
        return ee.EmbeddingConfigSpec(**fields)

    def batches(self) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """Returns (features, gradients of activations) of each step."""
        rng = np.random.default_rng(self.seed)
        made = []
        for step in range(STEPS):
            given = [feature.given(step, rng) for feature in self.features]
            gradients = {feature.key: feature.gradients[step] for feature in self.features}
            made.append(({key: one for each in given for key, one in each.items()}, gradients))
        return made

    def with_features(self, **changes: Any) -> "Training":
        """Returns the training with fields of each feature replaced.

        `changes` has the field's value, or a function of the field's value in each feature.
        """

        def changed(feature):
            made = {}
            for name, change in changes.items():
                made[name] = change(getattr(feature, name)) if callable(change) else change
            return dataclasses.replace(feature, **made)

        tables = {
            name: dataclasses.replace(table, features=[changed(one) for one in table.features])
            for name, table in self.tables.items()
        }
        return dataclasses.replace(self, tables=tables)

    def of_samples(self, part: slice) -> "Training":
        """Returns the training with a part of each batch."""
        names = ("ids", "weights", "gradients")
        changes = dict.fromkeys(names, lambda of_steps: [one[part] for one in of_steps])
        return self.with_features(**changes)


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
    # Native kernels do not support updates per core for tables in shards.
    may_take_turns = cores > 1 and not (native and shards > 1)
    tables = {}
    for number in range(int(rng.integers(1, 4))):
        optimizer = _optimizer(rng, str(rng.choice(classes)), may_take_turns)
        tables[f"t{number}"] = _table(rng, f"x{number}", optimizer, wrong)
    # pipelined, summarized and optimized.
    switches = [bool(one) for one in rng.random(3) < 0.3]
    limit, multipliers = _one_of(rng, None, 1.0), _one_of(rng, None, [0.5, -2.0, 1.0])
    return Training(seed, native, cores, shards, *switches, limit, multipliers, tables)


def _table(rng, prefix, optimizer, wrong):
    rows = int(rng.choice([3, 5, 12, 40, 1100]))  # Servers divide only tables of many rows.
    dimension = optimizer.parameters.required_dimension or int(rng.choice([1, 3, 8, 16]))
    start = rng.integers(-16, 17, [rows, dimension]) / 8
    if rng.random() < 0.2:
        start = _made_wrong(rng, start, wrong)
    rate_from = str(rng.choice(["optimizer", "table", "function"]))
    rates = [getattr(optimizer.parameters, "learning_rate", 1.0)] * STEPS
    if optimizer.name == "frequency_estimator":  # Its rate is the number of the step.
        rate_from, rates = "function", [3.0, 4.0, 60.0]
    elif rate_from == "table":
        rates = [0.125] * STEPS
    elif rate_from == "function":
        rates = [0.5, 0.25, 0.0625]
    made = [
        _feature(rng, f"{prefix}{letter}", rows, dimension, wrong)
        for letter in "ab"[: rng.integers(1, 3)]
    ]
    combiner = str(rng.choice(["sum", "mean", "sqrtn"]))
    return Table(optimizer, rates, rate_from, start.astype(np.float32), combiner, made)


def _feature(rng, key, rows, dimension, wrong):
    form = str(rng.choice(FORMS))
    kind = _one_of(rng, {}, {}, {"weighted": True}, {"sequence": True}) if form != "one" else {}
    dtype, shuffled = rng.choice([np.int32, np.int64]), form == "sparse" and bool(rng.integers(2))
    feature = features.Feature(key=key, form=form, dtype=dtype, width=2, **kind)
    drawn = [features.lists(feature, rows, SAMPLES, rng) for _ in range(STEPS)]
    ids, weights = map(list, zip(*drawn, strict=True))
    shape = [SAMPLES, LENGTH, dimension] if feature.sequence else [SAMPLES, dimension]
    gradients = [
        _made_wrong(rng, rng.integers(-16, 17, shape) / 8, wrong).astype(np.float32)
        for _ in range(STEPS)
    ]
    data = {"ids": ids, "weights": weights, "gradients": gradients, "shuffled": shuffled}
    return Feature(**vars(feature), **data)


def _made_wrong(rng, values, share):
    others = rng.choice([np.inf, -np.inf, np.nan], values.shape)
    return np.where(rng.random(values.shape) < share, others, values)


def _one_of(rng, *values):
    return values[rng.integers(len(values))]


def _optimizer(rng, name, may_take_turns):
    """Draws settings of `descriptors`, and limits and decay around the rule."""
    of_rule = [one for one in descriptors.OPTIMIZERS if one.rule.__name__ == name]
    optimizer = dataclasses.replace(_one_of(rng, *of_rule), name=name)
    if name == "frequency_estimator" or type(optimizer.parameters) is not CLASSES[name]:
        return optimizer  # It takes no other argument, or has the TF2 vocabulary's.
    accumulates = not (may_take_turns and rng.random() < 0.7)
    around: dict[str, Any] = {}
    if accumulates and rng.random() < 0.3:
        around["clip_gradient"] = _one_of(rng, (-0.5, 0.75), (None, 0.25), (-0.5, None))
    if rng.random() < 0.3:
        around["clip_weight"] = _one_of(rng, (-1.0, 0.5), (None, 0.5), (-0.5, None))
    if rng.random() < 0.3:
        around["weight_decay_factor"] = 0.125
        around["multiply_weight_decay_factor_by_learning_rate"] = bool(rng.random() < 0.5)
    arguments = {**vars(optimizer.parameters), **descriptors.arguments(around)}
    arguments["use_gradient_accumulation"] = accumulates
    if name == "adam":
        arguments["lazy_adam"] = not accumulates or bool(rng.random() < 0.5)
    parameters = CLASSES[name](**arguments)
    return dataclasses.replace(optimizer, parameters=parameters, surroundings=around)
