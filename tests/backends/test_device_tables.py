"""Tables on jax devices: a step compared with NumPy, and no copy of a table in its program."""

import dataclasses
import re
from unittest import mock

import emulated_program
import harness
import numpy as np
import pytest

SAMPLES = 24
RATES = np.array([0.1, 0.2, 0.3], np.float32)


# Rules of optimizers, for NumPy and jax. The second also updates rows without a gradient.
def adagrad(rate, gradients, weights, slots):
    accumulator = slots[0] + gradients * gradients
    return weights - rate * gradients / accumulator**0.5, accumulator


def momentum_of_all(rate, gradients, weights, slots):
    momentum = 0.9 * slots[0] + 0.1 * gradients
    return weights - rate * momentum, momentum


@pytest.fixture
def library(eight_devices):
    from estimator_emb.backends.xla import device_tables

    return device_tables


def tables_of(library, rows, dimensions, step, accumulates=True):
    shape = zip("abc", rows, dimensions, strict=False)
    of_all = step is momentum_of_all
    return [library.DeviceTable(*one, step, step, (0.1,), of_all, accumulates) for one in shape]


def compiled(made, devices, arguments, of_activations=False, options=None):
    """Compiles a step that updates with `gradients`, or with their products with activations."""
    # Each of the arguments is an array, or the shape of an array. `options` go to the compiler.
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    def step(arrays, ids, gradients, rates):
        activations, kept = made.look_up(arrays, ids)
        if of_activations:
            gradients = {key: one * activations[key] for key, one in gradients.items()}
        return activations, made.update(arrays, kept, gradients, rates)

    mesh = Mesh(np.array(devices), ("core",))
    by_core, same = PartitionSpec("core"), PartitionSpec()
    places = (by_core, by_core, by_core, same)
    specs = {"in_specs": places, "out_specs": (by_core, by_core)}
    sharded = jax.shard_map(step, mesh=mesh, check_vma=False, **specs)
    shardings = tuple(NamedSharding(mesh, place) for place in places)
    step = jax.jit(sharded, in_shardings=shardings, donate_argnums=0)
    return step.lower(*arguments).compile(options)


def ids_of(rng, feature, rows, is_one):
    """Returns an id per sample, or up to 48 ids with the segments of the batch and weights."""
    # A segment is a sample, or a position of a sample's sequence.
    if is_one:
        return {"ids": rng.integers(0, rows, SAMPLES).astype(np.int32)}
    size, count = 48, int(rng.integers(1, 48))
    segments = np.sort(rng.integers(0, SAMPLES * feature.segments, count))
    given = {
        "ids": rng.integers(0, rows, count).astype(np.int32),
        "segments": segments.astype(np.int32),
        "gains": rng.normal(size=count).astype(np.float32),
    }
    padded = {name: np.pad(one, (0, size - count)) for name, one in given.items()}
    padded["ids"][count:] = -1
    return padded


def occurrences(feature, of_feature):
    """Returns (id, segment, weight) of each id. -1 is padding."""
    ids = of_feature["ids"]
    segments = of_feature.get("segments", np.arange(len(ids)))
    gains = of_feature.get("gains", np.ones(len(ids), np.float32))
    return [one for one in zip(ids, segments, gains, strict=True) if one[0] >= 0]


def updated_in_numpy(table, features, ids, gradients, values, rate, step, cores, accumulates):
    """Returns a table's weights and slot after the step, row by row."""
    weights, slot = (one.copy() for one in values)
    # A row is updated by the sum of its gradients, or in turn by the gradient of each core.
    for turn in [None] if accumulates else range(cores):
        sums = {}
        for feature in features:
            of_segments = gradients[feature.key].reshape(SAMPLES * feature.segments, -1)
            for id, segment, gain in occurrences(feature, ids[feature.key]):
                core = segment // feature.segments // (SAMPLES // cores)
                owner = id % cores  # The core that holds the row. Its gradient comes first.
                in_order = [owner, *(one for one in range(cores) if one != owner)]
                if turn is None or core == in_order[turn]:
                    sums[id] = sums.get(id, 0) + of_segments[segment] * gain
        for row in range(table.rows) if table.all_rows else sums:
            gradient = sums.get(row, np.zeros(table.dimension, np.float32))
            weights[row], slot[row] = step(rate, gradient, weights[row], (slot[row],))
    return weights, slot


