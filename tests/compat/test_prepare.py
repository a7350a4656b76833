# SPDX-License-Identifier: Apache-2.0
"""`compat.prepare`: what the import of estimator_emb changes in TensorFlow, and what not."""

import importlib
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.util import tf_export

from estimator_emb import compat
from estimator_emb.names.legacy import LACKING
from estimator_emb.step.cores import Cores

REPOSITORY = pathlib.Path(__file__).parents[2]
IS_2_15 = tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16)
on_2_15 = pytest.mark.skipif(not IS_2_15, reason="TensorFlow >= 2.16 lacks these modules")
on_2_16 = pytest.mark.skipif(IS_2_15, reason="TensorFlow 2.15 has all of this itself")
MODULES = {
    "tensorflow.python.distribute.estimator_training": (
        "compat.estimator_training",
        "train_and_evaluate",
    ),
    "tensorflow.python.tpu.session_support": ("compat.session_support", "GracefulShutdownHook"),
    "tensorflow.python.tpu.tpu_embedding": ("legacy.tpu_embedding", "TPUEmbedding"),
    "tensorflow.python.tpu.tpu_embedding_gradient": (
        "compat.tpu_embedding_gradient",
        "get_gradients_through_compute_gradients",
    ),
}
"""Module -> the file that stands in for it, and a name that both have."""

KERAS_3 = (
    "ImportError: estimator_emb needs Keras 2, but tf.keras is Keras 3 in this process: set the "
    "environment variable TF_USE_LEGACY_KERAS=1, or import estimator_emb before anything that uses "
    "tf.keras."
)


def run(program, **environment):
    """Runs a program in a process of its own, in the repository.

    TF_USE_LEGACY_KERAS is what `environment` says, by default not set.
    """
    inherited = {key: value for key, value in os.environ.items() if key != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=REPOSITORY,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
    )


def printed(program, **environment):
    done = run(program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def import_error(program, **environment):
    """The error of a program that fails to import estimator_emb."""
    done = run(program + "\nimport estimator_emb", **environment)
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines() if "Error: " in line][-1]


# The modules


def test_the_modules():
    assert tuple(MODULES) == LACKING


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_found_by_import_and_by_attribute(name):
    file, public = MODULES[name]
    module = importlib.import_module(name)
    assert sys.modules[name] is module
    parent, _, attribute = name.rpartition(".")
    assert getattr(importlib.import_module(parent), attribute) is module
    scope = {}
    # TensorFlow deletes its own attribute `python`, so that the first needs the `as`.
    exec(f"import {name} as found\nfrom {parent} import {attribute}", scope)
    assert scope["found"] is module
    assert scope[attribute] is module
    exec(f"from {name} import {public}", scope)
    assert scope[public] is getattr(module, public)
    assert module.__name__ == (name if IS_2_15 else f"estimator_emb.{file}")


@on_2_16
@pytest.mark.parametrize("name", MODULES)
def test_a_stand_in_is_the_file_of_ours(name):
    file, _ = MODULES[name]
    assert sys.modules[name] is importlib.import_module(f"estimator_emb.{file}")


@on_2_15
@pytest.mark.parametrize("name", MODULES)
def test_tensorflows_own_modules_stay(name):
    folder = pathlib.Path(tf.__file__).parent
    assert pathlib.Path(sys.modules[name].__file__).is_relative_to(folder)


