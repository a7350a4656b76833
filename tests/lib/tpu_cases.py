"""TPUEmbedding cases: each must configure and call the hardware as TensorFlow 2.15 does.

A case is built with a module: TensorFlow 2.15's `tensorflow.python.tpu.tpu_embedding`, or our
module of that name, which has the same classes.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

COMMON = {
    "clip_weight_min": -3.5,
    "clip_weight_max": 2.25,
    "weight_decay_factor": 0.125,
    "multiply_weight_decay_factor_by_learning_rate": True,
    "clip_gradient_min": -0.75,
    "clip_gradient_max": 1.5,
}


_REGULARIZED = {"l1_regularization_strength": 0.2, "l2_regularization_strength": 0.1}


def _both(name: str, **arguments: Any) -> dict[str, Callable[[Any], Any]]:
    """Returns an optimizer with its own arguments, and the same with COMMON ones added."""

    def make(module: Any, **common: Any) -> Any:
        return getattr(module, name + "Parameters")(learning_rate=0.3, **arguments, **common)

    return {name: make, f"{name}, all": functools.partial(make, **COMMON)}


OPTIMIZERS: Mapping[str, Callable[[Any], Any]] = {
    **_both("StochasticGradientDescent"),
    **_both("Adagrad", initial_accumulator=0.7),
    **_both(
        "AdagradMomentum", momentum=0.6, use_nesterov=True, exponent=3.0, beta2=0.9, epsilon=0.01
    ),
    **_both("Adam"),
    "Adam, not lazy": lambda module: module.AdamParameters(
        0.3, beta1=0.8, beta2=0.99, epsilon=1e-4, lazy_adam=False, sum_inside_sqrt=False
    ),
    **_both(
        "Ftrl",
        learning_rate_power=-0.6,
        initial_accumulator_value=0.7,
        multiply_linear_by_learning_rate=True,
        beta=0.4,
        allow_zero_accumulator=True,
        **_REGULARIZED,
    ),
    **_both("Momentum", momentum=0.6, use_nesterov=True),
    **_both("RMSProp", rho=0.9, momentum=0.6, epsilon=0.01),
    **_both("ProximalAdagrad", initial_accumulator=0.7, **_REGULARIZED),
    **_both(
        "ProximalYogi",
        beta1=0.8,
        beta2=0.99,
        epsilon=0.01,
        initial_accumulator_value=0.7,
        **_REGULARIZED,
    ),
    "Adagrad, not accumulated": lambda module: module.AdagradParameters(
        0.3, use_gradient_accumulation=False
    ),
    "Adagrad, decay without rate": lambda module: module.AdagradParameters(
        0.3, weight_decay_factor=0.5, multiply_weight_decay_factor_by_learning_rate=False
    ),
    "Adagrad, upper limits": lambda module: module.AdagradParameters(
        0.3, clip_weight_max=0.0, clip_gradient_max=0.0
    ),
    "FrequencyEstimator": lambda module: module.FrequencyEstimatorParameters(0.2, 50.0, 3.0, 0.7),
}


def halving(step: Any) -> Any:
    return 1.0 / (1.0 + tf.cast(step, tf.float32))


def _ones(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
    return tf.ones(shape, dtype)


FEATURES = {
    "plain": {},
    "shared": {},
    "weighted": {"combiner": "sum"},
    "sequence": {},
    "one id": {"combiner": None, "hot_id_replication": True},
    "own rate": {"learning_rate": 0.05},
    "rate function": {"learning_rate_fn": halving},
    "own optimizer": {"learning_rate_fn": halving},
    "one column": {"learning_rate_fn": halving},
}
"""Name of a case -> arguments of the first table."""

_OTHER_FEATURES = {
    "shared": {"favourites": ("video",)},
    "weighted": {"watched": ("video", 0, "minutes")},
    "sequence": {"history": ("video", 5), "friends": ("user", 2)},
}
"""Name of a case -> features besides or instead of the two, as arguments of FeatureConfig."""


def _tables_and_features(module: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns two tables and their features."""
    of_first = dict(FEATURES[name])
    if name == "own optimizer":
        of_first["optimization_parameters"] = module.AdamParameters(0.2, beta1=0.7)
    of_video, of_user = (1, 1) if name == "one column" else (4, 2)
    tables = {
        "video": module.TableConfig(13, of_video, _ones, **of_first),
        "user": module.TableConfig(3, of_user, _ones, combiner="sqrtn"),
    }
    features = {"watched": ("video",), "friends": ("user",), **_OTHER_FEATURES.get(name, {})}
    return tables, {key: module.FeatureConfig(*given) for key, given in features.items()}


@dataclasses.dataclass(frozen=True)
class Case:
    """One `TPUEmbedding`. The batch has 4 samples for each core, and a host has 2 cores."""

    optimizer: str = "Adagrad"
    features: str = "plain"
    hosts: int = 1
    strategy: str = "div"
    training: bool = True
    pipelined: bool = False
    profile: str | None = None

    @property
    def name(self) -> str:
        changed = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                changed.append(value if isinstance(field.default, str) else f"{field.name}={value}")
        return "; ".join(changed) or "default"

    def build(self, module: Any) -> Any:
        tables, features = _tables_and_features(module, self.features)
        mode = module.TRAINING if self.training else module.INFERENCE
        optimizer = OPTIMIZERS[self.optimizer](module) if self.training else None
        device = module.DeviceConfig(self.hosts, 2 * self.hosts, "/job:tpu_worker")
        given = {"optimization_parameters": optimizer, "device_config": device}
        given |= {"partition_strategy": self.strategy, "profile_data_directory": self.profile}
        if self.pipelined:  # False is the default.
            given["pipeline_execution_with_tensor_core"] = True
        return module.TPUEmbedding(tables, features, 8 * self.hosts, mode, **given)


def _fits(optimizer: str, features: str) -> bool:
    return optimizer != "FrequencyEstimator" or features == "one column"


def _features_of(optimizer: str) -> str:
    return "plain" if _fits(optimizer, "plain") else "one column"


ALL = [
    Case(optimizer, features, hosts, strategy, training, pipelined)
    for optimizer, features, hosts, strategy, training, pipelined in itertools.product(
        OPTIMIZERS, FEATURES, (1, 2, 5), ("div", "mod"), (True, False), (False, True)
    )
    if _fits(optimizer, features) and (training or optimizer == "Adagrad")
]
"""All combinations."""

KEPT = [
    *(Case(optimizer, _features_of(optimizer)) for optimizer in OPTIMIZERS),
    *(Case(features=features, hosts=2) for features in FEATURES),
    Case(hosts=5),
    Case(hosts=5, strategy="mod"),
    Case(pipelined=True),
    Case(training=False),
    Case(features="own optimizer", training=False),
    Case(profile="/profile"),
]
"""Cases with results in tests/data. They cover each option."""

GRAPHS = [
    Case(features="shared", hosts=2),
    Case("Adam, all", "weighted", hosts=2),
    Case("Ftrl, all", "sequence"),
    Case("RMSProp", "rate function", hosts=5),
    Case(features="one id", training=False),
]
"""Cases with graphs in tests/data."""

WITH_PADDING = [
    Case(optimizer, _features_of(optimizer), 4) for optimizer in OPTIMIZERS if "," not in optimizer
]
"""More hosts than the smaller table has rows, for every optimizer."""
