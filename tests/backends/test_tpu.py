"""The engine for TPU embedding hardware, compared with TensorFlow 2.15's engine and its goldens."""

import json
import pathlib

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_cases
import tpu_graphs
from google.protobuf import text_format
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as optimization_pb2
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration
from tensorflow.python.tpu import tpu_embedding as theirs
from tpu_described import metadata
from tpu_graphs import one_table

import estimator_emb as ee
from estimator_emb import embedding, optimizers
from estimator_emb.legacy import tpu_embedding as ours

GOLDENS = json.loads((pathlib.Path(__file__).parents[1] / "data/tpu_goldens.json").read_text())
needs_original = pytest.mark.skipif(
    theirs.TPUEmbedding is ours.TPUEmbedding,
    reason="TensorFlow >= 2.16 has no TPUEmbedding of its own to compare with",
)
NOT_LEGACY = {
    "Adadelta": optimizers.AdadeltaParameters(0.3, 0.9, 0.01),
    "CenteredRMSProp": optimizers.CenteredRMSPropParameters(0.3, 0.9, 0.6, 0.01),
}


def message(engine):
    (table,) = engine.config_proto.table_descriptor
    return table.optimization_parameters


@needs_original
@pytest.mark.parametrize("optimizer", tpu_cases.OPTIMIZERS)
def test_every_configuration_equals_the_original(optimizer):
    cases = [case for case in tpu_cases.ALL if case.optimizer == optimizer]
    # At least 3 numbers of hosts, 2 partition strategies, with and without pipelining.
    assert len(cases) >= 3 * 2 * 2
    for case in cases:
        expected = case.build(theirs).config_proto
        got = case.build(ours).config_proto
        assert got == expected, case.name
        assert got.SerializeToString() == expected.SerializeToString(), case.name


@pytest.mark.parametrize("case", tpu_cases.KEPT, ids=lambda case: case.name)
def test_configuration_equals_the_golden(case):
    expected = TPUEmbeddingConfiguration()
    text_format.Parse(GOLDENS["configurations"][case.name], expected)
    assert case.build(ours).config_proto == expected


def test_every_golden_has_a_case():
    assert set(GOLDENS["configurations"]) == {case.name for case in tpu_cases.KEPT}
    assert set(GOLDENS["graphs"]) == {case.name for case in tpu_cases.GRAPHS}


@pytest.mark.fast(4)
@needs_original
@pytest.mark.parametrize(
    "case, ragged",
    [
        *((case, False) for case in tpu_cases.KEPT if case.hosts == 2),
        *((case, False) for case in tpu_cases.WITH_PADDING),
        *(
            (tpu_cases.Case(features=features, hosts=2), True)
            for features in ("weighted", "sequence", "one id")
        ),
    ],
    ids=lambda value: value.name if isinstance(value, tpu_cases.Case) else f"ragged={value}",
)
def test_every_op_of_the_graph_equals_the_original(case, ragged):
    got = tpu_graphs.build(case.build(ours), ours, ragged)
    expected = tpu_graphs.build(case.build(theirs), theirs, ragged)
    assert tpu_graphs.describe(got) == tpu_graphs.describe(expected)
    for key in ("variables", "local_variables", "trainable_variables"):
        assert described_variables(got, key) == described_variables(expected, key)


def described_variables(graph, key):
    with graph.as_default():
        found = []
        for one in graph.get_collection(key):
            part = one._save_slice_info and one._save_slice_info.to_proto()
            found.append((one.name, one.shape, one.device, part, one.initial_value.op.type))
        return found


@pytest.mark.parametrize("case", tpu_cases.GRAPHS, ids=lambda case: case.name)
def test_graph_equals_the_golden(case):
    graph = tpu_graphs.build(case.build(ours), ours)
    assert tpu_graphs.describe(graph) == GOLDENS["graphs"][case.name]


def test_the_optimizers_are_those_that_tpus_have():
    of_tensorflow = {
        name.removeprefix("LoadTPUEmbedding").removesuffix("Parameters")
        for name in dir(tf.raw_ops)
        if name.startswith("LoadTPUEmbedding")
    }
    ours = [one.hardware.name for one in optimizers.PARAMETERS]
    unknown = set(ours) - of_tensorflow
    assert not unknown, f"No TPU has these optimizers: {unknown}. See docs/contributing.md."
    # No TensorFlow had a class for MDLAdagradLight, and its rule was never published.
    assert sorted([*ours, "MDLAdagradLight"]) == sorted(of_tensorflow)


