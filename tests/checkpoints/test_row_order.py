"""Converts checkpoints that stock TensorFlow wrote for a TPU with four hosts.

With partition_strategy='mod', such a checkpoint has a table's rows host by host: those of host 0
with the ids 0, 4, 8, ..., then those of host 1 with 1, 5, 9, ... With 'div', they are in the order
of the ids. make_tpu_checkpoint.py wrote them to tests/data/tpu_checkpoints. The right rows are
written out here. Other tests write checkpoints: `write` in a slice for each of `hosts`, with 'mod',
and `save` in one slice.
"""

import json
import os
import pathlib
import shutil
import tracemalloc

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf
import tpu_graphs
from legacy_checkpoint import HELPER, TABLE, read, write_legacy
from saved_values import save, write

import estimator_emb as ee
from estimator_emb import checkpoint
from estimator_emb.checkpoints.files import bundle_index, checkpoint_reader, writer
from estimator_emb.checkpoints.reading import row_order
from estimator_emb.cli import main as main_lib
from estimator_emb.legacy import tpu_embedding

DATA = pathlib.Path(__file__).parents[1] / "data"
HOSTS = 4
WORDS = np.float32([[10 * row, 10 * row + 1] for row in range(13)])
ITEMS = np.float32([[1000 + 10 * row + column for column in range(4)] for row in range(3)])
FEW = np.float32([[2000 + 10 * row + column for column in range(3)] for row in range(2)])
BY_ID = {"words": WORDS, "items": ITEMS, "few": FEW}
BY_ID |= {f"{name}/Adagrad": table + 0.5 for name, table in BY_ID.items()}
IN_ORDER_OF = {
    3: [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11],
    4: [0, 4, 8, 12, 1, 5, 9, 2, 6, 10, 3, 7, 11],
    5: [0, 5, 10, 1, 6, 11, 2, 7, 12, 3, 8, 4, 9],
}
"""Number of hosts -> ids of a table with 13 rows, in the order in which 'mod' saves them."""
TABLES = ["words", "items", "few"]
RECORD = "estimator_emb/row_order"


@pytest.fixture
def saved(tmp_path):
    """Returns a function that returns a copy of a checkpoint of stock TensorFlow."""

    def copy(strategy, graph=True):
        folder = tmp_path / strategy
        if not folder.exists():
            shutil.copytree(DATA / "tpu_checkpoints" / strategy, folder)
        if not graph:
            (folder / "model.ckpt-7.meta").unlink()
        return f"{folder}/model.ckpt-7"

    return copy


def check_by_id(path):
    """Asserts that all tables and slots are in the order of the ids, and all else is as it was."""
    got = read(path)
    np.testing.assert_equal({name: got[name] for name in BY_ID}, BY_ID)
    np.testing.assert_array_equal(got["dense/kernel"], np.eye(3, dtype=np.float32))
    assert got["global_step"] == 7
    assert set(got) == {*BY_ID, "dense/kernel", "dense/kernel/Adagrad", "global_step", RECORD}


def error(**arguments):
    """Asserts that `convert` raises ValueError, and returns its message."""
    with pytest.raises(ValueError) as raised:
        checkpoint.convert(**arguments)
    return str(raised.value)


@pytest.mark.parametrize("tables, hosts", [(TABLES, None), (["*"], HOSTS), (["[wif]*"], None)])
def test_convert_reads_hosts_and_order_from_the_checkpoint(tables, hosts, saved, tmp_path):
    seen = []
    given = saved("mod"), f"{tmp_path}/new", tables, hosts
    made = checkpoint.convert(*given, progress=lambda *done: seen.append(done))
    bytes_done, totals = zip(*seen, strict=True)
    assert sorted(bytes_done) == [*bytes_done] and bytes_done[-1] == totals[-1]
    assert (made.hosts, made.to_hosts, made.left) == (HOSTS, 1, ())
    assert made.path == f"{tmp_path}/new/model.ckpt-7"
    assert made.permuted == tuple(sorted(BY_ID))
    assert tf.train.latest_checkpoint(f"{tmp_path}/new") == made.path
    assert not list(tmp_path.glob("**/*.tmp"))
    check_by_id(made.path)


