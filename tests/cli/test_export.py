"""Exports of a 'mod' checkpoint of four hosts, each read back by the format's library."""

import json
import pathlib
import pickle
import re
import shutil
import sys
import tracemalloc
from unittest import mock

import harness
import numpy as np
import pytest
import saved_values
import tensorflow as tf

from estimator_emb import checkpoint
from estimator_emb.catalog.formats import EXPORT_FORMATS
from estimator_emb.checkpoints.files import checkpoint_reader, writer
from estimator_emb.checkpoints.formats import exporting
from estimator_emb.cli import main as main_lib

MOD = saved_values.MOD
"""Folder of the checkpoint: tables `words` (13 x 2), `items` (3 x 4) and `few` (2 x 3), step 7."""
WORDS = np.float32([[10 * row, 10 * row + 1] for row in range(13)])
"""The table `words` of MOD. Its slot of Adagrad is 0.5 higher."""
LABELS = ["the matrix", "naïve", "東京", *(f"word {number}" for number in range(3, 11))]
MORE_ROWS = 13 - len(LABELS)
try:
    from pyarrow import parquet
except ImportError:  # Not installed, or incompatible with this NumPy.
    parquet = None
needs_pyarrow = pytest.mark.skipif(parquet is None, reason="there is no pyarrow for this NumPy")
slow = pytest.mark.slow
FORMATS = [
    pytest.param(name, marks=[needs_pyarrow] if entry.package == "pyarrow" else [])
    for name, entry in EXPORT_FORMATS.items()
]


@pytest.fixture
def labelled(tmp_path):
    """Returns the options of an export that give the table `words` the labels, from a file."""
    file = tmp_path / "words.txt"
    file.write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")
    return f"--vocabulary=words={file}", "--allow-unlabelled"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 40)  # Five rows of words.


def run(*arguments):
    return main_lib.main(["export", *map(str, arguments)])


def written(to, folder, *arguments, checkpoint=MOD):
    """Exports a checkpoint into a new folder `out`, and returns that folder."""
    assert run(checkpoint, folder / "out", f"--to={to}", *arguments) == 0
    return folder / "out"


def test_each_format_has_a_file_an_entry_and_a_description(capsys):
    files = {file.stem for file in pathlib.Path(exporting.__file__).parent.glob("*.py")}
    formats = {entry.module for entry in EXPORT_FORMATS.values()}
    assert formats == files - {"__init__", "conversion", "exporting"}
    made = map(exporting.format_of, EXPORT_FORMATS)
    assert all(isinstance(one, exporting.TableFormat) for one in made)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "api" / "checkpoint.md").read_text()
    assert re.findall(r"^\* `([\w-]+)`: ", page, re.M) == list(EXPORT_FORMATS)
    with pytest.raises(SystemExit):
        run("--help")
    assert f"--to {{{','.join(EXPORT_FORMATS)}}}" in capsys.readouterr().out


def test_npz_has_tables_slots_and_labels(tmp_path, labelled, capsys):
    out = written("npz", tmp_path, "--slots", *labelled)
    assert capsys.readouterr().out == f"{out}/tables.npz\n"
    with np.load(out / "tables.npz", allow_pickle=False) as read:
        slots = [f"{name}/Adagrad" for name in ("few", "items", "words")]
        assert sorted(read) == sorted(["few", "items", "words", "words/labels", *slots])
        assert read["words"].dtype == np.float32
        np.testing.assert_array_equal(read["words"], WORDS)
        np.testing.assert_array_equal(read["words/Adagrad"], WORDS + 0.5)
        assert read["words/labels"].tolist() == LABELS + [""] * MORE_ROWS
        assert read["items"].shape == (3, 4)


