"""Birth time of an open file, through statx(2). Python's `os.stat` does not give it on Linux."""

from __future__ import annotations

import ctypes
import struct
from typing import Final

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_BUFFER_SIZE: Final = 256
_BTIME: Final = struct.Struct("=qI")  # struct statx, stx_btime: seconds, nanoseconds
_BTIME_OFFSET: Final = 80


def birth_ns(descriptor: int) -> int:
    """Return the birth time of an open file in nanoseconds since the Unix epoch.

    Args:
        descriptor: descriptor of the open file.

    Returns:
        The birth time, or 0 if the kernel or the file system does not supply it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(_BUFFER_SIZE)
    if libc.statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", buffer)
    if not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _BTIME.unpack_from(buffer, _BTIME_OFFSET)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
