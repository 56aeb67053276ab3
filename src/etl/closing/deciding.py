"""What becomes of a frozen hour: sealed, under which grade and with what excused, or unfrozen. Pure.

proved      every promise below the cut is kept, and every awaited source had caught up
timed_out   past the deadline: sources that had not caught up, or promises that are not kept, are excused, and named
forced      by an order; or the hour had begun before an order accepted a hole, which nobody can fill: in promises or reports,
            as what it was promised is not known for certain; or in its type's events, and promises of it are not kept
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Final

from etl.closing.cut import Cut, shortened
from etl.closing.proof import Proof
from etl.ledger.holes import Hole
from etl.ledger.orders import Order
from etl.ledger.rows import Frontier, Position, Reporter, Seal
from hourmark.hours import Hour
from hourmark.manifest import Grade
from hourmark.topics import CONTROL, events_topic

EARLY_MS: Final = 15 * 60_000  # how far past its receipt an event's time may lie: design, "plausibility"


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a decision rests on besides the proof."""

    cut: Cut
    accepted: Collection[Hole]
    deadline_ms: int


def decide(frontier: Frontier, proof: Proof, offsets: tuple[Position, ...], order: Order | None, rule: Rule) -> Seal | None:
    """The seal of this hour, or None: it is not proved, and waits.

    `order`: the one for this very hour, if any. A deadline is judged by the time of the cut, when clocks were compared.
    """
    late = rule.cut.taken_at_ms >= frontier.hour.end_ms + rule.deadline_ms
    if proof.findings and order is None and not late:
        return None
    sources = [
        f"source {r.source} of {r.kind} {r.host_name} ({r.host_id}) {_why_excused(r, frontier.hour)}"
        for r in rule.cut.excused.get(frontier.event_type, ())
    ]
    promises = [f"not kept: {finding}" for finding in proof.findings]
    holes = [f"accepted: {h.what} ({h.reason})" for h in rule.accepted if _concerns(h, frontier, proof)]
    if order is not None:
        said = f"forced by {order.ordered_by}: {order.reason}"
        skipped = [f"not verified: {what}" for what in rule.cut.unverified.get(frontier.event_type, ())]
        return _seal(Grade.FORCED, (said, *skipped, *sources, *promises, *holes), proof, rule.cut, offsets)
    grade = Grade.FORCED if holes else Grade.TIMED_OUT if sources or promises else Grade.PROVED
    return _seal(grade, (*shortened(sources), *promises, *holes), proof, rule.cut, offsets)


def _why_excused(r: Reporter, hour: Hour) -> str:
    behind = (r.caught_up_at_ms or 0) < hour.end_ms
    return "had not caught up with the hour's end" if behind else "appeared while the hour was being cut"


def _concerns(hole: Hole, f: Frontier, proof: Proof) -> bool:
    """Promises or reports that are missing leave no hour verified that had begun by then; missing events are told by promises."""
    assert hole.accepted_at_ms is not None
    if hole.type not in (None, f.event_type) or f.hour.start_s * 1000 > hole.accepted_at_ms + EARLY_MS:
        return False
    return hole.topic in CONTROL or (hole.topic == events_topic(f.event_type) and bool(proof.findings))


def _seal(grade: Grade, excused: tuple[str, ...], proof: Proof, cut: Cut, offsets: tuple[Position, ...]) -> Seal:
    return Seal(
        grade=grade.value,
        method=proof.method,
        cut_at_ms=cut.taken_at_ms,
        audit_next=cut.audit_next,
        audit_records=proof.audit_records,
        promised=proof.promised,
        surplus=proof.surplus,
        excused=excused,
        offsets=offsets,
        listed=proof.listed,
        books=proof.books,
    )
