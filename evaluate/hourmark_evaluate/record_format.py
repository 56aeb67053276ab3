"""The format of test records, with run identifier, record number and checksum.

Layout: 16 bytes of run identifier, 8 bytes of big-endian record number, filler text up to the
configured length, and 4 bytes of CRC-32 of everything before.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

RUN_BYTES: Final = 16
_HEAD: Final = struct.Struct(">16sQ")
_TAIL: Final = struct.Struct(">I")
LENGTH_MIN: Final = _HEAD.size + _TAIL.size
_FILLER: Final = b'{"page":"/start","milliseconds":31,"user":"u-0001","agent":"example/1.0","at":"2026-01-01T00:00:00.000Z"}'


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The format of the test records that one evaluation sends.

    Attributes:
        run_id: Identifier of the run, 16 bytes.
        length: Length of each record in bytes, at least 28.
    """

    run_id: bytes
    length: int

    def encode(self, number: int) -> bytes:
        """Encode the record with a given number.

        A record consists of the run identifier, the number, filler text and a CRC-32 checksum. It
        is `length` bytes long.

        Args:
            number: Record number, from 0 to 2**64 - 1.
        """
        head = _HEAD.pack(self.run_id, number)
        room = self.length - LENGTH_MIN
        shift = number % len(_FILLER)
        body = head + (_FILLER[shift:] + _FILLER * (room // len(_FILLER) + 1))[:room]
        return body + _TAIL.pack(zlib.crc32(body))

    def decode_number(self, value: bytes | None) -> int | None:
        """Check an encoded record and return its number.

        Args:
            value: Value of a Kafka message.

        Returns:
            The number; None if the value is None, belongs to another run, or was altered.
        """
        if value is None or len(value) != self.length or not value.startswith(self.run_id):
            return None
        if zlib.crc32(value[: -_TAIL.size]) != _TAIL.unpack_from(value, len(value) - _TAIL.size)[0]:
            return None
        number: int = _HEAD.unpack_from(value)[1]
        return number


@dataclass(frozen=True, slots=True)
class RecordPlacement:
    """The assignment of record numbers to topics and partitions.

    Records are assigned in rounds of `sum(shares)` consecutive numbers. In each round, every topic
    receives as many records as its share. All records of a round have the same partition number;
    the next round uses the next partition, cyclically. For example, with the topics `a` and `b`,
    shares 2 and 1, and two partitions, the records 0 to 5 are assigned to a-0, a-0, b-0, a-1, a-1
    and b-1.

    Attributes:
        topics: Names of the topics.
        shares: Number of records of each topic per round, in the order of `topics`.
        partitions: Number of partitions of each topic.
    """

    topics: tuple[str, ...]
    shares: tuple[int, ...]
    partitions: int

    def assign(self, number: int) -> tuple[str, int]:
        """Return the topic and partition to which a record is sent.

        Args:
            number: Record number, at least 0.

        Returns:
            Name of the topic, and partition number.
        """
        round_, left = divmod(number, sum(self.shares))
        for topic, share in zip(self.topics, self.shares, strict=True):
            if left < share:
                return topic, round_ % self.partitions
            left -= share
        raise AssertionError("the shares add up to their sum")

    def assign_many(
        self, numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the topics and partitions to which record numbers are assigned.

        Args:
            numbers: Record numbers, a one-dimensional array.

        Returns:
            Two arrays of the same length as `numbers`: indices into `topics`, and partitions.
        """
        rounds, left = np.divmod(numbers, sum(self.shares))
        topics: npt.NDArray[np.int64] = np.searchsorted(
            np.cumsum(self.shares), left, side="right"
        ).astype(np.int64)
        return topics, rounds % self.partitions
