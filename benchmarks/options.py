"""Measures the cost of training options, with native kernels and with TensorFlow's ops.

    python benchmarks/options.py [--options NAME ...] [--steps=100] [--rounds=3] [--tables=26]
        [--vocabulary=100000] [--batch=4096]

Each option trains with `TPUEstimator` in its own process, in turns with native kernels and ops.
Tables have 16 columns and an id per sample. The model only adds up activations. 'every row' has at
most four tables, because every step goes over all of their rows. The option for table summaries
writes them in each step. By default every hundredth step does, and the median leaves those out.

  native        wall and CPU milliseconds of a step, after the tenth, as medians over rounds
  ops           the same with TensorFlow's own ops
  ratio         CPU time with TensorFlow's ops divided by CPU time with native kernels
"""

import argparse
import json
import resource
import statistics
import tempfile
import time

import numpy as np
from workload import apart, positive

DIMENSION, BATCHES, FIRST = 16, 8, 10
OPTIONS = {
    "none": {},
    "pipelined": {"pipelined": True},
    "bad ids left out": {"bad_ids": "drop"},
    "every row": {"every_row": True},
    "table summaries, each step": {"table_summaries": True},
    "one core": {"cores": 1},
    "eight cores": {"cores": 8},
    "eight cores, not accumulated": {"cores": 8, "accumulated": False},
}


def train(arguments: argparse.Namespace) -> dict[str, float]:
    """Trains with an option, and returns the milliseconds of a step."""
    import tensorflow as tf

    import estimator_emb as ee

    tf.compat.v1.logging.set_verbosity("ERROR")
    option = OPTIONS[arguments.one]
    cores = option.get("cores")
    count = min(arguments.tables, 4) if "every_row" in option else arguments.tables
    keys = [f"table_{number:03d}" for number in range(count)]
    rng = np.random.default_rng(0)
    shape = [BATCHES, arguments.batch]
    ids = {key: rng.integers(0, arguments.vocabulary, shape) for key in keys}
    if "bad_ids" in option:
        for of_table in ids.values():
            of_table[:, 0] = -1
    if "every_row" in option:
        parameters = ee.AdamParameters(0.1, lazy_adam=False)
    else:
        accumulated = option.get("accumulated", True)
        parameters = ee.AdagradParameters(0.1, use_gradient_accumulation=accumulated)

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_sum(features[key]) for key in keys])
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.1)
        )
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    class Clock(tf.compat.v1.train.SessionRunHook):
        def __init__(self):
            self.times = []

        def before_run(self, run_context):
            usage = resource.getrusage(resource.RUSAGE_SELF)
            self.times.append((time.perf_counter(), usage.ru_utime + usage.ru_stime))

    clock = Clock()
    with tempfile.TemporaryDirectory() as model_dir:
        estimator = ee.TPUEstimator(
            model_fn,
            config=ee.RunConfig(
                model_dir=model_dir,
                log_step_count_steps=None,
                save_summary_steps=1 if "table_summaries" in option else 100,
                tpu_config=ee.TPUConfig(
                    1,
                    num_shards=cores,
                    device="host",
                    bad_ids=option.get("bad_ids", "error"),
                    table_summaries=option.get("table_summaries", False),
                ),
            ),
            use_tpu=cores is not None,
            train_batch_size=arguments.batch,
            embedding_config_spec=ee.EmbeddingConfigSpec(
                feature_to_config_dict={key: ee.FeatureConfig(key) for key in keys},
                table_to_config_dict={
                    key: ee.TableConfig(
                        arguments.vocabulary, DIMENSION, tf.compat.v1.constant_initializer(0.1)
                    )
                    for key in keys
                },
                optimization_parameters=parameters,
                pipeline_execution_with_tensor_core=option.get("pipelined", False),
            ),
        )
        estimator.train(
            lambda params: tf.data.Dataset.from_tensor_slices(ids).repeat().prefetch(2),
            hooks=[clock],
            steps=FIRST + arguments.steps,
        )
    wall, cpu = 1e3 * np.median(np.diff(clock.times[FIRST:], axis=0), axis=0)
    return {"wall": wall, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--options", nargs="+", default=list(OPTIONS), choices=list(OPTIONS))
    parser.add_argument("--one", choices=list(OPTIONS), help=argparse.SUPPRESS)
    for name, default in (
        ("steps", 100),
        ("rounds", 3),
        ("tables", 26),
        ("vocabulary", 100_000),
        ("batch", 4096),
    ):
        parser.add_argument(f"--{name}", type=positive, default=default)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(train(arguments)))
        return
    sizes = [
        f"--{name}={getattr(arguments, name)}"
        for name in ("steps", "tables", "vocabulary", "batch")
    ]
    print(f"{'':<30}{'native':>14}{'ops':>16}{'ratio':>8}\n{'':<30}", end="")
    print(f"{'wall':>7}{'cpu':>7}{'wall':>9}{'cpu':>7}", flush=True)
    for option in arguments.options:
        rounds = [
            [apart(__file__, "--one", option, *sizes, ESTIMATOR_EMB_NATIVE=on) for on in "10"]
            for _ in range(arguments.rounds)
        ]
        figures = [
            statistics.median(one[kernels][figure] for one in rounds)
            for kernels in (0, 1)
            for figure in ("wall", "cpu")
        ]
        ratio = statistics.median(ops["cpu"] / native["cpu"] for native, ops in rounds)
        native_wall, native_cpu, wall, cpu = figures
        print(
            f"{option:<30}{native_wall:7.1f}{native_cpu:7.1f}{wall:9.1f}{cpu:7.1f}{ratio:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