def test_prepare_again_changes_nothing():
    def state():
        return (
            {name: id(sys.modules[name]) for name in MODULES},
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


def test_names_of_the_embedding_module():
    """What _tpu_estimator_embedding.py takes from it."""
    from tensorflow.python.tpu import tpu_embedding

    assert (tpu_embedding.TRAINING, tpu_embedding.INFERENCE) == (2, 1)
    slots = {
        "Adagrad": ("accumulator",),
        "AdagradMomentum": ("accumulator", "momenta"),
        "Adam": ("m", "v"),
        "Ftrl": ("accumulator", "linear"),
        "Momentum": ("momenta",),
        "RMSProp": ("ms", "mom"),
        "ProximalAdagrad": ("accumulator",),
        "ProximalYogi": ("v", "m"),
        "FrequencyEstimator": ("last_hit_step",),
    }
    for optimizer, fields in slots.items():
        assert getattr(tpu_embedding, f"{optimizer}SlotVariableNames")._fields == fields
        assert issubclass(
            getattr(tpu_embedding, f"{optimizer}Parameters"),
            tpu_embedding._OptimizationParameters,
        )


# The API names


def test_api_names_of_tensorflow_estimator():
    assert tf_export.ESTIMATOR_API_NAME == "estimator"
    for table, version in ((tf_export.API_ATTRS, ""), (tf_export.API_ATTRS_V1, "_v1")):
        assert sorted(table) == ["estimator", "keras", "tensorflow"]
        assert table["estimator"].names == f"_estimator_api_names{version}"
        assert table["estimator"].constants == f"_estimator_api_constants{version}"
        assert type(table["estimator"]) is type(table["keras"])


def test_symbols_of_tensorflow_estimator_carry_their_names():
    from tensorflow_estimator.python.estimator.tpu import tpu_config

    name = tf_export.get_canonical_name_for_symbol(
        tpu_config.RunConfig, api_name="estimator", add_prefix_to_v1_names=True
    )
    assert name == "compat.v1.estimator.tpu.RunConfig"


# Keras


def test_keras_is_keras_2():
    expected = "keras.src." if IS_2_15 else "tf_keras.src."
    for found in (
        tf.keras.layers.Dense,
        tf.compat.v1.keras.layers.Dense,
        tf.compat.v1.layers.Dense,
        tf.keras.experimental.SequenceFeatures,
    ):
        assert found.__module__.startswith(expected)
    assert not hasattr(tf.keras, "ops")  # Only Keras 3 has it.


@on_2_15
@pytest.mark.parametrize("value", [None, pytest.param("0", marks=pytest.mark.slow)])
def test_the_environment_stays_as_it_is(value):
    environment = {} if value is None else {"TF_USE_LEGACY_KERAS": value}
    program = """
        import os
        before = dict(os.environ)
        import estimator_emb
        print(before == dict(os.environ), os.environ.get("TF_USE_LEGACY_KERAS"))
    """
    assert printed(program, **environment) == f"True {value}\n"


WHERE_KERAS_IS = """
    import tensorflow as tf
    from tensorflow.keras import layers
    from tensorflow.compat.v1.keras import layers as layers_v1
    import tensorflow.compat.v1 as tf1
    import tensorflow.compat.v2 as tf2
    from tensorflow.compat.v2.keras import layers as layers_v2
    for found in (
        tf.keras.layers.Dense,
        layers.Dense,
        tf.compat.v1.keras.layers.Dense,
        layers_v1.Dense,
        layers_v1.DenseFeatures,
        tf.compat.v1.layers.dense,
        tf1.keras.layers.Dense,
        tf2.keras.layers.Dense,
        layers_v2.Dense,
        tf.compat.v1.nn.rnn_cell.BasicLSTMCell,
    ):
        print(found.__module__)
"""
KERAS_2 = [
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.feature_column.dense_features",
    "tf_keras.src.legacy_tf_layers.core",
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.layers.core.dense",
    "tf_keras.src.layers.rnn.legacy_cells",
]


@pytest.mark.slow
@on_2_16
@pytest.mark.parametrize(
    "first",
    [
        "import tensorflow; import estimator_emb",
        # The variable arrives after TensorFlow has made its search paths.
        pytest.param(
            "import tensorflow, os; os.environ['TF_USE_LEGACY_KERAS'] = '1'; import estimator_emb",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_keras_is_keras_2_where_tensorflow_came_first(first):
    assert printed(f"{first}\n{textwrap.dedent(WHERE_KERAS_IS)}").splitlines() == KERAS_2


@pytest.mark.slow
@on_2_16
def test_keras_3_beside_it_stays_usable():
    program = """
        import keras
        import estimator_emb
        import tensorflow as tf
        print(keras.layers.Dense.__module__, tf.keras.layers.Dense.__module__)
    """
    assert printed(program).split() == [
        "keras.src.layers.core.dense",
        "tf_keras.src.layers.core.dense",
    ]


@pytest.mark.slow
@on_2_16
@pytest.mark.parametrize(
    "first",
    [
        "import tensorflow as tf; tf.keras.layers",
        "import tensorflow as tf; tf.compat.v2.keras.layers",
        "from tensorflow.keras import layers",
    ],
)
def test_keras_3_is_already_bound(first):
    assert import_error(first) == KERAS_3


@pytest.mark.slow
@on_2_16
def test_the_environment_asks_for_keras_3():
    assert import_error("", TF_USE_LEGACY_KERAS="0") == KERAS_3


# The rest of TensorFlow


@pytest.mark.slow
def test_nothing_else_of_tensorflow_is_changed():
    """Compares every attribute of every module of TensorFlow before and after the import."""
    program = """
        import os, sys
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow as tf
        # What TensorFlow resolves on first use.
        tf.keras.layers, tf.compat.v1.keras.layers, tf.compat.v2.keras.layers, tf.losses.Loss
        from tensorflow.python.feature_column import feature_column, feature_column_v2
        from tensorflow.python.ops import gen_tpu_ops
        from tensorflow.python.tpu import feature_column, tpu, tpu_optimizer, training_loop
        from tensorflow.python.util import tf_export

        def state():
            return {
                (name, attribute): id(value)
                for name, module in list(sys.modules.items())
                if name.partition(".")[0] == "tensorflow" and hasattr(module, "__dict__")
                for attribute, value in list(vars(module).items())
            }

        before = state()
        modules = set(sys.modules)
        import estimator_emb, feature_columns
        after = state()
        for name, attribute in sorted(after):
            if name not in modules or after[name, attribute] == before.get((name, attribute)):
                continue
            # A submodule becomes an attribute of its parent when something imports it.
            if f"{name}.{attribute}" not in sys.modules:
                print(name, attribute)
        assert not set(before) - set(after)
        print("compared", len(before) > 10000)
    """
    expected = ["compared True"]
    if not IS_2_15:
        expected.insert(0, "tensorflow.python.util.tf_export ESTIMATOR_API_NAME")
    assert printed(program).splitlines() == expected


def test_one_core_gives_back_the_ops_it_replaces():
    names = ("cross_replica_sum", "collective_permute", "all_to_all")
    before = {name: getattr(gen_tpu_ops, name) for name in names}
    assert {one.__module__ for one in before.values()} == {gen_tpu_ops.__name__}
    others = {key: value for key, value in vars(gen_tpu_ops).items() if key not in names}
    with Cores().running(shard_context=True):
        for name in names:
            assert getattr(gen_tpu_ops, name) is not before[name]
        inside = {key: value for key, value in vars(gen_tpu_ops).items() if key not in names}
        assert inside == others
    assert {name: getattr(gen_tpu_ops, name) for name in names} == before
