"""Measures the memory and the checkpoints of trainings with large tables.

    python benchmarks/large_tables.py [--gigabytes=1]

It trains that many gigabytes of tables with `TPUEstimator.train` under Adagrad, which adds a slot
of the same size. Each input form trains without checkpoints. A last training writes a checkpoint
and restores it.

  peak      the most memory that the process had to itself, with tables and slots. It excludes pages
            of files such as TensorFlow's libraries, which the system shares and takes back as it
            likes. It may be 1.15 times tables and slots, plus 300 MB. Read every 5 ms.
  resident  the most resident memory, with those pages
  save      seconds to write the checkpoint, and to write as many bytes to a plain file
  look      seconds to look for NaN before the checkpoint is written
  restore   seconds to read the checkpoint, and the plain file, without the file cache

Before each of these starts, pending writes are flushed to disk. At its end, nothing waits for the
disk. Each may take 1.5 times as long as the plain file.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from workload import apart

DIMENSION, TABLES, BATCH, IDS, STEPS = 64, 8, 4096, 5, 6
ROUNDS = 3
FORMS = ("dense", "matrix", "sparse", "ragged", "weighted", "sequence")


def train(form: str, gigabytes: float, checkpoint: bool) -> dict[str, float]:
    """Trains in this process and returns its figures."""
    import numpy as np
    import tensorflow as tf

    import estimator_emb as ee
    from estimator_emb.guards import numbers

    tf.compat.v1.logging.set_verbosity("ERROR")
    vocabulary = int(gigabytes * 1e9 / TABLES / DIMENSION / 4)
    keys = [f"t{table}" for table in range(TABLES)]
    spent = collections.defaultdict(list)

    def timed(owner, method, name):
        original = getattr(owner, method)

        def run(self, *args, **kwargs):
            settle(folder)
            start = time.perf_counter()
            result = original(self, *args, **kwargs)
            spent[name].append(time.perf_counter() - start)
            return result

        setattr(owner, method, run)

    timed(tf.compat.v1.train.Saver, "save", "save")
    timed(tf.compat.v1.train.Saver, "restore", "restore")
    timed(numbers._Looks, "before_save", "look")

    def input_fn(params):
        rng = np.random.default_rng(0)
        ids = rng.integers(0, vocabulary, [TABLES, BATCH, IDS])

        def features():
            features_of_batch = {}
            for key, table_ids in zip(keys, ids, strict=True):
                if form == "dense":
                    features_of_batch[key] = tf.constant(table_ids[:, 0])
                elif form == "matrix":
                    features_of_batch[key] = tf.constant(table_ids)
                elif form == "ragged":
                    features_of_batch[key] = tf.RaggedTensor.from_tensor(table_ids)
                else:
                    features_of_batch[key] = tf.sparse.from_dense(table_ids + 1)
                    sparse = features_of_batch[key]
                    features_of_batch[key] = tf.SparseTensor(
                        sparse.indices, sparse.values - 1, sparse.dense_shape
                    )
                    if form == "weighted":
                        features_of_batch[f"{key}_w"] = tf.cast(sparse, tf.float32)
            return features_of_batch

        return tf.data.Dataset.from_tensors(features()).repeat()

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_mean(tf.square(features[key] - 1.0)) for key in keys])
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    with tempfile.TemporaryDirectory(prefix="large_tables") as folder:
        estimator = ee.TPUEstimator(
            model_fn,
            config=ee.RunConfig(
                model_dir=folder,
                save_checkpoints_steps=STEPS if checkpoint else None,
                save_checkpoints_secs=None,
                save_summary_steps=None,
                log_step_count_steps=None,
            ),
            use_tpu=False,
            train_batch_size=BATCH,
            embedding_config_spec=ee.EmbeddingConfigSpec(
                feature_to_config_dict={
                    key: ee.FeatureConfig(
                        key,
                        max_sequence_length=IDS if form == "sequence" else 0,
                        weight_key=f"{key}_w" if form == "weighted" else None,
                    )
                    for key in keys
                },
                table_to_config_dict={
                    key: ee.TableConfig(
                        vocabulary, DIMENSION, tf.compat.v1.random_uniform_initializer(-0.1, 0.1)
                    )
                    for key in keys
                },
                optimization_parameters=ee.AdagradParameters(0.1),
            ),
        )
        with own_memory() as own:
            estimator.train(input_fn, steps=STEPS)
            if checkpoint:
                estimator.train(input_fn, steps=STEPS)  # Restores the checkpoint.
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        if checkpoint:
            for _ in range(ROUNDS):
                estimator.train(input_fn, steps=STEPS)
                plain(estimator.latest_checkpoint(), spent)
    seconds = {name: statistics.median(times) for name, times in spent.items()}
    return {"peak": max(own), "resident": resident, **seconds}


@contextlib.contextmanager
def own_memory() -> Iterator[list[float]]:
    """Yields a list that collects the megabytes of memory that no file backs. Linux only."""
    sizes: list[float] = []
    done = threading.Event()

    def watch():
        while not done.wait(0.005):
            status = pathlib.Path("/proc/self/status").read_text()
            sizes.append(int(status.split("RssAnon:")[1].split()[0]) * 1024 / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield sizes
    finally:
        done.set()
        watcher.join()


def plain(checkpoint: str, spent: dict[str, list[float]]) -> None:
    """Adds to `spent` the seconds to write and read a plain file as large as a checkpoint."""
    import numpy as np

    folder, prefix = os.path.split(checkpoint)
    size = sum(file.stat().st_size for file in pathlib.Path(folder).glob(f"{prefix}.data*"))
    values = np.random.default_rng(0).random(size // 4, np.float32)
    path = os.path.join(folder, "plain")
    settle(folder)
    start = time.perf_counter()
    values.tofile(path)
    spent["write"].append(time.perf_counter() - start)
    settle(folder)
    start = time.perf_counter()
    with open(path, "rb") as file:
        file.readinto(values)
    spent["read"].append(time.perf_counter() - start)
    os.remove(path)


def settle(folder: str) -> None:
    """Flushes pending writes to disk, and drops the folder's files from the cache."""
    os.sync()
    for path in pathlib.Path(folder).iterdir():
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    parser.add_argument("--run", choices=FORMS, help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(train(options.run, options.gigabytes, options.checkpoint)))
        return
    size = 2000 * options.gigabytes
    limit = 1.15 * size + 300
    print(f"tables and slots {size:.0f} MB, limit {limit:.0f} MB")

    def measured(name: str, *arguments: str) -> dict[str, float]:
        figures = apart(__file__, *arguments, f"--gigabytes={options.gigabytes}")
        verdict = "above the limit" if figures["peak"] > limit else ""
        print(
            f"{name:12s} peak {figures['peak']:7.0f} MB, resident {figures['resident']:7.0f} MB",
            verdict,
            flush=True,
        )
        return figures

    for form in options.forms:
        measured(form, f"--run={form}")
    took = measured("checkpoints", "--run=dense", "--checkpoint")
    for ours, theirs in (("save", "write"), ("restore", "read")):
        ratio = took[ours] / took[theirs]
        print(f"{ours:8s} {took[ours]:6.2f} s, {theirs} {took[theirs]:6.2f} s, ratio {ratio:.2f}")
    print(f"look     {took['look']:6.2f} s")


if __name__ == "__main__":
    main()
