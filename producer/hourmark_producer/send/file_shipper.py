"""Shipping of one tracked file: examine it, cut a range, spool it, send it, acknowledge it.

The sender threads call `FileShipper.step`, for one file at a time each. A range passes through these
phases in this order, each in a module of its own:

| phase | module |
|---|---|
| examine the file | `send.file_examiner`, which asks `history.match`; `history.remainders` for a file that vanished |
| cut a range | `cut.range_cutter` |
| make the spooled range | `send.range_spooler` |
| commit and send it | here, with `send.client` |
| record the acknowledgment | `send.acknowledgments` |

A file that has more to send has several ranges in flight, which may be acknowledged in any order.
Their number grows by one with each acknowledgment and returns to one after a failure, so few ranges
are in the spool when an outage begins.

Order of operations: a range and its body are durable before the range is sent, and the position in
memory moves only after the checkpoint has been committed. A failed step therefore leaves a state
from which it can be repeated.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.errors import HourmarkError
from hourmark.records.wire import RangeResponse
from hourmark_producer.checkpoint.database import Change, Checkpoint, CheckpointFailed
from hourmark_producer.cut.lines import RangeCut
from hourmark_producer.cut.range_cutter import RangeCutter
from hourmark_producer.cut.range_sizes import AdaptiveRangeLimits
from hourmark_producer.files.tracked_file import SpooledRange, TrackedFile
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.send.acknowledgments import (
    Acknowledgments,
    forget_acknowledged,
    removal_changes,
)
from hourmark_producer.send.client import (
    DeliveryServiceClient,
    EventTypeUnavailable,
    NoServiceAvailable,
    RequestTooLarge,
)
from hourmark_producer.send.clocks import ClockReading
from hourmark_producer.send.file_examiner import FileExaminer
from hourmark_producer.send.flight import InFlightRanges, InFlightSlots, PendingRange
from hourmark_producer.send.range_spooler import PreparedRange, RangeCompressorPool, RangeSpooler

RANGES_PER_TURN: Final = 16  # then other files take their turn
SMALL_BYTES: Final = 16 << 10  # files with at most this many unread bytes share transactions
SENT_TOGETHER: Final = (
    4  # ranges of small files that one sender has in flight; each uses a connection
)
_ROUNDS_TOGETHER: Final = (
    2  # the first sends a small file, the second acknowledges it and finds no more
)


@dataclasses.dataclass(kw_only=True)
class FileShipper:
    """Sends the unread bytes of log files to the delivery services as byte ranges.

    Each range is first spooled, which means stored in the checkpoint. It is then sent repeatedly
    until a service acknowledges it, even after a restart. Thread-safe if each file is used by one
    thread at a time.

    Attributes:
        client: Client for the delivery services.
        checkpoint: Database with the positions of files and the spooled ranges.
        sources: Configured sources by name.
        sizes: Current size limits of ranges.
        examiner: Determines whether an open file grew or was truncated, before it is read.
        remainders: Reads the unread content of files that vanished.
        cutter: Cuts ranges from open files.
        spooler: Creates spooled ranges.
        acknowledgments: Records acknowledgements.
        clock: Clock of this host.
        slots: Slots for additional ranges in flight, shared by all files.
        finishing: Whether to send only ranges that are already spooled.
    """

    client: DeliveryServiceClient
    checkpoint: Checkpoint
    sources: Mapping[str, TailedSource]
    sizes: AdaptiveRangeLimits
    examiner: FileExaminer
    remainders: RemainderFinder
    cutter: RangeCutter
    spooler: RangeSpooler
    acknowledgments: Acknowledgments
    clock: Clock
    slots: InFlightSlots
    finishing: bool = False  # once set, what is on its way is delivered and nothing new is cut

    def __post_init__(self) -> None:
        self._compressors = RangeCompressorPool(self.sizes.limits.range_bytes)

    def step(self, file: TrackedFile) -> bool:
        """Send unread bytes of one file as at most `RANGES_PER_TURN` byte ranges.

        Unacknowledged ranges of earlier steps are sent first. If the step fails, call the method
        again after a pause. No bytes are lost.

        Args:
            file: The file.

        Returns:
            Whether the file may have more bytes to send now.

        Raises:
            NoServiceAvailable: No service accepted a range.
            RequestRefused: Every service refused a range.
            CheckpointFailed: The checkpoint could not be read or written.
            OSError: The file could not be read, or is being written or truncated.
        """
        try:
            for outgoing in file.progress.unacknowledged:  # from a failed step or an earlier run
                sent = self._send(outgoing, self.checkpoint.body(outgoing.sequence))
                self.acknowledgments.record(file, outgoing, sent.result())
            more = self._cut_and_send(file, InFlightRanges(self.slots))
        except BaseException:
            file.sender.window = 1
            raise
        self.acknowledgments.commit(file)
        return more

    def is_small(self, file: TrackedFile) -> bool:
        """Return whether a file can be sent with `step_batch`, because it has few unread bytes.

        Args:
            file: The file.

        Returns:
            True if all unread bytes of the file fit into one small range. False if they do not, if
            the file is not open or has ranges in flight, or while unread content of it is being
            searched for in other files.
        """
        progress = file.progress
        if progress.in_flight or file.descriptor is None or file.rest is not None:
            return False
        return file.observed.size - progress.position.offset <= min(
            SMALL_BYTES, self.sizes.limits.range_bytes
        )

    def step_batch(self, files: Sequence[TrackedFile]) -> dict[TrackedFile, bool | Exception]:
        """Send the unread bytes of several small files in shared checkpoint transactions.

        A failure of one file does not affect the other files. However, if no service is available,
        the remaining ranges are only stored. The next step sends them.

        Args:
            files: Files for which `is_small` returned True.

        Returns:
            Maps each file to True if it may have more bytes to send, to False if not, or to the
            exception that its step raised.
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
                file.sender.window = 1
        return results

    def _spool_together(
        self, files: Sequence[TrackedFile], results: dict[TrackedFile, bool | Exception]
    ) -> list[tuple[TrackedFile, bytes]]:
        changed, found = list[Change](), list[tuple[TrackedFile, PreparedRange | None]]()
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
                forget_acknowledged(file)
                results[file] = False
            else:
                file.progress = spooled.progress
                to_send.append((file, spooled.body))
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
                    self.acknowledgments.record(file, file.progress.in_flight[-1], one.result())
                except (HourmarkError, OSError) as error:
                    results[file] = error
                    is_well = is_well and isinstance(error, EventTypeUnavailable)
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
                    self.acknowledgments.record(file, outgoing, send().result())
                while flight.count and (flight.has_result or flight.count >= file.sender.window):
                    self._acknowledge_next(file, flight)
            return True
        finally:
            self._acknowledge_all(file, flight)

    def _has_more(self, file: TrackedFile, outgoing: SpooledRange) -> bool:
        # not after a range that is one long line: few of those fit into memory
        size = self.sizes.limits.range_bytes
        return file.sender.window > 1 and size // 2 <= outgoing.bytes <= size

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
        self.acknowledgments.record(file, outgoing, answer)

    def _acknowledge_all(self, file: TrackedFile, flight: InFlightRanges) -> None:
        problem: Exception | None = None
        while flight.count:
            try:
                self._acknowledge_next(file, flight)
            except Exception as error:  # noqa: BLE001  # the first is raised
                problem = problem or error
        if problem is not None:
            raise problem

    def _cut_next(self, file: TrackedFile) -> bytes | None:
        pending, spooled = self._prepare_next(file)
        if spooled is None:
            self.acknowledgments.commit(file)
            return None
        self.checkpoint.commit(pending)
        file.progress = spooled.progress
        return spooled.body

    def _prepare_next(self, file: TrackedFile) -> tuple[list[Change], PreparedRange | None]:
        pending = removal_changes(file)
        with self._compressors.acquire() as compressor:
            found = self._find_next_cut(file, compressor.buffer)
            if found is None:
                return pending, None
            spooled = self.spooler.spool(file, found, self._current_reading(file), compressor)
            del found  # from here on only the compressed form is needed
        if file.descriptor is not None and self.sources[file.place.source].input is not None:
            # after a power failure the position must not exceed the file's size
            os.fdatasync(file.descriptor)
        return [*pending, *spooled.changes], spooled

    def _find_next_cut(self, file: TrackedFile, buffer: memoryview) -> RangeCut | None:
        if self.finishing or file.place.source not in self.sources:
            return None
        if (descriptor := file.descriptor) is None:
            return None if file.rest is None else self.remainders.next_cut(file, file.rest)
        if file.retired:
            return None
        content = self.examiner.examine(file, descriptor)
        if isinstance(content, RangeCut):
            return content
        return self.cutter.cut(file, descriptor, content, buffer)

    def _current_reading(self, file: TrackedFile) -> ClockReading:
        try:
            reading = self.client.current_reading()
            if reading.rules is None:
                raise NoServiceAvailable(
                    "the delivery service has no rules yet; run `hourmark types apply`"
                )
        except NoServiceAvailable:
            self.acknowledgments.commit(file)  # what is acknowledged does not depend on the reading
            raise
        return reading


class _MeasuredRange:
    def __init__(
        self,
        sizes: AdaptiveRangeLimits,
        clock: Clock,
        count: int,
        began_s: float,
        sent: PendingRange,
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
        except NoServiceAvailable:
            self._sizes.record_failure(self._count, self._clock.monotonic_s() - self._began_s)
            raise
        self._sizes.record_acknowledged(self._count, self._clock.monotonic_s() - self._began_s)
        return answer
