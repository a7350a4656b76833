"""Fixtures: TensorFlow's ops or native kernels, the log, and devices of TPUs."""

import harness
import pytest

from estimator_emb.engine.kernels import TensorFlowKernels
from estimator_emb.native import select_kernels


@pytest.fixture(autouse=True)
def kernels(request, monkeypatch):
    """Turns native kernels on or off if the test asks for "native" or "tensorflow"."""
    choose = select_kernels.kernels_for

    def without_falling_back(*args, **kwargs):
        found = choose(*args, **kwargs)
        assert not isinstance(found, TensorFlowKernels)
        return found

    asked = getattr(request, "param", None)
    if asked == "native":
        request.getfixturevalue("native")
        monkeypatch.setattr(select_kernels, "kernels_for", without_falling_back)
    elif asked == "tensorflow":
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    return asked


@pytest.fixture
def said(caplog):
    """Returns a function that gives our log's messages, from level INFO."""
    caplog.set_level("INFO", "estimator_emb")
    return lambda: harness.said(caplog)


@pytest.fixture
def tpu_devices(eight_devices, monkeypatch):
    """Returns a function: topology name -> devices, described to the TPU compiler."""
    pytest.importorskip("libtpu")
    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-8")
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    from jax.experimental import topologies

    def described(topology):
        made = topologies.get_topology_desc(platform="tpu", topology_name=topology)
        return list(made.devices)[:8]

    return described
