"""Model directories with missing, damaged or moved checkpoints or `checkpoint` files.

`make` returns a TPUEstimator with a table 'words' of [50, 4] by default, and `call` calls it.
`refused` returns the error's message, and asserts that the call has changed no checkpoint.
`assert_recorded` compares a whole message with tests/messages.json.
"""

import os
import pathlib
import shutil
import types

import harness
import numpy as np
import pytest
import saved_values
import tensorflow as tf
from words_program import CALLS, call, input_fn, make, refused

import estimator_emb as ee
from estimator_emb.checkpoints.files import bundle_index, checkpoint_files, checkpoint_reader
from estimator_emb.checkpoints.files.checkpoint_files import DamagedCheckpoint, MissingCheckpoint
from estimator_emb.checkpoints.restoring import saver
from estimator_emb.engine.engine import PendingLookup

PHRASE = "Could not find trained model in model_dir"


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint_files")
    matrix = np.ones([50, 4], np.float32)
    values = {"output/kernel": matrix[:1, :1], "words": matrix, "words/Adagrad": matrix}
    for step in range(3):
        saved_values.save(f"{folder}/model.ckpt-{step}", {**values, "global_step": np.int64(step)})
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"')
    return folder


@pytest.fixture
def trained(once, tmp_path, monkeypatch):
    """Returns a model directory with checkpoints of steps 0, 1 and 2."""
    monkeypatch.setattr(checkpoint_files, "PAUSE", 0)
    return shutil.copytree(once, tmp_path / "model")


@pytest.mark.parametrize("name", ["run[1]", "run\\1"])
def test_refuses_paths_that_tensorflow_reads_as_patterns(name, once, tmp_path, assert_recorded):
    for way in ("host", "emulated"):
        message = harness.refusal(ValueError, make, tmp_path / name, way)
        assert f"model_dir '{tmp_path}/{name}' cannot hold checkpoints: TensorFlow" in message
    assert not list(tmp_path.iterdir())
    folder = shutil.copytree(once, tmp_path / name)
    path = f"{folder}/model.ckpt-2"
    for what, estimator, kwargs in (
        ("evaluate", make(tmp_path / "new"), {"checkpoint_path": path}),
        ("train", make(tmp_path / "new", start=str(folder)), {}),
    ):
        message = refused(what, estimator, tf.errors.NotFoundError, **kwargs)
        assert f"checkpoint '{path}' is there, but TensorFlow does not find it" in message
    assert_recorded(message)


def test_warns_of_patterns_that_match_themselves(once, tmp_path, caplog, assert_recorded):
    folder = shutil.copytree(once, tmp_path / "run*?{1}]")
    call("train", make(folder))
    assert checkpoint_files.latest(str(folder)) == f"{folder}/model.ckpt-3"
    (line,) = (line for line in harness.said(caplog) if "TensorFlow reads * and ?" in line)
    assert_recorded(line)


def test_accepts_paths_with_harmless_special_characters(once, tmp_path, monkeypatch):
    """The current folder's characters are not part of the pattern of a relative path."""
    (tmp_path / "[a]").mkdir()
    monkeypatch.chdir(tmp_path / "[a]")
    folder = "run{1}][]"
    shutil.copytree(once, folder)
    call("train", make(folder))
    assert checkpoint_files.latest(folder) == f"{folder}/model.ckpt-3"


@pytest.mark.fast(1)
@pytest.mark.parametrize("kind", ["missing", "empty", "damaged"])
def test_refuses_a_model_dir_without_its_state_file(kind, trained, assert_recorded):
    file = trained / "checkpoint"
    whole = file.read_text()
    file.write_text(whole[:20] if kind == "damaged" else "")
    if kind == "missing":
        file.unlink()
    estimator = make(trained)
    (message,) = {refused(what, estimator, MissingCheckpoint) for what in CALLS}
    assert message.startswith(f"{PHRASE}: file '{file}', which says which checkpoint is the latest")
    assert_recorded(message)
    specs = ee.TrainSpec(input_fn, max_steps=3), ee.EvalSpec(input_fn, steps=1)
    with pytest.raises(ValueError) as error:
        ee.train_and_evaluate(estimator, *specs)
    assert str(error.value) == message
    with pytest.raises(tf.errors.NotFoundError):  # An evaluator process asks this way.
        estimator.latest_checkpoint()
    call("predict", estimator, checkpoint_path=f"{trained}/model.ckpt-1")
    # Do as the message says.
    file.write_text('model_checkpoint_path: "model.ckpt-2"')
    call("train", estimator)
    assert estimator.latest_checkpoint() == f"{trained}/model.ckpt-3"


