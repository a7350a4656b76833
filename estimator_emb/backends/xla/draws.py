"""Random ops that depend only on their seeds, the step number and the core.

XLA ignores the seeds of TensorFlow's stateful random ops. While model_fn runs, stateless ops
replace them. XLA computes stateless ops by Philox on every platform.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.compat.internals.graphs import LoopGraph


def _shuffled(value: tf.Tensor, seed: tf.Tensor, name: str | None = None) -> tf.Tensor:
    order = tf.raw_ops.StatelessRandomUniform(shape=tf.shape(value)[:1], seed=seed)
    return tf.gather(value, tf.argsort(order), name=name)


STATELESS: dict[str, tuple[Callable[..., tf.Tensor], tuple[str, ...]]] = {
    "random_uniform": (tf.raw_ops.StatelessRandomUniform, ("shape", "dtype")),
    "random_uniform_int": (tf.raw_ops.StatelessRandomUniformInt, ("shape", "minval", "maxval")),
    "random_standard_normal": (tf.raw_ops.StatelessRandomNormal, ("shape", "dtype")),
    "truncated_normal": (tf.raw_ops.StatelessTruncatedNormal, ("shape", "dtype")),
    "parameterized_truncated_normal": (
        tf.raw_ops.StatelessParameterizedTruncatedNormal,
        ("shape", "means", "stddevs", "minvals", "maxvals"),
    ),
    "multinomial": (tf.raw_ops.StatelessMultinomial, ("logits", "num_samples")),
    "random_shuffle": (_shuffled, ("value",)),
}
"""Function of `gen_random_ops` -> (stateless replacement, names of its arguments)."""


def seeds_of_cores(step: int, cores: Iterable[int]) -> list[np.ndarray]:
    """Returns a seed, int32 [2], for each core."""
    each = [np.random.SeedSequence([step, core]) for core in cores]
    return [one.generate_state(2).view(np.int32) for one in each]


def stateless(
    function: str,
    seed_of_core: Callable[[], tf.Tensor],
    generator: random.Random,
    stateful: Callable[..., tf.Tensor],
) -> Callable[..., tf.Tensor]:
    """Returns the stateless replacement of a function in `STATELESS`.

    In initializers of variables the replacement calls `stateful`. `seed_of_core` returns a tensor,
    int32 [2], that differs between steps and between cores. `generator` seeds ops that the program
    does not seed.
    """
    make, arguments = STATELESS[function]

    def draw(*given: Any, seed: int | None = 0, seed2: int | None = 0, **kwargs: Any) -> tf.Tensor:
        if "Initializer" in tf.get_current_name_scope().split("/"):
            return stateful(*given, seed=seed, seed2=seed2, **kwargs)
        seeds = [seed or 0, seed2 or 0]
        if not any(seeds):  # An unseeded op differs from run to run.
            seeds = [generator.getrandbits(31)]
        folded = seed_of_core()
        for number in (*seeds, *_counters()):
            folded = tf.random.experimental.stateless_fold_in(folded, number)
        return make(**dict(zip(arguments, given, strict=True)), seed=folded, **kwargs)

    return draw


def _counters() -> list[tf.Tensor]:
    """Returns the iteration counters of the enclosing loops."""
    counters = []
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if isinstance(graph, LoopGraph):
            counters.append(graph.get_operations()[0].outputs[0])  # A loop's first argument.
        graph = getattr(graph, "outer_graph", None)
    return counters
