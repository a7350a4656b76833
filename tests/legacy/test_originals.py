"""`tf.contrib` from a wheel or folder of TensorFlow 1.15: how modules are found and completed."""

import importlib
import json
import sys

import originals
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.catalog import wheel
from estimator_emb.compat.internals.patches import Changes
from estimator_emb.legacy import contrib

FILES = {
    "rnn/__init__.py": """
from tensorflow.contrib.rnn.python.ops.cells import *
from tensorflow.python.util.all_util import remove_undocumented
remove_undocumented(__name__, [])
""",
    "rnn/python/__init__.py": "",
    "rnn/python/ops/__init__.py": "",
    "rnn/python/ops/cells.py": """
from tensorflow.contrib.rnn.ops import gen_rnn_ops
from tensorflow.contrib.util import loader
from tensorflow.python import gone
from tensorflow.python.framework import ops
from tensorflow.python.ops import rnn_cell_impl
library = loader.load_op_library("_rnn_ops.so")
GRUCell = "the original, which TensorFlow has today"
@ops.RegisterShape("Old")
def shape(op): return 1
class Derived(gone.Base, rnn_cell_impl.GRUCell): pass
class Cell(rnn_cell_impl.GRUCell): pass
def missing(): return gone.function(1)
""",
    "rnn/ops/__init__.py": "",
    "rnn/ops/gen_rnn_ops.py": "raise ImportError('no C++ here')",
    "util/__init__.py": "",
    "util/loader.py": "def load_op_library(path): raise OSError(path)",
    "eager/__init__.py": "",
    "eager/python/__init__.py": "",
    "eager/python/tfe.py": "NAME = 'tfe'",
    "proto/__init__.py": "",
    "proto/old_pb2.py": "FileDescriptor(serialized_pb=_b('"
    r"\n\x0e__old_of.proto\"\x10\n\x03Old\x12\t\n\x01n\x18\x01 \x01(\x05"
    r"*\x0c\n\x01K\x12\x07\n\x03ONE\x10\x01'))",
}


@pytest.fixture
def tf_contrib(installed, tmp_path):
    folder = originals.small(tmp_path, FILES)
    with Changes() as changes:
        yield contrib.add_contrib(changes, wheel.opened(str(folder)))


def test_original_modules_are_imported_when_they_are_used(tf_contrib):
    assert not any(name.startswith("tensorflow.contrib.eager") for name in sys.modules)
    assert tf_contrib.eager.NAME == "tfe"  # TensorFlow 1.15 has this module as tf.contrib.eager.
    assert importlib.import_module("tensorflow.contrib.eager") is not tf_contrib.eager


def test_todays_names_come_before_the_originals(tf_contrib):
    assert tf_contrib.rnn.GRUCell is tf.compat.v1.nn.rnn_cell.GRUCell
    assert tf_contrib.rnn.LSTMStateTuple is tf.compat.v1.nn.rnn_cell.LSTMStateTuple
    assert tf_contrib.tpu.TPUEstimator is ee.TPUEstimator


def test_wrappers_of_ops_call_tensorflows_op_or_raise(tf_contrib):
    ops = importlib.import_module("tensorflow.contrib.rnn.ops.gen_rnn_ops")
    assert ops.add(tf.constant([1.0]), y=[2.0]).numpy() == [3.0]
    said = r"^tensorflow.contrib.rnn.ops.gen_rnn_ops.nonsense is a C\+\+ op that"
    with pytest.raises(RuntimeError, match=said):
        ops.nonsense(1)


def test_gone_names_raise_when_they_are_used(tf_contrib):
    cells = importlib.import_module("tensorflow.contrib.rnn.python.ops.cells")
    assert cells.library is None and cells.shape(None) == 1
    for use, name in ((cells.missing, "function"), (cells.Derived, "Base")):
        said = f"^tensorflow.python.gone.{name} left TensorFlow after version 1.15.$"
        with pytest.raises(RuntimeError, match=said):
            use()
    from tensorflow.python.util import all_util

    assert all_util.remove_undocumented.__module__ == all_util.__name__  # TensorFlow's own stays.


def test_messages_of_an_old_protoc_are_made(tf_contrib):
    """Today's protobuf refuses the code of old_pb2.py. Its bytes define a message and an enum."""
    old = importlib.import_module("tensorflow.contrib.proto.old_pb2")
    assert old.Old.FromString(old.Old(n=3).SerializeToString()).n == 3 and old.ONE == 1


def test_other_names_are_absent_without_the_advice_to_download(tf_contrib):
    """The user has named the wheel or its folder already."""
    with pytest.raises(AttributeError) as error:
        tf_contrib.tpu.keras_to_tpu_model  # noqa: B018
    assert "left TensorFlow" in str(error.value) and "pip download" not in str(error.value)


PACKAGES = """
import json, sys
import estimator_emb
estimator_emb.install(tf_v1=True, contrib=sys.argv[1])
import importlib
failed = {}
for name in json.loads(sys.argv[2]):
    try:
        assert vars(importlib.import_module(f"tensorflow.{name}"))
    except Exception as error:
        failed[name] = repr(error)
print(json.dumps(failed))
"""


@pytest.mark.slow
@originals.needs_wheel
def test_the_packages_of_contrib_are_imported_from_the_wheel():
    packages = processes.data("tensorflow_1_15.json")["contrib"]
    names = [f"contrib.{name}" for name in sorted(packages)]
    names.append("examples.tutorials.mnist.input_data")
    done = processes.run(PACKAGES, originals.WHEEL, json.dumps(names))
    failed = json.loads(done.stdout.splitlines()[-1])
    assert len(names) == 91 and not failed, failed  # 90 packages and MNIST.