@needs_pyarrow
def test_parquet_has_ids_labels_rows_and_slots(tmp_path, labelled, capsys):
    out = written("parquet", tmp_path, "--slots", *labelled)
    files = [f"{out}/{name}.parquet" for name in ("few", "items", "words")]
    assert capsys.readouterr().out.split() == files
    read = parquet.read_table(out / "words.parquet")
    assert read.schema.names == ["id", "label", "embedding", "Adagrad"]
    assert read.schema.metadata[b"variable"] == b"words"
    assert read["id"].to_pylist() == list(range(13))
    assert read["label"].to_pylist() == LABELS + [None] * MORE_ROWS
    np.testing.assert_array_equal(np.float32(read["embedding"].to_pylist()), WORDS)
    np.testing.assert_array_equal(np.float32(read["Adagrad"].to_pylist()), WORDS + 0.5)
    assert str(read.schema.field("embedding").type).startswith("fixed_size_list<")
    assert parquet.read_table(out / "few.parquet").schema.names == ["id", "embedding", "Adagrad"]


def test_saved_model_looks_up_ids_and_labels(tmp_path, labelled):
    out = written("saved-model", tmp_path, "--table=words", *labelled)
    (tmp_path / "words.txt").unlink()  # The model contains the file.
    loaded = tf.saved_model.load(str(out)).signatures
    assert sorted(loaded) == ["serving_default", "words", "words_labels"]
    for name in ("serving_default", "words"):
        got = loaded[name](ids=tf.constant([12, 0, 12], tf.int64))["embeddings"]
        np.testing.assert_array_equal(got, WORDS[[12, 0, 12]])
    got = loaded["words_labels"](labels=tf.constant(["東京", "the matrix"]))["embeddings"]
    np.testing.assert_array_equal(got, WORDS[[2, 0]])
    for bad in (13, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be from 0 to 12"):
            loaded["words"](ids=tf.constant([bad], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="A label is not in the vocabulary"):
        loaded["words_labels"](labels=tf.constant(["matrix"]))


def restored(folder, **optimizers):
    """Returns a folder's description, and the tables of a program's layer that restores it all.

    `optimizers` has a class of tf.tpu.experimental.embedding for each name in the description.
    """
    theirs = tf.tpu.experimental.embedding
    described = json.loads((folder / "tables.json").read_text())
    features = {}
    for table in described["tables"]:
        optimizer = optimizers.get(table["optimizer"], lambda: None)()
        name, *sizes = (table[key] for key in ("name", "vocabulary_size", "dim"))
        config = theirs.TableConfig(*sizes, optimizer=optimizer, name=name)
        features[name] = theirs.FeatureConfig(config)
    layer = theirs.TPUEmbedding(features, None)
    layer.build()
    counter = tf.Variable(0, dtype=tf.int64)
    counted = {} if described["step"] is None else {"step": counter}
    saver = tf.train.Checkpoint(embedding=layer, **counted)
    saver.restore(tf.train.latest_checkpoint(str(folder))).assert_consumed()
    assert int(counter) == (described["step"] or 0)
    return described, layer._variables


def test_tf2_export_restores_into_tensorflows_layer(tmp_path, capsys, assert_recorded):
    out = written("tf2", tmp_path, "--slots", "--table=words", "--table=few")
    assert_recorded(capsys.readouterr().out)  # Old and new name of each variable.
    described, tables = restored(out, Adagrad=tf.tpu.experimental.embedding.Adagrad)
    assert described["step"] == 7 and set(tables) == {"words", "few"}  # MOD is of step 7.
    np.testing.assert_array_equal(tables["words"]["parameters"], WORDS)
    np.testing.assert_array_equal(tables["words"]["accumulators"], WORDS + 0.5)
    _, tables = restored(written("tf2", tmp_path / "weights"))
    np.testing.assert_array_equal(tables["words"]["parameters"], WORDS)
    assert set(tables["words"]) == {"parameters"}


def test_tf2_with_column_tables_and_unsupported_optimizers(tmp_path, capsys):
    """Names a column's table as on a TPU, tbl_<column>, unless two tables would share the name.

    Ftrl keeps its accumulators in the slot Ftrl, and its linear terms in Ftrl_1.
    """
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    shared, of_first = "dense_features/a_b_shared_embedding", "first/c_embedding/embedding_weights"
    variables = {
        saved_values.WORDS: weights,
        f"{saved_values.WORDS}/Momentum": weights,
        shared: weights + 1,
        f"{shared}/Ftrl": weights + 2,
        f"{shared}/Ftrl_1": weights - 3,
        of_first: weights.astype(tf.bfloat16.as_numpy_dtype),
        "second/c_embedding/embedding_weights": weights,
        "a.table": weights,
    }
    path = saved_values.write(tmp_path / "a.ckpt", variables)
    out, printed = written("tf2", tmp_path, "--slots", checkpoint=path), capsys.readouterr().out
    line = rf"\n +{saved_values.WORDS}/Momentum +left out, as TensorFlow 2 has no such slot\n"
    assert re.search(line, printed), printed
    assert "  a.table  " in printed and "  embedding/a.table\n" in printed
    described, tables = restored(out, FTRL=tf.tpu.experimental.embedding.FTRL)
    others = ("tbl_words", of_first, "second/c_embedding/embedding_weights", "a.table")
    optimizers = {"tbl_a_b_shared_embedding": "FTRL", **dict.fromkeys(others)}
    assert {one["name"]: one["optimizer"] for one in described["tables"]} == optimizers
    np.testing.assert_array_equal(tables["tbl_words"]["parameters"], weights)
    np.testing.assert_array_equal(tables[of_first]["parameters"], weights)
    for name, value in (("parameters", 1), ("accumulators", 2), ("linears", -3)):
        np.testing.assert_array_equal(tables["tbl_a_b_shared_embedding"][name], weights + value)


def test_tf2_refuses_tables_of_float64(tmp_path, capsys):
    path = saved_values.write(tmp_path / "a.ckpt", {"words": np.zeros([3, 2])})
    assert run(path, tmp_path / "out", "--to=tf2") == 2
    said = "table 'words' is float64, and the tables of TPUEmbedding are float32.\n"
    assert capsys.readouterr().err == f"estimator-emb export: {said}"
    assert not (tmp_path / "out").exists()


def layers_of(keras, file, sizes):
    """Returns the embedding layers of a larger model that loaded a file by layer names."""
    ids = keras.Input((None,), dtype="int32")
    layers = [keras.layers.Embedding(*size, name=name) for name, size in sizes.items()]
    dense = keras.layers.Dense(2, name="dense")
    outputs = [dense(layers[0](ids)), *(layer(ids) for layer in layers[1:])]
    keras.Model(ids, outputs).load_weights(str(file), by_name=True)
    return {layer.name: layer for layer in layers}


@pytest.fixture(params=["tf.keras", pytest.param("keras", marks=slow)])
def keras(request):
    """Returns Keras 2, and Keras 3 if installed. From TensorFlow 2.16 on, `keras` is Keras 3."""
    return tf.keras if request.param == "tf.keras" else pytest.importorskip("keras")


def test_keras_export_loads_into_embedding_layers(keras, tmp_path, capsys, assert_recorded):
    out = written("keras", tmp_path)
    assert_recorded(capsys.readouterr().out)  # tests/messages.json: the layers that the file fills.
    sizes = {"words": (13, 2), "few": (2, 3), "items": (3, 4)}
    layers = layers_of(keras, out / "tables.h5", sizes)
    np.testing.assert_array_equal(layers["words"].get_weights()[0], WORDS)
    ids = np.array([[12, 0, 0], [3, 7, 1]])
    np.testing.assert_array_equal(layers["words"](ids), WORDS[ids])
    items = checkpoint.table(MOD, "items")
    np.testing.assert_array_equal(layers["items"].get_weights()[0], items)


@slow
def test_keras_export_of_many_long_table_names_loads(keras, tmp_path):
    names = [f"table_{number:03}_{'x' * 300}" for number in range(250)]  # 77 kB; HDF5 takes 64 kB.
    variables = {one: np.float32([[number]]) for number, one in enumerate(names)}
    checkpoint.export(saved_values.write(tmp_path / "a.ckpt", variables), tmp_path / "out", "keras")
    layers = layers_of(keras, tmp_path / "out" / "tables.h5", {names[0]: (1, 1), names[-1]: (1, 1)})
    assert layers[names[-1]].get_weights()[0] == [[249]]


def test_exports_tables_of_columns_under_their_variable_names(tmp_path):
    """The command also finds them by shorter names. Kernels of dense layers are no tables."""
    weights = harness.normal(0, 6, 3)
    variables = {saved_values.WORDS: weights, "dense/kernel": weights, "dense/kernel_1": weights}
    path = saved_values.write(tmp_path / "a.ckpt", variables)
    file = tmp_path / "labels"
    file.write_text("a\nb\nc\nd\ne\nf")  # A label for each of the 6 rows.
    for to, name in (("npz", "words"), ("saved-model", "words_embedding"), ("keras", "words")):
        labels = [] if to == "keras" else [f"--vocabulary={name}={file}"]
        assert run(path, tmp_path / to, f"--to={to}", f"--table={name}", *labels) == 0
    with np.load(tmp_path / "npz" / "tables.npz") as read:
        np.testing.assert_array_equal(read[saved_values.WORDS], weights)
    name = saved_values.WORDS.replace("/", "_")
    loaded = tf.saved_model.load(f"{tmp_path}/saved-model").signatures
    assert sorted(loaded) == [name, f"{name}_labels", "serving_default"]
    layers = layers_of(tf.keras, tmp_path / "keras" / "tables.h5", {name: weights.shape})
    np.testing.assert_array_equal(layers[name].get_weights()[0], weights)


READ_WORDS = {
    "npz": lambda out: np.load(out / "tables.npz")["words"],
    "parquet": lambda out: parquet.read_table(out / "words.parquet")["embedding"].to_pylist(),
    "saved-model": lambda out: tf.saved_model.load(out).signatures["words"](
        ids=tf.constant([0, 1], tf.int64)
    )["embeddings"],
    "tf2": lambda out: restored(out)[1]["words"]["parameters"],
    "keras": lambda out: layers_of(tf.keras, out / "tables.h5", {"words": (2, 2)})["words"](
        np.array([0, 1])
    ),
}
"""Format -> a function of the exported folder that reads its table `words`, with 2 rows."""


@pytest.mark.parametrize("to", FORMATS)
def test_each_format_keeps_nan_infinity_and_minus_zero_of_bfloat16(to, tmp_path):
    value = np.float32([[1.5, np.nan], [np.inf, -0.0]])
    saved = {"words": value.astype(tf.bfloat16.as_numpy_dtype)}
    out = written(to, tmp_path, checkpoint=saved_values.write(tmp_path / "a.ckpt", saved))
    found = np.float32(READ_WORDS[to](out))
    np.testing.assert_array_equal(found, value)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(value))  # -0.0 equals 0.0.


@slow
@pytest.mark.parametrize("to", FORMATS)
def test_memory_does_not_grow_with_the_table(to, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(writer, "CHUNK_BYTES", 1 << 15)
    peaks = []
    for rows in (1 << 9, 1 << 11, 1 << 13):  # The first imports the library. The last has 0.5 MB.
        table = np.zeros([rows, 16], np.float32)
        slots = {} if to in ("keras", "saved-model") else {"words/Adagrad": table}
        path = saved_values.write(tmp_path / f"{rows}.ckpt", {"words": table, **slots})
        del table
        tracemalloc.start()
        try:
            checkpoint.export(path, f"{tmp_path}/{rows}", to, slots=bool(slots))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] - peaks[1] < 360 << 10, peaks  # The larger table has 384 kB more.


@pytest.mark.parametrize(
    "arguments, contents, says",
    [
        (["--to=npz"], None, "there is no such file."),
        (["--to=npz"], b"", "is empty."),
        (["--to=npz"], b"x\n" * 14, "has 14 lines, and the table 13 rows."),
        (["--to=npz"], b"x\n" * 12, "has 12 lines, and the table 13 rows: if a line is missing, "),
        (["--to=npz", "--allow-unlabelled"], b"x\n\xff\n", "line 2 is not UTF-8."),
        (
            ["--to=saved-model", "--allow-unlabelled"],
            b"x\ny\nx\n",
            "lines 1 and 3 are both 'x'; a lookup by labels",
        ),
    ],
)
def test_refuses_bad_vocabularies(arguments, contents, says, tmp_path, capsys):
    file = tmp_path / "words.txt"
    if contents is not None:
        file.write_bytes(contents)
    before = sorted(tmp_path.iterdir())
    assert run(MOD, tmp_path / "out", f"--vocabulary=words={file}", *arguments) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and says in printed, printed
    assert f"vocabulary '{file}' of table 'words'" in printed
    assert sorted(tmp_path.iterdir()) == before


def test_refuses_existing_outputs_and_missing_packages(tmp_path, capsys, monkeypatch):
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match=r"^export: '.*/out' exists already\.$"):
        checkpoint.export(MOD, tmp_path / "out", "npz")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert run(MOD, tmp_path / "new", "--to=parquet") == 2
    old = np.__version__.startswith("1.")
    package = "'pyarrow<22', as newer ones want NumPy 2." if old else "pyarrow."
    said = f"estimator-emb export: parquet needs pyarrow: pip install {package}\n"
    assert capsys.readouterr().err == said
    with pytest.raises(ValueError, match="to must be one of npz, parquet, .*; got 'csv'"):
        checkpoint.export(MOD, f"{tmp_path}/new", "csv")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_that_fails_leaves_nothing(to, tmp_path):
    fail = mock.Mock(side_effect=RuntimeError("the disk is full"))
    with pytest.raises(RuntimeError, match="the disk is full"):
        checkpoint.export(MOD, f"{tmp_path}/out", to, progress=fail)
    assert list(tmp_path.iterdir()) == []


