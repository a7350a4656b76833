"""A graph that does not fit its checkpoint raises an error with advice, before a session opens.

`make` returns a TPUEstimator with a table 'words' of [50, 4] by default, and `call` calls it.
`refused` returns the error's message, and asserts that the call has changed no checkpoint.
"""

import shutil

import harness
import numpy as np
import pytest
import tensorflow as tf
from saved_values import save, write
from tensorflow.python.training.saver import BulkSaverBuilder
from words_program import CALLS, call, input_fn, make, refused

import estimator_emb as ee
from estimator_emb.checkpoints.restoring import compare_graph

HOST_OR_EMULATED = ["host", harness.slow("emulated")]
VALUES = {
    "words": harness.normal(0, 50, 4),
    "words/Adagrad": np.full([50, 4], 0.2, np.float32),
    "output/kernel": np.ones([1, 1], np.float32),
}
UNFIT = "Restoring from checkpoint failed: '{}' does not fit the program:\n  "


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restoring")
    save(f"{folder}/model.ckpt-1", {**VALUES, "global_step": np.int64(1)})
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"')
    return folder


@pytest.fixture
def trained(once, tmp_path):
    """Returns a model directory with a checkpoint of step 1."""
    return shutil.copytree(once, tmp_path / "model")


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "way, what",
    [
        *(("host", what) for what in CALLS),
        ("3 servers", "train"),
        harness.slow("emulated", "predict"),
        harness.slow("8 cores", "train"),
    ],
)
def test_refuses_a_table_of_another_shape(way, what, trained, in_shards):
    if way == "3 servers":
        in_shards(3)  # Divides the table, as parameter servers do.
    begin = UNFIT.format(f"{trained}/model.ckpt-1")
    for rows in (60, 40) if way == "host" else (60,):
        message = refused(what, make(trained, way, rows=rows))
        line = f"table 'words': variable words is [{rows}, 4] here and [50, 4] in the checkpoint\n"
        assert message.startswith(f"{begin}{line}") and "'words': VocabInfo(...)" in message
    message = refused(what, make(trained, way, rows=25, dimension=8))  # As many numbers.
    line = "table 'words': variable words is [25, 8] here and [50, 4] in the checkpoint\n"
    assert message.startswith(f"{begin}{line}") and "build the model as it was when" in message


@pytest.mark.parametrize("way", HOST_OR_EMULATED)
def test_refuses_slots_of_another_optimizer(way, trained, assert_recorded):
    estimator = make(trained, way, parameters=ee.AdamParameters(0.1))
    message = refused("train", estimator, tf.errors.NotFoundError)
    assert "Key words/Adam/m not found in checkpoint (nor words/Adam/v)" in message
    assert f"warm_start_from='{trained}/model.ckpt-1'" in message
    assert_recorded(message)
    call("predict", estimator)  # It needs no slots.
    of_sgd = harness.saved(trained, 1)
    del of_sgd["words/Adagrad"]  # SGD has no slots.
    save(f"{trained}/model.ckpt-2", of_sgd)
    assert_recorded(refused("train", make(trained, way), tf.errors.NotFoundError))


@pytest.mark.parametrize("way", HOST_OR_EMULATED)
def test_a_warm_start_begins_the_slots_of_another_optimizer(way, once, tmp_path):
    moved = make(tmp_path, way, parameters=ee.AdamParameters(0.1), start=f"{once}/model.ckpt-1")
    call("train", moved)
    got = harness.saved(tmp_path, 0)  # Saved before the first step.
    np.testing.assert_array_equal(got["words"], VALUES["words"])
    assert not np.any(got["words/Adam/m"])


@pytest.mark.parametrize("way", HOST_OR_EMULATED)
def test_refuses_a_renamed_table(way, trained, assert_recorded):
    message = refused("train", make(trained, way, name="terms"))
    assert "Key terms not found in checkpoint: table 'terms' is [50, 4]" in message
    assert_recorded(message)
    # Do as the message says.
    path = f"{trained}/model.ckpt-1"
    settings = ee.WarmStartSettings(path, [".*"], var_name_to_prev_var_name={"terms": "words"})
    call("train", make(trained.parent / "new", way, name="terms", start=settings))
    want, got = harness.saved(trained, 1), harness.saved(trained.parent / "new", 0)
    for field in ("", "/Adagrad"):
        np.testing.assert_array_equal(got[f"terms{field}"], want[f"words{field}"])


def test_refuses_changed_dense_variables(trained, assert_recorded):
    # The table's shape is also wrong. All calls say the same.
    (message,) = {refused(what, make(trained, units=2, rows=51)) for what in CALLS}
    assert "  variable output/kernel is [1, 2] here and [1, 1] in the checkpoint\n" in message
    assert_recorded(message)
    message = refused("train", make(trained, layer="last", units=2))
    assert "  Key last/kernel not found in checkpoint: it is [1, 2]" in message
    assert_recorded(message)


