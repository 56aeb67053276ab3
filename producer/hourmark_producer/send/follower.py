"""One file's next step: examine, cut, spool, send, acknowledge.

Called by the sender threads, one at a time per file.

A file that has more to send has several ranges on their way, which are acknowledged in any order;
how many grows with each that is, and is one again after a failure. So an outage finds, and leaves,
few of them in the spool.

The order is the promise: the range is durable (with its body) before it is sent, and the position
moves in memory only after the checkpoint has it. Whatever fails leaves everything as it was, to be
tried again.
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
from hourmark.records.dead_letters import Reason
from hourmark.records.ranges import ByteRange, Part
from hourmark.records.wire import RangeAnswer
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
from hourmark_producer.history.copies import (
    CopyOrigin,
    describe_candidate,
    end_of_lines,
    find_origin,
    is_identifying,
    skip_copied_bytes,
)
from hourmark_producer.history.lost_content import LostContentFinder
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.send.client import Busy, Refused, ServiceLink, TooLarge
from hourmark_producer.send.clocks import Reading
from hourmark_producer.send.flight import Flight, Lanes, Sent

AT_ONCE: Final = 2
ZSTD_LEVEL: Final = 1  # several times faster than the default, and logs shrink almost as far
_PATIENCE_S: Final = (
    1.0  # a file that cannot be read to its end, of a server that hangs, stops no others
)


class Press(NamedTuple):
    """What one range is read into, and compressed by."""

    compressor: zstandard.ZstdCompressor
    room: memoryview


class Presses:
    """Safe to use from several threads."""

    def __init__(
        self, room_bytes: int, count: int = AT_ONCE, patience_s: float = _PATIENCE_S
    ) -> None:
        """`room_bytes`: of the largest range that is no longer line."""
        self._room_bytes = room_bytes
        self._patience_s = patience_s
        self._idle: queue.LifoQueue[Press] = queue.LifoQueue(count)
        for _ in range(count):
            self._idle.put(self._new())

    @contextmanager
    def one(self) -> Iterator[Press]:
        """One to compress what is read meanwhile; wait for it, but not for ever."""
        try:
            taken = self._idle.get(timeout=self._patience_s)
        except queue.Empty:
            taken = (
                self._new()
            )  # in place of one that hangs: not each that follows is to wait for that
        try:
            yield taken
        finally:
            with contextlib.suppress(queue.Full):  # of one that hung no longer
                self._idle.put_nowait(taken)

    def _new(self) -> Press:
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        return Press(compressor, memoryview(bytearray(self._room_bytes)))


_LOG = logging.getLogger(__name__)

_REASONS_MAX: Final = 100  # of a source: no service has as many


class RefusedLines:
    """Counts and tells them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._told: dict[
            tuple[str, str], str
        ] = {}  # by source and reason: the rules they were told under

    def take(self, of: ByteRange, reasons: Mapping[str, int]) -> None:
        """What an answer said of this range."""
        for reason, count in reasons.items():
            if self._is_new(of, reason, count):
                _LOG.warning(
                    "source %s: lines become dead letters: %d %s in %s from byte %d on, "
                    "under the rules %s. %s",
                    of.source,
                    count,
                    reason,
                    of.path,
                    of.start,
                    of.rules,
                    _next_step(of.source, reason),
                )

    def counts(self) -> dict[str, dict[str, int]]:
        """By source and reason, since the start."""
        with self._lock:
            return {source: dict(counts) for source, counts in sorted(self._counts.items())}

    def _is_new(self, of: ByteRange, reason: str, count: int) -> bool:
        with self._lock:
            counts = self._counts.setdefault(of.source, Counter())
            if reason not in counts and len(counts) >= _REASONS_MAX:
                return False
            counts[reason] += count
            before = self._told.get((of.source, reason))
            self._told[of.source, reason] = of.rules
            return before != of.rules


def _next_step(source: str, reason: str) -> str:
    if reason == Reason.UNKNOWN_SOURCE.value:
        return (
            f"No rules in force declare a source {source}: is its name in tailer.sources "
            "mistyped? If not, declare it and "
            "`hourmark types apply`; `hourmark types list` shows those in force"
        )
    return (
        f"`hourmark dead-letters show --source {source} --reason {reason}` shows them, at a "
        "host that reaches Kafka"
    )


