"""Stands for `tensorflow.python.tpu.session_support`, which TensorFlow >= 2.16 lacks.

tensorflow-estimator imports it, and asks it to watch the workers of a TPU where the environment
variable TF_TPU_WATCHDOG_TIMEOUT or TF_TPU_GRACEFUL_SHUTDOWN_MODE says so. Nothing here watches
them: whatever a program calls raises an error.
"""

import os
from typing import Any

# tensorflow-estimator makes a `GracefulShutdownHook` if the variable is missing, and none for ''.
os.environ.setdefault("TF_TPU_GRACEFUL_SHUTDOWN_MODE", "")


class _Unsupported:
    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(
            f"session_support.{type(self).__name__}: the workers of a TPU are not watched on "
            "TensorFlow 2.16 and later, which lacks the watchdog and the graceful shutdown. Remove "
            "the call, or unset the environment variable that asks for it: "
            "TF_TPU_WATCHDOG_TIMEOUT or TF_TPU_GRACEFUL_SHUTDOWN_MODE. TensorFlow 2.15 has both."
        )


_NAMES = (
    "start_worker_watchdog stop_worker_watchdog WatchdogManager WorkerHeartbeatManager "
    "GracefulShutdownHook ShutdownLameWorkers ShutdownAllWorkers ResetComputation"
)
globals().update({name: type(name, (_Unsupported,), {}) for name in _NAMES.split()})
