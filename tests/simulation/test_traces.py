"""Traces in the middle of random histories: what they say of every event agrees with where it is,
and nothing is called lost.

Real are the ledger, staging, closing, and what a trace reads of ledger and storage; Kafka is the
simulator's.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.histories import NUMBERS, WEIGHTS
from tests.support.kafka_logs import LoggedRecord
from tests.support.simulator.sites import ALIAS, FakeCluster
from tests.support.simulator.truth import FIRST_HOUR, Event
from tests.support.simulator.world import World

from hourmark.config.groups import KafkaCluster, KafkaSettings
from hourmark.kafka.clients import Partition
from hourmark.kafka.committed_reader import MessageRun
from hourmark.kafka.partitions_reader import RecordRun
from hourmark.kafka.topic_names import events_topic
from hourmark.records.event_id import EventId
from hourmark_etl.buckets.reader import find_manifest, list_hours, read_events
from hourmark_etl.operators.tracing import kafka_search
from hourmark_etl.operators.tracing.query import EventQuery
from hourmark_etl.operators.tracing.storage_search import StorageSearch
from hourmark_etl.operators.tracing.summary import TraceSummary, TraceVerdict, summarize_trace
from hourmark_etl.operators.tracing.tracer import EventTracer, SendWindow

pytestmark = pytest.mark.slow

LENGTH_S = FIRST_HOUR.length_s
# Not those in which a ledger, a file or a topic's records are lost on purpose: then things may be
# missing.
ODD = (
    "damage",
    "lose_ledger",
    "back_up",
    "restore",
    "central_retention",
    "no_leader",
    "elect",
    "change_key",
    "outsider",
    "older_service",
)
CALM = {name: weight for name, weight in WEIGHTS.items() if name not in ODD}
HISTORIES = 6
ON_ITS_WAY = (TraceVerdict.IN_KAFKA, TraceVerdict.MIRRORED, TraceVerdict.STAGED)


class Read:
    """A cluster of the simulator, as a trace reads one."""

    settings = None

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def at_time(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, int]:
        return {p: self._at_time(p, time_ms) for p in partitions}

    def _at_time(self, p: Partition, time_ms: int) -> int:
        log = self._cluster.logs[p]
        late = (
            n
            for n, r in enumerate(log.records)
            if n >= log.start and r is not None and r.at_ms >= time_ms
        )
        return next(late, len(log.records))

    def read(
        self, spans: Mapping[Partition, tuple[int, int]]
    ) -> Generator[list[MessageRun], None, None]:
        for p, (start, end) in spans.items():
            for n in range(start, end):
                if (r := self._cluster.logs[p].records[n]) is not None:
                    record: Any = LoggedRecord(p, n, r.at_ms, r.key, r.value)
                    yield [RecordRun(p, [record], n + 1)]

    def close(self) -> None:
        """Nothing is held."""


class Positions:
    """Of the simulator's mirror."""

    def __init__(self, world: World) -> None:
        self._world = world

    def refresh(self) -> dict[Partition, int]:
        return dict(self._world.pipeline.mirror.positions)

    def close(self) -> None:
        """Nothing is held."""


@contextlib.contextmanager
def tracing(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventTracer]:
    clusters = {"edge": Read(world.producers.edge), "central": Read(world.pipeline.central)}
    monkeypatch.setattr(kafka_search, "Cluster", lambda _, name: clusters[name])
    monkeypatch.setattr(kafka_search, "CommittedReader", lambda _, name, **__: clusters[name])
    monkeypatch.setattr(kafka_search, "MirrorPositions", lambda *_: Positions(world))
    now_ms = world.clock.now_ms()
    kafka = kafka_search.KafkaSearch(
        KafkaSettings(central=KafkaCluster(), edge_alias=ALIAS), lambda _: None, now_ms=now_ms
    )
    kept = StorageSearch(lambda: world.database, world.storage, LENGTH_S, lambda _: None)
    yield EventTracer(kafka, kept, LENGTH_S, SendWindow(since_ms=0, until_ms=now_ms + 900_000))


def traced(world: World, event: Event, monkeypatch: pytest.MonkeyPatch) -> TraceSummary:
    with tracing(world, monkeypatch) as walk:
        return summarize_trace(walk.trace(EventQuery(event.id, event.event_type)))


def in_buckets(world: World) -> set[EventId]:
    """Ids in all buckets that the ledger calls closed."""
    found = set()
    frontiers = {f.event_type: f.hour for f in world.frontiers()}
    for event_type, frontier in frontiers.items():
        for hour in list_hours(world.storage, event_type, LENGTH_S):
            if (
                hour < frontier
                and (manifest := find_manifest(world.storage, event_type, hour)) is not None
            ):
                found |= {
                    EventId(e["event_id"])
                    for e in read_events(world.storage, event_type, hour, manifest)
                }
    return found


def written(world: World) -> dict[EventId, Event]:
    """Events of which the edge got a record, or may have."""
    made = (
        e for r in world.producers.ranges for e in (*r.events, *r.otherwise) if e.id in r.appended
    )
    return {e.id: e for e in made}


def check(
    world: World, r: random.Random, monkeypatch: pytest.MonkeyPatch, seen: Counter[TraceVerdict]
) -> None:
    closed, known = in_buckets(world), written(world)
    for event_id in r.sample(sorted(known), min(6, len(known))):
        story = traced(world, known[event_id], monkeypatch)
        seen[story.verdict] += 1
        if event_id in closed:
            assert story.verdict is TraceVerdict.IN_BUCKET, story
        else:
            assert story.verdict in ON_ITS_WAY, story


def test_what_is_told_of_an_event_is_where_it_is(
    ledgers: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Counter[TraceVerdict]()
    for seed in range(HISTORIES):
        r, world = random.Random(seed), World(ledgers, template)
        try:
            for n, name in enumerate(r.choices(list(CALM), list(CALM.values()), k=80)):
                world.clock.advance(0.01)
                world.act(name, r.randrange(NUMBERS))
                if n % 10 == 9:
                    check(world, r, monkeypatch, seen)
        finally:
            world.end()
    assert set(seen) == set(ON_ITS_WAY) | {TraceVerdict.IN_BUCKET}, "the histories cover too little"


def test_what_a_faulty_mirror_dropped_is_called_lost(
    ledgers: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ledgers, template)
    try:
        for _ in range(4):
            world.clock.advance(1)
            world.producers.cut_range(3)
        (first, *_) = world.producers.ranges
        for event in (
            first.events[:1] * 2
        ):  # a record beside it, so that the mirror can double that one
            world.producers.append_row(first, event)
        dropped = next(
            e
            for x in world.producers.ranges[1:]
            for e in x.events
            if e.event_type == first.events[0].event_type
        )
        world.producers.append_row(first, dropped)
        place = Partition(events_topic(dropped.event_type), 0)
        world.pipeline.mirror.copy(place, 3, drop=2)
        found = traced(world, dropped, monkeypatch)
        assert (
            found.verdict is TraceVerdict.LOST
            and "the mirror has passed its record" in found.steps[-1].what
        )
        kept = traced(world, first.events[0], monkeypatch)
        assert kept.verdict is TraceVerdict.MIRRORED
    finally:
        world.end()
