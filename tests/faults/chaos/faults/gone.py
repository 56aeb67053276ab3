"""What nobody can bring back: events of the edge that the mirror had not copied, and a log that
nobody had read to its end.

Each is noted before it is destroyed, and each must be named: by the mirror's watch within a minute,
by the tailer. Hours are then closed by an operator's override, as the runbooks have it, and by
nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx
from confluent_kafka import TopicPartition
from tests.faults.chaos.faults.fault import Fault, Heal, NotInjected, index_of
from tests.faults.chaos.faults.processes import CLIENTS, hit
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.losses import Row, Vanished, partitions_of, read_rows
from tests.faults.chaos.operator import close_without
from tests.faults.chaos.settings import EVENTS_SOURCE, HOSTS, all_types
from tests.faults.chaos.victims import pause, resume
from tests.support.http_client import HTTP
from tests.support.judged.world import identity

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.mirror import MirrorPositions, read_workers
from hourmark.kafka.topic_names import events_topic
from hourmark.process.alarms import AlarmName
from hourmark_infra.stack.layout import WATCH
from hourmark_producer.report.status import SourceStatus, TailerStatus, read_status

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_TOUCHES: Final = frozenset(
    ("edge", "central", "mirror", "driver", "hdfs", "ledger", "registry", "service")
)
_MIRRORS: Final = ("mirror", "mirror-b")
_AWAY_S: Final = (10.0, 30.0)
_NAMED_S: Final = 60.0
_ACCEPTED_S: Final = 120.0
_COMMAND_S: Final = 120.0
_LEFT_S: Final = 120.0
_STILL_S: Final = 1.0
_ROTATED_S: Final = 120.0
_SETTLED_S: Final = 10.0
_TOLD_S: Final = 180.0


class _Uncopied(NamedTuple):
    """Of one type at the edge: where its topic-partitions end, and the events that the mirror had
    not copied.
    """

    ends: Mapping[Partition, int]
    rows: list[Row]


def _overtaken(world: World, pick: float) -> Heal:
    """Both workers of the mirror are gone, and the edge's retention deletes what they had not
    copied of a type.
    """
    event_type, back = _type(world, pick), _without_mirror(world, pick)

    def heal() -> None:
        edge = Cluster(world.config.kafka.edge, "edge")
        found = _uncopied(world, edge, event_type)
        if not found.rows:  # nobody wrote any
            return back()
        world.losses.add_destroyed(found.rows)
        asked = [TopicPartition(p.topic, p.partition, end) for p, end in found.ends.items()]
        for future in edge.admin.delete_records(asked).values():
            future.result(_COMMAND_S)
        named = _is_named(world, AlarmName.OVERTAKEN)
        back()
        return _recovered(world, event_type, found.rows, AlarmName.OVERTAKEN, named=named)

    return heal


def _made_again(world: World, pick: float) -> Heal:
    """The same, and somebody deletes the type's topic at the edge; it is made again, and the mirror
    begins anew with it.
    """
    event_type, back = _type(world, pick), _without_mirror(world, pick)

    def heal() -> None:
        edge, topic = Cluster(world.config.kafka.edge, "edge"), events_topic(event_type)
        with _no_acknowledgements(world):
            found, before = _uncopied(world, edge, event_type), None
            while before != found.ends:
                world.clock.sleep(_STILL_S)
                before, found = found.ends, _uncopied(world, edge, event_type)
            world.losses.add_destroyed(found.rows)
            edge.admin.delete_topics([topic])[topic].result(_COMMAND_S)
            world.wait(lambda: not edge.topics([topic]), f"{topic} to be gone", _COMMAND_S)
        world.center.run_repeatable("types", "apply", seconds=_COMMAND_S)
        named = _is_named(world, AlarmName.TOPIC_RECREATED)
        _begin_anew(world, topic)
        back()
        _recovered(world, event_type, found.rows, AlarmName.TOPIC_RECREATED, named=named)

    return heal


def _type(world: World, pick: float) -> str:
    names = all_types(world.kinds)
    return names[index_of(pick, len(names))]


def _without_mirror(world: World, pick: float) -> Heal:
    return hit(
        lambda _world, _pick: _MIRRORS, lambda v: v.kill(), lambda v: v.come_back(), world, pick
    )


@contextlib.contextmanager
def _no_acknowledgements(world: World) -> Iterator[None]:
    """Services stand still meanwhile, so that nothing is acknowledged between a look and what
    follows.
    """
    services = [f"service-{host}" for host in HOSTS]
    for name in services:
        pause(world.victims[name])
    try:
        yield
    finally:
        for name in services:
            resume(world.victims[name])


def _uncopied(world: World, edge: Cluster, event_type: str) -> _Uncopied:
    partitions = partitions_of(edge, events_topic(event_type))
    with closing(MirrorPositions(world.central.settings, world.config.kafka.edge_alias)) as reader:
        positions = reader.refresh()
    starts, ends = edge.starts(partitions), edge.ends(partitions)
    spans = {p: (max(starts[p], positions.get(p, 0)), ends[p]) for p in partitions}
    return _Uncopied(ends, read_rows(edge, event_type, spans))


def _is_named(world: World, alarm: AlarmName) -> bool:
    """Whether the mirror's watch names it within a minute."""
    try:
        world.wait(lambda: _stands(world, alarm), f"the alarm {alarm}", _NAMED_S)
    except Unavailable:
        return False
    return True


