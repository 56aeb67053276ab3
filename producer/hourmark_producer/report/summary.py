"""What a run came to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hourmark_producer.counters import Counters
from hourmark_producer.files.tracked_file import TrackedFile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`unterminated`: files whose last line has no end yet, and its bytes so far."""

    host_id: str
    files: int
    ranges: int
    bytes: int
    events: int
    dead_letters: int
    dead_letter_reasons: dict[str, dict[str, int]]  # by source
    pending_bytes: int
    lost_bytes: int
    unknown_losses: int  # occasions on which more may have been lost
    finished: bool  # all that was there is acknowledged and reported
    goodbye: bool
    unterminated: dict[str, int]


def summed_up(
    host_id: str,
    files: Iterable[TrackedFile],
    counters: Counters,
    reasons: dict[str, dict[str, int]],
    *,
    finished: bool,
    goodbye: bool,
) -> Summary:
    """At the end of a run. `reasons`: of dead letters, by source."""
    files = list(files)
    waiting = {file.place.seen_at: file.pending_bytes for file in files if file.pending_bytes}
    losses = counters.total_losses()
    return Summary(
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
        finished=finished,
        goodbye=goodbye,
        unterminated=waiting if finished else {},
    )
