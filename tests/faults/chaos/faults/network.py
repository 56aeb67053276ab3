"""Links that are cut, slow, silent, or that lose answers after requests went through."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.faults.chaos.faults.fault import Fault, Heal
from tests.faults.chaos.faults.processes import CLIENTS
from tests.faults.chaos.flows import ALL, Flow
from tests.faults.chaos.link import Mode

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_HOLD_S: Final = (20.0, 60.0)
_MIRRORED: Final = CLIENTS | {Flow.MIRROR}
_BAD: Final = (Mode.CUT, Mode.HALF_OPEN)
_SLOW: Final = (Mode.DELAY, Mode.ANSWERS_LOST)


def _set(links: Sequence[str], mode: Mode, world: World, pick: float) -> Heal:
    for name in links:
        if name in world.links:
            world.links[name].set(mode, pick)

    def heal() -> None:
        for name in links:
            if name in world.links:
                world.links[name].set(Mode.OPEN)

    return heal


def _faults(between: str, links: Sequence[str], touches: str, bad: frozenset[Flow], slow: frozenset[Flow]) -> list[Fault]:
    """All modes: what must go on where nothing comes through, and where it does slowly, or twice."""
    return [
        Fault(f"{between}-{mode}", frozenset((touches,)), goes_on, _HOLD_S, partial(_set, links, mode))
        for modes, goes_on in ((_BAD, bad), (_SLOW, slow))
        for mode in modes
    ]


FAULTS: Final[Sequence[Fault]] = (
    # Hours wait for a host that reports to nobody, and an answer that is lost may be a report's.
    *_faults(
        "tailer-a-to-services", ("tailer-a-a", "tailer-a-b"), "tailer-a",
        ALL - {Flow.TAILER_A, Flow.CLOSING}, ALL - {Flow.CLOSING},
    ),
    *_faults("tailer-b-to-one-service", ("tailer-b-a",), "tailer-b", ALL - {Flow.CLOSING}, ALL - {Flow.CLOSING}),
    *_faults("api-to-services", ("api-a", "api-b"), "api", ALL - {Flow.API}, ALL),
    *_faults("api-to-one-service", ("api-a",), "api", ALL, ALL),
    *_faults("driver-to-namenode", ("namenode",), "hdfs", _MIRRORED, _MIRRORED),
    *_faults("driver-to-ledger", ("ledger",), "ledger", _MIRRORED, _MIRRORED),
    *_faults("all-to-registry", ("registry",), "registry", ALL, ALL),
)  # fmt: skip
