"""Names of older Pythons and NumPys that --tf-v1 supplies."""

import base64
import collections
import fractions
import inspect
import pickle
import sys
import time

import numpy as np
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
    def function(a, b=2, *c, **d):
        pass

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


PICKLED = pickle.dumps([1, 2])
COMMON = [
    ([np.int8, np.uint8], []),
    ([], [np.float32]),
    ([np.float32], [np.int64, np.float64]),
    ([np.int16], [np.float32]),
    ([np.float16, np.int16], []),
    ([np.int64], [np.complex64]),
    ([np.bool_], [np.int8]),
    ([np.uint64, np.int64], []),
]
USES = {
    "fromstring": (lambda: np.fromstring(b"\x01\x02\x00\x00", np.uint8, 2), [1, 2]),
    "fromstring of floats": (lambda: np.fromstring(np.float64([1, 2]).tobytes()), [1, 2]),
    "fromstring of a text": (lambda: np.fromstring("1 2", dtype=int, sep=" "), [1, 2]),
    "fromstring can be written": (lambda: np.fromstring(b"\x01", np.uint8).flags.writeable, True),
    "mat": (lambda: np.mat([[1, 2], [3, 4]]) * np.mat([[1], [1]]), [[3], [7]]),
    "in1d": (lambda: np.in1d([[1, 2], [3, 1]], [1, 3]), [True, False, True, True]),
    "in1d inverted": (lambda: np.in1d([1, 2], [1], invert=True), [False, True]),
    "trapz": (lambda: np.trapz([1.0, 2.0, 3.0], dx=2), 8.0),
    "cast": (lambda: np.cast["int32"]([1.7, 2.2]), [1, 2]),
    "cast by a class": (lambda: np.cast[np.float32](3), 3.0),
    "asfarray": (lambda: np.asfarray([1, 2]) / 4, [0.25, 0.5]),
    "asfarray of a type": (lambda: np.asfarray([1], np.float32).dtype.name, "float32"),
    "asfarray of integers": (lambda: np.asfarray([1], np.int32).dtype.name, "float64"),
    "find_common_type": (
        lambda: [str(np.find_common_type(*types)) for types in COMMON],
        ["int16", "float32", "float32", "float32", "float32", "complex128", "int8", "float64"],
    ),
    "rank": (lambda: np.rank([[1]]), 2),
    "loads": (lambda: np.loads(PICKLED), [1, 2]),
    "msort": (lambda: np.msort([[2, 1], [1, 3]]), [[1, 1], [2, 3]]),
    "alen": (lambda: np.alen([[1], [2]]), 2),
    "longfloat": (lambda: np.longfloat is np.longdouble, True),
    "quantile": (lambda: np.quantile([1, 2, 4], 0.4, interpolation="lower"), 1),
    "percentile": (lambda: np.percentile([1, 2, 4], 40, interpolation="higher"), 2),
    "nanquantile": (lambda: np.nanquantile([1, np.nan, 4], 0.4, interpolation="nearest"), 1),
    "nanpercentile": (lambda: np.nanpercentile([1, np.nan, 4], 50, interpolation="midpoint"), 2.5),
    "quantile of today": (lambda: np.quantile([1, 2, 4], 0.4, method="lower"), 1),
    "encodestring": (lambda: base64.encodestring(b"ab"), b"YWI=\n"),
    "decodestring": (lambda: base64.decodestring(b"YWI=\n"), b"ab"),
}  # fmt: skip
"""Use of a removed name -> its value, as in NumPy 1.26 if that version has the name."""


@pytest.mark.parametrize("name", USES)
def test_a_supplied_name_gives_the_old_result(name, supplied):
    use, want = USES[name]
    np.testing.assert_array_equal(use(), want)


def test_sum_takes_generators_and_int64_list_takes_bools(supplied):
    assert np.sum(one for one in (1, 2)) == 3 and np.sum([[1, 2], [3, 4]], axis=0).tolist() == [
        4,
        6,
    ]
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
    for use, (call, want) in USES.items():
        if use.startswith(name):
            np.testing.assert_array_equal(call(), want)


def test_existing_names_are_unchanged(supplied):
    changed = ("sum", "fromstring", "quantile", "percentile", "nanquantile", "nanpercentile")
    for owner, before in zip(OWNERS, supplied, strict=True):
        for name, value in before.items():
            if owner is np and name in changed:
                continue
            assert vars(owner)[name] is value, (owner.__name__, name)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert np.bool is np.bool_ is type(np.True_)


def test_imp_and_distutils_can_be_imported(supplied, tmp_path):
    (tmp_path / "program.cfg").write_text("VALUE = 3")
    import imp
    from distutils.version import LooseVersion

    assert LooseVersion("1.15.0") < LooseVersion("2.1")
    module = imp.load_source("of_the_test", str(tmp_path / "program.cfg"))
    assert module.VALUE == 3 and sys.modules.pop("of_the_test") is module
    assert imp.new_module("name").__name__ == "name" and imp.reload
