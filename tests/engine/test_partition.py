import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from estimator_emb.engine.tables.partition import FEW_ROWS, Partition, dealt


@given(st.integers(1, 60), st.integers(1, 70), st.sampled_from(["div", "mod"]))
def test_shards_follow_div_and_mod(rows, shards, strategy):
    partition, every = Partition(rows, shards, strategy), np.arange(rows)
    of_shards = np.array_split(every, shards)
    if strategy == "mod":
        of_shards = [every[shard::shards] for shard in range(shards)]
    assert [len(ids) for ids in of_shards] == partition.sizes
    for ids, start in zip(of_shards, partition.starts, strict=True):
        np.testing.assert_array_equal(partition.places(ids), start + np.arange(len(ids)))


@given(st.integers(1, 10**9), st.integers(1, 70), st.integers(1, 4))
def test_servers_get_equal_shares_of_rows(rows, servers, rounds):
    sizes = dealt(rows, servers, rounds)
    even = Partition(rows, min(servers, rows)).sizes
    assert min(sizes) > 0
    assert [sum(sizes[server::servers]) for server in range(len(even))] == even
    if rounds == 1 or rows < FEW_ROWS:
        assert sizes == even
    elif rows >= 1000 * servers and 1 < servers <= 16:
        before_last = sizes[:-servers]
        assert len(sizes) == rounds * servers
        assert all(2 * size >= before for before, size in itertools.pairwise(before_last))
