"""A staged file that goes missing is staged again, however often; one that Kafka no longer holds
ends no type's chain.
"""

from __future__ import annotations

import pytest
from tests.support.closing import (
    frontier,
    grades,
    hour,
    manifests,
    override,
    report,
    send,
    send_again,
    send_otherwise,
    settle,
    until,
    wait_of,
)
from tests.support.rebuilding import staged_files
from tests.support.restaging import play_restager, retention_passes
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, events_topic
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.attempts import publish_prepared
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.ledger.partitions.offset_gaps import accepted_gaps
from hourmark_etl.model import Frontier, HourState
from hourmark_etl.recovery.check import check_groups
from hourmark_etl.storage import Storage

pytestmark = pytest.mark.slow


def poll_for_a_while(world: World, polls: int = 6) -> None:
    """Polls, each after the longest pause there is."""
    for _ in range(polls):
        report(world)
        for _ in range(4):
            world.closer.step()
        world.clock.advance(601)
    world.judge.check()


def promise_again(world: World) -> None:
    """The last promise stands twice, so sums do not tell: files are read for the proof."""
    records = world.producers.edge.logs[Partition(AUDIT, 0)].records
    records.append(records[-1])


def lose_the_file_of_an_ended_hour(world: World) -> None:
    send(world, ["click"])
    settle(world)
    world.damages.lose(*staged_files(world, "events"))
    until(world, FIRST_HOUR)
    report(world)


def test_a_file_that_was_staged_again_and_goes_missing_is_staged_again_once_more(
    world: World,
) -> None:
    restager = play_restager(world)
    lose_the_file_of_an_ended_hour(world)
    while not restager.made:
        world.closer.step()
    world.damages.lose(restager.made[0])
    poll_for_a_while(world, 2)
    assert len(restager.made) == 2 and len(set(restager.made)) == 2
    assert grades(world)[:1] == ["proved"] and manifests(world)[0].events == 1


def test_a_storage_that_loses_every_file_is_asked_less_and_less_often(world: World) -> None:
    restager = play_restager(world)
    lose_the_file_of_an_ended_hour(world)
    for _ in range(200):
        world.closer.step()
        for path in staged_files(world, "events"):
            world.damages.lose(path)
        world.clock.advance(5)
    assert 3 <= len(restager.made) <= 10
    assert wait_of(world).phase == "staged"


def lose_for_ever(world: World, kind: str, *topics: str) -> str:
    """The one staged file of its kind is gone, and Kafka has let go of its records."""
    (path,) = staged_files(world, kind)
    world.damages.lose(path)
    retention_passes(world, *topics)
    return path


def sealed_and_lost(world: World) -> str:
    """`click` is sealed, its file is gone, and Kafka has let go of its records."""
    play_restager(world)
    send(world, ["click"])
    settle(world)
    path = lose_for_ever(world, "events", events_topic("click"))
    until(world, FIRST_HOUR)
    poll_for_a_while(world, 2)
    return path


def test_an_override_closes_a_sealed_hour_whose_file_is_lost_and_names_what_is_missing(
    world: World,
) -> None:
    path = sealed_and_lost(world)
    assert frontier(world).state is HourState.SEALED and manifests(world) == []
    assert wait_of(world).phase == "staged" and "cannot be staged again" in wait_of(world).what[0]
    override(world)
    poll_for_a_while(world, 1)
    (manifest, *_) = manifests(world)
    assert (manifest.grade.value, manifest.events) == ("forced", 0)
    assert manifest.lacks is not None and manifest.lacks.more
    said = manifest.evidence.waived
    assert said[0] == "forced by ada: cannot wait"
    assert (
        f"topic edge.{events_topic('click')} partition" in said[1]
        and "offsets [0, 2)" in said[1]
        and path in said[1]
    )
    until(world, hour(3))
    poll_for_a_while(world)
    first, *others = grades(world)
    assert first == "forced" and set(others) == {"proved"}, "nothing else is missing"
    assert set(grades(world, "view")) == {"proved"}


def test_what_a_sealed_hour_was_closed_without_is_no_second_reading_when_it_comes_again(
    world: World,
) -> None:
    sealed_and_lost(world)
    override(world)
    poll_for_a_while(world, 1)
    send_again(world, world.producers.ranges[0])
    until(world, hour(2))
    poll_for_a_while(world, 2)
    first, second, *_ = manifests(world)
    assert (first.grade.value, first.events) == ("forced", 0)
    assert (second.grade.value, second.late) == ("proved", {str(FIRST_HOUR): 1})


def test_an_override_for_an_open_hour_gives_up_the_file_and_promises_name_what_is_missing(
    world: World,
) -> None:
    play_restager(world)
    send(world, ["click"])
    promise_again(world)
    send(world, ["click"], hour(1).start_s * 1000)  # of a later hour, and in the same file
    settle(world)
    path = lose_for_ever(world, "events", events_topic("click"))
    until(world, FIRST_HOUR)
    override(world)
    poll_for_a_while(world, 2)
    first = manifests(world)[0]
    assert first.grade.value == "forced" and any(path in text for text in first.evidence.waived)
    assert any("not kept" in text for text in first.evidence.waived)
    until(world, hour(5))
    poll_for_a_while(world)
    second = manifests(world)[1]
    assert second.grade.value == "forced" and any(
        path in text for text in second.evidence.waived
    ), "its row is lost too"
    assert [m.grade.value for m in manifests(world)[2:]][-1] == "proved"


