"""A log file that grows and is rotated, by rename or as copytruncate does, and its writer's own
record of what it was handed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from hourmark_verify.judge.expectations import Written


class RecordedLog:
    """`path`, and `path.1`, `path.2`, … in the order of their rotation.

    Nothing of `records` is read from the files.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rotated: list[Written] = []
        self._begin_file()

    @property
    def records(self) -> list[Written]:
        """Of the rotated files, and of the one that is written to."""
        now = Written(
            path=str(self.path),
            bytes=self._bytes,
            blake2b=self._digest.hexdigest(),
            broken=self._broken,
        )
        return [*self.rotated, now]

    def append(self, content: bytes | bytearray, broken: Iterable[int] = ()) -> None:
        """Write it as a whole; `broken`: where in it lines begin that must become dead letters."""
        self._broken += [self._bytes + position for position in broken]
        self._bytes += len(content)
        self._digest.update(content)
        self._file.write(content)
        self._file.flush()

    def rotate(self) -> None:
        """By rename; what follows goes into a new file."""
        self._file.close()
        self.rotated = self.records
        self.path.rename(self._last_rotated)
        self._begin_file()

    def copy_and_truncate(self) -> None:
        """As logrotate's copytruncate, while nobody writes: the same file goes on, from its
        beginning.
        """
        self._file.close()
        self.rotated = self.records
        shutil.copyfile(self.path, self._last_rotated)
        os.truncate(self.path, 0)
        self._begin_file()

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    @property
    def _last_rotated(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{len(self.rotated)}")

    def _begin_file(self) -> None:
        self._file = self.path.open("ab")
        self._bytes, self._digest, self._broken = 0, hashlib.blake2b(digest_size=16), list[int]()
