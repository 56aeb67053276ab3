"""One arena for all threads: glibc gives each its own, which keeps what its largest ranges took, though only one is at work.

A wave of requests stays resident in such an arena for ever, as malloc_trim(3) gives back no arena's end but the first one's.

Threads of Python wait for each other anyway, so a common arena costs no time that could be measured.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8  # mallopt(3)


def use_one_arena() -> bool:
    """Before threads are started; whether the C library knows arenas."""
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and library.mallopt(_M_ARENA_MAX, 1) == 1
