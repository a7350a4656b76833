"""Names of older Pythons: those that --tf-v1 supplies, and advice on the others."""

import collections
import fractions
import inspect
import os
import sys
import time

import numpy as np
import pytest
import text_tables

from estimator_emb.legacy import old_python, older_python
from estimator_emb.private.patches import Changes

OWNERS = (collections, fractions, inspect, np, time)


@pytest.fixture
def supplied():
    before = [dict(vars(owner)) for owner in OWNERS]
    with Changes() as changes:
        older_python.supply(changes)
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
    # The last four are the examples of Python 3.8's own tests of fractions.gcd.
    pairs = ((12, 18), (10, -15), (-10, 15), (0, -3), (-3, 0))
    assert [fractions.gcd(*pair) for pair in pairs] == [6, -5, 5, -3, -3]
    assert np.array([1, 0], np.bool).dtype == bool
    assert np.zeros(2, np.int).dtype == np.int64 and np.float is float and np.object is object
    assert np.float_ is np.float64 and np.product([2, 3]) == 6 and np.asscalar(np.ones(1)) == 1.0
    assert np.NaN is np.nan and np.unicode_ is np.str_


def test_what_there_is_stays(supplied):
    for owner, before in zip(OWNERS, supplied, strict=True):
        for name, value in before.items():
            assert vars(owner)[name] is value, (owner.__name__, name)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert np.bool is np.bool_ is type(np.True_)


def test_imp_and_distutils(supplied, tmp_path):
    (tmp_path / "program.cfg").write_text("VALUE = 3")
    import imp
    from distutils.version import LooseVersion

    assert LooseVersion("1.15.0") < LooseVersion("2.1")
    module = imp.load_source("of_the_test", str(tmp_path / "program.cfg"))
    assert module.VALUE == 3 and sys.modules.pop("of_the_test") is module
    assert imp.new_module("name").__name__ == "name" and imp.reload


def advice_on(program):
    with pytest.raises(Exception) as error:
        exec(compile(program, os.path.abspath("old/data.py"), "exec"), {})
    return old_python.advice_about_python(error.value)


ADVICE = """
{}.iteritems()
    dict.iteritems is Python 2's; today: items.
import collections; collections.OrderedDict().has_key(1)
    dict.has_key is Python 2's; today: key in dictionary.
unicode('x')
    unicode is Python 2's; today: str.
'x'.decode('utf-8')
    str.decode is Python 2's; today: the string itself, which is Unicode already.
map(str, [1])[0]
    map was a list in Python 2; today: list(...) of it.
len(zip([1]))
    zip was a list in Python 2; today: list(...) of it.
{}.keys()[0]
    dict_keys was a list in Python 2; today: list(...) of it.
import urllib2
    the module urllib2 is one of an older Python; today: urllib.request.
import cPickle as pickle
    the module cPickle is one of an older Python; today: pickle.
import urllib; urllib.urlretrieve('x')
    urllib.urlretrieve is gone; today: urllib.request.urlretrieve.
from itertools import izip
    itertools.izip is gone; today: zip.
import collections; collections.Mapping
    collections.Mapping is gone; today: collections.abc.Mapping.
from collections import Sequence
    collections.Sequence is gone; today: collections.abc.Sequence.
import time; time.clock()
    time.clock is gone; today: time.perf_counter or time.process_time.
import numpy as np; np.unicode
    numpy.unicode is gone; today: str.
"""


@pytest.mark.parametrize("program, advice", text_tables.read(ADVICE).items())
def test_advice_names_the_line(program, advice):
    program = f"\n\n{program}"
    assert advice_on(program) == f"old/data.py, line 3: {advice}"


@pytest.mark.parametrize(
    "program",
    [
        "1 / 0",
        "import nonsense",
        "nonsense",
        "{}.nonsense",
        "import os; os.nonsense",
        "3[0]",
        "{}['x']",
        "from os import nonsense",
        "raise NameError('of the program')",
    ],
)
def test_other_errors_have_no_advice(program):
    assert advice_on(program) is None
