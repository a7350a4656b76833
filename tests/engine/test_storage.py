"""Tables in shards: initial values, spread over servers, names and devices. Their memory."""

import collections
import itertools
import sys

import harness
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import estimator_emb as ee
from estimator_emb.engine import inputs
from estimator_emb.engine.kernels import TensorFlowKernels
from estimator_emb.engine.ordering import structure
from estimator_emb.engine.tables import creation, sizes, storage, variable_names
from estimator_emb.engine.tables.partition import FEW_ROWS, Partition, dealt, rounds_for
from estimator_emb.spec.resolved import Feature, Table

v1 = tf.compat.v1


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 70), st.sampled_from(["div", "mod"]))
def test_shards_follow_div_and_mod(rows, shards, strategy):
    """'div' gives a shard consecutive ids, 'mod' every n-th. Places are in concatenated shards."""
    partition, every = Partition(rows, shards, strategy), np.arange(rows)
    of_shards = np.array_split(every, shards)
    if strategy == "mod":
        of_shards = [every[shard::shards] for shard in range(shards)]
    assert [len(ids) for ids in of_shards] == partition.sizes
    for ids, start in zip(of_shards, partition.starts, strict=True):
        np.testing.assert_array_equal(partition.places(ids), start + np.arange(len(ids)))


@given(st.integers(1, 10**9), st.integers(1, 70), st.integers(1, 4))
def test_servers_get_equal_shares_of_rows(rows, servers, rounds):
    """`dealt` cuts a table into slices for the servers in turn, one per server in each round."""
    sizes = dealt(rows, servers, rounds)
    even = Partition(rows, min(servers, rows)).sizes
    assert min(sizes) > 0
    assert [sum(sizes[server::servers]) for server in range(len(even))] == even
    if rounds == 1 or rows < FEW_ROWS:
        assert sizes == even
    elif rows >= 1000 * servers and 1 < servers <= 16:  # Enough rows for slices in all rounds.
        before_last = sizes[:-servers]
        assert len(sizes) == rounds * servers
        assert all(2 * size >= before for before, size in itertools.pairwise(before_last))


def test_slices_of_a_table_with_many_rows_grow_before_the_last_round():
    """By Zipf's law, batches read slices that are equal in log(1 + row / 10) about equally often.

    The last round fills each server up to its even share, with a tenth of that share or more.
    """
    assert dealt(FEW_ROWS - 1, 2, 4) == [500, 499]  # Few rows are cut evenly.
    *before_last, of_first, of_second = dealt(rows=1000, servers=2, rounds=4)
    assert before_last == [10, 21, 41, 85, 170, 343]
    logs = np.log1p(np.cumsum([0, *before_last]) / 10)
    np.testing.assert_allclose(np.diff(logs), logs[-1] / 6, rtol=0.03)  # Sizes are rounded.
    assert of_first == 500 - (10 + 41 + 170) and of_second == 500 - (21 + 85 + 343)
    assert dealt(1000, 2, 2) == [62, 448, 438, 52]  # Likewise, in fewer rounds.
    assert dealt(1200, 2, 2) == [68, 532, 600 - 68, 600 - 532]  # A larger half would leave < 60.
    assert dealt(1000, 2, 3) == [18, 51, 142, 399, 340, 50]
    assert dealt(1500, 2, 3) == [21, 64, 196, 604, 533, 82]
    assert len(dealt(1000, 20, 4)) == 3 * 20  # A fourth round would give an empty slice.


def test_many_tables_need_fewer_rounds():
    """Servers get the first slices of tables in turn, so many tables balance the servers anyway."""
    assert rounds_for(tables=1, servers=1) == 1  # A single server needs no balance.
    # A table per server makes two of four rounds enough, five tables per server a single round.
    assert [rounds_for(tables, servers=2) for tables in (1, 2, 9, 10)] == [4, 2, 2, 1]


def table_of(vocabulary, initializer=None, dimension=3, optimizer=None):
    config = ee.TableConfig(vocabulary, dimension, initializer=initializer)
    return Table("t", config, (), optimizer=optimizer)


def begun(table, rounds=1):
    """Returns the initial values of the shards of a table on three servers."""
    with tf.Graph().as_default(), v1.Session() as session:
        made = storage.create(table, "t", False, 3, rounds=rounds)
        session.run(v1.global_variables_initializer())
        return session.run([one.weights for one in made])


WHOLE = np.arange(21, dtype=np.float32).reshape(7, 3)


def by_place(shape, dtype=tf.float32, partition_info=None):
    """An initializer that uses partition_info, as some in legacy programs do."""
    assert partition_info.full_shape == [7, 3]
    start = partition_info.var_offset[0]
    return tf.constant(WHOLE[start : start + shape[0]], dtype)


@pytest.mark.parametrize(
    "initializer",
    [
        v1.constant_initializer(WHOLE),
        tf.constant_initializer(WHOLE),
        tf.constant_initializer(WHOLE.tolist()),
        lambda shape, dtype=tf.float32: tf.constant(WHOLE, dtype),
        by_place,
    ],
    ids=["v1 constant", "v2 constant", "list", "whole table", "partition_info"],
)
def test_shards_get_the_tables_initial_values(initializer):
    got = begun(table_of(7, initializer))
    assert [len(one) for one in got] == Partition(7, 3).sizes
    np.testing.assert_array_equal(np.concatenate(got), WHOLE)


