"""Clients that are made later know the brokers that their cluster named, not the configured ones
alone.
"""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from tests.unit.core.kafka.test_kafka_leaderless import PlayedAdmin

from hourmark.config.groups import KafkaCluster
from hourmark.kafka import clients
from hourmark.kafka.clients import (
    NAMED_MAX,
    Cluster,
    bootstrap_addresses,
    client_settings,
    remember_brokers,
)


@pytest.fixture
def edge() -> KafkaCluster:
    """One that no other test has heard of."""
    return KafkaCluster(bootstrap=f"{uuid.uuid4().hex}:9092,second:9092")


def node(host: str) -> SimpleNamespace:
    return SimpleNamespace(id=1, host=host, port=9092)


def test_a_description_of_topics_names_brokers(
    edge: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client_settings(edge)["bootstrap.servers"] == edge.bootstrap
    partition = SimpleNamespace(
        id=0, leader=None, replicas=[node("new"), node("second"), node(""), node("another")]
    )
    described = {"t": SimpleNamespace(topic_id="id", partitions=[partition])}
    monkeypatch.setattr(clients, "AdminClient", lambda *_, **__: PlayedAdmin(described=described))
    Cluster(edge, "edge").topics(["t"])
    assert client_settings(edge)["bootstrap.servers"] == f"{edge.bootstrap},another:9092,new:9092"
    assert (
        client_settings(KafkaCluster(bootstrap="second:9092"))["bootstrap.servers"] == "second:9092"
    ), "another cluster"


def test_the_latest_are_remembered_and_no_more(edge: KafkaCluster) -> None:
    for number in range(3 * NAMED_MAX):
        remember_brokers(edge, ["stays:1", f"broker-{number:02}:1"])
    named = bootstrap_addresses(edge).split(",")[2:]
    assert named == [
        *(
            f"broker-{number:02}:1"
            for number in range(3 * NAMED_MAX - NAMED_MAX + 1, 3 * NAMED_MAX)
        ),
        "stays:1",
    ]
