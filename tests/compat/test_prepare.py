"""`compat.prepare`: what importing estimator_emb changes in TensorFlow."""

import importlib
import os
import pathlib
import sys
from types import ModuleType
from types import SimpleNamespace as Namespace

import harness
import processes
import pytest
import tensorflow as tf
from tensorflow.python.util import tf_export

from estimator_emb import compat
from estimator_emb.catalog.legacy import LACKING
from estimator_emb.compat import installed, legacy_keras

on_2_16 = pytest.mark.skipif(harness.IS_2_15, reason="TensorFlow 2.15 has all of this itself")
PUBLIC = {
    "estimator_training": "train_and_evaluate",
    "session_support": "GracefulShutdownHook",
    "tpu_embedding": "TPUEmbedding",
    "tpu_embedding_gradient": "get_gradients_through_compute_gradients",
}
"""Last part of each name in LACKING, modules that TensorFlow 2.16 removed -> a name in it."""


@pytest.mark.parametrize("name", LACKING)
def test_a_module_is_found_by_import_and_by_attribute(name):
    module = importlib.import_module(name)
    assert sys.modules[name] is module
    parent, _, attribute = name.rpartition(".")
    public = PUBLIC[attribute]
    assert getattr(importlib.import_module(parent), attribute) is module
    scope = {}
    # TensorFlow deletes its attribute `python`, so the first import needs `as`.
    exec(f"import {name} as found\nfrom {parent} import {attribute}", scope)
    assert scope["found"] is module
    assert scope[attribute] is module
    exec(f"from {name} import {public}", scope)
    assert scope[public] is getattr(module, public)
    if harness.IS_2_15:
        assert module.__name__ == name
        assert pathlib.Path(module.__file__).is_relative_to(pathlib.Path(tf.__file__).parent)
    else:
        room = "legacy" if attribute == "tpu_embedding" else "compat"
        assert module is importlib.import_module(f"estimator_emb.{room}.{attribute}")


def test_prepare_again_changes_nothing(monkeypatch):
    # TensorFlow 2.15 has modules of its own, which stay.
    monkeypatch.setitem(sys.modules, LACKING[0], ModuleType(LACKING[0]))

    def state():
        return (
            {name: id(sys.modules[name]) for name in LACKING},
            dict(os.environ),
            [list(module.__path__) for module in (tf, tf.compat.v1, tf.compat.v2)],
            dict(tf_export.API_ATTRS),
            dict(tf_export.API_ATTRS_V1),
            tf_export.ESTIMATOR_API_NAME,
            id(tf.keras.layers.Dense),
        )

    before = state()
    compat.prepare("estimator_emb.legacy.tpu_embedding")
    compat.prepare("estimator_emb.legacy.tpu_embedding")
    assert state() == before


def test_symbols_of_tensorflow_estimator_carry_their_names():
    """TensorFlow 2.16 no longer knows the API 'estimator'; `prepare` registers it again."""
    from tensorflow_estimator.python.estimator.tpu import tpu_config

    name = tf_export.get_canonical_name_for_symbol(
        tpu_config.RunConfig, api_name="estimator", add_prefix_to_v1_names=True
    )
    assert name == "compat.v1.estimator.tpu.RunConfig"


def test_keras_is_keras_2():
    expected = "keras.src." if harness.IS_2_15 else "tf_keras.src."
    for found in (
        tf.keras.layers.Dense,
        tf.compat.v1.keras.layers.Dense,
        tf.compat.v1.layers.Dense,
        tf.keras.experimental.SequenceFeatures,
    ):
        assert found.__module__.startswith(expected)
    assert not hasattr(tf.keras, "ops")  # Only Keras 3 has it.


