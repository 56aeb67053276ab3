"""Which hours every live source is past: the first condition of a cut. Pure.

A source is live until its host has said goodbye. All times are the delivery services' clock, except the closer's own, which
must agree: the earlier of the two decides, so a clock that runs ahead, whosever it is, closes nothing early.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from etl.ledger.rows import Frontier, Reporter, State
from hourmark.dead_letters import TYPE as DEAD_LETTERS
from hourmark.host_reports import API_SOURCE


@dataclasses.dataclass(frozen=True, slots=True)
class Readiness:
    """How far a type's hours may be cut: those that end at or before `horizon_ms`. `waits_for` names who holds the next one."""

    horizon_ms: int
    waits_for: tuple[str, ...]


def awaited(frontier: Frontier, reporters: Iterable[Reporter]) -> list[Reporter]:
    """The live reporters whose lines or requests may become events of the type."""
    return [
        r
        for r in reporters
        if not r.goodbye and (r.source in frontier.sources or r.source == API_SOURCE or frontier.event_type == DEAD_LETTERS)
    ]


def readiness(frontier: Frontier, reporters: Collection[Reporter], now_ms: int) -> Readiness:
    """How far the type may be cut, given the latest reports and the closer's clock."""
    live = awaited(frontier, reporters)
    if not any(r.kind == "service" for r in reporters):
        return Readiness(0, ("no delivery service has reported yet; is one running? (`hourmark serve`)",))
    end = frontier.hour.end_ms
    waits = [
        f"{r.name} ({r.host_id}): "
        + ("never caught up yet" if r.caught_up_at_ms is None else f"caught up {_ago(end, r)} before its end")
        for r in live
        if r.caught_up_at_ms is None or r.caught_up_at_ms < end
    ]
    if now_ms < end:
        waits.append(f"the hour has not ended by the closer's clock ({(end - now_ms) / 1000:.0f} s to go)")
    horizon = min([now_ms, *(r.caught_up_at_ms or 0 for r in live)])
    return Readiness(horizon, tuple(waits))


def newcomers(before: Collection[Reporter], after: Collection[Reporter]) -> list[Reporter]:
    """Reporters that are live now and were not known, or had said goodbye, before: what they promise a cut may miss."""
    known = {(r.host_id, r.source) for r in before if not r.goodbye}
    return [r for r in after if not r.goodbye and (r.host_id, r.source) not in known]


def ready(frontiers: Iterable[Frontier], reporters: Collection[Reporter], now_ms: int) -> dict[str, int]:
    """Open types whose frontier hour may be cut, with their horizons."""
    found = {}
    for f in frontiers:
        if f.state is State.OPEN:
            horizon = readiness(f, reporters, now_ms).horizon_ms
            if f.hour.end_ms <= horizon:
                found[f.event_type] = horizon
    return found


def _ago(end_ms: int, reporter: Reporter) -> str:
    assert reporter.caught_up_at_ms is not None
    return f"{(end_ms - reporter.caught_up_at_ms) / 1000:.1f} s"
