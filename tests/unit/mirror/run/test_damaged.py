"""A topic whose batch is damaged at the edge is left out of the mirror, and taken in again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from tests.support.clock import FakeClock

from hourmark.config.groups import KafkaCluster, KafkaSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import PartitionBehind
from hourmark.kafka.partitions_reader import DamagedBatch
from hourmark_mirror.run import damaged_topics
from hourmark_mirror.run.damaged_topics import AGAIN_S, POLL_INTERVAL_S, STILL_S, DamagedTopics
from hourmark_mirror.settings.properties import mirror_maker_properties

BAD, GOOD = Partition("events.bad", 0), Partition("events.good", 0)


class FakeSites:
    """Two topics: `positions` is where the mirror stands."""

    def __init__(self) -> None:
        self.at = {BAD: 5, GOOD: 5}
        self.edge: Any = self
        self.settings = None

    def positions(self) -> Any:
        return self

    def refresh(self) -> dict[Partition, int]:
        return dict(self.at)

    def partitions(self) -> list[Partition]:
        return [BAD, GOOD]

    def ends(self, of: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(of, 100)

    def starts(self, of: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(of, 0)


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> set[Partition]:
    """Partitions of which the next batch is damaged."""
    found = {BAD}

    def read(
        _: object, behind: Collection[PartitionBehind], __: Mapping[Partition, int]
    ) -> list[DamagedBatch]:
        return [
            DamagedBatch("the batch is damaged", of.partition, 5)
            for of in behind
            if of.partition in found
        ]

    monkeypatch.setattr(damaged_topics, "find_damaged_batches", read)
    return found


def looked(watch: DamagedTopics, clock: FakeClock, seconds: float) -> list[str]:
    """What the watch has found after so long."""
    told: list[str] = []
    for _ in range(int(seconds // POLL_INTERVAL_S) + 1):
        clock.advance(POLL_INTERVAL_S)
        told = [f"{failure.name}: {failure.cause}" for failure in watch.failures()]
    return told


def test_a_topic_is_left_out_only_where_it_stands_still_and_its_batch_is_damaged(
    bad: set[Partition],
) -> None:
    sites, clock = FakeSites(), FakeClock()
    watch = DamagedTopics(sites, clock)  # type: ignore[arg-type]
    watch.start_run()
    for _ in range(10):
        sites.at[BAD] += 1
        assert looked(watch, clock, POLL_INTERVAL_S) == []
    (told,) = looked(watch, clock, STILL_S + 2 * POLL_INTERVAL_S)
    assert (
        "events.bad" in told
        and "the topic is excluded" in told
        and list(watch.excluded) == ["events.bad"]
    )


def test_it_is_taken_in_again_once_it_can_be_read_and_not_before(bad: set[Partition]) -> None:
    clock = FakeClock()
    watch = DamagedTopics(FakeSites(), clock)  # type: ignore[arg-type]
    watch.start_run()
    looked(watch, clock, STILL_S + 2 * POLL_INTERVAL_S)
    watch.start_run()
    assert looked(watch, clock, 3 * AGAIN_S) == []
    bad.clear()
    (told,) = looked(watch, clock, AGAIN_S + POLL_INTERVAL_S)
    assert "the topic can be read again" in told and not watch.excluded


def test_a_topic_that_is_left_out_stands_in_the_properties_beside_what_is_left_out_by_default() -> (
    None
):
    config = Config(
        kafka=KafkaSettings(edge=KafkaCluster(), central=KafkaCluster(bootstrap="c1:9092"))
    )
    assert "edge->central.topics.exclude" not in mirror_maker_properties(config)
    told = mirror_maker_properties(config, ["events.b.c", "events.a"])
    assert (
        told["edge->central.topics.exclude"]
        == r".*[\-\.]internal,.*\.replica,__.*,events\.a,events\.b\.c"
    )
