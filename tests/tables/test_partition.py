# SPDX-License-Identifier: Apache-2.0
import itertools

import harness
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator_emb.tables.partition import FEW_ROWS, Partition, dealt

_some = st.builds(
    Partition,
    st.integers(1, 60),
    st.integers(1, 70),
    st.sampled_from(["div", "mod"]),
)


def test_sizes_of_thirteen_rows_over_five_shards():
    assert Partition(13, 5).sizes == [3, 3, 3, 2, 2]
    assert Partition(13, 5).starts == [0, 3, 6, 9, 11]
    assert Partition(13, 5).ids(3).tolist() == [9, 10]
    assert Partition(13, 5, "mod").ids(3).tolist() == [3, 8]


@settings(deadline=None)
@given(_some)
def test_every_id_has_one_row_and_shards_have_the_sizes(partition):
    parts = [partition.ids(shard) for shard in range(partition.shards)]
    assert [len(part) for part in parts] == partition.sizes
    assert sorted(np.concatenate(parts).tolist()) == list(range(partition.vocabulary_size))


@settings(deadline=None)
@given(_some)
def test_mod_and_div_place_an_id_as_their_names_say(partition):
    everything = np.arange(partition.vocabulary_size)
    np.testing.assert_array_equal(partition.places(everything[2:5]), partition.places()[2:5])
    for shard in range(partition.shards):
        for row, i in enumerate(partition.ids(shard).tolist()):
            assert partition.places()[i] == partition.starts[shard] + row
            if partition.strategy == "mod":
                assert (i % partition.shards, i // partition.shards) == (shard, row)
            else:
                assert partition.places()[i] == i


@settings(deadline=None)
@given(st.integers(1, 10**9), st.integers(1, 70), st.integers(1, 4))
def test_servers_hold_as_many_rows_whatever_is_dealt(rows, servers, rounds):
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 2, "hash"), "partition strategy must be 'div' or 'mod'; got 'hash'."),
        ((0, 2), "vocabulary_size must be at least 1; got 0."),
        ((3, 0), "shards must be at least 1; got 0."),
    ],
)
def test_bad_values_are_refused(arguments, message):
    assert harness.refusal(ValueError, Partition, *arguments) == message
