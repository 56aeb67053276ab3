"""Cutting of the next range of an open file.

A range that is spooled is never read again. So after its bytes were read, the file is compared once
more with what is known of it: if it was truncated meanwhile, nothing is cut. NULs among the bytes,
which a writer may be about to replace, delay the cut.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.records.ranges import Part
from hourmark_producer.cut.lines import NoCompleteLine, RangeCut
from hourmark_producer.cut.range_sizes import AdaptiveRangeLimits
from hourmark_producer.cut.sources import cut_for_source, has_multiline_records
from hourmark_producer.files import waits
from hourmark_producer.files.examination import is_anchored, read_at, read_into
from hourmark_producer.files.tracked_file import FilePosition, TrackedFile
from hourmark_producer.files.waits import RetryLater

_BLOCK_BYTES: Final = 1 << 16
_NULS: Final = re.compile(b"\0\0")  # a single one is text of UTF-16


class ReadableContent(NamedTuple):
    """Size and read position of an open file, determined just before the file is read.

    `FileExaminer.examine` returns it after checking whether the file grew or was truncated.

    Attributes:
        position: Position of the next byte to read from the file.
        quiet_to: Offset up to which the unread bytes are known to contain no line end, so that they
            need not be searched again.
        size: Size of the content in bytes.
        scan: Number of the latest scan whose observations the examination included. If a later scan
            detects a change, the file must be examined again.
    """

    position: FilePosition
    quiet_to: int
    size: int
    scan: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeCutter:
    """Cuts the unread bytes of open files into byte ranges that end at a line or record end.

    Thread-safe if each file is used by one thread at a time.

    Attributes:
        sources: Configured sources by name.
        sizes: Current size limits of ranges.
        clock: Clock of this host.
        final_lines: Whether to include a last line without LF once its file has not grown for the
            source's `flush_seconds`.
    """

    sources: Mapping[str, TailedSource]
    sizes: AdaptiveRangeLimits
    clock: Clock
    final_lines: bool = False

    def cut(
        self, file: TrackedFile, descriptor: int, content: ReadableContent, buffer: memoryview
    ) -> RangeCut | None:
        """Return the next byte range of an open file.

        The offset up to which no line end was found is stored in `file.progress`, so that these
        bytes are not searched again.

        Args:
            file: The file.
            descriptor: File descriptor, open for reading.
            content: Size and read position of the file, determined just before this call.
            buffer: Buffer into which the range is read. The returned range is valid until the
                buffer is used again.

        Returns:
            The range, or None if the file does not contain a complete line or record yet.

        Raises:
            RetryLater: The file was truncated while it was read, or contains NUL bytes that a
                writer may be about to replace. Nothing was cut; call again later.
            OSError: The file cannot be read.
        """
        position, quiet_to = content.position, content.quiet_to
        # an empty file cannot be recognized as a copy: what it may contain by now is cut after the
        # next examination
        found = (
            self._read_and_cut(file, descriptor, content, buffer)
            if content.size
            else NoCompleteLine(0)
        )
        if isinstance(found, NoCompleteLine):
            quiet_to = position.offset + found.searched
        file.progress = dataclasses.replace(
            file.progress, quiet_to=quiet_to, examined_scan=content.scan
        )
        return found if isinstance(found, RangeCut) else None

    def _read_and_cut(
        self, file: TrackedFile, descriptor: int, content: ReadableContent, buffer: memoryview
    ) -> RangeCut | NoCompleteLine:
        position, quiet_to, end, _ = content
        size = max(0, end - position.offset)

        def read(skip: int, count: int) -> bytes:
            return read_at(descriptor, position.offset + skip, max(0, min(count, size - skip)))

        def read_whole(count: int) -> memoryview:
            return read_into(descriptor, position.offset, buffer[: min(count, size)])

        source = self.sources[file.place.source]
        flush_at_s = file.changed_at_s + source.flush_seconds
        flush = position.size_seen <= file.observed.size and self.clock.monotonic_s() >= flush_at_s
        searched = max(0, quiet_to - position.offset)
        # then the bytes that are left are the last record, with a last line without LF
        is_final = self.final_lines and flush and 0 < size <= self.sizes.limits.line_bytes_max
        found = cut_for_source(
            source,
            read,
            self.sizes.limits,
            position,
            searched=searched,
            read_buffered=read_whole,
            flush=flush and not is_final,
        )
        if self.final_lines and size and isinstance(found, NoCompleteLine):
            found = _cut_rest(read(0, size), position, size) if is_final else NoCompleteLine(0)
        is_waiting = (
            isinstance(found, NoCompleteLine)
            and not found.searched
            and (self.final_lines or has_multiline_records(source))
        )
        file.sender.flush_at_s = (
            max(flush_at_s, self.clock.monotonic_s() + waits.FLUSH_AGAIN_S) if is_waiting else None
        )
        if isinstance(found, RangeCut):
            head = bytes(
                found.body[: len(position.head)]
            )  # before the first anchor, the head is compared
            anchored = is_anchored(descriptor, position) and (
                position.offset > 0 or position.head.startswith(head)
            )
            if not anchored or os.fstat(descriptor).st_size < position.offset + len(found.body):
                raise RetryLater("it was truncated while it was read")
            self._check_nuls(file, found.body, position, end)
        return found

    def _check_nuls(
        self, file: TrackedFile, body: bytes | memoryview, position: FilePosition, size: int
    ) -> None:
        # a range that is spooled is never read again, so bytes that replace the NULs would be lost
        if not _has_nul(body) or _NULS.search(body) is None:
            return
        now_s, end = self.clock.monotonic_s(), position.offset + len(body)
        generation, sure_to, since_s = file.sender.nuls
        if generation != position.generation or end > sure_to:
            file.sender.nuls = generation, sure_to, since_s = position.generation, size, now_s
        if now_s - since_s < waits.NULS_S:
            raise RetryLater(
                "it contains NUL bytes that a writer may be about to replace", is_expected=True
            )


def _cut_rest(body: bytes, position: FilePosition, size: int) -> RangeCut:
    if len(body) < size:
        raise RetryLater("it was truncated while it was read")
    part = Part.LAST_CHUNK if position.in_line else Part.LINES
    return RangeCut(body, part, ends_file=not body.endswith(b"\n"))


def _has_nul(body: bytes | memoryview) -> bool:
    # a tenth of the time of a regular expression, which every byte sent would pay for
    return any(
        b"\0" in bytes(body[start : start + _BLOCK_BYTES])
        for start in range(0, len(body), _BLOCK_BYTES)
    )
