"""Warm starts with the next day's vocabulary move rows and slots by word.

The program asks for the move with `vocabulary_warm_start` or with its own VocabInfo.
"""

import pathlib
import re

import harness
import numpy as np
import pytest
import tensorflow as tf
from saved_values import save

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.checkpoints.restoring import compare_graph
from estimator_emb.spec.resolved import tables_of

pytestmark = pytest.mark.any_version

OLD = ["apple", "pear", "fig", "plum"]
NEW = ["fig", "quince", "apple", "kiwi", "lime"]  # pear and plum are dropped.
OPTIMIZERS = {
    "Adagrad": (ee.AdagradParameters(0.5, initial_accumulator=0.2), {"/Adagrad": 0.2}),
    "Adam": (ee.AdamParameters(0.5), {"/Adam/m": 0.0, "/Adam/v": 0.0}),
    "Ftrl": (ee.FtrlParameters(0.5, initial_accumulator_value=0.3), {"/Ftrl": 0.3, "/Ftrl_1": 0.0}),
    "counts": (ee.FrequencyEstimatorParameters(0.3, 9.0, 2.0, 1.0), {"/FrequencyEstimator": 0.0}),
}
"""Name -> (the optimizer, {end of a slot's name in checkpoints: the slot's initial value})."""
CORES = {"host": None, "emulated": 1, "2 cores": 2}
"""Where a training runs -> number of cores of its emulated TPU."""
NAMES = {
    "dicts": "fruit",
    "column": "dense_features/fruit_embedding/embedding_weights",
    "shared": "food/fruits",
}
TABLE_NAMES = {"dicts": "fruit", "column": "tbl_fruit", "shared": "tbl_food/fruits"}


def initial(rows, dimension, start):
    return start + np.arange(rows * dimension, dtype=np.float32).reshape(rows, dimension) / 8


def spec_of(kind, words, extra, optimizer, start=0.0, dimension=None):
    """Returns a spec with a table that starts as `initial`, and the spec's columns."""
    parameters, _ = OPTIMIZERS[optimizer]
    counts = optimizer == "counts"
    dimension = dimension or (1 if counts else 3)
    rate = {"learning_rate_fn": (lambda step: tf.cast(step, tf.float32)) if counts else None}
    rows = len(words) + extra
    initializer = tf.compat.v1.constant_initializer(initial(rows, dimension, start))
    if kind == "dicts":
        table = ee.TableConfig(rows, dimension, initializer, "sum", **rate)
        return harness.tables_spec({"fruit": table}, parameters), None
    made = [
        fc.categorical_column_with_vocabulary_list(key, words, num_oov_buckets=extra)
        for key in ("fruit", "other")
    ]
    if kind == "shared":
        columns = fc.shared_embedding_columns(
            made, dimension, "sum", initializer, "food/fruits", **rate
        )
    else:
        columns = [fc.embedding_column(made[0], dimension, "sum", initializer, **rate)]
    return ee.EmbeddingConfigSpec(columns, parameters), columns


def make(model_dir, kind, words, extra, optimizer, start=0.0, warm=None, way="host", layer=None):
    spec, columns = spec_of(kind, words, extra, optimizer, start)

    def model_fn(features, labels, mode, params):
        hidden = fc.DenseFeatures(columns, name=layer)(features) if columns else features["fruit"]
        scale = tf.compat.v1.get_variable("scale", [], initializer=tf.ones_initializer())
        return harness.minimized(mode, scale * tf.reduce_sum(hidden * hidden), 0.1)

    return harness.estimator(model_fn, spec, model_dir, num_shards=CORES[way], warm_start_from=warm)


def train(estimator, ids, steps, kind):
    keys = ("fruit", "other") if kind == "shared" else ("fruit",)
    batch = ({key: np.array(ids) for key in keys}, np.zeros(len(ids), np.float32))
    estimator.train(harness.input_fn_of([batch] * steps), steps=steps)


def by_word(before, words, rows, moved_extra):
    """Returns `rows`, the new initial values, with the old rows at the new ids of their words.

    `moved_extra` says whether the rows of unknown words move too, to the same places.
    """
    want = rows.copy()
    for id, word in enumerate(words):
        if word in OLD:
            want[id] = before[OLD.index(word)]
    if moved_extra:
        want[len(words) :] = before[len(OLD) :]
    return want


