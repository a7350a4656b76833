"""Makes the README the first page of the site, as a hook of MkDocs."""

import pathlib
from typing import Any

README = pathlib.Path(__file__).parents[1] / "README.md"


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Returns the README, with links relative to this folder, for index.md."""
    if page.file.src_uri != "index.md":
        return markdown
    return README.read_text().replace("](docs/", "](")
