"""Checkpoints move to TensorFlow 2's TPUEmbedding and back, checked with TensorFlow's own ops."""

import contextlib
import functools

import harness
import numpy as np
import processes
import pytest
import reference
import tensorflow as tf
from descriptors import OPTIMIZERS
from saved_values import MOD, WORDS, write

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import checkpoint, embedding
from estimator_emb.checkpoints.files import checkpoint_reader
from estimator_emb.optimizers import TF2_OPTIMIZERS

theirs = tf.tpu.experimental.embedding
spec_of = functools.partial(harness.tables_spec, optimizer=ee.AdagradParameters(0.1))
WORDS_OF_MOD = spec_of({"words": ee.TableConfig(13, 2)})
ROWS = np.float32([[10 * row, 10 * row + 1] for row in range(13)])
"""The rows of the table 'words' in MOD, a checkpoint of a TPU with four hosts."""
VOCABULARY, DIMENSION = 7, 3
MOVED = [
    one
    for one in OPTIMIZERS
    if any(issubclass(moved, type(one.parameters)) for moved in TF2_OPTIMIZERS)
]
"""Optimizers that TensorFlow 2 has too. The slots of the others are left out."""
STAYING = [one for one in OPTIMIZERS if one not in MOVED]


def values_of(optimizer, seed):
    random = np.random.default_rng(seed)
    shape = VOCABULARY, optimizer.parameters.required_dimension or DIMENSION
    slots = [random.uniform(0.1, 2, shape) for _ in optimizer.parameters.slots]
    if optimizer.name.startswith("ftrl") or optimizer.name == "tf2_ftrl":
        slots[1] = random.normal(size=shape)  # Ftrl's linears may be negative.
    return [np.float32(one) for one in (random.normal(size=shape), *slots)]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Returns a spec with a table per optimizer, the saved values, and the moved checkpoint."""
    folder = tmp_path_factory.mktemp("everything")
    tables, features, saved = {}, {}, {"global_step": np.int64(12)}
    for number, one in enumerate(OPTIMIZERS):
        combiner = ("sum", "mean", "sqrtn", None)[number % 4]
        dimension = one.parameters.required_dimension or DIMENSION
        options = {"combiner": combiner, "optimization_parameters": one.parameters}
        tables[one.name] = ee.TableConfig(VOCABULARY, dimension, **options)
        features[f"of_{one.name}"] = ee.FeatureConfig(one.name, weight_key="weights")
        suffixes = ["", *(slot.suffix for slot in one.parameters.slots)]
        for suffix, value in zip(suffixes, values_of(one, number), strict=True):
            saved[one.name + suffix] = value
    spec = ee.EmbeddingConfigSpec(feature_to_config_dict=features, table_to_config_dict=tables)
    path = write(folder / "model.ckpt-12", saved)
    return spec, saved, embedding.checkpoint_to_tensorflow(spec, path, str(folder / "tf2"))


def restored(moved, made=theirs.TPUEmbedding, hosts=1):
    """Restores all of a checkpoint into a layer, sharded as on a TPU of some hosts, and a step."""
    from tensorflow.python.tpu import tpu_embedding_v2

    creator = tpu_embedding_v2.make_sharded_variable_creator(["/cpu:0"] * hosts)
    with tf.variable_creator_scope(creator) if hosts > 1 else contextlib.nullcontext():
        layer = made(moved.translation.features, None)
        layer.build()
    saver = tf.train.Checkpoint(embedding=layer, step=tf.Variable(0, dtype=tf.int64))
    saver.restore(moved.checkpoint).assert_consumed()
    return saver


def test_every_optimizer_resumes_in_tensorflow_2(everything):
    """TensorFlow finds each value under its name. test_rules.py tests what the optimizers do."""
    _, saved, moved = everything
    saver = restored(moved)
    assert int(saver.step) == 12
    for one in MOVED:
        variables = saver.embedding._variables[one.name]
        slots = {slot.name: slot.suffix for slot in one.parameters.slots}
        assert set(variables) == {"parameters", *slots}
        for slot, suffix in {"parameters": "", **slots}.items():
            np.testing.assert_array_equal(variables[slot], saved[one.name + suffix], one.name)
            place = f"embedding/{one.name}" + (f"/{slot}" if suffix else "")
            assert moved.variables[one.name + suffix] == place
    assert set(moved.left_out) == {
        one.name + slot.suffix for one in STAYING for slot in one.parameters.slots
    }
    lines = [line.split() for line in str(moved).splitlines()]  # Variables and new places.
    assert ["momentum/Momentum", "left", "out"] in lines
    assert ["momentum", "embedding/momentum"] in lines
    # ftrl_zero starts from 0, and FTRL of TensorFlow 2 must start above 0.
    assert {loss.owner for loss in moved.translation.losses} == {
        f"Table {name!r}" for name in ["ftrl_zero", *(one.name for one in STAYING)]
    }


def test_activations_in_tensorflow_2_are_equal(everything):
    spec, saved, moved = everything
    layer = restored(moved, theirs.TPUEmbeddingForServing).embedding
    ids, weights = [[1, 1, 5], [0], [6, 2]], [[0.5, 2.0, 1.0], [3.0], [1.0, 0.25]]
    inputs = {"weights": tf.ragged.constant(weights).to_sparse()}
    inputs |= dict.fromkeys(moved.translation.features, tf.ragged.constant(ids).to_sparse())
    features = {key: inputs[key] for key in moved.translation.features}
    of_layer, scales = moved.translation.features, moved.translation.weights(inputs)
    got = theirs.serving_embedding_lookup(features, scales, layer.embedding_tables, of_layer)
    for one in OPTIMIZERS:
        combiner = spec.table_to_config_dict[one.name].combiner or "sum"
        wanted = reference.combine(saved[one.name], ids, weights, combiner)
        np.testing.assert_allclose(got[f"of_{one.name}"], wanted, rtol=1e-5, atol=1e-6)


def test_a_mod_checkpoint_moves_to_three_hosts_and_back(tmp_path, monkeypatch):
    """A 'mod' checkpoint of four TPU hosts moves to TensorFlow 2 on three hosts, and back."""
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 24)  # Three rows.
    moved = embedding.checkpoint_to_tensorflow(WORDS_OF_MOD, MOD, str(tmp_path / "tf2"))
    words = ROWS.copy()
    saver = restored(moved, hosts=3)
    layer = saver.embedding
    for name, wanted in (("parameters", words), ("accumulators", words + 0.5)):
        parts = layer._variables["words"][name].variables
        assert [part.shape[0] for part in parts] == [5, 4, 4]  # The 13 rows on three hosts.
        np.testing.assert_array_equal(np.concatenate(parts), wanted)
    layer._variables["words"]["parameters"].variables[1].assign_add(np.ones([4, 2]))
    words[5:9] += 1  # The rows of the second host.
    model = tf.train.Checkpoint(embedding=layer, dense=tf.Variable([1.0]))
    path = tf.train.Checkpoint(model=model, step=saver.step).save(f"{tmp_path}/trained/ckpt")
    for given, folder in ((path, "file"), (str(tmp_path / "trained"), "folder")):
        new = str(tmp_path / folder / "model.ckpt-7")
        assert embedding.checkpoint_from_tensorflow(given, new, {"words": WORDS}).variables == {
            "model/embedding/words": WORDS,
            "model/embedding/words/accumulators": f"{WORDS}/Adagrad",
            "step": "global_step",
        }
        np.testing.assert_array_equal(checkpoint.table(new, "words"), words)
        np.testing.assert_array_equal(checkpoint.table(new, "words", "Adagrad"), ROWS + 0.5)
        with checkpoint_reader.CheckpointReader(new) as opened:
            assert opened.whole("global_step") == 7  # The step of MOD, trained no further.
    without = embedding.checkpoint_from_tensorflow(path, f"{tmp_path}/a.ckpt", slots=False)
    assert without.left_out == ("model/embedding/words/accumulators",)
    assert list(checkpoint.tables(without.checkpoint)) == ["words"]


def keys_of(checkpoint):
    """Returns the keys of a checkpoint, each with its shape and dtype."""
    reader = tf.train.load_checkpoint(checkpoint)
    dtypes, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    return {key: (shapes[key], dtypes[key]) for key in shapes}


@pytest.mark.parametrize("made", [theirs.TPUEmbedding, theirs.TPUEmbeddingForServing])
def test_moved_checkpoints_have_tensorflows_keys(made, tmp_path):
    tables = {
        "a.b/c": ee.TableConfig(4, 2, optimization_parameters=ee.AdamParameters(0.1)),
        "t": ee.TableConfig(3, 1, optimization_parameters=embedding.FTRL(0.1)),
        "u": ee.TableConfig(3, 1, optimization_parameters=embedding.SGD(0.1)),
    }
    shapes = {"a.b/c": (4, 2), "t": (3, 1), "u": (3, 1)}
    shapes |= {f"a.b/c/Adam/{slot}": (4, 2) for slot in "mv"}
    shapes |= {f"t/Ftrl{end}": (3, 1) for end in ("", "_1")}
    saved = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    path = write(tmp_path / "a.ckpt", {**saved, "global_step": np.int64(5)})
    moved = embedding.checkpoint_to_tensorflow(spec_of(tables), path, f"{tmp_path}/tf2")
    assert keys_of(moved.checkpoint) == keys_of(restored(moved, made).save(f"{tmp_path}/own/ckpt"))


def test_a_table_of_columns_comes_back_bit_by_bit(tmp_path):
    words = harness.normal(1, 5, 2)
    words[0] = np.nan, -0.0
    saved = {WORDS: words, f"{WORDS}/Adam/m": -words, f"{WORDS}/Adam/v": words + 1}
    path = write(tmp_path / "model.ckpt-0", {**saved, "words": np.zeros([5, 2], np.float32)})
    column = fc.categorical_column_with_vocabulary_list("words", list("abcde"))
    options = {"optimization_parameters": ee.AdamParameters(0.1)}
    spec = ee.EmbeddingConfigSpec(feature_columns=[fc.embedding_column(column, 2)], **options)
    moved = embedding.checkpoint_to_tensorflow(spec, path, str(tmp_path / "tf2"))
    layer = theirs.TPUEmbedding(moved.translation.features, None)
    layer.build()
    # The old checkpoint has no global step, so the new checkpoint has no step.
    tf.train.Checkpoint(embedding=layer).restore(moved.checkpoint).assert_consumed()
    assert str(moved).splitlines() == [
        f"{'variable':<{len(WORDS) + 7}}  in {tmp_path}/tf2/ckpt-1",
        f"{WORDS:<{len(WORDS) + 7}}  embedding/tbl_words",
        f"{WORDS}/Adam/m  embedding/tbl_words/momenta",
        f"{WORDS}/Adam/v  embedding/tbl_words/velocities",
    ]
    new = f"{tmp_path}/back/model.ckpt-0"
    embedding.checkpoint_from_tensorflow(moved.checkpoint, new, {"tbl_words": WORDS})
    with checkpoint_reader.CheckpointReader(new) as opened:
        assert set(opened.shapes) == {*saved, "estimator_emb/row_order"}
        for name, value in saved.items():
            np.testing.assert_array_equal(opened.whole(name).view(np.int32), value.view(np.int32))


TABLE = ee.TableConfig(4, 2)
BY_ADAM = TABLE._replace(optimization_parameters=ee.AdamParameters(0.1))
BY_STEP = TABLE._replace(learning_rate_fn=lambda step: 0.5)


@pytest.mark.parametrize(
    "table, arguments, says",
    [
        (ee.TableConfig(9, 2), {}, "Table 't' is [9, 2], and 't' in"),
        (BY_ADAM, {}, "has no 't/Adam/m', the slot of its AdamParameters; it has ['t/Adagrad']."),
        (TABLE, {"variables": {"t": "u"}}, "Table 't': there is no table called 'u' in"),
        (TABLE, {"variables": {"u": "t"}}, "variables names ['u'], and the tables of the spec are"),
        (BY_STEP, {}, "Table 't': its learning_rate_fn is a function of the global step; give"),
    ],
)
def test_a_refused_move_writes_no_files(table, arguments, says, tmp_path):
    table_and_slot = {"t": np.ones([4, 2], np.float32), "t/Adagrad": np.ones([4, 2], np.float32)}
    path = write(tmp_path / "a.ckpt", table_and_slot)
    before = sorted(tmp_path.iterdir())
    refusal_of_move = functools.partial(
        harness.refusal, ValueError, embedding.checkpoint_to_tensorflow, spec_of({"t": table}), path
    )
    assert says in refusal_of_move(str(tmp_path / "out"), **arguments)
    exists = f"checkpoint_to_tensorflow: {str(tmp_path)!r} exists already."
    assert refusal_of_move(str(tmp_path), step=1) == exists
    assert sorted(tmp_path.iterdir()) == before


def test_tables_that_would_share_a_variable_are_refused(tmp_path):
    tables = {name: ee.TableConfig(4, 2) for name in ("a/b", "A_b")}
    names = ("a/b", "a/b/Adagrad", "A_b", "A_b/Adagrad")  # Alike, but different.
    path = write(tmp_path / "a.ckpt", dict.fromkeys(names, np.ones([4, 2], np.float32)))
    given = spec_of(tables), path, f"{tmp_path}/tf2"
    to_tensorflow, variables = embedding.checkpoint_to_tensorflow, {"A_b": "a/b"}
    message = harness.refusal(ValueError, to_tensorflow, *given, variables=variables)
    assert message.startswith(f"Tables 'A_b' and 'a/b' would both be 'a/b' of {path!r}")
    moved = to_tensorflow(*given)  # By their own names, the tables differ.
    assert moved.variables["a/b/Adagrad"] == "embedding/a/b/accumulators"
    assert set(moved.variables) == set(names)


def test_a_refused_move_back_writes_no_files(tmp_path):
    def error(path, destination="new", **names):
        given = embedding.checkpoint_from_tensorflow, path, f"{tmp_path}/{destination}"
        return harness.refusal(ValueError, *given, **names)

    ours = write(tmp_path / "ours", {"t": np.ones([4, 2], np.float32)})
    assert error(ours).startswith(f"{ours!r} is no checkpoint of tf.train.Checkpoint")
    assert error(ours, "ours") == f"checkpoint_from_tensorflow: '{ours}.index' exists already."
    model = tf.train.Checkpoint(dense=tf.Variable([1.0])).write(f"{tmp_path}/model")
    assert error(model) == f"{model!r} has no tables of TPUEmbedding."
    features = {
        key: theirs.FeatureConfig(theirs.TableConfig(2, 2, name=key, optimizer=theirs.Adagrad()))
        for key in ("t", "t/Adagrad")  # The second has the name of the first one's slot.
    }
    layer = theirs.TPUEmbedding(features, None)
    layer.build()
    both = tf.train.Checkpoint(embedding=layer).write(f"{tmp_path}/both")
    assert "two variables would be called 't/Adagrad'" in error(both)
    assert f"names ['u'], and the tables of {both!r} are" in error(both, variables={"u": "x"})
    layer._sparse_core_table_layouts = tf.Variable(b"stacked")  # TPUEmbeddingV2 saves this too.
    stacked = tf.train.Checkpoint(embedding=layer).write(f"{tmp_path}/stacked")
    assert error(stacked).startswith(f"{stacked!r} is a checkpoint of TPUEmbeddingV2, whose rows")
    assert not list(tmp_path.glob("new*"))


@pytest.mark.skipif(
    not hasattr(theirs, "SparseCoreEmbeddingConfig"),
    reason="this TensorFlow has no SparseCoreEmbeddingConfig",
)
def test_tpu_embedding_v2_restores_rows_in_order(tmp_path):
    """TPUEmbeddingV2 restores with an adapter that shuffles the rows of each table."""
    from tensorflow.python.tpu import tpu_embedding_v3
    from tensorflow.python.tpu import tpu_embedding_v3_checkpoint_adapter as adapters

    moved = embedding.checkpoint_to_tensorflow(WORDS_OF_MOD, MOD, f"{tmp_path}/tf2", batch_size=8)
    limits = {"max_ids_per_table": {"words": 12}, "max_unique_ids_per_table": {"words": 4}}
    options = {"disable_table_stacking": True, "allow_id_dropping": False}
    config = theirs.SparseCoreEmbeddingConfig(max_ids_per_chip_per_sample=64, **limits, **options)
    features = moved.translation.features
    stacked = tpu_embedding_v3._stack_tables_with_same_table_dim_and_optimizer(
        [features["words"].table], list(features.items()), 2, 2, config
    )
    adapter = adapters.TpuEmbeddingV3CheckpointAdapter.create_from_checkpoint(moved.checkpoint)
    adapter.initialize_reshard_callbacks(stacked.table_to_layout)
    callback = adapter._checkpoint_to_reshard_callback["words"]
    rows, columns = stacked.table_to_layout["words"].unsharded_padded_shape
    whole = f"{rows} {columns} 0,{rows}:0,{columns}"
    for place, more in (("words", 0), ("words.Saccumulators", 0.5)):
        key = f"embedding/{place}/.ATTRIBUTES/VARIABLE_VALUE"
        keys, slices = callback.update_restore_inputs(key, whole)
        assert keys == [key]
        read = tf.raw_ops.RestoreV2(
            prefix=moved.checkpoint, tensor_names=keys, shape_and_slices=slices, dtypes=[tf.float32]
        )
        shuffled = callback.reshard(read, whole).numpy()
        assert shuffled.shape == (rows, columns)
        # Row i lies on SparseCore i mod 4.
        got = [shuffled[row % 4 * (rows // 4) + row // 4, :2] for row in range(13)]
        np.testing.assert_array_equal(got, ROWS + more)


@pytest.mark.slow
def test_a_checkpoint_moves_both_ways_in_a_tensorflow_1_program(tmp_path):
    """The program that makes the spec also does the move, without eager execution."""
    program = f"""
import tensorflow as tf
import estimator_emb as ee
from estimator_emb import checkpoint, embedding
tf.compat.v1.disable_v2_behavior()
table = ee.TableConfig(13, 2, learning_rate_fn=lambda step: 0.1)
spec = ee.EmbeddingConfigSpec(
    feature_to_config_dict={{"w": ee.FeatureConfig("words")}},
    table_to_config_dict={{"words": table}},
    optimization_parameters=ee.AdagradParameters(0.1),
)
step = tf.compat.v1.train.get_or_create_global_step()
moved = embedding.checkpoint_to_tensorflow(spec, {MOD!r}, "tf2", step=step)
back = embedding.checkpoint_from_tensorflow(moved.checkpoint, "back/model.ckpt-7")
assert (checkpoint.table(back.checkpoint, "words") == checkpoint.table({MOD!r}, "words")).all()
print(sorted(back.variables.values()))
"""
    done = processes.run(program, cwd=tmp_path)
    assert done.stdout == "['global_step', 'words', 'words/Adagrad']\n"
