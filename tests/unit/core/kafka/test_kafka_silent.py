"""A Kafka cluster that takes connections and never answers is Unavailable, whatever it was
asked.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import clients
from hourmark.kafka.clients import Cluster, Partition


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(clients, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Cluster(KafkaCluster(bootstrap=f"127.0.0.1:{server.getsockname()[1]}"), "edge")


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.cluster_id(),
        lambda c: c.topics(["events.click"]),
        lambda c: c.topic_configs(["events.click"]),
        lambda c: c.ends([Partition("events.click", 0)]),
        lambda c: c.starts([Partition("events.click", 0)]),
    ],
    ids=["cluster_id", "topics", "topic_configs", "ends", "starts"],
)
def test_a_silent_cluster_is_unavailable_and_named(
    silent: Cluster, ask: Callable[[Cluster], object]
) -> None:
    with pytest.raises(
        Unavailable,
        match=f"the edge Kafka cluster \\({silent.settings.bootstrap}\\) did not respond",
    ):
        ask(silent)