@pytest.mark.parametrize("remote", [False, True])
def test_refuses_a_missing_latest_checkpoint(remote, trained, assert_recorded):
    """It was deleted, or the directory was moved and its paths are absolute."""
    named = f"{trained}/model.ckpt-2"
    if remote:
        named = "/no/such/folder/model.ckpt-1"
        (trained / "checkpoint").write_text(f'model_checkpoint_path: "{named}"')
    else:
        (trained / "model.ckpt-2.index").unlink()
        damage("cut", f"{trained}/model.ckpt-1")  # The advice names step 0, which is whole.
    (message,) = {refused(what, make(trained)) for what in CALLS}
    begin = f"{PHRASE}: file '{trained}/checkpoint' names '{named}', which is gone."
    assert message.startswith(begin)
    assert_recorded(message)
    for file in trained.glob("model.ckpt-*"):
        file.unlink()
    assert_recorded(refused("train", make(trained)))  # None is left.


def test_warns_of_a_latest_checkpoint_in_another_folder(trained, tmp_path, caplog, assert_recorded):
    (trained / "checkpoint").write_text(f'model_checkpoint_path: "{trained}/model.ckpt-1"')
    copy = shutil.copytree(trained, tmp_path / "copy")
    assert make(copy).latest_checkpoint() == f"{trained}/model.ckpt-1"
    (line,) = harness.said(caplog)
    assert f"names '{trained}/model.ckpt-1', of another folder" in line  # Where to write instead.
    assert_recorded(line)
    caplog.clear()
    assert make(trained).latest_checkpoint() == f"{trained}/model.ckpt-1"
    assert harness.said(caplog) == []


@pytest.mark.parametrize("names", [None, 'model_checkpoint_path: "model.ckpt-gone"'])
def test_waits_for_a_checkpoint_being_written(names, trained, monkeypatch):
    """Another process trains: it writes its state file last, and deletes old checkpoints."""
    file = trained / "checkpoint"
    whole = file.read_text()
    file.write_text(names) if names else file.unlink()
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:  # The other process completes its save during the second pause.
            file.write_text(whole)

    monkeypatch.setattr(checkpoint_files.time, "sleep", sleep)
    assert make(trained).latest_checkpoint() == f"{trained}/model.ckpt-2"
    assert len(slept) == 2


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "owner, name", [(PendingLookup, "create_tables"), (tf.compat.v1.train.Saver, "restore")]
)
@pytest.mark.parametrize("what", CALLS[1:])
def test_error_for_a_checkpoint_deleted_while_it_is_restored(
    what, owner, name, trained, monkeypatch
):
    """Deletes it just before the tables, or before the other variables, are restored."""
    as_it_was = getattr(owner, name)

    def deleting(*args, **kwargs):
        for file in trained.glob("model.ckpt-2.*"):
            file.unlink()
        return as_it_was(*args, **kwargs)

    monkeypatch.setattr(owner, name, deleting)
    with pytest.raises(tf.errors.NotFoundError) as error:
        call(what, make(trained))
    gone = f"Restoring from checkpoint failed: checkpoint '{trained}/model.ckpt-2' was there and is"
    assert str(error.value).startswith(f"{gone} gone") and error.value.__cause__ is None


def test_latest_is_none_without_checkpoints(tmp_path):
    assert make(tmp_path / "new").latest_checkpoint() is None
    (tmp_path / "model.ckpt-0.data-00000-of-00001").write_text("of a save that was killed")
    (tmp_path / "model.ckpt-0_temp").mkdir()
    assert make(tmp_path).latest_checkpoint() is None


