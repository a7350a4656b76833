"""Makes `import reference` and `import harness` work in every test, and keeps TensorFlow quiet."""

import functools
import gc
import importlib
import logging
import math
import os
import re
import sys
import tempfile

import hypothesis
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "lib"))
import processes  # noqa: E402
from sampling import (  # noqa: E402, F401
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow's own ops, unless a test asks for the native kernels.
os.environ.setdefault("ESTIMATOR_EMB_NATIVE", "0")
# Not where the tests are: others may be able to write there, and then it would not be used.
os.environ.setdefault(
    "ESTIMATOR_EMB_CACHE", f"{tempfile.gettempdir()}/estimator_emb-tests-{os.getuid()}"
)

# Chosen, as by a program: else the lines that are shown by default were in every test's log.
logging.getLogger().setLevel(logging.WARNING)


# However slow and busy the machine is.
hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")


# Whether sessions that begin now run graphs as TensorFlow's graph optimizers make them.
_graphs = {"optimized": True}


def pytest_xdist_auto_num_workers(config):
    """Returns 0, tests in this process, where several cannot be or would only cost imports."""
    a_tpu_has_one_user = config.option.markexpr == "tpu"
    single_tests = bool(config.args) and all("::" in argument for argument in config.args)
    return 0 if a_tpu_has_one_user or single_tests else None


def pytest_make_parametrize_id(val):
    """Leaves addresses out of the ids of tests, which must be the same in all processes."""
    if isinstance(val, str) and " at 0x" in val:
        return re.sub(" at 0x[0-9a-f]+", "", val)
    return None


def pytest_sessionstart(session):
    """Binds Keras 2 before a test imports TensorFlow, where this process runs tests."""
    if session.config.getoption("dist", "no") != "no":
        return
    gc.disable()  # Until the first test: what is imported and collected stays.
    capture = session.config.pluginmanager.getplugin("capturemanager")
    capture.resume_global_capture()  # Of what TensorFlow has to say when it is imported.
    try:
        importlib.import_module("estimator_emb.backends.local")
    finally:
        capture.suspend_global_capture()
        capture.read_global_capture()


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_graphs():
    """Leaves graph.pbtxt, model.ckpt-*.meta and the graphs of event files unwritten.

    They take as long as a small training, and nothing reads them.
    """
    from tensorflow.python.summary.writer import writer
    from tensorflow.python.training import saver, training_util

    export = saver.Saver.export_meta_graph

    @functools.wraps(export)
    def exported(self, filename=None, *args, **kwargs):
        if filename and os.path.basename(filename).startswith("model.ckpt-"):
            return None
        return export(self, filename, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_util, "write_graph", lambda *args, **kwargs: None)
        patch.setattr(saver.Saver, "export_meta_graph", exported)
        for name in ("add_graph", "add_meta_graph"):
            patch.setattr(writer.SummaryToEventTransformer, name, lambda *args, **kwargs: None)
        yield export


@pytest.fixture
def meta_graphs(_no_files_of_graphs, monkeypatch):
    """Writes model.ckpt-*.meta, for tests that read it."""
    from tensorflow.python.training import saver

    monkeypatch.setattr(saver.Saver, "export_meta_graph", _no_files_of_graphs)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Says for which tests sessions run graphs as TensorFlow's graph optimizers make them."""
    _graphs["optimized"] = "TESTS_OPTIMIZE_GRAPHS" in os.environ or (
        item.get_closest_marker("slow") is not None
    )


@pytest.fixture(scope="session", autouse=True)
def _graphs_as_they_are():
    """Runs graphs of fast tests without TensorFlow's graph optimizers (Grappler).

    They take a quarter of a small training. Slow tests run with them, as does whatever program a
    test starts, and each test where TESTS_OPTIMIZE_GRAPHS is set, as .ci/run sets it for some
    versions.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import session

    begin = session.BaseSession.__init__

    @functools.wraps(begin)
    def begun(self, target="", graph=None, config=None):
        if not _graphs["optimized"]:
            given, config = config, config_pb2.ConfigProto()
            if given is not None:
                config.CopyFrom(given)
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        begin(self, target, graph, config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.BaseSession, "__init__", begun)
        yield


@pytest.fixture(scope="session", autouse=True)
def _rare_garbage_collection():
    """Leaves what has been imported to no garbage collection, and the rest to few.

    TensorFlow's half a million objects would be looked at in each of them.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(50_000, 5, 5)
    gc.enable()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
def in_shards(monkeypatch):
    """A function that makes backends divide tables into shards, as parameter servers do."""
    from estimator_emb.backends import host_tables
    from estimator_emb.engine.engine import TableStep

    def into(count):
        class Divided(TableStep):
            def __init__(self, *args, shards=1, **kwargs):
                assert shards == 1
                super().__init__(*args, shards=count, **kwargs)

        monkeypatch.setattr(host_tables, "TableStep", Divided)

    return into


@pytest.fixture
def installed():
    """Has the names of tensorflow-estimator stand for ours, as `estimator-emb run` does."""
    import estimator_emb as ee

    ee.install()
    yield
    ee.uninstall()


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch):
    """Has each test see what a process says once, and no progress that is told only in time."""
    from estimator_emb.reporting import console, progress

    monkeypatch.setattr(console, "_logged", set())
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", math.inf)


@pytest.fixture(autouse=True)
def _eager_as_it_was():
    """Has a test that leaves TensorFlow otherwise fail itself, not those after it."""
    from tensorflow.python.eager import context

    before = context.executing_eagerly()
    yield
    assert context.executing_eagerly() == before


@pytest.fixture(scope="session")
def native_library():
    """The native kernels, built once and kept between runs of the suite."""
    from estimator_emb.native import build, ops

    build._TIMEOUT = build._PROGRESS = processes.HANGS
    try:
        return ops.load()
    except build.BuildError as reason:
        if build.sanitizes():  # Asked for: tests that skip would look as if they had passed.
            raise
        pytest.skip(f"native kernels cannot be built here: {reason}")


@pytest.fixture
def native(native_library, monkeypatch):
    """Turns the native kernels on."""
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "1")
    return native_library


@pytest.fixture(scope="module")
def eight_devices():
    """Has jax run on eight devices, all of this CPU."""
    import tensorflow as tf

    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 18):
        pytest.skip("no jax lives beside this TensorFlow")
    jax = pytest.importorskip("jax")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    assert len(jax.devices()) == 8
