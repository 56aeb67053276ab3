"""Shipping of one tracked file: examine it, cut a range, spool it, send it, acknowledge it.

The sender threads call `FileShipper.step`, for one file at a time each. A file that has more to
send has several ranges in flight, which may be acknowledged in any order. Their number grows by one
with each acknowledgment and returns to one after a failure, so few ranges are in the spool when an
outage begins.

Order of operations: a range and its body are durable before the range is sent, and the position in
memory moves only after the checkpoint has been committed. A failed step therefore leaves a state
from which it can be repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import queue
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import zstandard

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.errors import HourmarkError
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.ranges import ByteRange, Part
from hourmark.records.wire import RangeResponse
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.accounts import save_head
from hourmark_producer.checkpoint.archives import save_departed
from hourmark_producer.checkpoint.database import Change, Checkpoint, CheckpointFailed
from hourmark_producer.checkpoint.generations import Generations
from hourmark_producer.checkpoint.marks import (
    GENERATIONS_MAX,
    delete_old_marks,
    matches_last_mark,
    next_marks,
    save_marks,
)
from hourmark_producer.checkpoint.spooled_ranges import (
    add_to_spool,
    mark_several_per_file,
    remove_from_spool,
)
from hourmark_producer.counters import Counters, Loss
from hourmark_producer.cut.lines import NoCompleteLine, RangeCut
from hourmark_producer.cut.range_sizes import RangeSizes
from hourmark_producer.cut.sources import cut_for_source, joins_lines, range_extras
from hourmark_producer.files import waits
from hourmark_producer.files.examination import examine, is_anchored, read_at, read_into
from hourmark_producer.files.fingerprints import (
    HEAD_BYTES,
    Shrink,
    ShrinkJudgement,
    ShrinkVerdict,
    are_lines_equal,
    judge_shrinks,
    next_anchor,
)
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FilePosition,
    FileProgress,
    SpooledRange,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.copies import CopyOf, skip_copied_bytes
from hourmark_producer.history.match import ContentMatcher, UnreadFile
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.send.client import (
    DeliveryServiceClient,
    RequestRefused,
    RequestTooLarge,
    ServiceUnavailable,
)
from hourmark_producer.send.clocks import ClockReading
from hourmark_producer.send.flight import InFlightRanges, InFlightSlots, PendingRange

AT_ONCE: Final = 2
ZSTD_LEVEL: Final = 1  # several times faster than the default, and logs shrink almost as far
_PATIENCE_S: Final = 1.0  # a file on a hanging file server must not block other files


class RangeCompressor(NamedTuple):
    """A Zstandard compressor and the buffer that one range is read into.

    Attributes:
        zstd: Compresses the body of a range.
        buffer: Receives the uncompressed bytes; as large as the largest range.
    """

    zstd: zstandard.ZstdCompressor
    buffer: memoryview


class RangeCompressorPool:
    """Pool of compressors that bounds the memory for uncompressed ranges. Thread-safe.

    `acquire` lends a compressor; if none becomes free in time, the pool creates an additional one.
    """

    def __init__(
        self, buffer_bytes: int, count: int = AT_ONCE, patience_s: float = _PATIENCE_S
    ) -> None:
        """Create the pool.

        Args:
            buffer_bytes: Size of each buffer: the largest range that is not a single long line.
            count: Number of compressors in the pool.
            patience_s: Seconds to wait for a free compressor before an additional one is created.
        """
        self._buffer_bytes = buffer_bytes
        self._patience_s = patience_s
        self._idle: queue.LifoQueue[RangeCompressor] = queue.LifoQueue(count)
        for _ in range(count):
            self._idle.put(self._new())

    @contextmanager
    def acquire(self) -> Iterator[RangeCompressor]:
        """Lend a compressor for the duration of a `with` block.

        If none becomes free within `patience_s`, an additional one is created, so that a file that
        cannot be read, such as one on a hanging file server, does not block other files.
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


_LOG = logging.getLogger(__name__)