OTHERS = "give one of those in '{}': model.ckpt-0, model.ckpt-1, model.ckpt-2."
WITHOUT_END = "give '{}/model.ckpt-1', without the end of the file's name."


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "given, what_to_do",
    [
        ("{}/model.ckpt-9", OTHERS),
        ("{}", OTHERS),
        ("{}/model.ckpt-1.index", WITHOUT_END),
        ("{}/model.ckpt-1.data-00000-of-00001", WITHOUT_END),
        ("/no/such/model.ckpt-1", "without the ends of its files' names."),
    ],
)
def test_refuses_a_path_that_is_not_a_checkpoint(given, what_to_do, trained):
    path = given.format(trained)
    for what in CALLS[1:]:
        message = refused(what, make(trained), checkpoint_path=path)
        assert f"The passed save_path is not a valid checkpoint: '{path}'." in message
        assert message.endswith(what_to_do.format(trained))


def damage(kind, path):
    """Damages a file of a checkpoint. Returns the expected description."""
    data, index = pathlib.Path(f"{path}.data-00000-of-00001"), pathlib.Path(f"{path}.index")
    whole = data.read_bytes()
    if kind == "missing":
        data.unlink()
        return f"'{data}' is missing"
    if kind == "index":
        index.write_bytes(index.read_bytes()[:50])
        return f"'{index}' cannot be read (not an sstable (bad magic number))"
    if kind == "flipped":
        data.write_bytes(whole[:100] + b"damaged" + whole[107:])
        return f"variable words cannot be read from '{data}' (TensorBundle at {path} shard 0"
    size = {"empty": 0, "cut": 100, "one byte": len(whole) - 1}[kind]
    data.write_bytes(whole[:size])
    return f"'{data}' has {size:,} bytes of {len(whole):,}"


KINDS = ["missing", "index", "flipped", "empty", "cut", "one byte"]


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "way, kind",
    [*(("host", kind) for kind in KINDS), harness.slow("emulated", "cut")],
)
def test_refuses_a_damaged_checkpoint(way, kind, trained):
    path = f"{trained}/model.ckpt-2"
    problem = f"checkpoint '{path}' is damaged: {damage(kind, path)}"
    raised = tf.errors.NotFoundError if kind == "missing" else tf.errors.DataLossError
    for what in CALLS if kind == "cut" else CALLS[:1]:
        message = refused(what, make(trained, way), raised)
        assert message.startswith(f"Restoring from checkpoint failed: {problem}")
        assert "\nThe newest checkpoint that is whole is 'model.ckpt-1'.\n" in message
    call("evaluate", make(trained, way), checkpoint_path=f"{trained}/model.ckpt-1")


def test_refuses_damage_in_the_current_folder(trained, monkeypatch, caplog, assert_recorded):
    """A path without a folder is of the current folder. `assert_recorded` compares the advice."""
    monkeypatch.chdir(trained)
    caplog.set_level("INFO", "estimator_emb")
    damage("cut", "model.ckpt-2")
    message = harness.refusal(DamagedCheckpoint, checkpoint_files.check_whole, "model.ckpt-2")
    assert_recorded(message)
    assert harness.said(caplog) == ["Looking for the newest checkpoint in . that is whole."]


@pytest.mark.parametrize("kind", KINDS)
def test_explains_an_error_of_restoring(kind, trained):
    """Explains only errors of a restoring op, and only if the checkpoint is damaged or gone."""
    path, op = f"{trained}/model.ckpt-2", types.SimpleNamespace(type="RestoreV2")
    assert checkpoint_files.explain(tf.errors.DataLossError(None, op, "of a disk"), path) is None
    problem = damage(kind, path)
    assert checkpoint_files.explain(tf.errors.DataLossError(None, None, "of input"), path) is None
    assert checkpoint_files.explain(tf.errors.AbortedError(None, op, "of a server"), path) is None
    explained = checkpoint_files.explain(tf.errors.OutOfRangeError(None, op, ""), path)
    assert f"checkpoint '{path}' is damaged: {problem}" in str(explained)
    again = checkpoint_files.explain(explained, f"{trained}/gone")
    assert again is None  # It is explained already.
    with pytest.raises(MissingCheckpoint, match="was there and is gone"):
        checkpoint_files.check_whole(f"{trained}/gone")


