"""A record that can be told from any other: whose run it is, which number it has, and whether a
byte of it changed.

16 bytes run | 8 bytes number, big-endian | text up to the length wanted | 4 bytes CRC-32 of all
before
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
class Form:
    """How the records of one run look."""

    run: bytes
    length: int

    def encode(self, number: int) -> bytes:
        """The record of this number."""
        head = _HEAD.pack(self.run, number)
        room = self.length - LENGTH_MIN
        shift = number % len(_FILLER)
        body = head + (_FILLER[shift:] + _FILLER * (room // len(_FILLER) + 1))[:room]
        return body + _TAIL.pack(zlib.crc32(body))

    def number_of(self, value: bytes | None) -> int | None:
        """The number of a record of this run; None for any other, and where a byte of it
        changed.
        """
        if value is None or len(value) != self.length or not value.startswith(self.run):
            return None
        if zlib.crc32(value[: -_TAIL.size]) != _TAIL.unpack_from(value, len(value) - _TAIL.size)[0]:
            return None
        number: int = _HEAD.unpack_from(value)[1]
        return number


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each number goes: `shares` of every so many to each topic, in turn over its
    partitions.
    """

    topics: tuple[str, ...]
    shares: tuple[int, ...]
    partitions: int

    def place(self, number: int) -> tuple[str, int]:
        """Topic and partition."""
        round_, left = divmod(number, sum(self.shares))
        for topic, share in zip(self.topics, self.shares, strict=True):
            if left < share:
                return topic, round_ % self.partitions
            left -= share
        raise AssertionError("the shares add up to their sum")

    def places(
        self, numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """`place` of many: indices into `topics`, and partitions."""
        rounds, left = np.divmod(numbers, sum(self.shares))
        topics: npt.NDArray[np.int64] = np.searchsorted(
            np.cumsum(self.shares), left, side="right"
        ).astype(np.int64)
        return topics, rounds % self.partitions
