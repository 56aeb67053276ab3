"""Which positions are of a topic that was there before."""

from __future__ import annotations

from hourmark.kafka import Partition
from hourmark_mirror.resetting import Kept, stale


def of(topic: str, partition: int, position: int, edge_end: int | None) -> Kept:
    return Kept(Partition(topic, partition), position, edge_end, b"")


def test_where_one_position_lies_past_the_edges_end_all_of_its_topic_are_forgotten() -> None:
    anew, outgrown = of("events.click", 0, 9, 8), of("events.click", 1, 5, 6)
    assert stale([anew, outgrown, of("events.view", 0, 3, 3), of("events.view", 1, 3, 400)]) == [anew, outgrown]


def test_what_the_edge_does_not_tell_of_is_kept_and_said_so() -> None:
    away = of("events.click", 0, 9, None)
    assert stale([away]) == []
    assert str(away) == "events.click-0: the mirror stands at 9, the edge has no such topic-partition"
    assert str(of("events.click", 0, 9, 8)).endswith("the edge ends at 8")