RANGES_PER_TURN: Final = 16  # then other files have their turn
SMALL_BYTES: Final = 16 << 10  # files with so much to send, or less, share transactions
SENT_TOGETHER: Final = (
    4  # ranges of small files that one sender has on their way at a time; a connection each
)
_ROUNDS_TOGETHER: Final = (
    2  # the first sends a small file, the second acknowledges it and finds no more
)
_NULS: Final = re.compile(b"\0\0")  # a single one is text of UTF-16


@dataclasses.dataclass(kw_only=True)
class Follower:
    """Moves files on. Safe to use from several threads, for different files."""

    client: ServiceLink
    checkpoint: Checkpoint
    files: TrackedFiles
    sources: Mapping[str, TailedSource]
    sizes: RangeSizes
    rests: RemainderFinder
    elsewhere: LostContentFinder
    generations: Generations
    counters: Counters
    refused: RefusedLines
    clock: Clock
    host_id: str
    host_name: str
    lanes: Lanes
    window_max: int
    finishing: bool = False  # once set, what is on its way is delivered and nothing new is cut

    def __post_init__(self) -> None:
        self._sequence = itertools.count(self.checkpoint.last_sequence() + 1)
        self._presses = Presses(self.sizes.limits.range_bytes)

    def step(self, file: TrackedFile) -> bool:
        """Ship what there is, up to `RANGES_PER_TURN` ranges. Whether there may be more at once.

        Busy, Refused: the service did not take it. CheckpointFailed, OSError: this host could not.
        Try the step again.
        """
        try:
            for outgoing in _on_their_way(file):  # since a step that failed, or a run before
                sent = self._send(outgoing, self.checkpoint.body(outgoing.sequence))
                self._acknowledge(file, outgoing, sent.answer())
            more = self._go_on(file, Flight(self.lanes))
        except BaseException:
            file.window = 1
            raise
        self._only_acknowledge(file)
        return more

    def is_small(self, file: TrackedFile) -> bool:
        """Return whether one small range holds all that is to be sent of the file, and none is on
        its way.
        """
        progress = file.progress
        if progress.in_flight or file.descriptor is None or file.rest is not None:
            return False
        return file.observed.size - progress.position.offset <= min(
            SMALL_BYTES, self.sizes.limits.range_bytes
        )

    def step_together(self, files: Sequence[TrackedFile]) -> dict[TrackedFile, bool | Exception]:
        """Ship what there is of several small files, with one transaction for all of them where
        each would need one.

        Returns: The result of each file's step: whether there may be more, or why it failed. The
            failure of one file's step leaves the others' alone, but once a service did not take a
            range, no further one is sent.
        """
        results = dict[TrackedFile, bool | Exception]()
        active = list(files)
        for _ in range(_ROUNDS_TOGETHER):
            active = self._send_together(self._spool_together(active, results), results)
            if not active:
                break
        results |= dict.fromkeys(
            active, True
        )  # acknowledged in memory; the next step's transaction has it
        for file, result in results.items():
            if isinstance(result, Exception):
                file.window = 1
        return results

    def _spool_together(
        self, files: Sequence[TrackedFile], results: dict[TrackedFile, bool | Exception]
    ) -> list[tuple[TrackedFile, bytes]]:
        """As `_cut_next` of each file, in one transaction; the files that have a range to be sent,
        with its body.
        """
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
                file.progress = dataclasses.replace(file.progress, in_flight=_on_their_way(file))
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
        """Send one range of each file, `SENT_TOGETHER` at a time; the files whose range was
        acknowledged.
        """
        acknowledged, is_well = list[TrackedFile](), True
        for first in range(0, len(to_send), SENT_TOGETHER):
            some = to_send[first : first + SENT_TOGETHER]
            if self.finishing or not is_well:
                results |= {file: True for file, _ in some}  # durable, and sent by the next step
                continue
            sent = [(file, self._send(file.progress.in_flight[-1], body)) for file, body in some]
            for file, one in sent:
                try:
                    self._acknowledge(file, file.progress.in_flight[-1], one.answer())
                except (HourmarkError, OSError) as error:
                    results[file], is_well = error, False
                else:
                    acknowledged.append(file)
        return acknowledged

    def _go_on(self, file: TrackedFile, flight: Flight) -> bool:
        """Cut and send; several at a time where the file has more than it takes one service's
        answer to come.
        """
        try:
            for _ in range(RANGES_PER_TURN):
                if (body := self._cut_next(file)) is None:
                    return False
                outgoing = file.progress.in_flight[-1]
                send = functools.partial(self._send, outgoing, body)
                if not (self._has_more(file, outgoing) and flight.start(outgoing, send)):
                    self._acknowledge(file, outgoing, send().answer())
                while flight.aloft and (flight.has_landed or flight.aloft >= file.window):
                    self._land(file, flight)
            return True
        finally:
            self._land_all(file, flight)

    def _has_more(self, file: TrackedFile, outgoing: SpooledRange) -> bool:
        """Whether another range is likely to follow; not where it is one long line, of which few
        can be in memory.
        """
        size = self.sizes.limits.range_bytes
        return file.window > 1 and size // 2 <= outgoing.bytes <= size

    def _send(self, outgoing: SpooledRange, body: bytes) -> Sent:
        began_s = self.clock.monotonic_s()
        return _Timed(
            self.sizes,
            self.clock,
            outgoing.bytes,
            began_s,
            self.client.send_range(outgoing.range, body),
        )

    def _land(self, file: TrackedFile, flight: Flight) -> None:
        outgoing, answer = flight.land()
        if isinstance(answer, Exception):
            raise answer
        self._acknowledge(file, outgoing, answer)

    def _land_all(self, file: TrackedFile, flight: Flight) -> None:
        """Nothing is left under way that another step would send once more."""
        problem: Exception | None = None
        while flight.aloft:
            try:
                self._land(file, flight)
            except Exception as error:  # noqa: BLE001  # the first is raised
                problem = problem or error
        if problem is not None:
            raise problem

    def _acknowledge(self, file: TrackedFile, outgoing: SpooledRange, answer: RangeAnswer) -> None:
        self.counters.count_acknowledged(outgoing.bytes, answer, self.clock.now_ms())
        self.refused.take(outgoing.range, answer.dead_letter_reasons)
        file.failures, file.window = 0, min(file.window + 1, self.window_max)
        sent = tuple(
            one._replace(acknowledged=True) if one is outgoing else one
            for one in file.progress.in_flight
        )
        file.progress = dataclasses.replace(file.progress, in_flight=sent)

    def _only_acknowledge(self, file: TrackedFile) -> None:
        if acknowledged := _acknowledged(file):
            self.checkpoint.commit(acknowledged)
            file.progress = dataclasses.replace(file.progress, in_flight=_on_their_way(file))

    def _cut_next(self, file: TrackedFile) -> bytes | None:
        """Acknowledge what was delivered and spool what follows, in one transaction; the new
        range's compressed body.
        """
        pending, spooled = self._prepare_next(file)
        if spooled is None:
            self._only_acknowledge(file)
            return None
        self.checkpoint.commit(pending)
        file.progress, body = spooled
        return body

    def _prepare_next(
        self, file: TrackedFile
    ) -> tuple[list[Change], tuple[FileProgress, bytes] | None]:
        """Return what acknowledges and spools, to be committed, and the progress and body once it
        is; None: nothing follows.
        """
        pending = _acknowledged(file)
        with self._presses.one() as press:
            found = self._found_next(file, press)
            spooled = (
                None
                if found is None
                else self._spooled(file, found, self._reading(file), pending, press)
            )
            del found  # of what follows only the compressed form is needed
        if spooled is not None and file.descriptor is not None and self._is_received(file):
            os.fdatasync(
                file.descriptor
            )  # a position must not be left behind the end that a power cut leaves
        return pending, spooled

    def _found_next(self, file: TrackedFile, press: Press) -> RangeCut | None:
        """What is there to be sent of it, not yet compressed."""
        if self.finishing or file.place.source not in self.sources:
            return None
        if file.descriptor is None:
            return None if file.rest is None else self.rests.next_cut(file, file.rest)
        return None if file.retired else self._examine(file, file.descriptor, press)

    def _is_received(self, file: TrackedFile) -> bool:
        return self.sources[file.place.source].input is not None

    def _reading(self, file: TrackedFile) -> Reading:
        try:
            reading = self.client.fresh()
            if reading.rules is None:
                raise Busy("the delivery service knows no rules yet; run `hourmark types apply`")
        except Busy:
            self._only_acknowledge(file)  # that much is certain
            raise
        return reading

    def _spooled(
        self,
        file: TrackedFile,
        shipped: RangeCut,
        reading: Reading,
        pending: list[Change],
        press: Press,
    ) -> tuple[FileProgress, bytes]:
        before = file.progress.position
        if before.offset == 0:
            self.generations.note(file.file_id, before.generation, bytes(shipped.body[:HEAD_BYTES]))
        outgoing = SpooledRange(next(self._sequence), self._range(file, before, shipped, reading))
        body: bytes = press.compressor.compress(shipped.body)
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
            ),  # nobody looks into an archive
            settled=before.settled,
            doubted=before.doubted,
            marks=next_marks(before, shipped.body, anchor),
        )
        others = _on_their_way(file)
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

    def _range(
        self, file: TrackedFile, position: FilePosition, shipped: RangeCut, reading: Reading
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
            raise Refused(f"no range can be made of the service's answer: {error}") from error

    def _examine(self, file: TrackedFile, descriptor: int, press: Press) -> RangeCut | None:
        """Compare the file with what is known of it, write down what is lost, and look for the next
        cut.
        """
        due, observed, before = file.due, file.observed, file.progress
        found, _, size = examine(descriptor, before.position)
        now_s = self.clock.monotonic_s()  # a scan that begins later has looked later
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
            judgement = self._known_lost(file, known, account)
            position, quiet_to = (
                dataclasses.replace(position, settled=known.settled + 1),
                position.offset,
            )
            kept_to = (
                _kept_to(descriptor, known, account)
                if position.generation != known.generation
                else 0
            )
            self._write_loss(file, judgement, account.shrinks, position, kept_to)
        elif self._is_received(file):
            # only this program writes it, and never truncates it: lines that are alike are no
            # reason for doubt
            pass
        elif (
            size > known.size_seen
            and not known.doubted
            and known.offset
            and are_lines_equal(known.head, known.anchor)
        ):
            position = dataclasses.replace(position, doubted=True)
            self._doubt(
                file,
                "its lines are alike: whether it was truncated, or only grew, cannot be told",
                position,
            )
        elif (
            known.offset == known.generation == 0
            and not before.in_flight
            and (passed := self._passed_over(file, descriptor))
        ):
            position, quiet_to = passed, passed.offset
        file.progress = before = dataclasses.replace(
            before, position=position, quiet_to=quiet_to, examined_at_s=now_s
        )
        # of an empty file it was not told whether it is a copy: what it may hold by now is cut once
        # it was looked at again
        cut = (
            self._cut(file, descriptor, position, quiet_to, size, press)
            if size
            else NoCompleteLine(0)
        )
        if isinstance(cut, NoCompleteLine):
            quiet_to = position.offset + cut.searched
        file.progress = dataclasses.replace(before, quiet_to=quiet_to, examined_scan=due)
        return cut if isinstance(cut, RangeCut) else None

    def _known_lost(
        self, file: TrackedFile, known: FilePosition, account: FileAccount
    ) -> ShrinkJudgement:
        search = self.elsewhere.search_for(file)
        judgement = judge_shrinks(known.offset, account.shrinks, search, file.kept_to)
        if judgement.lost_bytes and search.was_used and self.elsewhere.may_be_found_later(file):
            raise RetryLater("what was truncated unread may be in a copy that the next looks find")
        file.counted_from = None
        return judgement

    def _write_loss(
        self,
        file: TrackedFile,
        judgement: ShrinkJudgement,
        shrinks: Sequence[Shrink],
        position: FilePosition,
        kept_to: int,
    ) -> None:
        """`kept_to`: see `_kept_to`."""
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

    def _passed_over(self, file: TrackedFile, descriptor: int) -> FilePosition | None:
        """Up to where the lines of a copy were, or will be, sent from the file that it is of; what
        comes after is its own.
        """
        now_s = self.clock.monotonic_s()
        looked = describe_candidate(
            descriptor,
            self.clock.now_ms() / 1000,
            now_s - file.held_since_s,
            now_s - file.changed_at_s,
        )
        origin = find_origin(self.files, file, looked)
        if origin is None or not (end := _end_of_copy(origin, descriptor)):
            return None
        return skip_copied_bytes(self.checkpoint, file, origin, end, looked.read)

    def _check_written(
        self, file: TrackedFile, body: bytes | memoryview, position: FilePosition, size: int
    ) -> None:
        """Raise RetryLater where NULs are in a range for less than `waits.NULS_S`: a range that is
        spooled is never read again.
        """
        if _NULS.search(body) is None:
            return
        now_s, end = self.clock.monotonic_s(), position.offset + len(body)
        generation, sure_to, since_s = file.nuls
        if generation != position.generation or end > sure_to:
            file.nuls = generation, sure_to, since_s = position.generation, size, now_s
        if now_s - since_s < waits.NULS_S:
            raise RetryLater("it holds NULs, in whose place lines may appear", is_expected=True)

    def _doubt(self, file: TrackedFile, what: str, position: FilePosition) -> None:
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
        press: Press,
    ) -> RangeCut | NoCompleteLine:
        """`end`: of the content that was found; what is behind it may be NULs."""
        size = max(0, end - position.offset)

        def read(skip: int, count: int) -> bytes:
            return read_at(descriptor, position.offset + skip, max(0, min(count, size - skip)))

        def whole(count: int) -> memoryview:
            return read_into(descriptor, position.offset, press.room[: min(count, size)])

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
            )  # of what no anchor is before, what it begins with tells
            anchored = is_anchored(descriptor, position) and (
                position.offset > 0 or position.head.startswith(head)
            )
            if not anchored or os.fstat(descriptor).st_size < position.offset + len(found.body):
                raise RetryLater("it was truncated while it was read")
            self._check_written(file, found.body, position, end)
        return found


