"""Links that are cut, slow, silent, or that lose answers after requests went through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.faults.chaos.faults.fault import Fault, Heal, index_of
from tests.faults.chaos.faults.processes import CLIENTS, LEDGER
from tests.faults.chaos.flows import ALL, Flow
from tests.faults.chaos.link import Mode
from tests.faults.chaos.linked_stack import BROKERS, DRIVER, MIRROR, SERVICES, way_name

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_HOLD_S: Final = (20.0, 60.0)
_NOTHING: Final = frozenset[Flow]()
_MIRRORED: Final = CLIENTS | {Flow.MIRROR}
_STAGED: Final = _MIRRORED | {Flow.STAGING}
_BAD: Final = (Mode.CUT, Mode.HALF_OPEN)
_SLOW: Final = (Mode.DELAY, Mode.ANSWERS_LOST)


def _to_one_broker(cluster: str, mode: Mode, world: World, pick: float) -> Heal:
    """Its neighbours reach one broker no more; it reaches them, and everybody else reaches it."""
    nodes = world.stack.layout.nodes(cluster)
    return _set([way_name(BROKERS, cluster, nodes[index_of(pick, len(nodes))])], mode, world, pick)


def _to_cluster(who: str, cluster: str, mode: Mode, world: World, pick: float) -> Heal:
    """Somebody's links to all brokers."""
    return _set(
        [way_name(who, cluster, node) for node in world.stack.layout.nodes(cluster)],
        mode,
        world,
        pick,
    )


def _set(links: Sequence[str], mode: Mode, world: World, pick: float) -> Heal:
    for name in links:
        world.links[name].set(mode, pick)

    def heal() -> None:
        for name in links:
            world.links[name].set(Mode.OPEN)

    return heal


def _links(
    between: str, links: Sequence[str], touches: str, bad: frozenset[Flow], slow: frozenset[Flow]
) -> list[Fault]:
    """Of links that are no broker's."""
    return _faults(
        between, partial(_set, links), touches, bad, slow, needs_postgres=LEDGER in links
    )


def _faults(
    between: str,
    set_to: Callable[[Mode, World, float], Heal],
    touches: str,
    bad: frozenset[Flow],
    slow: frozenset[Flow],
    *,
    needs_spread: bool = False,
    needs_postgres: bool = False,
) -> list[Fault]:
    """All modes: what must go on where nothing comes through, and where it does slowly, or
    twice.
    """
    return [
        Fault(
            f"{between}-{mode}",
            frozenset((touches,)),
            goes_on,
            _HOLD_S,
            partial(set_to, mode),
            needs_spread,
            needs_postgres,
        )
        for modes, goes_on in ((_BAD, bad), (_SLOW, slow))
        for mode in modes
    ]


FAULTS: Final[Sequence[Fault]] = (
    # Hours wait for a host that reports to nobody, and an answer that is lost may be a report's.
    *_links(
        "tailer-a-to-services",
        ("tailer-a-a", "tailer-a-b"),
        "tailer-a",
        ALL - {Flow.TAILER_A, Flow.CLOSING},
        ALL - {Flow.CLOSING},
    ),
    *_links(
        "tailer-b-to-one-service",
        ("tailer-b-a",),
        "tailer-b",
        ALL - {Flow.CLOSING},
        ALL - {Flow.CLOSING},
    ),
    *_links("api-to-services", ("api-a", "api-b"), "api", ALL - {Flow.API}, ALL),
    *_links("api-to-one-service", ("api-a",), "api", ALL, ALL),
    *_links("driver-to-namenode", ("namenode",), "hdfs", _MIRRORED, _MIRRORED),
    *_links("driver-to-ledger", (LEDGER,), LEDGER, _MIRRORED, _MIRRORED),
    # An answer that is lost is an acknowledgement after the append.
    *_faults("services-to-edge", partial(_to_cluster, SERVICES, "edge"), "edge", _NOTHING, _STAGED),
    *_faults("mirror-to-edge", partial(_to_cluster, MIRROR, "edge"), "mirror", CLIENTS, CLIENTS),
    *_faults(
        "mirror-to-central", partial(_to_cluster, MIRROR, "central"), "mirror", CLIENTS, CLIENTS
    ),
    *_faults(
        "driver-to-edge", partial(_to_cluster, DRIVER, "edge"), "driver", _MIRRORED, _MIRRORED
    ),
    *_faults(
        "driver-to-central", partial(_to_cluster, DRIVER, "central"), "driver", _MIRRORED, _MIRRORED
    ),
    *_faults("edge-brokers-to-one", partial(_to_one_broker, "edge"), "edge", _NOTHING, _STAGED),
    *_faults(
        "central-brokers-to-one",
        partial(_to_one_broker, "central"),
        "central",
        CLIENTS,
        CLIENTS,
        needs_spread=True,
    ),
    *_links("all-to-registry", ("registry",), "registry", ALL, ALL),
)
