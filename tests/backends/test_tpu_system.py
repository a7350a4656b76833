"""TPUEstimator with `use_tpu=True` on a described TPU: everything except the session."""

import re

import columns_program
import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
from saved_values import save
from tensorflow.python.tpu import tpu_embedding as legacy_module
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding, tpu_estimator
from tpu_cases import halving
from tpu_described import NO_ESTIMATOR, model_fn_of, sparse

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.backends.tpu import backend, embedding
from estimator_emb.engine import tensor_core
from estimator_emb.engine.tables.storage import saved_name
from estimator_emb.spec.resolved import tables_of


def input_fn(params):
    batch = params["batch_size"]

    def element(_):
        ids = {key: sparse(batch) for key in ("item", "words", "history")}
        return {**ids, "age": tf.zeros([batch, 1])}, tf.zeros([batch])

    return tf.data.Dataset.range(100).map(element)


def weighted_input_fn(params):
    def weighted(features, labels):
        return {**features, "shares": sparse(params["batch_size"], tf.float32)}, labels

    return input_fn(params).map(weighted)


def column_spec(spec_class=ee.EmbeddingConfigSpec, optimizer=None, rate=None, **kwargs):
    """Returns (spec, model_fn, input_fn)."""
    columns = columns_program.columns(shared=2, learning_rate_fn=rate)
    optimizer = optimizer or ee.AdagradParameters(0.1)
    spec = spec_class(feature_columns=columns, optimization_parameters=optimizer, **kwargs)
    return spec, model_fn_of(columns), input_fn


def dict_spec(spec_class=ee.EmbeddingConfigSpec, module=ee, **kwargs):
    """Like `column_spec`, with dicts, weights, a sequence, and rates and optimizers per table."""
    kwargs.setdefault("optimization_parameters", module.FtrlParameters(0.3, beta=0.5))
    adam = module.AdamParameters(0.2, beta1=0.7)
    spec = spec_class(
        feature_to_config_dict={
            "item": module.FeatureConfig("small", weight_key="shares"),
            "words": module.FeatureConfig("large"),
            "history": module.FeatureConfig("large", max_sequence_length=3),
        },
        table_to_config_dict={
            "small": module.TableConfig(20, 2, combiner="sum", learning_rate_fn=halving),
            "large": module.TableConfig(31, 3, optimization_parameters=adam),
        },
        **kwargs,
    )
    return spec, model_fn_of(None, ["item", "words", "history"]), weighted_input_fn


def train(of_spec, tmp_path, hosts=1, how=tpu_described.train, **kwargs):
    """Returns the arguments of the session that would open. `how` may also evaluate."""
    spec, model_fn, its_input_fn = of_spec
    return how(tpu_described.estimator(model_fn, spec, tmp_path, hosts, **kwargs), its_input_fn)


def nodes(graph):
    """Returns all nodes of a graph and its functions by name, with irrelevant names normalized."""
    graph_def = graph.as_graph_def()
    numbered = "|".join(one.signature.name for one in graph_def.library.function)

    # Function numbers depend on all functions of the process. In the original, the op that fills a
    # slot with zeros has one of two names.
    def numberless(message):
        text = re.sub(
            rf"\b({numbered})(?=\b|___)", lambda m: re.sub(r"_\d+$", "", m[0]), str(message)
        )
        return text.replace("/Initializer/zeros", "/Initializer/Const")

    found = {numberless(node.name): numberless(node) for node in graph_def.node}
    for function in graph_def.library.function:
        name = numberless(function.signature.name)
        for node in function.node_def:
            found[f"{name}::{node.name}"] = numberless(node)
        found[f"{name}::"] = numberless(function.signature)
        found[f"{name}::results"] = sorted(map(numberless, function.ret.items()))
    return found