@pytest.mark.fast(2)
@pytest.mark.sampled(6)
@pytest.mark.parametrize("cores", [1, 3, 8])
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize(
    "step, accumulates", [(adagrad, True), (adagrad, False), (momentum_of_all, True)]
)
@pytest.mark.parametrize("skewed", [False, True])
def test_a_step_equals_numpy(cores, packs, step, accumulates, skewed, library, eight_devices):
    """Compares activations, tables and slots, for repeated ids, sequences and weights.

    With `packs`, several rows share a row of the device's array. With `skewed`, ids are only 0 and
    1. With `accumulates`, the sum of all cores' gradients updates a row, else each of them does.
    """
    rng = np.random.default_rng(cores)
    # Tables of equal dimensions are in one stack, an array with the rows of all of them.
    tables = tables_of(library, (37, 11, 50), (5, 5, 3), step, accumulates)
    features = [library.DeviceFeature(f"of {table}", table) for table in "abc"]
    features.append(library.DeviceFeature("again of a", "a"))
    features.append(library.DeviceFeature("sequence of b", "b", 2))
    made = library.DeviceTables(tables, features, SAMPLES, cores, packs)
    by_name = {table.name: table for table in tables}
    values = {
        table.name: np.abs(rng.normal(size=(2, table.rows, table.dimension))).astype(np.float32)
        for table in tables
    }
    ids = {
        one.key: ids_of(rng, one, 2 if skewed else by_name[one.table].rows, "of a" in one.key)
        for one in features
    }
    gradients = {
        one.key: rng.normal(size=(SAMPLES, one.segments * by_name[one.table].dimension)).astype("f")
        for one in features
    }

    def array(stack, number, fill):
        of_tables = {name: both[number] for name, both in values.items()}
        return np.concatenate([stack.shard(core, of_tables, fill) for core in range(cores)])

    arrays = [[array(stack, *one) for one in enumerate(stack.fills)] for stack in made.stacks]
    arguments = arrays, ids, gradients, RATES
    activations, new = compiled(made, eight_devices[:cores], arguments)(*arguments)
    # The activation of a segment is the weighted sum of its rows.
    for feature in features:
        table = by_name[feature.table]
        expected = np.zeros((SAMPLES * feature.segments, table.dimension), np.float32)
        for id, segment, gain in occurrences(feature, ids[feature.key]):
            expected[segment] += values[table.name][0][id] * gain
        got = np.asarray(activations[feature.key])
        np.testing.assert_allclose(got, expected.reshape(SAMPLES, -1), rtol=1e-5, atol=1e-5)
    # Collects each table's rows and slots from the parts on all devices.
    found = {table.name: np.zeros_like(values[table.name]) for table in tables}
    for stack, of_stack in zip(made.stacks, new, strict=True):
        for number, array in enumerate(of_stack):
            for core, part in enumerate(np.split(np.asarray(array), cores)):
                stack.unshard(core, part, {name: both[number] for name, both in found.items()})
    for number, table in enumerate(tables):
        own = [one for one in features if one.table == table.name]
        given = values[table.name], RATES[number], step, cores, accumulates
        expected = updated_in_numpy(table, own, ids, gradients, *given)
        np.testing.assert_allclose(found[table.name], expected, rtol=1e-5, atol=1e-5)


ONE_MEMORY = {"xla_msa_enable": "false"}
"""Options that keep all buffers in the memory of a TPU's chip, where the compiler counts them.

Otherwise it moves buffers, even a small table, into the memory beside the cores without counting.
"""


def bytes_of_step_without_copies(library, devices, packs, step, rows, samples=512, options=None):
    """Asserts that a step copies none of its three tables. Returns its temporary bytes."""
    import jax

    dimension = 16
    tables = tables_of(library, [rows] * 3, [dimension] * 3, step)
    features = [library.DeviceFeature("of a", "a"), library.DeviceFeature("of b", "b")]
    made = library.DeviceTables(tables, features, samples, len(devices), packs)
    (stack,) = made.stacks

    def shape(*of_array, dtype="float32"):
        return jax.ShapeDtypeStruct(of_array, dtype)

    one, several = (shape(samples * ids, dtype="int32") for ids in (1, 4))
    array, gradient = shape(stack.packed * len(devices), stack.lanes), shape(samples, dimension)
    ids = {"of a": {"ids": one}, "of b": {"ids": several, "segments": several}}
    arguments = [[array, array]], ids, dict.fromkeys(ids, gradient), shape(3)
    program = compiled(made, devices, arguments, of_activations=True, options=options)
    assert_updated_in_place(program, [stack])
    return program.memory_analysis().temp_size_in_bytes


