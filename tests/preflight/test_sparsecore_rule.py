# SPDX-License-Identifier: Apache-2.0
"""The rules of the optimizers as StableHLO: XLA on the CPU evaluates the function of the update."""

import json
import pathlib
import re

import numpy as np
import pytest
import reference
import tensorflow as tf
from descriptors import OPTIMIZERS
from tensorflow.compiler.tf2xla.python import xla

import estimator_emb as ee
from estimator_emb import optimizers
from estimator_emb.preflight.sparsecore import layout, module
from estimator_emb.preflight.sparsecore.rule import NoRule, trace
from estimator_emb.spec.resolved import Feature, Table

CALLS = json.loads(
    (pathlib.Path(__file__).parents[1] / "data" / "sparsecore_calls.json").read_text()
)


def evaluate(text, results, arguments):
    """Runs a program on rows of one shape; returns `results` float64 arrays of that shape."""
    shape = np.shape(arguments[0])
    rows = [tf.reshape(tf.constant(value, tf.float32), [1, -1]) for value in arguments]
    outputs = xla.call_module(
        rows,
        version=5,
        module=text,
        Tout=[tf.float32] * results,
        Sout=[rows[0].shape] * results,
        platforms=["CPU"],
    )
    return [output.numpy().astype(np.float64).reshape(shape) for output in outputs]


def run(rule, lr, g, w, slots):
    arguments = [g, w, *slots, np.full_like(w, lr)]
    return evaluate(module.evaluation(rule, np.size(w)), 1 + rule.slots, arguments)


def rows(count=64):
    """Gradients and weights, the first of which are zeros."""
    random = np.random.default_rng(0)
    g, w = random.normal(size=[2, count, 4])
    g[:2] = 0
    return g, w


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: one.name)
def test_two_steps_are_those_of_the_formula(optimizer):
    limits = dict(optimizer.surroundings)
    rule = trace(optimizer.parameters, limits.pop("clipping_limit", None), cores=8)
    assert rule.slots == len(optimizer.start)
    g, w = rows()
    expected = actual = (w, *(np.full_like(w, start) for start in optimizer.start))
    for lr in (0.1, 0.3):
        expected = optimizer.step(lr, g, expected[0], expected[1:])
        actual = run(rule, lr, g, actual[0], actual[1:])
        for ours, formula in zip(actual, expected, strict=True):
            np.testing.assert_allclose(ours, formula, rtol=2e-5, atol=2e-5)
        g = g[::-1]


def test_limits_and_decay_surround_the_rule():
    parameters = optimizers.AdagradParameters(
        0.1,
        0.2,
        clip_weight_min=-0.5,
        clip_weight_max=0.75,
        weight_decay_factor=0.25,
        multiply_weight_decay_factor_by_learning_rate=True,
        clip_gradient_min=-0.25,
        clip_gradient_max=0.5,
    )
    g, w = rows()
    a = np.full_like(w, 0.2)
    actual = run(trace(parameters, 0.4, cores=1), 0.3, g, w, [a])
    expected = reference.step(
        reference.adagrad,
        0.3,
        np.clip(g, -0.4, 0.4),
        w,
        [a],
        clip_gradient=(-0.25, 0.5),
        clip_weight=(-0.5, 0.75),
        weight_decay_factor=0.25,
        multiply_weight_decay_factor_by_learning_rate=True,
    )
    for ours, formula in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, formula, rtol=2e-6, atol=2e-6)


def test_a_zero_accumulator_and_what_is_not_finite_are_as_with_tensorflow():
    """Without limits: XLA of TensorFlow 2.15 loses NaN in a maximum, on the CPU and by default."""
    parameters = optimizers.AdagradParameters(0.1)
    g = np.array([0, 1, np.nan, np.inf, 2, 0], np.float32)
    w = np.array([1, np.inf, 2, 3, np.nan, 4], np.float32)
    a = np.array([0, 1, 1, 1, 1, np.nan], np.float32)
    actual = run(trace(parameters, None, cores=1), 0.3, g, w, [a])
    expected = optimizers.step(
        parameters,
        optimizers.TENSORFLOW,
        *(tf.constant(value, tf.float32) for value in (0.3, g, w)),
        (tf.constant(a),),
    )
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


