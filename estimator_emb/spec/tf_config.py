"""Reads TF_CONFIG, the environment variable that defines a process's place in a cluster.

tensorflow-estimator misreads many mistakes in TF_CONFIG, or fails without naming it. This module
accepts every TF_CONFIG that tensorflow-estimator can train with.
"""

import json
import os
import re
from typing import Any, NoReturn

_EXAMPLE = (
    'such as {"cluster": {"chief": ["host0:2222"], "ps": ["host1:2222"]}, '
    '"task": {"type": "chief", "index": 0}}'
)

SERVER_JOB = "ps"
"""The job of the parameter servers."""


def parsed() -> dict[str, Any]:
    """Returns the JSON object in TF_CONFIG, or {} if unset. Raises ValueError for other text."""
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
    except ValueError as error:
        at = max(getattr(error, "pos", 0) - 20, 0)
        raise ValueError(
            f"TF_CONFIG is no JSON, at {text[at : at + 40]!r}: {error}. It must be an object "
            f"{_EXAMPLE}. Unset it to train in one process."
        ) from None
    if not isinstance(config, dict):
        _refuse("it", config, f"an object {_EXAMPLE}. Unset it to train in one process")
    return config


def servers(config: Any) -> list[str]:
    """Returns host:port of each parameter server of a `RunConfig`."""
    cluster = getattr(config, "cluster_spec", None)
    return list(cluster.job_tasks(SERVER_JOB)) if cluster and SERVER_JOB in cluster.jobs else []


def read_tf_config() -> dict[str, Any]:
    """Returns the content of TF_CONFIG, or {} if unset. Raises ValueError if it is invalid."""
    config = parsed()
    for name in ("cluster", "task", "service"):
        if not isinstance(config.get(name, {}), dict):
            _refuse(name, config[name], f"an object, if it is given, {_EXAMPLE}")
    for name in ("session_master", "eval_session_master", "model_dir"):
        if not isinstance(config.get(name), str | None):
            _refuse(name, config[name], "a text, if it is given")
    jobs = {job: _tasks(job, tasks) for job, tasks in config.get("cluster", {}).items()}
    _check_different(jobs)
    _check_task(config.get("task", {}), jobs)
    return config


def _tasks(job: str, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, list):
        tasks = dict(enumerate(tasks))
    elif not isinstance(tasks, dict):
        _refuse(f"cluster.{job}", tasks, 'a list of addresses, or an object such as {"0": address}')
    addresses = {}
    for index, address in tasks.items():
        number = _whole(index)
        if number is None:
            _refuse(f"an index of cluster.{job}", index, "a whole number, 0 or more")
        _check_address(f"cluster.{job}[{number}]", address)
        addresses[number] = address
    return addresses


def _check_address(part: str, address: Any) -> None:
    text = address if isinstance(address, str) else ""
    found = re.fullmatch(r"(?:\[[^\s/\]]+\]|[^\s:/\[\]]+):([0-9]+)", text)
    if found is None or not 0 < int(found[1]) < 2**16:
        _refuse(
            part, address, 'host:port such as "host0:2222" or "[::1]:2222", with a port of 1-65535'
        )


def _check_different(jobs: dict[str, dict[int, str]]) -> None:
    seen: dict[str, str] = {}
    for job, tasks in jobs.items():
        for index, address in tasks.items():
            part = f"cluster.{job}[{index}]"
            if job != "evaluator" and address in seen:  # An evaluator does not listen.
                _refuse(part, address, f"another address than that of {seen[address]}")
            seen.setdefault(address, part)


def _check_task(task: dict[str, Any], jobs: dict[str, dict[int, str]]) -> None:
    """Checks for mistakes that tensorflow-estimator misses, or rejects without naming TF_CONFIG."""
    if "index" not in task or (jobs and task["index"] is None):
        return
    index = _whole(task["index"])
    if index is None:
        _refuse(
            "task.index",
            task["index"],
            "a whole number, 0 or more (Task index must be non-negative number)",
        )
    job = str(task.get("type"))
    tasks = jobs.get(job, {})
    if job in jobs and not tasks:
        _refuse(f"cluster.{job}", [], "the addresses of its tasks, including this process")
    if tasks and index not in tasks:
        _refuse(
            "task.index",
            task["index"],
            f"the index of an address in cluster.{task['type']}: {index} is not a valid task_id "
            f"for task_type {task['type']}, which has {', '.join(map(str, tasks))}",
        )


def _whole(value: Any) -> int | None:
    """Converts a value to an int >= 0 like tensorflow-estimator, if it can be converted."""
    try:
        number = int(value)
        exact = isinstance(value, str) or number == value
    except (TypeError, ValueError, OverflowError):
        return None
    return number if exact and number >= 0 else None


def _refuse(part: str, value: Any, allowed: str) -> NoReturn:
    quoted = json.dumps(value)
    quoted = quoted if len(quoted) <= 80 else f"{quoted[:77]}..."
    raise ValueError(f"TF_CONFIG: {part} is {quoted}, but must be {allowed}.")
