"""A staged file that goes missing is staged again, however often; one that Kafka no longer holds ends no type's chain."""

from __future__ import annotations

import pytest
from tests.support.closing import frontier, hour, send, send_again, send_otherwise, settle, until, wait_of
from tests.support.restaging import play_restager, retention_passes
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.kafka import Partition
from hourmark.manifest import Manifest
from hourmark.topics import AUDIT, events_topic
from hourmark_etl.closing.publishing import publish
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.offset_gaps import accepted_gaps
from hourmark_etl.ledger.overrides import put_override
from hourmark_etl.model import Frontier, State
from hourmark_etl.storage import Storage

START_MS = FIRST_HOUR.start_s * 1000


def staged(world: World, kind: str) -> list[str]:
    return sorted(p for p in world.storage.content("_staging") if f"/{kind}-" in p)


def look_for_a_while(world: World, looks: int = 6) -> None:
    """Looks, each after the longest pause there is."""
    for _ in range(looks):
        world.producers.report(0)
        world.pipeline.mirror_all(0)
        world.pipeline.stage_all(0)
        for _ in range(4):
            world.closer.step()
        world.clock.advance(601)
    world.judge.check()


def promise_again(world: World) -> None:
    """The last promise stands twice, so sums do not tell: files are read for the proof."""
    records = world.producers.edge.logs[Partition(AUDIT, 0)].records
    records.append(records[-1])


def closed(world: World, event_type: str) -> list[Manifest]:
    return [m for (t, _), m in sorted(world.judge.manifests.items()) if t == event_type]


def lose_the_file_of_an_ended_hour(world: World) -> None:
    send(world, ["click"], START_MS + 1000)
    settle(world)
    world.damages.lose(*staged(world, "events"))
    until(world, FIRST_HOUR)
    world.producers.report(0)
    world.pipeline.mirror_all(0)
    world.pipeline.stage_all(0)


def test_a_file_that_was_staged_again_and_goes_missing_is_staged_again_once_more(world: World) -> None:
    restager = play_restager(world)
    lose_the_file_of_an_ended_hour(world)
    while not restager.made:
        world.closer.step()
    world.damages.lose(restager.made[0])
    look_for_a_while(world, 2)
    assert len(restager.made) == 2 and len(set(restager.made)) == 2
    assert [m.grade.value for m in closed(world, "click")][:1] == ["proved"] and closed(world, "click")[0].events == 1


def test_a_storage_that_loses_every_file_is_asked_less_and_less_often(world: World) -> None:
    restager = play_restager(world)
    lose_the_file_of_an_ended_hour(world)
    for _ in range(200):
        world.closer.step()
        for path in staged(world, "events"):
            world.damages.lose(path)
        world.clock.advance(5)
    assert 3 <= len(restager.made) <= 10
    assert wait_of(world, "click").phase == "staged"


def sealed_and_lost(world: World, kind: str = "events") -> str:
    """`click` is sealed, its file is gone, and Kafka has let go of its records."""
    play_restager(world)
    send(world, ["click"], START_MS + 1000)
    settle(world)
    (path,) = staged(world, kind)
    world.damages.lose(path)
    retention_passes(world, AUDIT if kind == "audit" else events_topic("click"))
    until(world, FIRST_HOUR)
    look_for_a_while(world, 2)
    return path


def test_an_order_closes_a_sealed_hour_whose_file_is_lost_and_names_what_is_missing(world: World) -> None:
    path = sealed_and_lost(world)
    assert frontier(world, "click").state is State.SEALED and closed(world, "click") == []
    assert wait_of(world, "click").phase == "staged" and "cannot be staged again" in wait_of(world, "click").what[0]
    put_override(world.database, "click", FIRST_HOUR, "cannot wait", "ada", world.clock.now_ms())
    look_for_a_while(world, 1)
    (manifest, *_) = closed(world, "click")
    assert (manifest.grade.value, manifest.events) == ("forced", 0)
    said = manifest.evidence.waived
    assert said[0] == "forced by ada: cannot wait"
    assert f"topic edge.{events_topic('click')} partition" in said[1] and "offsets [0, 2)" in said[1] and path in said[1]
    until(world, hour(3))
    look_for_a_while(world)
    grades = [m.grade.value for m in closed(world, "click")]
    assert grades[0] == "forced" and set(grades[1:]) == {"proved"} and len(grades) > 1, "nothing else is missing"
    assert {m.grade.value for m in closed(world, "view")} == {"proved"}


def test_what_a_sealed_hour_was_closed_without_is_no_second_reading_when_it_comes_again(world: World) -> None:
    sealed_and_lost(world)
    put_override(world.database, "click", FIRST_HOUR, "cannot wait", "ada", world.clock.now_ms())
    look_for_a_while(world, 1)
    send_again(world, world.producers.ranges[0])
    until(world, hour(2))
    look_for_a_while(world, 2)
    first, second, *_ = closed(world, "click")
    assert (first.grade.value, first.events) == ("forced", 0)
    assert (second.grade.value, second.late) == ("proved", {str(FIRST_HOUR): 1})