_REASONS_MAX: Final = 100  # per source; services have far fewer


class DeadLetterCounts:
    """Counts of log lines that became dead letters, by source and reason. Thread-safe.

    Each source and reason is logged when it first occurs and again after a change of the rules.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._logged_rules: dict[
            tuple[str, str], str
        ] = {}  # by source and reason: the rules revision when it was logged

    def record(self, byte_range: ByteRange, reasons: Mapping[str, int]) -> None:
        """Count the dead letters that a service reported for a range, and log new reasons.

        Args:
            byte_range: The acknowledged range.
            reasons: Number of lines by reason.
        """
        for reason, count in reasons.items():
            if self._is_new(byte_range, reason, count):
                _LOG.warning(
                    "source %s: lines become dead letters: %d %s in %s from byte %d on, "
                    "under the rules %s. %s",
                    byte_range.source,
                    count,
                    reason,
                    byte_range.path,
                    byte_range.start,
                    byte_range.rules,
                    _next_step(byte_range.source, reason),
                )

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of dead letters since the process started, by source and reason."""
        with self._lock:
            return {source: dict(counts) for source, counts in sorted(self._counts.items())}

    def _is_new(self, byte_range: ByteRange, reason: str, count: int) -> bool:
        with self._lock:
            counts = self._counts.setdefault(byte_range.source, Counter())
            if reason not in counts and len(counts) >= _REASONS_MAX:
                return False
            counts[reason] += count
            before = self._logged_rules.get((byte_range.source, reason))
            self._logged_rules[byte_range.source, reason] = byte_range.rules
            return before != byte_range.rules


def _next_step(source: str, reason: str) -> str:
    if reason == DeadLetterReason.UNKNOWN_SOURCE.value:
        return (
            f"No rules in force declare a source {source}: is its name in tailer.sources "
            "mistyped? If not, declare it and "
            "`hourmark types apply`; `hourmark types list` shows those in force"
        )
    return (
        f"`hourmark dead-letters show --source {source} --reason {reason}` shows them, on a "
        "host that can reach Kafka"
    )


RANGES_PER_TURN: Final = 16  # then other files take their turn
SMALL_BYTES: Final = 16 << 10  # files with at most this many unread bytes share transactions
SENT_TOGETHER: Final = (
    4  # ranges of small files that one sender has in flight; each uses a connection
)
_ROUNDS_TOGETHER: Final = (
    2  # the first sends a small file, the second acknowledges it and finds no more
)
_NULS: Final = re.compile(b"\0\0")  # a single one is text of UTF-16


