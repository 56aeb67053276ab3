"""What a test does with `tests.support.simulator.world.World`, a step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, Event, Range
from tests.support.simulator.world import World

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import events_topic
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark.records.record_key import RecordKey
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.closing.engine import Engine
from hourmark_etl.ledger.overrides import Blocker, blockers, put_override, put_overrides
from hourmark_etl.model import Frontier


def hour(count: int) -> Hour:
    return Hour(FIRST_HOUR.start_s + 3600 * count, 3600)


def until(world: World, at: Hour, seconds: float = 1.0) -> None:
    """The clock stands this long after the hour's end."""
    world.clock.advance(at.end_s + seconds - world.clock.now_ms() / 1000)


def settle(world: World, at: Hour | None = None, seconds: float = 1.0) -> None:
    """All that is sent arrives, and the closer polls until it waits; this long after the hour's
    end, where one is named.
    """
    if at is not None:
        until(world, at, seconds)
    world.producers.report(0)
    poll(world)


def poll(world: World) -> Waiting:
    """The same without new reports."""
    arrive(world)
    for _ in range(20):
        outcome = world.closer.step()
        if isinstance(outcome, Waiting):
            world.check()
            return outcome
    raise AssertionError("the closer never comes to rest")


def frontier(world: World, event_type: str = "click") -> Frontier:
    return next(f for f in world.frontiers() if f.event_type == event_type)


def open_hours(world: World) -> set[Hour]:
    """Of all types: the frontier's."""
    return {f.hour for f in world.frontiers()}


def manifest(world: World, event_type: str = "click", at: Hour = FIRST_HOUR) -> Manifest:
    return world.judge.manifests[event_type, at]


def manifests(world: World, event_type: str = "click") -> list[Manifest]:
    """Of all closed hours, in turn."""
    return [m for (t, _), m in sorted(world.judge.manifests.items()) if t == event_type]


def grade(world: World, event_type: str = "click", at: Hour = FIRST_HOUR) -> str:
    return manifest(world, event_type, at).grade.value


def grades(world: World, event_type: str = "click") -> list[str]:
    return [m.grade.value for m in manifests(world, event_type)]


def wait_of(world: World, event_type: str = "click") -> Blocker:
    return blockers(world.database, FIRST_HOUR.length_s)[event_type]


def override(world: World, event_type: str = "click", reason: str = "cannot wait") -> None:
    """An operator's, for the type's frontier hour."""
    put_override(
        world.database,
        event_type,
        frontier(world, event_type).hour,
        reason,
        "ada",
        world.clock.now_ms(),
    )


def override_all(world: World) -> dict[str, Hour]:
    """An operator's, for the frontier hours of all types."""
    return put_overrides(
        world.database, FIRST_HOUR.length_s, "cannot wait", "ada", world.clock.now_ms()
    )


def with_engine_alone(world: World) -> World:
    """A new closer, by the engine as it is: the plain proof beside it knows of no conflicts."""
    world.closer_database.close()
    world.engine = lambda database: Engine(world.storage, database, world.config)  # type: ignore[method-assign]
    world.start_closer()
    return world


def line(world: World, ranges: int = 1) -> None:
    """As many ranges, sent and acknowledged."""
    for seed in range(ranges):
        world.producers.cut_range(seed)
    world.producers.send_all(0)


def send(
    world: World, types: Sequence[str], time_ms: int | None = None, *, recorded: bool = True
) -> None:
    """One range with an event of each of these types, now or at this time, acknowledged; if not
    `recorded`, its service dies before its audit record.
    """
    producers, events = world.producers, []
    time_ms = world.clock.now_ms() if time_ms is None else time_ms
    for event_type in types:
        producers.lines += 1
        events.append(producers.new_event(producers.lines, 0, event_type, time_ms))
    producers.add_range(0, tuple(events))
    sent = producers.ranges[-1]
    append(world, sent, events)
    if recorded:
        producers.promise(sent, sent.events)
    sent.acked = True


def append(world: World, sent: Range, events: Iterable[Event]) -> None:
    """Events of the range, and no audit record."""
    for e in events:
        world.producers.append_record(
            Partition(events_topic(e.event_type), 0), RecordKey(e.id, sent.id).encode(), e.value
        )


def send_otherwise(
    world: World,
    readings: Sequence[tuple[str, int]],
    *,
    recorded: bool = True,
    sent: Range | None = None,
) -> Range:
    """A range again, the last one or this, read as an event of each of these types and times; if
    not `recorded`, its service dies before.
    """
    producers, sent = world.producers, sent or world.producers.ranges[-1]
    sent.otherwise = tuple(
        e
        if (e.event_type, e.time_ms) == reading
        else producers.new_event(-e.line, 0, *reading, place=e.line)
        for e, reading in zip(sent.events, readings, strict=False)
    )
    append(world, sent, sent.otherwise)
    if recorded:
        producers.promise(sent, sent.otherwise)
    return sent


def send_again(world: World, sent: Range, *, recorded: bool = False) -> None:
    """The range again, as it was read first."""
    append(world, sent, sent.events)
    if recorded:
        world.producers.promise(sent, sent.events)


def arrive(world: World, *topics: str) -> None:
    """These topics of the edge, or all, are mirrored whole, and staged."""
    for mirror in world.pipeline.mirrors:
        for p in EDGE_PARTITIONS:
            if not topics or p.topic in topics:
                mirror.copy(p, mirror.lag(p))
    world.pipeline.stage_all(0)


def report(world: World) -> None:
    """Everybody reports, and all that is sent arrives."""
    world.producers.report(0)
    arrive(world)


def send_old(world: World, at: Hour, *types: str) -> None:
    """A line of each of these types (click by default) in an hour, which may be an old one."""
    send(world, types or ("click",), at.start_s * 1000 + 1000)


def settle_old(world: World) -> None:
    """The closer notices the old hours, and then every source catches up with that moment."""
    settle(world)
    world.clock.advance(12)
    settle(world)
