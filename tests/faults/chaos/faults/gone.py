"""What nobody can bring back: events of the edge that the mirror had not copied, and a log that nobody had read to its end.

Each is noted before it is destroyed, and each must be named: by the mirror's watch within a minute, by the tailer. Hours are then
closed by an operator's override, as the runbooks have it, and by nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from confluent_kafka import TopicPartition
from tests.faults.chaos.faults.fault import Fault, Heal, NotInjected, index_of
from tests.faults.chaos.faults.processes import CLIENTS, hit
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.losses import Vanished, envelopes
from tests.faults.chaos.operator import close_without
from tests.faults.chaos.settings import EVENTS_SOURCE, HOSTS, all_types
from tests.faults.chaos.victims import pause, resume
from tests.support.judged.world import identity

from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, Partition
from hourmark.mirror_positions import MirrorPositions
from hourmark.mirror_workers import workers
from hourmark.topics import events_topic
from hourmark_infra.stack.layout import WATCH
from hourmark_producer.status import FileStatus, status_of

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_TOUCHES: Final = frozenset(("edge", "central", "mirror", "driver", "hdfs", "ledger", "registry", "service"))
_MIRRORS: Final = ("mirror", "mirror-b")
_AWAY_S: Final = (10.0, 30.0)
_NAMED_S: Final = 60.0
_COMMAND_S: Final = 120.0
_LEFT_S: Final = 120.0
_STILL_S: Final = 1.0
_ROTATED_S: Final = 120.0
_TOLD_S: Final = 60.0


def _overtaken(world: World, pick: float) -> Heal:
    """Both workers of the mirror are gone, and the edge's retention deletes what they had not copied of a type."""
    event_type, back = _type(world, pick), _without_mirror(world, pick)

    def heal() -> None:
        at_ms, edge = world.clock.now_ms(), Cluster(world.config.kafka.edge, "edge")
        ends = _note(world, edge, event_type, at_ms)
        futures = edge.admin.delete_records([TopicPartition(p.topic, p.partition, end) for p, end in ends.items()])
        for future in futures.values():
            future.result(_COMMAND_S)
        _named(world, "overtaken")
        back()
        _closed(world, event_type, at_ms)

    return heal


def _made_again(world: World, pick: float) -> Heal:
    """The same, and somebody deletes the type's topic at the edge; it is made again, and the mirror begins anew with it."""
    event_type, back = _type(world, pick), _without_mirror(world, pick)

    def heal() -> None:
        edge, topic = Cluster(world.config.kafka.edge, "edge"), events_topic(event_type)
        with _no_acknowledgements(world):
            at_ms, before = world.clock.now_ms(), _note(world, edge, event_type, world.clock.now_ms())
            while before != (now := _note(world, edge, event_type, at_ms)):
                before = now
            edge.admin.delete_topics([topic])[topic].result(_COMMAND_S)
            world.wait(lambda: not edge.topics([topic]), f"{topic} to be gone", _COMMAND_S)
        world.center.run_repeatable("types", "apply", seconds=_COMMAND_S)
        _named(world, "topic-recreated")
        _begin_anew(world, topic)
        back()
        _closed(world, event_type, at_ms)

    return heal


def _type(world: World, pick: float) -> str:
    names = all_types(world.kinds)
    return names[index_of(pick, len(names))]


def _without_mirror(world: World, pick: float) -> Heal:
    return hit(lambda _world, _pick: _MIRRORS, lambda v: v.kill(), lambda v: v.come_back(), world, pick)


@contextlib.contextmanager
def _no_acknowledgements(world: World) -> Iterator[None]:
    """Services stand still meanwhile, so that nothing is acknowledged between a look and what follows."""
    services = [f"service-{host}" for host in HOSTS]
    for name in services:
        pause(world.victims[name])
    try:
        yield
    finally:
        for name in services:
            resume(world.victims[name])


def _note(world: World, edge: Cluster, event_type: str, at_ms: int) -> Mapping[Partition, int]:
    """Write down what of the type the mirror has not copied; the edge's ends. May be repeated."""
    topic = events_topic(event_type)
    partitions = [Partition(topic, number) for number in edge.topics([topic])[topic].partitions]
    starts, ends = edge.starts(partitions), edge.ends(partitions)
    central = world.config.kafka.central
    assert central is not None
    with closing(MirrorPositions(central, world.config.kafka.edge_alias)) as reader:
        positions = reader.refresh()
    spans = {p: (max(starts[p], positions.get(p, 0)), ends[p]) for p in partitions}
    world.losses.destroyed(event_type, envelopes(world.config.kafka.edge, spans), at_ms)
    return ends


