# SPDX-License-Identifier: Apache-2.0
"""What a table costs the graph of a training, which takes time before the first step."""

import numpy as np
import pytest
import tensorflow as tf
from harness import configured, minimized

import estimator_emb as ee
import feature_columns as fc

pytestmark = pytest.mark.usefixtures("native")

v1 = tf.compat.v1


class Graph(v1.train.SessionRunHook):
    def after_create_session(self, session, coord):
        self.made = session.graph


def graph_of(tables, kind, model_dir):
    keys = [f"f{table}" for table in range(tables)]
    optimizer = ee.AdagradParameters(0.1)
    if kind == "strings":
        columns = [
            fc.embedding_column(tf.feature_column.categorical_column_with_hash_bucket(key, 9), 2)
            for key in keys
        ]
        spec = ee.EmbeddingConfigSpec(columns, optimizer)
    else:
        spec = ee.EmbeddingConfigSpec(
            feature_to_config_dict={key: ee.FeatureConfig(key) for key in keys},
            table_to_config_dict={key: ee.TableConfig(9, 2) for key in keys},
            optimization_parameters=optimizer,
        )

    def model_fn(features, labels, mode, params):
        activations = (
            [features[key] for key in keys]
            if kind == "ids"
            else [v1.keras.layers.DenseFeatures(columns)(features)]
        )
        return minimized(mode, tf.reduce_mean(tf.concat(activations, axis=1)))

    def input_fn(params):
        value = ["a", "b"] if kind == "strings" else [1, 2]
        return tf.data.Dataset.from_tensors({key: tf.constant(value) for key in keys})

    hook, config = Graph(), ee.RunConfig(model_dir=str(model_dir))
    configured(model_fn, spec, config, 2, use_tpu=False).train(input_fn, [hook], 1)
    return hook.made


@pytest.mark.parametrize("kind, most", [("ids", 50), ("strings", 60)])
def test_ops_of_one_more_table(kind, most, tmp_path):
    """Half of them are TensorFlow's own: of variables, savers and gradients."""
    few, many = (graph_of(tables, kind, tmp_path / str(tables)) for tables in (2, 12))
    assert len(many.get_operations()) - len(few.get_operations()) <= 10 * most
    functions = [len(graph.as_graph_def().library.function) for graph in (few, many)]
    assert functions[0] == functions[1], "tables that are alike share functions"
    of_conversion = {op.type for op in many.get_operations()} & {"StringToHashBucketFast"}
    assert not of_conversion, "the native op turns strings into ids"


def test_tables_begin_as_variables_that_are_created_after_the_models(tmp_path):
    """Op seeds count the random ops of a graph, so that no other may be among them."""
    initial = v1.truncated_normal_initializer(stddev=0.5)
    keys = ["c", "a", "b"]
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={key: ee.FeatureConfig(key) for key in keys},
        table_to_config_dict={key: ee.TableConfig(9, 2, initializer=initial) for key in keys},
        optimization_parameters=ee.AdamParameters(0.1),
    )

    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [6, 1])
        activations = tf.concat([features[key] for key in keys], axis=1)
        return minimized(mode, tf.reduce_mean(tf.matmul(activations, kernel)))

    def input_fn(params):
        return tf.data.Dataset.from_tensors({key: tf.constant([1, 2]) for key in keys})

    config = ee.RunConfig(model_dir=str(tmp_path), tf_random_seed=7, save_checkpoints_steps=1)
    configured(model_fn, spec, config, 2, use_tpu=False).train(input_fn, steps=1)
    saved = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0"))
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(7)
        plain = {"kernel": v1.get_variable("kernel", [6, 1])}
        plain |= {key: v1.get_variable(key, [9, 2], initializer=initial) for key in sorted(keys)}
        session.run(v1.global_variables_initializer())
        for name, values in session.run(plain).items():
            np.testing.assert_array_equal(saved.get_tensor(name), values, err_msg=name)
