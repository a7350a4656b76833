"""TensorFlow's mixed precision on a CPU turns dense layers into bfloat16, but not tables."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from harness import estimator, input_fn_of, minimized, saved, table_spec

import estimator_emb as ee

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native")]

v1 = tf.compat.v1


class RunGraph(v1.train.SessionRunHook):
    """Keeps a node of each type in the graph that runs, after all rewrites."""

    def before_run(self, run_context):
        return v1.train.SessionRunArgs([], options=v1.RunOptions(output_partition_graphs=True))

    def after_run(self, run_context, run_values):
        graphs = run_values.run_metadata.partition_graphs
        self.of_type = {node.op: node for graph in graphs for node in graph.node}


# TensorFlow rewrites nothing on a CPU that can only emulate bfloat16.
@pytest.mark.skipif(
    "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text(), reason="needs a CPU with AVX-512"
)
def test_dense_layers_in_bfloat16_leave_tables_alone(tmp_path):
    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [16, 64])
        activation = tf.nn.relu(tf.matmul(features["x"], kernel))
        return minimized(mode, tf.reduce_mean(tf.matmul(activation, tf.ones([64, 1]))))

    session = v1.ConfigProto()
    rewrites = session.graph_options.rewrite_options
    rewrites.auto_mixed_precision_onednn_bfloat16 = rewrites.ON
    spec = table_spec(50, 16, ee.AdagradParameters(0.1), combiner="mean")
    hook = RunGraph()
    made = estimator(model_fn, spec, tmp_path, 128, run={"session_config": session})
    made.train(input_fn_of([({"x": np.arange(128) % 50}, np.zeros(128))] * 2), [hook])
    # The option has changed the model's matmul. Our native ops run, and keep float32.
    matmul = next(node for name, node in hook.of_type.items() if "MatMul" in name)
    assert matmul.attr["T"].type == tf.bfloat16.as_datatype_enum
    assert {"HostTablesLookup", "HostTablesUpdate"} <= set(hook.of_type)
    found = saved(tmp_path, 2)
    assert {found[name].dtype for name in ("t", "t/Adagrad", "kernel")} == {np.dtype(np.float32)}