ONE_HOST = ee.TPUConfig(iterations_per_loop=5)  # input_fn gives the batch of all its cores
STOCK = {
    "columns": (column_spec, 2, lambda of: {"optimizer": of.AdagradParameters(0.1)}),
    "columns, one host": (
        column_spec,
        1,
        lambda of: {
            "optimizer": of.RMSPropParameters(0.1, 0.9, 0.5, 0.01),
            "rate": halving,
            "partition_strategy": "mod",
        },
    ),
    "dicts": (dict_spec, 2, lambda of: {"module": of}),
    "dicts, one host": (
        dict_spec,
        1,
        lambda of: {
            "module": of,
            "experimental_gradient_multiplier_fn": halving,
            "pipeline_execution_with_tensor_core": True,
            "optimization_parameters": of.MomentumParameters(0.3, 0.5, clip_gradient_min=-1.0),
        },
    ),
}


@pytest.mark.fast(1)
@pytest.mark.parametrize("how", [tpu_described.train, tpu_described.evaluate])
@pytest.mark.parametrize(
    "name",
    [name if "," not in name else harness.slow(name) for name in STOCK],
)
def test_the_whole_graph_equals_that_of_stock(name, how, tmp_path):
    """On TensorFlow >= 2.16, stock tensorflow-estimator uses our module under the legacy name."""
    if legacy_module.TPUEmbedding is embedding.TPUEmbedding and not name.startswith("dicts"):
        pytest.skip("stock tensorflow-estimator looks for optimizers that TensorFlow has dropped")
    spec_of, hosts, arguments = STOCK[name]
    tpu_config = ONE_HOST if hosts == 1 else None

    def built(of_class, spec_class, module):
        of_spec = spec_of(spec_class, **arguments(module))
        reached = train(of_spec, tmp_path, hosts, how, of_class=of_class, tpu_config=tpu_config)
        infeed = reached.hook("TPUInfeedOutfeedSessionHook")
        # The hook also loads the tables, before the first step.
        begins = infeed._embedding_layer_config, [op.name for op in infeed._init_ops]
        return nodes(reached.graph), begins

    expected, begins = built(
        tpu_estimator.TPUEstimator, _tpu_estimator_embedding.EmbeddingConfigSpec, legacy_module
    )
    got, begins_here = built(ee.TPUEstimator, ee.EmbeddingConfigSpec, ee)
    assert len(expected) > 150
    assert set(got) == set(expected)
    assert {name for name in got if got[name] != expected[name]} == set()
    assert begins_here == begins


def of_type(graph, part):
    """Returns the nodes of a graph and its functions with `part` in their type."""
    graph_def = graph.as_graph_def()
    bodies = [graph_def.node, *(one.node_def for one in graph_def.library.function)]
    return [node for body in bodies for node in body if part in node.op]


COLUMNS = ["dense_features/item_embedding/embedding_weights", "history_words_shared_embedding"]
SAVED = {
    column_spec: [*COLUMNS, *(f"{name}/Adagrad" for name in COLUMNS)],
    dict_spec: ["large", "large/Adam/m", "large/Adam/v", "small", "small/Ftrl", "small/Ftrl_1"],
}
"""Variables of tables in a checkpoint."""


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "spec_of, hosts, strategy", [(dict_spec, 2, "mod"), (column_spec, 1, "div")]
)
def test_a_described_tpu_trains(spec_of, hosts, strategy, tmp_path, said, assert_recorded):
    spec = spec_of(partition_strategy=strategy, clipping_limit=0.5)
    tpu_config = tpu_described.per_core_input(tpu_generation="v4" if hosts > 1 else "v2")
    reached = train(spec, tmp_path, hosts, tpu_config=tpu_config)
    (line,) = [one for one in said() if "tables" in one]
    assert line.startswith("Embedding tables train on the TPU's embedding hardware, over ")
    assert_recorded(line)  # As in messages.json: the numbers of hosts, tables, rows and slots.
    # Each host has a part of both tables. They are loaded before the first step, and retrieved.
    loads, retrieves = reached.ops("LoadTPUEmbedding"), reached.ops("RetrieveTPUEmbedding")
    assert len(loads) == len(retrieves) == 2 * hosts
    assert set(loads) <= set(reached.hook("TPUInfeedOutfeedSessionHook")._init_ops)
    # As tpu_described asks: a save every 10 steps, loops of 5 steps.
    saver = reached.hook("CheckpointSaverHook")
    assert (saver._timer._every_steps, saver._steps_per_run) == (10, 5)
    # Checkpoints hold whole tables under their legacy names, and no helper variables.
    saved = {saved_name(one) for one in reached.graph.get_collection("variables")}
    assert saved == {"global_step", "kernel", "kernel/Adagrad", *SAVED[spec_of]}
    for key in ("local_variables", "trainable_variables"):  # A helper for each of 2 tables.
        names = [one.op.name for one in reached.graph.get_collection(key)]
        assert sum(name.startswith("tpu_embedding_dummy_table_variable_") for name in names) == 2