def _named(world: World, alarm: str) -> None:
    """The mirror's watch names it within a minute."""
    port, line = world.stack.layout.ports[WATCH], f'hourmark_mirror_alarms{{name="{alarm}"}} '

    def told() -> bool:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5.0, trust_env=False).text
        return any(row.startswith(line) and float(row.removeprefix(line)) > 0 for row in text.splitlines())

    world.wait(told, f"the alarm {alarm}", _NAMED_S)


def _begin_anew(world: World, topic: str) -> None:
    central, alias = world.config.kafka.central, world.config.kafka.edge_alias
    assert central is not None
    cluster = Cluster(central, "central")
    world.wait(lambda: not workers(cluster, alias).hosts, "killed workers to be missed by their group", _LEFT_S)
    world.center.run_repeatable("mirror", "reset-offsets", "--topic", topic, "--yes", seconds=_COMMAND_S)


def _closed(world: World, event_type: str, at_ms: int) -> None:
    close_without(world, event_type, at_ms)
    with contextlib.suppress(Unavailable):  # it ends with 1 while anything else is wrong
        world.center.run("mirror", "watch", "--once", "--accept", seconds=_COMMAND_S)


def _vanished(host: str, world: World, _pick: float) -> Heal:
    """SIGKILL for a tailer; the log that it was reading is rotated, and gone before it is back."""
    name, live = f"tailer-{host}", world.logs / host / EVENTS_SOURCE / "player.log"
    world.hit.add(name)
    before = _rotated(live)
    world.victims[name].kill()
    file = next((of for of in _known(world, host) if of.file_id == identity(live)), None)
    if file is None or _rotated(live) != before:
        world.victims[name].come_back()
        world.hit.discard(name)
        raise NotInjected("the log was rotated in this moment")
    world.wait(lambda: _rotated(live) != before, f"{live} to be rotated", _ROTATED_S)
    (taken,) = sorted(_rotated(live) - before)[:1]
    lies_at = world.work / "vanished" / host / EVENTS_SOURCE / taken.name
    lies_at.parent.mkdir(parents=True, exist_ok=True)
    taken.rename(lies_at)
    world.losses.vanished.append(Vanished(host, EVENTS_SOURCE, live, lies_at, file.offset))
    lost, told = lies_at.stat().st_size - file.offset, _losses(world, host)

    def heal() -> None:
        world.victims[name].come_back()
        world.hit.discard(name)

        def is_named() -> bool:
            lost_bytes, unknown = (now - then for now, then in zip(_losses(world, host), told, strict=True))
            return unknown > 0 or lost_bytes == lost

        if lost:
            world.wait(is_named, f"{name} to name {lost} bytes of {taken.name} as lost, or unknown", _TOLD_S)

    return heal


def _rotated(live: Path) -> set[Path]:
    return set(live.parent.glob(f"{live.name}.*"))


def _known(world: World, host: str) -> Sequence[FileStatus]:
    return status_of(world.host_config(host).tailer.state_dir, [EVENTS_SOURCE]).files


def _losses(world: World, host: str) -> tuple[int, int]:
    """Bytes, and occasions of unknown loss, as the tailer counts them."""
    of = status_of(world.host_config(host).tailer.state_dir, [EVENTS_SOURCE]).sources[0]
    return of.lost_bytes, of.unknown_losses


FAULTS: Final[Sequence[Fault]] = (
    Fault("retention-overtakes-the-mirror", _TOUCHES, CLIENTS, _AWAY_S, _overtaken, needs_minutes=True),
    Fault("edge-topic-made-again", _TOUCHES, CLIENTS, _AWAY_S, _made_again, needs_minutes=True),
    *(
        Fault(
            f"tailer-{host}-log-vanished", frozenset((f"tailer-{host}",)),
            CLIENTS - {Flow(f"tailer-{host}")} | {Flow.MIRROR, Flow.STAGING}, _AWAY_S, partial(_vanished, host),
            needs_minutes=True,
        )
        for host in HOSTS
    ),
)  # fmt: skip
