"""The variables that the patterns of a warm start take, and its messages."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from saved_values import save

import estimator_emb as ee

TABLES = {"words": (6, 2), "items": (4, 2), "shops": (3, 2)}


def three_tables(model_dir, start=None):
    one = tf.compat.v1.constant_initializer(1.0)
    tables = {name: ee.TableConfig(*shape, one) for name, shape in TABLES.items()}
    spec = harness.tables_spec(tables, ee.AdagradParameters(0.5, initial_accumulator=0.1))
    model_fn = harness.gradient_model_fn(list(TABLES))
    return harness.estimator(model_fn, spec, model_dir, warm_start_from=start)


ALL = {*TABLES, *(f"{name}/Adagrad" for name in TABLES)}
ONES = dict.fromkeys(TABLES, np.ones([2, 2], np.float32))
BATCH = dict.fromkeys(TABLES, np.zeros(2, np.int32)), ONES


def train_step(estimator):
    estimator.train(harness.input_fn_of([BATCH]))


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Returns a model directory at step 3."""
    model_dir = tmp_path_factory.mktemp("three")
    values = {name: harness.normal(0, *shape) for name, shape in TABLES.items()}
    values |= {f"{name}/Adagrad": value**2 + 1 for name, value in values.items()}
    save(f"{model_dir}/model.ckpt-3", {**values, "global_step": np.int64(3)})
    return model_dir


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "patterns, taken, step",
    [
        ([".*"], ALL, 0),
        ([".*", "global_step"], ALL, 3),
        (["items.*"], {"items", "items/Adagrad"}, 0),
        ("w", {"words"}, 0),  # A text finds trainable variables, no slots.
        (["(?i)WORDS.*"], {"words", "words/Adagrad"}, 0),
    ],
)
def test_a_pattern_takes_the_global_step_only_by_name(patterns, taken, step, old, tmp_path, caplog):
    """The training begins at `step`, with the variables `taken` from the old checkpoint."""
    caplog.set_level("INFO", "estimator_emb")
    before = harness.saved(old, 3)
    train_step(three_tables(tmp_path / "new", ee.WarmStartSettings(str(old), patterns)))
    got = harness.saved(tmp_path / "new", step)
    assert got["global_step"] == step
    for name, shape in TABLES.items():
        for variable, initial in ((name, 1.0), (f"{name}/Adagrad", 0.1)):
            want = before[variable] if variable in taken else np.full(shape, initial, np.float32)
            np.testing.assert_array_equal(got[variable], want, err_msg=variable)
    begun = sorted(taken | ({"global_step"} if step > 0 else set()))
    others = [name for name in sorted(before) if name not in begun]
    rest = f"initialized: {', '.join(others)}" if others else "nothing else is to be initialized"
    if len(begun) > 6:
        begun[6:] = [f"{len(begun) - 6} more"]
    (said,) = [line for line in caplog.messages if line.startswith("Warm start")]
    assert said == f"Warm start from {old}: {', '.join(begun)}; {rest}."


@pytest.mark.parametrize(
    "patterns, phrase, advice",
    [
        (["words", "itms"], "'itms', which fits no variable", "Did you mean 'items'?"),
        (
            ["Adagrad"],
            "'Adagrad', which fits no variable",
            "'.*Adagrad' finds items/Adagrad, shops/Adagrad, words/Adagrad.",
        ),
        (
            "words/Adagrad",
            "'words/Adagrad', which fits no trainable variable",
            "vars_to_warm_start=['words/Adagrad'].",
        ),
        (["glob.*"], "'glob.*', which fits no variable", "names it: 'global_step'."),
        ("x.*", "'x.*', which fits no trainable variable", "The model has items, shops, words."),
        (["x.*"], "'x.*', which fits no variable", "shops, shops/Adagrad, words, 1 more."),
    ],
)
def test_a_pattern_that_finds_nothing_is_refused(patterns, phrase, advice, old, tmp_path):
    estimator = three_tables(tmp_path / "new", ee.WarmStartSettings(str(old), patterns))
    message = harness.refusal(ValueError, train_step, estimator)
    begin = f"warm_start_from: vars_to_warm_start has the pattern {phrase} of the model."
    assert message.startswith(begin) and advice in message
    assert not list((tmp_path / "new").glob("model.ckpt*"))


def test_an_unknown_variable_name_is_refused(old, tmp_path):
    for field, value in (
        ("var_name_to_prev_var_name", {"wrods": "words"}),
        ("var_name_to_vocab_info", {"wrods": ee.VocabInfo("w", 2, 0, "w")}),
    ):
        settings = ee.WarmStartSettings(str(old), [".*"], **{field: value})
        estimator = three_tables(tmp_path / "new", settings)
        message = harness.refusal(ValueError, train_step, estimator)
        assert f"{field} has 'wrods'" in message and "Did you mean 'words'?" in message


def test_an_old_name_missing_in_the_checkpoint_is_refused(old, tmp_path):
    """The program says that 'words', [6, 2] here, has the name 'wrods' in the checkpoint."""
    settings = ee.WarmStartSettings(str(old), ["words"], None, {"words": "wrods"})
    with pytest.raises(tf.errors.NotFoundError) as error:
        train_step(three_tables(tmp_path / "new", settings))
    _, found, *_ = str(error.value).splitlines()  # The first line names the checkpoint.
    want = "  Key wrods not found in checkpoint: table 'words' is [6, 2]. Did you mean 'words'?"
    assert found == want


@pytest.mark.parametrize("what", ["folder has no checkpoint", "checkpoint does not exist"])
def test_a_warm_start_from_a_missing_checkpoint_is_refused(what, tmp_path, assert_recorded):
    start = tmp_path / "nowhere"
    given = ee.WarmStartSettings(str(start))
    if "folder" in what:
        start.mkdir()
        given = str(start)
    with pytest.raises(tf.errors.NotFoundError) as error:
        train_step(three_tables(tmp_path / "new", given))
    assert f"warm_start_from: this {what}: '{start}'." in str(error.value)
    assert_recorded(error.value)  # The whole text, in tests/messages.json, also says what to do.


def test_a_pattern_of_slots_is_not_applied_to_an_evaluation_in_memory(old, tmp_path, caplog):
    """The evaluation's graph has no slots, so the pattern would be refused. One start is logged."""
    caplog.set_level("INFO", "estimator_emb")
    estimator = three_tables(tmp_path / "new", ee.WarmStartSettings(str(old), [".*Adagrad"]))
    input_fn = harness.input_fn_of([BATCH])
    hook = ee.experimental.InMemoryEvaluatorHook(estimator, input_fn, steps=1)
    estimator.train(input_fn, hooks=[hook], steps=1)
    assert len([line for line in caplog.messages if line.startswith("Warm start")]) == 1
