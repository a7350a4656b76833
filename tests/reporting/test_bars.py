"""The command's progress bar appears only on a terminal, and only for long work."""

import io
import re
import time

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