def test_convert_between_numbers_of_hosts_and_back(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "CHUNK_BYTES", 64)
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 8)
    path = saved("mod")
    for hosts in (3, 5):
        made = checkpoint.convert(path, f"{tmp_path}/{hosts}/", ["*"], to="mod", to_hosts=hosts)
        path = made.path
        assert len([*(tmp_path / str(hosts)).glob("*.data-*")]) > 1  # In pieces of 64 bytes.
        got = read(path)
        np.testing.assert_array_equal(got["words"], WORDS[IN_ORDER_OF[hosts]])
        np.testing.assert_array_equal(got["words/Adagrad"], WORDS[IN_ORDER_OF[hosts]] + 0.5)
        np.testing.assert_array_equal(got["items"], ITEMS)  # Each host has one row or none.
        again = {"destination": f"{tmp_path}/x", "tables": ["words"], "to": "mod"}
        message = error(source=path, to_hosts=hosts, **again)
        assert f"its rows are in the order of 'mod' over {hosts} hosts already" in message
    check_by_id(checkpoint.convert(path, f"{tmp_path}/ids", ["*"]).path)


def test_div_is_in_id_order_and_converts_to_mod(saved, tmp_path):
    path = saved("div")
    # To the order of the ids, there is nothing to convert.
    for more in ({}, {"hosts": 4}, {"source_order": "mod", "force": True}):
        message = error(source=path, destination=f"{tmp_path}/new", tables=["words"], **more)
        assert message.endswith(f"'{path}.meta' says partition_strategy='div'.")
        assert not (tmp_path / "new").exists()
    made = checkpoint.convert(path, f"{tmp_path}/new", ["*"], to="mod", to_hosts=4)
    assert (made.hosts, made.to_hosts) == (1, 4)
    want, got = read(saved("mod")), read(made.path)
    assert got.pop(RECORD)
    # `dropped` are helper variables of legacy programs, which no program here reads.
    np.testing.assert_equal(got, {name: want[name] for name in set(want) - set(made.dropped)})
    with checkpoint_reader.CheckpointReader(made.path) as slices:  # One for each host.
        assert [part.rows for part in slices.parts("words")] == [4, 3, 3, 3]


def test_convert_refuses_a_converted_checkpoint(saved, tmp_path):
    """The record is in the checkpoint, so it holds under another path too."""
    first = checkpoint.convert(saved("mod"), f"{tmp_path}/new", ["*"]).path
    os.rename(tmp_path / "new", tmp_path / "elsewhere")
    for file in (tmp_path / "elsewhere").glob("model.ckpt-7.*"):
        file.rename(file.parent / file.name.replace("ckpt-7", "ckpt-8"))
    copied = first.replace("new/model.ckpt-7", "elsewhere/model.ckpt-8")
    for more in ({}, {"source_order": "mod"}, {"source_order": "mod", "hosts": 4, "force": True}):
        message = error(source=copied, destination=f"{tmp_path}/again", tables=["words"], **more)
        assert f", by its record, the variable {RECORD}." in message
        assert "in the order of the ids" in message
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("graph", [True, False])
def test_convert_tables_one_by_one(graph, saved, tmp_path):
    """The record keeps the order of the other tables: without a graph, also by `source_order`."""
    order = {} if graph else {"source_order": "mod"}
    path = checkpoint.convert(saved("mod", graph), f"{tmp_path}/1", ["items"], **order).path
    hosts = {"few": 4, "items": 1, "items/Adagrad": 1, "words": 4}
    assert json.loads(read(path)[RECORD]) == {"format": 1, "hosts": hosts}
    np.testing.assert_array_equal(read(path)["words"], WORDS[IN_ORDER_OF[4]])
    np.testing.assert_array_equal(checkpoint.table(path, "words"), WORDS)
    with checkpoint_reader.CheckpointReader(path) as values:
        assert row_order.described(values).endswith("'mod' over 4 hosts in some tables")
    message = error(source=path, destination=f"{tmp_path}/x", tables=["*"])
    assert "the named tables are in different orders, by the record in" in message
    made = checkpoint.convert(path, f"{tmp_path}/2", ["words", "few"])
    assert made.left == ("items",)
    check_by_id(made.path)


