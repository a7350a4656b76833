"""`tf.contrib` from a wheel or folder of TensorFlow 1.15: how modules are found and completed."""

import gzip
import importlib
import json
import struct
import sys

import numpy as np
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
class Derived(gone.Base, rnn_cell_impl.GRUCell):
    pass
class Cell(rnn_cell_impl.GRUCell):
    pass
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


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    folder = originals.small(tmp_path_factory.mktemp("contrib"), FILES)
    ee.install()
    with Changes() as changes:
        yield contrib.add_contrib(changes, wheel.opened(str(folder)))
    ee.uninstall()


def test_original_modules_are_imported_when_they_are_used(top):
    assert not any(name.startswith("tensorflow.contrib.eager") for name in sys.modules)
    assert top.eager.NAME == "tfe"  # TensorFlow 1.15 has this module as tf.contrib.eager.
    assert importlib.import_module("tensorflow.contrib.eager") is not top.eager


def test_todays_names_come_before_the_originals(top):
    assert top.rnn.GRUCell is tf.compat.v1.nn.rnn_cell.GRUCell
    assert top.rnn.LSTMStateTuple is tf.compat.v1.nn.rnn_cell.LSTMStateTuple
    assert top.tpu.TPUEstimator is ee.TPUEstimator


def test_wrappers_of_ops_call_tensorflows_op_or_raise(top):
    ops = importlib.import_module("tensorflow.contrib.rnn.ops.gen_rnn_ops")
    assert ops.add(tf.constant([1.0]), y=[2.0]).numpy() == [3.0]
    said = r"^tensorflow.contrib.rnn.ops.gen_rnn_ops.nonsense is a C\+\+ op that"
    with pytest.raises(RuntimeError, match=said):
        ops.nonsense(1)


def test_gone_names_raise_when_they_are_used(top):
    cells = importlib.import_module("tensorflow.contrib.rnn.python.ops.cells")
    assert cells.library is None and cells.shape(None) == 1
    for use, name in ((cells.missing, "function"), (cells.Derived, "Base")):
        said = f"^tensorflow.python.gone.{name} left TensorFlow after version 1.15.$"
        with pytest.raises(RuntimeError, match=said):
            use()
    from tensorflow.python.util import all_util

    assert all_util.remove_undocumented.__module__ == all_util.__name__  # TensorFlow's own stays.


def test_messages_of_an_old_protoc_are_made(top):
    old = importlib.import_module("tensorflow.contrib.proto.old_pb2")
    assert old.Old.FromString(old.Old(n=3).SerializeToString()).n == 3 and old.ONE == 1


def test_other_names_are_absent_without_the_advice_to_download(top):
    with pytest.raises(AttributeError) as error:
        top.tpu.keras_to_tpu_model  # noqa: B018
    assert "left TensorFlow" in str(error.value) and "pip download" not in str(error.value)


PACKAGES = """
import json, sys
import estimator_emb
estimator_emb.install(tf_v1=True, contrib=sys.argv[1])
import importlib
failed = {}
for name in json.loads(sys.argv[2]):
    try:
        module = importlib.import_module(f"tensorflow.contrib.{name}")
        assert vars(module)
    except Exception as error:
        failed[name] = repr(error)
print(json.dumps(failed))
"""


@pytest.mark.slow
@originals.needs_wheel
def test_the_packages_of_contrib_are_imported_from_the_wheel():
    data = processes.ROOT / "tests" / "data" / "tensorflow_1_15.json"
    names = sorted(json.loads(data.read_text())["contrib"])
    done = processes.run(PACKAGES, originals.WHEEL, json.dumps(names))
    failed = json.loads(done.stdout.splitlines()[-1])
    assert len(names) == 90 and not failed, failed


MNIST = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data
import tensorflow.examples.tutorials.mnist.input_data as again
found = input_data.read_data_sets(sys.argv[1], one_hot=True, validation_size=2)
images, labels = found.train.next_batch(3, shuffle=False)
assert again is input_data and images.dtype == np.float32
parts = {"first": images, "first_labels": labels}
for name in ("validation", "test"):
    part = getattr(found, name)
    parts.update({name: part.images, name + "_labels": part.labels})
np.savez(sys.argv[2], **parts)
"""


@pytest.mark.slow
@originals.needs_wheel
def test_mnist_is_read_from_files(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MNIST)
    images, labels = {}, {}
    for number, (part, count) in enumerate((("train", 7), ("t10k", 4))):
        random = np.random.default_rng(number)
        images[part] = random.integers(0, 256, [count, 28, 28], np.uint8)
        labels[part] = random.integers(0, 10, [count], np.uint8)
        with gzip.open(tmp_path / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">4i", 2051, count, 28, 28) + images[part].tobytes())
        with gzip.open(tmp_path / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">2i", 2049, count) + labels[part].tobytes())
    saved = tmp_path / "read.npz"
    processes.run_command("run", "--tf-v1", *originals.OPTIONS, program, tmp_path, saved, status=0)
    read = np.load(saved)
    for name, part, rows in (
        ("validation", "train", slice(2)),
        ("first", "train", slice(2, 5)),
        ("test", "t10k", slice(4)),
    ):
        pixels = images[part][rows].reshape(-1, 784) / 255
        np.testing.assert_allclose(read[name], pixels, 1e-6)
        np.testing.assert_array_equal(read[f"{name}_labels"], np.eye(10)[labels[part][rows]])