@pytest.mark.parametrize("optimizer", optimizers.PARAMETERS, ids=lambda one: one.__name__)
def test_optimizer_sets_every_field_of_its_message(optimizer):
    """Each field is an attribute or argument of the class, some by another name (`renamed`)."""
    descriptor = optimization_pb2.OptimizationParameters.DESCRIPTOR
    fields = descriptor.fields_by_name[optimizer.hardware.message].message_type.fields
    names = {optimizer.hardware.renamed.get(field.name, field.name) for field in fields}
    assert names <= {*optimizer.__init__.__annotations__, *dir(optimizer)}
    assert set(optimizer.hardware.renamed) <= {field.name for field in fields}


@pytest.mark.parametrize("name", NOT_LEGACY)
@pytest.mark.parametrize("hosts", [1, 2])
def test_optimizers_beyond_the_original_load_and_retrieve_slots(name, hosts):
    """TensorFlow's TPUEmbedding has no class for these optimizers, so nothing to compare with."""
    optimizer = NOT_LEGACY[name]
    engine = one_table(hosts=hosts, optimization_parameters=optimizer)
    written = getattr(message(engine), optimizer.hardware.message)
    assert message(engine).WhichOneof("parameters") == optimizer.hardware.message
    for field in written.DESCRIPTOR.fields:
        attribute = optimizer.hardware.renamed.get(field.name, field.name)
        assert getattr(written, field.name) == np.float32(getattr(optimizer, attribute)) != 0
    # One op per host loads, and one retrieves, the weights and each slot of the host's rows.
    with tf.Graph().as_default() as graph:
        made = engine.create_variables_and_ops()
        load, retrieve = made.load_ops(), made.retrieve_ops()
    kind = f"RetrieveTPUEmbedding{name}Parameters"
    retrieves = [op for op in graph.get_operations() if op.type == kind]
    assert len(load) == len(retrieve) == len(retrieves) == hosts
    names = [slot.name for slot in optimizer.slots]
    assert list(made.slot_variables_by_table["t"]._fields) == names
    assert type(made.slot_variables_by_table["t"]).__name__ == f"{name}SlotVariables"
    suffixes = ("", *(one.suffix for one in optimizer.slots))
    for host, op in enumerate(load):
        assert op.type == f"LoadTPUEmbedding{name}Parameters"
        assert [one.name for one in op.op_def.input_arg] == ["parameters", *names]
        variables = [one.op.inputs[0].op.name for one in op.inputs]
        assert variables == [f"t{suffix}/part_{host}" for suffix in suffixes]
    for host, op in enumerate(retrieves):
        assigned = [one.consumers()[0].inputs[0].op.name for one in op.outputs]
        assert op.get_attr("shard_id") == host
        assert assigned == [f"t{suffix}/part_{host}" for suffix in suffixes]


def test_tf2_optimizer_has_its_slots_and_dynamic_rate():
    adam = embedding.Adam(lambda: tf.constant(0.25), epsilon=1e-4)
    engine = one_table(optimization_parameters=adam)
    assert message(engine).adam.epsilon == np.float32(1e-4)
    assert message(engine).adam.use_sum_inside_sqrt is True  # The default of the class.
    assert message(engine).learning_rate.WhichOneof("learning_rate") == "dynamic"
    with tf.Graph().as_default():
        made = engine.create_variables_and_ops()
        assert isinstance(made.slot_variables_by_table["t"], ours.AdamSlotVariables)
        # The rate is a function without arguments, so the op needs no `step`.
        send = engine.generate_send_gradients_op({"x": tf.zeros([4, 2])})
        _gradient, rate = send.inputs
        assert tf.get_static_value(rate) == 0.25
        again = harness.refusal(ValueError, engine.create_variables_and_ops)
    assert again.startswith("Table 't' would share the variable 't' with model_fn")


def test_packing_of_low_dimensions_is_passed_on():
    status = optimization_pb2.LowDimensionalPackingStatus.Status
    packing = embedding.Adagrad(0.1, low_dimensional_packing_status=True)
    engine = one_table(optimization_parameters=packing)
    assert message(engine).low_dimensional_packing_status == status.ENABLED
    assert message(one_table()).low_dimensional_packing_status == status.UNSPECIFIED


def test_a_table_learning_rate_of_zero_is_used():
    """The original takes 0 for a missing rate, and uses the optimizer's."""
    optimizer = {"optimization_parameters": ee.AdagradParameters(0.3)}
    table = ee.TableConfig(7, 2, learning_rate=0.0)
    assert message(one_table(table, **optimizer)).learning_rate.constant == 0.0
    assert message(one_table(**optimizer)).learning_rate.constant == np.float32(0.3)