def _stands(world: World, alarm: AlarmName) -> bool:
    line = f'hourmark_mirror_alarms{{name="{alarm.value}"}} '
    with contextlib.suppress(httpx.HTTPError):  # asked again
        url = f"http://127.0.0.1:{world.stack.layout.ports[WATCH]}/metrics"
        rows = HTTP.get(url, timeout=5.0).text.splitlines()
        return any(row.startswith(line) and float(row.removeprefix(line)) > 0 for row in rows)
    return False


def _begin_anew(world: World, topic: str) -> None:
    central, alias = world.central, world.config.kafka.edge_alias
    world.wait(
        lambda: not read_workers(central, alias).hosts,
        "killed workers to be missed by their group",
        _LEFT_S,
    )
    world.center.run_repeatable(
        "mirror", "reset-offsets", "--topic", topic, "--all", "--yes", seconds=_COMMAND_S
    )


def _recovered(
    world: World, event_type: str, rows: Sequence[Row], alarm: AlarmName, *, named: bool
) -> None:
    """Its hours are closed by overrides, and the alarm is accepted; only then a missing one is
    complained of.
    """
    newest_ms = max((row["time_ms"] + 1 for row in rows), default=0)
    close_without(world, event_type, max(newest_ms, world.clock.now_ms()))

    def accepted() -> bool:
        with contextlib.suppress(Unavailable):  # it ends with 1 while anything else is wrong
            world.center.run("mirror", "watch", "--once", "--accept", seconds=_COMMAND_S)
        return not _stands(world, alarm)

    if named:
        world.wait(accepted, f"the alarm {alarm} to be over", _ACCEPTED_S)
    else:
        raise AssertionError(f"the watch did not name {alarm} within {_NAMED_S:.0f} s")


def _vanished(host: str, world: World, _pick: float) -> Heal:
    """SIGKILL for a tailer; the log that it was reading is rotated, and gone before it is back."""
    name, live = f"tailer-{host}", world.logs / host / EVENTS_SOURCE / "player.log"
    now_s = world.clock.now_ms() / 1000
    if not live.exists() or any(
        now_s - path.stat().st_mtime < _SETTLED_S for path in _rotated(live)
    ):
        raise NotInjected("the log was rotated a moment ago, and its tailer may not know yet")
    before = _rotated(live)
    world.hit.add(name)
    world.victims[name].kill()
    file = next((of for of in _status(world, host).files if of.file_id == identity(live)), None)
    if file is None or file.offset > live.stat().st_size or _rotated(live) != before:
        world.victims[name].come_back()
        world.hit.discard(name)
        raise NotInjected("the log was rotated in this very moment")
    read = file.offset

    def heal() -> None:
        _take(world, host, live, before, read)
        told = _losses(world, host)
        world.victims[name].come_back()
        world.hit.discard(name)
        world.wait(
            lambda: _losses(world, host) != told,
            f"{name} to name what it had not read of its log",
            _TOLD_S,
        )

    return heal


def _take(world: World, host: str, live: Path, before: set[Path], read: int) -> None:
    """The log as it was, once it is rotated; but the live one is left alone."""
    world.wait(lambda: _rotated(live) != before, f"{live} to be rotated", _ROTATED_S)
    taken = min(_rotated(live) - before, key=lambda path: int(path.suffix.removeprefix(".")))
    lies_at = world.work / "vanished" / host / EVENTS_SOURCE / taken.name
    lies_at.parent.mkdir(parents=True, exist_ok=True)
    taken.rename(lies_at)
    world.losses.add_vanished(Vanished(host, EVENTS_SOURCE, live, lies_at, read))


def _rotated(live: Path) -> set[Path]:
    return set(live.parent.glob(f"{live.name}.*"))


def _status(world: World, host: str) -> TailerStatus:
    return read_status(world.host_config(host).tailer.state_dir, [EVENTS_SOURCE])


def _losses(world: World, host: str) -> tuple[int, int]:
    """Bytes, and occasions of unknown loss, as the tailer counts them."""
    of: SourceStatus = next(
        source for source in _status(world, host).sources if source.name == EVENTS_SOURCE
    )
    return of.lost_bytes, of.unknown_losses


FAULTS: Final[Sequence[Fault]] = (
    Fault(
        "retention-overtakes-the-mirror", _TOUCHES, CLIENTS, _AWAY_S, _overtaken, needs_minutes=True
    ),
    Fault("edge-topic-made-again", _TOUCHES, frozenset(), _AWAY_S, _made_again, needs_minutes=True),
    *(
        Fault(
            f"tailer-{host}-log-vanished",
            frozenset((f"tailer-{host}",)),
            CLIENTS - {Flow(f"tailer-{host}")} | {Flow.MIRROR, Flow.STAGING},
            _AWAY_S,
            partial(_vanished, host),
            needs_minutes=True,
        )
        for host in HOSTS
    ),
)
