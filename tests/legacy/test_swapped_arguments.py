"""`estimator-emb run` names swapped arguments of feature columns."""

import sys

import pytest
import tensorflow as tf

from estimator_emb.legacy import launch
from estimator_emb.legacy.swapped_arguments import advice_about_columns

WORDS = "tf.feature_column.categorical_column_with_identity('word', 9)"


@pytest.mark.parametrize("api", ["tf.feature_column", "tf.compat.v1.feature_column"])
@pytest.mark.parametrize(
    "call, first, second",
    [
        ("categorical_column_with_identity(10, 'word')", "key=10", "num_buckets"),
        ("categorical_column_with_hash_bucket(10, 'word')", "key=10", "hash_bucket_size"),
        ("sequence_categorical_column_with_identity(10, 'word')", "key=10", "num_buckets"),
        ("crossed_column(10, ['word', 'day'])", "keys=10", "hash_bucket_size"),
        (f"embedding_column(8, {WORDS})", "categorical_column=8", "dimension"),
    ],
)
def test_swapped_arguments_are_named(api, call, first, second, tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(f"import tensorflow as tf\n\n{api}.{call}\n")
    with launch.restored(), pytest.raises(TypeError) as raised:
        launch.run_program([str(program)], binds_tf_v1=False)
    capsys.readouterr()
    launch.show_failure(raised.value, bound_tf_v1=False)
    *_, error, advice = capsys.readouterr().err.splitlines()
    assert error.startswith("TypeError: ")
    function = call.partition("(")[0].removeprefix("sequence_")  # Calls its plain version.
    assert advice == (
        f"estimator-emb: {program}, line 3: {function} got {first}; perhaps swapped: "
        f"{first.partition('=')[0]} comes before {second}."
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: tf.feature_column.categorical_column_with_identity("word", "10"),
        lambda: tf.feature_column.categorical_column_with_identity("word"),
        lambda: 1 + "1",
        lambda: sys.intern(1),
    ],
)
def test_other_errors_get_no_advice_about_swapped_arguments(call):
    with pytest.raises(TypeError) as raised:
        call()
    assert advice_about_columns(raised.value) is None
