"""Event ids: 16 bytes, made once, the same on every retry.

A UUID of RFC 9562, version 8, so that any tool prints it and ids sort by event time:

    bits   0..47   event time, Unix milliseconds, unsigned
    bits  48..51   version, 0b1000
    bits  52..63   digest bits 0..11
    bits  64..65   variant, 0b10
    bits  66..127  digest bits 12..73

The digest is BLAKE2b (RFC 7693, unkeyed, digest length 10 bytes) over length-prefixed parts: each
part is preceded by its length as 4 bytes big-endian, so that no two lists of parts run together.
Its first 74 bits are used. The parts are

    of a line             "line", host id, file id, generation (8 bytes big-endian), offset (the same), the bytes without the LF
    of an API event       "client", type, the client's own id
    or, without an id     "batch", type, batch key, index (8 bytes big-endian)

where texts are UTF-8 and ids are their 32 hex digits.
Golden vectors: tests/contract/vectors/event_ids.json.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Final

SIZE: Final = 16
TIME_MS_MAX: Final = (1 << 48) - 1

_DIGEST_SIZE: Final = 10
_VERSION: Final = 0x8 << 76
_VARIANT: Final = 0x2 << 62
_LOW_62: Final = (1 << 62) - 1


class EventId(bytes):
    """A 16-byte event id: a version 8 UUID that sorts by event time.

    Instances compare and hash like `bytes`. `str` returns the text form of the UUID. The
    constructor raises `ValueError` if the value does not have 16 bytes.
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> EventId:
        if len(value) != SIZE:
            raise ValueError(f"an event id has {SIZE} bytes, not {len(value)}")
        return super().__new__(cls, value)

    @property
    def time_ms(self) -> int:
        """Return the event time that the id contains, in Unix milliseconds."""
        return int.from_bytes(self[:6], "big")

    @property
    def low64(self) -> int:
        """Return the last 8 bytes of the id as an unsigned big-endian integer.

        Audit records contain sums of these integers; see `sum_low64`.
        """
        return int.from_bytes(self[8:], "big")

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=bytes(self)))


class LineIds:
    """A generator of event ids for the lines of one file.

    The same line with the same time at the same offset always gets the same id. A line that is sent
    twice therefore produces no duplicate.

    Args:
        host_id: Id of the host: 32 hex digits.
        file_id: Id of the file: 32 hex digits.
        generation: Number of times that the file has been truncated.
    """

    def __init__(self, host_id: str, file_id: str, generation: int) -> None:
        self.prefix = _framed(
            b"line", host_id.encode(), file_id.encode(), generation.to_bytes(8, "big")
        )  # of what is hashed
        self._prefix = hashlib.blake2b(self.prefix, digest_size=_DIGEST_SIZE)

    def make(self, time_ms: int, offset: int, line: bytes) -> EventId:
        """Compute the event id of a line from its time, position and content.

        Args:
            time_ms: Event time in Unix milliseconds.
            offset: Byte offset of the line in the file, counted from the last truncation.
            line: The line without its line feed.

        Returns:
            The 16-byte id. The same arguments always give the same id.

        Raises:
            ValueError: The time is negative or does not fit in 48 bits.
        """
        digest = self._prefix.copy()
        digest.update(
            b"\x00\x00\x00\x08" + offset.to_bytes(8, "big") + len(line).to_bytes(4, "big")
        )
        digest.update(line)
        return _assemble(time_ms, digest.digest())


def client_event_id(time_ms: int, event_type: str, client_id: str) -> EventId:
    """Compute the id of an event that was sent to the HTTP API with a client-assigned id.

    The result depends only on the arguments. It does not depend on the name of the client, so a
    retry under another client name produces no duplicate.

    Args:
        time_ms: Event time in Unix milliseconds.
        event_type: Name of the event type.
        client_id: The field `event_id` of the event as sent by the client.

    Raises:
        ValueError: The time is negative or does not fit in 48 bits.
    """
    return _assemble(time_ms, _digest(b"client", event_type.encode(), client_id.encode()))


def batch_event_id(time_ms: int, event_type: str, batch_key: str, index: int) -> EventId:
    """Compute the id of an event that was sent to the HTTP API without a client-assigned id.

    The result depends only on the arguments, so a retry of a batch with the same idempotency key
    produces the same ids.

    Args:
        time_ms: Event time in Unix milliseconds.
        event_type: Name of the event type.
        batch_key: Idempotency key of the batch.
        index: Position of the event in the batch, from 0.

    Raises:
        ValueError: The time is negative or does not fit in 48 bits.
    """
    return _assemble(
        time_ms,
        _digest(b"batch", event_type.encode(), batch_key.encode(), index.to_bytes(8, "big")),
    )


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(_framed(*parts), digest_size=_DIGEST_SIZE).digest()


def _framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _assemble(time_ms: int, digest: bytes) -> EventId:
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise ValueError(
            f"event time {time_ms} ms is outside the range of an event id (0 to {TIME_MS_MAX})"
        )
    bits = int.from_bytes(digest, "big") >> 6
    value = (time_ms << 80) | _VERSION | ((bits >> 62) << 64) | _VARIANT | (bits & _LOW_62)
    return EventId(value.to_bytes(SIZE, "big"))
