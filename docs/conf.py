"""Sphinx configuration of the documentation site: `python -m sphinx -W -n docs SITE`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

project = "Hourmark"
author = "the Hourmark authors"
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = "Hourmark"
myst_heading_anchors = 5
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


def unlink_source_files(app: Any, page: str, content: list[str]) -> None:
    """Replace links to files outside `docs` by their text, because the site does not contain them.

    Args:
        app: The Sphinx application, whose `srcdir` is the folder `docs`.
        page: Name of the page, such as `start/index`.
        content: The page's Markdown as the only element. It is replaced.
    """
    folder = Path(app.srcdir, page).parent

    def text_of(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[2]))
        return link[0] if target.is_relative_to(app.srcdir) else link[1]

    content[0] = _LINK.sub(text_of, content[0])


def setup(app: Any) -> None:
    """Register the hook above. Called by Sphinx."""
    app.connect("source-read", unlink_source_files)