def assert_updated_in_place(program, stacks):
    """Asserts that each stack's arrays are updated in place, without a copy or transpose."""
    for stack in stacks:
        array = rf"f32\[{stack.packed},{stack.lanes}\]"
        assert not re.findall(rf"= {array}\S* (?:copy|copy-done|transpose)\(", program.as_text())
    size = sum(4 * stack.packed * stack.lanes * len(stack.fills) for stack in stacks)
    assert program.memory_analysis().alias_size_in_bytes >= size


def assert_bytes_do_not_grow_with_rows(bytes_of):
    """Asserts that `bytes_of(rows)` is the same for few and many rows, within ten percent."""
    few, many = map(bytes_of, (100_000, 10_000_000))
    print(f"{few}, {many} bytes")
    assert abs(many - few) < 0.1 * few


@pytest.mark.fast(2)
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("step", [adagrad, momentum_of_all])
def test_no_table_is_copied(packs, step, library, eight_devices):
    """Arrays are updated in place, and temporary memory does not depend on the vocabulary."""
    given = library, eight_devices[:1], packs, step
    assert_bytes_do_not_grow_with_rows(lambda rows: bytes_of_step_without_copies(*given, rows))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2", "v6e:2x4"])
@pytest.mark.parametrize(
    ("step", "samples"), [(adagrad, 512), (adagrad, 16384), (momentum_of_all, 512)]
)
def test_no_table_is_copied_on_a_tpu(topology, step, samples, library, tpu_devices):
    """Checks programs that the TPU compiler makes for 8 devices."""
    given = library, tpu_devices(topology), True, step
    # As compiled for users. Only ONE_MEMORY, below, makes the bytes comparable.
    bytes_of_step_without_copies(*given, 10_000_000, samples)
    assert_bytes_do_not_grow_with_rows(
        lambda rows: bytes_of_step_without_copies(*given, rows, samples, ONE_MEMORY)
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2", "v6e:2x4"])
def test_a_whole_step_copies_no_table_on_a_tpu(topology, library, tpu_devices, tmp_path):
    """Trains a step on CPU devices, and compiles it for a TPU with larger tables."""
    from estimator_emb.backends.xla import devices

    def noted(owner, name):  # Records the calls.
        real = getattr(owner, name)
        return mock.patch.object(owner, name, autospec=True, side_effect=real)

    with (
        noted(library, "DeviceTables") as made,
        noted(devices, "JittedStep") as steps,
        noted(devices.DeviceStep, "launch") as launched,
    ):
        emulated_program.trained(tmp_path, "pjrt+tables", 8, steps=1)
    ((tables, features), rest), (module, _, of_step) = made.call_args, steps.call_args_list[0].args
    ids, described = launched.call_args_list[0].kwargs["ids"], tpu_devices(topology)
    made.assert_called_once()

    def compiled_for(rows, options=None):
        larger = [dataclasses.replace(one, rows=rows) for one in tables]
        on_tpu = library.DeviceTables(larger, features, **{**rest, "packs": True})
        step = devices.JittedStep(module, described, dataclasses.replace(of_step, tables=on_tpu))
        program = step.ahead_of_time(ids, options)
        assert "all-reduce" in program.as_text()  # The whole step: it sums the model's gradients.
        assert_updated_in_place(program, on_tpu.stacks)
        return program.memory_analysis().temp_size_in_bytes

    compiled_for(100_000_000)  # Tables that do not fit beside the cores.
    assert_bytes_do_not_grow_with_rows(lambda rows: compiled_for(rows, ONE_MEMORY))


def test_refuses_more_rows_than_an_index_can_address(library, assert_recorded):
    """An index is an int32. Each of 2 devices would have 3 * 2**31 rows: half of two tables."""
    tables = tables_of(library, [3 * 2**31] * 2, [4] * 2, adagrad)
    refused = harness.refusal(ValueError, library.DeviceTables, tables, [], 8, 2)
    assert_recorded(refused)  # As in messages.json: it names the tables, their rows and the limit.
