"""estimator-emb migrate: for every way to spell a name, the rewrite finds the same object.

tests/data/migrated.json has "objects" (module -> {name: path of its object today}), "spellings"
(module -> {import statement: how the program then spells the module}), "names" (program -> path of
its VALUE), and programs before and after their rewrite. A program without "after" is not changed.
"left" has the lines with findings about names that stay.
"""

import itertools
import json
import pkgutil
import re

import processes
import pytest

from estimator_emb.cli.migration import findings
from estimator_emb.cli.migration.rewrite import rewrite

TABLE = json.loads((processes.ROOT / "tests" / "data" / "migrated.json").read_text())
OBJECTS, SPELLINGS, PROGRAMS = TABLE["objects"], TABLE["spellings"], TABLE["programs"]

# Ways to use a name. Each module of OBJECTS has at least as many names, so it is used in each way.
PLACES = (
    "VALUE = {}",
    "def f(a={}):\n    return a\nVALUE = f()",
    "def f(tf=None, tpu=None):\n    return g()\ndef g():\n    return {}\nVALUE = f()",
    "class C:\n    kept = {}\nVALUE = C.kept",
    "VALUE = (lambda: {})()",
    "VALUE = [{} for _ in [0]][0]",
    "VALUE = {{0: {}}}[0]  # not tf.estimator.Estimator",
    "VALUE = [\n    {},  # a\n][0]",
)


def migrated(program):
    """Rewrites a program, and asserts that a second rewrite changes nothing."""
    result = rewrite(program)
    again = rewrite(result.text)
    assert again.text == result.text
    return result


def values_of(text):
    """Returns a program's names. Leaves out install(tf_v1=True), which would affect other tests."""
    text = text.replace("estimator_emb.install(tf_v1=True)", "")
    scope = {"__name__": "program"}
    exec(compile(text, "program", "exec"), scope)
    return scope


def left(result):
    """Returns the findings about legacy names that stay."""
    return [finding for finding in result.findings if finding.group == findings.LEFT]


@pytest.mark.fast(6)
@pytest.mark.parametrize(
    "module, statement",
    [(module, statement) for module, all_ in SPELLINGS.items() for statement in all_],
)
def test_rewrites_a_module_in_any_spelling(module, statement):
    spelled = SPELLINGS[module][statement]
    program = f'"""Doc."""\n{statement}\n'
    for index, (name, place) in enumerate(zip(OBJECTS[module], itertools.cycle(PLACES))):
        use = place.format(f"{spelled}.{name}")
        program += f"{use}\nVALUE_{index} = VALUE\n"
    result = migrated(program)
    assert left(result) == [], result.text
    values = values_of(result.text)
    for index, path in enumerate(OBJECTS[module].values()):
        assert values[f"VALUE_{index}"] is pkgutil.resolve_name(path), result.text
    # No legacy name is left.
    for gone in (r"(?<!compat)\.contrib\b", r"\bv1\.estimator", r"tensorflow\.estimator"):
        assert not re.search(gone, re.sub("#.*", "", result.text)), result.text


@pytest.mark.parametrize(
    "module, name", [(module, name) for module, all_ in OBJECTS.items() for name in all_]
)
def test_rewrites_a_name_imported_by_itself(module, name):
    owner, _, leaf = f"{module}.{name}".rpartition(".")
    expected = pkgutil.resolve_name(OBJECTS[module][name])
    statements = (
        (f"from {owner} import {leaf}", leaf),
        (f"from {owner} import {leaf} as other", "other"),
        (f"from {owner} import (\n    {leaf},  # why\n)", leaf),
        (f"from {owner} import {leaf}; x = 1", leaf),
        (f"def f():\n\tfrom {owner} import {leaf}\n\treturn {leaf}\n{leaf} = f()", leaf),
        (f"try:\n  from {owner} import {leaf}\nexcept ImportError:\n  {leaf} = None", leaf),
        (f"if 1: from {owner} import {leaf}", leaf),
    )
    # Tests one statement for each name, so that each statement is tested per module.
    statement, said = statements[list(OBJECTS[module]).index(name) % len(statements)]
    result = migrated(f"{statement}\nVALUE = {said}\n")
    assert left(result) == []
    assert values_of(result.text)["VALUE"] is expected, result.text
    assert "# why" in result.text or "why" not in statement


@pytest.mark.parametrize("program", TABLE["names"])
def test_rewrites_other_names(program):
    result = migrated(f"{program}\n")
    assert left(result) == []
    expected = pkgutil.resolve_name(TABLE["names"][program])
    assert values_of(result.text)["VALUE"] is expected, result.text


@pytest.mark.parametrize("what", PROGRAMS)
def test_rewrites_a_program_as_the_table_says(what):
    before, after = (PROGRAMS[what].get(key) for key in ("before", "after"))
    result = migrated("\n".join(before) + "\n")
    assert result.text.splitlines() == (after or before)
    lines = {finding.line for finding in left(result)}
    assert sorted(lines) == PROGRAMS[what].get("left", [])


def test_findings_say_what_to_do(assert_recorded):
    program = (
        "from tensorflow.contrib import tpu, slim  # both\ntpu.TPUConfig\nslim.conv2d\nbuild(tpu)\n"
    )
    said = [f"{one.line}: {one.text}" for one in left(rewrite(program))]
    assert said[-1] == "4: tf.contrib.tpu is passed on as a module: use its names instead."
    assert_recorded("\n".join(said))  # tests/messages.json has all findings.
    of_tf1 = [one.text for one in rewrite("import tensorflow as tf\ntf.app.run()\n").findings]
    assert "convert the program with tf_upgrade_v2" in "\n".join(of_tf1)
    assert_recorded("\n".join(of_tf1))


def test_imports_of_a_package_are_kept():
    """Other modules may import the name from the package's __init__.py."""
    program = "from tensorflow import estimator\nestimator.ModeKeys\n"
    result = rewrite(program, is_package=True)
    expected = "import estimator_emb\nfrom tensorflow import estimator\nestimator_emb.ModeKeys\n"
    assert result.text == expected
    assert [finding.text for finding in left(result)] == ["tf.estimator is still used, see below."]


@pytest.mark.parametrize(
    "program, count",  # count: of findings. tf.nn.dropout of TensorFlow 2 takes the rate instead.
    [
        ("import tensorflow as tf\ntf.nn.dropout(x, 0.9)", 1),
        ("import tensorflow as tf\ntf.placeholder\ntf.nn.dropout(x, keep)", 1),  # TensorFlow 1.
        ("import tensorflow as tf\ntf.nn.dropout(x, 0.1)", 0),  # Few keep so little: it is a rate.
        ("import tensorflow as tf\ntf.nn.dropout(x, rate=0.9)", 0),
        ("import tensorflow.compat.v1 as tf\ntf.nn.dropout(x, 0.9)", 0),  # It keeps 0.9, as before.
    ],
)
def test_dropout_that_keeps_its_argument_is_reported(program, count):
    said = [one.text for one in rewrite(program).findings if "nn.dropout" in one.text]
    assert len(said) == count and all("rate=1 - keep_prob" in text for text in said)
