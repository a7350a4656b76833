"""What is said and written if a folder was removed, or has a checkpoint already.

`make` returns an estimator of a linear model. `build_graph` ends a call before its session opens.
"""

import shutil

import harness
import pytest
from small_programs import build_graph, input_fn, linear, make, off_a_tpu

pytestmark = pytest.mark.usefixtures("installed")


@off_a_tpu
def test_a_removed_folder_gets_event_files_again(kind, tmp_path):
    """TensorFlow keeps a folder's writer, which would write into the removed file: all is lost."""
    folder = tmp_path / "model"
    for _ in range(2):
        estimator = make(kind, folder, linear, run={"save_summary_steps": 1})
        estimator.train(input_fn, steps=1)
        estimator.evaluate(input_fn, steps=1)
        for where in (folder, folder / "eval"):
            assert len([*where.glob("events.out.tfevents.*")]) == 1
            assert any("loss" in values for values in harness.summaries(where).values())
        shutil.rmtree(folder)


@off_a_tpu
def test_a_warm_start_that_is_not_used_is_said_once(kind, tmp_path, caplog):
    """If model_dir has a checkpoint, an estimator's first training goes on from that instead."""
    caplog.set_level("INFO", "estimator_emb")
    old = str(tmp_path / "old")
    harness.run("train", make(kind, old, linear), input_fn, max_steps=1)

    def said(folder, *calls):
        caplog.clear()
        estimator = make(kind, folder, linear, warm_start_from=old)
        for call in calls:
            call("train", estimator, input_fn, steps=1)
        return [line for line in harness.said(caplog) if "warm_start_from" in line]

    assert said(tmp_path / "new", harness.run, build_graph) == []  # The first training uses it.
    (line,) = said(old, build_graph, build_graph)
    assert line.endswith("For a warm start, give another model_dir.")