@dataclasses.dataclass(kw_only=True)
class FileShipper:
    """Shipper of tracked log files: reads, spools, sends and acknowledges their byte ranges.

    Thread-safe for different files; the caller must not step one file from two threads.

    Attributes:
        client: Client for the delivery services.
        checkpoint: Durable positions and the spool of unacknowledged ranges.
        files: All tracked files.
        sources: Configured sources by name.
        sizes: Current size limits of ranges.
        rests: Ships the unread remainder of files that vanished.
        matcher: Decides whether content was read before, and whether another file holds it.
        generations: Durable record of file generations.
        counters: Counters of this run.
        dead_letters: Counts of dead letters.
        clock: Clock of this host.
        host_id: Identifier of this host's installation.
        host_name: Host name in every range.
        slots: Slots for additional ranges in flight, shared by all files.
        window_max: Maximum number of ranges in flight per file.
        finishing: If set, pending ranges are delivered and no new range is cut.
    """

    client: DeliveryServiceClient
    checkpoint: Checkpoint
    files: TrackedFiles
    sources: Mapping[str, TailedSource]
    sizes: RangeSizes
    rests: RemainderFinder
    matcher: ContentMatcher
    generations: Generations
    counters: Counters
    dead_letters: DeadLetterCounts
    clock: Clock
    host_id: str
    host_name: str
    slots: InFlightSlots
    window_max: int
    finishing: bool = False  # once set, what is on its way is delivered and nothing new is cut

    def __post_init__(self) -> None:
        self._sequence = itertools.count(self.checkpoint.last_sequence() + 1)
        self._compressors = RangeCompressorPool(self.sizes.limits.range_bytes)

    def step(self, file: TrackedFile) -> bool:
        """Ship the unread bytes of a file, up to `RANGES_PER_TURN` ranges.

        A failed step can be repeated at any time.

        Args:
            file: The file; ranges that are still unacknowledged from an earlier step are sent
                first.

        Returns:
            Whether there may be more to ship at once.

        Raises:
            ServiceUnavailable: No service took a range.
            RequestRefused: Every service refused a range.
            CheckpointFailed: The checkpoint could not be committed.
            OSError: The file could not be read, or is being written or truncated.
        """
        try:
            for outgoing in _unacknowledged(file):  # from a failed step or an earlier run
                sent = self._send(outgoing, self.checkpoint.body(outgoing.sequence))
                self._acknowledge(file, outgoing, sent.result())
            more = self._cut_and_send(file, InFlightRanges(self.slots))
        except BaseException:
            file.window = 1
            raise
        self._commit_acknowledged(file)
        return more

    def is_small(self, file: TrackedFile) -> bool:
        """Return whether one small range holds all unread bytes and no range is in flight."""
        progress = file.progress
        if progress.in_flight or file.descriptor is None or file.rest is not None:
            return False
        return file.observed.size - progress.position.offset <= min(
            SMALL_BYTES, self.sizes.limits.range_bytes
        )

    def step_together(self, files: Sequence[TrackedFile]) -> dict[TrackedFile, bool | Exception]:
        """Ship several small files with one shared checkpoint transaction per round.

        A failure of one file does not affect the others, except that no further range is sent after
        a service did not take one.

        Args:
            files: Files for which `is_small` is true.

        Returns:
            For each file, whether there may be more to ship, or the exception that its step raised.
        """
        results = dict[TrackedFile, bool | Exception]()
        active = list(files)
        for _ in range(_ROUNDS_TOGETHER):
            active = self._send_together(self._spool_together(active, results), results)
            if not active:
                break
        results |= dict.fromkeys(active, True)  # acknowledged in memory; the next step commits it
        for file, result in results.items():
            if isinstance(result, Exception):
                file.window = 1
        return results

    def _spool_together(
        self, files: Sequence[TrackedFile], results: dict[TrackedFile, bool | Exception]
    ) -> list[tuple[TrackedFile, bytes]]:
        changed, found = (
            list[Change](),
            list[tuple[TrackedFile, tuple[FileProgress, bytes] | None]](),
        )
        for file in files:
            try:
                pending, spooled = self._prepare_next(file)
            except (HourmarkError, OSError) as error:
                results[file] = error
            else:
                changed += pending
                found.append((file, spooled))
        try:
            if changed:
                self.checkpoint.commit(changed)
        except CheckpointFailed as error:
            results |= {file: error for file, _ in found}
            return []
        to_send = list[tuple[TrackedFile, bytes]]()
        for file, spooled in found:
            if spooled is None:
                file.progress = dataclasses.replace(file.progress, in_flight=_unacknowledged(file))
                results[file] = False
            else:
                file.progress, body = spooled
                to_send.append((file, body))
        return to_send

    def _send_together(
        self,
        to_send: Sequence[tuple[TrackedFile, bytes]],
        results: dict[TrackedFile, bool | Exception],
    ) -> list[TrackedFile]:
        acknowledged, is_well = list[TrackedFile](), True
        for first in range(0, len(to_send), SENT_TOGETHER):
            some = to_send[first : first + SENT_TOGETHER]
            if self.finishing or not is_well:
                results |= {file: True for file, _ in some}  # spooled; the next step sends it
                continue
            sent = [(file, self._send(file.progress.in_flight[-1], body)) for file, body in some]
            for file, one in sent:
                try:
                    self._acknowledge(file, file.progress.in_flight[-1], one.result())
                except (HourmarkError, OSError) as error:
                    results[file], is_well = error, False
                else:
                    acknowledged.append(file)
        return acknowledged

    def _cut_and_send(self, file: TrackedFile, flight: InFlightRanges) -> bool:
        try:
            for _ in range(RANGES_PER_TURN):
                if (body := self._cut_next(file)) is None:
                    return False
                outgoing = file.progress.in_flight[-1]
                send = functools.partial(self._send, outgoing, body)
                if not (self._has_more(file, outgoing) and flight.try_send(outgoing, send)):
                    self._acknowledge(file, outgoing, send().result())
                while flight.count and (flight.has_result or flight.count >= file.window):
                    self._acknowledge_next(file, flight)
            return True
        finally:
            self._acknowledge_all(file, flight)

    def _has_more(self, file: TrackedFile, outgoing: SpooledRange) -> bool:
        # not after a range that is one long line: few of those fit into memory
        size = self.sizes.limits.range_bytes
        return file.window > 1 and size // 2 <= outgoing.bytes <= size

    def _send(self, outgoing: SpooledRange, body: bytes) -> PendingRange:
        began_s = self.clock.monotonic_s()
        return _MeasuredRange(
            self.sizes,
            self.clock,
            outgoing.bytes,
            began_s,
            self.client.send_range(outgoing.range, body),
        )

    def _acknowledge_next(self, file: TrackedFile, flight: InFlightRanges) -> None:
        outgoing, answer = flight.wait_for_next()
        if isinstance(answer, Exception):
            raise answer
        self._acknowledge(file, outgoing, answer)

    def _acknowledge_all(self, file: TrackedFile, flight: InFlightRanges) -> None:
        problem: Exception | None = None
        while flight.count:
            try:
                self._acknowledge_next(file, flight)
            except Exception as error:  # noqa: BLE001  # the first is raised
                problem = problem or error
        if problem is not None:
            raise problem

    def _acknowledge(
        self, file: TrackedFile, outgoing: SpooledRange, answer: RangeResponse
    ) -> None:
        self.counters.count_acknowledged(outgoing.bytes, answer, self.clock.now_ms())
        self.dead_letters.record(outgoing.range, answer.dead_letter_reasons)
        file.failures, file.window = 0, min(file.window + 1, self.window_max)
        sent = tuple(
            one._replace(acknowledged=True) if one is outgoing else one
            for one in file.progress.in_flight
        )
        file.progress = dataclasses.replace(file.progress, in_flight=sent)

    def _commit_acknowledged(self, file: TrackedFile) -> None:
        if acknowledged := _removal_changes(file):
            self.checkpoint.commit(acknowledged)
            file.progress = dataclasses.replace(file.progress, in_flight=_unacknowledged(file))

    def _cut_next(self, file: TrackedFile) -> bytes | None:
        pending, spooled = self._prepare_next(file)
        if spooled is None:
            self._commit_acknowledged(file)
            return None
        self.checkpoint.commit(pending)
        file.progress, body = spooled
        return body

    def _prepare_next(
        self, file: TrackedFile
    ) -> tuple[list[Change], tuple[FileProgress, bytes] | None]:
        pending = _removal_changes(file)
        with self._compressors.acquire() as compressor:
            found = self._find_next_cut(file, compressor)
            spooled = (
                None
                if found is None
                else self._spool_cut(file, found, self._current_reading(file), pending, compressor)
            )
            del found  # from here on only the compressed form is needed
        if spooled is not None and file.descriptor is not None and self._is_received(file):
            os.fdatasync(
                file.descriptor
            )  # after a power failure the position must not exceed the file's size
        return pending, spooled

    def _find_next_cut(self, file: TrackedFile, compressor: RangeCompressor) -> RangeCut | None:
        if self.finishing or file.place.source not in self.sources:
            return None
        if file.descriptor is None:
            return None if file.rest is None else self.rests.next_cut(file, file.rest)
        return None if file.retired else self._examine(file, file.descriptor, compressor)

    def _is_received(self, file: TrackedFile) -> bool:
        return self.sources[file.place.source].input is not None

    def _current_reading(self, file: TrackedFile) -> ClockReading:
        try:
            reading = self.client.current_reading()
            if reading.rules is None:
                raise ServiceUnavailable(
                    "the delivery service knows no rules yet; run `hourmark types apply`"
                )
        except ServiceUnavailable:
            self._commit_acknowledged(file)  # what is acknowledged does not depend on the reading
            raise
        return reading

    def _spool_cut(
        self,
        file: TrackedFile,
        shipped: RangeCut,
        reading: ClockReading,
        pending: list[Change],
        compressor: RangeCompressor,
    ) -> tuple[FileProgress, bytes]:
        before = file.progress.position
        if before.offset == 0:
            self.generations.note(file.file_id, before.generation, bytes(shipped.body[:HEAD_BYTES]))
        outgoing = SpooledRange(
            next(self._sequence), self._make_range(file, before, shipped, reading)
        )
        body: bytes = compressor.zstd.compress(shipped.body)
        end, anchor = outgoing.range.end, next_anchor(before.anchor, shipped.body)
        position = FilePosition(
            generation=before.generation,
            offset=end,
            in_line=shipped.part is Part.CHUNK,
            anchor=anchor,
            size_seen=max(before.size_seen, end),
            head=before.head
            or (
                b"" if before.offset else bytes(shipped.body[:HEAD_BYTES])
            ),  # archives are not examined, so they need no head
            settled=before.settled,
            doubted=before.doubted,
            marks=next_marks(before, shipped.body, anchor),
        )
        others = _unacknowledged(file)
        pending += [
            add_to_spool(outgoing, body),
            changes.save_position(file.file_id, position),
            save_marks(file.file_id, position),
        ]
        pending += [mark_several_per_file()] if others else []
        pending += [save_head(file.file_id, position)] if before.offset < HEAD_BYTES else []
        in_flight = (*others, outgoing)
        return dataclasses.replace(
            file.progress, position=position, in_flight=in_flight, quiet_to=end
        ), body

    def _make_range(
        self, file: TrackedFile, position: FilePosition, shipped: RangeCut, reading: ClockReading
    ) -> ByteRange:
        assert reading.rules is not None, "a range is made only of a reading with rules"
        source = self.sources[file.place.source]
        try:
            return ByteRange(
                host_id=self.host_id,
                file_id=file.file_id,
                generation=position.generation,
                start=position.offset,
                end=position.offset + len(shipped.body),
                observed_at_ms=reading.clock_ms,
                rules=reading.rules,
                zone=source.zone,
                source=file.place.source,
                path=file.place.path,
                host_name=self.host_name,
                part=shipped.part,
                **range_extras(source, file.place.path),
            )
        except ValueError as error:
            raise RequestRefused(
                f"no valid range can be created from the service's response: {error}"
            ) from error

    def _examine(
        self, file: TrackedFile, descriptor: int, compressor: RangeCompressor
    ) -> RangeCut | None:
        due, observed, before = file.due, file.observed, file.progress
        found, _, size = examine(descriptor, before.position)
        now_s = (
            self.clock.monotonic_s()
        )  # before the read: a scan that began later observed a later state
        known = before.position
        account = observed.account_since(before).next(size, found, known)
        judgement = judge_shrinks(known.offset, account.shrinks)
        position, quiet_to = (
            dataclasses.replace(known, size_seen=size, head=account.head),
            before.quiet_to,
        )
        if judgement.verdict is ShrinkVerdict.REPLACED:
            if unread := self.rests.next_cut_of_truncated(file, account.shrinks[0].high):
                return unread
            position = FilePosition(
                generation=known.generation + 1,
                size_seen=size,
                head=account.head,
                settled=known.settled,
            )
            file.older, file.former = (
                (*file.older, *([file.former] if file.former else []))[-GENERATIONS_MAX:],
                known,
            )
        if judgement.verdict is not ShrinkVerdict.SAME:
            judgement = self.matcher.judge_truncation(file, known, account)
            position, quiet_to = (
                dataclasses.replace(position, settled=known.settled + 1),
                position.offset,
            )
            kept_to = (
                _find_unchanged_size(descriptor, known, account)
                if position.generation != known.generation
                else 0
            )
            self._record_truncation(file, judgement, account.shrinks, position, kept_to)
        elif self._is_received(file):
            # only this program writes it, and never truncates it: identical lines are no
            # reason for doubt
            pass
        elif (
            size > known.size_seen
            and not known.doubted
            and known.offset
            and are_lines_equal(known.head, known.anchor)
        ):
            position = dataclasses.replace(position, doubted=True)
            self._record_doubt(
                file,
                "its lines are identical, so a truncation cannot be distinguished from growth",
                position,
            )
        elif (
            known.offset == known.generation == 0
            and not before.in_flight
            and (passed := self._skip_copied(file, descriptor))
        ):
            position, quiet_to = passed, passed.offset
        file.progress = before = dataclasses.replace(
            before, position=position, quiet_to=quiet_to, examined_at_s=now_s
        )
        # an empty file cannot be recognized as a copy: what it may contain by now is cut after the
        # next examination
        cut = (
            self._cut(file, descriptor, position, quiet_to, size, compressor)
            if size
            else NoCompleteLine(0)
        )
        if isinstance(cut, NoCompleteLine):
            quiet_to = position.offset + cut.searched
        file.progress = dataclasses.replace(before, quiet_to=quiet_to, examined_scan=due)
        return cut if isinstance(cut, RangeCut) else None

    def _record_truncation(
        self,
        file: TrackedFile,
        judgement: ShrinkJudgement,
        shrinks: Sequence[Shrink],
        position: FilePosition,
        kept_to: int,
    ) -> None:
        known = file.progress.position
        loss = Loss(
            source=file.place.source,
            path=file.place.seen_at,
            at_ms=self.clock.now_ms(),
            bytes=judgement.lost_bytes,
            unknown=len(shrinks),
            what="truncated: what was written between the last look and that is unknown",
        )
        self.checkpoint.commit(
            [
                changes.save_position(file.file_id, position),
                changes.save_account(file.file_id, position),
                *changes.add_loss(loss),
                *(_end_generation(file, known) if position.generation != known.generation else []),
                *(
                    [changes.save_kept(file.file_id, position.generation, kept_to)]
                    if kept_to
                    else []
                ),
            ]
        )
        if kept_to:
            file.kept = position.generation, kept_to
        self.counters.add_loss(loss)
        _LOG.warning(
            "%s was truncated: it was read up to byte %d, %d bytes were known, %d are there "
            "now; lost unread: %d bytes, "
            "and what was written after the last look before it, if anything; %s",
            file.place.seen_at,
            known.offset,
            max(shrink.high for shrink in shrinks),
            position.size_seen,
            judgement.lost_bytes,
            f"generation {position.generation} begins"
            if judgement.verdict is ShrinkVerdict.REPLACED
            else "reading goes on",
        )

    def _skip_copied(self, file: TrackedFile, descriptor: int) -> FilePosition | None:
        match = self.matcher.match(UnreadFile(file, descriptor))
        return (
            skip_copied_bytes(self.checkpoint, file, match) if isinstance(match, CopyOf) else None
        )

    def _check_nuls(
        self, file: TrackedFile, body: bytes | memoryview, position: FilePosition, size: int
    ) -> None:
        # a range that is spooled is never read again, so bytes that replace the NULs would be lost
        if _NULS.search(body) is None:
            return
        now_s, end = self.clock.monotonic_s(), position.offset + len(body)
        generation, sure_to, since_s = file.nuls
        if generation != position.generation or end > sure_to:
            file.nuls = generation, sure_to, since_s = position.generation, size, now_s
        if now_s - since_s < waits.NULS_S:
            raise RetryLater(
                "it contains NUL bytes that a writer may be about to replace", is_expected=True
            )

    def _record_doubt(self, file: TrackedFile, what: str, position: FilePosition) -> None:
        loss = Loss(
            source=file.place.source,
            path=file.place.seen_at,
            at_ms=self.clock.now_ms(),
            bytes=0,
            unknown=1,
            what=what,
        )
        self.checkpoint.commit(
            [changes.save_account(file.file_id, position), *changes.add_loss(loss)]
        )
        self.counters.add_loss(loss)
        _LOG.warning("%s: %s; loss is unknown", file.place.seen_at, what)

    def _cut(
        self,
        file: TrackedFile,
        descriptor: int,
        position: FilePosition,
        quiet_to: int,
        end: int,
        compressor: RangeCompressor,
    ) -> RangeCut | NoCompleteLine:
        size = max(0, end - position.offset)

        def read(skip: int, count: int) -> bytes:
            return read_at(descriptor, position.offset + skip, max(0, min(count, size - skip)))

        def whole(count: int) -> memoryview:
            return read_into(descriptor, position.offset, compressor.buffer[: min(count, size)])

        source = self.sources[file.place.source]
        flush_at_s = file.changed_at_s + source.flush_seconds
        flush = position.size_seen <= file.observed.size and self.clock.monotonic_s() >= flush_at_s
        searched = max(0, quiet_to - position.offset)
        found = cut_for_source(
            source, read, self.sizes.limits, position, searched=searched, whole=whole, flush=flush
        )
        is_waiting = (
            isinstance(found, NoCompleteLine) and not found.searched and joins_lines(source)
        )
        file.flush_at_s = (
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


def _end_generation(file: TrackedFile, known: FilePosition) -> list[Change]:
    return [
        changes.save_former(file.file_id, known),
        delete_old_marks(file.file_id, known.generation),
        *save_departed(known),
    ]


def _find_unchanged_size(descriptor: int, known: FilePosition, account: FileAccount) -> int:
    """Return the offset up to which a truncated file still holds content that was read before.

    The lines up to there are sent again, because a program that writes the same content again
    cannot be distinguished from a partial truncation. They do not count as lost if they are
    truncated again.

    Returns:
        The offset; 0 if the content differs or the recorded state does not suffice to decide.
    """
    low = account.shrinks[-1].low
    if (
        len(account.shrinks) > 1
        or not known.is_identifying
        or not known.head.startswith(account.head)
    ):
        return 0
    if low <= len(known.head):
        return low
    return low if matches_last_mark(known.marks, low, functools.partial(read_at, descriptor)) else 0


class _MeasuredRange:
    def __init__(
        self, sizes: RangeSizes, clock: Clock, count: int, began_s: float, sent: PendingRange
    ) -> None:
        self._sizes, self._clock, self._count, self._began_s, self._sent = (
            sizes,
            clock,
            count,
            began_s,
            sent,
        )
        self.fileno = sent.fileno

    def result(self) -> RangeResponse:
        try:
            answer = self._sent.result()
        except RequestTooLarge:
            self._sizes.record_too_large(self._count)
            raise
        except ServiceUnavailable:
            self._sizes.record_failure(self._count, self._clock.monotonic_s() - self._began_s)
            raise
        self._sizes.record_acknowledged(self._count, self._clock.monotonic_s() - self._began_s)
        return answer


def _removal_changes(file: TrackedFile) -> list[Change]:
    """Return the changes that remove a file's acknowledged ranges from the spool."""
    return [
        remove_from_spool(sent.sequence) for sent in file.progress.in_flight if sent.acknowledged
    ]


def _unacknowledged(file: TrackedFile) -> tuple[SpooledRange, ...]:
    return tuple(sent for sent in file.progress.in_flight if not sent.acknowledged)
