"""Ranges as they are spooled: numbered, described and compressed.

A range and its body are durable before the range is sent. From then on it is the same range: retries,
restarts and other services see equal bytes and equal headers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import queue
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import zstandard

from hourmark.config.groups import TailedSource
from hourmark.records.ranges import END_OF_FILE, ByteRange, Part
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.accounts import save_first_bytes
from hourmark_producer.checkpoint.database import Change
from hourmark_producer.checkpoint.generations import Generations
from hourmark_producer.checkpoint.marks import next_marks, save_marks
from hourmark_producer.checkpoint.spooled_ranges import add_to_spool, raise_checkpoint_format
from hourmark_producer.cut.lines import RangeCut
from hourmark_producer.cut.sources import optional_range_fields
from hourmark_producer.files.fingerprints import HEAD_BYTES, extend_anchor
from hourmark_producer.files.tracked_file import (
    FilePosition,
    FileProgress,
    SpooledRange,
    TrackedFile,
)
from hourmark_producer.send.client import RequestRefused
from hourmark_producer.send.clocks import ClockReading

COMPRESSORS: Final = 2
ZSTD_LEVEL: Final = 1  # several times faster than the default, and logs shrink almost as far
_PATIENCE_S: Final = 1.0  # a file on a hanging file server must not block other files


class RangeCompressor(NamedTuple):
    """A Zstandard compressor, and a buffer for the uncompressed bytes of one range.

    Attributes:
        zstd: Compresses the body of a range.
        buffer: Buffer for the uncompressed bytes. Its size is the maximum size of a range that
            contains several lines.
    """

    zstd: zstandard.ZstdCompressor
    buffer: memoryview


class RangeCompressorPool:
    """A pool of Zstandard compressors that limits the memory for uncompressed ranges.

    Thread-safe.
    """

    def __init__(
        self, buffer_bytes: int, count: int = COMPRESSORS, patience_s: float = _PATIENCE_S
    ) -> None:
        """Create the compressors and their buffers.

        Args:
            buffer_bytes: Size of each buffer in bytes: the maximum size of a range that contains
                several lines.
            count: Number of compressors.
            patience_s: Seconds that `acquire` waits for a free compressor before it creates another
                one.
        """
        self._buffer_bytes = buffer_bytes
        self._patience_s = patience_s
        self._idle: queue.LifoQueue[RangeCompressor] = queue.LifoQueue(count)
        for _ in range(count):
            self._idle.put(self._new())

    @contextmanager
    def acquire(self) -> Iterator[RangeCompressor]:
        """Return a context manager that yields a compressor, and returns it to the pool on exit.

        If no compressor is free within `patience_s` seconds, another one is created. Therefore, a
        file whose reads hang, for example on a file server, does not block other files.
        """
        try:
            taken = self._idle.get(timeout=self._patience_s)
        except queue.Empty:
            taken = (
                self._new()
            )  # replaces one that hangs, so that the next callers need not wait for it
        try:
            yield taken
        finally:
            with contextlib.suppress(queue.Full):  # full: this one was replaced while it hung
                self._idle.put_nowait(taken)

    def _new(self) -> RangeCompressor:
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        return RangeCompressor(compressor, memoryview(bytearray(self._buffer_bytes)))


class PreparedRange(NamedTuple):
    """A byte range that is ready to be stored in the checkpoint and then sent.

    Attributes:
        changes: SQL statements that store the range and update the position of the file.
        progress: Progress to assign to the file after the commit. Its last range in flight is the
            new range.
        body: The compressed bytes.
    """

    changes: list[Change]
    progress: FileProgress
    body: bytes


class RangeSpooler:
    """Creates numbered, compressed byte ranges from bytes that were read from files.

    Thread-safe if each file is used by one thread at a time.

    Args:
        sources: Configured sources by name.
        generations: Record of the generations of files. A truncation begins a new generation.
        host_id: Id of this tailer, which every range carries.
        host_name: Name of this host, which every range carries.
        last_sequence: Highest sequence number in the checkpoint. New ranges get higher numbers.
    """

    def __init__(
        self,
        sources: Mapping[str, TailedSource],
        generations: Generations,
        *,
        host_id: str,
        host_name: str,
        last_sequence: int,
    ) -> None:
        self._sources, self._generations = sources, generations
        self._host_id, self._host_name = host_id, host_name
        self._sequence = itertools.count(last_sequence + 1)

    def spool(
        self,
        file: TrackedFile,
        cut: RangeCut,
        reading: ClockReading,
        compressor: RangeCompressor,
    ) -> PreparedRange:
        """Create the next byte range of a file. The caller commits and sends it.

        Args:
            file: The file from which the bytes were read.
            cut: The bytes, and whether they are complete lines.
            reading: Time of a service's clock and revision of its parsing rules. The range carries
                both.
            compressor: Compresses the bytes.

        Returns:
            The range, and the SQL statements to commit before it is sent.

        Raises:
            RequestRefused: No valid range can be created with this time or rules revision.
            OSError: The first bytes of the file cannot be recorded. They are recorded before the
                first range of a file, and again after each truncation.
        """
        before = file.progress.position
        if before.offset == 0:
            self._generations.record_generation(
                file.file_id, before.generation, bytes(cut.body[:HEAD_BYTES])
            )
        outgoing = SpooledRange(next(self._sequence), self._make_range(file, before, cut, reading))
        body: bytes = compressor.zstd.compress(cut.body)
        end, anchor = outgoing.range.end, extend_anchor(before.anchor, cut.body)
        position = FilePosition(
            generation=before.generation,
            offset=end,
            in_line=cut.part is Part.CHUNK,
            anchor=anchor,
            size_seen=max(before.size_seen, end),
            head=before.head
            or (
                b"" if before.offset else bytes(cut.body[:HEAD_BYTES])
            ),  # archives are not examined, so they need no head
            settled=before.settled,
            doubted=before.doubted,
            marks=next_marks(before, cut.body, anchor),
        )
        others = file.progress.unacknowledged
        pending = [
            add_to_spool(outgoing, body),
            changes.save_position(file.file_id, position),
            save_marks(file.file_id, position),
        ]
        pending += [raise_checkpoint_format()] if others else []
        pending += [save_first_bytes(file.file_id, position)] if before.offset < HEAD_BYTES else []
        progress = dataclasses.replace(
            file.progress, position=position, in_flight=(*others, outgoing), quiet_to=end
        )
        return PreparedRange(pending, progress, body)

    def _make_range(
        self, file: TrackedFile, position: FilePosition, cut: RangeCut, reading: ClockReading
    ) -> ByteRange:
        assert reading.rules is not None, "a range is made only of a reading with rules"
        source = self._sources[file.place.source]
        try:
            return ByteRange(
                host_id=self._host_id,
                file_id=file.file_id,
                generation=position.generation,
                start=position.offset,
                end=position.offset + len(cut.body),
                observed_at_ms=reading.clock_ms,
                rules=reading.rules,
                zone=source.zone,
                source=file.place.source,
                path=file.place.path,
                host_name=self._host_name,
                part=cut.part,
                ending=END_OF_FILE if cut.ends_file else "",
                **optional_range_fields(source, file.place.path),
            )
        except ValueError as error:
            raise RequestRefused(
                f"no valid range can be created from the service's response: {error}"
            ) from error
