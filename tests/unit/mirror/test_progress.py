"""A mirror that runs and copies nothing is seen."""

from __future__ import annotations

from hourmark.kafka import Partition
from hourmark_mirror.progress import STALL_S, Progress

P, Q = Partition("events.a", 0), Partition("events.a", 1)


def test_a_partition_that_stands_still_while_others_move_is_named() -> None:
    progress = Progress()
    ends, starts = {P: 100, Q: 100}, {P: 0, Q: 0}
    assert progress.stalled(0, ends, starts, {P: 10}) == []
    assert progress.stalled(STALL_S - 1, ends, starts, {P: 20}) == []
    assert [b.partition for b in progress.stalled(STALL_S, ends, starts, {P: 20})] == [Q]
    assert progress.stalled(STALL_S + 1, ends, starts, {P: 21, Q: 1}) == []


def test_a_partition_that_had_caught_up_is_given_the_whole_time_again() -> None:
    progress = Progress()
    assert progress.stalled(0, {P: 10}, {P: 0}, {P: 5}) == []
    assert progress.stalled(50, {P: 10}, {P: 0}, {P: 10}) == []
    assert progress.stalled(STALL_S + 1, {P: 11}, {P: 0}, {P: 10}) == []
    assert [b.partition for b in progress.stalled(2 * STALL_S + 1, {P: 11}, {P: 0}, {P: 10})] == [P]


def test_empty_partitions_never_stall() -> None:
    progress = Progress()
    for now_s in (0.0, STALL_S, 2 * STALL_S):
        assert progress.stalled(now_s, {P: 7}, {P: 7}, {}) == []
