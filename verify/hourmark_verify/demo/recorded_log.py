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
    """A growing log file with rotation that records size and digest of all written content.

    Rotated files are named `path.1`, `path.2` and so on, in order of rotation. Records are computed
    from the written bytes and never read back from the files.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rotated: list[Written] = []
        self._begin_file()

    @property
    def records(self) -> list[Written]:
        """Records of the rotated files, oldest first, and of the current file."""
        now = Written(
            path=str(self.path),
            bytes=self._bytes,
            blake2b=self._digest.hexdigest(),
            broken=self._broken,
        )
        return [*self.rotated, now]

    def append(self, content: bytes | bytearray, broken: Iterable[int] = ()) -> None:
        """Append content to the current file and flush it.

        Args:
            content: bytes to append.
            broken: offsets within `content` of the lines that must become dead letters.
        """
        self._broken += [self._bytes + position for position in broken]
        self._bytes += len(content)
        self._digest.update(content)
        self._file.write(content)
        self._file.flush()

    def rotate(self) -> None:
        """Rename the current file and continue in a new file."""
        self._file.close()
        self.rotated = self.records
        self.path.rename(self._last_rotated)
        self._begin_file()

    def copy_and_truncate(self) -> None:
        """Copy the current file, truncate it to zero bytes and continue in it.

        This is logrotate's `copytruncate`. Do not write concurrently.
        """
        self._file.close()
        self.rotated = self.records
        shutil.copyfile(self.path, self._last_rotated)
        os.truncate(self.path, 0)
        self._begin_file()

    def close(self) -> None:
        """Close the current file."""
        self._file.close()

    @property
    def _last_rotated(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{len(self.rotated)}")

    def _begin_file(self) -> None:
        self._file = self.path.open("ab")
        self._bytes, self._digest, self._broken = 0, hashlib.blake2b(digest_size=16), list[int]()