def test_error_lists_at_most_five_missing_keys(trained):
    def scaffold_fn():
        for index in range(6):
            tf.compat.v1.get_variable(f"extra_{index}", [3])

        return tf.compat.v1.train.Scaffold()

    message = refused("evaluate", make(trained, "emulated", scaffold_fn=scaffold_fn))
    keys = [f"  Key extra_{index} not found in checkpoint: it is [3]" for index in range(5)]
    _, *lines, more, _ = message.splitlines()
    assert [line.partition(", and")[0] for line in lines] == keys
    assert more == "  and 1 more"


def test_lists_saved_variables_by_similarity_and_finds_the_old_name(tmp_path):
    """Of several variables with a missing variable's shape, the old name has the same last part."""
    saved = {name: np.ones([3, 3]) for name in ("b/x", "c", "z/dense/bias", "z/dense/kernel")}
    saved |= {f"{name}/pair": np.ones([2]) for name in "rst"}
    saved |= {"w": np.ones([2, 2]), "step": np.ones([4]), "q/a": np.ones([8]), "q/b": np.ones([9])}
    path = write(tmp_path / "model.ckpt-1", saved)
    with tf.Graph().as_default(), pytest.raises(tf.errors.InvalidArgumentError) as error:
        missing = {"z/last/kernel": [3, 3], "s": [2], "u": [7], "v": [7]}
        for name, shape in {**missing, "w": [4], "step": [4], "p/a": [8], "p/b": [9]}.items():
            tf.compat.v1.get_variable(name, shape, tf.float64)
        compare_graph.check_restored(path, None, ())
    of_kernel, of_s, *others, _, advice = error.value.message.splitlines()[1:]
    assert of_kernel.endswith("the checkpoint has z/dense/kernel, z/dense/bias, b/x and 1 more")
    assert of_s.endswith("the checkpoint has s/pair, r/pair, t/pair")
    assert others[2:] == ["  variable w is [4] here and [2, 2] in the checkpoint", "  and 2 more"]
    assert advice.endswith("={'z/last/kernel': 'z/dense/kernel', 'p/a': 'q/a', ...}).")


def test_refuses_a_table_of_another_dtype(trained):
    variables = harness.saved(trained, 1)
    variables["words"] = variables["words"].astype(np.float64)
    path = save(f"{trained}/double/model.ckpt-1", variables)
    message = refused("predict", make(trained), checkpoint_path=path)
    line = "table 'words': variable words is float32 here and float64 in the checkpoint\n"
    assert message.startswith(f"{UNFIT.format(path)}{line}")


class OwnSaver(tf.compat.v1.train.Saver):
    """Restores variables with matching shapes, and initializes all others."""

    def restore(self, sess, save_path):
        sess.run([one.initializer for one in tf.compat.v1.global_variables()])
        reader = tf.train.load_checkpoint(save_path)
        for one in tf.compat.v1.global_variables():
            if reader.get_variable_to_shape_map().get(one.op.name) == one.shape.as_list():
                one.load(reader.get_tensor(one.op.name), sess)


class ToZero(BulkSaverBuilder):
    """Restores no variable, and sets all variables to 0."""

    def bulk_restore(self, filename_tensor, saveables, preferred_shard, restore_sequentially):
        return [tf.zeros_like(spec.tensor) for one in saveables for spec in one.specs]


def begin_tables():
    tables = [one for one in tf.compat.v1.global_variables() if "words" in one.op.name]
    others = tf.compat.v1.train.Scaffold.default_local_init_op()
    return tf.group(others, tf.compat.v1.variables_initializer(tables))


@pytest.mark.parametrize("way", HOST_OR_EMULATED)
def test_compares_only_variables_that_the_programs_saver_restores(way, trained):
    """So a table that does not fit is accepted by a saver that skips, renames or reshapes it."""
    scaffold = tf.compat.v1.train.Scaffold

    def of_dense_variables():
        listed = [one for one in tf.compat.v1.global_variables() if "words" not in one.op.name]
        return scaffold(
            saver=tf.compat.v1.train.Saver(listed),
            ready_for_local_init_op=tf.constant([], tf.string),  # Do not wait for the tables.
            local_init_op=begin_tables(),
        )

    def under_old_names():
        listed = {one.op.name: one for one in tf.compat.v1.global_variables()}
        table = listed.pop("words/part_0" if way == "emulated" else "words")
        return scaffold(saver=tf.compat.v1.train.Saver({**listed, "old_words": table}))

    def reshaping(defer_build=False):  # It lists all variables when it is built.
        return scaffold(saver=tf.compat.v1.train.Saver(reshape=True, defer_build=defer_build))

    def in_collection():
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, OwnSaver())
        return scaffold()

    def to_zero():
        return scaffold(saver=tf.compat.v1.train.Saver(builder=ToZero()))

    for scaffold_fn in (in_collection, of_dense_variables, to_zero):
        assert call("evaluate", make(trained, way, rows=60, scaffold_fn=scaffold_fn))
    estimator = make(trained, way, scaffold_fn=under_old_names)
    message = refused("evaluate", estimator, tf.errors.NotFoundError)
    assert "Key old_words not found in checkpoint: it is [50, 4]" in message
    variables = harness.saved(trained, 1)
    variables["old_words"] = variables.pop("words")
    call("evaluate", estimator, checkpoint_path=save(f"{trained}/old/model.ckpt-1", variables))
    if way == "host":  # TensorFlow does not reshape parts of variables, as on an emulated TPU.
        call("evaluate", make(trained, way, rows=100, dimension=2, scaffold_fn=reshaping))
    # 60 * 4 numbers cannot be reshaped from 50 * 4.
    message = refused("evaluate", make(trained, way, rows=60, scaffold_fn=lambda: reshaping(True)))
    assert "variable words is [60, 4] here and [50, 4] in the checkpoint" in message


