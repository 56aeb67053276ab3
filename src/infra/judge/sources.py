"""The lines of the source files: where each starts, of which type it is, and where it was found."""

from __future__ import annotations

import dataclasses
import glob
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from infra.judge import rfc5424
from infra.judge.expectations import Expectations, FileExpectation
from infra.judge.identity import file_id

NO_TYPE = "(none)"  # of a line that names no type of the expectations
_NOWHERE = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A terminated line of a source file; `content` is without its LF."""

    index: int
    start: int
    content: bytes


class SourceFile:
    """One file, held open, so that a rename does not matter. `where` holds 1 + the index of the place a line was found in."""

    def __init__(self, path: Path, told: FileExpectation, types: list[str]) -> None:
        self.path = path
        self.told = told
        self._types = types
        self._file = path.open("rb")
        self.id = file_id(self._file.fileno())
        status = os.fstat(self._file.fileno())
        self.inode = (status.st_dev, status.st_ino)
        self._starts = array("Q")
        self._type_codes = bytearray()
        self._end = 0  # of the last terminated line within `size`
        self._index()
        self.where = array("I", bytes(4 * len(self._starts)))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._starts)

    def line_at(self, position: int) -> Line | None:
        """The line that holds this byte, or None where no terminated line within `size` does."""
        index = bisect_right(self._starts, position) - 1
        if index < 0 or position >= self._end:
            return None
        start = self._starts[index]
        return Line(index, start, self.read(start, self._line_end(index) - 1 - start))

    def terminated_at(self, position: int) -> bool:
        """Whether a LF follows this byte in the file as it is now, beyond `size` too."""
        self._file.seek(position)
        return self._file.readline().endswith(b"\n")

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file."""
        return os.pread(self._file.fileno(), size, position)

    def length(self, index: int) -> int:
        """Bytes of a line without its LF."""
        return self._line_end(index) - 1 - self._starts[index]

    def start(self, index: int) -> int:
        """Where a line starts."""
        return self._starts[index]

    def type_of(self, index: int) -> str:
        """The type that a line says it is of; NO_TYPE where it says none that is known."""
        return self._types[self._type_codes[index]]

    def missing(self) -> Iterator[int]:
        """Indexes of the lines that were found nowhere."""
        return (index for index, place in enumerate(self.where) if place == _NOWHERE)

    def _line_end(self, index: int) -> int:
        return self._starts[index + 1] if index + 1 < len(self._starts) else self._end

    def _index(self) -> None:
        position, limit = 0, self.told.size
        for line in self._file:
            after = position + len(line)
            if not line.endswith(b"\n") or (limit is not None and after > limit):
                break
            self._starts.append(position)
            self._type_codes.append(self._types.index(self._claimed(line[:-1])))
            position = self._end = after

    def _claimed(self, line: bytes) -> str:
        if self.told.type is not None:
            return self.told.type
        parts = rfc5424.split(line) if self.told.form == "rfc5424" else None
        return parts.msgid if parts is not None and parts.msgid in self._types else NO_TYPE


def open_sources(expectations: Expectations) -> dict[tuple[str, int], SourceFile]:
    """All source files by (file id, generation), each once by device and inode. FileNotFoundError if a path names none."""
    declared = {*expectations.types, *(told.type for told in expectations.files if told.type)}
    types = [NO_TYPE, *sorted(declared)]
    assert len(types) <= 256, "a type is kept in a byte"
    found: dict[tuple[int, int], SourceFile] = {}
    for told in expectations.files:
        paths = sorted(glob.glob(told.path, recursive=True))  # noqa: PTH207  # absolute globs, which Path.glob refuses
        if not paths:
            raise FileNotFoundError(f"no source file {told.path}")
        for path in paths:
            status = Path(path).stat()
            if (status.st_dev, status.st_ino) not in found:
                found[(status.st_dev, status.st_ino)] = SourceFile(Path(path), told, types)
    return {(file.id, file.told.generation): file for file in found.values()}
