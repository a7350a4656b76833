"""The public names and signatures. A change here is a change for every program."""

import importlib
import inspect
import pathlib
import re
import textwrap

import harness
import processes
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding, tpu_estimator

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import checkpoint

REQUIRED = inspect.Parameter.empty


def test_estimator_is_the_class_of_tensorflow_estimator():
    assert ee.Estimator is estimator.Estimator


def public_names():
    """Yields each public name, with the arguments of this package's own functions."""
    for module in (ee, checkpoint, ee.errors, ee.experimental, ee.export, fc):
        for name in module.__all__:
            value = getattr(module, name)
            signature = ""
            if inspect.isfunction(value) and not module.__name__.endswith("export"):
                parameters = inspect.signature(value).parameters.values()
                signature = inspect.Signature([p.replace(annotation=REQUIRED) for p in parameters])
            yield f"{module.__name__}.{name}{signature}"


def test_public_names_equal_the_recorded_list():
    expected = pathlib.Path(__file__).with_name("public_names.txt").read_text().splitlines()
    assert list(public_names()) == expected
    other_names = {  # A name that differs from the object's own `__name__`.
        "estimator_emb.ModeKeys": "EstimatorModeKeys",  # The class behind tf.estimator.ModeKeys.
        "estimator_emb.experimental": "estimator_emb.experimental",
        "estimator_emb.experimental.KMeans": "KMeansClustering",
        "estimator_emb.errors": "estimator_emb.errors",
        "estimator_emb.export": "estimator_emb.export",
        "estimator_emb.checkpoint.HELPER_PREFIX": None,
    }
    for line in expected:
        path = line.partition("(")[0]
        module, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        assert getattr(value, "__name__", None) == other_names.get(path, name)


V1 = tf.compat.v1
TENSORFLOWS = {
    **{name: getattr(tf.feature_column, name, None) for name in fc.__all__},
    # The v1 function has the argument order of legacy programs.
    "categorical_column_with_vocabulary_file": (
        V1.feature_column.categorical_column_with_vocabulary_file
    ),
    "embedding_column": V1.tpu.experimental.embedding_column,
    "input_layer": V1.feature_column.input_layer,
    "linear_model": V1.feature_column.linear_model,
    "make_parse_example_spec": V1.feature_column.make_parse_example_spec,
    "shared_embedding_columns": V1.tpu.experimental.shared_embedding_columns,
}


@pytest.mark.parametrize(
    "name", [name for name in fc.__all__ if name not in ("DenseFeatures", "SequenceFeatures")]
)
def test_column_functions_have_tensorflows_signatures(name):
    """Argument names, order and defaults are TensorFlow's, and every argument is described."""
    ours = getattr(fc, name)
    parameters = inspect.signature(ours).parameters
    if name != "sequence_input_layer":  # TensorFlow removed it.
        theirs = inspect.signature(TENSORFLOWS[name]).parameters
        assert [(one.name, one.default) for one in parameters.values()] == [
            (one.name, one.default) for one in theirs.values()
        ]
    text = inspect.cleandoc(ours.__doc__)  # Python before 3.13 keeps indentation.
    for section in ("\nArgs:\n", "\nReturns:\n", "\nRaises:\n"):
        assert section in text
    for parameter in parameters:
        assert f"\n  {parameter}: " in text


def test_column_functions_make_tensorflows_columns(tmp_path):
    assert fc.DenseFeatures is V1.keras.layers.DenseFeatures
    assert fc.SequenceFeatures is tf.keras.experimental.SequenceFeatures
    words = tmp_path / "words"
    words.write_text("a\nb\nc\n")
    file = ("key", str(words), 2, 0, 1, tf.string)
    made = fc.categorical_column_with_identity("item", 5, 3)
    number = fc.numeric_column("number", (2,), 1.0, tf.float64, tf.identity)
    initializer = V1.zeros_initializer()
    for name, arguments in {
        "bucketized_column": (fc.numeric_column("number"), [1, 2]),
        "categorical_column_with_hash_bucket": ("key", 7, tf.int64),
        "categorical_column_with_identity": ("key", 7, 2),
        "categorical_column_with_vocabulary_file": file,
        "categorical_column_with_vocabulary_list": ("key", ["x", "y"], tf.string, -1, 3),
        "crossed_column": (["a", made], 9, 4),
        "embedding_column": (made, 3, "sum", initializer, 0, abs, "cpu", [None, 2], False),
        "indicator_column": (made,),
        "make_parse_example_spec": ([number],),
        "numeric_column": ("key", (2,), 1.0, tf.float64, tf.identity),
        "sequence_categorical_column_with_hash_bucket": ("key", 7, tf.int64),
        "sequence_categorical_column_with_identity": ("key", 7, 2),
        "sequence_categorical_column_with_vocabulary_file": file,
        "sequence_categorical_column_with_vocabulary_list": ("key", ["x"], tf.string, -1, 3),
        "weighted_categorical_column": (made, "weight", tf.float64),
    }.items():
        assert getattr(fc, name)(*arguments) == TENSORFLOWS[name](*arguments), name