def test_a_described_tpu_evaluates(tmp_path):
    """Tables that do not train are loaded as for SGD, an optimizer without slots."""
    spec = column_spec(partition_strategy="mod")
    reached = train(spec, tmp_path, 2, tpu_described.evaluate)
    loads = reached.ops("LoadTPUEmbedding")  # Two tables on two hosts.
    assert [op.type for op in loads] == ["LoadTPUEmbeddingStochasticGradientDescentParameters"] * 4
    assert set(loads) <= set(reached.hook("TPUInfeedOutfeedSessionHook")._init_ops)
    assert not reached.ops("RetrieveTPUEmbedding")
    parts = [one for one in reached.graph.get_collection("variables") if "/part_" in one.name]
    assert {saved_name(one) for one in parts} == set(COLUMNS)


def test_stock_tensorflow_estimator_is_unchanged():
    """Our TPUEstimators put their own EmbeddingConfig into their contexts, not into the module."""
    assert _tpu_estimator_embedding.tpu_embedding is legacy_module
    assert _tpu_estimator_embedding.EmbeddingConfig is not backend.EmbeddingConfig


def hardware_reads(features, combiner="mean", **feature):
    """Returns features as the hardware reads them, sparse values as (indices, values, shape)."""
    spec = harness.table_spec(20, 2, ee.AdagradParameters(0.1), None, combiner, feature)
    tables, labels, dataset_of = tables_of(spec), tf.zeros([2]), tf.data.Dataset.from_tensors
    of_tensors, _ = backend.as_hardware_reads((features, labels), tables)
    ((of_dataset, _),) = backend.as_hardware_reads(dataset_of((features, labels)), tables)
    (without_labels,) = backend.as_hardware_reads(dataset_of(features), tables)
    assert listed(of_tensors) == listed(of_dataset) == listed(without_labels)
    return listed(of_tensors)


def listed(features):
    def numbers(value):
        if isinstance(value, tf.SparseTensor):
            return numbers(value.indices), numbers(value.values), numbers(value.dense_shape)
        return value.numpy().tolist()

    return {key: numbers(value) for key, value in features.items()}


def test_dense_and_ragged_ids_become_sparse_and_keep_id_0():
    """tensorflow-estimator expects sparse ids, and drops id 0 from dense ids. Here, -1 is no id."""
    dense = {
        "x": tf.constant([[0, 3, -1], [-1, 0, 7]]),
        "w": tf.constant([[0.0, 1.5, 9.0], [9.0, 2.5, 3.5]]),
        "other": tf.constant([[0, 1], [2, 3]]),
    }
    places = [[0, 0], [0, 1], [1, 1], [1, 2]]
    assert hardware_reads(dense, weight_key="w") == {
        "x": (places, [0, 3, 0, 7], [2, 3]),
        "w": (places, [0.0, 1.5, 2.5, 3.5], [2, 3]),
        "other": [[0, 1], [2, 3]],
    }
    ragged = {
        "x": tf.ragged.constant([[0], [3, 0]], dtype=tf.int64),
        "w": tf.ragged.constant([[1.0], [2.0, 3.0]]),
    }
    places = [[0, 0], [1, 0], [1, 1]]
    assert hardware_reads(ragged, weight_key="w") == {
        "x": (places, [0, 3, 0], [2, 2]),
        "w": (places, [1.0, 2.0, 3.0], [2, 2]),
    }
    assert hardware_reads({"x": tf.constant([5, 0])}) == {"x": ([[0, 0], [1, 0]], [5, 0], [2, 1])}
    mixed = {"x": tf.sparse.from_dense([[7, 0]]), "w": tf.constant([[1.0, 2.0]])}
    assert hardware_reads(mixed, weight_key="w") == {"x": ([[0, 0]], [7], [1, 2]), "w": [[1, 2]]}
    mixed = {"x": tf.constant([[7, 0]]), "w": tf.sparse.from_dense([[2.0, 0.0]])}
    assert hardware_reads(mixed, weight_key="w")["w"] == ([[0, 0]], [2], [1, 2])


