"""Markdown of generated pages: paragraphs that fit the width of the documentation."""

from __future__ import annotations

import re
import textwrap
from typing import Final

CODE: Final = re.compile(r"(`[^`]*`)")  # with the backticks
_WIDTH: Final = 100


def wrap(text: str) -> str:
    """Wrap a paragraph at the width of the documentation, but never within code in backticks.

    Args:
        text: The paragraph, in one line or several.

    Returns:
        The lines of the paragraph, without a line feed at the end.
    """
    whole = CODE.sub(lambda code: code[0].replace(" ", "\0"), text.strip())
    lines = textwrap.fill(whole, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")
