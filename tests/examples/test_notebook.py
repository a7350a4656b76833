"""The notebook's model learns. Each training shows a bar, and each evaluation a line."""

import re

import processes
import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

LINES = r"""estimator_emb: Embedding tables train on the host: 2 tables, .*
(estimator_emb: Tables use TensorFlow's ops, .*ESTIMATOR_EMB_NATIVE is 0.*
)?100%\|█+\| 1000/1000 steps \[\d\d:\d\d<\d\d:\d\d, mean loss \d\.\d{4}, [\d,]+ examples/s\]
estimator_emb: evaluation at step 1,000: loss [\d.e-]+ \(over 20 batches\)
100%\|█+\| 2000/2000 steps \[\d\d:\d\d<\d\d:\d\d, mean loss \d\.\d{4}, [\d,]+ examples/s\]
estimator_emb: evaluation at step 2,000: loss [\d.e-]+ \(over 20 batches\)
100%\|█+\| 3000/3000 steps \[\d\d:\d\d<\d\d:\d\d, mean loss \d\.\d{4}, [\d,]+ examples/s\]
estimator_emb: evaluation at step 3,000: loss [\d.e-]+ \(over 20 batches\)
agreement (?P<agreement>[01]\.\d{3})
"""


def shown(notebook):
    """Returns the text of all outputs in order; those of a stream and of a display alike."""
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type in ("stream", "display_data"), output
            assert output.get("name") != "stderr", output.text
            texts.append(output.get("text") or output.data["text/plain"] + "\n")
    return "".join(texts)


@pytest.fixture
def notebook():
    return nbformat.read(processes.ROOT / "examples" / "recommender.ipynb", 4)


def test_the_saved_outputs_have_a_line_for_each_training(notebook):
    assert re.fullmatch(LINES, shown(notebook)), shown(notebook)


@pytest.mark.slow
@pytest.mark.any_version
def test_recommender_notebook_learns_and_shows_its_progress(notebook, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(processes.ROOT))
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(notebook, timeout=processes.HANGS, kernel_name="python3").execute()
    # On a busy machine, TensorFlow needs more than a second to close the dataset.
    lines = re.sub(r"estimator_emb: train: its steps are done\. .*\n", "", shown(notebook))
    found = re.fullmatch(LINES, lines)
    assert found, lines
    # The data comes from tastes. 1 means that the table has learned which films are near in these.
    assert float(found["agreement"]) > 0.99
