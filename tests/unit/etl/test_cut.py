"""The cut: its order of questions, and that each phase really waits for its condition."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from etl.closing.cut import LAGGARD_SECONDS, OVERDUE_MS, Cut, CutTaker, Phase, Waiting
from etl.ledger.rows import Frontier, Reporter, State
from hourmark.clock import FakeClock
from hourmark.hours import Hour
from hourmark.kafka import Partition
from hourmark.topics import AUDIT, CONTROL, HOSTS

HOUR = Hour(1_800_000_000, 3600)
CLICK, VIEW = Partition("events.click", 0), Partition("events.view", 0)
SERVICE = Reporter("s" * 32, "api", "svc", "service", "one", 0, HOUR.end_ms, HOUR.end_ms + 1, 0, 0, goodbye=False)
TAILER = Reporter("t" * 32, "app", "web", "tailer", "one", 0, HOUR.end_ms, HOUR.end_ms + 1, 0, 0, goodbye=False)


def frontier(event_type: str) -> Frontier:
    return Frontier(event_type, HOUR, HOUR, State.OPEN, frozenset({"app"}), 0, None, ())


class FakeSites:
    """Logs on both clusters as mere ends; the mirror and the ledger move only when a test says so."""

    def __init__(self) -> None:
        self.edge = {Partition(HOSTS, 0): 10, Partition(AUDIT, 0): 20, CLICK: 30, VIEW: 40}
        self.mirrored = dict.fromkeys(self.edge, 0)
        self.staged = dict.fromkeys(self.edge, 0)
        self.known = [SERVICE, TAILER]
        self.bad: dict[str, str] = {}
        self.asked: list[str] = []

    def edge_ends(self, topics: Sequence[str]) -> dict[Partition, int]:
        self.asked += topics
        return {p: end for t in topics for p, end in self.edge.items() if p.topic == t}

    def not_mirrored(self, cut: Mapping[Partition, int]) -> dict[str, str]:
        return {p.topic: f"{p} behind" for p, end in cut.items() if self.mirrored[p] < end}

    def holes(self) -> dict[str, str]:
        return self.bad

    def central_ends(self, topics: Collection[str]) -> dict[Partition, int]:
        return {dataclasses.replace(p, topic=f"edge.{p.topic}"): end for p, end in self.mirrored.items() if p.topic in topics}

    def reporters(self) -> list[Reporter]:
        return self.known

    def not_staged(self, ends: Mapping[Partition, int]) -> list[str]:
        edge_names = {dataclasses.replace(p, topic=p.topic.removeprefix("edge.")): end for p, end in ends.items()}
        return [f"{p} not staged" for p, end in edge_names.items() if self.staged[p] < end]

    def mirror_all(self) -> None:
        self.mirrored = dict(self.edge)

    def stage_all(self) -> None:
        self.staged = dict(self.mirrored)


def taker(sites: FakeSites, clock: FakeClock | None = None) -> CutTaker:
    return CutTaker(sites, sites, f"edge.{AUDIT}", clock or FakeClock(HOUR.end_ms + 5))


def phase(step: Cut | Waiting) -> Phase:
    assert isinstance(step, Waiting), step
    return step.phase


def test_a_cut_passes_all_phases_in_their_order() -> None:
    sites = FakeSites()
    cuts, types = taker(sites), [frontier("click")]
    assert phase(cuts.poll(types)) is Phase.CONTROL
    assert sites.asked == list(CONTROL), "hosts, then audit, and no events yet"
    sites.mirror_all()
    assert phase(cuts.poll(types)) is Phase.PROMISES
    sites.edge[CLICK] = 31  # an event that arrives after the promises' cut is still before the events' cut
    sites.stage_all()
    assert phase(cuts.poll(types)) is Phase.EVENTS
    assert sites.asked == [*CONTROL, "events.click"]
    sites.mirror_all()
    assert phase(cuts.poll(types)) is Phase.ARRIVAL
    sites.stage_all()
    cut = cuts.poll(types)
    assert isinstance(cut, Cut)
    assert cut.audit_next == 20
    assert cut.edge_ends == {CLICK: 31}
    assert set(cut.horizons_ms) == {"click"}


def test_no_cut_begins_while_a_source_is_behind() -> None:
    sites = FakeSites()
    sites.known = [SERVICE, dataclasses.replace(TAILER, caught_up_at_ms=HOUR.end_ms - 1)]
    assert phase(taker(sites).poll([frontier("click")])) is Phase.REPORTS
    assert sites.asked == []


def test_an_overdue_hour_says_for_whom_it_waits() -> None:
    sites = FakeSites()
    sites.known = [SERVICE, dataclasses.replace(TAILER, caught_up_at_ms=HOUR.end_ms - 1)]
    step = taker(sites, FakeClock(HOUR.end_ms + OVERDUE_MS)).poll([frontier("view"), frontier("click")])
    assert isinstance(step, Waiting)
    (said,) = step.what
    assert said.startswith(f"click {HOUR} waits for tailer web source app")


def test_a_host_that_appears_while_a_cut_is_taken_makes_it_begin_anew() -> None:
    sites = FakeSites()
    cuts, types = taker(sites), [frontier("click")]
    cuts.poll(types)
    sites.mirror_all()
    sites.stage_all()
    sites.known = [*sites.known, dataclasses.replace(TAILER, host_id="n" * 32)]
    assert phase(cuts.poll(types)) is Phase.REPORTS
    assert isinstance(cuts.poll(types), Cut), "the next one knows it"


def test_a_topic_that_lags_is_left_to_the_next_cut() -> None:
    sites, clock = FakeSites(), FakeClock(HOUR.end_ms + 5)
    cuts, types = taker(sites, clock), [frontier("click"), frontier("view")]
    cuts.poll(types)
    sites.mirror_all()
    sites.stage_all()
    sites.mirrored[VIEW] = 0
    assert phase(cuts.poll(types)) is Phase.EVENTS
    clock.advance(LAGGARD_SECONDS)
    cut = cuts.poll(types)
    assert isinstance(cut, Cut)
    assert set(cut.horizons_ms) == {"click"}
    assert cut.edge_ends == {CLICK: 30}


def test_a_type_with_a_hole_is_not_cut_and_holds_nobody_up() -> None:
    sites = FakeSites()
    sites.bad = {"events.view": "made anew"}
    sites.mirror_all()
    sites.stage_all()
    cut = taker(sites).poll([frontier("click"), frontier("view")])
    assert isinstance(cut, Cut)
    assert set(cut.horizons_ms) == {"click"}


def test_a_hole_in_promises_or_reports_stops_all_closing() -> None:
    for topic in CONTROL:
        sites = FakeSites()
        sites.bad = {topic: "retention passed the mirror"}
        sites.mirror_all()
        sites.stage_all()
        step = taker(sites).poll([frontier("click")])
        assert step == Waiting(Phase.REPORTS, ("retention passed the mirror",))
