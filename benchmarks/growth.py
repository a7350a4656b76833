"""Measures how the cost of a training step grows with vocabulary, ids, tables and cores.

    python benchmarks/growth.py [--sweeps vocabulary ids ...] [--vocabulary=1000000]

It trains tables of dimension 16 under Adagrad, by `TPUEstimator.train` on the host, with ids drawn
by Zipf's law (exponent 1.05). A step must cost what its ids cost. So its cost must not depend on
the vocabulary. It must grow in proportion to the number of ids, and more slowly than the number of
tables. N emulated cores (`TPUConfig(num_shards=N, device='emulate')`) with N times the batch must
cost at most N times as much as a single core. Each line is its own process, and 0 cores means
`use_tpu=False`.

The last sweeps need jax (`TPUConfig(num_shards=N, device='pjrt', tables=...)`). Their cores are N
devices that are all this CPU, a proxy for GPUs and TPUs.

  distinct     distinct rows of a batch, to be read and written by a step
  ms           median wall time of a step, in rounds of 20 steps
  cpu ms       user and system time of the process in the same steps, per step
  x first      cpu ms divided by cpu ms of the sweep's first line
  x work       like x first, for ids of a batch, or for distinct rows if they grow more
  MB           the tables and their slots
  start s      user and system time of the process from input to the end of the first step. XLA's
               compilation is part of it, unless its result is in the cache
  peak MB      peak resident memory, less the peak of a run with tables of 1000 rows

A line says so if it costs more than its work. A vocabulary that outgrows the caches may do so.
"""

import argparse
import importlib.util
import json
import resource
import time

from workload import apart, positive

DIMENSION = 16
STEPS_PER_ROUND, ROUNDS = 20, 7
TOLERANCE = 1.1
FIRST = {"vocabulary": 100_000, "tables": 1, "batch": 4096, "ids": 1, "cores": 0, "place": None}
SWEEPS = {
    "vocabulary": [{"vocabulary": v} for v in (10_000, 100_000, 1_000_000, 10_000_000)],
    "vocabulary, 20 ids": [
        {"vocabulary": v, "ids": 20} for v in (10_000, 100_000, 1_000_000, 10_000_000)
    ],
    "ids": [{"ids": ids} for ids in (1, 5, 20, 80)],
    "batch": [{"batch": batch} for batch in (1024, 4096, 16384, 65536)],
    "tables": [{"tables": tables} for tables in (1, 10, 100)],
    "tables, on a device": [
        {"tables": tables, "vocabulary": 1000, "batch": 64, "cores": 1, "place": "device"}
        for tables in (1, 26, 100, 300)
    ],
    "cores": [{"cores": cores, "batch": 1024 * cores} for cores in (1, 2, 4, 8)],
    "vocabulary, tables on a device": [
        {"vocabulary": v, "cores": 1, "place": "device"}
        for v in (10_000, 100_000, 1_000_000, 10_000_000)
    ],
    "devices, tables on the host": [
        {"cores": cores, "batch": 1024 * cores, "place": "host"} for cores in (1, 2, 4, 8)
    ],
    "devices, tables on them": [
        {"cores": cores, "batch": 1024 * cores, "place": "device"} for cores in (1, 2, 4, 8)
    ],
}


