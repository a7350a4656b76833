"""Tables that the machine cannot hold are refused before anything is allocated."""

import logging

import harness
import numpy as np
import pytest

import estimator_emb as ee
from estimator_emb.engine.tables import sizes


def estimator(model_dir, device):
    tables = {"large": ee.TableConfig(250_000, 10), "small": ee.TableConfig(10, 10)}
    spec = harness.tables_spec(tables, ee.AdamParameters(0.1))
    model_fn = harness.gradient_model_fn(["large"])
    return harness.estimator(model_fn, spec, model_dir, 8, device, run={})


IDS = np.zeros([8, 1], np.int64)
GRADIENTS = {"large": np.zeros([8, 10], np.float32)}
both = harness.input_fn_of([({"large": IDS, "small": IDS}, GRADIENTS)])
NEEDS = "The embedding tables need 30.0 MB with slots, and this machine has 25.0 MB of memory."
SERVERS = "divide them over parameter servers on several machines"


@pytest.mark.parametrize(
    ("device", "divide"), [(None, SERVERS), ("host", f"{SERVERS}, with use_tpu=False")]
)
def test_tables_larger_than_memory_are_refused(
    device, divide, tmp_path, monkeypatch, caplog, same_message
):
    caplog.set_level(logging.INFO, logger="estimator_emb")
    monkeypatch.setattr(sizes, "machine_memory", lambda: 25_000_000)
    train = estimator(tmp_path, device).train
    message = harness.refusal(MemoryError, train, both, max_steps=2)
    assert message.startswith(NEEDS) and divide in message
    same_message(message)
    assert any(", 30.0 MB with slots (Adam x 2)." in line for line in harness.said(caplog))
    assert not list(tmp_path.glob("*.ckpt*"))


def test_a_prediction_needs_no_memory_for_slots(tmp_path, monkeypatch):
    monkeypatch.setattr(sizes, "machine_memory", lambda: 9_000_000)
    predictions = estimator(tmp_path, None).predict(both)
    message = harness.refusal(MemoryError, next, predictions)
    assert message.startswith("The embedding tables need 10.0 MB, and this machine has 9.0 MB of ")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8 << 30),
        ({"/proc/meminfo": "MemTotal: 1 kB\nSwapTotal:    1024 kB\n"}, (8 << 30) + (1 << 20)),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, 8 << 30),
        ({"/sys/fs/cgroup/memory.max": "1000000\n"}, 1_000_000),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8 << 30),
    ],
)
def test_machine_memory_counts_swap_and_cgroup_limits(files, expected, monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2 << 20}
    monkeypatch.setattr(sizes.os, "sysconf", pages.__getitem__)

    def read_text(path):
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(sizes.pathlib.Path, "read_text", read_text)
    assert sizes.machine_memory() == expected


def test_machine_memory_of_this_machine_is_plausible():
    assert sizes.machine_memory() > 1 << 28
