"""Whole trainings and evaluations with every read delayed until the step would be over.

Step n must read the values that n steps have written, as on a TPU. The expected numbers follow from
n alone.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf
from delays import held_back, slowly

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
STEPS = 6

WAYS = {
    "host": {},
    "one core": {"cores": 1},
    "host, reference variables": {"resource": False},
    "host, tables": {"tables": True},
    "host, tables, reference variables": {"tables": True, "resource": False},
    "one core, tables": {"cores": 1, "tables": True},
    "one core, tables, reference variables": {"cores": 1, "tables": True, "resource": False},
    "eight cores": {"cores": 8},
    "eight cores, tables, a loop": {"cores": 8, "tables": True, "loop": 3},
    "one core, a loop": {"cores": 1, "loop": 3},
}


@pytest.fixture
def resource_variables():
    before = v1.resource_variables_enabled()

    def use(resource):
        (v1.enable_resource_variables if resource else v1.disable_resource_variables)()

    yield use
    use(before)


def spec_of(tables):
    if not tables:
        return None
    ids = fc.categorical_column_with_identity("ids", 3)
    return ee.EmbeddingConfigSpec(
        feature_columns=[fc.embedding_column(ids, 2, initializer=tf.zeros_initializer())],
        optimization_parameters=ee.StochasticGradientDescentParameters(1.0),
        experimental_gradient_multiplier_fn=lambda step: 1.0 + slowly(tf.cast(step, tf.float32)),
    )


class Program:
    """A model with variables that count its steps, and with delayed reads of them."""

    def __init__(self):
        self.received = []
        self.fetches = harness.Fetches(lambda: self.late)

    def model_fn(self, features, labels, mode, params):
        global_step = v1.train.get_global_step()
        counter = v1.get_variable("counter", [], initializer=v1.zeros_initializer())
        weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
        with held_back():
            late = [tf.identity(one) for one in (counter, weight)]
            late += [tf.cast(global_step, tf.float32)]
            late += [v1.train.polynomial_decay(1.0, global_step, 8, 0.0)]
        late = [tf.reshape(one, [1]) for one in late]
        self.late = slowly(late[0])
        if not params["use_tpu"]:
            v1.summary.scalar("late", late[0][0])
            v1.summary.scalar("late_step", slowly(late[2])[0])
        loss = weight * tf.reduce_mean(labels)
        if "ids" in features:
            loss += tf.reduce_mean(features["ids"])
        if mode == ee.ModeKeys.EVAL:
            with tf.control_dependencies([counter.assign_add(1.0).op]):
                loss = tf.identity(loss)
            given = [tf.tile(one, [params["batch_size"]]) for one in late]
            return ee.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(self.metrics, given))
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        if params["use_tpu"]:
            optimizer = v1.tpu.CrossShardOptimizer(optimizer)
        return ee.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=tf.group(optimizer.minimize(loss, global_step), counter.assign_add(1.0).op),
            host_call=(self.host_call, late),
            training_hooks=[] if params["use_tpu"] else [self.fetches],
        )

    def host_call(self, *late):
        def keep(*late):
            self.received.append([one.tolist() for one in late])
            return np.int32(0)

        return v1.py_func(keep, late, tf.int32)

    def metrics(self, *late):
        return {f"late {i}": v1.metrics.mean(one) for i, one in enumerate(late)}


def input_fn(params):
    one = {"ids": np.int64(0), "other": np.float32(0.0)}, np.float32(1.0)
    samples = tf.data.Dataset.from_tensors(one).repeat()
    return samples.batch(params["batch_size"], drop_remainder=True)


def estimator(program, directory, cores=None, tables=False, loop=1, summaries=1, **_):
    def model_fn(features, labels, mode, params):
        given = features if tables else {"other": features["other"]}
        return program.model_fn(given, labels, mode, params)

    run = {**harness.SILENT, "save_summary_steps": summaries}
    tpu = {"iterations_per_loop": loop}
    return harness.estimator(
        model_fn, spec_of(tables), directory, 8, num_shards=cores, run=run, tpu=tpu
    )


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("way", WAYS)
def test_a_step_reads_the_writes_of_earlier_steps(tmp_path, resource_variables, way):
    options = {"resource": True, **WAYS[way]}
    resource_variables(options["resource"])
    program = Program()
    trained = estimator(program, tmp_path, **options)
    trained.train(input_fn, max_steps=STEPS)
    cores = options.get("cores") or 1
    # Counter, weight (of gradient 1 and rate 1), step, and a rate that decays within 8 steps.
    of_steps = [[n, -n, n, 1 - n / 8] for n in range(STEPS)]
    assert program.received == [[[one] * cores for one in of_step] for of_step in of_steps]
    fetched = [] if options.get("cores") else [[float(n)] for n in range(STEPS)]
    assert program.fetches.values == fetched
    shown = [] if options.get("cores") else list(range(STEPS))  # A TPU refuses summaries.
    of_steps = harness.summaries(tmp_path).values()
    for tag in ("late", "late_step"):
        assert [values[tag] for values in of_steps if tag in values] == shown
    values = {name: trained.get_variable_value(name) for name in trained.get_variable_names()}
    assert values["counter"] == -values["weight"] == values["global_step"] == STEPS
    if options.get("tables"):
        (table,) = (value for name, value in values.items() if value.shape == (3, 2))
        # The mean is over 16 values, eight samples use the row, and the multiplier is 1 + n.
        total = sum(8 / 16 * (1 + n) for n in range(STEPS))
        np.testing.assert_allclose(table, [[-total, -total], [0, 0], [0, 0]], rtol=1e-6)
    metrics = trained.evaluate(input_fn, steps=4)
    assert metrics["late 0"] == np.mean([6, 7, 8, 9])  # The counter as each of 4 steps begins.
    assert [metrics[f"late {i}"] for i in (1, 2, 3)] == [-STEPS, STEPS, 1 - STEPS / 8]


class SumsTable(harness.Fetches):
    """Fetches the sum of a table, found among the graph's variables as programs do."""

    def __init__(self):
        super().__init__(lambda: self.sum)
        self.eager = [tf.constant(1.0), tf.Variable(1.0)]  # They are in no graph.

    def begin(self):
        (self.table,) = (one for one in v1.trainable_variables() if one.shape == (3, 2))
        self.sum = tf.reduce_sum(tf.identity(self.table))


@pytest.mark.fast(2)
@pytest.mark.parametrize("kernels", ["0", "1"])  # "0": TensorFlow's ops. "1": kernels in C++.
@pytest.mark.parametrize("cores", [None, 2])
def test_a_hook_reads_a_table_before_its_update(tmp_path, monkeypatch, native, kernels, cores):
    """DisableCopyOnRead must come first: otherwise reads copy a table with updated rows."""
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", kernels)
    hook = SumsTable()
    trained = estimator(Program(), tmp_path, cores, tables=True, summaries=None)
    trained.train(input_fn, max_steps=3, hooks=[hook])
    # Step n subtracts (1 + n) / 2 from each of two numbers in one row.
    expected = [-sum(1 + n for n in range(step)) for step in range(3)]
    np.testing.assert_allclose(hook.values, expected, rtol=1e-6)
    read = hook.sum.op.inputs[0].op.inputs[0].op  # Before the Sum and the Identity.
    assert read.type == "ReadVariableOp"
    for of_table in (read, hook.table._graph_element.op):
        assert [op.type for op in of_table.control_inputs] == ["DisableCopyOnRead"]
    waiting = {op.type for op in read._control_outputs}
    assert waiting & {"HostTablesUpdate", "ResourceScatterUpdate"}  # Of C++, and of TensorFlow.
