"""The notebook's model learns. Each training shows a bar, and each evaluation a line."""

import pathlib
import re

import processes
import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ROOT = pathlib.Path(__file__).parents[2]
LINES = r"""estimator_emb: Embedding tables train on the host: 2 tables, .*
estimator_emb: Tables use TensorFlow's ops, .*ESTIMATOR_EMB_NATIVE is 0.*
100%\|█+\| 1000/1000 steps \[\d\d:\d\d<\d\d:\d\d, loss \d\.\d{4}, [\d,]+ examples/s\]
estimator_emb: evaluation at step 1,000: loss [\d.e-]+ \(over \d+ batch(es)?\)
100%\|█+\| 2000/2000 steps \[\d\d:\d\d<\d\d:\d\d, loss \d\.\d{4}, [\d,]+ examples/s\]
estimator_emb: evaluation at step 2,000: loss [\d.e-]+ \(over \d+ batch(es)?\)
100%\|█+\| 3000/3000 steps \[\d\d:\d\d<\d\d:\d\d, loss \d\.\d{4}, [\d,]+ examples/s\]
estimator_emb: evaluation at step 3,000: loss [\d.e-]+ \(over \d+ batch(es)?\)
"""


@pytest.mark.slow
@pytest.mark.any_version
def test_recommender_notebook_learns_and_shows_its_progress(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    notebook = nbformat.read(ROOT / "examples" / "recommender.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=processes.HANGS, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    written = [output.text for output in outputs if output.get("name") == "stdout"]
    shown = re.sub(r"[^\n]*\r", "", "".join(written))  # Drops what a bar overwrote.
    assert re.fullmatch(LINES, shown), shown
    # Only TensorFlow's C++ code writes to stderr.
    rest = "".join(output.text for output in outputs if output.get("name") == "stderr")
    assert not re.sub(r"(?m)^(WARNING: All log messages before|[IWE]\d{4} ).*\n", "", rest)
    (agreement,) = (one.data["text/plain"] for one in outputs[-1:])
    assert float(agreement.removeprefix("np.float64(").removesuffix(")")) > 0.99
