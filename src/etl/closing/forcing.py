"""A cut by an operator's order: it waits for nothing, and names what it could not verify.

Promises below what was staged of the audit topic are still compared, and so are rows; what is missing is named in the seal.
Holes are accepted with the seal, so that later hours can be proved again: of a type's own topic by an order for the type; of
promises and reports, which concern every type, only where every type was ordered in one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from etl.closing.cut import Cut, Progress, Sites, shortened
from etl.closing.readiness import Reports, clocks_apart, readiness
from etl.ledger.orders import Order
from etl.ledger.rows import Frontier
from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.kafka import Partition
from hourmark.topics import CONTROL, events_topic

_NO_DEADLINE: Final = 0  # an order excuses at once


def ordered(frontiers: Iterable[Frontier], orders: Mapping[str, Order]) -> list[Frontier]:
    """Frontiers whose very hour is ordered."""
    return [f for f in frontiers if (o := orders.get(f.event_type)) is not None and o.hour_s == f.hour.start_s]


def forced_cut(chosen: Collection[Frontier], sites: Sites, progress: Progress, audit_central: str, clock: Clock) -> Cut:
    """The cut of these types' frontier hours, each of which an order names. A cluster that does not answer is named, too."""
    now_ms = clock.now_ms()
    reports = Reports(progress.reporters())
    apart = clocks_apart(reports, now_ms)
    unverified: dict[str, tuple[str, ...]] = {}
    excused = {}
    holes = _holes(sites, [f.event_type for f in chosen])
    control = [holes[topic] for topic in CONTROL if topic in holes] + _behind(sites, progress, CONTROL)
    for f in chosen:
        topic = events_topic(f.event_type)
        ready = readiness(f, reports, now_ms, _NO_DEADLINE)
        excused[f.event_type] = ready.excused
        own = [holes[topic]] if topic in holes else []
        named = [*([apart] if apart else []), *ready.waits_for, *control, *own, *_behind(sites, progress, (topic,))]
        unverified[f.event_type] = shortened(list(dict.fromkeys(named)))
    return Cut(
        now_ms,
        {f.event_type: f.hour.end_ms for f in chosen},
        progress.staged_next(Partition(audit_central, 0)),
        {t: r for t, r in excused.items() if r},
        unverified,
    )


def accepted_topics(types: Collection[str], *, all_ordered: bool) -> set[str]:
    """The topics whose holes orders for these types accept."""
    return {*(events_topic(t) for t in types), *(CONTROL if all_ordered else ())}


def _holes(sites: Sites, types: Sequence[str]) -> dict[str, str]:
    asked = _answer(lambda: sites.check(types))
    return sites.holes() | ({CONTROL[0]: asked} if asked else {})


def _behind(sites: Sites, progress: Progress, topics: Sequence[str]) -> list[str]:
    """What of these topics is not mirrored, or not staged, as of now."""
    found: list[str] = []

    def look() -> None:
        found.extend(sites.not_mirrored(sites.edge_ends(topics)).values())
        found.extend(progress.not_staged(sites.central_ends(topics)))

    failed = _answer(look)
    return [*found, *([failed] if failed else [])]


def _answer(ask: Callable[[], None]) -> str | None:
    try:
        ask()
    except Unavailable as error:
        return f"not verified, because {error}"
    return None