def test_an_unknown_variable_keeps_its_slices(tmp_path):
    """It may be a table, to be converted later. Then its slices tell the number of hosts."""
    both = {"words": WORDS, "plain": WORDS}
    path = write(tmp_path / "plain.ckpt", both, hosts=dict.fromkeys(both, HOSTS))
    path = checkpoint.convert(path, f"{tmp_path}/1", ["words"], source_order="mod").path
    np.testing.assert_array_equal(checkpoint.table(path, "words"), WORDS)
    with pytest.raises(ValueError, match="in which order the rows of 'plain' are"):
        checkpoint.table(path, "plain")
    made = checkpoint.convert(path, f"{tmp_path}/2", ["plain"], source_order="mod")
    for name in both:
        np.testing.assert_array_equal(checkpoint.table(made.path, name), WORDS)


@pytest.mark.parametrize("hosts", [1, 100])
@pytest.mark.parametrize("graph", [True, False])
def test_convert_refuses_a_wrong_number_of_hosts(hosts, graph, saved, tmp_path):
    path = saved("mod", graph)
    why = "says partition_strategy='mod' over 4 hosts" if graph else "'words' is saved in 4 slices"
    arguments = {"source": path, "destination": f"{tmp_path}/new", "source_order": "mod"}
    for table in ("words", "few"):  # The two slices of "few" do not tell it, those of "words" do.
        message = error(**arguments, tables=[table], hosts=hosts)
        assert message.startswith(f"convert: hosts must be 4 for {path!r}: ") and why in message


