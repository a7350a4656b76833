# SPDX-License-Identifier: Apache-2.0
"""Every environment variable of this package: its name and its values.

docs/api/index.md says what each means. Files that run without this package, such as
`comparison/processes/side_*.py`, spell the names themselves; a test finds each of them here.
"""

from __future__ import annotations

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable of this package; as a text, its name.

    `choices` are its values, where there are only these.
    """

    name: str
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def value(self) -> str | None:
        """Returns its value; None where it is unset or empty."""
        return os.environ.get(self.name) or None


DEVICE = EnvironmentVariable("ESTIMATOR_EMB_DEVICE", ("host", "tpu"))
SHARDS = EnvironmentVariable("ESTIMATOR_EMB_SHARDS")
TOPOLOGY = EnvironmentVariable("ESTIMATOR_EMB_TOPOLOGY")
TABLES = EnvironmentVariable("ESTIMATOR_EMB_TABLES", ("tpu", "host"))
BAD_IDS = EnvironmentVariable("ESTIMATOR_EMB_BAD_IDS", ("error", "drop"))
TABLE_SUMMARIES = EnvironmentVariable("ESTIMATOR_EMB_TABLE_SUMMARIES", ("0", "1"))
WAIT_LIMIT = EnvironmentVariable("ESTIMATOR_EMB_WAIT_LIMIT")
FULL_TRACEBACK = EnvironmentVariable("ESTIMATOR_EMB_FULL_TRACEBACK")
COMPILER_PYTHON = EnvironmentVariable("ESTIMATOR_EMB_COMPILER_PYTHON")
NATIVE = EnvironmentVariable("ESTIMATOR_EMB_NATIVE")
CACHE = EnvironmentVariable("ESTIMATOR_EMB_CACHE")
NATIVE_SANITIZE = EnvironmentVariable("ESTIMATOR_EMB_NATIVE_SANITIZE")

VARIABLES = tuple(
    sorted(
        (value for value in globals().values() if isinstance(value, EnvironmentVariable)), key=str
    )
)
