"""`session_support` refuses every use. TPU training uses it only if the environment says so."""

import harness
import pytest
import tpu_described
from tensorflow.python.tpu import session_support

pytestmark = pytest.mark.skipif(harness.IS_2_15, reason="TensorFlow 2.15 watches them itself")


NAMES = (
    "start_worker_watchdog stop_worker_watchdog WatchdogManager WorkerHeartbeatManager "
    "GracefulShutdownHook ShutdownLameWorkers ShutdownAllWorkers ResetComputation"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_session_support_refuses_calls_of_programs(name):
    refused = getattr(session_support, name)
    said = harness.refusal(NotImplementedError, refused, "session", shutdown_timeout=1)
    assert said.startswith(f"session_support.{name}: the workers of a TPU are not watched on")


def test_tpu_training_uses_session_support_only_if_the_environment_does(tmp_path, monkeypatch):
    """tensorflow-estimator then makes a hook of that module. Nothing runs on the described TPU."""
    program = tpu_described.Program()

    def train(folder):
        made = tpu_described.estimator(program.model_fn, None, tmp_path / folder)
        return tpu_described.train(made, program.input_fn)

    assert train("without").hook("TPUInfeedOutfeedSessionHook")
    monkeypatch.setenv("TF_TPU_GRACEFUL_SHUTDOWN_MODE", "reset_computation")
    said = harness.refusal(NotImplementedError, train, "with")
    assert said.startswith("session_support.ResetComputation: the workers of a TPU")
