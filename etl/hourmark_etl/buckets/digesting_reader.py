"""Counting and hashing of the bytes that are read from a file of a bucket."""

from __future__ import annotations

import hashlib
from typing import BinaryIO, Final

_DIGEST_SIZE: Final = 16  # bytes
_READ_BYTES: Final = 1 << 20


class DigestingReader:
    """Wrapper of a binary file that counts and hashes all bytes that are read.

    Args:
        file: Binary file to read.

    Attributes:
        digest: BLAKE2b hash object (16 bytes) of the bytes read so far.
        bytes: Number of bytes read so far.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        self.bytes += len(data)
        return data

    def read_rest(self) -> None:
        """Read the file to its end, so that `digest` and `bytes` cover all of it."""
        while self.read(_READ_BYTES):
            pass