def test_learning_rate_tags_follow_the_order_of_tables():
    """A tag is the number of a rate function. The original's numbers differ from run to run."""
    functions = [lambda step, i=i: tf.cast(step, tf.float32) + i for i in range(8)]
    # Number of the function by table. g has the constant rate of `one_table`.
    uses = {"h": 3, "b": 7, "c": 7, "a": 5, "g": None, "d": 0, "e": 5, "f": 1}
    tables = {
        name: ee.TableConfig(7, 2, learning_rate_fn=None if use is None else functions[use])
        for name, use in uses.items()
    }
    features = {f"x_{name}": ee.FeatureConfig(name) for name in tables}
    engine = one_table(table_to_config_dict=tables, feature_to_config_dict=features)
    described = engine.config_proto.table_descriptor
    rates = {one.name: one.optimization_parameters.learning_rate for one in described}
    assert rates.pop("g").constant == np.float32(0.3)
    # In the order of table names. Tables with the same function share its tag.
    assert {name: rate.dynamic.tag for name, rate in rates.items()} == {
        "a": 0, "b": 1, "c": 1, "d": 2, "e": 0, "f": 3, "h": 4
    }  # fmt: skip
    with tf.Graph().as_default():
        gradients = {f"x_{name}": tf.zeros([4, 2]) for name in tables}
        send = engine.generate_send_gradients_op(gradients, tf.constant(10, tf.int64))
        rates = run_without_hardware(send.graph, list(send.inputs[len(gradients) :]))
        # By tag: step 10 + the number of the function.
        assert rates == [10.0 + number for number in (5, 7, 0, 1, 3)]
        message = harness.refusal(ValueError, engine.generate_send_gradients_op, gradients)
    assert message.startswith("step must be given, because tables have a learning_rate_fn")


@pytest.mark.parametrize(
    "low, high, limit, expected",
    [
        (None, None, 0.5, (-0.5, 0.5)),
        (-0.25, None, 0.5, (-0.25, 0.5)),
        (None, 0.25, 0.5, (-0.5, 0.25)),
        (-2.0, 3.0, 0.5, (-0.5, 0.5)),
        (1.0, 2.0, 0.5, (1.0, 1.0)),
    ],
)
def test_clipping_limit_comes_before_the_limits_of_the_optimizer(low, high, limit, expected):
    """The hardware has one pair of limits. `expected` must act as both, one after the other."""
    optimizer = ee.AdagradParameters(0.3, clip_gradient_min=low, clip_gradient_max=high)
    engine = one_table(optimization_parameters=optimizer, clipping_limit=limit)
    limits = message(engine).gradient_clipping_limits
    assert (limits.lower.value, limits.upper.value) == expected
    gradients = np.linspace(-4, 4, 33)
    clipped = np.clip(gradients, -limit, limit)
    if (low, high) != (None, None):
        clipped = np.clip(clipped, low, high)
    np.testing.assert_array_equal(np.clip(gradients, *expected), clipped)


def ids_of_hosts(rows, hosts, strategy):
    """Returns the ids of each host that has any."""
    if strategy == "mod":
        return [np.arange(host, rows, hosts) for host in range(min(hosts, rows))]
    return [ids for ids in np.array_split(np.arange(rows), hosts) if ids.size]


