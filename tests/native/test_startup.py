"""A table adds few ops to a training's graph, because each op delays the first step."""

import pytest
import tensorflow as tf
from harness import SILENT, assert_same, estimator, input_fn_of, minimized, saved, tables_spec

import estimator_emb as ee
import feature_columns as fc

pytestmark = pytest.mark.usefixtures("native")  # Turns the native kernels on.

v1 = tf.compat.v1


def graph_of(tables, kind, model_dir):
    """Returns the graph of a training with this number of tables, of ids or of strings."""
    keys = [f"f{table}" for table in range(tables)]
    optimizer = ee.AdagradParameters(0.1)
    spec = tables_spec(dict.fromkeys(keys, ee.TableConfig(9, 2)), optimizer)
    if kind == "strings":
        buckets = [fc.categorical_column_with_hash_bucket(key, 9) for key in keys]
        columns = [fc.embedding_column(column, 2) for column in buckets]
        spec = ee.EmbeddingConfigSpec(columns, optimizer)
    graphs = []

    def model_fn(features, labels, mode, params):
        graphs.append(v1.get_default_graph())
        activations = [features[key] for key in keys]
        if kind == "strings":
            activations = [v1.keras.layers.DenseFeatures(columns)(features)]
        return minimized(mode, tf.reduce_mean(tf.concat(activations, axis=1)))

    batch = dict.fromkeys(keys, ["a", "b"] if kind == "strings" else [1, 2])
    made = estimator(model_fn, spec, model_dir, 2, run={})
    made.train(input_fn_of([(batch, [0.0, 0.0])]), steps=1)
    return graphs[0]


@pytest.mark.fast(1)  # All cases but one are slow.
@pytest.mark.parametrize("kind, most", [("ids", 52), ("strings", 62)])
def test_a_table_adds_few_ops_to_the_graph(kind, most, tmp_path):
    """A table adds 46 or 56 ops today, half of them TensorFlow's own. `most` has six to spare."""
    few, many = (graph_of(tables, kind, tmp_path / str(tables)) for tables in (2, 3))
    assert len(many.get_operations()) - len(few.get_operations()) <= most
    functions = [len(graph.as_graph_def().library.function) for graph in (few, many)]
    assert functions[0] == functions[1], "tables that are alike share functions"
    of_conversion = {op.type for op in many.get_operations()} & {"StringToHashBucketFast"}
    assert not of_conversion, "the native op turns strings into ids"


def test_tables_start_as_variables_created_after_the_models(tmp_path):
    """TensorFlow seeds a random op by its number in the graph, so the package may add no other."""
    initial = v1.truncated_normal_initializer(stddev=0.5)
    keys = ["c", "a", "b"]
    tables = dict.fromkeys(keys, ee.TableConfig(9, 2, initializer=initial))
    spec = tables_spec(tables, ee.AdamParameters(0.1))

    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", [6, 1])
        activations = tf.concat([features[key] for key in keys], axis=1)
        return minimized(mode, tf.reduce_mean(tf.matmul(activations, kernel)))

    made = estimator(model_fn, spec, tmp_path, 2, run={**SILENT, "tf_random_seed": 7})
    made.train(input_fn_of([(dict.fromkeys(keys, [1, 2]), [0.0, 0.0])]), steps=1)
    found = saved(tmp_path, 0)  # Before the first step.
    # Plain TensorFlow creates the model's variable, then the tables in the order of their names.
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(7)
        plain = {"kernel": v1.get_variable("kernel", [6, 1])}
        plain |= {key: v1.get_variable(key, [9, 2], initializer=initial) for key in sorted(keys)}
        session.run(v1.global_variables_initializer())
        assert_same({name: found[name] for name in plain}, session.run(plain), 0, 0)
