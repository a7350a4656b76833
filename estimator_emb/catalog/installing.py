"""The pip commands in messages. No package index has this package, so pip needs a clone."""

import sys

_OF_JAX = ("pjrt", "preflight")


def extra(name: str, *others: str) -> str:
    """Returns the command that installs this package with an extra, and other packages."""
    words = " ".join(f"'{one}'" for one in (f".[{name}]", *others))
    old = name in _OF_JAX and sys.version_info < (3, 11)
    where = "in a clone of estimator_emb" + (", with Python 3.11 or newer" if old else "")
    return f"pip install {words} ({where})"