WILD = {
    "../../../x": "_._.._.._x",
    "/etc/x": "_etc_x",
    "..": "_.",
    "a/../b": "a_.._b",
    "C:\\x": "C__x",
    "\x1b[31mred": "__31mred",
    "two\nlines": "two_lines",
    "\u202eright": "_right",
}
"""Unsafe name of a table -> name for files: _ replaces a first dot, and all but a-z, 0-9, . -."""


@pytest.fixture
def wild(tmp_path):
    variables = {name: np.full([2, 3], i, np.float32) for i, name in enumerate(WILD)}
    variables["plain/table"] = np.full([2, 3], 10, np.float32)
    return saved_values.write(tmp_path / "wild.ckpt", variables)


COMMANDS = {
    **{
        f"export to {to}": ["export", f"--to={to}"]
        for to in EXPORT_FORMATS
        if to != "parquet" or parquet is not None
    },
    "convert": ["convert", "--table=words"],
    "inspect": ["inspect", "--values"],
}
"""Every command that reads a checkpoint -> its words before the paths."""


def do(command, path, out, *more):
    """Runs a command on a checkpoint, and returns its status. `inspect` writes no `out`."""
    paths = [str(path)] if command == "inspect" else [str(path), str(out)]
    return main_lib.main([*COMMANDS[command], *paths, *more])


