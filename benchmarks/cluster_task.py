"""Runs one process of `cluster.py`.

    python benchmarks/cluster_task.py PEER WORKLOAD FOLDER

TF_CONFIG names the task. A trainer writes "ready" after its first steps. Then it reads numbers from
stdin. For each number it takes that many steps, and writes "ready" again.
"""

import json
import os
import sys
from collections.abc import Callable

import numpy as np
from workload import BATCHES, INITIAL_ACCUMULATOR, LEARNING_RATE, Workload

FIRST_STEPS = 5


class Steps:
    """Counts a trainer's steps. After the requested steps, it waits for the next request."""

    def __init__(self) -> None:
        self._left = FIRST_STEPS

    def taken(self) -> None:
        self._left -= 1
        while self._left <= 0:
            print("ready", flush=True)
            line = sys.stdin.readline()
            if not line:
                os._exit(0)
            self._left = int(line)


def dataset(work: Workload) -> Callable:
    import tensorflow as tf

    def input_fn(params=None):
        ids = {key: work.ids_of(table)[:, :, 0] for table, key in enumerate(keys_of(work))}
        return tf.data.Dataset.from_tensor_slices((ids, np.zeros(BATCHES, np.float32))).repeat()

    return input_fn


def keys_of(work: Workload) -> list[str]:
    return [f"f{table:03d}" for table in range(work.tables)]


def gradients(work: Workload) -> list:
    """Returns the gradients of the activations, stored on the trainer."""
    import tensorflow as tf

    return [tf.constant(work.gradient_of(table)) for table in range(work.tables)]


def used(activations: list):
    """Returns a loss that needs every activation and costs nothing."""
    import tensorflow as tf

    return tf.add_n([activation[0, 0] for activation in activations])


def hook_of(steps: Steps):
    import tensorflow as tf

    class Hook(tf.compat.v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            steps.taken()

    return Hook()


def ours(work: Workload, folder: str) -> None:
    import tensorflow as tf

    import estimator_emb as ee

    keys = keys_of(work)

    def model_fn(features, labels, mode, params):
        activations = [features[key] for key in keys]
        variables = tf.compat.v1.trainable_variables()
        slopes = tf.gradients(activations, variables, grad_ys=gradients(work))
        step = tf.compat.v1.train.get_global_step()
        with tf.control_dependencies([one for one in slopes if one is not None]):
            train_op = step.assign_add(1, read_value=False)
        return ee.TPUEstimatorSpec(mode, loss=used(activations), train_op=train_op)

    estimator = ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            model_dir=os.path.join(folder, "model"),
            save_checkpoints_steps=10**9,
            save_summary_steps=None,
            log_step_count_steps=None,
        ),
        use_tpu=False,
        train_batch_size=work.batch,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_to_config_dict={key: ee.FeatureConfig(key) for key in keys},
            table_to_config_dict={
                key: ee.TableConfig(work.vocabulary, work.dimension, tf.zeros_initializer())
                for key in keys
            },
            optimization_parameters=ee.AdagradParameters(LEARNING_RATE, INITIAL_ACCUMULATOR),
        ),
    )
    hooks = [hook_of(Steps())]
    train = ee.TrainSpec(dataset(work), max_steps=10**9, hooks=hooks)
    ee.train_and_evaluate(estimator, train, ee.EvalSpec(dataset(work)))


def stock(work: Workload, folder: str) -> None:
    import tensorflow as tf

    keys = keys_of(work)

    def model_fn(features, labels, mode, params):
        columns = [
            tf.feature_column.embedding_column(
                tf.feature_column.categorical_column_with_identity(key, work.vocabulary),
                work.dimension,
                "mean",
                tf.zeros_initializer(),
            )
            for key in keys
        ]
        features = {key: tf.expand_dims(ids, 1) for key, ids in features.items()}
        activations = [
            tf.compat.v1.feature_column.input_layer(features, [column]) for column in columns
        ]
        variables = tf.compat.v1.trainable_variables()
        slopes = tf.gradients(activations, variables, grad_ys=gradients(work))
        optimizer = tf.compat.v1.train.AdagradOptimizer(LEARNING_RATE, INITIAL_ACCUMULATOR)
        train_op = optimizer.apply_gradients(
            zip(slopes, variables, strict=True), tf.compat.v1.train.get_global_step()
        )
        return tf.estimator.EstimatorSpec(mode, loss=used(activations), train_op=train_op)

    estimator = tf.estimator.Estimator(
        model_fn,
        config=tf.estimator.RunConfig(
            model_dir=os.path.join(folder, "model"),
            save_checkpoints_steps=10**9,
            save_summary_steps=None,
            log_step_count_steps=None,
        ),
        params={"batch_size": work.batch},
    )
    hooks = [hook_of(Steps())]
    train = tf.estimator.TrainSpec(dataset(work), max_steps=10**9, hooks=hooks)
    tf.estimator.train_and_evaluate(estimator, train, tf.estimator.EvalSpec(dataset(work)))


def transport(work: Workload, folder: str) -> None:
    """Sends as many bytes as a step with the mean number of distinct rows, and computes nothing."""
    import tensorflow as tf

    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.distribute.Server(config["cluster"], job_name=job, task_index=index)
    if job == "ps":
        server.join()
    tf.compat.v1.disable_eager_execution()
    servers = len(config["cluster"]["ps"])
    distinct = sum(
        np.mean([len(np.unique(batch)) for batch in work.ids_of(table)])
        for table in range(work.tables)
    )
    rows = int(distinct / servers)
    here, done = f"/job:{job}/task:{index}", []

    def numbers(name: str, size: int, dtype):
        return tf.compat.v1.get_variable(
            f"{name}_{job}_{index}",
            initializer=tf.zeros([size], dtype),
            use_resource=True,
        )

    for server_index in range(servers):
        there = f"/job:ps/task:{server_index}"
        with tf.device(here):
            ids = numbers(f"ids_{server_index}", rows, tf.int32).read_value()
            sums = numbers(f"sums_{server_index}", rows * work.dimension, tf.float32)
        with tf.device(there):
            arrived = tf.identity(ids)
            values = numbers(f"values_{server_index}", rows * work.dimension, tf.float32)
            with tf.control_dependencies([arrived]):
                looked_up = values.read_value()
        with tf.device(here), tf.control_dependencies([tf.identity(looked_up)]):
            gradient = sums.read_value()
        with tf.device(there):
            done.append(tf.identity(gradient).op)
    step = tf.group(*done)
    session_config = tf.compat.v1.ConfigProto(device_filters=["/job:ps", here])
    # This keeps identities that nothing reads, and the transfers to them.
    session_config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.compat.v1.Session(server.target, config=session_config) as session:
        session.run(tf.compat.v1.global_variables_initializer())
        run, steps = session.make_callable(step), Steps()
        while True:
            run()
            steps.taken()


def main() -> None:
    peer, work, folder = sys.argv[1], Workload(**json.loads(sys.argv[2])), sys.argv[3]
    {"ours": ours, "ours (native)": ours, "stock": stock, "transport": transport}[peer](
        work, folder
    )


if __name__ == "__main__":
    main()