def test_shared_embedding_columns_makes_tensorflows_column():
    """A part of the column equals only itself, so this test compares what the columns contain."""

    def content(function):
        item = fc.categorical_column_with_identity("item", 5, 3)
        rest = ("sum", V1.zeros_initializer(), "both", [0], abs, "cpu", [None, 2], False)
        (column,) = function([item], 3, *rest)
        table = column.get_embedding_var_name(), column.get_embedding_table_size()
        return re.sub("0x[0-9a-f]+", "", repr((column.name, column, vars(column), table)))

    assert content(fc.shared_embedding_columns) == content(TENSORFLOWS["shared_embedding_columns"])


def arguments(function):
    """Returns (name, default) of each argument after the first. All may go by position."""
    parameters = list(inspect.signature(function).parameters.values())
    assert {p.kind for p in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return [(p.name, p.default) for p in parameters[1:]]


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (ee.EmbeddingConfigSpec.__new__, _tpu_estimator_embedding.EmbeddingConfigSpec.__new__),
        (ee.TPUEstimator.__init__, tpu_estimator.TPUEstimator.__init__),
    ],
    ids=["EmbeddingConfigSpec", "TPUEstimator"],
)
def test_constructors_have_tensorflow_estimators_signatures(ours, theirs):
    assert arguments(ours) == arguments(theirs)


def test_config_classes_have_the_original_signatures():
    table, feature = arguments(ee.TableConfig.__new__), arguments(ee.FeatureConfig.__new__)
    assert table == [
        *(("vocabulary_size", REQUIRED), ("dimension", REQUIRED), ("initializer", None)),
        *(("combiner", "mean"), ("hot_id_replication", False), ("learning_rate", None)),
        *(("learning_rate_fn", None), ("optimization_parameters", None)),
    ]
    assert feature == [("table_id", REQUIRED), ("max_sequence_length", 0), ("weight_key", None)]
    if harness.IS_2_15:
        from tensorflow.python.tpu import tpu_embedding

        assert table == arguments(tpu_embedding.TableConfig.__new__)
        assert feature == arguments(tpu_embedding.FeatureConfig.__new__)


@pytest.mark.slow
def test_a_fresh_import_is_silent_and_takes_no_device():
    """Prints whether TensorFlow is initialized, its sessions and its ops: in a new process.

    The process has no Keras settings, as a user's. Other tests import estimator_emb first.
    """
    program = """
    import sys
    from tensorflow.python.client import session
    from tensorflow.python.eager import context
    made = []
    original = session.BaseSession.__init__
    def counted(self, *args, **kwargs):
        made.append(self)
        original(self, *args, **kwargs)
    session.BaseSession.__init__ = counted

    import feature_columns as fc
    import estimator_emb as ee

    import tensorflow as tf
    nodes = tf.compat.v1.get_default_graph().get_operations()
    print(context.context()._initialized, len(made), len(nodes), file=sys.stderr)
    # This initializes the context and makes a session, to show that the checks would see it.
    tf.constant(1)
    tf.compat.v1.Session(graph=tf.Graph()).close()
    print(context.context()._initialized, len(made), file=sys.stderr)
    assert not [name for name in fc.__all__ if not hasattr(fc, name)]
    item = fc.embedding_column(fc.categorical_column_with_identity("item", 5), 2)
    assert ee.EmbeddingConfigSpec([item], ee.AdagradParameters(0.1)).feature_columns == [item]
    """
    printed = processes.run_python("-c", textwrap.dedent(program), cwd=processes.ROOT, status=0)
    assert printed.stdout == ""
    ours = [line for line in printed.stderr.splitlines() if line.startswith(("False ", "True "))]
    assert ours == ["False 0 0", "True 1"]  # TensorFlow's log lines may come in between.