def measure(
    vocabulary: int, tables: int, batch: int, ids: int, cores: int, place: str | None
) -> dict[str, float]:
    """Trains in this process and returns its figures.

    `place` says where PJRT devices keep their tables, 'host' or 'device'. None emulates a TPU.
    """
    import numpy as np
    import tensorflow as tf

    import estimator_emb as ee

    tf.compat.v1.logging.set_verbosity("ERROR")
    keys = [f"f{table:03d}" for table in range(tables)]
    rng = np.random.default_rng(0)
    batches = max(2, min(32, 2**24 // (tables * batch * ids)))
    drawn = rng.zipf(1.05, [tables, batches, batch, ids])
    drawn = np.minimum(drawn, 2**62).astype(np.int64) % vocabulary

    def input_fn(params):
        features = {
            key: table_ids if ids > 1 else table_ids[:, :, 0]
            for key, table_ids in zip(keys, drawn, strict=True)
        }
        dataset = tf.data.Dataset.from_tensor_slices(features).repeat()
        shape = [batch, ids] if ids > 1 else [batch]
        return dataset.map(
            lambda features: {k: tf.ensure_shape(v, shape) for k, v in features.items()}
        )

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_mean(tf.square(features[key] - 1.0)) for key in keys])
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        if cores:
            optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    rounds: list[tuple[float, float]] = []
    begun = resource.getrusage(resource.RUSAGE_SELF)

    class Clock(tf.compat.v1.train.SessionRunHook):
        def begin(self):
            self.steps = 0

        def after_run(self, run_context, run_values):
            if self.steps % STEPS_PER_ROUND == 0:
                used = resource.getrusage(resource.RUSAGE_SELF)
                rounds.append((time.perf_counter(), used.ru_utime + used.ru_stime))
            self.steps += 1

    # A hook sees every step only if each step is its own session call.
    of_cores = {"iterations_per_loop": 1, "num_shards": cores, "device": "emulate"}
    if place:
        of_cores |= {"device": "pjrt", "tables": place}
    tpu_config = ee.TPUConfig(**of_cores if cores else {})
    estimator = ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
            save_summary_steps=None,
            log_step_count_steps=None,
            tpu_config=tpu_config,
        ),
        use_tpu=cores > 0,
        train_batch_size=batch,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_to_config_dict={key: ee.FeatureConfig(key) for key in keys},
            table_to_config_dict={key: ee.TableConfig(vocabulary, DIMENSION) for key in keys},
            optimization_parameters=ee.AdagradParameters(0.1),
        ),
    )
    estimator.train(input_fn, steps=(ROUNDS + 1) * STEPS_PER_ROUND + 1, hooks=[Clock()])
    per_step = np.diff(rounds[1:], axis=0) / STEPS_PER_ROUND * 1e3  # The first round warms up.
    wall, cpu = np.median(per_step, axis=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    distinct = sum(
        np.mean([len(np.unique(batch_ids)) for batch_ids in table_ids]) for table_ids in drawn
    )
    start = rounds[0][1] - begun.ru_utime - begun.ru_stime
    found = {"ms": wall, "cpu ms": cpu, "peak": peak, "distinct": distinct, "start": start}
    return {name: float(value) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", nargs="+", default=list(SWEEPS), choices=list(SWEEPS))
    parser.add_argument("--vocabulary", type=positive, help="leave out points of a larger one")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(measure(**json.loads(options.point))))
        return

    def measured(point: dict[str, int]) -> dict[str, float]:
        devices = {
            "ESTIMATOR_EMB_PJRT_PLATFORM": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={point['cores']}",
        }
        changes = devices if point["place"] else {}
        return apart(__file__, "--point", json.dumps(point), **changes)

    for sweep in options.sweeps:
        if SWEEPS[sweep][0].get("place") and importlib.util.find_spec("jax") is None:
            print(f"{sweep}: left out, as jax is not installed")
            continue
        print(
            f"{sweep}:\n   vocabulary tables  batch ids cores distinct       ms  cpu ms "
            " x first   x work  start s       MB  peak MB",
            flush=True,
        )
        first = None
        for change in SWEEPS[sweep]:
            point = {**FIRST, **change}
            if options.vocabulary and point["vocabulary"] > options.vocabulary:
                continue
            figures = measured(point)
            figures["ids"] = point["tables"] * point["batch"] * point["ids"]
            first = first or figures
            slower = figures["cpu ms"] / first["cpu ms"]
            work = max(figures[key] / first[key] for key in ("ids", "distinct"))
            print(
                f"{point['vocabulary']:13d} {point['tables']:6d} {point['batch']:6d} "
                f"{point['ids']:3d} {point['cores']:5d} {figures['distinct']:8.0f} "
                f"{figures['ms']:8.2f} {figures['cpu ms']:7.2f} {slower:8.2f} {work:8.2f} "
                f"{figures['start']:8.2f}",
                end="",
            )
            if "vocabulary" in change and "tables" not in change:
                size = point["vocabulary"] * DIMENSION * 4 * 2 / 1e6
                empty = measured({**point, "vocabulary": 1000})["peak"]
                print(f" {size:8.1f} {figures['peak'] - empty:8.1f}", end="")
            print("" if slower <= work * TOLERANCE else " more than the work", flush=True)


if __name__ == "__main__":
    main()
