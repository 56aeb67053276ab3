"""The order of a check's questions, over two clusters that move between them: no hole, and no
alarm, is passed over.

The clusters are played, because what matters happens between two questions;
`tests/integration/test_mirror.py` asks real ones.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.clock import FakeClock

from hourmark.config.groups import KafkaCluster, KafkaSettings, MirrorSettings
from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition, TopicInfo
from hourmark.process.alarms import AlarmName
from hourmark_mirror.record_digests import RecordDigest, content_digest
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify import content_comparison, verification, verification_state
from hourmark_mirror.verify.result_formatting import format_result, result_to_json
from hourmark_mirror.verify.verification import Verification, VerificationResult

P, Q = Partition("events.a", 0), Partition("edge.events.a", 0)
_T = TypeVar("_T")
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@dataclasses.dataclass
class Log:
    """One cluster. `hooks`: what happens once, right after a question of that name was answered.

    All its topics have one retention, and all its records were written at one time.
    """

    records: dict[Partition, list[tuple[int, str]]] = dataclasses.field(default_factory=dict)
    start: dict[Partition, int] = dataclasses.field(default_factory=dict)
    stable: dict[Partition, int] = dataclasses.field(default_factory=dict)
    ids: dict[str, str] = dataclasses.field(default_factory=dict)
    hooks: dict[str, Callable[[], object]] = dataclasses.field(default_factory=dict)
    retention_ms: int = 72 * HOUR_MS
    written_ms: int = NOW_MS - 1

    def put(self, p: Partition, offsets: Iterable[int], *, of: str = "r") -> None:
        self.records[p] = [(offset, f"{of}{offset}") for offset in offsets]
        self.start.setdefault(p, 0)
        self.ids.setdefault(p.topic, f"id-{p.topic}")

    def trim(self, p: Partition, to: int) -> None:
        self.start[p] = to
        self.records[p] = [one for one in self.records[p] if one[0] >= to]

    def cluster_id(self) -> str:
        return "cluster"

    def names(self) -> list[str]:
        return sorted(self.ids)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        found = {}
        for name in (n for n in names if n in self.ids):
            partitions = tuple(sorted(p.partition for p in self.records if p.topic == name))
            found[name] = TopicInfo(name, self.ids[name], partitions)
        return self._told("topics", found)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: {"retention.ms": str(self.retention_ms)} for name in names}

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        def high(p: Partition) -> int:
            return max((offset for offset, _ in self.records[p]), default=self.start[p] - 1) + 1

        return self._told(
            "ends",
            {
                p: min(high(p), self.stable.get(p, 1 << 60)) if committed else high(p)
                for p in partitions
            },
        )

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._told("starts", {p: self.start[p] for p in partitions})

    def _told(self, question: str, answer: _T) -> _T:
        if hook := self.hooks.pop(question, None):
            hook()
        return answer


@dataclasses.dataclass
class World:
    """Both, and where the mirror stands."""

    config: Config
    edge: Log = dataclasses.field(default_factory=Log)
    central: Log = dataclasses.field(default_factory=Log)
    positions: dict[Partition, int] = dataclasses.field(default_factory=dict)
    refreshed: Callable[[], object] = lambda: None

    def check(
        self, timeout_s: float = 1.0, *, accept: bool = False, **more: Any
    ) -> VerificationResult:
        return Verification(self.config, FakeClock(NOW_MS), topics=(), accept=accept).run(
            timeout_s, **more
        )

    def alarms(self) -> list[str]:
        verdict = self.check()
        assert verdict.ok is not bool(verdict.alarms), format_result(verdict)
        return [alarm.seen for alarm in verdict.alarms]

    def equal(self, count: int) -> None:
        """Both sides hold so many records, and a check has seen it."""
        self.edge.put(P, range(count))
        self.central.put(Q, range(count))
        self.positions = {P: count}
        assert self.check().ok


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    away = KafkaCluster(bootstrap="127.0.0.1:1")
    made = World(
        Config(
            kafka=KafkaSettings(edge=away, central=away), mirror=MirrorSettings(work_dir=tmp_path)
        )
    )

    class PlayedSites(MirrorSites):
        def __init__(self, config: Config) -> None:
            self.alias = config.kafka.edge_alias
            self.edge, self.central = made.edge, made.central  # type: ignore[assignment]

        def positions(self) -> Any:
            def refresh() -> dict[Partition, int]:
                made.refreshed()
                return dict(made.positions)

            return types.SimpleNamespace(refresh=refresh, close=lambda: None)

    def span_reader(cluster: Log, _: int) -> Any:
        return types.SimpleNamespace(cluster=cluster, close=lambda: None)

    def read_span(reader: Any, p: Partition, start: int, end: int) -> Iterator[RecordDigest]:
        for offset, value in [*reader.cluster.records[p]]:
            if start <= offset < min(end, reader.cluster.stable.get(p, end)):
                yield RecordDigest(
                    offset,
                    reader.cluster.written_ms,
                    value.encode(),
                    content_digest(value.encode(), value.encode()),
                )

    monkeypatch.setattr(verification, "MirrorSites", PlayedSites)
    monkeypatch.setattr(content_comparison, "open_reader", span_reader)
    monkeypatch.setattr(content_comparison, "read_digests", read_span)
    return made


def test_a_hole_that_retention_makes_while_a_check_waits_is_named_and_stays(world: World) -> None:
    world.equal(100)
    world.edge.put(P, range(600))
    world.central.put(Q, range(300))
    world.positions = {P: 300}

    def meanwhile() -> None:
        world.edge.trim(P, 500)
        world.central.put(Q, [*range(300), *range(500, 600)])
        world.positions = {P: 600}
        world.refreshed = lambda: None

    world.refreshed = lambda: setattr(world, "refreshed", meanwhile)
    verdict = world.check(30.0)
    assert (
        len(verdict.alarms) == 1 and "offsets 100 to 499 may be missing" in verdict.alarms[0].seen
    )
    assert world.alarms() == [alarm.seen for alarm in verdict.alarms]
    assert not world.check(accept=True).alarms
    assert world.check().ok


def overtake(world: World) -> None:
    """A check knows position 100; then retention deletes 400 records before the mirror has copied
    them.
    """
    world.equal(100)
    world.edge.put(P, range(600))
    world.edge.trim(P, 500)
    world.central.put(Q, [*range(100), *range(500, 600)])
    world.positions = {P: 600}


def test_a_loss_that_nobody_was_told_is_told_by_the_check_that_accepts(world: World) -> None:
    overtake(world)
    verdict = world.check(accept=True)
    assert [alarm.seen.split(": the")[0] for alarm in verdict.alarms] == [
        "events.a-0: offsets 100 to 499 may be missing"
    ]
    assert not verdict.ok
    assert world.check().ok, "it was told, and accepted"


def test_what_a_loss_has_grown_by_since_it_was_told_is_told_by_the_check_that_accepts(
    world: World,
) -> None:
    overtake(world)
    assert "offsets 100 to 499" in world.alarms()[0]
    world.edge.put(P, range(900))
    world.edge.trim(P, 800)
    world.central.put(Q, [*range(100), *range(500, 600), *range(800, 900)])
    world.positions = {P: 900}
    assert ["offsets 100 to 799" in alarm.seen for alarm in world.check(accept=True).alarms] == [
        True
    ]
    assert world.check().ok


def test_a_topic_made_anew_of_which_nobody_was_told_is_told_by_the_check_that_accepts(
    world: World,
) -> None:
    world.equal(100)
    world.edge.ids["events.a"] = "new"
    world.edge.put(P, range(150), of="n")
    world.central.put(Q, range(150), of="n")
    world.positions = {P: 150}
    verdict = world.check(accept=True)
    assert ["was deleted and recreated" in alarm.seen for alarm in verdict.alarms] == [True]
    assert verdict.compared[0].comparison.matched == 150, "the new one is compared"
    assert world.check().ok


def test_records_of_a_deleted_topic_are_older_ones_once_it_is_accepted(world: World) -> None:
    world.equal(100)
    world.edge.ids["events.a"] = "new"
    world.edge.put(P, range(20), of="n")
    old, new = world.central.records[Q], [(100 + n, f"n{n}") for n in range(20)]
    world.central.records[Q] = old + new
    world.positions = {P: 20}
    assert not world.check().ok
    world.check(accept=True)
    for _ in range(2):
        verdict = world.check()
        assert verdict.ok, format_result(verdict)
        comparison = verdict.compared[0].comparison
        assert (comparison.matched, comparison.older) == (20, 100)
    assert "100 older ones only on the target" in format_result(verdict)[-1]
    world.central.records[Q] = [*old, *new[:10], (110, "x"), *((n + 1, r) for n, r in new[10:])]
    assert world.check().compared[0].comparison.faults == {"foreign": 1}, "not an older one"


def test_another_recreation_is_not_accepted_with_the_first(world: World) -> None:
    world.equal(100)
    world.edge.ids["events.a"] = "new"
    world.edge.put(P, range(1), of="n")
    world.central.records[Q] += [(100, "n0")]
    world.positions = {P: 1}
    world.check(accept=True)
    assert world.check().ok
    world.edge.ids["events.a"] = "newest"
    assert any("was deleted and recreated" in alarm for alarm in world.alarms())


def test_what_only_the_target_has_is_told_by_the_check_that_accepts_where_nobody_was_told(
    world: World,
) -> None:
    world.equal(5)
    world.central.put(Partition("edge.events.zzz", 0), [0])
    assert [alarm.subject for alarm in world.check(accept=True).alarms] == ["topic edge.events.zzz"]
    assert world.check().ok


def test_a_stale_position_is_an_alarm_also_when_the_topic_has_outgrown_it(world: World) -> None:
    world.edge.put(P, range(10))
    world.central.put(Q, [])
    world.positions = {P: 1000}
    assert any("past the edge's log end 10" in alarm for alarm in world.alarms())
    world.edge.put(P, range(1500))
    world.central.put(Q, range(1000, 1500))
    world.positions = {P: 1500}
    assert any("stale" in alarm for alarm in world.alarms())
    world.edge.trim(P, 1200)
    assert any("stale" in alarm for alarm in world.alarms()), "0 to 999 never arrived"


def test_records_of_a_transaction_whose_end_comes_after_its_position_are_waited_for(
    world: World,
) -> None:
    world.equal(5)
    world.edge.put(P, range(8))
    world.central.put(Q, range(8))
    world.positions = {P: 8}
    world.central.stable[Q] = 6
    world.central.hooks["ends"] = lambda: setattr(
        world.central, "hooks", {"ends": lambda: world.central.stable.pop(Q)}
    )  # after the second
    assert world.check().ok


def test_what_is_not_copied_yet_is_behind_and_not_missing(world: World) -> None:
    world.equal(5)
    world.edge.put(P, range(8))
    verdict = world.check(0.0)
    assert verdict.behind and not verdict.compared[0].comparison.faults
    world.central.put(Q, range(8))
    world.positions = {P: 8}
    assert world.check().ok, "nothing is left of it"


def test_the_edges_first_retention_makes_nothing_foreign(world: World) -> None:
    world.equal(100)
    world.edge.hooks["topics"] = lambda: world.edge.hooks.update(
        starts=lambda: world.edge.hooks.update(starts=trim_late)
    )

    def trim_late() -> None:
        world.edge.hooks["starts"] = lambda: world.edge.trim(
            P, 40
        )  # after those that the comparison goes by

    verdict = world.check()
    assert verdict.ok, format_result(verdict)
    assert verdict.compared[0].comparison.older == 40


@pytest.mark.parametrize(
    ("at_edge_ms", "on_target_ms"),
    [(168 * HOUR_MS, HOUR_MS), (-1, HOUR_MS)],
    ids=["raised at the edge alone", "kept for ever"],
)
def test_a_target_that_keeps_less_than_the_edge_is_missing_what_it_deleted(
    world: World, at_edge_ms: int, on_target_ms: int
) -> None:
    world.equal(100)
    world.edge.retention_ms, world.central.retention_ms = at_edge_ms, on_target_ms
    world.edge.written_ms = world.central.written_ms = NOW_MS - 2 * HOUR_MS
    world.central.trim(Q, 60)
    comparison = world.check().compared[0].comparison
    assert (comparison.faults["missing"], comparison.expired, comparison.matched) == (60, 0, 40)


@pytest.mark.parametrize(("young_ms", "missing"), [(120_000, 0), (600_000, 60)])
def test_a_broker_whose_clock_is_before_this_ones_deletes_a_little_earlier(
    world: World, young_ms: int, missing: int
) -> None:
    """By minutes, as the watch allows, and no more; what was deleted so is told in the last
    line.
    """
    world.equal(100)
    world.edge.written_ms = world.central.written_ms = NOW_MS - 72 * HOUR_MS + young_ms
    world.central.trim(Q, 60)
    verdict = world.check()
    assert verdict.compared[0].comparison.faults["missing"] == missing
    assert verdict.ok is not bool(missing)
    told = (
        "40 records equal, 60 deleted by the target's retention: the target holds the rest "
        "of what the source holds"
    )
    assert (told in format_result(verdict)[-1]) is verdict.ok


def test_what_only_the_target_has_is_an_alarm_until_it_is_accepted(world: World) -> None:
    world.equal(5)
    world.central.put(Partition("edge.events.a", 1), [0])
    world.central.put(Partition("edge.events.zzz", 0), [0])
    world.central.put(Partition("other.events.zzz", 0), [0])  # of another site
    found = [alarm.split(" exists on")[0] for alarm in world.alarms()]
    assert found == ["edge.events.a-1", "topic edge.events.zzz"]
    assert not world.check(accept=True).alarms
    assert world.check().ok


def test_what_retention_had_deleted_before_is_no_gap_where_a_position_was_forgotten(
    world: World,
) -> None:
    world.equal(100)
    world.edge.trim(P, 30)
    assert world.check().ok
    world.positions = {}
    for _ in range(2):
        verdict = world.check(0.0)
        assert (bool(verdict.behind), verdict.alarms) == (True, [])
    world.edge.trim(P, 70)
    world.positions = {P: 100}
    assert "offsets 30 to 69 may be missing" in world.alarms()[0]


def test_a_missing_record_is_told_also_after_retention_has_deleted_the_evidence(
    world: World,
) -> None:
    world.edge.put(P, range(10))
    world.central.put(Q, [*range(3), *range(6, 10)])
    world.positions = {P: 10}
    verdict = world.check()
    assert (verdict.ok, verdict.alarms, verdict.compared[0].comparison.faults["missing"]) == (
        False,
        [],
        3,
    )
    world.edge.trim(P, 6)
    assert [
        alarm
        for alarm in world.alarms()
        if alarm.startswith("events.a-0: 3 missing, the first at edge offset 3")
    ]
    assert not world.check(accept=True).alarms
    assert world.check().ok


def test_a_topic_made_anew_while_it_is_compared_is_an_alarm(world: World) -> None:
    world.equal(10)
    world.central.hooks["ends"] = lambda: world.edge.ids.update({"events.a": "another"})
    assert "was deleted and recreated" in world.alarms()[0]
    assert "was deleted and recreated" in world.alarms()[0]


def test_an_edge_that_was_formatted_anew_is_an_alarm_that_stays(world: World) -> None:
    world.equal(100)
    world.edge.ids["events.a"] = "new"
    world.edge.put(P, range(150), of="n")
    world.positions = {P: 150}
    assert "was deleted and recreated" in world.alarms()[0]
    world.edge.trim(P, 120)
    assert "was deleted and recreated" in world.alarms()[0], "retention proves nothing"


def test_nothing_compared_is_not_well(world: World) -> None:
    verdict = world.check()
    assert not verdict.ok
    assert format_result(verdict)[0].startswith("ALARM nothing was compared")


def test_a_sampled_check_says_how_much_it_compared_and_asks_for_every_remote_topic(
    world: World,
) -> None:
    parts = [Partition("events.a", n) for n in range(4)]
    for p in parts:
        world.edge.put(p, range(10))
        world.central.put(Partition("edge.events.a", p.partition), range(10))
    world.positions = dict.fromkeys(parts, 10)
    verdict = world.check(sample=1)
    assert (verdict.ok, len(verdict.compared), verdict.left_out) == (True, 1, 3)
    assert format_result(verdict)[-1] == (
        "1 of 4 topic-partitions compared, 10 records equal: the compared records are equal "
        "on both sides"
    )
    assert result_to_json(verdict)["left_out"] == 3
    assert (
        format_result(world.check())[-1]
        == "4 topic-partitions compared, 40 records equal: the target holds what the source holds"
    )
    del world.central.records[Partition("edge.events.a", 2)]
    for seed in range(8):
        verdict = world.check(sample=1, seed=seed)
        assert [(alarm.name, alarm.subject) for alarm in verdict.alarms] == [
            (AlarmName.REMOTE_MISSING, "events.a-2")
        ]
        assert (len(verdict.compared), verdict.left_out) == (1, 2)


def test_what_was_found_is_told_also_where_it_cannot_be_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    world.equal(5)
    monkeypatch.setattr(verification_state, "write_durably", refuses)
    told: list[VerificationResult] = []
    with pytest.raises(UsageError, match=r"checks\.json cannot be written: Permission denied"):
        world.check(report=told.append)
    assert [verdict.ok for verdict in told] == [True]


def test_a_log_start_that_moves_each_time_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.equal(100)
    starts: Iterator[int] = iter(range(1, 99))

    def moving(_: Iterable[Partition]) -> Mapping[Partition, int]:
        world.edge.trim(P, next(starts))
        return dict(world.edge.start)

    monkeypatch.setattr(world.edge, "starts", moving)
    assert any("a log start moved during each attempt" in alarm for alarm in world.alarms())
