"""Examination of an open file before a range is cut: did it grow, was it truncated, is it a copy?

The file is compared with its position and with what scans observed of it. Its next position is
durable before anything is cut from there:

| finding | next position |
|---|---|
| it grew | unchanged |
| it was truncated, and a copy holds its unread bytes | unchanged until the copy is read |
| it lost unread bytes only | unchanged; the loss is counted |
| it was truncated below the position, or replaced | 0 in the next generation; the loss is counted |
| nothing of it was read, and it is a copy | after the bytes that the original supplies |
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.archives import save_departed
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.checkpoint.marks import (
    GENERATIONS_MAX,
    delete_old_marks,
    matches_last_mark,
)
from hourmark_producer.counters import Counters, Loss
from hourmark_producer.cut.lines import RangeCut
from hourmark_producer.cut.range_cutter import ReadableContent
from hourmark_producer.files.examination import examine, read_at
from hourmark_producer.files.fingerprints import (
    Truncation,
    TruncationEffect,
    TruncationVerdict,
    are_lines_equal,
    assess_truncations,
)
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FilePosition,
    FileProgress,
    TrackedFile,
)
from hourmark_producer.history.match import ContentMatcher, CopyOf, UnreadFile, skip_copied_bytes
from hourmark_producer.history.remainders import RemainderFinder

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileExaminer:
    """Examines files before they are read: whether they grew, were truncated or are copies.

    Thread-safe if each file is used by one thread at a time.

    Attributes:
        checkpoint: Database in which positions and losses are saved.
        sources: Configured sources by name.
        matcher: Decides whether content was read before, and which file contains lost content.
        remainders: Reads the lost content of truncated files from their copies.
        counters: Counters of this run, to which losses are added.
        clock: Clock of this host.
    """

    checkpoint: Checkpoint
    sources: Mapping[str, TailedSource]
    matcher: ContentMatcher
    remainders: RemainderFinder
    counters: Counters
    clock: Clock

    def examine(self, file: TrackedFile, descriptor: int) -> ReadableContent | RangeCut:
        """Determine how an open file changed since the last examination, and save its position.

        If unread bytes were truncated and no other file contains them, they are recorded as lost.

        Args:
            file: The file.
            descriptor: File descriptor, open for reading.

        Returns:
            Size and read position of the file, from which the next byte range can be cut. If the
            file was truncated and a copy contains its unread bytes, the next range of the copy
            instead.

        Raises:
            RetryLater: It is not known yet what happened to the file. Call again after a pause.
            OSError: The file cannot be read.
            CheckpointFailed: The position or the loss cannot be saved.
        """
        scan, observed, before = file.due, file.observed, file.progress
        known = before.position
        found, _, size = examine(descriptor, known)
        # before the read: a scan that began later observed a later state
        now_s = self.clock.monotonic_s()
        account = observed.account_since(before).after_scan(size, found, known)
        verdict = assess_truncations(known.offset, account.shrinks).verdict
        if verdict is TruncationVerdict.REPLACED and (
            unread := self.remainders.next_cut_of_truncated(file, account.shrinks[0].high)
        ):
            return unread
        if verdict is TruncationVerdict.SAME:
            position, quiet_to = self._follow_growth(file, account, size), before.quiet_to
        else:
            position = self._follow_truncation(file, descriptor, verdict, account, size)
            quiet_to = position.offset
        examined = dataclasses.replace(
            before, position=position, quiet_to=quiet_to, examined_at_s=now_s
        )
        if verdict is not TruncationVerdict.SAME:
            file.progress = examined  # the truncation is recorded: it is not followed again
        if (copy := self._find_copy(file, descriptor, examined)) is not None:
            position = skip_copied_bytes(self.checkpoint, file, copy)
            quiet_to = position.offset
        file.progress = dataclasses.replace(examined, position=position, quiet_to=quiet_to)
        return ReadableContent(position, quiet_to, size, scan)

    def _find_copy(
        self, file: TrackedFile, descriptor: int, examined: FileProgress
    ) -> CopyOf | None:
        position = examined.position
        is_read = position.offset > 0 or any(
            sent.range.generation == position.generation for sent in examined.in_flight
        )
        if self._is_input(file) or is_read:
            return None
        match = self.matcher.match(UnreadFile(file, descriptor))
        return match if isinstance(match, CopyOf) else None

    def _is_input(self, file: TrackedFile) -> bool:
        # only this program writes it, and never truncates it
        return self.sources[file.place.source].input is not None

    def _follow_growth(self, file: TrackedFile, account: FileAccount, size: int) -> FilePosition:
        known = file.progress.position
        position = dataclasses.replace(known, size_seen=size, head=account.head)
        if self._is_input(file):
            return position  # identical lines are no reason for doubt
        if (
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
        return position

    def _follow_truncation(
        self,
        file: TrackedFile,
        descriptor: int,
        verdict: TruncationVerdict,
        account: FileAccount,
        size: int,
    ) -> FilePosition:
        known = file.progress.position
        position = dataclasses.replace(known, size_seen=size, head=account.head)
        if verdict is TruncationVerdict.REPLACED:
            position = FilePosition(
                generation=known.generation + 1, size_seen=size, head=account.head
            )
            file.earlier = file.earlier.with_ended_generation(known, GENERATIONS_MAX)
        judgement = self.matcher.assess_truncation(file, known, account)
        position = dataclasses.replace(position, settled=known.settled + 1)
        kept_to = (
            _find_unchanged_size(descriptor, known, account)
            if position.generation != known.generation
            else 0
        )
        self._record_truncation(file, judgement, account.shrinks, position, kept_to)
        return position

    def _record_truncation(
        self,
        file: TrackedFile,
        judgement: TruncationEffect,
        shrinks: Sequence[Truncation],
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
                    [changes.save_kept_bytes(file.file_id, position.generation, kept_to)]
                    if kept_to
                    else []
                ),
            ]
        )
        if kept_to:
            kept = position.generation, kept_to
            file.earlier = dataclasses.replace(file.earlier, kept=kept)
        self.counters.add_loss(loss)
        _LOG.warning(
            "%s was truncated: it was read up to byte %d, and its size was %d bytes before and "
            "is %d bytes now; %d bytes were lost unread, plus anything that was written between "
            "the last scan and the truncation; %s",
            file.place.seen_at,
            known.offset,
            max(shrink.high for shrink in shrinks),
            position.size_seen,
            judgement.lost_bytes,
            f"generation {position.generation} begins"
            if judgement.verdict is TruncationVerdict.REPLACED
            else "reading continues",
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
        _LOG.warning("%s: %s; it is unknown whether data was lost", file.place.seen_at, what)


def _end_generation(file: TrackedFile, known: FilePosition) -> list[Change]:
    return [
        changes.save_pre_truncation_position(file.file_id, known),
        delete_old_marks(file.file_id, known.generation),
        *save_departed(known),
    ]


def _find_unchanged_size(descriptor: int, known: FilePosition, account: FileAccount) -> int:
    # These lines are sent again, because a program that rewrites its file cannot be distinguished
    # from a partial truncation. They do not count as lost if they are truncated again.
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
