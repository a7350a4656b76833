"""The command's progress bar appears only on a terminal, and only for long work."""

import io
import re
import sys
import time
import types

import pytest

from estimator_emb.reporting import bars, console


class Terminal(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


def drawn(monkeypatch, is_terminal=True, fails=False, **how):
    """Returns the text that work of two parts draws."""
    stream = Terminal(is_terminal)
    monkeypatch.setattr(console, "stream", lambda: stream)
    with bars.work_bar(**{"after": 0.01, **how}) as progress:
        for done in (0, 1_500_000, 3_000_000):
            time.sleep(0.12)  # tqdm does not draw more often.
            progress(done, 3_000_000)
            if fails:
                raise KeyError("its error")
    return stream.getvalue().split("\r")


def test_a_bar_goes_to_its_end(monkeypatch):
    *before, last = drawn(monkeypatch)
    assert any(re.match(r" 50%\|[█#\d ]+\| 1\.50M/3\.00M \[", one) for one in before)
    assert re.match(r"100%\|[█#]+\| 3\.00M/3\.00M \[", last) and last.endswith("\n")


def test_a_temporary_bar_is_erased(monkeypatch):
    *_, wiped, last = drawn(monkeypatch, unit="compilation", stays=False)
    assert wiped.isspace() and last == ""


@pytest.mark.parametrize("how", [{"is_terminal": False}, {"after": 1e3}])
def test_no_bar_without_a_terminal_or_for_short_work(how, monkeypatch):
    assert drawn(monkeypatch, **how) == [""]


def test_an_error_passes_through_a_bar(monkeypatch):
    with pytest.raises(KeyError, match="its error"):
        drawn(monkeypatch, fails=True)


def test_a_bar_is_one_output_of_a_notebook(monkeypatch):
    outputs = []

    def display(data, raw, display_id):
        assert raw and display_id
        outputs.append([data])
        return types.SimpleNamespace(update=lambda data, raw: outputs[-1].append(data))

    shell = types.SimpleNamespace(kernel=object())
    notebook = types.SimpleNamespace(
        get_ipython=lambda: shell, display=types.SimpleNamespace(display=display)
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr(console, "stream", lambda: pytest.fail("The bar is not in a stream."))
    with bars.bar(total=2, mininterval=0) as drawn:
        drawn.update()
        drawn.update()
    (states,) = outputs
    assert len(states) > 2 and all(list(state) == ["text/plain"] for state in states)
    assert states[0]["text/plain"].startswith("  0%|")
    assert re.match(r"100%\|█+\| 2/2 \[.*\]$", states[-1]["text/plain"])


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()])
def test_a_bar_of_ipython_on_a_terminal_is_in_the_stream(shell, monkeypatch):
    notebook = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert drawn(monkeypatch)[-1].startswith("100%|")
