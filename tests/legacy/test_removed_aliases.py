"""Names of older Pythons and NumPys that --tf-v1 supplies."""

import base64
import collections
import fractions
import inspect
import pickle  # noqa: F401 - A use in the table has it.
import sys
import time

import numpy as np
import processes
import pytest
import tensorflow as tf

from estimator_emb.compat.internals.patches import Changes
from estimator_emb.legacy import removed_aliases

OWNERS = (base64, collections, fractions, inspect, np, time)


@pytest.fixture
def supplied():
    before = [dict(vars(owner)) for owner in OWNERS]
    with Changes() as changes:
        removed_aliases.supply(changes)
        yield before
    added = {"getargspec", "Mapping", "gcd", "float_", "clock"}
    for owner, names in zip(OWNERS, before, strict=True):
        assert not added & (vars(owner).keys() - names.keys())
        assert all(vars(owner)[name] is value for name, value in names.items())


def test_names_of_python_and_numpy_have_their_old_meaning(supplied):
    def function(a, b=2, *c, **d): ...

    assert inspect.getargspec(function) == (["a", "b"], "c", "d", (2,))
    assert inspect.getargspec(function).keywords == "d"
    with pytest.raises(ValueError, match="^Function has keyword-only parameters or annotations"):
        inspect.getargspec(lambda *, a: a)
    assert isinstance({}, collections.Mapping) and isinstance([], collections.Sequence)
    assert issubclass(dict, collections.MutableMapping) and collections.Iterable and time.clock()
    # The last four pairs come from Python 3.8's own tests of fractions.gcd.
    pairs = ((12, 18), (10, -15), (-10, 15), (0, -3), (-3, 0))
    assert [fractions.gcd(*pair) for pair in pairs] == [6, -5, 5, -3, -3]
    assert np.array([1, 0], np.bool).dtype == bool
    assert np.zeros(2, np.int).dtype == np.int64 and np.float is float and np.object is object
    assert np.float_ is np.float64 and np.product([2, 3]) == 6 and np.asscalar(np.ones(1)) == 1.0
    assert np.NaN is np.nan and np.unicode_ is np.str_


USES = processes.data("removed_aliases.json")
"""Use of a removed name -> its value, as in NumPy 1.26 if that version has the name."""


@pytest.mark.parametrize("use", USES)
def test_a_supplied_name_gives_the_old_result(use, supplied):
    np.testing.assert_array_equal(eval(use), USES[use])


def test_sum_takes_generators(supplied):
    """NumPy 2.4 refuses them."""
    assert np.sum(one for one in (1, 2)) == 3
    assert np.sum([[1, 2], [3, 4]], axis=0).tolist() == [4, 6]


def test_int64_list_takes_bools(supplied):
    """Protobuf 7 refuses Python's, and protobuf 6 NumPy's."""
    int64_list = tf.compat.v1.train.Int64List
    made = int64_list(value=[True, np.False_, 7])
    assert list(made.value) == [1, 0, 7] and isinstance(made, int64_list)
    assert int64_list(value=None) == int64_list()
    feature = tf.compat.v1.train.Feature(int64_list=made)
    assert int64_list.FromString(made.SerializeToString()) == feature.int64_list


@pytest.mark.parametrize("name", ["fromstring", "find_common_type", "asfarray", "in1d", "trapz"])
def test_a_numpy_with_the_name_gives_the_same_result(name):
    if name not in vars(np) or (name == "fromstring" and not removed_aliases._reads_bytes()):
        pytest.skip("NumPy has dropped it")
    for use in USES:
        if use.startswith(f"np.{name}"):
            np.testing.assert_array_equal(eval(use), USES[use])


def test_existing_names_are_unchanged(supplied):
    # NumPy has dropped arguments of these functions. They are wrapped to take them again.
    changed = ("sum", "fromstring", "quantile", "percentile", "nanquantile", "nanpercentile")
    for owner, before in zip(OWNERS, supplied, strict=True):
        for name, value in before.items():
            is_wrapped = owner is np and name in changed
            assert is_wrapped or vars(owner)[name] is value, (owner.__name__, name)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert np.bool is np.bool_ is type(np.True_)


def test_imp_and_distutils_can_be_imported(supplied, tmp_path):
    (tmp_path / "program.cfg").write_text("VALUE = 3")
    import imp
    from distutils.version import LooseVersion

    assert LooseVersion("1.15.0") < LooseVersion("2.1")
    for one in (imp, removed_aliases._imp()):  # Until Python 3.11, `imp` is Python's own.
        module = one.load_source("of_the_test", str(tmp_path / "program.cfg"))
        assert module.VALUE == 3 and sys.modules.pop("of_the_test") is module
        assert one.new_module("name").__name__ == "name" and one.reload
