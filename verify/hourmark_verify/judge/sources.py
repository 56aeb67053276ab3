"""Source files and their lines: the start offset, event type and match state of each line.

Records of more than one line: where they begin, by a look at each line alone.

The lines of the source files: where each starts, of which type it is, and where it was found.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import itertools
import os
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from hourmark_verify.judge import rfc5424
from hourmark_verify.judge.container_logs import ContainerRecord, join_partial_lines
from hourmark_verify.judge.expectations import Expectations, FileExpectation, WriterRecord
from hourmark_verify.judge.identity import file_id
from hourmark_verify.judge.report import FindingKind, JudgeReport


class RecordStartMatcher:
    """A predicate that decides whether a line starts a multi-line record."""

    def __init__(self, record_start: str, flushed: list[int]) -> None:
        self._pattern = re.compile(record_start.encode())
        self._flushed = frozenset(flushed)

    def __call__(self, start: int, line: bytes) -> bool:
        """Return whether the line starts a record.

        Args:
            start: byte offset of the line in its file.
            line: content of the line; a trailing line feed is ignored.
        """
        return start in self._flushed or self._pattern.search(line.removesuffix(b"\n")) is not None


def split_record(start: int, size: int, size_max: int) -> Iterator[tuple[int, bool]]:
    """Yield the start offset of each piece of a record and whether the piece is the last.

    Args:
        start: byte offset of the record in its file.
        size: size of the record in bytes, including its last line feed.
        size_max: maximum size of a piece in bytes, excluding the line feed.

    Yields:
        (offset, is_last); a record that fits within the limit yields exactly one pair.
    """
    if size <= size_max + 1:
        yield start, True
        return
    for at in range(start, start + size, size_max):
        yield at, at + size_max >= start + size


NO_TYPE = "(none)"  # of a line that names no type of the expectations


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLine:
    """A terminated line of a source file, or a piece of one that is over-long, terminated or not;
    `content` is without its LF.
    """

    index: int
    start: int
    content: bytes
    part: str
    container: ContainerRecord | None = None  # where it is a record of a container's log

    @property
    def blank(self) -> bool:
        """Whether it has no byte but CR, and LF within a record."""
        return self.part == "lines" and not self.content.strip(b"\r\n")


class SourceFile:
    """One file, held open, so that a rename does not matter.

    By line: `starts` holds where it starts, `where` 1 + the index of the place it was found in.
    """

    def __init__(
        self, path: Path, file: FileExpectation, types: list[str], told: Expectations
    ) -> None:
        self.name = str(path)
        self.told = file
        self.hosts, self.host_ids = file.host or told.host, file.host_id or told.host_id
        self.record: WriterRecord | None = None  # the writer's
        self._types, self._line_bytes_max = types, told.line_bytes_max
        self._file = path.open("rb")
        self.id = file_id(self._file.fileno())
        self.starts = array("Q")
        self._type_codes = bytearray()
        self._end = 0  # of the last line, or piece of one, that can have been sent
        self.where = array("I")
        self._begins = (
            RecordStartMatcher(file.record_start, file.flushed)
            if file.record_start is not None
            else None
        )
        self._pieces = set[int]()  # of over-long records, all but the last
        self._extend()
        size = self._end if file.size is None else file.size
        self.required = sum(
            self._next(index) <= size for index in range(len(self.starts))
        )  # the rest need not be there

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def line_at(self, position: int) -> SourceLine | None:
        """Return the line, or piece of an over-long line, that contains a byte offset.

        Args:
            position: byte offset in the file.

        Returns:
            The line, or None if no complete line or piece contains the offset.
        """
        if position >= self._end:
            self._extend()  # logs grow
        index = bisect_right(self.starts, position) - 1
        if index < 0 or position >= self._end:
            return None
        start = self.starts[index]
        return SourceLine(
            index,
            start,
            self.read(start, self._next(index)).removesuffix(b"\n"),
            self.part_of(index),
        )

    def part_of(self, index: int) -> str:
        """What a range calls it: lines, or of an over-long line: chunk, last-chunk."""
        start, end = self.starts[index], self._next(index)
        if self._begins is not None:
            before = index > 0 and self.starts[index - 1] in self._pieces
            return "chunk" if start in self._pieces else "last-chunk" if before else "lines"
        if self.read(end - 1, end) != b"\n":
            return "chunk"
        return "lines" if start == 0 or self.read(start - 1, start) == b"\n" else "last-chunk"

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from offset `start` to `end` (exclusive), or fewer at end of file."""
        return os.pread(self._file.fileno(), end - start, start)

    def type_of(self, index: int) -> str:
        """The type that a line says it is of; NO_TYPE where it says none that is known."""
        return self._types[self._type_codes[index]]

    def names(self, path: str) -> bool:
        """Return whether lines of this file may have been read under this path."""
        return path == self.name or fnmatchcase(path, self.told.read_as or self.told.path)

    def digest(self) -> tuple[int, str]:
        """Return the size in bytes and the hexadecimal BLAKE2b-128 digest of the file."""
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, lambda: hashlib.blake2b(digest_size=16))
        return self._file.tell(), digest.hexdigest()

    def _next(self, index: int) -> int:
        return self.starts[index + 1] if index + 1 < len(self.starts) else self._end

    def _extend(self) -> None:
        """Index from `_end` on: terminated lines, and the full pieces of one that is over-long, be
        it terminated or not.
        """
        if self._begins is not None:
            return self._extend_records(self._begins)
        in_line = self._end > 0 and self.read(self._end - 1, self._end) != b"\n"
        while True:
            self._file.seek(self._end)
            at_most = self._line_bytes_max + (
                not in_line
            )  # a line of the very limit is none of pieces
            piece = self._file.readline(at_most)
            terminated = piece.endswith(b"\n")
            if not terminated and len(piece) < at_most:
                return None
            code = (
                self._type_codes[-1]
                if in_line
                else self._types.index(self._claimed(piece.removesuffix(b"\n")))
            )
            self.starts.append(self._end)
            self._type_codes.append(code)
            self.where.append(0)
            self._end += len(piece) if terminated else self._line_bytes_max
            in_line = not terminated

    def _extend_records(self, begins: RecordStartMatcher) -> None:
        """The same of records; the last is taken to be whole.

        One over the limit that has no end yet is not judged.
        """
        self._file.seek(self._end)
        start, first = self._end, b""
        while (line := self._file.readline()).endswith(b"\n"):
            at = self._file.tell() - len(line)
            if first and begins(at, line):
                self._add_record(start, at, first)
                start, first = at, b""
            first = first or line
        if first:
            self._add_record(start, self._file.tell() - len(line), first)

    def _add_record(self, start: int, end: int, first: bytes) -> None:
        code = self._types.index(self._claimed(first.removesuffix(b"\n")))
        for at, last in split_record(start, end - start, self._line_bytes_max):
            self.starts.append(at)
            self._type_codes.append(code)
            self.where.append(0)
            if not last:
                self._pieces.add(at)
        self._end = end

    def _claimed(self, line: bytes) -> str:
        carried = self.told.carries(self._types[1:])
        if self.told.form != "rfc5424":
            return carried[0] if carried else NO_TYPE
        parts = rfc5424.split_rfc5424(line)
        return parts.msgid if parts is not None and parts.msgid in carried else NO_TYPE


