"""A training step never reads a whole table, because TensorFlow would copy it.

The step also writes the table, so a plain read is a copy. Grappler introduces such reads: it turns
unique, ResourceGather and a segment sum into ReadVariableOp and SparseSegmentSum. So these tests
inspect the graph that TensorFlow runs.
"""

import resource

import forms
import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine.tables import storage
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Table

BATCH = forms.SAMPLES
pytestmark = pytest.mark.parametrize("kernels", ["tensorflow"], indirect=True)


class OptimizedGraph(tf.compat.v1.train.SessionRunHook):
    """Keeps the graphs that TensorFlow ran in the last step."""

    def before_run(self, run_context):
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        return tf.compat.v1.train.SessionRunArgs(None, options=options)

    def after_run(self, run_context, run_values):
        self.graphs = list(run_values.run_metadata.partition_graphs)


def read_whole(graphs):
    """Returns the variables that are read as a whole."""
    nodes = {node.name: node for graph in graphs for node in graph.node}
    read = set()
    for node in list(nodes.values()):
        if node.op == "ReadVariableOp":
            while node.op != "VarHandleOp":  # In a branch, behind a Switch.
                node = nodes[node.input[0].split(":")[0]]
            read.add(node.attr["shared_name"].s.decode())
    return read


KEYS = [*forms.IDS, "ragged", "shared"]


@pytest.mark.parametrize(
    "combiner, keys",
    [
        ("mean", ["matrix", "sparse", "shared"]),
        *(harness.slow(one, KEYS) for one in ("mean", "sum", "sqrtn")),
    ],
)
def test_no_table_or_slot_is_read_as_a_whole(combiner, keys, tmp_path):
    tables = [key for key in keys if key != "shared"]
    given = {**forms.IDS, **forms.WEIGHTS, **dict.fromkeys(KEYS[-2:], forms.IDS["sparse"])}

    def input_fn(params):
        def ragged(batch, labels):
            return {**batch, "ragged": tf.RaggedTensor.from_sparse(batch["ragged"])}, labels

        return harness.dataset([(given, np.zeros([BATCH], np.float32))]).map(ragged)

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_sum(tf.square(features[key])) for key in keys])
        return harness.minimized(mode, loss, 0.1)

    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={
            key: forms.feature(key, "sparse" if key == "shared" else key) for key in keys
        },
        table_to_config_dict={key: ee.TableConfig(50, 2, combiner=combiner) for key in tables},
        optimization_parameters=ee.AdagradParameters(0.1),
    )
    hook = OptimizedGraph()
    harness.estimator(model_fn, spec, tmp_path, BATCH).train(input_fn, hooks=[hook], steps=1)
    read = read_whole(hook.graphs)
    assert "global_step" in read
    assert not {name for name in read if name.split("/")[0] in tables}


@pytest.mark.parametrize(
    # reads_of_weights: once for the lookup; again for the update if others may have written since.
    "pipelining, device, reads_of_weights",
    [
        (False, "", 1),
        (False, "/cpu:0", 1),
        (False, "/job:ps/task:0", 2),  # Other workers may have written.
        (True, "", 2),  # The previous step has written.
    ],
)
def test_update_reads_weights_again_only_if_they_may_have_changed(
    tmp_path, pipelining, device, reads_of_weights
):
    def placed(op):
        return device if op.type == "VarHandleOp" else ""

    optimizer = ee.AdagradParameters(0.1)
    spec = harness.table_spec(50, 2, optimizer, pipeline_execution_with_tensor_core=pipelining)
    estimator = harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path, BATCH)
    with tf.Graph().as_default() as graph, tf.compat.v1.device(placed):
        tf.compat.v1.train.create_global_step()
        features, labels = {"x": tf.constant(forms.IDS["dense"])}, {"x": tf.ones([BATCH, 2])}
        estimator._call_model_fn(features, labels, ee.ModeKeys.TRAIN, estimator.config)
        gathers = [one for one in graph.get_operations() if one.type == "ResourceGatherNd"]
    read = [one.inputs[0].op.name for one in gathers]
    assert {name: read.count(name) for name in read} == {"t": reads_of_weights, "t/Adagrad": 1}


def test_constant_initializers_allocate_tables_once():
    """A constant that TensorFlow computes in advance would stay in memory beside each variable."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 1e6

    config = TableConfig(200_000, 64, tf.compat.v1.zeros_initializer())  # 51.2 MB
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name in ("a", "b", "c"):
            table = Table(name, config, (), optimizer=ee.AdagradParameters(0.1))
            storage.create(table, name, False)
        before = resident()
        session.run(tf.compat.v1.global_variables_initializer())
        # 3 tables and 3 slots take 6 * 51.2 = 307 MB, and with a copy of each 614 MB. The limit is
        # the middle.
        assert 300 < resident() - before < 460


def test_a_checkpoint_is_written_without_a_copy_of_the_tables(tmp_path):
    config = TableConfig(1000, 64, tf.compat.v1.ones_initializer())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        parameters = ee.AdagradParameters(1.0, initial_accumulator=2.0)
        table = Table("t", config, (), optimizer=parameters)
        (shard,) = storage.create(table, "t", False)
        variables = (shard.weights, *shard.slots)
        storage.save_in_place([storage.StoredTable(**vars(table), variables=(shard,))])
        update = [one.scatter_sub(tf.IndexedSlices([[1.0] * 64], [7])).op for one in variables]
        saver = tf.compat.v1.train.Saver(sharded=True)
        copy = shard.weights.read_value()
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(update)  # From now on, a plain read copies.

        def allocated(fetched, feeds=None):
            """Returns the bytes allocated by reads of variables."""
            options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
            metadata = tf.compat.v1.RunMetadata()
            session.run(fetched, feeds, options, metadata)
            return sum(
                memory.total_bytes
                for device in metadata.step_stats.dev_stats
                for node in device.node_stats
                if "ReadVariableOp" in node.timeline_label
                for memory in node.memory
            )

        assert allocated(copy) == 256_000  # The table: 1,000 rows of 64 float32.
        path = str(tmp_path / "model")
        saved = saver.saver_def.save_tensor_name
        assert allocated(saved, {saver.saver_def.filename_tensor_name: path}) == 0
        session.run(update)
        # Each update subtracts 1 from row 7. One was before the save, and one after it.
        reader = tf.train.load_checkpoint(path)
        np.testing.assert_array_equal(reader.get_tensor("t")[6:9, 0], [1, 1 - 1, 1])
        np.testing.assert_array_equal(reader.get_tensor("t/Adagrad")[6:9, 0], [2, 2 - 1, 2])
        np.testing.assert_array_equal(session.run(shard.weights)[6:9, 0], [1, 1 - 2, 1])
