"""Puts tests/lib on the import path, and keeps TensorFlow and the garbage collector quiet."""

import dataclasses
import functools
import gc
import importlib
import logging
import math
import os
import re
import shutil
import sys
import tempfile

import hypothesis
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "lib"))
import processes  # noqa: E402
from messages import assert_recorded, pytest_addoption  # noqa: E402, F401
from sampling import (  # noqa: E402, F401
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Outside the checkout: the package rejects a cache folder that other users can write to.
os.environ.setdefault(
    "ESTIMATOR_EMB_CACHE", f"{tempfile.gettempdir()}/estimator_emb-tests-{os.getuid()}"
)

KERNELS_ARE_CHOSEN = "ESTIMATOR_EMB_NATIVE" in os.environ

# An explicit level, as programs set it. Otherwise the lines that are shown by default would be in
# every test's log.
logging.getLogger().setLevel(logging.WARNING)


hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")


def pytest_xdist_auto_num_workers(config):
    """Returns 0 (no worker processes) for TPU tests, and if all given tests are single tests.

    A TPU has a single user at a time. For a few tests, workers would only add imports.
    """
    a_tpu_has_one_user = config.option.markexpr == "tpu"
    single_tests = bool(config.args) and all("::" in argument for argument in config.args)
    return 0 if a_tpu_has_one_user or single_tests else None


def pytest_make_parametrize_id(val):
    """Removes addresses from test ids, because all processes must agree on the ids."""
    if isinstance(val, str) and " at 0x" in val:
        return re.sub(" at 0x[0-9a-f]+", "", val)
    return None


def pytest_sessionstart(session):
    """Binds Keras 2 before a test imports TensorFlow, in each process that runs tests."""
    if session.config.getoption("dist", "no") != "no":
        return
    gc.disable()  # Until the first test: imported modules and collected tests stay alive.
    capture = session.config.pluginmanager.getplugin("capturemanager")
    capture.resume_global_capture()  # Discards TensorFlow's messages at import.
    try:
        importlib.import_module("estimator_emb.backends.local")
    finally:
        capture.suspend_global_capture()
        capture.read_global_capture()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Runs fast tests as users run programs, with native kernels if g++ can build them.

    Slow tests use TensorFlow's own ops, unless they turn the kernels on.
    """
    if not KERNELS_ARE_CHOSEN:
        is_native = item.get_closest_marker("slow") is None and shutil.which("g++") is not None
        os.environ["ESTIMATOR_EMB_NATIVE"] = str(int(is_native))


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_graphs():
    """Skips writing graph.pbtxt, model.ckpt-*.meta and the graphs in event files.

    Writing them takes as long as a small training, and no test reads them.
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


@pytest.fixture(scope="session", autouse=True)
def _rare_garbage_collection():
    """Makes garbage collections rare, and excludes all objects that exist already.

    Otherwise each full collection would visit TensorFlow's half a million objects.
    """
    gc.freeze()
    gc.set_threshold(50_000, 5, 5)
    gc.enable()


@pytest.fixture
def in_shards(monkeypatch):
    """Returns a function that makes backends split tables into shards, as parameter servers do."""
    from estimator_emb.backends import host_tables
    from estimator_emb.engine.engine import TableStep

    def into(count):
        class Divided(TableStep):
            def __post_init__(self):
                assert self.place.shards == 1
                self.place = dataclasses.replace(self.place, shards=count)
                super().__post_init__()

        monkeypatch.setattr(host_tables, "TableStep", Divided)

    return into


@pytest.fixture
def installed():
    """Replaces tensorflow-estimator's names by this package's, as `estimator-emb run` does."""
    import estimator_emb as ee

    ee.install()
    yield
    ee.uninstall()


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch):
    """Lets each test see lines that a process logs once, and turns off timed progress lines."""
    from estimator_emb.reporting import console, progress

    monkeypatch.setattr(console, "_logged", set())
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", math.inf)


@pytest.fixture(autouse=True)
def _eager_as_it_was():
    """Fails a test that changes eager mode, instead of the tests that run after it."""
    from tensorflow.python.eager import context

    before = context.executing_eagerly()
    yield
    assert context.executing_eagerly() == before


@pytest.fixture(scope="session")
def native_library():
    """Returns the native kernels, built once and kept between runs of the suite."""
    from estimator_emb.native import build, ops

    build._TIMEOUT = build._PROGRESS = processes.HANGS
    try:
        return ops.load()
    except build.BuildError as reason:
        if build.sanitizes():  # Sanitizers were requested, so a skip would look like a pass.
            raise
        pytest.skip(f"native kernels cannot be built here: {reason}")


@pytest.fixture
def native(native_library, monkeypatch):
    """Turns the native kernels on."""
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "1")
    return native_library


@pytest.fixture(params=["v1", "v2"])
def control_flow(request, monkeypatch):
    """Runs the test with control flow as graph ops (v1) and as functions (v2)."""
    from tensorflow.python.ops import control_flow_util

    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", request.param == "v2")


@pytest.fixture(scope="module")
def eight_devices():
    """Makes jax run on eight devices, all on this CPU, and returns them."""
    import tensorflow as tf

    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 18):
        pytest.skip("no jax lives beside this TensorFlow")
    jax = pytest.importorskip("jax")
    from jax.extend import backend

    backend.clear_backends()  # A test of another module may have used other devices.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    assert len(jax.devices()) == 8
    return jax.devices()
