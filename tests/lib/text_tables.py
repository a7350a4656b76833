"""Tables of tests that are text: cases, each with what is said of it indented below."""

import re


def read(text):
    """Returns {lines of a case: what stands below them, in one line}."""
    found = re.findall(r"((?:^\S.*\n)+)((?:^ .*(?:\n|$))+)", text, re.MULTILINE)
    return {case.rstrip("\n"): " ".join(below.split()) for case, below in found}
