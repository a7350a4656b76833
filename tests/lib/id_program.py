"""A program with one table, for tests of how runs begin and end."""

import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

tf1 = tf.compat.v1
WAYS = {
    "host": {"use_tpu": False},
    "host, pipelined": {"use_tpu": False, "pipelined": True},
    "emulated": {},
    "emulated, pipelined": {"pipelined": True, "iterations": 2},
    "emulated, 2 cores": {"cores": 2, "iterations": 2},
    "emulated, eval on CPU": {"eval_on_tpu": False},
}


def model_fn(features, labels, mode, params):
    activations = tf.identity(features["id"])
    if mode == ee.ModeKeys.PREDICT:
        return ee.TPUEstimatorSpec(mode, predictions={"activations": activations})
    scale = tf1.get_variable("scale", [], initializer=tf1.ones_initializer())
    metrics = (lambda values: {"mean": tf1.metrics.mean(values)}, [activations])
    return harness.minimized(mode, scale * tf.reduce_sum(activations), 0.1, eval_metrics=metrics)


def make(
    model_dir,
    use_tpu=True,
    cores=1,
    iterations=1,
    pipelined=False,
    device="host",
    rate=1.0,
    **kwargs,
):
    ids = tf.feature_column.categorical_column_with_identity("id", 3)
    column = fc.embedding_column(ids, 2, initializer=tf1.constant_initializer(1.0))
    sgd = ee.StochasticGradientDescentParameters(rate)
    spec = ee.EmbeddingConfigSpec([column], sgd, pipeline_execution_with_tensor_core=pipelined)
    pipeline = ee.InputPipelineConfig.PER_HOST_V2
    tpu = {"iterations_per_loop": iterations, "per_host_input_for_training": pipeline}
    run = {"save_checkpoints_steps": 2, "save_summary_steps": None}
    run["experimental_max_worker_delay_secs"] = 0
    given = model_fn, spec, model_dir, 4, device, cores, run, tpu
    return harness.estimator(*given, use_tpu=use_tpu, **kwargs)


def input_of(samples):
    def input_fn(params):
        ids = tf.data.Dataset.from_tensor_slices(np.zeros([samples, 1], np.int64))
        ids = ids.batch(params["batch_size"], drop_remainder=True)
        return ids.map(lambda ids: {"id": ids})

    return input_fn


UNTIL_THE_END = """
    import sys
    import id_program
    import processes
    import estimator_emb as ee

    processes.join_soon()
    model_dir, steps = sys.argv[1], int(sys.argv[2])
    # By more, the model would grow beyond all numbers.
    estimator = id_program.make(model_dir, use_tpu=False, rate=1e-12)
    endless = lambda params: id_program.input_of(16)(params).repeat()
    ee.train_and_evaluate(
        estimator, ee.TrainSpec(endless, max_steps=steps), ee.EvalSpec(endless, steps=1)
    )
    print("goes on", flush=True)
"""
"""Program of a task of a cluster: `python -c ... MODEL_DIR STEPS`."""
