"""A mirror that runs and copies nothing is seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tests.support.clock import FakeClock

from hourmark.kafka.clients import Partition
from hourmark_mirror.run.stalls import POLL_INTERVAL_S, STALL_S, StallDetector, StallTracker

P, Q = Partition("events.a", 0), Partition("events.a", 1)


def looked(
    progress: StallTracker, until_s: float, positions: dict[Partition, int], *, since_s: float = 0.0
) -> list[Partition]:
    """What the last of the looks found that a watch takes in this time."""
    found: list[Partition] = []
    ends = {P: 100, Q: 100}
    while since_s <= until_s:
        found = [
            b.partition for b in progress.stalled_partitions(since_s, ends, {P: 0, Q: 0}, positions)
        ]
        since_s += POLL_INTERVAL_S
    return found


def test_a_partition_that_stands_still_while_others_move_is_named() -> None:
    progress = StallTracker()
    assert looked(progress, STALL_S - 2 * POLL_INTERVAL_S, {P: 10}) == []
    assert (
        looked(progress, STALL_S - POLL_INTERVAL_S, {P: 20}, since_s=STALL_S - POLL_INTERVAL_S)
        == []
    )
    assert looked(progress, STALL_S, {P: 20}, since_s=STALL_S) == [Q]
    assert (
        looked(
            progress, STALL_S + POLL_INTERVAL_S, {P: 21, Q: 1}, since_s=STALL_S + POLL_INTERVAL_S
        )
        == []
    )


def test_time_in_which_nobody_could_look_is_not_held_against_a_mirror() -> None:
    """The target was away for minutes: what stood still then has had no time yet to go on."""
    progress = StallTracker()
    assert looked(progress, 100, {P: 10, Q: 10}) == []
    assert looked(progress, 1100, {P: 10, Q: 10}, since_s=1000) == []
    assert looked(progress, 1000 + STALL_S, {P: 10, Q: 20}, since_s=1110) == [P]


def test_a_partition_that_had_caught_up_is_given_the_whole_time_again() -> None:
    progress = StallTracker()
    assert looked(progress, STALL_S - POLL_INTERVAL_S, {P: 10, Q: 100}) == []
    assert looked(progress, STALL_S, {P: 100, Q: 100}, since_s=STALL_S) == []
    assert looked(progress, 2 * STALL_S, {P: 99, Q: 100}, since_s=STALL_S + POLL_INTERVAL_S) == []
    assert looked(
        progress,
        2 * STALL_S + POLL_INTERVAL_S,
        {P: 99, Q: 100},
        since_s=2 * STALL_S + POLL_INTERVAL_S,
    ) == [P]


def test_empty_partitions_never_stall() -> None:
    progress = StallTracker()
    for look in range(100):
        assert progress.stalled_partitions(look * POLL_INTERVAL_S, {P: 7}, {P: 7}, {}) == []


@dataclasses.dataclass
class Copied:
    """Two partitions of a hundred records at the edge, and where the mirror stands: all that
    `ProgressWatch` asks.
    """

    positions_now: dict[Partition, int]

    @property
    def edge(self) -> Copied:
        return self

    def positions(self) -> Copied:
        return self

    def refresh(self) -> dict[Partition, int]:
        return dict(self.positions_now)

    def partitions(self) -> list[Partition]:
        return [P, Q]

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 100)

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)


def test_a_partition_that_stands_still_while_another_moves_starts_no_worker_again() -> None:
    """Whose it is nobody knows: each worker would end its Java, every five minutes, for one record
    that blocks one of them.
    """
    clock, copied = FakeClock(), Copied({P: 0, Q: 10})
    sites: Any = copied
    watch = StallDetector(sites, clock)
    watch.start_run()
    for _ in range(int(3 * STALL_S / POLL_INTERVAL_S)):
        clock.advance(POLL_INTERVAL_S)
        copied.positions_now[P] += 1
        assert watch.failures() == []
    for _ in range(int(STALL_S / POLL_INTERVAL_S) - 1):
        clock.advance(POLL_INTERVAL_S)
        assert watch.failures() == []
    clock.advance(POLL_INTERVAL_S)
    assert [f.cause for f in watch.failures()] == [
        f"{P}: the mirror's position is 90, the cut is 100, and has not moved for 300 s",
        f"{Q}: the mirror's position is 10, the cut is 100, and has not moved for 300 s",
    ]
