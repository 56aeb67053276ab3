"""File ids and event ids, read from the design's text and written a second time.

file id   32 hex digits of BLAKE2b-128 over device, inode and birth time in ns, 8 bytes big-endian each
event id  UUID version 8: 48 bits of event time (Unix ms), then the first 74 bits of BLAKE2b-80 over the parts "line", host id,
          file id, generation, offset, line without its LF; each part preceded by its length in 4 bytes, big-endian
"""

from __future__ import annotations

import hashlib
import os
import uuid

from infra.judge.statx import birth_ns


def file_id(descriptor: int) -> str:
    """The id of an open file."""
    status = os.fstat(descriptor)
    digest = hashlib.blake2b(digest_size=16)
    for number in (status.st_dev, status.st_ino, birth_ns(descriptor)):
        digest.update(number.to_bytes(8, "big"))
    return digest.hexdigest()


def digest_bits(host_id: str, file: str, generation: int, offset: int, line: bytes) -> int:
    """The 74 bits that an event's id must carry after its time, as a number."""
    digest = hashlib.blake2b(digest_size=10)
    parts = (b"line", host_id.encode(), file.encode(), generation.to_bytes(8, "big"), offset.to_bytes(8, "big"), line)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big") // 64  # 80 bits, of which the last 6 are not used


def id_fault(event_id: bytes, time_ms: int, bits: int | None) -> str | None:
    """What is wrong with an id, or None. `bits` None leaves the digest unchecked (the host id is not known)."""
    if len(event_id) != 16:
        return f"the event id has {len(event_id)} bytes"
    parsed = uuid.UUID(bytes=event_id)
    if parsed.variant != uuid.RFC_4122 or parsed.version != 8:
        return f"the event id {parsed} is no UUID of version 8"
    number = parsed.int
    if number >> 80 != time_ms:
        return f"the event id {parsed} holds the time {number >> 80} ms, the event {time_ms} ms"
    held = ((number >> 64 & 0xFFF) << 62) | (number & ((1 << 62) - 1))
    if bits is not None and held != bits:
        return f"the event id {parsed} is not the digest of this host, file, position and line"
    return None