def test_error_for_a_model_dir_below_a_file():
    folder = f"{__file__}/model"
    with pytest.raises(tf.errors.OpError, match=f"model_dir '{folder}' cannot be made: "):
        checkpoint_files.make_folder(folder)


def test_index_refuses_unknown_variables_and_formats(trained):
    file, path = trained / "model.ckpt-2.index", f"{trained}/model.ckpt-2"
    index, whole = bundle_index.Index(path), file.read_bytes()
    with pytest.raises(bundle_index.UnknownFormat, match="has no place of no_such_variable"):
        index.parts("no_such_variable")
    # The end of a block before the footer: restart offset 0, 1 restart, compression 0 (off).
    end = whole.rindex(b"\0\0\0\0\1\0\0\0\0", 0, -48)
    for contents, phrase in (
        (whole[:-1], "No table of keys and values"),  # The end of the magic number is missing.
        (whole[-48:], f"{path}.index cannot be read"),  # Only the footer is left.
        (whole[: end + 8] + b"\1" + whole[end + 9 :], "A block is compressed"),
    ):
        file.write_bytes(contents)
        assert phrase in harness.refusal(bundle_index.UnknownFormat, bundle_index.Index, path)


def test_index_refuses_variables_that_are_not_in_runs_of_rows(tmp_path):
    """Rows 4 and 5 of 'gap' are in no slice. The last name reads like a third slice of 'more'."""
    path = f"{tmp_path}/model.ckpt"
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=["gap", "gap", "more", "more", "\0more\0\1z"],
        shape_and_slices=["10 1 0,4:-", "10 1 6,4:-", "8 1 0,4:-", "8 1 4,4:-", ""],
        tensors=[np.ones([4, 1])] * 5,
    )
    for name in ("gap", "more"):
        with pytest.raises(bundle_index.UnknownFormat, match=f"{name} is not in runs of rows"):
            bundle_index.Index(path).parts(name)


def test_advice_skips_other_damaged_checkpoints(trained, assert_recorded):
    damage("cut", f"{trained}/model.ckpt-2")
    damage("flipped", f"{trained}/model.ckpt-1")
    message = refused("train", make(trained))
    assert "The newest checkpoint that is whole is 'model.ckpt-0'." in message
    damage("index", f"{trained}/model.ckpt-0")
    assert_recorded(refused("train", make(trained)))  # None is whole.


def test_errors_of_the_input_are_not_changed(trained):
    def bad_input_fn(params):
        def fail(_):
            raise tf.errors.DataLossError(None, None, "a damaged record")

        ids = tf.data.Dataset.range(1).map(lambda one: tf.numpy_function(fail, [one], tf.int64))
        return ids.map(lambda x: ({"x": tf.ensure_shape(x, [8])}, np.zeros(8, np.float32)))

    with pytest.raises(tf.errors.OpError, match="a damaged record"):
        make(trained).train(bad_input_fn, steps=1)


def test_index_gives_the_sizes_of_data_files(tmp_path):
    """Of one or several files, with empty variables, strings, and names with common beginnings."""
    # So many names make the list at their block's end longer than the last variable's entry.
    values = {f"scope_{n % 7}/variable_{n}": np.zeros([n % 5, 3]) for n in range(1000)}
    note = "n" * 128  # The number 128 is two bytes in the index: 80 01.
    values |= {"parts": np.zeros([70, 2]), note: np.array(["a", "b" * 300], object)}
    saved = saved_values.write(tmp_path / "model.ckpt", values, hosts={"parts": 3})
    folders = (pathlib.Path(__file__).parents[1] / "data" / "checkpoints").iterdir()
    small = saved_values.write(tmp_path / "small.ckpt", {"global_step": 1})
    empty = saved_values.write(tmp_path / "empty.ckpt", {"none": np.zeros([0, 3])})
    for path in (saved, small, empty, *(f"{folder}/model.ckpt-3" for folder in folders)):
        sizes = dict(bundle_index.Index(path).data_files())
        assert sizes == {file: os.path.getsize(file) for file in tf.io.gfile.glob(f"{path}.data*")}
        assert checkpoint_files.find_problem(path, thorough=True) is None
        name = {saved: max(values), empty: "none"}.get(path, "global_step")  # The index's last.
        assert checkpoint_files.file_of(path, name) in sizes


