"""Every environment variable of this package: its name, its meaning and its values.

docs/api/index.md has the same list for users.
"""

import dataclasses
import os
from typing import Any


@dataclasses.dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable of this package. `str` returns its name.

    `choices` are the allowed values, or empty if any value is allowed. `older` has pairs of an
    older value that is still accepted, and its replacement.
    """

    name: str
    meaning: str
    choices: tuple[str, ...] = ()
    older: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name

    def value(self) -> str | None:
        return self.today(os.environ.get(self.name, "")) or None

    def choice(self) -> str | None:
        """Returns the value, if it is set. Raises ValueError if it is not in `choices`."""
        value = self.value()
        if value is not None and value not in self.choices:
            allowed = " or ".join(map(repr, self.choices))
            raise ValueError(f"Environment variable {self} must be {allowed}; got {value!r}.")
        return value

    def today(self, value: Any) -> Any:
        """Returns the replacement of an older value, and any other value unchanged."""
        return next((new for old, new in self.older if old == value), value)


DEVICE = EnvironmentVariable(
    "ESTIMATOR_EMB_DEVICE",
    "where a program with use_tpu=True runs: on an emulated TPU, on PJRT devices, or on a TPU",
    ("emulate", "pjrt", "tpu"),
    older=(("host", "emulate"),),
)
PJRT_PLATFORM = EnvironmentVariable(
    "ESTIMATOR_EMB_PJRT_PLATFORM",
    "the devices of device='pjrt' where there are several kinds",
    ("cpu", "gpu", "tpu"),
)
SHARDS = EnvironmentVariable("ESTIMATOR_EMB_SHARDS", "the number of emulated cores")
TOPOLOGY = EnvironmentVariable(
    "ESTIMATOR_EMB_TOPOLOGY", "the emulated TPU, by its name, such as v3-32"
)
TABLES = EnvironmentVariable(
    "ESTIMATOR_EMB_TABLES",
    "where device='pjrt' trains the tables: on the host, or in the memory of the devices",
    ("host", "device"),
)
HOSTS = EnvironmentVariable(
    "ESTIMATOR_EMB_HOSTS",
    "how many hosts train together with device='pjrt', each a process; 'auto' if jax finds them",
)
HOST = EnvironmentVariable("ESTIMATOR_EMB_HOST", "the number of this host, from 0")
COORDINATOR = EnvironmentVariable(
    "ESTIMATOR_EMB_COORDINATOR", "ADDRESS:PORT of host 0, which all hosts must reach"
)
BAD_IDS = EnvironmentVariable(
    "ESTIMATOR_EMB_BAD_IDS",
    "what an id outside the vocabulary does: it stops the training or is left out",
    ("error", "drop"),
)
TABLE_SUMMARIES = EnvironmentVariable(
    "ESTIMATOR_EMB_TABLE_SUMMARIES", "whether TensorBoard shows how each table trains", ("0", "1")
)
WAIT_LIMIT = EnvironmentVariable(
    "ESTIMATOR_EMB_WAIT_LIMIT",
    "the seconds after which a process of a cluster no longer waits for another",
)
FULL_TRACEBACK = EnvironmentVariable(
    "ESTIMATOR_EMB_FULL_TRACEBACK", "1 shows the frames and messages of TensorFlow too"
)
COMPILER_PYTHON = EnvironmentVariable(
    "ESTIMATOR_EMB_COMPILER_PYTHON", "the Python that has the TPU's compiler"
)
NATIVE = EnvironmentVariable(
    "ESTIMATOR_EMB_NATIVE", "0 trains without the native kernels", ("0", "1")
)
CACHE = EnvironmentVariable(
    "ESTIMATOR_EMB_CACHE",
    "the folder of the built native kernels, and of programs that XLA compiled",
)
CONTRIB = EnvironmentVariable(
    "ESTIMATOR_EMB_CONTRIB", "the wheel of TensorFlow 1.15 that tf.contrib is read from"
)
NATIVE_SANITIZE = EnvironmentVariable(
    "ESTIMATOR_EMB_NATIVE_SANITIZE", "1 builds the native kernels with sanitizers"
)

VARIABLES = tuple(
    sorted(
        (value for value in globals().values() if isinstance(value, EnvironmentVariable)), key=str
    )
)
