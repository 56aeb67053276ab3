"""Staging on real servers: a type moved to its own shard, a poisoned type, what is new while it
runs, a stop that is no crash.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from tests.integration.delivered import times
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.ledger_queries import rewrite
from tests.support.waiting import holds, wait_for

from hourmark.kafka.clients import Cluster, Partition, client_settings
from hourmark.kafka.topic_names import events_topic
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.ledger import batches, tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.staged.set_aside import count_unreviewed_records

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

CLICK, POISONED, NEW = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("click", "poisoned", "new"))
TYPES = (CLICK, POISONED)


@pytest.fixture(scope="module")
def database(run: EtlRun) -> Iterator[Database]:
    with Database(run.config.etl.ledger) as made:
        yield made


def test_records_of_another_program_are_set_aside_and_hold_nothing_up(
    run: EtlRun, delivery: DirectDelivery, database: Database, first_hour: Hour
) -> None:
    for event_type in (CLICK, POISONED):
        delivery.deliver(delivery.make(event_type, times(first_hour, 20)))
    producer = Producer(client_settings(run.config.kafka.edge))
    for value in (b"poison", b"more", None):
        producer.produce(events_topic(POISONED), key=b"nobody's", value=value)
    producer.produce(events_topic(POISONED), key=None, value=b"a line of the console producer")
    assert producer.flush(30) == 0
    delivery.deliver(delivery.make(POISONED, times(first_hour, 5)))
    delivery.report(first_hour.end_ms)
    assert run.closed(CLICK, first_hour, 300).events == 20
    marker = run.closed(POISONED, first_hour, 300)
    assert (marker.grade, marker.events, marker.set_aside) == (Grade.PROVED, 25, 4)
    assert run.logged("set aside and are not stored in a bucket: the key does not have 24 bytes")
    assert count_unreviewed_records(database, POISONED) == 4
    command = [
        sys.executable,
        "-m",
        "hourmark",
        "etl",
        "set-aside",
        "review",
        POISONED,
        "--config",
        str(run.file),
    ]
    subprocess.run(command, check=True)
    assert count_unreviewed_records(database) == 0


def test_a_type_moved_to_another_shard_goes_on_where_it_stood(
    run: EtlRun, delivery: DirectDelivery, database: Database, first_hour: Hour
) -> None:
    second = first_hour.next()
    rewrite(database, tables.frontiers, tables.frontiers.c.type == CLICK, shard="heavy")
    delivery.deliver(delivery.make(CLICK, times(second, 30)))
    delivery.report(second.end_ms)
    assert run.closed(CLICK, second, 300).events == 30
    assert run.logged("staging shard heavy")
    cluster_id = Cluster(run.config.kafka.central_cluster, "central").cluster_id()
    shards = {p.topic: p.shard for p in batches.positions(database, cluster_id)}
    assert shards[events_topic(CLICK)] == "heavy" and shards[events_topic(POISONED)] == "default"


def test_a_type_and_a_partition_made_while_the_driver_runs_are_staged_too(
    run: EtlRun, database: Database, first_hour: Hour
) -> None:
    third = first_hour.next().next()
    run.declare([CLICK, POISONED, NEW], third)
    cluster, topic = Cluster(run.config.kafka.central_cluster, "central"), events_topic(CLICK)
    cluster.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(15)
    wait_for(lambda: len(cluster.topics([topic])[topic].partitions) == 2, "the partition is there")
    delivery = DirectDelivery(run.config)
    for event_type in (CLICK, NEW):
        delivery.deliver(delivery.make(event_type, times(third, 40)))
    assert cluster.ends([Partition(topic, 1)])[Partition(topic, 1)] > 0, (
        "the new partition was given nothing"
    )
    delivery.report(third.end_ms)
    assert [run.closed(t, third, 300).events for t in (CLICK, NEW)] == [40, 40]
    assert run.running()


@pytest.mark.long
def test_a_driver_that_begins_with_nothing_to_stage_goes_on(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    """Spark begins each query with a batch, whether there is something to stage or not."""
    hour, begins = Hour(first_hour.start_s + 180, 60), "staging shard default from"
    times_begun = run.log.read_text(errors="replace").count(begins)
    run.kill()
    run.start()
    wait_for(
        lambda: run.log.read_text(errors="replace").count(begins) > times_begun,
        "staging begins",
        120,
    )
    holds(run.running, "the driver runs", 10)
    delivery.deliver(delivery.make(CLICK, times(hour, 10)))
    delivery.report(hour.end_ms)
    assert run.closed(CLICK, hour, 300).events == 10


def test_a_driver_told_to_stop_ends_well(run: EtlRun) -> None:
    assert run.running()
    run.terminate()
    wait_for(lambda: not run.running(), "the driver ends", 120)
    assert run.exit_code() == 0