CASES = [
    ("dicts", "Adagrad", "host", 1, (2, 2)),
    ("dicts", "Ftrl", "2 cores", 1, (2, 1)),
    ("dicts", "counts", "emulated", 1, (1, 1)),
    ("dicts", "counts", "host", 1, (0, 0)),
    ("dicts", "Ftrl", "host", 7, (1, 3)),
    ("column", "Adagrad", "emulated", 1, (1, 2)),
    ("column", "Ftrl", "host", 3, (2, 2)),
    ("shared", "Adam", "host", 1, (2, 2)),
    ("shared", "Adagrad", "emulated", 1, (2, 2)),
]
"""(kind of spec, optimizer, way, shards, rows for unknown words in the old and new table)"""


@pytest.mark.fast(1)
@pytest.mark.parametrize("kind, optimizer, way, shards, extra", CASES)
def test_rows_and_slots_move_by_word(kind, optimizer, way, shards, extra, tmp_path, in_shards):
    in_shards(shards)
    old, new = tmp_path / "old", tmp_path / "new"
    # An emulated TPU takes ids.
    words = OLD if kind != "dicts" and way == "host" else [0, 1, 2, 3]
    train(make(old, kind, OLD, extra[0], optimizer, start=1.0, way=way), words, 2, kind)
    before = harness.saved(old, 2)
    spec, _ = spec_of(kind, NEW, extra[1], optimizer, 100.0)
    file = tmp_path / "old.txt"
    file.write_text("".join(f"{word}\n" for word in OLD))
    warm = ee.vocabulary_warm_start(old, spec, {"fruit": (file, NEW)}, tmp_path / "words")
    new_model = make(new, kind, NEW, extra[1], optimizer, start=100.0, warm=warm, way=way)
    train(new_model, words, 1, kind)
    got = harness.saved(new, 2)  # Saved before the first new step.
    name, rows = NAMES[kind], len(NEW) + extra[1]
    dimension = before[name].shape[1]
    starts = {"": initial(rows, dimension, 100.0)}
    starts |= {
        field: np.full([rows, dimension], value, np.float32)
        for field, value in OPTIMIZERS[optimizer][1].items()
    }
    for field, start in starts.items():
        assert np.all(before[name + field][:4] != start[0, 0])
        # Rows of unknown words move only if both tables have as many.
        want = by_word(before[name + field], NEW, start, extra[0] == extra[1])
        np.testing.assert_array_equal(got[name + field], want, err_msg=field)
    assert got["scale"] == before["scale"] != 1  # A trained variable of the model.
    assert got["global_step"] == 2
    assert {key for key in got if key.startswith(name)} == {name + field for field in starts}


def write_checkpoint(model_dir, values):
    """Writes a checkpoint of step 1 with these values and the variable of the model here."""
    others = {"scale": np.float32(0.5), "global_step": np.int64(1)}
    save(f"{model_dir}/model.ckpt-1", {**values, **others})
    return model_dir


UNCHANGED = ee.StochasticGradientDescentParameters(0.0)


def after_a_step(model_dir, spec, warm=None):
    """Trains a step that leaves all rows unchanged, and returns the checkpoint."""
    model_fn = harness.gradient_model_fn(list(spec.table_to_config_dict))
    made = harness.estimator(model_fn, spec, model_dir, warm_start_from=warm)
    made.train(harness.input_fn_of(harness.random_batches(0, spec, 4, 1)), steps=1)
    return harness.saved(model_dir, 1)


def test_new_words_get_rows_of_a_fresh_table(tmp_path):
    """Variance scaling by fan_out has a deviation of 1 / sqrt(dimension of the whole table)."""
    initializer = tf.compat.v1.variance_scaling_initializer(1.0, mode="fan_out")
    spec = harness.tables_spec({"fruit": ee.TableConfig(900, 100, initializer, "sum")}, UNCHANGED)
    words = [f"w{number}" for number in range(500)]
    before = harness.normal(0, 500, 100)
    write_checkpoint(tmp_path / "old", {"fruit": before})
    later = words[::-1] + [f"w{number}" for number in range(500, 900)]  # 400 new words.
    warm = ee.vocabulary_warm_start(tmp_path / "old", spec, {"fruit": (words, later)})
    got = after_a_step(tmp_path / "new", spec, warm)["fruit"]
    np.testing.assert_array_equal(got[:500][::-1], before)
    assert abs(got[500:].std() - 1 / np.sqrt(100)) < 0.002  # By chance: about 0.0004.
    assert len(np.unique(got[500:])) > 39_000  # Of 400 x 100 random numbers: no row repeats.


