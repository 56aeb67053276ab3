"""A central topic loses records before they were staged, or is deleted and made anew: the driver stops and names them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from hourmark.kafka import Partition
from hourmark.topics import events_topic
from infra.stack import Stack
from tests.support.etl_scene import Scene, scene
from tests.support.topics import make_anew

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"topics-{uuid.uuid4().hex[:6]}-")
    with scene(stack.layout.config_file, folder, ("anew", "lost")) as made:
        made.closed(made.begin_hour())
        yield made


def ends(running: Scene, says: str) -> None:
    running.ended()
    assert running.run.logged(says), running.run.log
    running.content_is_as_promised()


def test_a_topic_deleted_and_made_anew_while_the_driver_runs_stops_it_and_each_one_after_it(running: Scene) -> None:
    topic = events_topic(running.types[0])
    make_anew(running.edge, topic)
    hour = running.begin_hour()
    running.ended()
    running.run.revive()
    ends(running, f"topic {topic} has id {running.edge.topics([topic])[topic].topic_id}")
    assert running.run.logged("deleted and made anew")
    assert all(running.run.manifest(t, hour) is None for t in running.types)


def test_records_lost_to_retention_before_they_were_staged_stop_the_driver_and_are_named(running: Scene) -> None:
    topic = events_topic(running.types[1])
    hour = running.next_hour
    staged = running.edge.ends([Partition(topic, 0)])[Partition(topic, 0)]
    running.begin_hour()
    lost = running.edge.ends([Partition(topic, 0)])[Partition(topic, 0)]
    running.edge.admin.delete_records([TopicPartition(topic, 0, lost)])[TopicPartition(topic, 0, lost)].result(15)
    running.run.revive()
    ends(running, f"topic {topic} partition 0: the log starts at offset {lost}")
    assert staged < lost
    assert all(running.run.manifest(t, hour) is None for t in running.types)
