"""Measures how long a training takes to begin, for several numbers of tables.

    python benchmarks/startup.py [--tables 100 1000] [--ids dense] [--before=CHECKOUT] [--rounds=3]
    python benchmarks/startup.py --layers 17 88 [--rounds=3]

It measures CPU time, user and system, from a call to the end of its first step, in small batches.
Programs have their default settings: summaries, checkpoints, and the graph as text. `--before` also
trains with another checkout of this package, in turns.

  ids        'dense' are int64 [batch] in memory, 'strings' are hashed by feature columns,
             'emulated' are dense ids on an emulated TPU with two cores
  call       'train' begins from nothing, 'restart' and 'evaluate' begin from the checkpoint
  ms         CPU milliseconds per table, as the median over the rounds
  x first    ms divided by ms of the first number of tables
  ops        ops in the graph per table
  x before   ms divided by ms of the other checkout

With `--layers`, it trains a plain Estimator of so many dense layers, with and without the checks of
`estimator_emb.guards`, in turns.

  ms         CPU milliseconds of a call's start, as the median over the rounds
  ops        ops in the graph
  x without  ms divided by ms without the checks
"""

import argparse
import json
import statistics
import time
from typing import Any

from workload import apart, positive

BATCH, VOCABULARY, DIMENSION = 16, 1000, 16
IDS = ("dense", "strings", "emulated")
CALLS = ("train", "restart", "evaluate")
CORES = 2


def measure(kind: str, tables: int) -> dict[str, float]:
    """Trains, restarts and evaluates in this process, a step each. Returns the figures by call."""
    import numpy as np
    import tensorflow as tf

    import estimator_emb as ee
    import feature_columns as fc

    tf.compat.v1.logging.set_verbosity("ERROR")
    keys = [f"f{table:03d}" for table in range(tables)]
    ids = np.random.default_rng(0).integers(0, VOCABULARY, [tables, 2, BATCH])
    if kind == "strings":
        features = {key: np.char.mod("%d", drawn) for key, drawn in zip(keys, ids, strict=True)}
        columns = [
            fc.embedding_column(
                tf.feature_column.categorical_column_with_hash_bucket(key, VOCABULARY), DIMENSION
            )
            for key in keys
        ]
        described = {"feature_columns": columns}
    else:
        features = dict(zip(keys, ids, strict=True))
        described = {
            "feature_to_config_dict": {key: ee.FeatureConfig(key) for key in keys},
            "table_to_config_dict": {key: ee.TableConfig(VOCABULARY, DIMENSION) for key in keys},
        }

    def input_fn(params):
        return tf.data.Dataset.from_tensor_slices(features)

    def model_fn(features, labels, mode, params):
        if kind == "strings":
            activations = tf.compat.v1.keras.layers.DenseFeatures(columns)(features)
        else:
            activations = tf.concat([features[key] for key in keys], axis=1)
        loss = tf.reduce_mean(tf.square(activations - 1.0))
        train_op = None
        if mode == ee.ModeKeys.TRAIN:
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            if kind == "emulated":
                optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
            train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    figures: dict[str, float] = {}

    clock = _clock(figures, tables)
    emulated = kind == "emulated"
    of_tpu = {"device": "host", "num_shards": CORES, "iterations_per_loop": 1}
    estimator = ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(tpu_config=ee.TPUConfig(**of_tpu if emulated else {})),
        use_tpu=emulated,
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            optimization_parameters=ee.AdagradParameters(0.1), **described
        ),
    )
    estimator.train(input_fn, steps=1, hooks=[clock("train")])
    estimator.train(input_fn, steps=1, hooks=[clock("restart")])
    estimator.evaluate(input_fn, steps=1, hooks=[clock("evaluate")])
    return figures


