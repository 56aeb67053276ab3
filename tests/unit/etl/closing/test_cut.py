"""The cut: its order of questions, and that each phase really waits for its condition."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pytest
from tests.support.clock import FakeClock
from tests.support.records import DEADLINE_S, END, HOUR, frontier, service, tailer

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, CONTROL, HOSTS
from hourmark_etl.closing.cut.cut import (
    LAGGARD_SECONDS,
    OVERDUE_MS,
    STANDING_SECONDS,
    ClosingCut,
    CutTaker,
    EdgeEnds,
    Waiting,
)
from hourmark_etl.ledger.partitions.offset_gaps import EdgeCheck, OffsetGap
from hourmark_etl.model import FIRST_SITE, AuditOffsets, ClosingPhase, ReportedSource

CLICK, VIEW = Partition("events.click", 0), Partition("events.view", 0)
SERVICE, TAILER = service(), tailer()


class FakeSites:
    """Logs on both clusters as mere ends; the mirror and the ledger move only when a test
    says so.
    """

    def __init__(self) -> None:
        self.edge = {Partition(HOSTS, 0): 10, Partition(AUDIT, 0): 20, CLICK: 30, VIEW: 40}
        self.mirrored = dict.fromkeys(self.edge, 0)
        self.staged = dict.fromkeys(self.edge, 0)
        self.known = [SERVICE, TAILER]
        self.bad: dict[str, str] = {}
        self.asked: list[str] = []

    def edge_ends(self, topics: Sequence[str]) -> EdgeEnds:
        self.asked += topics
        return {
            FIRST_SITE: {p: end for t in topics for p, end in self.edge.items() if p.topic == t}
        }

    def find_unmirrored_topics(self, cut: EdgeEnds) -> dict[str, str]:
        return {
            p.topic: f"{p} behind" for p, end in cut[FIRST_SITE].items() if self.mirrored[p] < end
        }

    def gaps(self) -> dict[str, str]:
        return self.bad

    def central_ends(self, topics: Collection[str]) -> dict[Partition, int]:
        return {
            dataclasses.replace(p, topic=f"edge.{p.topic}"): end
            for p, end in self.mirrored.items()
            if p.topic in topics
        }

    def check(self, types: Collection[str]) -> None:
        pass

    def find_acceptable_gaps(
        self, topics: Collection[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        return [], []

    def close(self) -> None:
        pass

    def next_offset_to_stage(self, partition: Partition) -> int:
        return self.staged[
            dataclasses.replace(partition, topic=partition.topic.removeprefix("edge."))
        ]

    def reporters(self) -> list[ReportedSource]:
        return self.known

    def find_unstaged_partitions(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        return {
            p: self.next_offset_to_stage(p)
            for p, end in ends.items()
            if self.next_offset_to_stage(p) < end
        }

    def mirror_all(self) -> None:
        self.mirrored = dict(self.edge)

    def stage_all(self) -> None:
        self.staged = dict(self.mirrored)

    def catch_up(self) -> None:
        self.mirror_all()
        self.stage_all()


def taker(sites: FakeSites, clock: FakeClock | None = None) -> CutTaker:
    return CutTaker(
        sites, sites, {f"edge.{AUDIT}": FIRST_SITE}, clock or FakeClock(END + 5), float(DEADLINE_S)
    )


def phase(step: ClosingCut | Waiting) -> ClosingPhase:
    assert isinstance(step, Waiting), step
    return step.phase


def taken(step: ClosingCut | Waiting) -> ClosingCut:
    assert isinstance(step, ClosingCut), step
    return step


def test_a_cut_passes_all_phases_in_their_order() -> None:
    sites = FakeSites()
    cuts, types = taker(sites), [frontier("click")]
    assert phase(cuts.poll(types)) is ClosingPhase.CONTROL
    assert sites.asked == list(CONTROL), "hosts, then audit, and no events yet"
    sites.mirror_all()
    assert phase(cuts.poll(types)) is ClosingPhase.PROMISES
    sites.edge[CLICK] = (
        31  # an event that arrives after the promises' cut is still before the events' cut
    )
    sites.stage_all()
    assert phase(cuts.poll(types)) is ClosingPhase.EVENTS
    assert sites.asked == [*CONTROL, "events.click"]
    sites.mirror_all()
    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
    sites.stage_all()
    cut = taken(cuts.poll(types))
    assert cut.audit_next == AuditOffsets.from_offsets(20)
    assert set(cut.watermarks_ms) == {"click"}


def test_a_type_that_cannot_be_read_while_its_cut_is_taken_holds_up_no_other() -> None:
    sites = FakeSites()
    cuts, types = taker(sites), [frontier("click"), frontier("view")]
    assert phase(cuts.poll(types)) is ClosingPhase.CONTROL
    sites.mirror_all()
    assert phase(cuts.poll(types)) is ClosingPhase.PROMISES
    sites.edge |= {CLICK: 31, VIEW: 41}
    sites.stage_all()
    assert phase(cuts.poll(types)) is ClosingPhase.EVENTS
    sites.mirror_all()
    sites.staged[CLICK] = 31
    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL, "the other type's events are awaited"
    assert set(taken(cuts.poll(types[:1])).watermarks_ms) == {"click"}


def hung() -> tuple[FakeSites, FakeClock, CutTaker]:
    """Clicks and views are there but for the last of each; the query of the clicks' shard hangs,
    views go on.
    """
    sites, clock = FakeSites(), FakeClock(END + 5)
    sites.catch_up()
    sites.edge |= {CLICK: 31, VIEW: 41}
    sites.mirror_all()
    sites.staged[VIEW] = 41
    return sites, clock, taker(sites, clock)


def test_a_type_of_which_nothing_is_staged_holds_up_nobody_who_is_there() -> None:
    sites, clock, cuts = hung()
    types = [frontier("click"), frontier("view")]
    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
    clock.advance(STANDING_SECONDS - 1)
    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
    clock.advance(1)
    assert set(taken(cuts.poll(types)).watermarks_ms) == {"view"}
    waiting = cuts.poll(types[:1])  # the other one is closed
    assert isinstance(waiting, Waiting) and waiting.phase is ClosingPhase.ARRIVAL
    assert waiting.what == (
        "staging: edge.events.click-0 is staged up to offset 30, but the cut is 31",
    )
    sites.stage_all()
    assert set(taken(cuts.poll(types[:1])).watermarks_ms) == {"click"}


def test_it_holds_up_none_of_their_later_hours_for_longer() -> None:
    sites, clock, cuts = hung()
    click, view, closed = frontier("click"), frontier("view"), 0
    for _ in range(3 * 360):  # three hours, a poll each ten seconds
        clock.advance(10)
        sites.known = [
            dataclasses.replace(r, caught_up_at_ms=clock.now_ms(), received_at_ms=clock.now_ms())
            for r in sites.known
        ]
        sites.edge[VIEW] += 1
        sites.mirror_all()
        sites.staged = {**sites.mirrored, CLICK: 30}
        if isinstance(step := cuts.poll([click, view]), ClosingCut):
            assert (
                set(step.watermarks_ms) == {"view"}
                and clock.now_ms() - view.hour.end_ms < 2 * STANDING_SECONDS * 1000
            )
            view, closed = dataclasses.replace(view, hour=view.hour.next()), closed + 1
    assert closed == 3
    sites.stage_all()
    found = [cuts.poll([click, view]) for _ in range(2)]
    assert any(isinstance(step, ClosingCut) and "click" in step.watermarks_ms for step in found)


@pytest.mark.slow
@pytest.mark.parametrize("batch_s", [60, 110, 130, 180, 300, 900])
@pytest.mark.parametrize("beside", [False, True])
def test_a_query_whose_batches_take_long_does_not_hang(batch_s: int, beside: bool) -> None:
    """Each is planned as it begins and committed as it ends; there is always more."""
    sites, clock, begun_s, planned = FakeSites(), FakeClock(END + 5), 0, 30
    sites.catch_up()
    cuts, open_hours = (
        taker(sites, clock),
        {t: frontier(t) for t in ("click", "view")[: 1 + beside]},
    )
    closed: Counter[str] = Counter()
    for now_s in range(0, 6 * 3600, 5):
        clock.advance(5)
        sites.known = [
            dataclasses.replace(r, caught_up_at_ms=clock.now_ms(), received_at_ms=clock.now_ms())
            for r in sites.known
        ]
        sites.edge = {**sites.edge, CLICK: sites.edge[CLICK] + 1, VIEW: sites.edge[VIEW] + 1}
        sites.mirror_all()
        sites.staged = {**sites.mirrored, CLICK: sites.staged[CLICK]}
        if now_s - begun_s >= batch_s:
            sites.staged[CLICK], planned, begun_s = planned, sites.mirrored[CLICK], now_s
        if isinstance(step := cuts.poll(open_hours.values()), ClosingCut):
            for event_type in step.watermarks_ms:
                open_hours[event_type] = dataclasses.replace(
                    of := open_hours[event_type], hour=of.hour.next()
                )
                closed[event_type] += 1
    assert min(closed[t] for t in open_hours) >= 5, closed


def test_it_leaves_the_cut_though_nobody_leads_its_central_partition() -> None:
    sites, clock, cuts = hung()
    types, ends = [frontier("click"), frontier("view")], sites.central_ends

    def central_ends(topics: Collection[str]) -> dict[Partition, int]:
        if CLICK.topic in topics:
            raise Unavailable("central: edge.events.click-0 has no leader")
        return ends(topics)

    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
    sites.central_ends = central_ends  # type: ignore[method-assign]  # it fails from now on
    clock.advance(STANDING_SECONDS)
    with pytest.raises(Unavailable):
        cuts.poll(types)
    clock.advance(1)
    assert set(taken(cuts.poll(types)).watermarks_ms) == {"view"}, (
        "it is asked again each ten seconds alone"
    )


def test_a_type_stays_while_one_of_its_partitions_is_staged() -> None:
    sites, clock, cuts = hung()
    second, types = Partition(CLICK.topic, 1), [frontier("click"), frontier("view")]
    sites.edge[second] = sites.mirrored[second] = 100
    sites.staged[second] = 10
    for _ in range(3):
        assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
        clock.advance(STANDING_SECONDS - 1)
        sites.staged[second] += 30
    sites.staged[second] = 100
    assert set(taken(cuts.poll(types)).watermarks_ms) == {"view"}, (
        "the other one is all that is awaited"
    )


def test_a_type_that_is_staged_step_by_step_is_waited_for() -> None:
    sites, clock = FakeSites(), FakeClock(END + 5)
    cuts, types = taker(sites, clock), [frontier("click"), frontier("view")]
    sites.catch_up()
    sites.edge |= {CLICK: 35, VIEW: 41}
    sites.mirror_all()
    sites.staged[VIEW] = 41
    for at in range(31, 36):
        assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
        clock.advance(STANDING_SECONDS - 1)
        sites.staged[CLICK] = at
    assert set(taken(cuts.poll(types)).watermarks_ms) == {"click", "view"}


def test_a_type_that_stands_costs_nothing_while_another_is_staged() -> None:
    sites, clock, cuts = hung()
    seen, types = (
        Partition("events.seen", 0),
        [frontier("click"), frontier("view"), frontier("seen")],
    )
    for of in (sites.edge, sites.mirrored, sites.staged):
        of[seen] = 50
    sites.edge[VIEW] = sites.mirrored[VIEW] = 43
    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
    clock.advance(STANDING_SECONDS + 1)
    sites.staged[VIEW] = 42
    assert phase(cuts.poll(types)) is ClosingPhase.ARRIVAL
    sites.staged[VIEW] = 43
    assert set(taken(cuts.poll(types)).watermarks_ms) == {"view", "seen"}


def test_no_cut_begins_while_a_source_is_behind() -> None:
    sites = FakeSites()
    sites.known = [SERVICE, tailer(caught_up_at_ms=END - 1)]
    assert phase(taker(sites).poll([frontier("click")])) is ClosingPhase.REPORTS
    assert sites.asked == []


def test_an_overdue_hour_says_for_whom_it_waits() -> None:
    sites = FakeSites()
    sites.known = [SERVICE, tailer(caught_up_at_ms=END - 1)]
    step = taker(sites, FakeClock(END + OVERDUE_MS)).poll([frontier("view"), frontier("click")])
    assert isinstance(step, Waiting)
    (said,) = step.what
    assert said.startswith(f"click {HOUR} waits for tailer web source app")


def test_a_host_that_appears_while_a_cut_is_taken_makes_it_begin_anew() -> None:
    sites = FakeSites()
    cuts, types = taker(sites), [frontier("click")]
    cuts.poll(types)
    sites.catch_up()
    sites.known = [*sites.known, tailer(host_id="n" * 32)]
    assert phase(cuts.poll(types)) is ClosingPhase.REPORTS
    assert isinstance(cuts.poll(types), ClosingCut), "the next one knows it"


def test_a_topic_that_lags_is_left_to_the_next_cut() -> None:
    sites, clock = FakeSites(), FakeClock(END + 5)
    cuts, types = taker(sites, clock), [frontier("click"), frontier("view")]
    cuts.poll(types)
    sites.catch_up()
    sites.mirrored[VIEW] = 0
    assert phase(cuts.poll(types)) is ClosingPhase.EVENTS
    clock.advance(LAGGARD_SECONDS)
    assert set(taken(cuts.poll(types)).watermarks_ms) == {"click"}


def test_a_cut_does_not_wait_for_promises_that_their_edge_has_lost() -> None:
    sites, clock = FakeSites(), FakeClock(END + 5)
    cuts, types = taker(sites, clock), [frontier("click")]
    assert phase(cuts.poll(types)) is ClosingPhase.CONTROL
    sites.edge[Partition(AUDIT, 0)] = 15
    sites.mirror_all()
    assert phase(cuts.poll(types)) is ClosingPhase.CONTROL
    assert sites.asked == list(CONTROL), "it is not asked each time: a mirror that lags is no loss"
    clock.advance(LAGGARD_SECONDS)
    sites.edge[CLICK] = 31
    assert phase(cuts.poll(types)) is ClosingPhase.PROMISES
    sites.stage_all()
    assert phase(cuts.poll(types)) is ClosingPhase.EVENTS
    sites.catch_up()
    assert taken(cuts.poll(types)).audit_next == AuditOffsets.from_offsets(15)


def test_a_mirror_that_lags_on_promises_is_waited_for() -> None:
    sites, clock = FakeSites(), FakeClock(END + 5)
    cuts, types = taker(sites, clock), [frontier("click")]
    for _ in range(3):
        assert phase(cuts.poll(types)) is ClosingPhase.CONTROL
        sites.edge[Partition(AUDIT, 0)] += (
            1  # it goes on to grow, and what was asked first is the cut
        )
        clock.advance(LAGGARD_SECONDS)
    sites.mirrored |= {Partition(HOSTS, 0): 10, Partition(AUDIT, 0): 20}
    assert phase(cuts.poll(types)) is ClosingPhase.PROMISES


def test_a_type_with_a_gap_is_not_cut_and_holds_nobody_up() -> None:
    sites = FakeSites()
    sites.bad = {"events.view": "recreated"}
    sites.catch_up()
    assert set(taken(taker(sites).poll([frontier("click"), frontier("view")])).watermarks_ms) == {
        "click"
    }


def test_a_gap_in_promises_or_reports_stops_all_closing() -> None:
    for topic in CONTROL:
        sites = FakeSites()
        sites.bad = {topic: "retention passed the mirror"}
        sites.catch_up()
        step = taker(sites).poll([frontier("click")])
        said = ("retention passed the mirror",)
        assert step == Waiting(ClosingPhase.REPORTS, said, {"click": (ClosingPhase.REPORTS, said)})


def gone_and_present(now_ms: int) -> list[ReportedSource]:
    present = [
        dataclasses.replace(r, caught_up_at_ms=now_ms, received_at_ms=now_ms)
        for r in (SERVICE, TAILER)
    ]
    return [*present, tailer(host_id="g" * 32, host_name="gone", caught_up_at_ms=END - 1)]


def test_past_the_deadline_a_cut_waives_who_is_still_behind_when_the_reports_of_now_are_staged() -> (
    None
):
    sites, clock = FakeSites(), FakeClock(END + 7_200_000)
    sites.known = gone_and_present(clock.now_ms())
    cuts = taker(sites, clock)
    assert phase(cuts.poll([frontier("click")])) is ClosingPhase.CONTROL
    sites.catch_up()
    cut = taken(cuts.poll([frontier("click")]))
    assert [r.host_name for r in cut.waived["click"]] == ["gone"]


def test_old_reports_of_an_etl_that_was_down_waive_nobody() -> None:
    sites, clock = FakeSites(), FakeClock(END + 7_200_000)
    sites.known = gone_and_present(clock.now_ms())
    cuts = taker(sites, clock)
    cuts.poll([frontier("click")])
    sites.catch_up()
    sites.known = [
        dataclasses.replace(r, caught_up_at_ms=clock.now_ms(), sequence=1) for r in sites.known
    ]
    assert phase(cuts.poll([frontier("click")])) is ClosingPhase.REPORTS, (
        "it had caught up all the time: the reports lay unread"
    )
    cut = taken(cuts.poll([frontier("click")]))
    assert cut.waived == {}


def test_nothing_closes_while_clocks_are_apart_and_each_type_says_so() -> None:
    sites = FakeSites()
    step = taker(sites, FakeClock(END + 301_000)).poll([frontier("click")])
    assert isinstance(step, Waiting)
    assert sites.asked == []
    ((said_phase, (said,)),) = step.by_type.values()
    assert said_phase is ClosingPhase.REPORTS
    assert "is 301.0 s old according to the closer's clock. Staging is behind" in said


def test_waits_are_told_by_type() -> None:
    sites = FakeSites()
    sites.known = [
        SERVICE,
        TAILER,
        tailer(host_id="x" * 32, source="slow", caught_up_at_ms=END - 1),
    ]
    slow = frontier("view", sources=frozenset({"slow"}))
    step = taker(sites).poll([frontier("click"), slow])
    assert isinstance(step, Waiting)
    assert step.by_type["click"][0] is ClosingPhase.CONTROL
    assert step.by_type["view"][0] is ClosingPhase.REPORTS
    assert "tailer web source slow" in step.by_type["view"][1][0]
