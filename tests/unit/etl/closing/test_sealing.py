"""Grades: what is waived is named, nothing is waived before the deadline, and an override is never
taken for a proof.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tests.support.records import DEADLINE_S, END, HOUR, TOPIC, frontier, host_report, tailer

from hourmark.records.host_reports import SourceReport
from hourmark_etl.closing.cut.cut import ClosingCut
from hourmark_etl.closing.proof.proof import FINDINGS_MAX, Proof
from hourmark_etl.closing.sealing import EARLY_MS, DecisionContext, decide_seal
from hourmark_etl.ledger.conflicts import Conflict
from hourmark_etl.ledger.hosts.host_losses import HostLoss
from hourmark_etl.ledger.hosts.reporters import decode_report
from hourmark_etl.ledger.overrides import Override
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap
from hourmark_etl.model import AuditOffsets, HourState, Seal

DEADLINE_MS = 1000 * DEADLINE_S
FRONTIER = frontier(state=HourState.FROZEN)
KEPT = Proof(method="join", audit_records=3, promised=30, unaudited=1)
UNMET = dataclasses.replace(
    KEPT, findings=("range aa (range of web: /log): 5 events promised, 4 found",)
)
GONE = tailer(caught_up_at_ms=END - 1)
OVERRIDE = Override(
    event_type="click",
    hour_s=HOUR.start_s,
    reason="site burnt down",
    requested_by="ada",
    requested_at_ms=5,
)
CUT = ClosingCut(
    taken_at_ms=7, watermarks_ms={"click": END}, audit_next=AuditOffsets.from_offsets(11)
)


def decided(
    proof: Proof,
    *,
    late: bool = False,
    cut: ClosingCut = CUT,
    override: Override | None = None,
    gap: OffsetGap | None = None,
    conflicts: Sequence[Conflict] = (),
) -> Seal | None:
    cut = dataclasses.replace(cut, taken_at_ms=END + DEADLINE_MS - (0 if late else 1))
    by_type = {
        c.event_type: [x for x in conflicts if x.event_type == c.event_type] for c in conflicts
    }
    return decide_seal(
        FRONTIER,
        proof,
        (),
        override,
        DecisionContext(cut, [gap] if gap else [], DEADLINE_MS, by_type),
    )


def sealed(seal: Seal | None) -> Seal:
    assert seal is not None
    return seal


def gap_in(
    topic: str = "hourmark.audit", what: str = "offsets 3 to 9 may be missing", **changes: Any
) -> OffsetGap:
    return OffsetGap(
        **{"topic": topic, "what": what, "accepted_at_ms": END, "reason": "disk lost", **changes}
    )


def test_kept_promises_are_proved_and_nothing_is_waived() -> None:
    seal = sealed(decided(KEPT))
    assert (seal.grade, seal.waived, seal.audit_next, seal.promised, seal.unaudited) == (
        "proved",
        (),
        AuditOffsets.from_offsets(11),
        30,
        1,
    )


def test_an_unmet_promise_waits_until_the_deadline_and_is_then_named() -> None:
    assert decided(UNMET) is None
    seal = sealed(decided(UNMET, late=True))
    assert seal.grade == "timed_out"
    assert seal.waived == (f"not kept: {UNMET.findings[0]}",)


def test_an_unmet_promise_of_a_back_filled_hour_waits_from_when_it_was_noticed() -> None:
    noticed_ms = END + 30 * 24 * 3_600_000
    old = dataclasses.replace(
        FRONTIER, hour=HOUR.previous().previous(), first_hour=HOUR, noticed_ms=noticed_ms
    )
    for since_noticed_ms, grade in ((DEADLINE_MS - 1, None), (DEADLINE_MS, "timed_out")):
        cut = dataclasses.replace(CUT, taken_at_ms=noticed_ms + since_noticed_ms)
        seal = decide_seal(old, UNMET, (), None, DecisionContext(cut, [], DEADLINE_MS))
        assert (seal and seal.grade) == grade


def test_a_waived_source_is_named_with_its_host() -> None:
    seal = sealed(decided(KEPT, cut=dataclasses.replace(CUT, waived={"click": (GONE,)})))
    assert seal.grade == "timed_out"
    assert "source app of tailer web (tttt" in seal.waived[0]
    other = sealed(decided(KEPT, cut=dataclasses.replace(CUT, waived={"view": (GONE,)})))
    assert other.grade == "proved", "somebody whom only another type awaited"


def test_an_override_closes_at_once_and_names_reason_and_all_that_was_not_verified() -> None:
    cut = dataclasses.replace(
        CUT,
        waived={"click": (GONE,)},
        unverified={"click": ("the mirror's position is 5, the cut is 9",)},
    )
    seal = sealed(decided(UNMET, cut=cut, override=OVERRIDE))
    assert seal.grade == "forced"
    reason, mirror, source, promise = seal.waived
    assert reason == "forced by ada: site burnt down"
    assert (
        "the mirror's position is 5" in mirror and "tailer web" in source and "4 found" in promise
    )


def test_a_conflict_is_waived_by_no_deadline_and_no_gap_and_named_by_an_override() -> None:
    own = Conflict(
        event_type="click",
        hour_s=HOUR.start_s,
        range_id=b"r" * 8,
        what="range aa has 2 audit records that differ: …",
        found_at_ms=5,
    )
    later, other = (
        dataclasses.replace(own, hour_s=HOUR.end_s),
        dataclasses.replace(own, event_type="view"),
    )
    for proof in (KEPT, UNMET):
        assert decided(proof, late=True, conflicts=[own]) is None
        assert decided(proof, late=True, gap=gap_in(), conflicts=[own]) is None
        assert decided(proof, late=True, conflicts=[later, other]) is not None
    seal = sealed(decided(KEPT, override=OVERRIDE, conflicts=[own]))
    assert (seal.grade, seal.waived) == (
        "forced",
        ("forced by ada: site burnt down", f"read otherwise: {own.what}"),
    )
    many = [
        dataclasses.replace(own, range_id=bytes([n] * 8), what=f"range {n}")
        for n in range(FINDINGS_MAX + 3)
    ]
    waived = sealed(decided(KEPT, override=OVERRIDE, conflicts=many)).waived
    assert len(waived) == FINDINGS_MAX + 2 and waived[-1] == "and 3 more ranges"


def test_an_accepted_gap_in_promises_leaves_no_hour_proved_that_had_begun_by_then() -> None:
    begun_ms = HOUR.start_s * 1000 - EARLY_MS
    gap = gap_in(accepted_at_ms=begun_ms)
    assert sealed(decided(KEPT, gap=gap)).grade == "forced"
    earlier = gap_in(accepted_at_ms=begun_ms - 1)
    assert sealed(decided(KEPT, gap=earlier)).grade == "proved"
    assert sealed(decided(KEPT, gap=gap_in(TOPIC, accepted_at_ms=begun_ms))).grade == "proved", (
        "promises tell of events"
    )
    assert decided(UNMET, gap=gap) is None, "what is known to be promised is awaited all the same"


def test_lost_events_force_an_hour_only_where_its_promises_are_not_kept_and_only_of_their_type() -> (
    None
):
    gap = gap_in(TOPIC, "topic events.click partition 0 offsets [3, 9) are lost")
    assert decided(UNMET, gap=gap) is None, "until the deadline they may come in other records"
    seal = sealed(decided(UNMET, gap=gap, late=True))
    assert seal.grade == "forced" and "offsets [3, 9)" in seal.waived[-1]
    assert sealed(decided(KEPT, gap=gap)).grade == "proved"
    waived = sealed(decided(KEPT, override=OVERRIDE, gap=gap)).waived
    assert "offsets [3, 9)" in waived[-1], (
        "a second reading may stand in place of what is lost: who gave it up is told"
    )
    assert sealed(decided(UNMET, gap=gap_in("events.view"), late=True)).grade == "timed_out"


def test_promises_lost_of_one_type_alone_leave_the_others_proved() -> None:
    assert sealed(decided(KEPT, gap=gap_in(type="view"))).grade == "proved"
    assert sealed(decided(KEPT, gap=gap_in(type="click"))).grade == "forced"


def test_what_hosts_lost_is_named_by_source_and_changes_no_grade() -> None:
    losses = [
        HostLoss("app", END - 1, END + 9, 70, 1),
        HostLoss("app", END - 1, END + 9, 0, 1),
        HostLoss("app", END, END + 9, 5, 0),  # written after the hour
        HostLoss("other", END - 1, END + 9, 9, 9),  # does not carry the type
    ]
    frozen = frontier(state=HourState.FROZEN, sources=frozenset({"app"}))
    seal = sealed(
        decide_seal(frozen, KEPT, (), None, DecisionContext(CUT, [], DEADLINE_MS, losses=losses))
    )
    assert (seal.grade, seal.lost, seal.unknown) == ("proved", {"app": 70}, {"app": 2})


def test_sources_that_cannot_be_asked_again_are_named_and_change_no_grade() -> None:
    said = host_report(
        END,
        sources=tuple(SourceReport(s, END, 0, 0, 0, s != "app") for s in ("app", "net", "other")),
    )
    there = decode_report(said, END)
    frozen = frontier(state=HourState.FROZEN, sources=frozenset({"app", "net"}))
    seal = sealed(
        decide_seal(frozen, KEPT, (), None, DecisionContext(CUT, [], DEADLINE_MS, reporters=there))
    )
    assert (seal.grade, seal.unrepeatable) == ("proved", ("net",))