class ContainerFile(SourceFile):
    """A container's log: its lines are records, which may stand in several, with others between."""

    def _extend(self) -> None:
        """Index all of it anew: what was partial may have gone on."""
        self._file.seek(0)
        lines, at = [], 0
        for line in self._file:
            if line.endswith(b"\n"):
                lines.append((at, line))
            at += len(line)
        self._records = [*join_partial_lines(lines, frozenset(self.told.flushed))]
        for record in self._records[len(self.starts) :]:
            self.starts.append(record.start)
            self._type_codes.append(self._types.index(self._claimed(self._text(record))))
            self.where.append(0)
        self._end = sum(len(line) for _, line in lines)

    def line_at(self, position: int) -> SourceLine | None:
        """The record whose first line holds this byte, or None where nothing that can have been
        sent does.
        """
        if position >= self._end:
            self._extend()
        index = bisect_right(self.starts, position) - 1
        if index < 0 or position >= self._end:
            return None
        record = self._records[index]
        return SourceLine(index, record.start, self._text(record), "lines", record)

    def _text(self, record: ContainerRecord) -> bytes:
        return b"".join(self.read(*span) for span in record.spans)


def open_sources(told: Expectations, report: JudgeReport) -> dict[tuple[str, int], SourceFile]:
    """All source files by (file id, generation), each once by device and inode; objects to those
    that are not as written.
    """
    types = [NO_TYPE, *sorted({*told.types}.union(*told.earlier.values()))]
    assert len(types) <= 256, "a type is kept in a byte"
    found: dict[tuple[int, int], SourceFile] = {}
    for file in told.files:
        # absolute globs, which Path.glob refuses
        paths = sorted(glob.glob(file.path, recursive=True))  # noqa: PTH207
        if not paths:
            report.add(FindingKind.SOURCE, file.path, "no file is there")
        for path in paths:
            status = Path(path).stat()
            inode = status.st_dev, status.st_ino
            if inode not in found:
                found[inode] = (ContainerFile if file.format == "cri" else SourceFile)(
                    Path(path), file, types, told
                )
    if told.written is not None:
        for path, what in _unmatched_records(told.written, found.values()):
            report.add(FindingKind.SOURCE, path, what)
    return {(file.id, file.told.generation): file for file in found.values()}


def _unmatched_records(
    records: list[WriterRecord], files: Iterable[SourceFile]
) -> Iterator[tuple[str, str]]:
    """Writers' records without their file, and files without their writer's record.

    By content: files are renamed.
    """
    by_content = defaultdict(list)
    for record in records:
        by_content[(record.bytes, record.blake2b)].append(record)
    for file in sorted(
        files, key=lambda file: file.told.size is not None
    ):  # of these there need not be a record
        matching = by_content[file.digest()]
        its = matching.pop() if matching else None
        if file.told.size is None:
            file.record = its
            if its is None:
                yield file.name, "no writer says that it wrote this, and nothing else"
    for record in itertools.chain(*by_content.values()):
        yield record.path, f"its writer wrote {record.bytes} bytes, which no source file holds"