def test_one_id_for_each_sample_stays_dense_unless_it_is_a_sequence():
    for ids in ([5, 0], [[5], [0]]):
        assert hardware_reads({"x": tf.constant(ids)}, None) == {"x": [5, 0]}
    sequence = {"x": tf.constant([[5, 0], [-1, 1]])}
    got = hardware_reads(sequence, None, max_sequence_length=2)
    assert got == {"x": ([[0, 0], [0, 1], [1, 1]], [5, 0, 1], [2, 2])}


def test_dense_int32_ids_are_enqueued_as_int64(tmp_path):
    def dense_input_fn(params):
        return input_fn(params).map(lambda f, y: ({**f, "item": tf.zeros([4], tf.int32)}, y))

    reached = train((*column_spec()[:2], dense_input_fn), tmp_path)
    enqueues = of_type(reached.graph, "EnqueueTPUEmbedding")
    # The op has one type, T2, for the ids of all features. The ids of the others are int64.
    assert {node.attr["T2"].type for node in enqueues} == {tf.int64.as_datatype_enum}
    assert len(of_type(reached.graph, "Where")) == 1  # In the dataset, where id 0 stays.


@pytest.mark.parametrize("generation", ["v5e", "v5p", "v6e"])
def test_refuses_generations_without_estimators(generation, tmp_path):
    config = tpu_described.per_core_input(tpu_generation=generation)
    message = harness.refusal(ValueError, train, dict_spec(), tmp_path, tpu_config=config)
    assert message == f"TPUConfig: tpu_generation is '{generation}', and {NO_ESTIMATOR}"


def test_tensor_core_tables_need_no_embedding_hardware(tmp_path):
    """The column's table is a variable of the model, and trains with it on the tensor cores."""
    item, shape = fc.categorical_column_with_identity("item", 20), [None, tpu_described.POSITION]
    on_core = {"embedding_lookup_device": "tpu_tensor_core", "tensor_core_shape": shape}
    column = fc.embedding_column(item, 3, **on_core)

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(fc.DenseFeatures([column])(features))
        return harness.minimized(mode, loss, 0.1)

    def only_items(params):
        return input_fn(params).map(lambda features, labels: ({"item": features["item"]}, labels))

    spec = ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1))
    reached = train((spec, model_fn, only_items), tmp_path)
    assert not of_type(reached.graph, "TPUEmbedding")
    trained = [one.op.name for one in reached.graph.get_collection("trainable_variables")]
    assert trained == ["dense_features/item_embedding/embedding_weights"]