@pytest.fixture
def without_pickle(monkeypatch):
    """Fails a test that unpickles, as a pickle in a malicious file could run any code."""
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, mock.Mock(side_effect=AssertionError("unpickled")))


WITH_NAMES = ("export to npz", "export to parquet", "export to keras")
"""Commands that write names.json: replacement -> name of the table."""


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"convert"}))
def test_replaces_and_escapes_unusual_table_names_without_pickle(
    command, wild, tmp_path, capsys, without_pickle
):
    """Keeps names from leaving the folder, and from controlling the terminal."""
    before = {*tmp_path.iterdir()}
    out = tmp_path / "out"
    # TensorFlow takes long to save a model of many tables.
    some = ["--table=../../../x", "--table=.."] if command == "export to saved-model" else []
    assert do(command, wild, out, *some) == 0
    printed = capsys.readouterr().out
    assert printed.isascii() and all(line.isprintable() for line in printed.splitlines())
    assert {*tmp_path.iterdir()} - before <= {out}  # No name leads outside the folder.
    assert (out / "names.json").exists() == (command in WITH_NAMES)
    if command in WITH_NAMES:
        # In an .npz, a name keeps a slash that leads nowhere else.
        plain = "plain/table" if command == "export to npz" else "plain_table"
        expected = {safe: name for name, safe in WILD.items()} | {plain: "plain/table"}
        assert json.loads((out / "names.json").read_text()) == expected
    if command == "export to npz":
        with np.load(out / "tables.npz") as read:
            assert [read[name][0, 0] for name in WILD.values()] == list(range(len(WILD)))
    if command == "export to parquet":
        assert all((out / f"{safe}.parquet").exists() for safe in expected)
    if command == "inspect":
        assert r"\x1b[31mred" in printed


