"""The place of a process in the cluster that the environment variable TF_CONFIG describes."""

import json
import os
from typing import Any

SERVER_JOB = "ps"
"""The job of the parameter servers."""


def content() -> dict[str, Any]:
    """Returns the content of TF_CONFIG, or {} if it is unset."""
    config: dict[str, Any] = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return config


def servers(config: Any) -> list[str]:
    """Returns host:port of each parameter server of a `RunConfig`."""
    cluster = getattr(config, "cluster_spec", None)
    return list(cluster.job_tasks(SERVER_JOB)) if cluster and SERVER_JOB in cluster.jobs else []
