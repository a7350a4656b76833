"""Changes to modules are undone, and a shared module keeps its own attributes."""

import sys
import types
import warnings

import pytest
import tensorflow as tf

from estimator_emb.compat.internals import patches


def test_changes_are_undone(monkeypatch):
    module = types.ModuleType("a_module")
    vars(module).update(value=1, hidden=2, function=lambda: 0)
    monkeypatch.setitem(sys.modules, "a_module", module)
    with patches.Changes() as changes:
        changes.set_attribute(module, "value", 3)
        changes.hide_attribute(module, "hidden")
        changes.hide_attribute(module, "absent")
        changes.hide_attribute(tf.compat.v1, "LMDBReader")  # Loaded only when it is read.
        assert not hasattr(tf.compat.v1, "LMDBReader")
        for _ in range(2):  # Wraps it only once.
            changes.wrap(module, "function", lambda original: lambda: original() + 1)
        changes.add_finder(finder := patches.AliasFinder({}))
        assert sys.meta_path[0] is finder  # It is asked first.
        assert (module.value, hasattr(module, "hidden"), module.function()) == (3, False, 1)
        changes.set_module("a_module.sub", types)
        changes.hide_modules("a_module")
        assert not {"a_module", "a_module.sub"} & set(sys.modules)
        sys.modules["a_module.other"] = types  # Imported while it is hidden.
    assert (module.value, module.hidden, module.function()) == (1, 2, 0)
    assert sys.modules["a_module"] is module and finder not in sys.meta_path
    assert not {"a_module.sub", "a_module.other"} & set(sys.modules)
    names = [name.rpartition(".")[2] for name in changes.attributes]
    assert names == ["value", "hidden", "absent", "LMDBReader", "function"]


def test_a_shared_module_keeps_its_own_attributes():
    original = types.ModuleType("a_module")
    original.value, original.__package__ = 1, "a_package"
    shared = patches.SharedModule(original, {"value": 2, "other": 3})
    shared.value = 4
    del shared.other
    assert (original.value, shared.value, hasattr(shared, "other")) == (1, 4, False)
    assert shared.__package__ == "a_package"  # Python gives any new module a `__package__`.


def test_warnings_are_dropped_only_inside():
    with pytest.warns(UserWarning) as shown:
        with patches.without_warnings():
            warnings.warn("inside", stacklevel=1)
        warnings.warn("outside", stacklevel=1)
    assert [str(one.message) for one in shown] == ["outside"]
