"""Summary of one run of the tailer, printed at its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from hourmark_producer.counters import Counters, Loss
from hourmark_producer.files.tracked_file import TrackedFile

LOST_FILES_MAX: Final = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The results of one run of the tailer, printed when the run ends.

    Attributes:
        host_id: Host id of the tailer.
        files: Number of tracked files.
        ranges: Number of acknowledged ranges.
        bytes: Total size of these ranges.
        events: Number of events in these ranges.
        dead_letters: Number of lines in these ranges that services could not parse.
        dead_letter_reasons: Number of such lines by source and reason.
        pending_bytes: Number of bytes that are not acknowledged.
        lost_bytes: Number of bytes known to be lost, in all runs.
        unknown_losses: Number of occasions in all runs on which an unknown number of bytes may have
            been lost.
        lost_files: Paths of the files with the latest losses, newest first, at most
            `LOST_FILES_MAX`.
        finished: Whether everything was acknowledged and reported.
        goodbye: Whether a goodbye (the statement that this host sends nothing more) was reported.
        unterminated: Length in bytes of the unterminated last line, by path; empty unless
            `finished`.
    """

    host_id: str
    files: int
    ranges: int
    bytes: int
    events: int
    dead_letters: int
    dead_letter_reasons: dict[str, dict[str, int]]
    pending_bytes: int
    lost_bytes: int
    unknown_losses: int
    lost_files: list[str]
    finished: bool
    goodbye: bool
    unterminated: dict[str, int]


def summarize_run(
    host_id: str,
    files: Iterable[TrackedFile],
    counters: Counters,
    reasons: dict[str, dict[str, int]],
    recent_losses: Iterable[Loss],
    *,
    finished: bool,
    goodbye: bool,
) -> RunSummary:
    """Create the summary of a run that has ended.

    Args:
        host_id: Host id of the tailer.
        files: All tracked files.
        counters: Counters of the run.
        reasons: Number of lines that services could not parse, by source and reason.
        recent_losses: The latest losses, oldest first.
        finished: Whether everything was acknowledged and reported.
        goodbye: Whether a goodbye (the statement that this host sends nothing more) was reported.
    """
    files = list(files)
    waiting = {file.place.seen_at: file.pending_bytes for file in files if file.pending_bytes}
    losses = counters.total_losses()
    return RunSummary(
        host_id=host_id,
        files=len(files),
        ranges=counters.ranges,
        bytes=counters.bytes,
        events=counters.events,
        dead_letters=counters.dead_letters,
        dead_letter_reasons=reasons,
        pending_bytes=sum(waiting.values()),
        lost_bytes=losses.bytes,
        unknown_losses=losses.unknown,
        lost_files=list(dict.fromkeys(loss.path for loss in reversed([*recent_losses])))[
            :LOST_FILES_MAX
        ],
        finished=finished,
        goodbye=goodbye,
        unterminated=waiting if finished else {},
    )