@pytest.mark.slow
def test_new_words_of_dealt_tables_get_their_own_rows(tmp_path, in_shards):
    """Tables of 1,000 rows or more are dealt: divided into slices, for the servers in turn.

    The first slice of the second table is on another server than that of the first.
    """
    in_shards(2)

    def tables(rows, start):
        values = tf.compat.v1.constant_initializer(initial(rows, 2, start))
        same = dict.fromkeys("ab", ee.TableConfig(rows, 2, values, "sum"))
        return harness.tables_spec(same, UNCHANGED)

    first, second = tables(1500, 0.0), tables(1000, 1e4)
    words = [f"w{number}" for number in range(1500)]
    later = [f"w{number}" for number in range(1999, -1, -2)]  # New: the 250 words w1999 to w1501.
    after_a_step(tmp_path / "old", first)
    warm = ee.vocabulary_warm_start(tmp_path / "old", second, dict.fromkeys("ab", (words, later)))
    got = after_a_step(tmp_path / "new", second, warm)
    want = initial(1000, 2, 1e4)
    want[250:] = initial(1500, 2, 0.0)[1499::-2]  # The old rows of w1499, w1497, ..., w1.
    for table in "ab":
        np.testing.assert_array_equal(got[table], want)


@pytest.mark.parametrize("extra", [harness.slow(2), 1])
def test_any_word_moves_its_row_and_no_other(extra, tmp_path):
    """Words may be blank, not UTF-8, or equal to the text that stands for a row without a word.

    The old table has rows for two unknown words, the new table for `extra`.
    """
    words = ["", "\tbucket 0", b"\xff\xfe", " ", "\told bucket 1", "a"]
    rows = np.arange(16, dtype=np.float32).reshape(8, 2)
    write_checkpoint(tmp_path / "old", {"fruit": rows})
    start = np.full([len(words) + extra, 2], -1, np.float32)
    table = ee.TableConfig(len(start), 2, harness.initializer(start))
    spec = harness.tables_spec({"fruit": table}, UNCHANGED)
    pair = words, ["new", *reversed(words[1:])]
    warm = ee.vocabulary_warm_start(tmp_path / "old", spec, {"fruit": pair})
    got = after_a_step(tmp_path / "new", spec, warm)["fruit"]
    end = rows[6:] if extra == 2 else start[6:]  # Rows of unknown words move only with 2.
    # The first new word is "new". The others are the old ones backwards, without "".
    np.testing.assert_array_equal(got, np.concatenate([start[:1], rows[5:0:-1], end]))


OTHER = "other/embedding_weights"  # A variable of no table.
of_each_kind = pytest.mark.parametrize(
    "kind, optimizer, extra", [("dicts", None, 0), ("column", "Ftrl", 2), ("shared", "Adam", 1)]
)


def spec_and_checkpoint(kind, optimizer, extra, model_dir):
    """Returns the spec of a table for `NEW`. Writes a checkpoint with two rows of unknown words."""
    write_checkpoint(model_dir, {NAMES[kind]: np.ones([6, 3], np.float32), OTHER: np.float32(1)})
    spec, _ = spec_of(kind, NEW, extra, optimizer or "Adagrad")
    return spec if optimizer else spec._replace(optimization_parameters=None)


@of_each_kind
def test_settings_have_word_files_for_the_table_and_its_slots(kind, optimizer, extra, tmp_path):
    name, fields = NAMES[kind], OPTIMIZERS[optimizer][1] if optimizer else {}
    spec = spec_and_checkpoint(kind, optimizer, extra, tmp_path)
    warm = ee.vocabulary_warm_start(tmp_path, spec, {TABLE_NAMES[kind]: (OLD, NEW)}, tmp_path)
    infos = warm.var_name_to_vocab_info
    assert infos.keys() == {name, *(name + field for field in fields)}
    # A row moves if both files have its text. Rows of unknown words must not move if `extra`, their
    # new number, is not 2, the old number.
    rest = "bucket" if extra == 2 else "old bucket"
    texts = [f" apple\n pear\n fig\n plum\n\t{rest} 0\n\t{rest} 1\n"]
    buckets = "".join(f"\tbucket {number}\n" for number in range(extra))
    texts.append(f" fig\n quince\n apple\n kiwi\n lime\n{buckets}")
    for info in infos.values():
        assert [pathlib.Path(one).read_text() for one in (info.old_vocab, info.new_vocab)] == texts
        assert (info.new_vocab_size, info.num_oov_buckets) == (5 + extra, 0)
    for field, value in fields.items():
        assert infos[name + field].backup_initializer([1, 1]).numpy() == np.float32(value)