def test_an_order_for_an_open_hour_gives_up_the_file_and_promises_name_what_is_missing(world: World) -> None:
    play_restager(world)
    send(world, ["click"], START_MS + 1000)
    promise_again(world)
    send(world, ["click"], hour(1).start_s * 1000)  # of a later hour, and in the same file
    settle(world)
    (path,) = staged(world, "events")
    world.damages.lose(path)
    retention_passes(world, events_topic("click"))
    until(world, FIRST_HOUR)
    put_override(world.database, "click", FIRST_HOUR, "cannot wait", "ada", world.clock.now_ms())
    look_for_a_while(world, 2)
    first = closed(world, "click")[0]
    assert first.grade.value == "forced" and any(path in text for text in first.evidence.waived)
    assert any("not kept" in text for text in first.evidence.waived)
    until(world, hour(5))
    look_for_a_while(world)
    second = closed(world, "click")[1]
    assert second.grade.value == "forced" and any(path in text for text in second.evidence.waived), "its row is lost too"
    assert [m.grade.value for m in closed(world, "click")[2:]][-1] == "proved"


def test_other_types_of_the_file_wait_for_orders_of_their_own(world: World) -> None:
    play_restager(world)
    send(world, ["click", "view"], START_MS + 1000)
    settle(world)
    (path,) = staged(world, "events")
    world.damages.lose(path)
    retention_passes(world, events_topic("click"))
    retention_passes(world, events_topic("view"))
    until(world, FIRST_HOUR)
    look_for_a_while(world, 2)
    put_override(world.database, "click", FIRST_HOUR, "cannot wait", "ada", world.clock.now_ms())
    look_for_a_while(world, 2)
    assert [m.grade.value for m in closed(world, "click")][:1] == ["forced"] and closed(world, "view") == []
    assert wait_of(world, "view").phase == "staged"
    put_override(world.database, "view", FIRST_HOUR, "cannot wait either", "ada", world.clock.now_ms())
    look_for_a_while(world, 2)
    assert [m.grade.value for m in closed(world, "view")][:1] == ["forced"]


def test_lost_promises_leave_no_hour_proved_that_had_begun_by_then(world: World) -> None:
    path = lost_promises(world)
    put_override(world.database, "click", FIRST_HOUR, "cannot wait", "ada", world.clock.now_ms())
    look_for_a_while(world, 1)
    until(world, hour(6))
    look_for_a_while(world)
    said = {m.hour: m.grade.value for m in closed(world, "click")}
    (gap,) = accepted_gaps(world.database)
    assert (gap.topic, gap.type) == (AUDIT, "click") and path in gap.what and "offsets [0, 3)" in gap.what
    assert gap.accepted_at_ms is not None
    assert {grade for at, grade in said.items() if at > str(hour(2))} == {"proved"} and said[str(FIRST_HOUR)] == "forced"
    assert {m.grade.value for m in closed(world, "view")} == {"proved"}


def test_a_lost_file_of_settled_promises_holds_the_type_that_asks_for_it_alone(world: World) -> None:
    """Nothing needs it any more but the question whether late rows are copies of what it settled."""
    play_restager(world)
    send(world, ["click", "view"], START_MS + 1000)
    until(world, FIRST_HOUR)
    look_for_a_while(world, 1)
    assert [m.grade.value for m in (*closed(world, "click"), *closed(world, "view"))] == ["proved", "proved"]
    (path,) = staged(world, "audit")
    send_otherwise(world, [("click", START_MS + 1001)], recorded=False)
    world.damages.lose(path)
    retention_passes(world, AUDIT)
    until(world, hour(1))
    look_for_a_while(world, 2)
    assert len(closed(world, "click")) == 1 and wait_of(world, "click").phase == "staged"
    assert [m.grade.value for m in closed(world, "view")][1:] == ["proved"], "it asks for nothing"
    put_override(world.database, "click", hour(1), "cannot wait", "ada", world.clock.now_ms())
    look_for_a_while(world, 2)
    second = closed(world, "click")[1]
    assert second.grade.value == "forced" and any(path in text for text in second.evidence.waived)


def lost_promises(world: World) -> str:
    """The file of click's promises is lost, and the sums do not tell, so that it must be read."""
    play_restager(world)
    send(world, ["click"], START_MS + 1000)
    promise_again(world)
    settle(world)
    (path,) = staged(world, "audit")
    world.damages.lose(path)
    retention_passes(world, AUDIT)
    until(world, FIRST_HOUR)
    look_for_a_while(world, 1)
    assert closed(world, "click") == [] and wait_of(world, "click").phase == "staged"
    return path


def test_a_closer_that_had_written_the_hour_whole_may_still_publish_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    play_restager(world)
    send(world, ["click"], START_MS + 1000)
    settle(world)
    (path,) = staged(world, "events")

    class Paused(Exception):
        pass

    def publish_late(storage: Storage, f: Frontier, written: WrittenHour, manifest: Manifest) -> Manifest:
        """All is written; then the file is lost, an override gives it up, and only then the rename comes."""
        if f.event_type == "click":
            world.damages.lose(path)
            retention_passes(world, events_topic("click"))
            put_override(world.database, "click", FIRST_HOUR, "cannot wait", "ada", world.clock.now_ms())
            world.closer._stage_again(Unreadable(path, "gone"))
            seal = frontier(world, "click").seal
            assert f.seal is not None and seal is not None and (f.seal.grade, seal.grade) == ("proved", "forced")
            assert (f.seal.offsets, f.seal.audit_next) == (seal.offsets, seal.audit_next)
            publish(storage, f, written, manifest)
            raise Paused
        return publish(storage, f, written, manifest)

    monkeypatch.setattr("hourmark_etl.closing.publishing.publish", publish_late)
    until(world, FIRST_HOUR)
    with pytest.raises(Paused):
        settle(world)
    monkeypatch.undo()
    world.start_closer()
    settle(world)
    (manifest,) = closed(world, "click")
    assert (manifest.grade.value, manifest.events) == ("proved", 1), "its marker is the truth"
