"""The larger bodies of spooled ranges, in a file beside the checkpoint, whose rows say where in it.

SQLite writes what it is given page by page, and twice: into its log, and from there into the database. For ranges of a backlog
that took more CPU than all else that a spool needs. Small ones stay in the database: they need no second fsync there.

A body is synced before the transaction that names its place, and the place is given to another only once the transaction that
took the range out is durable. So no row ever names what is not there, whenever the power goes. A checkpoint that is closed in
order has all bodies in its database again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import zstandard

from hourmark.durable import sync_folder

BESIDE_BYTES: Final = 32 << 10  # a body of so much goes into the file
_BLOCK_BYTES: Final = 4096  # no two bodies share one: writing one leaves the others alone
_ENDING_BYTES: Final = 4  # zstd ends a frame with the checksum of what is in it


class BodyDamaged(Exception):
    """What lies at its place is not the body that was put there."""


class Extent(NamedTuple):
    """Where a body lies, and how it ends."""

    at: int
    size: int
    ending: bytes

    @classmethod
    def read(cls, text: str) -> Extent:
        """As `str` wrote it. ValueError."""
        at, size, ending = text.split(":")
        return cls(int(at), int(size), bytes.fromhex(ending))

    def __str__(self) -> str:
        return f"{self.at}:{self.size}:{self.ending.hex()}"


class Bodies:
    """The file, open. Used by whoever holds the checkpoint's database."""

    def __init__(self, path: Path, taken: Mapping[int, Extent]) -> None:
        """`taken`: by sequence number. OSError."""
        is_new = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._taken = dict(taken)
        self._doubted = set[int]()
        if is_new:
            sync_folder(path.parent)
        elif not taken:
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Let go of the file; a thread that is late writes into no other that has its number."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def put(self, bodies: Mapping[int, bytes]) -> dict[int, Extent]:
        """Where they lie now, durably. OSError: nowhere."""
        placed = dict[int, Extent]()
        for sequence, body in bodies.items():
            placed[sequence] = Extent(self._room(len(body), placed.values()), len(body), body[-_ENDING_BYTES:])
            _write(self._descriptor, body, placed[sequence].at)
        if placed:
            os.fdatasync(self._descriptor)
        self._taken |= placed
        return placed

    def settled(self, left: Collection[int]) -> None:
        """A transaction is durable, in which these ranges were taken out; what was in doubt before it never came to be."""
        for sequence in (*left, *self._doubted):
            self._taken.pop(sequence, None)
        self._doubted.clear()

    def doubt(self, put: Collection[int]) -> None:
        """The transaction that names these failed: none of it is seen again, but until the next it may be on the disk."""
        self._doubted |= set(put)

    def get(self, extent: Extent) -> bytes:
        """OSError, BodyDamaged."""
        body = os.pread(self._descriptor, extent.size, extent.at)
        if len(body) != extent.size or body[-_ENDING_BYTES:] != extent.ending:
            raise BodyDamaged(f"a range's body is not at byte {extent.at}, where it was written")
        return body

    def check(self, lengths: Mapping[int, int]) -> None:
        """That all are whole, of so many bytes inflated. OSError, BodyDamaged."""
        for sequence, extent in self._taken.items():
            try:
                is_whole = len(zstandard.ZstdDecompressor().decompress(self.get(extent))) == lengths[sequence]
            except zstandard.ZstdError:
                is_whole = False
            if not is_whole:
                raise BodyDamaged(f"a range's body at byte {extent.at} is not as it was written")

    def _room(self, size: int, placed: Collection[Extent]) -> int:
        """The first place that is free for it."""
        at = 0
        for extent in sorted((*self._taken.values(), *placed)):
            if extent.at - at >= size:
                break
            at = -(-(extent.at + extent.size) // _BLOCK_BYTES) * _BLOCK_BYTES
        return at


def _write(descriptor: int, body: bytes, at: int) -> None:
    left = memoryview(body)
    while left:
        written = os.pwrite(descriptor, left, at)
        left, at = left[written:], at + written