def test_convert_escapes_table_names_without_pickle(wild, tmp_path, capsys, without_pickle):
    """`wild` does not say that its rows are divided by 'mod' over 2 hosts, hence --force."""
    arguments = [wild, str(tmp_path / "new"), "--table=\x1b[31mred", "--from=mod", "--hosts=2"]
    assert main_lib.main(["convert", *arguments, "--force"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == r"moved rows of \x1b[31mred"
    assert all(line.isprintable() for line in printed)
    # COMMANDS asks for the table `words` only.
    assert do("convert", MOD, tmp_path / "words") == 0
    assert "left the rows of items as they were\n" in capsys.readouterr().out


def flipped(contents, offset):
    return contents[:offset] + bytes([contents[offset] ^ 1]) + contents[offset + 1 :]


A_PICKLE = pickle.dumps(["words"])
SPOILED = {
    "an index that is a pickle": ("index", lambda *_: A_PICKLE, "cannot be read"),
    "data that is a pickle": ("data", lambda *_: A_PICKLE, " bytes of "),
    "an empty index": ("index", lambda *_: b"", "cannot be read"),
    "random bytes": ("index", lambda *_: np.random.default_rng(0).bytes(900), "cannot be read"),
    "half an index": ("index", lambda whole, _: whole[: len(whole) // 2], "cannot be read"),
    "half of the data": ("data", lambda whole, _: whole[: len(whole) // 2], " bytes of "),
    "no data": ("data", None, "is missing."),
    "another byte": ("data", flipped, "does not hold what was saved of words: its checksum is "),
}
"""What is wrong -> (file, function of its bytes and a row's place that damages it, message)."""


@pytest.mark.parametrize("how", SPOILED)
def test_every_command_refuses_malformed_files_in_a_line(how, tmp_path, capsys, without_pickle):
    end, spoil, says = SPOILED[how]
    path = f"{shutil.copytree(MOD, tmp_path / 'model')}/model.ckpt-7"
    with checkpoint_reader.CheckpointReader(path) as opened:
        place = opened.parts("words")[2]
    file = pathlib.Path(place.file if end == "data" else f"{path}.index")
    if spoil:
        file.write_bytes(spoil(file.read_bytes(), place.offset))
    else:
        file.unlink()
    before = sorted(tmp_path.rglob("*"))
    for command in COMMANDS:
        assert do(command, path, tmp_path / "out" / "new") == 2, command
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1 and f"'{file}' " in printed, (command, printed)
        assert says in printed, (command, printed)
        assert sorted(tmp_path.rglob("*")) == before, command
