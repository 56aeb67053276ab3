"""Configuration of the C library's memory allocator.

By default, glibc gives each thread an arena of its own, and an arena keeps what its largest
allocations took. malloc_trim(3) releases the free end of the first arena only, so memory from a
burst of requests would stay resident. Python threads run one at a time, so a common arena costs no
measurable time.
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
    """Make all threads of the process allocate memory from one glibc arena (`M_ARENA_MAX`).

    This reduces memory use, but increases contention between threads. Call the function before any
    thread is started.

    Returns:
        True if the option was set. False if the C library does not support it.
    """
    return _set(_M_ARENA_MAX, 1)


def release_large_blocks() -> bool:
    """Make the allocator return freed blocks of 2 MiB and more to the operating system.

    By default, glibc does so only until the first such block is freed. It then allocates large
    blocks from the heap, where neighboring small blocks keep freed memory resident. The drawback is
    that each allocation of a large block causes page faults.

    Returns:
        True if the options were set. False if the C library does not support them.
    """
    return _set(_M_MMAP_THRESHOLD, _LARGE_BYTES) and _set(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def _set(option: int, value: int) -> bool:
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and library.mallopt(option, value) == 1


def trim_heap() -> None:
    """Return free pages of the heap to the operating system (`malloc_trim`).

    Call this function after startup, which leaves a few MiB of free memory. It has no effect if the
    C library does not support `malloc_trim`.
    """
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))
