"""Objects that moved inside TensorFlow since 2.9 are also found under their old names.

tests/data/tensorflow_2_9.json lists the names that TensorFlow 2.9.3 defines in these modules.
"""

import importlib
import sys

import processes
import pytest

import estimator_emb as ee
from estimator_emb.catalog import moved

OLD = processes.data("tensorflow_2_9.json")
GONE = {
    "eager.def_function": "ALLOW_DYNAMIC_VARIABLE_CREATION "
    "FREQUENT_TRACING_WARNING_MAX_CALL_HISTORY FREQUENT_TRACING_WARNING_MAX_WARNING_PER_DETECTOR "
    "FREQUENT_TRACING_WARNING_THRESHOLD FunctionDeleter",
    "eager.tape": "delete_trace",
    "framework.ops": "enable_numpy_style_type_promotion",
    "ops.stateless_random_ops": "uint32s_to_uint64",
    "tpu.tpu_embedding_v2": "TPUEmbeddingSaveable",
    "training.tracking.base": "PythonStateSaveable PythonStringStateSaveable",
    "training.tracking.checkpoint_util": OLD["training.tracking.checkpoint_util"],
    "training.tracking.layer_utils": "invalidate_recursive_cache",
    "training.tracking.util": "saver_with_op_caching",
}
"""Module -> names that TensorFlow has removed or made private."""


def module(name):
    return importlib.import_module(f"tensorflow.python.{name}")


def test_a_moved_module_is_the_same_object(installed):
    for old, new in moved.MODULES.items():
        parent, _, leaf = old.rpartition(".")
        found, form = module(old), {}
        exec(f"from tensorflow.python.{parent} import {leaf} as found", form)
        assert form["found"] is found is sys.modules[f"tensorflow.python.{old}"]
        # TensorFlow 2.15 has some modules in both places.
        assert found is module(new) or found.__name__ == f"tensorflow.python.{old}"


def test_a_moved_name_is_the_same_object(installed):
    """The catalog has names as text, and a name that was also renamed as `old=new`."""
    moves = ((old, *move) for old, places in moved.NAMES.items() for move in places.items())
    for old, place, names in moves:
        for name, _, now in (one.partition("=") for one in names.split()):
            found, form = getattr(module(old), name), {}
            exec(f"from tensorflow.python.{old} import {name} as found", form)
            assert form["found"] is found
            if importlib.util.find_spec(f"tensorflow.python.{place}") is not None:
                assert found is getattr(module(place), now or name), (old, name)


def test_old_modules_lack_only_the_names_that_are_gone(installed):
    lacking = {}
    for old, names in OLD.items():
        try:
            found = module(old)
        except ModuleNotFoundError:
            found = None
        lacking[old] = " ".join(name for name in names.split() if not hasattr(found, name))
    assert {old: names for old, names in lacking.items() if names} == GONE


def test_uninstall_removes_moved_names():
    ee.install()
    old = {name: module(name) for name in ("training.tracking.base", "framework.ops")}
    assert hasattr(old["framework.ops"], "convert_to_tensor_v2")
    ee.uninstall()
    assert not hasattr(old["framework.ops"], "convert_to_tensor_v2")
    assert not hasattr(module("training"), "tracking")
    with pytest.raises(ModuleNotFoundError, match=r"tensorflow\.python\.training\.tracking'$"):
        module("training.tracking.base")
