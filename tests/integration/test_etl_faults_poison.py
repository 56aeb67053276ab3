"""A record that only the delivery service may write, and did not, sets its type aside by name; others go on."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from etl.ledger.database import Database
from etl.ledger.overview import set_aside
from hourmark.kafka import Partition, client_settings
from hourmark.topics import events_topic
from infra.stack import Stack
from tests.support.etl_scene import EVENTS, Scene, scene

pytestmark = [pytest.mark.stack, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"poison-{uuid.uuid4().hex[:6]}-")
    with scene(stack.layout.config_file, folder, ("poisoned", "well")) as made:
        made.closed(made.begin_hour())
        yield made


def aside(running: Scene) -> dict[str, tuple[str, int, int]]:
    """By type: topic, partition and offset of the record that set it aside."""
    database = Database(running.run.config.etl.ledger)
    found = {t: (s.topic, s.partition, s.offset) for t, s in set_aside(database).items()}
    database.close()
    return found


def test_a_poison_record_sets_its_type_aside_until_it_is_resumed_and_holds_nobody_up(running: Scene) -> None:
    poisoned, _ = running.types
    topic = events_topic(poisoned)
    poison_at = running.edge.ends([Partition(topic, 0)])[Partition(topic, 0)]
    producer = Producer(client_settings(running.run.config.kafka.edge))
    producer.produce(topic, key=b"no key of ours", value=b"poison")
    assert producer.flush(30) == 0
    hour = running.begin_hour()

    running.closed(hour, without=(poisoned,))
    running.wait(lambda: poisoned in aside(running), "the type is set aside")
    assert aside(running) == {poisoned: (topic, 0, poison_at)}
    assert running.run.manifest(poisoned, hour) is None
    assert running.run.logged(f"{topic} partition 0 offset {poison_at}")

    command = ["etl", "resume", poisoned, "--skip-record", "--config", str(running.run.file)]
    environment = {**os.environ, "PYTHONPATH": "src"}
    done = subprocess.run([sys.executable, "-m", "hourmark", *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert running.closed(hour).events == EVENTS
    assert aside(running) == {}
