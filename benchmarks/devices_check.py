"""Checks that tables in the memory of jax's devices train as NumPy does: `devices.py --check`.

Ten steps train four tables by Adagrad, by SGD, and by a rule that also changes rows that no id
looks up. Features have one id per sample, or several with gains, an empty sample and padding. NumPy
trains the same in float64. Before that, each operation that a step is made of is compared alone.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

STEPS, SAMPLES, RATE, ACCUMULATOR, DECAY = 10, 8, 0.05, 0.1, 0.01
ALLOWED = 1e-5
"""Difference from NumPy that rounding explains, relative to values of about 1."""


def adagrad(rate, gradients, weights, slots):
    accumulator = slots[0] + gradients * gradients
    return weights - rate * gradients / accumulator**0.5, accumulator


def sgd(rate, gradients, weights, slots):
    return (weights - rate * gradients,)


def decaying(rate, gradients, weights, slots):
    return (weights * (1 - DECAY) - rate * gradients,)


TABLES = {
    "words": (1000, 16, adagrad),
    "items": (777, 16, adagrad),
    "wide": (500, 130, sgd),
    "narrow": (300, 3, decaying),
}
"""Name of a table -> its rows, its dimension and its rule."""
FEATURES = {"word": "words", "past": "words", "item": "items", "wide": "wide", "narrow": "narrow"}
"""Key of a feature -> its table. 'past' has up to three weighted ids per sample."""


def drawn(rng, rows, weighted, batch):
    """Returns a batch's ids, segments and gains. -1 pads the ids."""
    ids = np.minimum(rng.zipf(1.2, batch * (3 if weighted else 1)) - 1, rows - 1).astype(np.int32)
    segments = np.arange(len(ids), dtype=np.int32) // (3 if weighted else 1)
    gains = rng.uniform(0.5, 2, len(ids)).astype(np.float32) if weighted else np.ones(len(ids))
    if weighted:
        ids[(segments % SAMPLES == 1) | (rng.uniform(size=len(ids)) < 0.2)] = -1
    return {"ids": ids, "segments": segments, "gains": gains.astype(np.float32)}


def numpy_step(arrays, ids, targets):
    """Trains the float64 arrays of all tables in place, on the distance of activations to targets.

    `arrays` maps a table to its weights and slots.
    """
    sums = {name: np.zeros_like(weights) for name, (weights, *_) in arrays.items()}
    for key, table in FEATURES.items():
        given, weights = ids[key], arrays[table][0]
        own = given["ids"] >= 0
        rows, segments = given["ids"][own], given["segments"][own]
        gains = given["gains"][own, None].astype(np.float64)
        activations = np.zeros_like(targets[key])
        np.add.at(activations, segments, gains * weights[rows])
        np.add.at(sums[table], rows, gains * (activations - targets[key])[segments])
    for name, (weights, *slots) in arrays.items():
        rule = TABLES[name][2]
        touched = np.ones(len(weights), bool)
        if rule is not decaying:
            touched[:] = False
            for key, table in FEATURES.items():
                if table == name:
                    touched[ids[key]["ids"][ids[key]["ids"] >= 0]] = True
        old = [one[touched] for one in (weights, *slots)]
        new = rule(RATE, sums[name][touched], old[0], old[1:])
        for array, value in zip(arrays[name], new, strict=True):
            array[touched] = value


def trained_by_numpy(arrays, batches, targets):
    for ids, goal in zip(batches, targets, strict=True):
        numpy_step(arrays, ids, goal)
    return arrays


def trained_on_devices(made, mesh, arrays, batches, targets):
    """Returns the same arrays after the same steps by `DeviceTables`."""

    def step(state, ids, goals):
        activations, kept = made.look_up(state, ids)
        gradients = {key: activations[key] - goals[key] for key in goals}
        rates = jnp.full([made.count], RATE, jnp.float32)
        return made.update(state, kept, gradients, rates)

    by_core = PartitionSpec("core")
    specs = {"in_specs": (by_core, by_core, by_core), "out_specs": by_core, "check_vma": False}
    jitted = jax.jit(jax.shard_map(step, mesh=mesh, **specs), donate_argnums=0)
    divided = NamedSharding(mesh, by_core)

    def placed(stack, number):
        parts = [
            stack.shard(
                core,
                {one.name: arrays[one.name][number].astype(np.float32) for one in stack.tables},
                stack.fills[number],
            )
            for core in range(mesh.size)
        ]
        return jax.device_put(np.concatenate(parts), divided)

    state = [[placed(stack, n) for n in range(len(stack.fills))] for stack in made.stacks]
    for ids, goals in zip(batches, targets, strict=True):
        goals = {key: one.astype(np.float32) for key, one in goals.items()}
        plain = {key: one if key == "past" else {"ids": one["ids"]} for key, one in ids.items()}
        state = jitted(state, *jax.device_put((plain, goals), divided))
    found = {name: [np.empty(one.shape, np.float32) for one in of] for name, of in arrays.items()}
    for stack, of_stack in zip(made.stacks, state, strict=True):
        for number, array in enumerate(of_stack):
            into = {one.name: found[one.name][number] for one in stack.tables}
            for core, part in enumerate(np.split(np.asarray(array), mesh.size)):
                stack.unshard(core, part, into)
    return found