def test_convert_asks_for_an_unknown_order(saved, tmp_path, capsys, assert_recorded):
    path = saved("mod", graph=False)
    assert main_lib.main(["convert", path, f"{tmp_path}/new", "--table=words"]) == 2
    message = capsys.readouterr().err
    assert f"nothing in {path!r} says in which order its rows are" in message
    assert_recorded(message)
    assert main_lib.main(["convert", path, f"{tmp_path}/new", "--table=words", "--from=div"]) == 2
    assert "nothing to convert" in capsys.readouterr().err  # It is in the order of the ids.
    for arguments in (["--to-hosts=2"], ["--reverse", "--hosts=2"]):  # To 'mod', by two spellings.
        assert main_lib.main(["convert", path, f"{tmp_path}/new", "--table=words", *arguments]) == 2
        assert "nothing in" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    # Without a graph, the slots of helper variables name the tables.
    assert main_lib.main(["convert", path, f"{tmp_path}/new", "--table=*", "--from=mod"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *(f"moved rows of {name}" for name in sorted(BY_ID)),
        *(f"left out tpu_embedding_dummy_table_variable_{name}/Adagrad" for name in sorted(TABLES)),
        "from the order of 'mod' over 4 hosts to the order of the ids",
        f"{tmp_path}/new/model.ckpt-7",
    ]
    check_by_id(f"{tmp_path}/new/model.ckpt-7")


def test_convert_refuses_a_table_saved_in_one_slice(tmp_path):
    """If another program has joined the slices, `force` and a number of hosts convert them."""
    path = save(f"{tmp_path}/joined.ckpt", {"words": WORDS[IN_ORDER_OF[4]]})
    arguments = {"source": path, "destination": f"{tmp_path}/new", "tables": ["words"]}
    said = error(**arguments)  # By default, a table in one slice is in the order of the ids.
    assert "the order of the ids already: these tables are not saved in slices, as sev" in said
    arguments["source_order"] = "mod"
    assert "table 'words' is saved in one slice; got 4." in error(**arguments, hosts=4)
    assert error(**arguments).endswith("already: table 'words' is saved in one slice.")
    most = "must not exceed the rows of the largest table that is named; got 14, and that table has"
    assert error(**arguments, hosts=14, force=True).startswith(f"convert: hosts {most} 13 rows.")
    made = checkpoint.convert(**arguments, hosts=4, force=True)
    np.testing.assert_array_equal(read(made.path)["words"], WORDS)
    arguments = {"source": made.path, "destination": f"{tmp_path}/x", "tables": ["words"]}
    message = error(**arguments, to="mod", to_hosts=14)
    assert message.startswith(f"convert: to_hosts {most} 13 rows.")


def test_graphs_of_this_package_mean_id_order(tmp_path):
    """Their ops gather each host's rows and load these. A legacy graph loads variables as saved."""
    for strategy in ("mod", "div"):
        table = ee.TableConfig(13, 2)
        embedding = tpu_graphs.one_table(table, hosts=4, partition_strategy=strategy)
        with tpu_graphs.build(embedding, tpu_embedding).as_default():
            meta = tf.compat.v1.train.export_meta_graph(clear_devices=True)
        (tmp_path / f"{strategy}.meta").write_bytes(meta.SerializeToString())
        found = row_order.saved_graph(f"{tmp_path}/{strategy}")
        assert (found.order, found.hosts) == ("ids", 4)
    (tmp_path / "bad.meta").write_bytes(b"\xff\xff")  # A damaged file tells nothing.
    assert row_order.saved_graph(f"{tmp_path}/bad") == row_order.SavedGraph()
    (tmp_path / "other.meta").write_bytes(b"")  # A graph without tables of a TPU.
    path = write(tmp_path / "other", {"words": WORDS}, slices=4)
    np.testing.assert_array_equal(checkpoint.table(path, "words"), WORDS)


def test_convert_refuses_a_record_of_another_version(tmp_path):
    for content in (b'{"format": 2, "hosts": {}}', b'{"format": 1, "hosts": {"words": 0}}', b"[1]"):
        path = write(tmp_path / "model.ckpt-1", {"words": WORDS, RECORD: content})
        message = error(source=path, destination=f"{tmp_path}/x", tables=["words"])
        assert message.startswith(f"Variable {RECORD} of checkpoint {path!r}")


def test_convert_detects_a_faulty_disk(saved, tmp_path, monkeypatch):
    add = writer.Writer.add

    def faulty(self, name, dtype, value, *place):
        other.touch()  # Another process writes into a folder that did not exist before.
        add(self, name, dtype, value + 1 if name == "words/Adagrad" else value, *place)

    monkeypatch.setattr(writer.Writer, "add", faulty)
    path, other = saved("mod"), tmp_path / "a" / "other"
    kept = sorted([*tmp_path.rglob("*"), other.parent, other])
    message = error(source=path, destination=f"{tmp_path}/a/b/new", tables=["*"])
    assert message.startswith("convert: words/Adagrad of the new checkpoint ")
    assert message.endswith(" is not what was written: the disk may be faulty.")
    assert sorted(tmp_path.rglob("*")) == kept


def test_a_convert_that_fails_at_its_end_leaves_no_file(saved, tmp_path):
    path = saved("mod")
    (tmp_path / "checkpoint").symlink_to("missing/file")  # So this file cannot be written.
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(tf.errors.NotFoundError):
        checkpoint.convert(path, f"{tmp_path}/new-7", ["*"])
    assert sorted(tmp_path.rglob("*")) == before


def test_convert_accepts_folders_and_checkpoint_paths(saved, tmp_path):
    """A destination is a folder, or, if it ends in a number and is no folder yet, a new path."""
    (tmp_path / "there-8").mkdir()
    path = saved("mod")
    for source, given, made in (
        (path, "new", "new/model.ckpt-7"),
        (os.path.dirname(path), "end/", "end/model.ckpt-7"),
        (path, "there-8", "there-8/model.ckpt-7"),
        (os.path.dirname(path), "new/model.ckpt-9", "new/model.ckpt-9"),
        (path, "new/copy-9", "new/copy-9"),
    ):
        got = checkpoint.convert(source, f"{tmp_path}/{given}", ["words"]).path
        assert got == f"{tmp_path}/{made}" and os.path.exists(f"{got}.index")


def test_convert_refuses_a_path_that_is_a_pattern(tmp_path):
    shutil.copytree(DATA / "tpu_checkpoints" / "mod", tmp_path / "a[b]")
    path = f"{tmp_path}/a[b]/model.ckpt-7"
    message = error(source=path, destination=f"{tmp_path}/new", tables=["words"])
    assert message.startswith(f"Checkpoint '{path}' is there, but TensorFlow does not find it")


def test_writer_begins_a_file_for_a_value_that_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "CHUNK_BYTES", 64)
    with writer.Writer(f"{tmp_path}/model.ckpt-1") as out:
        for name, size in zip("abcdef", (40, 24, 8, 56, 80, 8), strict=True):
            out.add(name, tf.int8, np.zeros(size, np.int8))
        out.finish()
    files = sorted(tmp_path.glob("*.data-*"))
    assert [file.stat().st_size for file in files] == [40 + 24, 8 + 56, 80, 8]


