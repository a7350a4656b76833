"""The table of `estimator-emb migrate`: every target exists, and every legacy name is listed."""

import contextlib
import importlib
import inspect
import operator
import pkgutil
import re
import runpy

import harness
import processes
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.api._v1 import estimator as api_v1
from tensorflow_estimator.python.estimator.api._v2 import estimator as api_v2

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.catalog import tf1 as tf1_names
from estimator_emb.cli import main as main_lib
from estimator_emb.cli.migration import renames
from estimator_emb.legacy import contrib
from estimator_emb.optimizers import PARAMETERS

LACKING = {
    f"tf.contrib.data{inner}.RaggedTensorStructure"
    for inner in ("", *(f".{inner}" for inner in contrib_names.MODULES["data"].inner))
}
"""Only some versions of TensorFlow have it."""
CONTRIB = [
    f"tf.contrib.{path}.{name}"
    for path, owner in contrib_names.NAMESPACES.items()
    for name in contrib_names.MODULES[owner].members
]
"""Names of tf.contrib that are somewhere else today. tf.contrib has some in several modules."""


def look_up(name):
    """Returns the meaning of a name of the tables: a Target, an Advice or a Namespace."""
    spelled = name.replace("tf.", "tensorflow.", 1) if name.startswith("tf.") else name
    found = renames.look_up(spelled)
    assert found is not None, name
    return found[0]


@pytest.fixture(scope="module")
def unchanged():
    """{name of the tables: object that an unchanged program finds under `estimator-emb run`}."""
    result = {}
    ee.install()
    try:
        for name in renames.TABLE:
            if not name.startswith("tf.contrib."):
                with contextlib.suppress(AttributeError):
                    result[name] = pkgutil.resolve_name(name.replace("tf.", "tensorflow.", 1))
        for path, owner in contrib_names.NAMESPACES.items():
            for name, where in contrib_names.MODULES[owner].members.items():
                start, rest = contrib._start(where)
                if contrib.has_path(start, rest):
                    result[f"tf.contrib.{path}.{name}"] = operator.attrgetter(rest)(start)
    finally:
        ee.uninstall()
    return result


def resolved(target):
    """Returns the object that a migrated program finds when it imports the module."""
    return operator.attrgetter(target.name)(importlib.import_module(target.module))


def test_each_target_is_the_object_that_unchanged_programs_find(unchanged):
    """If a target is wrong, migrated programs silently train with another class."""
    targets = {
        name: target
        for name, target in renames.TABLE.items()
        if isinstance(target, renames.Target) and not name.startswith("tf.contrib.")
    }
    targets |= {name: look_up(name) for name in CONTRIB if name not in LACKING}
    assert len(targets) > 500
    # Functions of feature_columns wrap TensorFlow's, with the same arguments.
    wrapped = {name for name, target in targets.items() if target.module == "feature_columns"}
    # TensorFlow 2.15 still has these modules. `run` leaves them unchanged, and `migrate` does not.
    only_2_15 = ("tensorflow.python.tpu.tpu_embedding.", "tensorflow.python.tpu.async")
    for name, target in targets.items():
        found, expected = resolved(target), unchanged.get(name)
        if name in wrapped and found is not expected:
            ours, theirs = (inspect.signature(one).parameters for one in (found, expected))
            defaults = [(p.name, p.default) for p in theirs.values()]
            assert [(p.name, p.default) for p in ours.values()] == defaults, name
        elif name.startswith("tf.contrib.") and name.endswith("AsyncCheckpointSaverHook"):
            # On TensorFlow 2.15, an unchanged program finds TensorFlow's hook.
            assert issubclass(found, tf.compat.v1.train.CheckpointSaverHook)
        elif found is not expected:
            assert harness.IS_2_15 and name.startswith(only_2_15), name


def public(module, prefix):
    """Yields the dotted names in a module and its submodules."""
    for name in dir(module):
        if name.startswith("_"):
            continue
        value = getattr(module, name)
        if inspect.ismodule(value):
            yield from public(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}"


