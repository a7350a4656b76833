"""A step asks the system for large pages for the tables' memory."""

import pathlib
import re

import host_engine
import numpy as np
import processes
import pytest
import tensorflow as tf

from estimator_emb.native import ops

SYSTEM_HAS_THEM = pathlib.Path("/sys/kernel/mm/transparent_hugepage").exists()
PAGE = 2 << 20
TABLES = 6
IDS = np.array([0, 7_999, 5_000, 7_999, 7])


def asked_for():
    """Returns how many bytes of this process want large pages (`hg` of proc(5))."""
    text = pathlib.Path("/proc/self/smaps").read_text()
    ranges = re.findall(r"^Size: +(\d+) kB.*?^VmFlags:(.*?)$", text, re.MULTILINE | re.DOTALL)
    return sum(int(size) * 1024 for size, flags in ranges if "hg" in flags.split())


def start(rows):
    """Returns the first table's values: whole numbers below 1999, so that all sums are exact."""
    return np.arange(rows * 16, dtype=np.float32).reshape(-1, 16) % 1999


def step(native, rows):
    """Returns activations, tables after subtracting 1 for each of IDS, and the bytes asked for."""
    features = host_engine.fields_of_features(TABLES, tf.constant(IDS))
    fed = tf.compat.v1.placeholder(tf.float32, [rows, 16])
    # The sum gets its own memory, as the result of an initializer does.
    tables = [tf.compat.v1.Variable(fed + float(table)) for table in range(TABLES)]
    activations, _, update = host_engine.looked_up_and_descended(native, tables, features)
    with tf.compat.v1.Session() as session:
        session.run([table.initializer for table in tables], {fed: start(rows)})
        before = asked_for() if SYSTEM_HAS_THEM else 0
        looked_up, _ = session.run([activations, update])
        asked = asked_for() - before if SYSTEM_HAS_THEM else 0
        return looked_up, session.run(tables), asked


def test_tables_on_large_pages_keep_their_rows(native):
    with tf.Graph().as_default():
        activations, tables, _ = step(native, 40_000)  # 2.4 MiB a table, more than a page.
    for table in range(TABLES):
        want = start(40_000) + table
        np.testing.assert_array_equal(activations[table], want[IDS])
        np.subtract.at(want, IDS, np.float32(1))
        np.testing.assert_array_equal(tables[table], want)


def show():
    for rows in (8_000, 100_000):
        with tf.Graph().as_default():
            print(step(ops.load(), rows)[2])


@pytest.mark.slow
@pytest.mark.skipif(not SYSTEM_HAS_THEM, reason="this system gives no large pages on demand")
def test_a_table_asks_for_pages_that_it_half_fills(native):
    # Run in a new process, because its memory is unused.
    done = processes.run("import test_large_pages; test_large_pages.show()")
    few, many = map(int, done.stdout.split()[-2:])
    # 0.49 MiB a table. Rounded to pages, one of six such neighbours would still get a page.
    assert few == 0
    # 6.1 MiB a table. Its ends, rounded to pages of 2 MiB, are 3 or 4 pages apart.
    assert 3 * TABLES * PAGE <= many <= 4 * TABLES * PAGE
