"""A message as a line of a segment. Pure.

A line ends with a newline, so a message that holds some has them as `#012`, as rsyslog writes them. Newlines, carriage returns
and NULs at its end are part of nothing.
"""

from __future__ import annotations

from typing import Final

_NEWLINE: Final = b"#012"


def line_of(message: bytes) -> bytes:
    """With its newline; nothing of a message that says nothing."""
    said = message.rstrip(b"\r\n\0")
    if b"\n" in said:
        said = said.replace(b"\n", _NEWLINE)
    return said + b"\n" if said else b""
