"""Makes the README the first page of the site, as a hook of MkDocs."""

import pathlib
import re
from typing import Any

README = pathlib.Path(__file__).parents[1] / "README.md"
_TO_SOURCE = re.compile(r"\[(`[^`]+`)\]\(\.\./estimator_emb/[^)]+\)")
"""A link to a file of the package, which only readers of the repository can follow."""


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Returns the README, with links relative to this folder, for index.md.

    Other pages lose their links to files of the package.
    """
    if page.file.src_uri != "index.md":
        return _TO_SOURCE.sub(r"\1", markdown)
    return README.read_text().replace("](docs/", "](")