def test_refuses_an_environment_that_selects_keras_3(monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    if harness.IS_2_15:  # It has only Keras 2.
        compat.prepare("estimator_emb.legacy.tpu_embedding")
        assert os.environ["TF_USE_LEGACY_KERAS"] == "0"
    else:
        given = compat.prepare, "estimator_emb.legacy.tpu_embedding"
        message = harness.refusal(ImportError, *given)
        assert "set the environment variable TF_USE_LEGACY_KERAS=1" in message


@on_2_16
@pytest.mark.parametrize(
    ("file", "at_import"),
    [("", "1"), ("__init__.py", "1"), ("python/distribute/estimator_training.py", None)],
)
def test_keras_2_is_selected_before_tensorflow_is_imported(file, at_import, tmp_path, monkeypatch):
    """`file`: TensorFlow's only file or none. 2.15 has estimator_training.py, needs no variable."""
    path = tmp_path / (file and "tensorflow") / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    variable = "TF_USE_LEGACY_KERAS"

    def required():
        """Returns the variable at the import of TensorFlow and after `require`."""
        selected = []
        first = lambda: selected.append(os.environ.get(variable)) or tf  # noqa: E731
        monkeypatch.setattr(installed, "tensorflow", first)
        monkeypatch.delenv(variable, raising=False)
        assert legacy_keras.require() is tf
        return [*selected, os.environ.pop(variable)]

    assert required() == [None, "1"]  # TensorFlow is imported already.
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tensorflow")
    assert required() == [at_import, "1"]


@on_2_16
def test_keras_3_is_refused_only_if_it_is_loaded(monkeypatch):
    monkeypatch.setattr(installed, "version", {"protobuf": "4.25.0", "tf-keras": "2.16.0"}.get)

    def required(version="2.16.2", **keras):
        """Requires a TensorFlow whose loaders (but `compat.v2.keras`) have loaded nothing."""
        late = {"keras": Namespace(_tfll_initialized=False), "__path__": ["tensorflow"]}
        v1, v2 = Namespace(**late), Namespace(**{**late, "keras": Namespace(**keras)})
        made = Namespace(**late, __version__=version, compat=Namespace(v1=v1, v2=v2))
        monkeypatch.setattr(installed, "tensorflow", lambda: made)
        return legacy_keras.require()

    model = type("Model", (), {"__module__": "keras.src.models.model"})
    message = harness.refusal(ImportError, required, Model=model)
    assert "tf.keras is Keras 3 in this process" in message
    late, loaded = required(Model=model, _tfll_initialized=False), required(Model=tf.keras.Model)
    api = pathlib.Path(sys.modules["tf_keras"].__file__).parent / "api"
    for one, part in ((late, "_v2"), (late.compat.v1, "_v1"), (loaded.compat.v2, "_v2")):
        assert one.__path__ == [str(api / part), "tensorflow"]  # Keras 2 is found first.
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")
    monkeypatch.setattr(installed, "version", {"tf-keras": "2.17.0"}.get)
    assert "is 2.17.0: pip" in harness.refusal(ImportError, required, Model=tf.keras.Model)
    required("2.15.1")  # Its own Keras is Keras 2, so tf-keras may have any version.


WHERE_KERAS_IS = """
import tensorflow as tf
from tensorflow.keras import layers
from tensorflow.compat.v1.keras import layers as layers_v1
import tensorflow.compat.v1 as tf1
import tensorflow.compat.v2 as tf2
from tensorflow.compat.v2.keras import layers as layers_v2
for found in (
    tf.keras.layers.Dense, tf1.keras.layers.Dense, tf2.keras.layers.Dense,
    layers.Dense, layers_v1.Dense, layers_v2.Dense, layers_v1.DenseFeatures,
    tf.compat.v1.keras.layers.Dense, tf.compat.v1.layers.dense,
    tf.compat.v1.nn.rnn_cell.BasicLSTMCell,
):
    print(found.__module__)
import keras
print(keras.layers.Dense.__module__)  # It stays usable.
"""


@pytest.mark.slow
@on_2_16
@pytest.mark.parametrize(
    "first",
    [
        "import tensorflow, keras; import estimator_emb",
        # The variable is set after TensorFlow has computed its search paths.
        "import tensorflow, os; os.environ['TF_USE_LEGACY_KERAS'] = '1'; import estimator_emb",
    ],
)
def test_keras_is_keras_2_even_if_tensorflow_was_imported_first(first):
    found = processes.run_python("-c", f"{first}\n{WHERE_KERAS_IS}", status=0).stdout.splitlines()
    assert found.pop() == "keras.src.layers.core.dense"
    assert len(found) == 10 and all(one.startswith("tf_keras.src.") for one in found), found


@pytest.mark.slow
@on_2_16
@pytest.mark.parametrize(
    "first",
    ["import tensorflow as tf; tf.compat.v2.keras.layers", "from tensorflow.keras import layers"],
)
def test_refuses_keras_3_that_is_already_loaded(first):
    done = processes.run_python("-c", f"{first}\nimport estimator_emb", status=1)
    errors = [line for line in done.stderr.splitlines() if "Error: " in line]
    assert errors[-1].startswith("ImportError: estimator_emb needs Keras 2, but tf.keras is")
