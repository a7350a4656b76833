# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's mixed precision on a CPU: dense layers in bfloat16, tables and their kernels not."""

import numpy as np
import pytest
import tensorflow as tf
from harness import configured, minimized

import estimator_emb as ee

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native")]

v1 = tf.compat.v1


class RunGraph(v1.train.SessionRunHook):
    """Keeps the nodes of the graph that runs, after all rewrites."""

    def before_run(self, run_context):
        return v1.train.SessionRunArgs([], options=v1.RunOptions(output_partition_graphs=True))

    def after_run(self, run_context, run_values):
        graphs = run_values.run_metadata.partition_graphs
        self.nodes = {node.name: node for graph in graphs for node in graph.node}


def test_dense_layers_in_bfloat16_leave_tables_alone(tmp_path):
    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [16, 64])
        activation = tf.nn.relu(tf.matmul(features["x"], kernel))
        return minimized(mode, tf.reduce_mean(tf.matmul(activation, tf.ones([64, 1]))))

    def input_fn(params):
        ids = np.arange(128) % 50
        return tf.data.Dataset.from_tensors({"x": tf.constant(ids)}).repeat()

    session = v1.ConfigProto()
    rewrites = session.graph_options.rewrite_options
    rewrites.auto_mixed_precision_onednn_bfloat16 = rewrites.ON
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t")},
        table_to_config_dict={"t": ee.TableConfig(50, 16)},
        optimization_parameters=ee.AdagradParameters(0.1),
    )
    hook = RunGraph()
    config = ee.RunConfig(model_dir=str(tmp_path), session_config=session)
    configured(model_fn, spec, config, 128, use_tpu=False).train(input_fn, [hook], steps=2)
    of_type = {node.op: node for node in hook.nodes.values()}
    matmul = next(node for name, node in of_type.items() if "MatMul" in name)
    assert matmul.attr["T"].type == tf.bfloat16.as_datatype_enum
    assert {"HostTablesLookup", "HostTablesUpdate"} <= set(of_type)
    saved = tf.train.load_checkpoint(str(tmp_path))
    types = saved.get_variable_to_dtype_map()
    assert {types[name] for name in ("t", "t/Adagrad", "kernel")} == {tf.float32}
