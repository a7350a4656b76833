"""Compares messages with the table `tests/messages.json`. `pytest --update` rewrites the table."""

import fcntl
import json
import pathlib

import pytest

TABLE = pathlib.Path(__file__).parents[1] / "messages.json"
"""Name of a test -> its messages in order, each as a list of lines."""


def pytest_addoption(parser):
    """Adds the option --update."""
    parser.addoption(
        "--update", action="store_true", help="write the messages of these tests into the table"
    )


@pytest.fixture
def assert_recorded(request, tmp_path):
    """Returns a function that compares a whole message with the table's.

    The first call in a test compares the test's first message, the next call its second. The test's
    folder is FOLDER in the table.
    """
    test = request.node.nodeid
    said = []

    def check(text):
        said.append(str(text).replace(str(tmp_path), "FOLDER").splitlines())
        if request.config.option.update:
            _write(test, said)
            return
        known = json.loads(TABLE.read_text()).get(test, [])
        assert said[-1] == (known[len(said) - 1] if len(said) <= len(known) else None), (
            "The message is not as in tests/messages.json. If the new message is right, run this "
            "test with --update."
        )

    return check


def _write(test, said):
    """Makes these messages the test's. Other processes may write at the same time."""
    with TABLE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        table = {**json.load(file), test: said}
        file.seek(0)
        file.truncate()
        json.dump(dict(sorted(table.items())), file, indent=1, ensure_ascii=False)
        file.write("\n")
