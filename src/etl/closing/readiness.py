"""Which hours every live source is past: the first condition of a cut. Pure.

A source is live until its host has said goodbye. All times are the delivery services' clock, except the closer's own, which
must agree: the earlier of the two decides, so a clock that runs ahead, whosever it is, closes nothing early.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

from etl.ledger.rows import Frontier, Reporter, State
from hourmark.dead_letters import TYPE as DEAD_LETTERS
from hourmark.host_reports import API_SOURCE

SILENT_MS: Final = 60_000  # thirty reports of the default pace


@dataclasses.dataclass(frozen=True, slots=True)
class Readiness:
    """How far a type's hours may be cut: those that end at or before `horizon_ms`. `waits_for` names who holds the next one."""

    horizon_ms: int
    waits_for: tuple[str, ...]


def carries(frontier: Frontier, reporter: Reporter) -> bool:
    """Whether the reporter's lines or requests may become events of the type."""
    return reporter.source in frontier.sources or reporter.source == API_SOURCE or frontier.event_type == DEAD_LETTERS


def awaited(frontier: Frontier, reporters: Collection[Reporter]) -> list[Reporter]:
    """The live reporters that carry the type.

    A delivery service that has fallen silent while another reports is not awaited: what it never acknowledged is not promised,
    and hosts that wait for its answer hold the hour themselves.
    """
    heard_ms = max((r.received_at_ms for r in reporters if r.kind == "service"), default=0)
    return [
        r
        for r in reporters
        if not r.goodbye and carries(frontier, r) and not (r.kind == "service" and heard_ms - r.received_at_ms > SILENT_MS)
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
    """Hosts' sources that were not known before, or had said goodbye and came back: what they promise a cut may miss.

    They count even if they have said goodbye again by now. A known host that was restarted is none: it had caught up. Nor is a
    service: what it acknowledges after the cut arrives late, and nobody was promised otherwise.
    """
    known = {(r.host_id, r.source): r for r in before}
    return [r for r in after if r.kind != "service" and _is_new(known.get((r.host_id, r.source)), r)]


def _is_new(before: Reporter | None, after: Reporter) -> bool:
    return before is None or (before.goodbye and before.incarnation != after.incarnation)


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
