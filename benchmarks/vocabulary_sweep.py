# SPDX-License-Identifier: Apache-2.0
"""Cost of a training step against the size of the table, and memory against its bytes.

    python benchmarks/vocabulary_sweep.py

One table of dimension 16 under Adagrad, batch 4096, ids drawn by Zipf's law (exponent 1.05),
through `TPUEstimator.train` on the host. A step must cost what its ids cost, whatever the
vocabulary: no copy of the table per step, no constant of its size. Each line is a process of its
own.

  vocabulary   table's rows
  distinct     rows that a batch touches: those a step must read and write
  ms           median wall time of a step, in rounds of 20 steps
  cpu ms       user and system time of the process in the same steps, per step
  ratio        ms against the smallest vocabulary of the same number of ids
  MB           the table and its slot
  peak MB      peak resident memory, less that of a run with a table of 1000 rows
  peak/MB      the ratio of the two
"""

import json
import resource
import subprocess
import sys
import time

VOCABULARIES = (10_000, 100_000, 1_000_000, 10_000_000)
DIMENSION = 16
BATCH = 4096
STEPS_PER_ROUND, ROUNDS = 20, 7


def measure(vocabulary: int, ids_per_sample: int) -> dict[str, float]:
    """Trains in this process and returns its figures."""
    import numpy as np
    import tensorflow as tf

    import estimator_emb as ee

    tf.compat.v1.logging.set_verbosity("ERROR")
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.zipf(1.05, [32, BATCH * ids_per_sample]), 2**62) % vocabulary
    ids = ids.astype(np.int64).reshape([32, BATCH, ids_per_sample])

    def input_fn(params):
        features = {"ids": ids if ids_per_sample > 1 else ids[:, :, 0]}
        return tf.data.Dataset.from_tensor_slices(features).repeat()

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.square(features["ids"] - 1.0))
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    rounds: list[tuple[float, float]] = []

    class Clock(tf.compat.v1.train.SessionRunHook):
        def begin(self):
            self.steps = 0

        def after_run(self, run_context, run_values):
            if self.steps % STEPS_PER_ROUND == 0:
                used = resource.getrusage(resource.RUSAGE_SELF)
                rounds.append((time.perf_counter(), used.ru_utime + used.ru_stime))
            self.steps += 1

    estimator = ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
            save_summary_steps=None,
            log_step_count_steps=None,
        ),
        use_tpu=False,
        train_batch_size=BATCH,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_to_config_dict={"ids": ee.FeatureConfig("table")},
            table_to_config_dict={"table": ee.TableConfig(vocabulary, DIMENSION)},
            optimization_parameters=ee.AdagradParameters(0.1),
        ),
    )
    estimator.train(input_fn, steps=(ROUNDS + 1) * STEPS_PER_ROUND + 1, hooks=[Clock()])
    per_step = np.diff(rounds[1:], axis=0) / STEPS_PER_ROUND * 1e3  # The first round warms up.
    wall, cpu = np.median(per_step, axis=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    distinct = np.mean([len(np.unique(batch)) for batch in ids])
    return {"ms": float(wall), "cpu ms": float(cpu), "peak": peak, "distinct": float(distinct)}


def measure_apart(vocabulary: int, ids_per_sample: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, str(vocabulary), str(ids_per_sample)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
        return
    header = "ids vocabulary distinct       ms  cpu ms  ratio       MB  peak MB  peak/MB"
    print(header, flush=True)
    for ids_per_sample in (1, 20):
        empty = measure_apart(1000, ids_per_sample)["peak"]
        first = None
        for vocabulary in VOCABULARIES:
            found = measure_apart(vocabulary, ids_per_sample)
            first = first or found["ms"]
            size = vocabulary * DIMENSION * 4 * 2 / 1e6
            peak = found["peak"] - empty
            print(
                f"{ids_per_sample:3d} {vocabulary:10d} {found['distinct']:8.0f} "
                f"{found['ms']:8.2f} {found['cpu ms']:7.2f} "
                f"{found['ms'] / first:6.2f} {size:8.1f} {peak:8.1f} {peak / size:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