REFUSED = {
    "mdl_adagrad_light": (
        optimizers.MDLAdagradLightParameters(*[0.5] * 11, True, False),
        "the update rule of MDLAdagradLightParameters was never published",
    ),
    "not lazy": (
        optimizers.AdamParameters(0.1, lazy_adam=False),
        "AdamParameters(lazy_adam=False) changes all rows of the table in each step, and "
        "SparseCore updates only those that the batch looks up: use lazy_adam=True",
    ),
    "not accumulated": (
        optimizers.StochasticGradientDescentParameters(0.1, use_gradient_accumulation=False),
        "StochasticGradientDescentParameters(use_gradient_accumulation=False) updates a row once "
        "for each core that looks it up, and SparseCore sums the gradients of all 8 cores before "
        "one update: use use_gradient_accumulation=True",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_function_of_a_row_is_refused(name):
    parameters, reason = REFUSED[name]
    with pytest.raises(NoRule, match=f"^{re.escape(reason)}$"):
        trace(parameters, None, cores=8)


def test_one_core_has_nothing_to_accumulate():
    parameters = optimizers.StochasticGradientDescentParameters(
        0.1, use_gradient_accumulation=False
    )
    assert trace(parameters, None, cores=1) == trace(
        optimizers.StochasticGradientDescentParameters(0.1), None, cores=8
    )


def test_a_rule_cannot_branch_on_rows():
    class Branching(optimizers.StochasticGradientDescentParameters):
        def update(self, math, lr, g, w, *slots):
            return (w if g > 0 else -w,)

    reason = (
        "the rule of Branching is more than arithmetic on rows: TypeError: A rule cannot branch on "
        "the rows it updates: use where()."
    )
    with pytest.raises(NoRule, match=f"^{re.escape(reason)}$"):
        trace(Branching(0.1), None, cores=1)


def stack(optimizer, dimension=8, samples=256):
    config = ee.TableConfig(1024, dimension, combiner="sum")
    table = Table("t", config, (Feature("f"),), None, optimizer)
    (found,) = layout.stacks_of([table], samples, layout.Chips(1, 2))
    return found


def call_of(text):
    """The custom call of a program: its target, operands and configuration."""
    target, operands, rest = re.search(
        r"stablehlo\.custom_call @(\w+)\(([^)]*)\) \{(.*?)\n    \}", text, re.DOTALL
    ).groups()
    config = re.search(r'backend_config = "(.*?)"', rest)[1]
    return target, operands.split(", "), json.loads(config.replace("\\22", '"'))


LIMITS = layout.SparseCoreLimits(7, 5)
IDS = {
    "lhs_row_pointers": "%row_pointers",
    "lhs_local_embedding_ids": "%rows",
    "lhs_local_sample_ids": "%samples",
    "lhs_gains": "%gains",
    "num_minibatches_per_physical_sparse_core": "%minibatches",
}
"""Argument of jax-tpu-embedding -> ours."""


def test_a_lookup_is_called_as_jax_tpu_embedding_does():
    chips = layout.Chips(1, 2)
    target, operands, config = call_of(module.lookup(stack(None), chips, LIMITS))
    names = {**IDS, "embedding_table": "%table", "computed": "%zeros"}
    assert target == CALLS["lookup"]["target"]
    assert operands == [names[name] for name in CALLS["lookup"]["operands"]]
    assert config == CALLS["lookup"]["backend_config"]


def test_an_update_is_called_as_jax_tpu_embedding_does():
    """With two slots; its four hyper-parameters are one here, the others being constants."""
    chips = layout.Chips(1, 2)
    adam = optimizers.AdamParameters(0.1)
    text = module.update(stack(adam), trace(adam, None, 1), chips, LIMITS)
    target, operands, config = call_of(text)
    names = {
        **IDS,
        "embedding_table": "%table_0",
        "momentum": "%table_1",
        "velocity": "%table_2",
        "activations_grad": "%gradients",
        "alpha_t": "%rate",
    }
    theirs = CALLS["adam"]
    assert target == theirs["target"]
    assert operands == [names[name] for name in theirs["operands"] if name in names]
    expected = dict(theirs["backend_config"]["sparse_dense_matmul_config"], num_hyperparameters=1)
    assert config == {**theirs["backend_config"], "sparse_dense_matmul_config": expected}


def test_the_function_of_an_update_takes_what_that_of_jax_tpu_embedding_takes():
    """Theirs, given the arguments in the order of ours, computes Adam."""
    row = "tensor<1x8xf32>"
    names = [f"%a{index}" for index in range(8)]
    parameters = ", ".join(f"{name}: {row}" for name in names)
    taken = ", ".join([row] * 8)
    updated = f"tuple<{row}, {row}, {row}>"
    parts = "\n".join(
        f"%p{k} = stablehlo.get_tuple_element %new[{k}] : ({updated}) -> {row}" for k in range(3)
    )
    text = f"""
    module @theirs {{
    {CALLS["adam"]["rule"]}
    func.func public @main({parameters}) -> ({row}, {row}, {row}) {{
      %new = func.call @adam_optimizer_update({", ".join(names)}) : ({taken}) -> {updated}
      {parts}
      return %p0, %p1, %p2 : {row}, {row}, {row}
    }} }}
    """
    g, w = np.random.default_rng(1).normal(size=[2, 8])
    m, v = np.full_like(w, 0.1), np.full_like(w, 0.2)
    constants = [np.full_like(w, number) for number in (0.3, 0.9, 0.999, 1e-8)]
    theirs = evaluate(text, 3, [g, w, m, v, *constants])
    ours = trace(optimizers.AdamParameters(0.1, sum_inside_sqrt=False), None, 1)
    for actual, expected in zip(theirs, run(ours, 0.3, g, w, [m, v]), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