def test_names_the_variable_of_a_damaged_file(tmp_path, monkeypatch):
    monkeypatch.setattr(saver, "FILE_BYTES", 160)  # A [10, 4] float32 variable, so one per file.
    monkeypatch.setattr(saver, "MOST_FILES", 2)
    monkeypatch.setattr(saver.os, "cpu_count", lambda: 2)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name in ("a", "b"):
            tf.compat.v1.get_variable(name, [10, 4], initializer=tf.zeros_initializer())
        session.run(tf.compat.v1.global_variables_initializer())
        in_files = saver.PartsSaver(ee.RunConfig())
        in_files.build()
        path = in_files.save(session, f"{tmp_path}/model.ckpt")
    files = sorted(tf.io.gfile.glob(f"{path}.data*"))
    assert len(files) == 2
    for name in ("a", "b"):
        file = checkpoint_files.file_of(path, name)
        whole = pathlib.Path(file).read_bytes()
        pathlib.Path(file).write_bytes(b"damaged" + whole[7:])
        assert checkpoint_files.find_problem(path) is None
        problem, missing = checkpoint_files.find_problem(path, thorough=True)
        assert problem.startswith(f"variable {name} cannot be read from '{file}' (") and not missing
        pathlib.Path(file).write_bytes(whole)


@pytest.mark.parametrize("piece", [8, 48, 1 << 20])  # Bytes per read. A row has 20.
def test_check_names_the_file_of_a_damaged_table(piece, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", piece)
    table = np.arange(50, dtype=np.float32).reshape(10, 5)
    path = saved_values.write(tmp_path / "model.ckpt-1", {"table": table, "w": np.float32([1])})
    with checkpoint_reader.CheckpointReader(path) as whole:
        whole.check("table")
    with checkpoint_reader.CheckpointReader(path) as unknown:
        unknown._index = None  # As for an unknown format of the index.
        read = []
        unknown.check("table", read.append)
        assert read == [table.nbytes]
        np.testing.assert_array_equal(unknown.rows("table", 3, 5), table[3:5])
    file = pathlib.Path(f"{path}.data-00000-of-00001")
    contents = bytearray(file.read_bytes())
    contents[contents.index(np.float32(49).tobytes())] ^= 1  # Changes the last value of the table.
    file.write_bytes(contents)
    with checkpoint_reader.CheckpointReader(path) as damaged:
        damaged.check("w")
        message = harness.refusal(DamagedCheckpoint, damaged.check, "table")
        assert f"is damaged: '{file}' does not hold what was saved of table" in message
        message = harness.refusal(DamagedCheckpoint, damaged.array, "table")
        assert f"variable table cannot be read from '{file}' (TensorBundle at {path} sh" in message
    with checkpoint_reader.CheckpointReader(path) as cut:
        file.write_bytes(contents[:-5])  # The last byte of the table, and the 4 bytes of w.
        with pytest.raises(DamagedCheckpoint, match="ends before byte 200"):
            [*cut.pieces("table", hosts=2)]


def test_reader_names_an_index_whose_names_are_no_text(tmp_path):
    path = f"{tmp_path}/model.ckpt-1"
    tf.raw_ops.SaveV2(prefix=path, tensor_names=[b"\xff"], shape_and_slices=[""], tensors=[[1.0]])
    message = harness.refusal(DamagedCheckpoint, checkpoint_reader.CheckpointReader, path)
    assert f"is damaged: '{path}.index' cannot be read ('utf-8' codec" in message