def _end_generation(file: TrackedFile, known: FilePosition) -> list[Change]:
    return [
        changes.save_former(file.file_id, known),
        delete_old_marks(file.file_id, known.generation),
        *save_departed(known),
    ]


def _kept_to(descriptor: int, known: FilePosition, account: FileAccount) -> int:
    """Return up to where a file that was truncated holds what was read before; 0 where it is other
    content, or nothing tells.

    Its lines are sent again all the same: a program that writes what it wrote before is not told
    from a truncation in part. But they are not known to be lost, should they be truncated once
    more.
    """
    low = account.shrinks[-1].low
    if (
        len(account.shrinks) > 1
        or not is_identifying(known)
        or not known.head.startswith(account.head)
    ):
        return 0
    if low <= len(known.head):
        return low
    return low if matches_last_mark(known.marks, low, functools.partial(read_at, descriptor)) else 0


def _end_of_copy(origin: CopyOrigin, descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not origin.reads_on or status.st_size <= origin.known.offset:
        return min(status.st_size, origin.known.offset)
    end, rest = end_of_lines(descriptor), origin.file.rest
    if rest is not None and rest.reading_inode == status.st_ino:
        return min(
            end, rest.readable
        )  # what was written to the copy since it was opened there is its own
    return end


class _Timed:
    """A range on its way, whose size is to be blamed where its answer takes long."""

    def __init__(
        self, sizes: RangeSizes, clock: Clock, count: int, began_s: float, sent: Sent
    ) -> None:
        self._sizes, self._clock, self._count, self._began_s, self._sent = (
            sizes,
            clock,
            count,
            began_s,
            sent,
        )
        self.fileno = sent.fileno

    def answer(self) -> RangeAnswer:
        try:
            answer = self._sent.answer()
        except TooLarge:
            self._sizes.record_too_large(self._count)
            raise
        except Busy:
            self._sizes.record_failure(self._count, self._clock.monotonic_s() - self._began_s)
            raise
        self._sizes.record_acknowledged(self._count, self._clock.monotonic_s() - self._began_s)
        return answer


def _acknowledged(file: TrackedFile) -> list[Change]:
    """What takes the delivered ranges out of the spool."""
    return [
        remove_from_spool(sent.sequence) for sent in file.progress.in_flight if sent.acknowledged
    ]


def _on_their_way(file: TrackedFile) -> tuple[SpooledRange, ...]:
    return tuple(sent for sent in file.progress.in_flight if not sent.acknowledged)
