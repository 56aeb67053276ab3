"""Each process of the world ended, killed, or paused: SIGTERM, SIGKILL, SIGSTOP; all edge brokers,
too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import psutil
from tests.faults.chaos.faults.fault import Fault, Heal, NotInjected, index_of
from tests.faults.chaos.flows import ALL, Flow
from tests.faults.chaos.victims import Victim, pause, resume
from tests.support.spark_python import kill_pythons

from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark_infra.stack.layout import CENTRAL_NAMES, DATANODES, EDGE_NAMES
from hourmark_verify.demo.demo import leading_broker

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

CLIENTS: Final = frozenset((Flow.TAILER_A, Flow.TAILER_B, Flow.API))
_MIRRORED: Final = CLIENTS | {Flow.MIRROR}
_STAGED: Final = _MIRRORED | {Flow.STAGING}
LEDGER: Final = "ledger"
_AWAY_S: Final = (5.0, 25.0)
_PAUSED_S: Final = (30.0, 60.0)
_AGAIN_S: Final = 120.0

Names = Callable[["World", float], Sequence[str]]  # whom a fault hits, by its pick


def _edge_leader(world: World, pick: float) -> Sequence[str]:
    """The broker that leads a topic."""
    return [leading_broker(world.config, events_topic(_one(world.types, pick)))]


def _central_leader(world: World, pick: float) -> Sequence[str]:
    topic = central_topic(events_topic(_one(world.types, pick)), world.config.kafka.edge_alias)
    return [leading_broker(world.config, topic, "central")]


def _another(leader: Names, brokers: Sequence[str]) -> Names:
    """One that does not lead it."""
    return lambda world, pick: [
        _one([name for name in brokers if name not in leader(world, pick)], pick)
    ]


def _one(names: Sequence[str], pick: float) -> str:
    return names[index_of(pick, len(names))]


def _two(brokers: Sequence[str]) -> Names:
    """All but one: too few for anything that wants a majority."""
    return lambda _world, pick: [name for name in brokers if name != _one(brokers, pick)]


def named(name: str) -> Names:
    return lambda _world, _pick: [name]


@dataclasses.dataclass(frozen=True)
class _Target:
    """Whom to hit, and what goes on without. `gently`: where it ends as an operator ends it.
    `of_several`: there are three.
    """

    name: str
    names: Names
    touches: str
    goes_on: frozenset[Flow]
    gently: frozenset[Flow] | None = None
    of_several: bool = False


_TARGETS: Final = (
    _Target("edge-leader", _edge_leader, "edge", ALL),
    _Target("edge-follower", _another(_edge_leader, EDGE_NAMES), "edge", ALL),
    _Target("two-edge-brokers", _two(EDGE_NAMES), "edge", frozenset()),
    _Target("all-edge-brokers", lambda _world, _pick: EDGE_NAMES, "edge", frozenset()),
    _Target("central-leader", _central_leader, "central", CLIENTS),  # there may be no other
    _Target(
        "central-follower",
        _another(_central_leader, CENTRAL_NAMES),
        "central",
        _MIRRORED,
        of_several=True,
    ),
    _Target("two-central-brokers", _two(CENTRAL_NAMES), "central", CLIENTS, of_several=True),
    _Target(
        "all-central-brokers",
        lambda _world, _pick: CENTRAL_NAMES,
        "central",
        CLIENTS,
        of_several=True,
    ),
    # The other worker takes over; events of an hour that is to close may come a session later.
    _Target("mirror", named("mirror"), "mirror", _MIRRORED),
    _Target("second-mirror", named("mirror-b"), "mirror", _MIRRORED),
    _Target("both-mirrors", lambda _world, _pick: ("mirror", "mirror-b"), "mirror", CLIENTS),
    _Target("namenode", named("namenode"), "hdfs", _MIRRORED),
    _Target(
        "datanode",
        lambda world, pick: [_one(world.stack.layout.shape.datanodes, pick)],
        "hdfs",
        _MIRRORED,
    ),
    _Target("all-datanodes", lambda _world, _pick: DATANODES, "hdfs", _MIRRORED, of_several=True),
    _Target("registry", named("registry"), "registry", ALL),
    # Its neighbour takes all; hours wait up to a minute for one that went without goodbye.
    _Target("service-a", named("service-a"), "service", _STAGED, ALL),
    _Target("service-b", named("service-b"), "service", _STAGED, ALL),
    # Hours wait for the host.
    _Target("tailer-a", named("tailer-a"), "tailer-a", _STAGED - {Flow.TAILER_A}),
    _Target("tailer-b", named("tailer-b"), "tailer-b", _STAGED - {Flow.TAILER_B}),
    _Target("driver", named("etl"), "driver", _MIRRORED),
    _Target(LEDGER, named(LEDGER), LEDGER, _MIRRORED),
)


def hit(
    names: Names,
    how: Callable[[Victim], None],
    back: Callable[[Victim], None],
    world: World,
    pick: float,
) -> Heal:
    """Do it to all of them; the heal brings all back."""
    chosen = names(world, pick)
    world.hit.update(chosen)
    for name in chosen:
        how(world.victims[name])

    def heal() -> None:
        for name in chosen:  # all of them first: brokers that wait for one another come up together
            if back is not resume:
                world.victims[name].start()
        for name in chosen:
            back(world.victims[name])
        world.hit.difference_update(chosen)

    return heal


def _faults(target: _Target) -> Sequence[Fault]:
    def one(
        signal: str,
        how: Callable[[Victim], None],
        back: Callable[[Victim], None],
        goes_on: frozenset[Flow],
    ) -> Fault:
        hold_s = _PAUSED_S if back is resume else _AWAY_S
        inject = partial(hit, target.names, how, back)
        in_postgres = target.name == LEDGER
        return Fault(
            f"{target.name}-{signal}",
            frozenset((target.touches,)),
            goes_on,
            hold_s,
            inject,
            target.of_several,
            in_postgres,
        )

    return (
        one(
            "sigterm",
            lambda v: v.terminate(),
            lambda v: v.come_back(),
            target.gently or target.goes_on,
        ),
        one("sigkill", lambda v: v.kill(), lambda v: v.come_back(), target.goes_on),
        one("sigstop", pause, resume, target.goes_on),
    )


def _mirror_maker(world: World, _pick: float) -> Heal:
    """SIGKILL for MirrorMaker 2 itself: its supervisor starts another."""
    (supervisor, *children) = world.victims["mirror"].processes()
    for child in children:
        psutil.Process(child.pid).kill()

    def heal() -> None:
        def again() -> bool:
            running = world.victims["mirror"].processes()
            return (
                bool(running)
                and running[0] == supervisor
                and any(child not in children for child in running[1:])
            )

        world.wait(again, "MirrorMaker 2 to be started again by its supervisor", _AGAIN_S)

    return heal


def _python_workers(world: World, _pick: float) -> Heal:
    """SIGKILL for Spark's Python, the daemon, all tasks in it, and the one that plans: the driver
    begins the batch again.
    """
    driver = world.victims["etl"].processes()
    if not driver or not kill_pythons(driver[0].pid):
        raise NotInjected("the driver has no Python of Spark's now")
    return lambda: None


FAULTS: Final[Sequence[Fault]] = (
    *(fault for target in _TARGETS for fault in _faults(target)),
    Fault("mirror-maker-sigkill", frozenset(("mirror",)), _MIRRORED, _AWAY_S, _mirror_maker),
    Fault("python-workers-sigkill", frozenset(("driver",)), _STAGED, _AWAY_S, _python_workers),
)