@pytest.mark.fast(3)
@pytest.mark.parametrize("rows, hosts", [(7, 1), (7, 5), (13, 5), (3, 5)])
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_load_ops_take_and_retrieve_ops_give_the_rows_of_their_host(rows, hosts, strategy):
    """Retrieved rows are assigned to the parts of the table: variables with consecutive ids."""
    weights = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    table = ee.TableConfig(rows, 2, initializer=harness.initializer(weights))
    adam = ee.AdamParameters(0.1)
    engine = one_table(table, hosts, partition_strategy=strategy, optimization_parameters=adam)
    with tf.Graph().as_default() as graph:
        made = engine.create_variables_and_ops()
        given = [op.inputs[0] for op in made.load_ops()]
        assigns = [assign for op in made.retrieve_ops() for assign in op.control_inputs]
        variables = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
        assert not tf.compat.v1.trainable_variables()  # Only the hardware trains them.
    loaded = run_without_hardware(graph, given, [one.initializer for one in variables])
    with_ids = ids_of_hosts(rows, hosts, strategy)
    for of_host, ids in zip(loaded, with_ids, strict=False):
        np.testing.assert_array_equal(of_host, weights[ids])
    # A host without ids loads one row of padding.
    assert [len(padding) for padding in loaded[len(with_ids) :]] == [1] * (hosts - len(with_ids))
    of_hardware = {}  # Weights + 100 for the first output of an op, slots + 200 and + 300.
    retrieves = [op for op in graph.get_operations() if op.type.startswith("Retrieve")]
    for op, ids in zip(retrieves, with_ids, strict=False):
        for number, output in enumerate(op.outputs, start=1):
            of_hardware[output.name] = weights[ids] + 100 * number
    values = {one.inputs[0].op.name: one.inputs[1] for one in assigns}
    parts = range(min(hosts, rows))
    for name, number in {"t": 1, "t/Adam/m": 2, "t/Adam/v": 3}.items():
        assigned = [values[f"{name}/part_{part}"] for part in parts]
        got = np.concatenate(run_without_hardware(graph, assigned, of_hardware=of_hardware))
        np.testing.assert_array_equal(got, weights + 100 * number)


def run_without_hardware(graph, tensors, before=(), of_hardware=None):
    """Evaluates tensors on this host. `of_hardware` replaces results of hardware ops, by name."""
    names = [one.op.name for one in tf.nest.flatten(tensors)] + [one.name for one in before]
    needed = tf.compat.v1.graph_util.extract_sub_graph(graph.as_graph_def(), names)
    for node in needed.node:
        node.device = ""
        node.attr.pop("_class", None)
    with tf.Graph().as_default():
        given = {name: tf.constant(value) for name, value in (of_hardware or {}).items()}
        tf.import_graph_def(needed, given, name="")
        options = tf.compat.v1.GraphOptions(place_pruned_graph=True)
        config = tf.compat.v1.ConfigProto(graph_options=options)
        with tf.compat.v1.Session(config=config) as session:
            session.run([one.name for one in before])
            fetched = tf.nest.map_structure(lambda one: given.get(one.name, one.name), tensors)
            return session.run(fetched)


SGD = ee.StochasticGradientDescentParameters(0.5)
FREQUENCY = ee.FrequencyEstimatorParameters(0.1, 50.0, 3.0, 1.0)
NOT_ACCUMULATED = ee.AdagradParameters(0.3, use_gradient_accumulation=False)
NOWHERE = {"device_config": None, "master": "grpc://nowhere"}
SLOTS = embedding.Adagrad(0.1, slot_variable_creation_fn=lambda *_: {})
JOBS = tf.train.ClusterSpec({job: [f"{job}:1"] for job in ("a", "b", "c")}).as_cluster_def()
NO_CORES = tf.tpu.experimental.TPUSystemMetadata(0, 0, 0, None, ())
# Arguments of a TPUEmbedding with a table t and its feature x -> the error.
REFUSED = (
    ({"partition_strategy": "both"}, "partition_strategy must be 'div' or 'mod'; got 'both'"),
    ({"mode": 7, "optimization_parameters": None}, "mode must be TRAINING (2) or INFERENCE (1)"),
    (
        {"mode": ours.INFERENCE, "optimization_parameters": SGD},
        f"optimization_parameters must be None in INFERENCE mode; got {SGD!r}.",
    ),
    ({"optimization_parameters": 3}, "must be one of AdadeltaParameters, Adagrad, AdagradMomentum"),
    ({"optimization_parameters": FREQUENCY}, "Table 't': FrequencyEstimatorParameters needs dim"),
    ({"optimization_parameters": SLOTS}, "Table 't': slot_variable_creation_fn of Adagrad works"),
    (
        {"optimization_parameters": NOT_ACCUMULATED, "clipping_limit": 0.5},
        "Table 't': the EmbeddingConfigSpec has clipping_limit=0.5, which on a TPU needs",
    ),
    ({"optimization_parameters": None}, "Table 't' has no optimizer"),
    (
        {"feature_to_config_dict": {"x": ee.FeatureConfig("v")}},
        "and no other; unused are ['t'], unknown are ['v'].",
    ),
    ({"table_to_config_dict": {"t": 3}}, "config of table 't' must be a TableConfig; got 3."),
    ({"feature_to_config_dict": {"x": "t"}}, "config of feature 'x' must be a FeatureConfig"),
    ({"batch_size": 7}, "batch_size must be a multiple of the 2 TPU cores; got 7."),
    (
        {"device_config": ours.DeviceConfig(2, 3, "/job:w")},
        "num_cores of device_config must be a multiple of num_hosts; got 3 cores and 2 hosts.",
    ),
    ({"device_config": None}, "one of master, cluster_def and device_config must be given."),
    ({"system_metadata": NO_CORES, **NOWHERE}, "master 'grpc://nowhere' has no TPU cores."),
    (
        {"system_metadata": metadata(2), "master_job_name": "other", **NOWHERE},
        "the TPU cores have 2 hosts, but the job 'other' has the CPU devices [] only",
    ),
    ({"cluster_def": JOBS, "system_metadata": metadata(2), **NOWHERE}, "it as master_job_name."),
)


