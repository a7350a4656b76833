"""Compares tables in the memory of jax's devices with tables on the host.

    python benchmarks/devices.py [--platform=gpu] [--tables=8] [--vocabulary=100000]
        [--dimension=16] [--batch=512] [--ids 1 20] [--rounds=5]
    python benchmarks/devices.py --check [--platform=gpu]

It needs jax and NumPy, but not TensorFlow. The work is defined in `workload.py`: Adagrad, and ids
by Zipf's law. Plain rows are as wide as the table. Packed rows share a row of 128 floats, as on a
TPU. The first columns are for a single device and the ids that it owns. The last column is for all
devices together. A round is four calls, and only the last call is waited for. The figures are from
the best round. If a call takes hardly longer than an empty call, use a larger batch.

  sort         million ids per second, each with its place in the batch
  gather       million ids per second, with their rows read in ascending order
  scatter      million distinct rows per second, written in place
  step ms      lookup and update by `DeviceTables`, with each activation as its own gradient

The last lines say what decides between tables='host' and tables='device'. `embedding_step.py`
measures lookup and update on a host, as 'ours (native)'. Its --quick matches --ids=1 --tables=26
--batch=4096 here, and its --workloads='20 ids' matches --ids=20 --batch=4096.

With --check, it measures nothing, but compares the operations of a step, and ten steps, with NumPy
(`devices_check.py`). Run this first on a GPU or a TPU. The status is 1 if something is wrong.
"""

import argparse
import pathlib
import sys
import time

import devices_check
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from workload import INITIAL_ACCUMULATOR, LEARNING_RATE, Workload, positive

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "estimator_emb"
# By its folder, because importing the package would import TensorFlow.
sys.path.append(str(PACKAGE / "backends" / "xla"))
import device_tables  # noqa: E402

CALLS = 4


def seconds(rounds, call, state=None):
    """Returns the seconds of a call. Each call takes the result of the previous call."""
    state, best = jax.block_until_ready(call(state)), float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(CALLS):
            state = call(state)
        jax.block_until_ready(state)
        best = min(best, time.perf_counter() - start)
    return best / CALLS


def adagrad(rate, gradients, weights, slots):
    accumulator = slots[0] + gradients * gradients
    return weights - rate * gradients / jnp.sqrt(accumulator), accumulator


def tables_of(work, cores, packs):
    names = [f"table{number}" for number in range(work.tables)]
    size, initial = (work.vocabulary, work.dimension), (INITIAL_ACCUMULATOR,)
    tables = [device_tables.DeviceTable(name, *size, adagrad, "adagrad", initial) for name in names]
    features = [device_tables.DeviceFeature(name, name) for name in names]
    return device_tables.DeviceTables(tables, features, work.batch, cores, packs)


