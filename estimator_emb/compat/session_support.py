"""Replaces `tensorflow.python.tpu.session_support`, a module that TensorFlow 2.16 removed.

tensorflow-estimator imports it. It uses the module to watch the workers of a TPU if the environment
variable TF_TPU_WATCHDOG_TIMEOUT or TF_TPU_GRACEFUL_SHUTDOWN_MODE asks for it. Watching workers is
unsupported here: every call raises an error.
"""

import os
from typing import Any

# tensorflow-estimator makes a `GracefulShutdownHook` if the variable is missing, but not for ''.
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
