"""Parses tables of test cases written as text: a case, with its description indented below."""

import re


def read(text):
    """Returns {lines of a case: its description, joined to one line}."""
    found = re.findall(r"((?:^\S.*\n)+)((?:^ .*(?:\n|$))+)", text, re.MULTILINE)
    return {case.rstrip("\n"): " ".join(below.split()) for case, below in found}
