"""Grades: what is excused is named, nothing is excused before the deadline, and an order is never taken for a proof."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from etl.closing.cut import Cut
from etl.closing.proof import FINDINGS_MAX, Proof
from etl.closing.sealing import EARLY_MS, Rule, decide
from etl.ledger.conflicts import Conflict
from etl.ledger.edge import Hole
from etl.ledger.orders import Order
from etl.ledger.rows import Frontier, Reporter, Seal, State
from hourmark.hours import Hour

HOUR = Hour(1_800_000_000, 3600)
DEADLINE_MS = 7_200_000
FRONTIER = Frontier("click", HOUR, HOUR, State.FROZEN, frozenset({"app"}), 0, None, ())
KEPT = Proof("join", 3, 30, 1)
UNKEPT = dataclasses.replace(KEPT, findings=("range aa (range of web: /log): 5 events promised, 4 found",))
GONE = Reporter(
    "t" * 32, "app", "web", "tailer", "one", 0, HOUR.end_ms, HOUR.end_ms - 1, 0, 0, goodbye=False, heard_at_ms=HOUR.end_ms
)
ORDER = Order("click", HOUR.start_s, "site burnt down", "ada", 5)
CUT = Cut(7, {"click": HOUR.end_ms}, 11)


def decided(
    proof: Proof,
    *,
    late: bool = False,
    cut: Cut = CUT,
    order: Order | None = None,
    hole: Hole | None = None,
    conflicts: Sequence[Conflict] = (),
) -> Seal | None:
    cut = dataclasses.replace(cut, taken_at_ms=HOUR.end_ms + DEADLINE_MS - (0 if late else 1))
    by_type = {c.event_type: [x for x in conflicts if x.event_type == c.event_type] for c in conflicts}
    return decide(FRONTIER, proof, (), order, Rule(cut, [hole] if hole else [], DEADLINE_MS, by_type))


def sealed(seal: Seal | None) -> Seal:
    assert seal is not None
    return seal


def test_kept_promises_are_proved_and_nothing_is_excused() -> None:
    seal = sealed(decided(KEPT))
    assert (seal.grade, seal.excused, seal.audit_next, seal.promised, seal.surplus) == ("proved", (), 11, 30, 1)


def test_an_unkept_promise_waits_until_the_deadline_and_is_then_named() -> None:
    assert decided(UNKEPT) is None
    seal = sealed(decided(UNKEPT, late=True))
    assert seal.grade == "timed_out"
    assert seal.excused == (f"not kept: {UNKEPT.findings[0]}",)


def test_an_excused_source_is_named_with_its_host() -> None:
    seal = sealed(decided(KEPT, cut=dataclasses.replace(CUT, excused={"click": (GONE,)})))
    assert seal.grade == "timed_out"
    assert "source app of tailer web (tttt" in seal.excused[0]
    other = sealed(decided(KEPT, cut=dataclasses.replace(CUT, excused={"view": (GONE,)})))
    assert other.grade == "proved", "somebody whom only another type awaited"


def test_an_order_closes_at_once_and_names_reason_and_all_that_was_not_verified() -> None:
    cut = dataclasses.replace(CUT, excused={"click": (GONE,)}, unverified={"click": ("the mirror stands at 5, the cut is 9",)})
    seal = sealed(decided(UNKEPT, cut=cut, order=ORDER))
    assert seal.grade == "forced"
    reason, mirror, source, promise = seal.excused
    assert reason == "forced by ada: site burnt down"
    assert "the mirror stands at 5" in mirror and "tailer web" in source and "4 found" in promise


def test_a_conflict_is_excused_by_no_deadline_and_no_hole_and_named_by_an_order() -> None:
    own = Conflict("click", HOUR.start_s, b"r" * 8, "range aa has 2 audit records that differ: …", 5)
    later, other = dataclasses.replace(own, hour_s=HOUR.end_s), dataclasses.replace(own, event_type="view")
    hole = Hole("hourmark.audit", HOUR.end_ms, "offsets 3 to 9 may be missing", "disk lost")
    for proof in (KEPT, UNKEPT):
        assert decided(proof, late=True, conflicts=[own]) is None
        assert decided(proof, late=True, hole=hole, conflicts=[own]) is None
        assert decided(proof, late=True, conflicts=[later, other]) is not None
    seal = sealed(decided(KEPT, order=ORDER, conflicts=[own]))
    assert (seal.grade, seal.excused) == ("forced", ("forced by ada: site burnt down", f"read otherwise: {own.what}"))
    many = [dataclasses.replace(own, range_id=bytes([n] * 8), what=f"range {n}") for n in range(FINDINGS_MAX + 3)]
    excused = sealed(decided(KEPT, order=ORDER, conflicts=many)).excused
    assert len(excused) == FINDINGS_MAX + 2 and excused[-1] == "and 3 more ranges"


def test_an_accepted_hole_in_promises_leaves_no_hour_proved_that_had_begun_by_then() -> None:
    hole = Hole("hourmark.audit", HOUR.start_s * 1000 - EARLY_MS, "offsets 3 to 9 may be missing", "disk lost")
    assert sealed(decided(KEPT, hole=hole)).grade == "forced"
    earlier = dataclasses.replace(hole, accepted_at_ms=HOUR.start_s * 1000 - EARLY_MS - 1)
    assert sealed(decided(KEPT, hole=earlier)).grade == "proved"
    assert sealed(decided(KEPT, hole=dataclasses.replace(hole, topic="events.click"))).grade == "proved", (
        "promises tell of events"
    )
    assert decided(UNKEPT, hole=hole) is None, "what is known to be promised is awaited all the same"


def test_lost_events_force_an_hour_only_where_its_promises_are_not_kept_and_only_of_their_type() -> None:
    hole = Hole("events.click", HOUR.end_ms, "topic events.click partition 0 offsets [3, 9) are lost", "disk lost")
    assert decided(UNKEPT, hole=hole) is None, "until the deadline they may come in other records"
    seal = sealed(decided(UNKEPT, hole=hole, late=True))
    assert seal.grade == "forced" and "offsets [3, 9)" in seal.excused[-1]
    assert sealed(decided(KEPT, hole=hole)).grade == "proved"
    other = dataclasses.replace(hole, topic="events.view")
    assert sealed(decided(UNKEPT, hole=other, late=True)).grade == "timed_out"


def test_promises_lost_of_one_type_alone_leave_the_others_proved() -> None:
    hole = Hole("hourmark.audit", HOUR.end_ms, "a staged file is lost", "disk lost", type="view")
    assert sealed(decided(KEPT, hole=hole)).grade == "proved"
    assert sealed(decided(KEPT, hole=dataclasses.replace(hole, type="click"))).grade == "forced"