def test_every_public_legacy_name_is_in_the_table():
    listed = [*public(api_v1, "tf.compat.v1.estimator"), *public(api_v2, "tf.estimator")]
    assert len(listed) > 140
    assert [name for name in listed if name not in renames.TABLE] == []


def test_every_public_name_of_the_package_replaces_a_legacy_name():
    assert set(renames.PARAMETERS.split()) == {parameters.__name__ for parameters in PARAMETERS}
    targets = (one for one in renames.TABLE.values() if isinstance(one, renames.Target))
    ours = {target.path for target in targets}
    # These are new: no legacy program used them.
    never_legacy = "ProgressHook errors experimental export install uninstall vocabulary_warm_start"
    assert {f"estimator_emb.{name}" for name in set(ee.__all__) - set(never_legacy.split())} <= ours
    assert {f"estimator_emb.export.{name}" for name in ee.export.__all__} <= ours
    experimental = {f"estimator_emb.experimental.{name}" for name in ee.experimental.__all__}
    assert experimental == {one for one in ours if one.startswith("estimator_emb.experimental.")}
    # The other functions of feature_columns are also TensorFlow's, so programs keep those.
    replaced = {one for one in ours if one.partition(".")[0] == "feature_columns"}
    names = ("embedding_column", "shared_embedding_columns")
    assert replaced == {f"feature_columns.{name}" for name in names} and set(names) < {*fc.__all__}


def test_advice_for_contrib_equals_that_at_run_time():
    """Compares names in `elsewhere`, which have advice. `members` and `modules` have a place."""
    advised = [
        f"{owner}.{name}"
        for owner, module in contrib_names.MODULES.items()
        for name in module.elsewhere
    ]
    assert len(advised) > 100
    for path in advised:
        if path == "tpu.proto":  # Its modules are in the table.
            path += ".nonsense"
        advice = renames.Advice(contrib_names.advice_about(path))
        assert look_up(f"tf.contrib.{path}") == advice, path
    # An unknown name gets the advice about itself, or about a module without known names.
    for owner, module in contrib_names.MODULES.items():
        meaning = look_up(f"tf.contrib.{owner}.nonsense")
        has_more = module.members or module.elsewhere or module.modules
        path = f"{owner}.nonsense" if has_more else owner
        assert meaning == renames.Advice(contrib_names.advice_about(path)), owner


@pytest.fixture
def explained(capsys):
    """Returns a function that explains a name, giving the status and the output."""

    def of(name):
        status = main_lib.main(["migrate", "--explain", name])
        out, err = capsys.readouterr()
        assert bool(out) == (status == 0) and bool(err) == (status != 0)
        return status, out or err

    return of


def test_explain_prints_where_each_name_is(explained, assert_recorded):
    names = """
        tf.contrib.training.HParams tf.estimator.ModeKeys.TRAIN tf.contrib.learn.DNNClassifier
        tf.contrib.quantize tf.contrib.crf.crf_decode tf.contrib.nonsense tf.app.run
        tf.train.AdamOptimizer tensorflow.python.tpu.tpu_estimator.EmbeddingConfigSpec
        tf.contrib.tpu.python.tpu.tpu_config tf.contrib.util tf.estimator.BoostedTreesClassifier
        tf.estimator.Nonsense tf.flags.FLAGS.mine
    """
    for name in names.split():
        status, said = explained(name)
        assert status == 0 and said.startswith(f"{name}: ")
        assert_recorded(said)  # tests/messages.json has the place of each name, or advice.


def test_explain_finds_names_without_their_module_and_in_other_spellings(explained):
    said = "tf.contrib.training.HParams: now estimator_emb.legacy.contrib.hparam.HParams.\n"
    assert explained("HParams") == (0, said)
    assert explained("AdamOptimizer") == explained("tf.train.AdamOptimizer")
    names = [line.split(":")[0] for line in explained("TPUConfig")[1].splitlines()]
    assert "tf.contrib.tpu.TPUConfig" in names and "tf.compat.v1.estimator.tpu.TPUConfig" in names
    eager = explained("tf.contrib.eager")
    assert eager[1].count("\n") == 3  # A line about the module, and one for each of its two names.
    for spelling in ("tensorflow.contrib.eager.python.tfe", "tf.compat.v1.contrib.eager"):
        assert explained(spelling) == eager


