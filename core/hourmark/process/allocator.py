"""How the C library keeps memory.

One arena for all threads: glibc gives each its own, which keeps what its largest ranges took,
though only one is at work. A wave of requests stays resident in such an arena for ever, as
malloc_trim(3) gives back no arena's end but the first one's.

Threads of Python wait for each other anyway, so a common arena costs no time that could be
measured.
"""

from __future__ import annotations

import ctypes
from typing import Final

# mallopt(3)
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 2 * 1024 * 1024
_SPARE_BYTES: Final = 8 * 1024 * 1024


def use_one_arena() -> bool:
    """Before threads are started; whether the C library knows arenas."""
    return _set(_M_ARENA_MAX, 1)


def release_large_blocks() -> bool:
    """Blocks of 2 MiB and more return to the system when they are freed; whether the C library can
    be told.

    glibc does so until the first one is freed; then it takes those of that size from the heap,
    where small ones between them keep what the large ones took. Each costs its page faults: what is
    needed all the time, as a range's compressed body, is less.
    """
    return _set(_M_MMAP_THRESHOLD, _LARGE_BYTES) and _set(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def _set(option: int, value: int) -> bool:
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and library.mallopt(option, value) == 1


def trim_heap() -> None:
    """What a start has left behind, in whole pages: a few MiB that large blocks would not
    fit into.
    """
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))
