"""A loss: bytes that are known to be destroyed unread, and occasions on which more may have been.

What is known is a number of bytes, and exact as far as sizes had been seen. What cannot be known is `unknown`: a number of
occasions, each with its file and time. It is never said to be 0 bytes.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One. `at_ms`: when it was noticed, by this host's clock, in Unix milliseconds."""

    source: str
    path: str
    at_ms: int
    bytes: int
    unknown: int
    what: str


class Losses(NamedTuple):
    """Those of one source. Neither ever falls."""

    bytes: int = 0
    unknown: int = 0
