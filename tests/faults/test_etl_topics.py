"""A central topic loses records before they were staged, which holds its type, or after; or it is
recreated, which stops the driver.
"""

from __future__ import annotations

from confluent_kafka import TopicPartition
from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene
from tests.support.ledger_queries import rewrite
from tests.support.topics import make_anew

from hourmark.clock import SystemClock
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, events_topic
from hourmark.records.manifest import Grade
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import read_partition_positions
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import put_override, put_overrides
from hourmark_etl.ledger.partitions.offset_gaps import open_gaps

pytestmark = LONG
SCENE = {"names": ("recreated", "lost")}


def test_records_lost_to_retention_before_they_were_staged_hold_their_type_alone_until_an_override(
    running: Scene,
) -> None:
    of = Partition(events_topic(running.types[1]), 0)
    running.run.kill()
    staged = running.edge.ends([of])[of]
    hour = running.begin_hour()
    lost = running.edge.ends([of])[of]
    running.edge.admin.delete_records([TopicPartition(of.topic, 0, lost)])[
        TopicPartition(of.topic, 0, lost)
    ].result(15)
    running.run.start()
    running.wait(
        lambda: running.run.manifest(running.types[0], hour) is not None, "the other type closes"
    )
    what = f"topic {of.topic} partition 0: offsets [{staged}, {lost}) are lost to retention"
    assert running.run.manifest(running.types[1], hour) is None
    with Database(running.run.config.etl.ledger) as database:
        assert [gap.what for gap in open_gaps(database)] == [what]
        put_override(
            database, running.types[1], hour, "a test's", "somebody", SystemClock().now_ms()
        )
    running.wait(
        lambda: running.run.manifest(running.types[1], hour) is not None, "the override closes it"
    )
    closed = running.run.manifest(running.types[1], hour)
    assert closed is not None and closed.grade is Grade.FORCED
    assert any(what in text for text in closed.evidence.waived), closed.evidence.waived


def test_central_logs_that_lost_records_hold_every_type_and_what_came_into_their_places_is_staged(
    running: Scene,
) -> None:
    """As the ledger sees it: it has staged to offsets that the logs do not reach."""
    run, of = running.run, Partition(events_topic(running.types[0]), 0)
    run.kill()
    with Database(run.config.etl.ledger) as database:
        (events,), (promises,) = (
            read_partition_positions(database, p) for p in (of, Partition(AUDIT, 0))
        )
        for p in (events, promises):
            rewrite(
                database,
                tables.positions,
                tables.positions.c.topic == p.topic,
                next_offset=p.next_offset + 3,
            )
    run.start()
    running.says(
        f"topic {of.topic} partition 0 was staged up to offset {events.next_offset + 3}, but its "
        "log ends before"
    )
    running.says(
        f"topic {AUDIT} partition 0: it was staged to offset {promises.next_offset + 3}, "
        "and its log lost records before"
    )
    hour = running.begin_hour()

    def is_staged() -> bool:
        with Database(run.config.etl.ledger) as database:
            return all(
                running.edge.ends([p])[p] <= read_partition_positions(database, p)[0].next_offset
                for p in (of, Partition(AUDIT, 0))
            )

    running.wait(is_staged, "the logs are longer than they were, and staged")
    assert all(run.manifest(t, hour) is None for t in running.types)
    with Database(run.config.etl.ledger) as database:
        assert [gap.topic for gap in open_gaps(database)] == [AUDIT]
        put_overrides(
            database,
            run.config.parsing.bucket_seconds,
            "a test's",
            "somebody",
            SystemClock().now_ms(),
        )
    assert running.closed(hour, without=[running.types[1]]).grade is Grade.FORCED
    running.wait(
        lambda: running.run.manifest(running.types[1], hour) is not None,
        "the override closes the other type, too",
    )


def ends(running: Scene, says: str) -> None:
    running.ended()
    assert running.run.logged(says), running.run.log
    running.content_is_as_promised(without=[running.types[1]])


def test_a_topic_deleted_and_recreated_while_the_driver_runs_stops_it_and_each_one_after_it(
    running: Scene,
) -> None:
    topic = events_topic(running.types[0])
    make_anew(running.edge, topic)
    hour = running.begin_hour()
    running.ended()
    running.run.revive()
    ends(running, f"topic {topic} has id {running.edge.topics([topic])[topic].topic_id}")
    assert running.run.logged("deleted and recreated")
    assert all(running.run.manifest(t, hour) is None for t in running.types)