def test_init_fn_loads_part_of_a_checkpoint(trained, tmp_path):
    """A program may copy 50 saved rows into a larger table by itself, in a new model_dir."""
    table = harness.saved(trained, 1)["words"]

    def scaffold_fn():
        (variable,) = (one for one in tf.compat.v1.global_variables() if one.op.name == "words")
        value = tf.compat.v1.placeholder(tf.float32, [50, 4])
        assigned = variable[:50].assign(value)

        def init_fn(scaffold, session):
            session.run(assigned, {value: table})

        return tf.compat.v1.train.Scaffold(init_fn=init_fn)

    call("train", make(tmp_path / "new", rows=60, scaffold_fn=scaffold_fn))
    np.testing.assert_array_equal(harness.saved(tmp_path / "new", 0)["words"][:50], table)


@pytest.mark.parametrize("way", [*HOST_OR_EMULATED, harness.slow("3 servers")])
def test_refuses_a_warm_start_that_does_not_fit(way, trained, tmp_path, in_shards, assert_recorded):
    if way == "3 servers":
        in_shards(3)  # Divides the table, as parameter servers do.
    path = f"{trained}/model.ckpt-1"
    new, settings = tmp_path / "new", ee.WarmStartSettings
    old, now = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("".join(f"w{i}\n" for i in range(70)))
    now.write_text("".join(f"w{i}\n" for i in range(60)))
    # The old vocabulary of a table with 50 rows has 50 words, and wrongly 70.
    infos = [{"words": ee.VocabInfo(str(now), 60, 0, str(old), size)} for size in (70, 50)]
    of_70 = settings(path, None, infos[0])  # Without a pattern: only what VocabInfos name.
    of_50 = settings(path, var_name_to_vocab_info=infos[1])
    rows = "variable words is [60, 4] here and [50, 4] in the checkpoint"
    slots = "Key words/Adam/m not found in checkpoint (nor words/Adam/v)"
    # Call, its warm start, what the new program changes, a part of the error.
    for what, start, table, line in (
        ("train", str(trained), {"rows": 60}, rows),
        ("evaluate", settings(path), {"rows": 60}, rows),
        ("predict", settings(str(trained), ["words"]), {"rows": 60}, rows),  # Also their slots.
        ("train", path, {"rows": 25, "dimension": 8}, "words is [25, 8] here and [50, 4] in the"),
        ("train", path, {"name": "terms"}, "table 'terms' is [50, 4], and of that shape the"),
        ("train", settings(path, [".*"]), {"parameters": ee.AdamParameters(0.1)}, slots),
        ("train", of_70, {"rows": 60}, "and its VocabInfo says old_vocab_size=70\n"),
        ("train", of_50, {"rows": 60, "dimension": 5}, "is [60, 5] here and [50, 4] in the"),
    ):
        message = refused(what, make(new, way, start=start, **table))
        assert message.startswith(f"Warm-starting from checkpoint failed: '{path}' does not fit")
        assert line in message
        if way == "host":
            assert_recorded(message)
    with tf.Graph().as_default():
        columns = infos[0]["words"]._replace(axis=1)
        shapes = {"words": [60, 4], "terms": [60, 4], "output/kernel": [1, 60]}
        made = [tf.compat.v1.get_variable(name, shape) for name, shape in shapes.items()]
        for start, line in (
            (settings(path, made[:1]), "variable words is"),  # A list that model_fn has filled.
            (settings(path, None, {"terms": infos[1]["words"]}), "Key terms not found"),
            (settings(path, None, {"output/kernel": columns}), "says old_vocab_size=70"),
        ):
            with pytest.raises(ValueError, match=line):
                compare_graph.check_warm_start(start, ())


def test_an_unfinished_prediction_does_not_affect_other_calls(trained):
    estimator = make(trained)
    predictions = estimator.predict(input_fn)
    first = next(predictions)
    call("train", estimator)
    assert harness.last_step(trained) == 2
    # The prediction's session keeps the weights with which it began.
    path = f"{trained}/model.ckpt-1"
    assert [first, *predictions] == call("predict", estimator, checkpoint_path=path)