@of_each_kind
def test_a_warm_start_without_word_files_names_the_table(kind, optimizer, extra, tmp_path):
    spec, name = spec_and_checkpoint(kind, optimizer, extra, tmp_path), NAMES[kind]
    differs = f"table '{TABLE_NAMES[kind]}': variable {name} is [7, 3] here and [6, 3] in the"
    differs += f" checkpoint\n  variable {OTHER} is [3] here and [] in the"
    with tf.Graph().as_default(), pytest.raises(ValueError, match=re.escape(differs)):
        for variable, shape in ((name, [7, 3]), (OTHER, [3])):
            tf.compat.v1.get_variable(variable, shape)
        compare_graph.check_warm_start(ee.WarmStartSettings(str(tmp_path)), tables_of(spec))


FIELDS = ("", "/Adam/m", "/Adam/v")
BACKUP = 3.0
"""Value of new words' rows, by the program's VocabInfo."""


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Returns a model directory with the tables [6, 3] of two kinds, and a variable `scale`."""
    values = {
        NAMES[kind] + field: 1 + harness.normal(len(field), 6, 3) ** 2
        for kind in ("dicts", "column")
        for field in FIELDS
    }
    return write_checkpoint(tmp_path_factory.mktemp("old"), values)


def vocab_info(tmp_path):
    files = {name: tmp_path / f"{name}.words" for name in ("old", "new")}
    for file, words in zip(files.values(), ([*OLD, "cherry", "date"], NEW), strict=True):
        file.write_text("\n".join(words) + "\n")
    new = {"new_vocab": str(files["new"]), "new_vocab_size": len(NEW), "num_oov_buckets": 2}
    old = {"old_vocab": str(files["old"]), "old_vocab_size": 6}  # A word for each row.
    backup = {"backup_initializer": lambda shape, dtype=tf.float32: tf.fill(shape, BACKUP)}
    return ee.VocabInfo(**new, **old, **backup)


def moved(before, backup):
    """Returns the rows of `NEW` moved from the rows of `OLD`. All other rows are `backup`."""
    return by_word(before, NEW, np.full([len(NEW) + 2, 3], backup, np.float32), False)


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "asked, way, shards",
    [
        ("named", "host", 3),  # The table and each slot have a VocabInfo.
        ("pattern", "host", 1),  # A list of patterns finds the table and its slots.
        harness.slow("pattern", "emulated", 1),
        harness.slow("pattern", "host", 3),
        ("tables only", "emulated", 1),  # A pattern that is a text finds trainable variables only.
        ("vocabularies only", "host", 1),  # No pattern: only the table, which has a VocabInfo.
    ],
)
def test_vocab_info_moves_rows_to_their_new_ids(asked, way, shards, old, tmp_path, in_shards):
    before, name = harness.saved(old, 1), NAMES["column"]
    of_layer = ".*dense_features.*"
    asked_for = {"tables only": of_layer, "vocabularies only": None}.get(asked, [of_layer])
    named = FIELDS if asked == "named" else FIELDS[:1]
    settings = ee.WarmStartSettings(
        str(old),
        vars_to_warm_start=asked_for,
        var_name_to_vocab_info={name + field: vocab_info(tmp_path) for field in named},
    )
    in_shards(shards)
    words = [2, 6, 0, 4] if way == "emulated" else OLD  # An emulated TPU takes ids.
    train(make(tmp_path, "column", NEW, 2, "Adam", 100.0, settings, way), words, 1, "column")
    got = harness.saved(tmp_path, 0)
    for field in FIELDS:
        assert np.all(before[name + field][:4] != 0)
        # With a pattern, a new word's slots start with the slots' own initial value.
        want = moved(before[name + field], 0.0 if field and asked == "pattern" else BACKUP)
        if field and asked in ("tables only", "vocabularies only"):
            want = np.zeros([len(NEW) + 2, 3])
        np.testing.assert_array_equal(got[name + field], want, err_msg=field)


def test_slots_follow_a_table_to_its_new_name(old, tmp_path):
    before, name = harness.saved(old, 1), NAMES["column"]
    renamed = name.replace("dense_features", "layer")
    settings = ee.WarmStartSettings(
        str(old),
        vars_to_warm_start=["layer.*"],
        var_name_to_vocab_info={renamed: vocab_info(tmp_path)},
        var_name_to_prev_var_name={renamed: name},
    )
    new = make(tmp_path, "column", NEW, 2, "Adam", 0.0, settings, layer="layer")
    train(new, OLD, 1, "column")
    got = harness.saved(tmp_path, 0)  # Saved before the first step.
    for field in FIELDS:  # New words have rows by VocabInfo, and slots by the optimizer.
        want = moved(before[name + field], 0.0 if field else BACKUP)
        np.testing.assert_array_equal(got[renamed + field], want)


@pytest.mark.slow
def test_a_vocab_info_serves_a_second_training(old, tmp_path):
    """A resumed training has its own rows, and an evaluation has no slots. Neither may fail."""
    settings = ee.WarmStartSettings(
        str(old),
        vars_to_warm_start=[".*dense_features"],
        var_name_to_vocab_info={NAMES["column"]: vocab_info(tmp_path)},
        var_name_to_prev_var_name={},
    )
    estimator = make(tmp_path, "column", NEW, 2, "Adam", warm=settings)
    for _ in range(2):
        train(estimator, OLD, 1, "column")
    batch = ({"fruit": np.array(["fig"])}, np.zeros(1, np.float32))
    metrics = estimator.evaluate(harness.input_fn_of([batch]), steps=1)
    saved = harness.saved(tmp_path, 2)
    loss = saved["scale"] * np.sum(saved[NAMES["column"]][0] ** 2)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-6)


OURS = "vocabulary_warm_start: "
OF_DICTS, _ = spec_of("dicts", NEW, 0, "Adam")
REFUSED = {
    "table": ({"key": "fruits"}, "has 'fruits', and the spec has no such table or feature"),
    "old size": ({"before": [*OLD, "a", "b", "c"]}, "has 7 words, and the table 6 rows."),
    "new size": ({"after": [*NEW, "a"]}, "has 6 words, and the table 5 rows."),
    "dimension": ({"dimension": 4}, "has dimension 4, and variable 'fruit' of checkpoint"),
    "twice": ({"after": ["fig", "kiwi", "fig"]}, "has 'fig' more than once"),
    "ids": ({"before": [7, 8]}, "has 7, which is not a string."),
    "line break": ({"before": ["a\nb"]}, "has a line break in 'a\\nb'."),
    "surrogate": ({"before": ["a", "\ud800"]}, "has '\\ud800', which UTF-8 cannot encode."),
    "bytes twice": ({"after": [b"\xff", b"\xff"]}, "has b'\\xff' more than once"),
    "variable": ({"kind": "shared"}, "must fit one variable of checkpoint"),
}
"""Name -> (what differs from a good call, a part of the error's message)."""


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_vocabularies_are_refused(what, old):
    change, phrase = REFUSED[what]
    spec, _ = spec_of(change.get("kind", "dicts"), NEW, 0, "Adam", 0.0, change.get("dimension"))
    pair = change.get("before", OLD), change.get("after", NEW)
    error = TypeError if what == "ids" else ValueError
    vocabularies = {change.get("key", "fruit"): pair}
    said = harness.refusal(error, ee.vocabulary_warm_start, old, spec, vocabularies)
    assert said.startswith(OURS) and phrase in said and "fruit" in said


@pytest.mark.parametrize("given", [NEW, "new.txt", (OLD, NEW, NEW), (NEW,), None])
def test_a_vocabulary_that_is_no_pair_is_refused(given, old):
    said = harness.refusal(ValueError, ee.vocabulary_warm_start, old, OF_DICTS, {"fruit": given})
    assert said.startswith(f"{OURS}vocabularies['fruit'] must be a tuple (old, new), each a file")


def test_blank_and_invalid_lines_of_files_are_refused(old, tmp_path):
    file = tmp_path / "old.txt"
    call = ee.vocabulary_warm_start, old, OF_DICTS, {"fruit": (file, NEW)}
    file.write_bytes(b"a\nb\n\n")
    assert f"has a blank line: line 3 of '{file}'." in harness.refusal(ValueError, *call)
    file.write_bytes(b"a\n\xff\n")
    assert "of table 'fruit': line 2 is not UTF-8." in harness.refusal(ValueError, *call)


def test_a_missing_file_or_checkpoint_is_refused(old, tmp_path):
    with pytest.raises(ValueError, match="of table 'fruit': there is no such file"):
        ee.vocabulary_warm_start(old, OF_DICTS, {"fruit": (tmp_path / "no.txt", NEW)})
    with pytest.raises(tf.errors.NotFoundError):
        ee.vocabulary_warm_start(tmp_path, OF_DICTS, {"fruit": (OLD, NEW)})


def test_a_column_without_a_table_is_refused(old):
    words = tf.feature_column.categorical_column_with_vocabulary_list("fruit", NEW)
    columns = [tf.feature_column.embedding_column(words, 3)]  # Ordinary, so without a table.
    spec = ee.EmbeddingConfigSpec(columns, ee.AdamParameters(0.5))
    call = ee.vocabulary_warm_start, old, spec, {"fruit": (OLD, NEW)}
    assert "has 'fruit', and the spec has no such table" in harness.refusal(ValueError, *call)
