"""One look at a mirror of more partitions than it reads records of: none is passed over for
good.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.support.clock import FakeClock
from tests.unit.mirror.watch.test_sampling import Message

from hourmark.kafka.clients import Partition
from hourmark.process.alarms import Alarm, AlarmName
from hourmark_mirror.watch import observer
from hourmark_mirror.watch.alarms import AlarmLimits, evaluate_alarms
from hourmark_mirror.watch.observation import WatchState
from hourmark_mirror.watch.observer import PARTITIONS_READ_MAX, MirrorObserver, UncopiedTimestamps

TOPIC: Final = "events.a"
COUNT: Final = PARTITIONS_READ_MAX + 50
HOUR_MS: Final = 3_600_000
RECORDS: Final = 10


@dataclasses.dataclass
class World:
    """Both clusters, and their readers, as far as a look asks them: partitions of ten
    records each.
    """

    clock: FakeClock
    written_ms: int
    copied: int
    target_start: int = 0
    topic_id: str = "id"
    settings: Any = None
    alias: str = "edge"
    read_of: list[Partition] = dataclasses.field(default_factory=list)

    @property
    def edge(self) -> World:
        return dataclasses.replace(self, target_start=0)

    @property
    def central(self) -> World:
        return self

    def topics(self, names: Iterable[str] | None = None) -> Any:
        info = SimpleNamespace(name=TOPIC, topic_id=self.topic_id, partitions=range(COUNT))
        return [info] if names is None else {TOPIC: info}

    def positions(self) -> Any:
        return SimpleNamespace(
            refresh=lambda: {Partition(TOPIC, n): self.copied for n in range(COUNT)},
            close=lambda: None,
        )

    def existing_remotes(self, partitions: Iterable[Partition]) -> dict[Partition, Partition]:
        return {p: p for p in partitions}

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.target_start)

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        return dict.fromkeys(partitions, RECORDS)

    def at_time(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.target_start)

    def newest_ms(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {TOPIC: {"retention.ms": str(168 * HOUR_MS), "max.message.bytes": "1000"}}

    def read(self, spans: Mapping[Partition, tuple[int, int]]) -> Iterator[list[Any]]:
        self.read_of.extend(spans)
        for p, (start, end) in spans.items():
            records = [
                Message(at, self.written_ms) for at in range(max(start, self.target_start), end)
            ]
            yield [SimpleNamespace(partition=p, records=records)]

    def close(self) -> None:
        pass


class Looks:
    """Looks at the world, ten seconds apart."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        follower = SimpleNamespace(poll=lambda: (False, []), close=lambda: None)
        monkeypatch.setattr(observer, "TopicFollower", lambda *_: follower)
        monkeypatch.setattr(observer, "open_reader", lambda cluster, _max_bytes: cluster)
        sites: Any = world
        self.clock, self.memory = world.clock, WatchState()
        self.looker = MirrorObserver(sites, world.clock, max_message_bytes=1000, expected=[])

    def observe(self) -> list[Alarm]:
        self.clock.advance(10)
        found = evaluate_alarms(
            self.looker.observe(self.memory), self.memory, AlarmLimits(24.0, {})
        )
        self.memory = found.state
        return found.alarms


def test_of_many_targets_whose_log_start_moved_each_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    world = World(clock, written_ms=clock.now_ms() - HOUR_MS, copied=RECORDS)
    looks = Looks(world, monkeypatch)
    assert looks.observe() == []
    world.target_start = 5
    looks.observe()
    named = {alarm.subject for alarm in looks.observe() if alarm.name == AlarmName.TARGET_TRUNCATED}
    assert len(named) == COUNT
    assert len(looks.observe()) == COUNT, "they stand"
    world.read_of.clear()
    looks.observe()
    assert world.read_of == [], "each was looked at once"


def test_of_many_partitions_that_are_behind_retention_is_told_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    looks = Looks(World(clock, written_ms=clock.now_ms() - 160 * HOUR_MS, copied=3), monkeypatch)
    looks.observe()
    looks.observe()
    named = {alarm.subject for alarm in looks.observe() if alarm.name == AlarmName.RETENTION_NEAR}
    assert len(named) == COUNT


def test_of_a_topic_made_again_the_record_at_the_same_offset_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    world = World(clock, written_ms=clock.now_ms() - 160 * HOUR_MS, copied=0)
    looks = Looks(world, monkeypatch)
    assert AlarmName.RETENTION_NEAR in {alarm.name for alarm in looks.observe()}
    world.topic_id, world.written_ms = "another", clock.now_ms()
    looks.observe()
    assert AlarmName.RETENTION_NEAR not in {alarm.name for alarm in looks.observe()}


def test_a_partition_that_moves_is_read_again_in_its_turn_and_one_that_stands_still_is_not() -> (
    None
):
    uncopied = UncopiedTimestamps()
    at = {Partition(TOPIC, n): 3 for n in range(COUNT)}
    first = uncopied.select_reads(at)
    assert list(first) == list(at)[:PARTITIONS_READ_MAX], "the most urgent"
    assert uncopied.record_reads(first, dict.fromkeys(first, 7)) == dict.fromkeys(first, 7)
    second = uncopied.select_reads(at)
    assert list(second) == list(at)[PARTITIONS_READ_MAX:]
    assert len(uncopied.record_reads(second, dict.fromkeys(second, 8))) == COUNT
    assert uncopied.select_reads(at) == {}
    moved = dict.fromkeys(at, 4)
    third = uncopied.select_reads(moved)
    assert list(third) == list(at)[:PARTITIONS_READ_MAX], "those read longest ago"
    assert len(uncopied.record_reads(third, {})) == COUNT - PARTITIONS_READ_MAX, (
        "no record stands there"
    )
    assert list(uncopied.select_reads(moved)) == list(second)
    del moved[Partition(TOPIC, COUNT - 1)]
    assert len(uncopied.record_reads({}, {})) == COUNT - PARTITIONS_READ_MAX
    uncopied.select_reads(moved)
    assert len(uncopied.record_reads({}, {})) == COUNT - PARTITIONS_READ_MAX - 1, "it has caught up"
