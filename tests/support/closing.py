"""What a test does with `tests.support.simulator.world.World`, a step at a time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, Range
from tests.support.simulator.world import World

from hourmark.hours import Hour
from hourmark.kafka import Partition
from hourmark.manifest import Manifest
from hourmark.record_key import RecordKey
from hourmark.topics import events_topic
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.ledger.overrides import Blocker, blockers
from hourmark_etl.model import Frontier


def hour(count: int) -> Hour:
    return Hour(FIRST_HOUR.start_s + 3600 * count, 3600)


def until(world: World, at: Hour, seconds: float = 1.0) -> None:
    """The clock stands this long after the hour's end."""
    world.clock.advance(at.end_s + seconds - world.clock.now_ms() / 1000)


def settle(world: World) -> None:
    """All that is sent arrives, and the closer looks until it waits."""
    world.producers.report(0)
    poll(world)


def poll(world: World) -> Waiting:
    """The same without new reports."""
    world.pipeline.mirror_all(0)
    world.pipeline.stage_all(0)
    for _ in range(20):
        outcome = world.closer.step()
        if isinstance(outcome, Waiting):
            world.check()
            return outcome
    raise AssertionError("the closer never comes to rest")


def frontier(world: World, event_type: str) -> Frontier:
    return next(f for f in world.frontiers() if f.event_type == event_type)


def manifest(world: World, event_type: str, at: Hour = FIRST_HOUR) -> Manifest:
    return world.judge.manifests[event_type, at]


def wait_of(world: World, event_type: str) -> Blocker:
    return blockers(world.database, FIRST_HOUR.length_s)[event_type]


def line(world: World) -> None:
    """One range, sent and acknowledged."""
    world.producers.cut_range(1)
    world.producers.send_all(1)


def send(world: World, types: Sequence[str], time_ms: int) -> None:
    """One range with an event of each of these types, acknowledged."""
    producers, events = world.producers, []
    for event_type in types:
        producers.lines += 1
        events.append(producers._event(producers.lines, 0, event_type, time_ms))
    producers._take(0, tuple(events))
    sent = producers.ranges[-1]
    for e in events:
        producers._append(Partition(events_topic(e.event_type), 0), RecordKey(e.id, sent.id).encode(), e.value)
    producers.promise(sent, sent.events)
    sent.acked = True


def send_otherwise(world: World, readings: Sequence[tuple[str, int]], *, recorded: bool = True) -> Range:
    """The last range again, read as an event of each of these types and times; if not `recorded`, its service dies before."""
    producers, sent = world.producers, world.producers.ranges[-1]
    sent.otherwise = tuple(
        e if (e.event_type, e.time_ms) == reading else producers._event(-e.line, 0, *reading, place=e.line)
        for e, reading in zip(sent.events, readings, strict=False)
    )
    for e in sent.otherwise:
        producers._append(Partition(events_topic(e.event_type), 0), RecordKey(e.id, sent.id).encode(), e.value)
    if recorded:
        producers.promise(sent, sent.otherwise)
    return sent


def send_again(world: World, sent: Range, *, recorded: bool = False) -> None:
    """The range again, as it was read first."""
    for e in sent.events:
        world.producers._append(Partition(events_topic(e.event_type), 0), RecordKey(e.id, sent.id).encode(), e.value)
    if recorded:
        world.producers.promise(sent, sent.events)


def arrive(world: World, *topics: str) -> None:
    """These topics of the edge are mirrored whole, and staged."""
    for p in EDGE_PARTITIONS:
        if p.topic in topics:
            world.pipeline.mirror.copy(p, world.pipeline.mirror.lag(p))
    world.pipeline.stage_all(0)
