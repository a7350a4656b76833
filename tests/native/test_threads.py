"""Several trainers and a reader use the same tables at once, as workers of a server do.

A step subtracts 1 from a row for each occurrence of its id. So the tables at the end do not depend
on the order of the steps, and a lost or doubled update shows. The few rows are long, so that two
updates without a lock meet in a row.
"""

import threading
from concurrent import futures

import host_engine
import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
TABLES, ROWS, DIMENSION, SAMPLES = 2, 3, 1 << 15, 30
STEPS = 100


@pytest.mark.slow
@pytest.mark.parametrize("trainers", [1, 4])
def test_concurrent_trainers_lose_no_update(trainers, native):
    threads = v1.ConfigProto(inter_op_parallelism_threads=4, intra_op_parallelism_threads=4)
    batches = np.random.default_rng(0).integers(0, ROWS, [trainers, SAMPLES])
    counts = [np.bincount(batch, minlength=ROWS) for batch in batches]
    failed, ends = [], threading.Event()
    with tf.Graph().as_default(), v1.Session(config=threads) as session:
        ids = v1.placeholder(tf.int64, [SAMPLES])
        tables = [
            v1.get_variable(f"t{table}", initializer=tf.zeros([ROWS, DIMENSION]), use_resource=True)
            for table in range(TABLES)
        ]
        features = host_engine.fields_of_features(TABLES, ids)
        activations, _, update = host_engine.looked_up_and_descended(native, tables, features)
        # Every 1000th number of a row is enough.
        looked_up = [activation[:, ::1000] for activation in activations]
        read = [table.read_value()[:, ::1000] for table in tables]
        session.run(v1.global_variables_initializer())

        def train(batch, count):
            for step in range(STEPS):
                for found in session.run([looked_up, update], {ids: batch})[0]:
                    # Other trainers may take any number of steps in between.
                    want = -step * count[batch][:, None] if trainers == 1 else np.round(found)
                    failed.extend(found[found != want])

        def look():
            while not ends.is_set():
                failed.extend(value for one in session.run(read) for value in one[one % 1 != 0])

        with futures.ThreadPoolExecutor(trainers + 1) as pool:
            reading = pool.submit(look)
            try:
                list(pool.map(train, batches, counts))
            finally:
                ends.set()
            reading.result()  # Raises an error of the reader.
        trained = session.run(tables)
    assert not failed
    for table in trained:
        np.testing.assert_array_equal(table, np.tile(-STEPS * sum(counts)[:, None], DIMENSION))
