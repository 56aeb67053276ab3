"""The mirror may have lost records before the cut: nothing of the topic freezes, the gap is named,
other types go on.

The edge loses them as by retention, or its topic is deleted and recreated, between two polls of the
closer. What was copied before is no gap, for a ledger that was lost and rebuilt neither.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene
from tests.support.mirrored import delete_records
from tests.support.topics import make_anew

from hourmark.clock import SystemClock
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, events_topic
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import Blocker, blockers, put_override
from hourmark_etl.ledger.partitions.offset_gaps import accepted_gaps
from hourmark_etl.recovery.offset_records import read_offset_backup
from hourmark_infra.stack import LocalStack

pytestmark = LONG
SCENE = {"names": ("recreated", "overtaken", "well"), "cluster": "both"}


@pytest.fixture(scope="module")
def stack(own_stack: LocalStack) -> LocalStack:
    """Of its own: its edge deletes what others have promised there, too, and a rebuilt ledger of
    theirs would miss it.
    """
    return own_stack


def blocker_of(running: Scene, event_type: str) -> Blocker | None:
    with Database(running.run.config.etl.ledger) as database:
        return blockers(database, running.run.config.parsing.bucket_seconds).get(event_type)


def closed(running: Scene, event_type: str, hour: Hour) -> Manifest:
    running.wait(
        lambda: running.run.manifest(event_type, hour) is not None, f"{event_type} {hour} closed"
    )
    found = running.run.manifest(event_type, hour)
    assert found is not None
    return found


def force(running: Scene, event_type: str, hour: Hour) -> None:
    with Database(running.run.config.etl.ledger) as database:
        put_override(
            database, event_type, hour, "the edge lost them", "test", SystemClock().now_ms()
        )


def test_retention_that_overtakes_the_mirror_and_a_topic_recreated_hold_their_types_until_an_override(
    running: Scene,
) -> None:
    recreated, overtaken, _ = running.types
    blocked = (recreated, overtaken)
    topic = events_topic(overtaken)
    running.run.kill()  # the closer does not poll while it happens
    seen = running.edge.ends([Partition(topic, 0)])[Partition(topic, 0)]
    make_anew(running.edge, events_topic(recreated))
    running.delivery.reconnect()
    hour = running.begin_hour()
    end = running.edge.ends([Partition(topic, 0)])[Partition(topic, 0)]
    running.edge.admin.delete_records([TopicPartition(topic, 0, end)])[
        TopicPartition(topic, 0, end)
    ].result(15)

    running.closed(hour, without=blocked)
    named = {
        recreated: "deleted and recreated at the edge",
        overtaken: f"{topic}-0: offsets {seen} to {end - 1} may be missing",
    }
    for event_type, what in named.items():

        def says(event_type: str = event_type, what: str = what) -> bool:
            blocker = blocker_of(running, event_type)
            return (
                blocker is not None
                and blocker.hour == hour
                and any(what in each for each in blocker.what)
            )

        running.wait(says, f"{event_type} waits because {what!r}")
        assert running.run.manifest(event_type, hour) is None

    for event_type, what in named.items():
        force(running, event_type, hour)
        manifest = closed(running, event_type, hour)
        assert manifest.grade.value == "forced"
        assert any(what in each for each in manifest.evidence.waived)

    later = running.begin_hour(without=(recreated,))
    assert running.closed(later, without=blocked).grade.value == "proved"
    assert closed(running, overtaken, later).grade.value in ("proved", "forced")


def test_a_rebuilt_ledger_knows_what_was_copied_before_the_edge_deleted_it(running: Scene) -> None:
    run, (recreated, *others) = running.run, running.types
    path = Path(run.config.etl.ledger.removeprefix("sqlite:///"))
    with Database(run.config.etl.ledger) as database:
        (ledger, _), accepted = database.identity(), accepted_gaps(database)
    own = [Partition(events_topic(t), 0) for t in others]
    ends = running.edge.ends(own)

    def copied() -> dict[Partition, int]:
        checks = read_offset_backup(run.storage, ledger).checks or ()
        return {Partition(c.topic, c.partition): c.mirror_next for c in checks}

    running.wait(
        lambda: all(copied().get(p, 0) >= end > 0 for p, end in ends.items()),
        "it is kept that all is copied",
    )
    run.kill()
    for p, offset in copied().items():
        if p.topic == events_topic(recreated):
            continue
        delete_records(run.config.kafka.edge, TopicPartition(p.topic, p.partition, offset))
    starts = running.edge.starts([*own, Partition(AUDIT, 0)])
    assert all(start > 0 for start in starts.values())
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    assert run.told("ledger", "rebuild", "--into", run.config.etl.ledger)["notes"] == []
    with Database(run.config.etl.ledger) as database:
        assert {g.topic for g in accepted_gaps(database)} >= {g.topic for g in accepted} > set()

    hour = running.begin_hour(without=(recreated,))
    assert running.closed(hour, without=(recreated,)).grade.value == "proved"
    assert {closed(running, t, hour).grade.value for t in others} == {"proved"}
