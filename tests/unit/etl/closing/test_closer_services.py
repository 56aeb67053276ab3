"""Who speaks for an hour: with no live delivery service it stays open, and no clock but the
driver's own says who is silent.
"""

from __future__ import annotations

from tests.support.closing import (
    arrive,
    frontier,
    grade,
    hour,
    manifest,
    override,
    poll,
    send,
    settle,
    until,
    wait_of,
)
from tests.support.records import host_report
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.avro.framing import framing_header
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import HOSTS
from hourmark.records.host_reports import API_SOURCE, SourceReport
from hourmark_etl.closing.cut.cut import Waiting

SERVICE, OTHER = "5" * 32, "6" * 32
DEADLINE_S = 7200


def report(
    world: World,
    host_id: str,
    source: str = API_SOURCE,
    *,
    ahead_s: float = 0,
    behind_s: float = 0,
    goodbye: bool = False,
) -> None:
    """Of a service, or of a tailer's source: its clock is `ahead_s` ahead, and it had caught up
    `behind_s` ago.
    """
    now_ms = world.clock.now_ms() + round(1000 * ahead_s)
    kind = "service" if source == API_SOURCE else "tailer"
    sources = (SourceReport(source, now_ms - round(1000 * behind_s), 0, 0),)
    said = host_report(
        now_ms,
        host_id=host_id,
        host_name=f"host-{host_id[-1]}",
        kind=kind,
        sequence=world.clock.now_ms(),
        goodbye=goodbye,
        sources=sources,
    )
    world.producers.append_record(
        Partition(HOSTS, 0), host_id.encode(), framing_header(1) + said.encode()
    )


def all_leave(world: World) -> None:
    for host in world.producers.hosts:
        report(world, f"{host.number:032x}", host.source, goodbye=True)
    report(world, SERVICE, goodbye=True)


def test_after_all_goodbyes_a_closers_clock_ten_hours_ahead_closes_nothing(world: World) -> None:
    send(world, ["click"])
    settle(world)
    world.clock.advance(60)
    all_leave(world)
    arrive(world)
    world.clock.advance(10 * 3600)  # the closer's alone
    outcome = poll(world)
    assert not world.judge.manifests, "hours that have not even begun"
    assert (
        "every delivery service was shut down, the last one was service host-5 source api"
        in outcome.what[0]
    )
    assert "`hourmark serve`" in wait_of(world).what[0]


def test_without_a_live_service_no_deadline_waives_anything_and_a_report_closes_it(
    world: World,
) -> None:
    send(world, ["click"])
    settle(world)
    all_leave(world)
    until(world, FIRST_HOUR, seconds=2 * DEADLINE_S)
    assert isinstance(poll(world), Waiting) and not world.judge.manifests
    report(world, SERVICE)  # it is back
    poll(world)
    assert grade(world) == "proved"


def test_without_a_live_service_an_override_closes_an_hour_and_says_what_was_missing(
    world: World,
) -> None:
    send(world, ["click"])
    settle(world)
    all_leave(world)
    until(world, FIRST_HOUR)
    assert isinstance(poll(world), Waiting) and not world.judge.manifests
    override(world)
    assert world.closer.step() == 1
    world.check()
    forced = manifest(world)
    assert forced.grade.value == "forced" and forced.events == 1
    assert any("every delivery service was shut down" in what for what in forced.evidence.waived)
    assert frontier(world, "view").hour == FIRST_HOUR


def test_a_service_whose_clock_lags_by_minutes_is_awaited_beside_one_that_is_ahead(
    world: World,
) -> None:
    settle(world)
    until(world, FIRST_HOUR, seconds=200)
    for _ in range(3):
        world.clock.advance(2)
        world.producers.report(0)
        report(world, SERVICE, ahead_s=120)
        report(
            world, OTHER, ahead_s=-120, behind_s=240
        )  # a request is under way since before the hour's end
        outcome = poll(world)
    assert f"service host-6 source api ({OTHER}): caught up" in outcome.by_type["click"][1][0]
    report(world, OTHER, ahead_s=-120)
    poll(world)
    assert grade(world) == "proved"


def test_a_service_that_died_without_goodbye_is_awaited_for_a_minute_whatever_the_others_clock_says(
    world: World,
) -> None:
    report(world, OTHER)
    settle(world)
    until(world, FIRST_HOUR, seconds=-30)
    report(world, OTHER, behind_s=1)  # and dies
    poll(world)
    until(world, FIRST_HOUR, seconds=29)
    world.producers.report(0)
    report(world, SERVICE, ahead_s=250)
    assert OTHER in str(poll(world).by_type["click"])
    until(world, FIRST_HOUR, seconds=32)
    world.producers.report(0)
    report(world, SERVICE)
    poll(world)
    assert grade(world) == "proved"
    until(world, hour(1))
    world.producers.report(0)
    report(world, SERVICE)
    poll(world)
    assert grade(world, "click", hour(1)) == "proved"