def test_wrong_ids_on_the_tensor_core_are_refused():
    item = fc.categorical_column_with_identity("item", 20)
    on_core = {"embedding_lookup_device": "tpu_tensor_core", "tensor_core_shape": [None, 2]}
    spec = ee.EmbeddingConfigSpec(
        [fc.embedding_column(item, 3, **on_core)], ee.AdagradParameters(0.1)
    )
    ids = tf.SparseTensor(*harness.sparse([[1], [2, 3], [4]]))
    assert tensor_core.padded(spec, {"item": ids})["item"].shape == [3, 2]  # tensor_core_shape: 2.
    mask = "item__TENSOR_CORE_MASK"  # The key that TensorFlow gives to the column's mask.
    no_integers = "ids must be a SparseTensor or RaggedTensor of integers; got "
    for error, features, phrase in (
        (KeyError, {}, "Feature item of column item_embedding is not among the features of the "),
        (ValueError, {"item": tf.constant([1])}, no_integers),
        (ValueError, {"item": tf.cast(ids, tf.float32)}, no_integers),
        (ValueError, dict.fromkeys(("item", mask), ids), f"Rename the feature {mask} in "),
    ):
        assert phrase in harness.refusal(error, tensor_core.padded, spec, features)


def test_predict_says_where_to_predict(tmp_path, assert_recorded):
    """tensorflow-estimator cannot predict with tables on a TPU. messages.json has the way out."""
    spec, model_fn, its_input_fn = dict_spec()
    estimator = tpu_described.estimator(model_fn, spec, tmp_path)
    predicted = estimator.predict(its_input_fn)
    assert_recorded(harness.refusal(NotImplementedError, next, predicted))


def words_spec(rows=31, dimension=4, parameters=None):
    """Returns (spec, model_fn, input_fn)."""
    tables = {"words": ee.TableConfig(rows, dimension)}
    spec = harness.tables_spec(tables, parameters or ee.AdagradParameters(0.1))

    def only_words(params):
        return input_fn(params).map(lambda features, labels: ({"words": features["words"]}, labels))

    return spec, model_fn_of(None, ["words"]), only_words


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 3])
def test_checkpoint_is_compared_before_a_session_opens(hosts, tmp_path, assert_recorded):
    """A program that does not fit its checkpoint fails before it occupies a TPU."""
    saved = {}
    for variable in train(words_spec(), tmp_path / "new", hosts).graph.get_collection("variables"):
        part = variable._get_save_slice_info()
        shape = part.full_shape if part else variable.shape.as_list()
        saved[saved_name(variable)] = np.zeros(shape, variable.dtype.as_numpy_dtype)
    assert saved["words"].shape == saved["words/Adagrad"].shape == (31, 4)
    assert not [name for name in saved if "dummy" in name]
    folder = tmp_path / "model"
    # A legacy TPU's checkpoint also has helper variables.
    helper = "tpu_embedding_dummy_table_variable_words"
    helpers = {name: np.zeros([1], np.float32) for name in (helper, f"{helper}/Adam")}
    path = save(f"{folder}/model.ckpt-0", {**saved, **helpers})
    evaluate = tpu_described.evaluate
    for how in (tpu_described.train, evaluate):
        assert train(words_spec(), folder, hosts, how).graph

    def refused(error, phrase, of_spec, model_dir=folder, **given):
        with pytest.raises(error, match=f"^{phrase} from checkpoint failed: ") as caught:
            train(of_spec, model_dir, hosts, **given)
        assert_recorded(caught.value)  # As in messages.json: what does not fit, and what to do.

    # Other numbers of rows, another optimizer, and another dimension than in the checkpoint.
    refused(ValueError, "Restoring", words_spec(rows=40))
    refused(ValueError, "Restoring", words_spec(rows=40), how=evaluate)
    adam = words_spec(parameters=ee.AdamParameters(0.1))
    refused(tf.errors.NotFoundError, "Restoring", adam)
    # The hardware's tables are not trainable, so a warm start takes them only if it lists them.
    settings = {"warm_start_from": ee.WarmStartSettings(path, ["words/part_"])}
    refused(ValueError, "Warm-starting", words_spec(dimension=8), tmp_path / "new", **settings)
    (folder / "checkpoint").unlink()  # The file that names the latest checkpoint.
    for how in (tpu_described.train, evaluate):
        with pytest.raises(ValueError, match="which says which checkpoint is the latest, is miss"):
            train(words_spec(), folder, hosts, how)