@pytest.mark.parametrize(("arguments", "phrase"), REFUSED, ids=lambda one: str(one)[:20])
def test_tpu_embedding_refuses_invalid_arguments(arguments, phrase):
    assert phrase in harness.refusal(ValueError, one_table, **arguments)


def test_gradients_are_sent_in_training_only():
    engine = one_table(mode=ours.INFERENCE, optimization_parameters=None)
    said = harness.refusal(RuntimeError, engine.generate_send_gradients_op, {})
    assert said == "TPUEmbedding: gradients are sent in TRAINING mode only; the mode is INFERENCE."


def test_refuses_invalid_enqueue_data_and_warns_without_sample_indices(caplog):
    engine = one_table()

    def refused(*data):
        return harness.refusal(ValueError, engine.generate_enqueue_ops, data)

    with tf.Graph().as_default():
        with tf.device("/device:CPU:0"):
            ids, places = tf.constant([1], tf.int64), tf.constant([[0, 0]], tf.int64)
        with tf.device("/device:CPU:1"):
            elsewhere = tf.constant([[0, 0]], tf.int64)
        good = {"x": ours.EnqueueData(ids, places)}
        ragged = ours.RaggedEnqueueData(ids, tf.constant([0, 1], tf.int64))
        assert "it lacks ['x'] and has ['y'] besides." in refused(good, {"y": good["x"]})
        assert "it lacks [] and has ['y'] besides." in refused({**good, "y": good["x"]})
        assert "with ragged=False, feature 'x' must be EnqueueData" in refused({"x": ragged})
        apart = refused({"x": ours.EnqueueData(ids, elsewhere)})
        assert "all tensors of a core must be on one device; got embedding_indices of" in apart
        apart = refused(good, {"x": ours.EnqueueData(elsewhere, elsewhere)})
        assert "enqueue_datas_list[1] is on device '/device:CPU:1', but the data of the" in apart
        engine.generate_enqueue_ops([{"x": ours.EnqueueData(ids)}], mode_override="inference")
    (said,) = harness.said(caplog)
    assert said.startswith("enqueue_datas_list[0]: feature 'x' has no sample_indices")


def test_sparse_and_ragged_tensors_become_enqueue_data():
    ids, weights = tf.ragged.constant([[5, 6], [], [7]]), tf.ragged.constant([[0.5, 1.5], [], [2]])
    sparse = [ids.to_sparse(), weights.to_sparse()]
    (of_sparse,) = ours.get_enqueue_datas_list_from_sparse_tensors_list([{"x": sparse[0]}])
    (of_ragged,) = ours.get_enqueue_datas_list_from_ragged_tensors_list([{"x": ids}])
    for layout, weighted, unweighted in (
        ([[0, 0], [0, 1], [2, 0]], ours.EnqueueData.from_sparse_tensor(*sparse), of_sparse["x"]),
        ([0, 2, 2, 3], ours.RaggedEnqueueData.from_ragged_tensor(ids, weights), of_ragged["x"]),
    ):
        assert [one.numpy().tolist() for one in weighted] == [[5, 6, 7], layout, [0.5, 1.5, 2]]
        assert [one.numpy().tolist() for one in unweighted[:2]] == [[5, 6, 7], layout]
        assert unweighted.aggregation_weights is None


@needs_original
def test_the_legacy_module_has_the_names_of_the_original():
    """The original's FtrlSlotVariable is our FtrlSlotVariables, named like all other classes."""
    public = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == theirs.__name__
    } | {"TRAINING", "INFERENCE"}
    assert public <= set(vars(ours))
    for name in public:
        original = getattr(theirs, name)
        if hasattr(original, "_fields"):
            assert getattr(ours, name)._fields == original._fields
            assert getattr(ours, name).__name__ == original.__name__ or name == "FtrlSlotVariable"
