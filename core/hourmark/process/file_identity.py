"""Identity of an open file: device, inode and birth time from statx(2).

The birth time distinguishes a file from a later one with the same inode. File systems without birth
times report 0; then only size and content can tell (`hourmark_producer.files.fingerprints`). On
overlayfs the birth time changes when a file of a lower layer is copied up, and the content decides.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final, NamedTuple

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_OVERLAYFS_MAGIC: Final = 0x794C7630  # f_type of statfs(2), see linux/magic.h
_STATFS_BYTES: Final = 256  # more than struct statfs has on any architecture


class FileIdentity(NamedTuple):
    """Device, inode and birth time, which identify a file even after it is renamed.

    Attributes:
        device: Device number.
        inode: Inode number.
        birth_ns: Birth time in Unix nanoseconds; 0 if the file system does not record it.
    """

    device: int
    inode: int
    birth_ns: int


def open_without_waiting(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY | os.O_CLOEXEC
) -> int:
    """Open a file for reading, without waiting for a writer if it is a FIFO.

    The function adds `O_NONBLOCK` and `O_NOCTTY` to the flags. It can be passed to the built-in
    `open` as `opener`.

    Args:
        path: Path of the file.
        flags: Flags of open(2).

    Returns:
        The descriptor, which the caller must close.

    Raises:
        OSError: The file cannot be opened.
    """
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


# struct statx of linux/stat.h: the mask, then at byte 80 the birth time, seconds and nanoseconds
_STRUCT_SIZE: Final = 256
_MASK_AND_BIRTH: Final = struct.Struct("=I76xqI")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_STATX = getattr(_LIBC, "statx", None)
_FSTATFS = getattr(_LIBC, "fstatfs", None)


def identify(descriptor: int) -> FileIdentity:
    """Return the device, inode and birth time of an open file.

    Args:
        descriptor: File descriptor. It need not be open for reading.

    Raises:
        OSError: fstat(2) failed, for example because the descriptor is closed.
    """
    status = os.fstat(descriptor)
    return FileIdentity(status.st_dev, status.st_ino, _birth_ns(descriptor))


def _birth_ns(descriptor: int) -> int:
    if _STATX is None:
        return 0
    answer = ctypes.create_string_buffer(_STRUCT_SIZE)
    if _STATX(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer) != 0:
        return 0
    mask, seconds, nanoseconds = _MASK_AND_BIRTH.unpack_from(answer)
    return max(0, seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else 0


def may_be_copied_up(descriptor: int) -> bool:
    """Return whether an open file is on overlayfs, where its birth time can change once.

    Containers usually use overlayfs. On the first write to a file of the image, overlayfs copies
    the file up to the writable layer. The copy has the same inode number, but a new birth time.

    Args:
        descriptor: File descriptor. It need not be open for reading.

    Returns:
        True on overlayfs. False on other file systems, or if the type of the file system cannot be
        determined.
    """
    return _file_system_type(descriptor) == _OVERLAYFS_MAGIC


def _file_system_type(descriptor: int) -> int:
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _FSTATFS is None or _FSTATFS(descriptor, answer) != 0:
        return 0
    return ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF
