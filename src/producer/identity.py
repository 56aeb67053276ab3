"""Which file an open descriptor is: device, inode and birth time, from statx(2).

The birth time tells a file from a later one that was given the same inode. Some file systems do not keep it; then it is 0,
and only size and content can tell (see `producer.truncation`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from typing import Final

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """What makes a file this file, whatever its name. `birth_ns`: Unix nanoseconds, 0 where unknown."""

    device: int
    inode: int
    birth_ns: int


class _Timestamp(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_uint32), ("reserved", ctypes.c_int32))


class _Statx(ctypes.Structure):
    """struct statx of linux/stat.h: 256 bytes, of which the mask and the birth time are read."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("skipped", ctypes.c_uint8 * 76),
        ("birth", _Timestamp),
        ("rest", ctypes.c_uint8 * 160),
    )


assert ctypes.sizeof(_Statx) == 256 and _Statx.birth.offset == 80, "struct statx is laid out otherwise"

_STATX = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
if _STATX is not None:
    _STATX.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Statx))


def identify(descriptor: int) -> Identity:
    """The identity of an open file; OSError as of fstat(2)."""
    status = os.fstat(descriptor)
    return Identity(status.st_dev, status.st_ino, _birth_ns(descriptor))


def _birth_ns(descriptor: int) -> int:
    if _STATX is None:
        return 0
    answer = _Statx()
    if _STATX(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, ctypes.byref(answer)) != 0 or not answer.mask & _STATX_BTIME:
        return 0
    return max(0, int(answer.birth.seconds) * 1_000_000_000 + int(answer.birth.nanoseconds))