def measure_checks(layers: int, checked: bool) -> dict[str, float]:
    """Trains, restarts and evaluates a plain Estimator. Returns the figures by call."""
    import numpy as np
    import tensorflow as tf

    import estimator_emb as ee
    from estimator_emb.guards import watching

    ee.install()
    if not checked:
        watching.CHECKS.clear()
    tf.compat.v1.logging.set_verbosity("ERROR")
    x = np.ones([BATCH, DIMENSION], np.float32)

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": x}, x[:, :1]))

    def model_fn(features, labels, mode):
        y = features["x"]
        for layer in range(layers):
            with tf.compat.v1.variable_scope(f"layer{layer}"):
                w = tf.compat.v1.get_variable("w", [DIMENSION, DIMENSION])
                y = tf.nn.relu(y @ w + tf.compat.v1.get_variable("b", [DIMENSION]))
        loss = tf.reduce_mean(tf.square(y - labels))
        optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    figures: dict[str, float] = {}
    clock = _clock(figures)
    estimator = tf.estimator.Estimator(model_fn)
    estimator.train(input_fn, steps=1, hooks=[clock("first")])  # It also imports modules.
    estimator.train(input_fn, steps=1, hooks=[clock("train")])
    estimator.evaluate(input_fn, steps=1, hooks=[clock("evaluate")])
    return figures


def _clock(figures: dict[str, float], tables: int = 1) -> Any:
    """Returns a class of hooks that note the CPU time until the end of a call's first step."""
    import tensorflow as tf

    class Clock(tf.compat.v1.train.SessionRunHook):
        # A hook of the program may run any op, so that a check would not search for unrun ops.
        __module__ = tf.compat.v1.train.StopAtStepHook.__module__

        def __init__(self, call):
            self.call, self.begun = call, time.process_time()

        def after_run(self, run_context, run_values):
            ops = len(run_context.session.graph.get_operations())
            figures[f"{self.call} ms"] = (time.process_time() - self.begun) / tables * 1e3
            figures[f"{self.call} ops"] = ops / tables

    return Clock


def compare_checks(layers: list[int], rounds: int) -> None:
    """Prints how much longer calls take to start with the checks than without."""
    print(f"{'layers':>8s} {'call':8s}{'ms':>8s}{'ops':>8s}{'x without':>11s}")
    for count in layers:
        figures: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for _ in range(rounds):
            for checked in figures:
                figures[checked].append(apart(__file__, f"--point={json.dumps([count, checked])}"))
        for call in ("train", "evaluate"):
            ms = {
                checked: statistics.median(one[f"{call} ms"] for one in of_rounds)
                for checked, of_rounds in figures.items()
            }
            ops = figures[False][0][f"{call} ops"]
            print(f"{count:8d} {call:8s}{ms[True]:8.0f}{ops:8.0f}{ms[True] / ms[False]:11.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=positive, nargs="+", default=[100, 1000])
    parser.add_argument("--ids", nargs="+", choices=IDS, default=IDS)
    parser.add_argument("--layers", type=positive, nargs="+", help="with and without checks")
    parser.add_argument("--before", help="another checkout, for the ratio")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        first, second = json.loads(options.point)
        of = measure if isinstance(first, str) else measure_checks
        print(json.dumps(of(first, second)))
        return
    if options.layers:
        compare_checks(options.layers, options.rounds)
        return
    checkouts: dict[str, dict[str, str]] = {"now": {}}
    if options.before:
        checkouts["before"] = {"PYTHONPATH": options.before}
    print(f"{'ids':8s} {'call':8s}{'tables':>8s}{'ms':>8s}{'x first':>9s}{'ops':>8s}", end="")
    print(f"{'x before':>10s}" if options.before else "")
    first: dict[tuple[str, str], float] = {}
    for kind in options.ids:
        for tables in options.tables:
            rounds = [
                {
                    name: apart(__file__, f"--point={json.dumps([kind, tables])}", **changes)
                    for name, changes in checkouts.items()
                }
                for _ in range(options.rounds)
            ]
            for call in CALLS:
                ms = {
                    name: statistics.median(one[name][f"{call} ms"] for one in rounds)
                    for name in checkouts
                }
                x_first = ms["now"] / first.setdefault((kind, call), ms["now"])
                ops = rounds[0]["now"][f"{call} ops"]
                ratio = f"{ms['now'] / ms['before']:10.2f}" if options.before else ""
                print(
                    f"{kind:8s} {call:8s}{tables:8d}{ms['now']:8.1f}{x_first:9.2f}{ops:8.1f}"
                    f"{ratio}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