@pytest.mark.slow
@pytest.mark.any_version
def test_memory_of_convert_does_not_grow_with_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "CHUNK_BYTES", 1 << 18)
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 1 << 18)
    path = f"{tmp_path}/large.ckpt"
    numbers = np.arange(1 << 20, dtype=np.float32)  # 4 MiB
    write(path, {"words": numbers.reshape(-1, 8)})
    tracemalloc.start()
    try:
        checkpoint.convert(path, f"{tmp_path}/new", ["words"], to="mod", to_hosts=3)
        checkpoint.convert(f"{tmp_path}/new", f"{tmp_path}/ids", ["words"])
        _, converting = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert checkpoint.statistics(path)[0].rows == 1 << 17
        _, reading = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert converting < 5 << 19 and reading < 7 << 19, (converting, reading)  # 2.5, 3.5 MiB.
    np.testing.assert_array_equal(read(f"{tmp_path}/ids/large.ckpt")["words"].ravel(), numbers)


def test_reads_slices_with_large_start_rows(tmp_path):
    """Start rows take one to four bytes in the index's keys, which escape the 0 of the name."""
    ends = [1, 63, 64, 65, 8191, 8192, 8193, 1048575, 1048576, 1048577]
    path = f"{tmp_path}/far"
    starts = [0, *ends[:-1]]
    pairs = list(zip(starts, ends, strict=True))
    values = (np.arange(ends[-1]) % 100).astype(np.int8)[:, None]
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=["a\0\xff/words"] * len(ends),
        shape_and_slices=[f"{ends[-1]} 1 {start},{end - start}:-" for start, end in pairs],
        tensors=[values[start:end] for start, end in pairs],
    )
    (name,) = read(path)
    with checkpoint_reader.CheckpointReader(path) as slices:
        assert [part.start for part in slices.parts(name)] == starts
        slices.check(name)
        np.testing.assert_array_equal(slices.rows(name, 60, 9000), values[60:9000])