@pytest.mark.fast(5)
@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize(
    "kind",
    [
        v1.truncated_normal_initializer,
        v1.random_uniform_initializer,
        tf.random_normal_initializer,
        tf.keras.initializers.TruncatedNormal,
        tf.keras.initializers.GlorotUniform,
    ],
    ids=lambda kind: f"{kind.__module__.split('.')[0]} {kind.__name__}",
)
def test_shards_have_different_random_rows(kind, seed):
    got = np.concatenate(begun(table_of(9, kind(seed=seed))))
    assert len(np.unique(got)) == got.size


@pytest.mark.parametrize(
    "initializer, most",
    [
        # Glorot's largest value is (6 / (rows + columns)) ** 0.5. A server has 1000 rows.
        (tf.compat.v1.glorot_uniform_initializer(), (6 / (3000 + 3)) ** 0.5),
        (tf.keras.initializers.GlorotUniform(seed=3), (6 / (1000 + 3)) ** 0.5),
        (lambda shape, dtype: tf.random.uniform(shape, -1, 1, dtype) / shape[0], 1 / 1000),
    ],
    ids=["v1", "keras", "function"],
)
def test_shape_dependent_initial_values_do_not_depend_on_slices(initializer, most):
    """The values depend on the shape of the table, or of its part on one of three servers."""
    got = begun(table_of(3000, initializer), rounds=4)
    assert len(got) == 3 * 4 and len(got[0]) < 10  # Servers * rounds. The first slices are small.
    values = np.concatenate(got)
    assert values.shape == (3000, 3)
    assert 0.99 * most < np.max(np.abs(values)) < 1.001 * most


def test_orthogonal_initial_values_do_not_depend_on_slices():
    """On each of three servers, the three columns of the table have a norm near 1."""
    initializer = v1.orthogonal_initializer(seed=3)
    squares = np.square(np.concatenate(begun(table_of(3000, initializer), rounds=4)))
    assert squares.sum() == pytest.approx(3 * 3, rel=0.1)


@pytest.mark.fast(1)
@pytest.mark.parametrize("servers", [8, 2])
@pytest.mark.parametrize(
    "rows",
    [[100_000], [10_000] * 3, [3_000, 50, 400_000, 20_000, 700, 60_000], [20_000] * 13],
    ids=["one", "three", "unequal", "many"],
)
def test_rows_of_a_batch_are_spread_over_servers(rows, servers):
    """Rows are sorted by frequency (Zipf exponent 1.05) or uniform. 1.2 shares are the limit."""
    setter = tf.compat.v1.train.replica_device_setter(ps_tasks=servers)
    tables = [
        Table(f"t{number}", ee.TableConfig(count, 1), ()) for number, count in enumerate(rows)
    ]
    with tf.Graph().as_default(), v1.device(setter):
        made = creation.create(tables, False, False, servers)
    rng = np.random.default_rng(0)
    for exponent in (1.05, 0):
        found = collections.Counter()
        for count, table in zip(rows, made, strict=True):
            shares = np.arange(1, count + 1) ** -exponent
            batch = np.unique(rng.choice(count, 4096, p=shares / shares.sum()))
            ends = np.cumsum([shard.weights.shape[0] for shard in table.variables])
            assert ends[-1] == count
            for shard in np.searchsorted(ends, batch, side="right"):
                found[table.variables[shard].weights.device] += 1
        assert len(found) == servers
        assert max(found.values()) <= 1.2 * sum(found.values()) / servers, (exponent, found)


def test_a_constant_initializer_gives_its_value_in_each_run():
    with tf.Graph().as_default(), v1.Session() as session:
        value = storage.constant(3.0)([])
        assert {float(session.run(value)) for _ in range(30)} == {3.0}


def test_new_words_get_whole_rows_though_tensorflow_asks_for_values():
    by_column = lambda shape, dtype: tf.broadcast_to(tf.constant([1, 2, 3], dtype), shape)  # noqa: E731
    values = storage.InitialRows(ee.TableConfig(9, 3, by_column))([6, 1])
    assert values.numpy().tolist() == [[1], [2], [3], [1], [2], [3]]


def test_a_table_shares_no_variable_with_the_model():
    with tf.Graph().as_default():
        v1.get_variable("t", [], collections=[])
        said = harness.refusal(ValueError, variable_names.variable_names, [table_of(3)], {})
    assert said.startswith("Table 't' would share the variable 't' with model_fn, ")