def rates_of(made, ids, device, rounds):
    """Returns rows per second of sort, gather and scatter on one device, the first of the mesh."""
    (stack,) = made.stacks
    own = [
        stack.base[name] + of[(of + stack.turn[name]) % stack.cores == 0] // stack.cores
        for name, of in ids.items()
    ]
    unsorted = np.concatenate(own).astype(np.int32)
    ascending, places = np.sort(unsorted), np.arange(len(unsorted), dtype=np.int32)
    distinct, packed = np.unique(unsorted), np.unique(unsorted // stack.pack)
    flags = {"unique_indices": True, "indices_are_sorted": True}
    sort = jax.jit(lambda *given: jax.lax.sort(given, num_keys=1))
    gather = jax.jit(lambda array, at: array.at[at].get(mode="fill", fill_value=0))
    scatter = jax.jit(lambda *given: given[0].at[given[1]].set(given[2], **flags), donate_argnums=0)
    put = [unsorted, places, ascending // stack.pack, packed]
    unsorted, places, ascending, packed = jax.device_put(put, device)
    array = jnp.zeros([stack.packed, stack.lanes], jnp.float32, device=device)
    values = jnp.ones([packed.size, stack.lanes], jnp.float32, device=device)
    return (
        unsorted.size / seconds(rounds, lambda _: sort(unsorted, places)),
        unsorted.size / seconds(rounds, lambda _: gather(array, ascending)),
        distinct.size / seconds(rounds, lambda array: scatter(array, packed, values), array),
    )


def step_of(made, mesh, ids, rounds):
    """Returns the seconds of a step on all devices."""

    def step(arrays, ids, rates):
        activations, kept = made.look_up(arrays, ids)
        return made.update(arrays, kept, activations, rates)

    same, by_core = PartitionSpec(), PartitionSpec("core")
    specs = {"in_specs": (by_core, by_core, same), "out_specs": by_core, "check_vma": False}
    jitted = jax.jit(jax.shard_map(step, mesh=mesh, **specs), donate_argnums=0)
    (stack,) = made.stacks
    shape, divided = (made.cores * stack.packed, stack.lanes), NamedSharding(mesh, by_core)
    arrays = [[jnp.full(shape, fill, jnp.float32, device=divided) for fill in stack.fills]]
    placed = jax.device_put(ids, divided)
    rates = np.full([len(stack.tables)], LEARNING_RATE, np.float32)
    return seconds(rounds, lambda arrays: jitted(arrays, placed, rates), arrays)


def sent(values, mesh, rounds):
    """Returns the seconds to send arrays of all samples to the devices."""
    divided = NamedSharding(mesh, PartitionSpec("core"))
    return seconds(rounds, lambda _: jax.device_put(values, divided))


def fetched(values, mesh, rounds):
    """Returns the seconds to fetch float arrays of all samples from the devices."""
    placed = jax.device_put(values, NamedSharding(mesh, PartitionSpec("core")))
    compute = jax.jit(lambda given: [one + 1 for one in given])
    best = float("inf")
    for _ in range(rounds):
        computed = jax.block_until_ready(compute(placed))  # jax caches fetched arrays.
        start = time.perf_counter()
        for one in computed:
            for shard in one.addressable_shards:
                np.asarray(shard.data)
        best = min(best, time.perf_counter() - start)
    return best


def given_of(work):
    """Returns the input of `DeviceTables.look_up`. With several ids, it has segments and gains."""
    given = {
        f"table{table}": {"ids": work.ids_of(table)[0].reshape(-1).astype(np.int32)}
        for table in range(work.tables)
    }
    if work.ids > 1:
        more = {
            "segments": np.repeat(np.arange(work.batch, dtype=np.int32), work.ids),
            "gains": np.full([work.batch * work.ids], 1 / work.ids, np.float32),
        }
        given = {name: {**one, **more} for name, one in given.items()}
    return given


def measure(work, mesh, rounds):
    """Prints the lines for a number of ids, and returns the comparison of 'host' and 'device'."""
    given = given_of(work)
    ids = {name: one["ids"] for name, one in given.items()}
    device, steps = mesh.devices[0], {}
    for layout in ("plain", "packed"):
        made = tables_of(work, mesh.size, layout == "packed")
        rates = rates_of(made, ids, device, rounds)
        steps[layout] = step_of(made, mesh, given, rounds)
        figures = "".join(f"{rate / 1e6:11.2f}" for rate in rates)
        print(f"{work.ids:4d}  {layout:8s}{figures}{steps[layout] * 1e3:11.2f}", flush=True)
    layout = "packed" if device.platform == "tpu" else "plain"
    activations = [np.zeros([work.batch, work.dimension], np.float32) for _ in ids]
    there, back = sent(activations, mesh, rounds), fetched(activations, mesh, rounds)
    of_ids, step = sent(given, mesh, rounds), steps[layout]
    return (
        f"ids per sample: {work.ids}\n"
        f"  tables='host'    moves activations to the devices, {told(activations, there)}\n"
        f"                   and gradients back, {told(activations, back)}\n"
        f"  tables='device'  moves ids to the devices, {told(given, of_ids)}\n"
        f"                   and takes {step * 1e3:.2f} ms of the devices, {layout}\n"
        f"  {verdict((there + back) * 1e3, (of_ids + step) * 1e3)}"
    )


def told(values, seconds):
    size = sum(one.nbytes for one in jax.tree.leaves(values))
    return f"{size / 1e6:.2f} MB in {seconds * 1e3:.2f} ms, {size / seconds / 1e9:.2f} GB/s"


def verdict(host: float, on_devices: float) -> str:
    """Returns which place is faster, by the milliseconds of a step without the host's own work."""
    if on_devices <= host:
        return "'device' is faster, whatever the host's lookup and update take."
    return (
        f"'host' is faster if its lookup and update take less than {on_devices - host:.2f} ms, "
        "and 'device' if they take more."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--platform", choices=["cpu", "gpu", "tpu"], help="default: jax's choice")
    parser.add_argument("--check", action="store_true", help="compares with NumPy")
    parser.add_argument("--tables", type=positive, default=8)
    parser.add_argument("--vocabulary", type=positive, default=100_000)
    parser.add_argument("--dimension", type=positive, default=16)
    parser.add_argument("--batch", type=positive, default=512, help="of all devices")
    parser.add_argument("--ids", type=positive, nargs="+", default=[1, 20], help="per sample")
    parser.add_argument("--rounds", type=positive, default=5)
    options = parser.parse_args()
    if options.platform == "cpu":  # Otherwise jax looks for a TPU too.
        jax.config.update("jax_platforms", "cpu")
    devices = jax.local_devices(backend=options.platform)
    if options.batch % len(devices):
        parser.error(f"--batch: {options.batch} is no multiple of {len(devices)} devices")
    first, mesh = devices[0], Mesh(np.array(devices), ("core",))
    if options.check:
        print(f"jax {jax.__version__}, {len(devices)} x {first.device_kind} ({first.platform})")
        devices_check.main(mesh, device_tables)
    empty = jax.jit(lambda one: one + 1)
    nothing = seconds(options.rounds, empty, jnp.zeros([], device=first)) * 1e3
    print(
        f"jax {jax.__version__}, {len(devices)} x {first.device_kind} ({first.platform})\n"
        f"{options.tables} tables of {options.vocabulary:,} x {options.dimension}, batches of "
        f"{options.batch}; an empty call takes {nothing:.3f} ms"
    )
    if first.platform == "cpu":
        print("CPU devices are a proxy: what they show holds for no GPU and no TPU.")
    print(" ids  layout    sort M/s gather M/s scatter M/s   step ms", flush=True)
    size = options.tables, options.vocabulary, options.dimension, options.batch
    print(*[measure(Workload(*size, ids), mesh, options.rounds) for ids in options.ids], sep="\n")


if __name__ == "__main__":
    main()
