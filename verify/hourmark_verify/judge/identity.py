"""File ids, event ids and range ids, implemented independently from the design.

- file id: 32 hexadecimal digits of BLAKE2b-128 over device, inode and birth time in nanoseconds,
  8 bytes big-endian each
- event id: UUID version 8 of 48 bits of event time (Unix milliseconds) and the first 74 bits of
  BLAKE2b-80 over the parts "line", host id, file id, generation, offset, and line without LF. Each
  part follows its length in 4 bytes, big-endian. For an API event with an id of its client, the
  parts are "client", event type and that id
- range id: BLAKE2b-64 over the parts "range", the fields of the range as text, and its bytes
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
from collections.abc import Iterable
from typing import Final

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_BUFFER_SIZE: Final = 256
# Python's os.stat does not give the birth time on Linux.
_BTIME: Final = struct.Struct("=qI")  # struct statx, stx_btime: seconds, nanoseconds
_BTIME_OFFSET: Final = 80


def birth_ns(descriptor: int) -> int:
    """Return the birth time of an open file in nanoseconds since the Unix epoch.

    Args:
        descriptor: Descriptor of the open file.

    Returns:
        The birth time, or 0 if the kernel or the file system does not provide it.
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


_LOW: Final = (1 << 62) - 1  # of the 74 bits, those after the variant


def file_id(descriptor: int) -> str:
    """Return the file id of an open file, which stays the same when the file is renamed.

    The id is the BLAKE2b-128 digest of device, inode and birth time.

    Args:
        descriptor: Descriptor of the open file.

    Returns:
        32 hexadecimal digits.
    """
    status = os.fstat(descriptor)
    digest = hashlib.blake2b(digest_size=16)
    for number in (status.st_dev, status.st_ino, birth_ns(descriptor)):
        digest.update(number.to_bytes(8, "big"))
    return digest.hexdigest()


def line_digest(host_id: str, file: str, generation: int, offset: int, line: bytes) -> int:
    """Return the 74-bit digest of a log line and its position.

    The event id of the line consists of the event time and this digest.

    Args:
        host_id: Id of the host on which the file is.
        file: File id, 32 hexadecimal digits.
        generation: Generation of the file (how often it was truncated).
        offset: Byte offset of the start of the line.
        line: Content of the line without its line feed.
    """
    parts = (
        b"line",
        host_id.encode(),
        file.encode(),
        generation.to_bytes(8, "big"),
        offset.to_bytes(8, "big"),
        line,
    )
    return _digest_74_bits(parts)


def client_event_digest(event_type: str, client_id: str) -> int:
    """Return the 74-bit digest for an event that was posted with an id of the client.

    The event id consists of the event time and this digest.

    Args:
        event_type: Name of the event type.
        client_id: Id that the client assigned to the event.
    """
    return _digest_74_bits((b"client", event_type.encode(), client_id.encode()))


def range_id(fields: Iterable[object], content: bytes) -> bytes:
    """Return the 8-byte id of a byte range of a source file.

    Args:
        fields: In this order: host id; file id; generation (how often the file was truncated);
            start and end of the range, as byte offsets; observation time in Unix milliseconds; id
            of the revision of the type declarations; time zone; source; path; host; part ("lines"
            for whole lines, "chunk" or "last-chunk" for a piece of a long line); then the names and
            values of optional settings, as `FileExpectation.range_settings` yields them.
        content: The bytes of the range.

    Returns:
        BLAKE2b-64 digest of all fields, as text, and the content.
    """
    parts = (b"range", *(str(field).encode(errors="surrogateescape") for field in fields), content)
    return _digest(parts, 8)


def _digest_74_bits(parts: Iterable[bytes]) -> int:
    return (
        int.from_bytes(_digest(parts, 10), "big") // 64
    )  # 80 bits, of which the last 6 are not used


def _digest(parts: Iterable[bytes], size: int) -> bytes:
    digest = hashlib.blake2b(digest_size=size)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()


def event_id(time_ms: int, digest: int) -> bytes:
    """Return the 16-byte event id, a version 8 UUID that consists of a timestamp and a digest.

    Args:
        time_ms: Event time in Unix milliseconds.
        digest: 74-bit digest as returned by `line_digest` or `client_event_digest`.
    """
    return (
        time_ms % (1 << 48) << 80 | 8 << 76 | digest >> 62 << 64 | 2 << 62 | digest & _LOW
    ).to_bytes(16, "big")


def digest_in_event_id(id_bytes: bytes) -> int:
    """Extract the digest from an event id, which consists of a timestamp and a digest.

    Args:
        id_bytes: Event id, 16 bytes, as returned by `event_id`.

    Returns:
        The 74-bit digest.
    """
    number = int.from_bytes(id_bytes, "big")
    return (number >> 64 & 0xFFF) << 62 | number & _LOW
