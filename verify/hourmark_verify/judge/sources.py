"""Source files and their lines: the start offset, event type and match state of each line.

A file is indexed once, and again after it has grown. Line contents are read on demand.
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
    """A predicate that decides whether a line is the first line of a multi-line record.

    Args:
        record_start: Regular expression to search for in the line.
        flushed: Byte offsets at which a record starts even if the line does not match, because
            everything before the offset had already been sent to the delivery service.
    """

    def __init__(self, record_start: str, flushed: list[int]) -> None:
        self._pattern = re.compile(record_start.encode())
        self._flushed = frozenset(flushed)

    def __call__(self, start: int, line: bytes) -> bool:
        """Return whether a line is the first line of a record.

        Args:
            start: Byte offset of the line in its file.
            line: Content of the line; a trailing line feed is ignored.
        """
        return start in self._flushed or self._pattern.search(line.removesuffix(b"\n")) is not None


def split_record(start: int, size: int, size_max: int) -> Iterator[tuple[int, bool]]:
    """Yield the pieces into which a record is split if it exceeds the maximum size.

    Args:
        start: Byte offset of the record in its file.
        size: Size of the record in bytes, including its last line feed.
        size_max: Maximum size of a piece in bytes, without the line feed.

    Yields:
        (offset, is_last) for each piece: its byte offset in the file, and whether it is the last
        piece. A record that is not split yields one pair.
    """
    if size <= size_max + 1:
        yield start, True
        return
    for at in range(start, start + size, size_max):
        yield at, at + size_max >= start + size


NO_TYPE = "(none)"  # the type of lines that name no declared type


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLine:
    """A line or multi-line record of a source file, or a piece of one that exceeds the size limit.

    Attributes:
        index: Number of the line in its file, from 0. Each piece counts as a line.
        start: Byte offset of the line in the file.
        content: Content without the final line feed.
        part: "lines" for a whole line, "chunk" for a piece, "last-chunk" for the last piece.
        container: Record of the container log that has this line; None for other files.
    """

    index: int
    start: int
    content: bytes
    part: str
    container: ContainerRecord | None = None

    @property
    def blank(self) -> bool:
        """True if the line is empty apart from carriage returns and line feeds.

        It is always False for a piece of a line that exceeds the size limit.
        """
        return self.part == "lines" and not self.content.strip(b"\r\n")


class SourceFile:
    """A log file that is compared with the events in HDFS, with an index of its lines.

    The constructor opens the file and indexes its complete lines. It raises `OSError` if the file
    cannot be read. The file stays open until `close` is called, so that a rename has no effect.
    Appended lines are indexed when `line_at` is called with an offset after the indexed part.

    Args:
        path: Path of the file.
        file: Expectations for this file, such as its format and event type.
        types: Names of all event types. The first one must be `NO_TYPE`.
        expectations: Expectations for all files; used for hosts and for the maximum size of a line.

    Attributes:
        name: Path of the file when it was opened.
        expectation: The argument `file`.
        hosts: Names of the hosts that the file's events may have; empty if hosts are not checked.
        host_ids: Ids of the hosts that the file's events may have; empty if ids are not checked.
        record: Size and digest that the writer of the file recorded; None if no record matches the
            file.
        id: File id, 32 hexadecimal digits.
        starts: Byte offset of each line.
        found_in: For each line, the number of the HDFS file that contains its event; 0 if no event
            was found. The caller assigns these numbers, from 1.
        required_lines: Number of lines, from the first, that must be in HDFS.
    """

    def __init__(
        self, path: Path, file: FileExpectation, types: list[str], expectations: Expectations
    ) -> None:
        self.name = str(path)
        self.expectation = file
        self.hosts, self.host_ids = (
            file.host or expectations.host,
            file.host_id or expectations.host_id,
        )
        self.record: WriterRecord | None = None
        self._types, self._line_bytes_max = types, expectations.line_bytes_max
        self._file = path.open("rb")
        self.id = file_id(self._file.fileno())
        self.starts = array("Q")
        self._type_codes = bytearray()
        self._end = 0  # of the last complete line or piece
        self.found_in = array("I")
        self._record_start = (
            RecordStartMatcher(file.record_start, file.flushed)
            if file.record_start is not None
            else None
        )
        self._pieces = set[int]()  # starts of the pieces of over-long records, except the last
        self._index_new_lines()
        size = self._end if file.size is None else file.size
        self.required_lines = sum(self._end_of(index) <= size for index in range(len(self.starts)))

    def close(self) -> None:
        """Close the file. Lines can no longer be read from it."""
        self._file.close()

    def line_at(self, position: int) -> SourceLine | None:
        """Return the line that contains a byte offset.

        If the line exceeds the size limit, only the piece of it that contains the offset is
        returned.

        Args:
            position: Byte offset in the file.

        Returns:
            The line or piece; None if no complete line or piece contains the offset.
        """
        if position >= self._end:
            self._index_new_lines()  # logs grow
        index = bisect_right(self.starts, position) - 1
        if index < 0 or position >= self._end:
            return None
        start = self.starts[index]
        return SourceLine(
            index,
            start,
            self.read(start, self._end_of(index)).removesuffix(b"\n"),
            self.part_of_line(index),
        )

    def part_of_line(self, index: int) -> str:
        """Return the kind of a line: whole, or a piece of a line that exceeds the size limit.

        Args:
            index: Number of the line or piece in the file, from 0.

        Returns:
            "lines" for a whole line, "chunk" for a piece, "last-chunk" for the last piece.
        """
        start, end = self.starts[index], self._end_of(index)
        if self._record_start is not None:
            before = index > 0 and self.starts[index - 1] in self._pieces
            return "chunk" if start in self._pieces else "last-chunk" if before else "lines"
        if self.read(end - 1, end) != b"\n":
            return "chunk"
        return "lines" if start == 0 or self.read(start - 1, start) == b"\n" else "last-chunk"

    def read(self, start: int, end: int) -> bytes:
        """Read a range of bytes from the file.

        Args:
            start: First byte offset.
            end: Byte offset after the last byte.

        Returns:
            `end - start` bytes, or fewer if the file ends earlier.
        """
        return os.pread(self._file.fileno(), end - start, start)

    def type_of_line(self, index: int) -> str:
        """Return the event type under which a line is counted.

        This is the type that an RFC 5424 line names in its MSGID. In files of other formats, it is
        the first type in the settings of the file.

        Args:
            index: Number of the line in the file, from 0.

        Returns:
            Name of a declared type; `NO_TYPE` if there is none.
        """
        return self._types[self._type_codes[index]]

    def matches_path(self, path: str) -> bool:
        """Return whether a path that is recorded in an event may be that of this file.

        The file may have had another path when its lines were delivered, for example before a
        rotation. Paths that match the pattern in the settings of the file are therefore accepted.

        Args:
            path: Path of the source file, as recorded in an event.
        """
        return path == self.name or fnmatchcase(
            path, self.expectation.read_as or self.expectation.path
        )

    def digest(self) -> tuple[int, str]:
        """Read the whole file and return its size and digest.

        Returns:
            Size in bytes, and BLAKE2b-128 digest of the content in hexadecimal.
        """
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, lambda: hashlib.blake2b(digest_size=16))
        return self._file.tell(), digest.hexdigest()

    def _end_of(self, index: int) -> int:
        return self.starts[index + 1] if index + 1 < len(self.starts) else self._end

    def _index_new_lines(self) -> None:
        if self._record_start is not None:
            return self._index_new_records(self._record_start)
        in_line = self._end > 0 and self.read(self._end - 1, self._end) != b"\n"
        while True:
            self._file.seek(self._end)
            at_most = self._line_bytes_max + (
                not in_line
            )  # a line of exactly the maximum size is not split
            piece = self._file.readline(at_most)
            terminated = piece.endswith(b"\n")
            if not terminated and len(piece) < at_most:
                return None
            code = (
                self._type_codes[-1]
                if in_line
                else self._types.index(self._claimed_type(piece.removesuffix(b"\n")))
            )
            self.starts.append(self._end)
            self._type_codes.append(code)
            self.found_in.append(0)
            self._end += len(piece) if terminated else self._line_bytes_max
            in_line = not terminated

    def _index_new_records(self, begins: RecordStartMatcher) -> None:
        # the last record of the file is assumed to be complete
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
        code = self._types.index(self._claimed_type(first.removesuffix(b"\n")))
        for at, last in split_record(start, end - start, self._line_bytes_max):
            self.starts.append(at)
            self._type_codes.append(code)
            self.found_in.append(0)
            if not last:
                self._pieces.add(at)
        self._end = end

    def _claimed_type(self, line: bytes) -> str:
        carried = self.expectation.possible_types(self._types[1:])
        if self.expectation.form != "rfc5424":
            return carried[0] if carried else NO_TYPE
        parts = rfc5424.split_rfc5424(line)
        return parts.msgid if parts is not None and parts.msgid in carried else NO_TYPE


class ContainerFile(SourceFile):
    """A source file in the log format of the Kubernetes container runtime interface (CRI).

    The container runtime splits a long line of a container into several lines of the file, which
    need not be adjacent. These lines are indexed together as one record. The constructor has the
    same arguments and errors as that of `SourceFile`.
    """

    def _index_new_lines(self) -> None:
        # all of it again: a record whose last line was partial may have grown
        self._file.seek(0)
        lines, at = [], 0
        for line in self._file:
            if line.endswith(b"\n"):
                lines.append((at, line))
            at += len(line)
        self._records = [*join_partial_lines(lines, frozenset(self.expectation.flushed))]
        for record in self._records[len(self.starts) :]:
            self.starts.append(record.start)
            self._type_codes.append(
                self._types.index(self._claimed_type(self._record_text(record)))
            )
            self.found_in.append(0)
        self._end = sum(len(line) for _, line in lines)

    def line_at(self, position: int) -> SourceLine | None:
        """Return the last record that starts at or before a byte offset.

        The parts of a record may alternate with those of other records, so the line at the offset
        may belong to another record.

        Args:
            position: Byte offset in the file.

        Returns:
            The record; None if no terminated line contains the offset.
        """
        if position >= self._end:
            self._index_new_lines()
        index = bisect_right(self.starts, position) - 1
        if index < 0 or position >= self._end:
            return None
        record = self._records[index]
        return SourceLine(index, record.start, self._record_text(record), "lines", record)

    def _record_text(self, record: ContainerRecord) -> bytes:
        return b"".join(self.read(*span) for span in record.spans)


def open_sources(
    expectations: Expectations, report: JudgeReport
) -> dict[tuple[str, int], SourceFile]:
    """Open and index all source files.

    Missing files, and files that differ from the records of their writers, are reported as
    findings.

    Args:
        expectations: Expectations with the paths or globs of the files.
        report: Report that receives the findings.

    Returns:
        Open files by (file id, generation); the caller closes them. The generation is the number of
        times that the file was truncated.

    Raises:
        OSError: A file cannot be read.
    """
    types = [NO_TYPE, *sorted({*expectations.types}.union(*expectations.earlier.values()))]
    assert len(types) <= 256, "a type is kept in a byte"
    found: dict[tuple[int, int], SourceFile] = {}
    for file in expectations.files:
        # absolute globs, which Path.glob refuses
        paths = sorted(glob.glob(file.path, recursive=True))  # noqa: PTH207
        if not paths:
            report.add(FindingKind.SOURCE, file.path, "no file has this path")
        for path in paths:
            status = Path(path).stat()
            inode = status.st_dev, status.st_ino
            if inode not in found:
                found[inode] = (ContainerFile if file.format == "cri" else SourceFile)(
                    Path(path), file, types, expectations
                )
    if expectations.written is not None:
        for path, what in _unmatched_records(expectations.written, found.values()):
            report.add(FindingKind.SOURCE, path, what)
    return {(file.id, file.expectation.generation): file for file in found.values()}


def _unmatched_records(
    records: list[WriterRecord], files: Iterable[SourceFile]
) -> Iterator[tuple[str, str]]:
    # Files are matched by size and digest, because they may have been renamed.
    by_content = defaultdict(list)
    for record in records:
        by_content[(record.bytes, record.blake2b)].append(record)
    for file in sorted(
        files, key=lambda file: file.expectation.size is not None
    ):  # a file with a size needs no record, so it is matched last
        matching = by_content[file.digest()]
        its = matching.pop() if matching else None
        if file.expectation.size is None:
            file.record = its
            if its is None:
                yield file.name, "no writer's record has the size and digest of this file"
    for record in itertools.chain(*by_content.values()):
        yield (
            record.path,
            f"no source file has the content that its writer recorded ({record.bytes} bytes)",
        )
