"""tests/messages.json has the messages that the fixture `assert_recorded` compares, by test.

If a test is renamed, its messages stay behind.
"""

import json
import pathlib
import re

import messages


def test_each_key_of_messages_json_names_a_test():
    root = pathlib.Path(__file__).parents[1]
    for test in json.loads(messages.TABLE.read_text()):
        file, function = re.fullmatch(r"([^:]+)::(\w+)(?:\[.*\])?", test, re.DOTALL).groups()
        assert f"\ndef {function}(" in (root / file).read_text(), test