@pytest.mark.parametrize(
    "name, meant",
    {
        "nonsense": None,
        "tf.train.Checkpoint": None,  # TensorFlow 2 has it, so it is no legacy name.
        "my.module": None,
        "fuly_connected": "fully_connected",
        "tf.contrib.layers.fuly_connected": "fully_connected",
        "tf.contrib.layer.dense": "tf.contrib.layers",
        "tf.app.rum": "run",
        "tf.compat.v1.layers.dens": "dense",
        "tf.loging.info": "tf.logging",
        "tf.estimator.Estimatr": "Estimator",
    }.items(),
)
def test_explain_suggests_a_name_for_an_unknown_name(name, meant, explained):
    status, said = explained(name)
    start = f"estimator-emb migrate: {name!r} is in no table of legacy names."
    assert status == 2
    assert said.startswith(f"{start} Did you mean {meant!r}?" if meant else f"{start}\n")


@pytest.mark.slow
@pytest.mark.any_version
def test_docs_page_has_the_lines_of_explain(explained):
    """Each name of the tables has its own line, equal in the docs page and in the command."""
    page = processes.ROOT / "docs" / "legacy_names.md"
    assert page.read_text() == runpy.run_path(str(page.with_suffix(".py")))["text"]()
    shown = re.findall(r"^\* `(t[\w.]+)`: (.*)$", page.read_text(), re.M)
    names = [name for name, _ in shown]
    assert len(names) == len(set(names))
    assert set(names) >= set(renames.TABLE)
    for owner, module in contrib_names.MODULES.items():
        for name in ("", *module.members, *module.modules, *module.elsewhere):
            assert f"tf.contrib.{owner}.{name}".removesuffix(".") in names
    for name, text in shown:
        assert explained(name)[1].partition("\n")[0] == f"{name}: {text}"


def test_table_has_every_moved_module_of_contrib():
    """MOVED: module of tf.contrib -> module of today. `moved` is the module that has its names."""
    for path, place in contrib_names.MOVED.items():
        name = f"tensorflow.contrib.{path}"
        meaning, count_of_known_parts = renames.look_up(name)
        assert isinstance(meaning, renames.Namespace), path
        assert count_of_known_parts == len(name.split(".")), path  # The whole name is known.
        if meaning.moved:
            assert inspect.ismodule(importlib.import_module(meaning.moved)), path
        else:  # TensorFlow 2.16 removed this one. Our table has its names.
            assert meaning.path == place == "tensorflow.python.tpu.async_checkpoint"


def test_list_of_tensorflow_1_has_the_names_that_tensorflow_2_lacks():
    """`part_of` returns the part of a name that TensorFlow 2 lacks, or None if it has the name.

    `_NAMES` has the names that only TensorFlow 1 has by their prefix, such as "train.". In them, *
    stands for any text.
    """
    for prefix, listed in tf1_names._NAMES.items():
        for name in listed.split():
            assert "*" in name or contrib.has_path(tf.compat.v1, prefix + name), name
        v1, v2 = tf.compat.v1, tf
        if prefix:
            v1, v2 = (getattr(api, prefix.rstrip(".")) for api in (v1, v2))
        there = {name for name in dir(v2) if not name.startswith("_")}
        assert not [name for name in there if tf1_names.part_of(prefix + name)], prefix
        # TensorFlow's loader of tf.compat.v1.nn.rnn_cell leaves tf.compat.v1.rnn_cell behind.
        for name in set(dir(v1)) - there - {"estimator", "rnn_cell"}:
            found = tf1_names.part_of(prefix + name)
            assert found == prefix + name or name.startswith("_"), prefix + name
    assert tf1_names.part_of("queue.FIFOQueue") is None
    assert tf1_names.part_of("train.AdamOptimizer.minimize") == "train.AdamOptimizer"
    assert tf1_names.part_of("layers.dense") == "layers"
    assert tf1_names.part_of("train.Checkpoint") is None