def test_other_types_of_the_file_wait_for_overrides_of_their_own(world: World) -> None:
    play_restager(world)
    send(world, ["click", "view"])
    settle(world)
    lose_for_ever(world, "events", events_topic("click"), events_topic("view"))
    until(world, FIRST_HOUR)
    poll_for_a_while(world, 2)
    override(world)
    poll_for_a_while(world, 2)
    assert grades(world)[:1] == ["forced"] and manifests(world, "view") == []
    assert wait_of(world, "view").phase == "staged"
    override(world, "view")
    poll_for_a_while(world, 2)
    assert grades(world, "view")[:1] == ["forced"]


def test_ledger_check_reports_nothing_of_a_file_that_an_override_gave_up(world: World) -> None:
    play_restager(world)
    send(world, ["click", "view"])
    settle(world)
    lose_for_ever(world, "events", events_topic("click"), events_topic("view"))
    until(world, FIRST_HOUR)
    poll_for_a_while(world, 2)
    for event_type in ("click", "view"):
        override(world, event_type)
        poll_for_a_while(world, 2)
        assert [str(found) for found in check_groups(world.database, world.frontiers())] == []
    assert find_damaged_rows(world.database) == []


def test_lost_promises_leave_no_hour_proved_that_had_begun_by_then(world: World) -> None:
    path = lost_promises(world)
    override(world)
    poll_for_a_while(world, 1)
    until(world, hour(6))
    poll_for_a_while(world)
    said = {m.hour: m.grade.value for m in manifests(world)}
    (gap,) = accepted_gaps(world.database)
    assert (
        (gap.topic, gap.type) == (AUDIT, "click")
        and path in gap.what
        and "offsets [0, 3)" in gap.what
    )
    assert gap.accepted_at_ms is not None
    assert {grade for at, grade in said.items() if at > str(hour(2))} == {"proved"} and said[
        str(FIRST_HOUR)
    ] == "forced"
    assert set(grades(world, "view")) == {"proved"}


def test_a_lost_file_of_settled_promises_holds_the_type_that_asks_for_it_alone(
    world: World,
) -> None:
    """Nothing needs it any more but the question whether late rows are copies of what it
    settled.
    """
    play_restager(world)
    start_ms = world.clock.now_ms()
    send(world, ["click", "view"])
    until(world, FIRST_HOUR)
    poll_for_a_while(world, 1)
    assert (grades(world), grades(world, "view")) == (["proved"], ["proved"])
    send_otherwise(world, [("click", start_ms + 1)], recorded=False)
    path = lose_for_ever(world, "audit", AUDIT)
    until(world, hour(1))
    poll_for_a_while(world, 2)
    assert len(manifests(world)) == 1 and wait_of(world).phase == "staged"
    assert grades(world, "view")[1:] == ["proved"], "it asks for nothing"
    override(world)
    poll_for_a_while(world, 2)
    second = manifests(world)[1]
    assert second.grade.value == "forced" and any(path in text for text in second.evidence.waived)


def lost_promises(world: World) -> str:
    """The file of click's promises is lost, and the sums do not tell, so that it must be read."""
    play_restager(world)
    send(world, ["click"])
    promise_again(world)
    settle(world)
    path = lose_for_ever(world, "audit", AUDIT)
    until(world, FIRST_HOUR)
    poll_for_a_while(world, 1)
    assert manifests(world) == [] and wait_of(world).phase == "staged"
    return path


def test_a_closer_that_had_written_the_hour_whole_may_still_publish_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_restager(world)
    send(world, ["click"])
    settle(world)
    (path,) = staged_files(world, "events")

    class Paused(Exception):
        pass

    def publish_late(storage: Storage, f: Frontier, manifest: Manifest) -> Manifest:
        """All is written; then the file is lost, an override gives it up, and only then the rename
        comes.
        """
        if f.event_type == "click":
            world.damages.lose(path)
            retention_passes(world, events_topic("click"))
            override(world)
            world.closer._stage_again(Unreadable(path, "gone"))
            seal = frontier(world).seal
            assert (
                f.seal is not None
                and seal is not None
                and (f.seal.grade, seal.grade) == ("proved", "forced")
            )
            assert (f.seal.offsets, f.seal.audit_next) == (seal.offsets, seal.audit_next)
            publish_prepared(storage, f, manifest)
            raise Paused
        return publish_prepared(storage, f, manifest)

    monkeypatch.setattr("hourmark_etl.closing.publishing.publish_prepared", publish_late)
    until(world, FIRST_HOUR)
    with pytest.raises(Paused):
        settle(world)
    monkeypatch.undo()
    world.start_closer()
    settle(world)
    (manifest,) = manifests(world)
    assert (manifest.grade.value, manifest.events) == ("proved", 1), "its marker is the truth"