def test_shards_lie_on_the_parameter_servers_with_their_slots():
    """A worker gathers rows on the server of their shard, so that it gets only these rows."""
    setter = tf.compat.v1.train.replica_device_setter(
        ps_tasks=3, worker_device="/job:worker/task:1"
    )
    with tf.Graph().as_default() as graph, tf.compat.v1.device(setter):
        table = table_of(5, optimizer=ee.AdamParameters(0.1))
        made = storage.create(table, "t", name_as_part=False, servers=2)
        read = storage.read_table(made, tf.constant([1, 4]))
        # Server 2 is next in turn, so the server two places later is server 1.
        after = storage.create(table_of(3000), "after", False, servers=3, first_server=2)
        gathers = [one.device for one in graph.get_operations() if one.type == "ResourceGatherNd"]
        whole = storage.StoredTable(**vars(table), variables=storage.create(table, "w", False))
        kernels = TensorFlowKernels([whole], 1, None)
        source = inputs.source_of(table, Feature("x"), {"x": tf.constant([1, 4])})
        assert len(list(kernels.lookup(inputs.Batch([source], {}, None), [source]))) == 1
        update = kernels.update(iter([tf.ones([2, 3])]), [tf.constant(0.1)])
        types = [op.type for op in structure.leading_to([update], {})]
    servers = ["/job:ps/task:0", "/job:ps/task:1"]
    assert [one.weights.device for one in made] == servers
    assert [one.weights.device for one in after] == [servers[1], "/job:ps/task:2", servers[0]]
    assert all(one.shared for one in made)  # Other workers may write the rows too.
    slots = [[slot.device for slot in one.slots] for one in made]
    assert slots == [[server] * 2 for server in servers]  # Adam has two slots.
    assert gathers == servers
    # A lookup reads weights. Weights and slots are read under the mutex, after other trainers.
    assert (types.count("ResourceGatherNd"), types.count("ConsumeMutexLock")) == (4, 1)
    assert read.device == "/job:worker/task:1"


# Tables that the machine cannot hold are refused before anything is allocated.


def estimator(model_dir, device):
    tables = {"large": ee.TableConfig(250_000, 10), "small": ee.TableConfig(10, 10)}
    spec = harness.tables_spec(tables, ee.AdamParameters(0.1))
    model_fn = harness.gradient_model_fn(["large"])
    return harness.estimator(model_fn, spec, model_dir, 8, device, run={})


IDS = np.zeros([8, 1], np.int64)
GRADIENTS = {"large": np.zeros([8, 10], np.float32)}
both = harness.input_fn_of([({"large": IDS, "small": IDS}, GRADIENTS)])
# 250,000 rows of 10 float32 numbers take 10 MB, and as much again for each of Adam's two slots.
NEEDS = "The embedding tables need 30.0 MB with slots, and this machine has 25.0 MB of memory."
SERVERS = "divide them over parameter servers on several machines"


@pytest.mark.parametrize(  # Only use_tpu=False, here of device None, trains with servers.
    ("device", "divide"), [(None, SERVERS), ("host", f"{SERVERS}, with use_tpu=False")]
)
def test_tables_larger_than_memory_are_refused(
    device, divide, tmp_path, monkeypatch, caplog, assert_recorded
):
    caplog.set_level("INFO", "estimator_emb")
    monkeypatch.setattr(sizes, "machine_memory", lambda: 25_000_000)
    message = harness.refusal(MemoryError, estimator(tmp_path, device).train, both, max_steps=2)
    assert message.startswith(NEEDS) and divide in message
    assert_recorded(message)
    size = "2 tables, 250,010 rows, 2,500,100 parameters, 30.0 MB with slots (Adam x 2)"
    assert f"Embedding tables train on the host: {size}." in harness.said(caplog)
    assert not list(tmp_path.glob("*.ckpt*"))
    monkeypatch.setattr(sizes, "machine_memory", lambda: 9_000_000)  # Predictions need no slots.
    message = harness.refusal(MemoryError, next, estimator(tmp_path, device).predict(both))
    assert message.startswith("The embedding tables need 10.0 MB, and this machine has 9.0 MB of ")
    monkeypatch.setattr(sizes, "machine_memory", lambda: 7 * 3 * 4)  # Exactly one table's bytes.
    sizes.check_fits([table_of(7, dimension=3)], training=False, divide="")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8 << 30),  # The physical memory: 4096 bytes in each of 2 << 20 pages.
        ({"/proc/meminfo": "MemTotal: 1 kB\nSwapTotal:    1024 kB\n"}, (8 << 30) + 1024 * 1024),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, 8 << 30),
        ({"/sys/fs/cgroup/memory.max": "1000000\n"}, 1_000_000),
        # Version 1 of cgroups writes this number if there is no limit.
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8 << 30),
    ],
)
def test_machine_memory_counts_swap_and_cgroup_limits(files, expected, monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2 << 20}
    monkeypatch.setattr(sizes.os, "sysconf", pages.__getitem__)

    def read_text(path):
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(sizes.pathlib.Path, "read_text", read_text)
    assert sizes.machine_memory() == expected


def test_machine_memory_of_this_machine_is_plausible():
    assert sizes.machine_memory() > 1 << 28  # 256 MiB.


def test_physical_memory_is_endless_if_the_system_does_not_report_it(monkeypatch):
    monkeypatch.setattr(sizes.os, "sysconf", lambda name: 0)
    assert sizes.physical() == sys.maxsize  # The system does not report it.
    monkeypatch.delattr(sizes.os, "sysconf")
    assert sizes.physical() == sys.maxsize
