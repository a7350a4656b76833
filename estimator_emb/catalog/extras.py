"""Imports extras: parts of this package that can be deleted.

`[tool.estimator_emb.extras]` in pyproject.toml lists the files, the tests and the page of each. The
core imports an extra only by `load`, when a program asks for the extra.
"""

import importlib
from typing import Any


class MissingExtra(ImportError):
    """Raised if a program asks for an extra that this copy of the package does not contain."""


def load(extra: str, module: str) -> Any:
    """Imports a module of an extra, such as `load("native", "native.select_kernels")`.

    Raises MissingExtra if the module was deleted.
    """
    name = f"estimator_emb.{module}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # The extra is there, and one of its packages is missing.
        text = f"This copy of estimator_emb does not contain the extra {extra!r}: {name} is missing"
        raise MissingExtra(text, name=name) from None