def operations(mesh):
    """Yields the name of each operation of a step, its value, NumPy's value, and advice."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1000, 4096).astype(np.int32)
    values = rng.normal(size=[4096, 16]).astype(np.float32)
    ascending = jax.jit(lambda *given: jax.lax.sort(given, num_keys=1)[0])(rows, rows)
    yield "sort", ascending, np.sort(rows), ""
    yield "gather", jax.jit(lambda a, at: a[at])(values, rows), values[rows], ""
    added = np.zeros([1000, 16])
    np.add.at(added, rows, values)
    sums = jax.jit(lambda at, v: jnp.zeros([1000, 16]).at[at].add(v))
    yield "scatter-add", sums(rows, values), added, ""
    by_core = PartitionSpec("core")
    for name, summed, whole in (
        ("all-gather", lambda one: jax.lax.all_gather(one, "core", tiled=True), values),
        ("all-reduce", lambda one: jax.lax.psum(one, "core"), None),
    ):
        same = jax.shard_map(
            summed, mesh=mesh, in_specs=by_core, out_specs=PartitionSpec(), check_vma=False
        )
        parts = values.reshape(mesh.size, -1, 16)
        yield name, jax.jit(same)(values), parts.sum(0) if whole is None else whole, ""
    a, b = values[:256], values[256:512].T
    yield (
        "float32 product",
        jax.jit(jnp.matmul)(a, b),
        a.astype(np.float64) @ b,
        "products are in TF32 or bfloat16. JAX_DEFAULT_MATMUL_PRECISION=highest gives float32",
    )
    twice = [np.asarray(sums(rows, values)) for _ in range(2)]
    yield "scatter-add again", twice[0], twice[1], "sums have no fixed order: runs differ in bits"


def check(mesh, device_tables):
    """Prints a line for each operation and each array. Returns whether all are right."""
    right = True

    def told(name, value, want, advice=""):
        nonlocal right
        scale = max(1.0, float(np.abs(want).max()))
        exact = name in ("sort", "gather", "all-gather", "scatter-add again")
        error = float(np.abs(np.asarray(value, np.float64) - want).max()) / scale
        good = error == 0 if exact else error <= ALLOWED
        right &= good or bool(advice)
        verdict = "right" if good else f"differs: {advice}" if advice else "WRONG"
        print(f"  {name:22s} differs by {error:.1e}   {verdict}", flush=True)

    print("operations", flush=True)
    for operation in operations(mesh):
        told(*operation)
    batch, rng = SAMPLES * mesh.size, np.random.default_rng(1)
    batches = [
        {key: drawn(rng, TABLES[of][0], key == "past", batch) for key, of in FEATURES.items()}
        for _ in range(STEPS)
    ]
    targets = [
        {key: rng.normal(size=[batch, TABLES[of][1]]) for key, of in FEATURES.items()}
        for _ in range(STEPS)
    ]
    initial = {}
    for name, (rows, dimension, rule) in TABLES.items():
        slots = [np.full([rows, dimension], ACCUMULATOR)] if rule is adagrad else []
        initial[name] = [rng.normal(size=[rows, dimension]).astype(np.float32), *slots]
    features = [device_tables.DeviceFeature(key, table) for key, table in FEATURES.items()]
    for packs in (False, True):
        print(f"tables after {STEPS} steps, {'packed' if packs else 'plain'} rows", flush=True)
        tables = [
            device_tables.DeviceTable(
                name,
                *size,
                rule,
                rule.__name__,
                (ACCUMULATOR,) if rule is adagrad else (),
                all_rows=rule is decaying,
            )
            for name, (*size, rule) in TABLES.items()
        ]
        made = device_tables.DeviceTables(tables, features, batch, mesh.size, packs)
        found = trained_on_devices(made, mesh, initial, batches, targets)
        copies = {name: [one.astype(np.float64) for one in of] for name, of in initial.items()}
        want = trained_by_numpy(copies, batches, targets)
        for name, arrays in want.items():
            for number, array in enumerate(arrays):
                told(f"{name} {'accumulator' if number else 'weights'}", found[name][number], array)
    print("all right" if right else "something is WRONG: please report these lines")
    return right


def main(mesh, device_tables):
    sys.exit(0 if check(mesh, device_tables) else 1)