def test_convert_copies_every_dtype(tmp_path, monkeypatch):
    """TensorFlow cannot restore float16 saved in parts."""
    monkeypatch.setattr(writer, "CHUNK_BYTES", 48)
    types = ["float16", "float32", "float64", "bfloat16", "bool", "int8", "complex64"]
    value = np.array([[1, 0], [0, 3], [5, 0]])
    values_of = {name: value.astype(tf.as_dtype(name).as_numpy_dtype) for name in types}
    halves = WORDS.astype(np.float16)
    tables = {"words": WORDS, "halves": halves, "none": value[:0]}
    path = save(f"{tmp_path}/types.ckpt", {**tables, **values_of})
    named = ["words", "halves"]
    got = read(checkpoint.convert(path, f"{tmp_path}/new", named, to="mod", to_hosts=3).path)
    for name, value in values_of.items():
        np.testing.assert_array_equal(got[name], value, strict=True)
    assert got["none"].shape == (0, 2)
    np.testing.assert_array_equal(got["words"], WORDS[IN_ORDER_OF[3]])
    np.testing.assert_array_equal(got["halves"], halves[IN_ORDER_OF[3]], strict=True)


def test_convert_copies_variables_divided_by_columns(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        columns = tf.compat.v1.fixed_size_partitioner(4, axis=1)
        wide = tf.compat.v1.get_variable("wide", [3, 8], partitioner=columns)
        tf.compat.v1.get_variable("words", initializer=WORDS)
        session.run(tf.compat.v1.global_variables_initializer())
        want = session.run(tf.convert_to_tensor(wide))
        path = tf.compat.v1.train.Saver().save(session, f"{tmp_path}/wide.ckpt")
    with pytest.raises(bundle_index.UnknownFormat, match="wide is not in runs of rows"):
        bundle_index.Index(path).parts("wide")
    made = checkpoint.convert(path, f"{tmp_path}/new", ["words"], to="mod", to_hosts=3)
    np.testing.assert_array_equal(read(made.path)["wide"], want)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_stored_checkpoints_equal_those_of_stock_tensorflow(strategy, tmp_path):
    processes.run_side("stock", DATA / "make_tpu_checkpoint.py", tmp_path, strategy, "4", status=0)
    paths = f"{tmp_path}/model.ckpt-7", f"{DATA}/tpu_checkpoints/{strategy}/model.ckpt-7"
    np.testing.assert_equal(*map(read, paths))
    made, kept = map(row_order.saved_graph, paths)
    assert (made.order, made.hosts, made.tables) == (kept.order, kept.hosts, kept.tables)


def test_inspect_lists_variables_and_tables(tmp_path):
    """`write_legacy` writes two tables with slots, a helper variable, and a model's variables."""
    path = write_legacy(tmp_path)
    for named in (path, str(tmp_path)):
        found = {one.name: one for one in checkpoint.inspect(named)}
        names = "dense/kernel empty few few/mine global_step note".split()
        assert list(found) == sorted([TABLE, HELPER, f"{HELPER}/Adam", *names])
        words = found[TABLE]
        slots = (f"{TABLE}/Adagrad",)
        assert words == checkpoint.SavedVariable(TABLE, (13, 2), tf.float32, slots, "Adagrad")
        assert words.bytes == 4 * 13 * 2 * 2  # float32, for a table and its accumulators.
        few = found["few"]
        assert (few.optimizer, few.slots) == ("Adam", ("few/Adam/m", "few/Adam/v"))
        assert (found["few/mine"].optimizer, found["few/mine"].slots) == (None, ())  # No slot.
        assert (found["global_step"].shape, found["global_step"].bytes) == ((), 8)
        assert (found["note"].dtype, found["note"].bytes) == (tf.string, 0)


def test_a_converted_checkpoint_trains_on(tmp_path, meta_graphs):
    by_host = IN_ORDER_OF[HOSTS]
    tables = {"words": WORDS[by_host], "words/Adagrad": 100 + WORDS[by_host]}
    save(f"{tmp_path}/legacy/model.ckpt-0", {**tables, "global_step": np.int64(0)})
    legacy = {"tables": ["words"], "hosts": HOSTS, "force": True}
    checkpoint.convert(f"{tmp_path}/legacy", f"{tmp_path}/new", source_order="mod", **legacy)
    tables = {"words": ee.TableConfig(13, 2)}
    spec = harness.tables_spec(tables, ee.AdagradParameters(0.1), partition_strategy="mod")
    batch = {"words": np.array([1, 5, 12])}, {"words": np.ones([3, 2], np.float32)}
    model_fn = harness.gradient_model_fn(["words"])
    estimator = harness.estimator(model_fn, spec, tmp_path / "new", batch_size=3)
    estimator.train(harness.input_fn_of([batch]), steps=1)
    got = harness.saved(tmp_path / "new", 1)
    want = {"words": WORDS.copy(), "words/Adagrad": 100 + WORDS, "global_step": 1}
    want["words/Adagrad"][[1, 5, 12]] += 1  # The square of the gradient, a label of 1.
    want["words"][[1, 5, 12]] -= 0.1 / np.sqrt(want["words/Adagrad"][[1, 5, 12]])
    harness.assert_same(got, want, 1e-6)
    # The record is not saved again, but the graph beside the checkpoint is recognized as ours.
    for strategy in (None, "mod"):
        given = {"source": f"{tmp_path}/new", "destination": f"{tmp_path}/x", **legacy}
        said = harness.refusal(ValueError, checkpoint.convert, source_order=strategy, **given)
        assert said.endswith("model.ckpt-1.meta' is a graph of this package.")
    np.testing.assert_array_equal(checkpoint.table(str(tmp_path / "new"), "words"), got["words"])


@pytest.mark.parametrize(
    "change, phrase",
    [
        ({"to": "div"}, "convert: to must be 'ids' or 'mod'; got 'div'."),
        ({"hosts": 0}, "convert: hosts must be at least 1; got 0."),
        ({"to_hosts": 0}, "convert: to_hosts must be at least 1; got 0."),
        ({"to_hosts": 2}, "convert: to_hosts needs to='mod'"),
        ({"to": "mod", "hosts": None}, "convert: to='mod' needs to_hosts"),
        ({"source_order": "ids"}, "convert: source_order must be 'div' or 'mod'; got 'ids'."),
        ({"tables": []}, "convert: tables must name at least one table (--table)."),
        ({"source": "{folder}/nothing"}, "There is no checkpoint '{folder}/nothing'."),
        ({"source": "{folder}/model.ckpt-7.index"}, "without the end of the file's name."),
        ({"source": "{folder}/void"}, "Folder '{folder}/void' holds no checkpoint."),
        ({"destination": "{folder}/model.ckpt-7.index/8"}, "is a file; it must be a folder for"),
        ({"destination": "{folder}/model.ckpt-7"}, "'{folder}/model.ckpt-7' exists already."),
        *(({"tables": [name]}, "no embedding table matches") for name in ("wrds", "dense/*")),
        ({"tables": ["dense/kernel"]}, "is no embedding table, by its name, its type or its shape"),
        ({"tables": ["global_step"]}, "is no embedding table, by its name, its type or its shape"),
        ({"tables": ["few/Adam/m"]}, "is a slot, which moves with its table: name the table, 'few"),
    ],
)
def test_convert_refuses_invalid_arguments(change, phrase, tmp_path):
    path = write_legacy(tmp_path)
    (tmp_path / "void").mkdir()
    before = sorted(tmp_path.iterdir())
    arguments = {"source": path, "destination": f"{tmp_path}/new/7", "tables": ["few"], "hosts": 4}
    arguments |= {"source_order": "mod", **change}
    for name in ("source", "destination"):
        arguments[name] = arguments[name].format(folder=tmp_path)
    said = harness.refusal(ValueError, checkpoint.convert, **arguments)
    assert phrase.format(folder=tmp_path) in said
    assert sorted(tmp_path.iterdir()) == before
