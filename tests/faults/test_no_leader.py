"""Brokers are away for a minute and more while cuts are taken: no offset is made up, hours wait,
and all goes on afterwards.

librdkafka answers -1001 for partitions whose leader is away, without an error; so two of three
brokers are killed, among them a leader: without a quorum nobody else comes to lead. Topics are both
empty and not. Every run of the suite takes cuts in its own process for a minute; the long tier has
a driver whose hours must not close, and kills each broker in turn, for minutes.

    hourmark test --long tests/faults/test_no_leader.py
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.faults.outcome import assert_whole
from tests.support.etl_scene import WITHIN_S, Scene
from tests.support.servers import come_back
from tests.support.waiting import holds, wait_for

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Partition, client_settings, topic_settings
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark.kafka.topic_setup import TopicSpec, ensure_topics
from hourmark_etl.closing.cut.clusters import KafkaSiteClusters
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_infra.stack import LocalStack
from hourmark_verify.demo.demo import leading_broker

pytestmark = [
    pytest.mark.stack,
    pytest.mark.chaos,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("mirror_runs"),
]
SCENE = {"names": ("full", "empty"), "cluster": "both"}

SHORT_S, LONG_S, POLL_S = 60.0, 180.0, 1.0
PARTITIONS = 3
AUDIT_LEADER = "the leader of the promises"
CASES = [
    *(pytest.param((name,), id=name) for name in ("edge-1", "edge-2", "edge-3", "central-1")),
    pytest.param((AUDIT_LEADER, "another"), id="no-quorum"),
]


class Poller:
    """Asks a cluster for topics, starts and ends all the time; `wrong`: answers that cannot be,
    `unavailable`: how often none.
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self.unavailable = 0
        self.wrong: list[str] = []
        self._cluster, self._topics = cluster, list(topics)
        self._partitions = [
            Partition(name, n)
            for name, info in cluster.topics(topics).items()
            for n in info.partitions
        ]
        self._ends = cluster.ends(self._partitions)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            try:
                infos = self._cluster.topics(self._topics)
                starts, ends = (
                    self._cluster.starts(self._partitions),
                    self._cluster.ends(self._partitions),
                )
            except Unavailable:
                self.unavailable += 1
                continue
            known = [Partition(name, n) for name, info in infos.items() for n in info.partitions]
            if sorted(known) != sorted(self._partitions):
                self.wrong.append(f"{known} instead of {self._partitions}")
            self.wrong += [
                f"{p} begins at {starts.get(p)}" for p in self._partitions if starts.get(p) != 0
            ]
            self.wrong += [
                f"{p} ends at {ends.get(p)}, was {end}"
                for p, end in self._ends.items()
                if ends.get(p, -1) < end
            ]
            self._ends = ends


@pytest.fixture(scope="module")
def running(fresh: Scene) -> Scene:
    """An hour was closed, in which one type had no events."""
    fresh.closed(fresh.begin_hour(without=fresh.types[1:]))
    return fresh


def quorum(stack: LocalStack, config: Config, topic: str) -> list[str]:
    """Two of the three edge brokers, one of them the leader of the topic's first partition."""
    leader = leading_broker(config, topic)
    return [leader, next(name for name in stack.brokers if name != leader)]


def produce(config: Config, topic: str, records: int) -> None:
    """Append to all partitions in turn."""
    producer = Producer(client_settings(config.kafka.edge, acks="all"))
    for n in range(records):
        producer.produce(topic, value=b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(60) == 0


def test_cuts_are_whole_or_unavailable_while_nobody_leads(
    stack: LocalStack, config: Config, tmp_path: Path
) -> None:
    topics = [
        events_topic(f"no-leader-{name}-{uuid.uuid4().hex[:8]}") for name in ("full", "empty")
    ]
    full = topics[0]
    edge, central = (
        Cluster(config.kafka.edge, "edge"),
        Cluster(config.kafka.central_cluster, "central"),
    )
    for cluster, alias in ((edge, None), (central, config.kafka.edge_alias)):
        settings = topic_settings(
            config.kafka.retention_hours,
            config.kafka.max_message_bytes,
            cluster.settings.min_insync_replicas,
        )
        ensure_topics(
            cluster, [TopicSpec(central_topic(t, alias), PARTITIONS, settings) for t in topics]
        )
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    sites = KafkaSiteClusters.connect(
        config.kafka, database, database.acquire(CLOSER), SystemClock()
    )
    supervisor = stack.process("mirror")
    unavailable = 0

    def cut_of(records: int) -> bool:
        """Whether a cut could be taken: then it is whole, and the mirror has reached it."""
        nonlocal unavailable
        try:
            cut = sites.edge_ends(topics)
            behind = sites.find_unmirrored_topics(cut)
        except Unavailable:
            unavailable += 1
            return False
        assert cut["0"] == {
            Partition(t, n): records * (t == full) for t in topics for n in range(PARTITIONS)
        }
        return not behind

    def mirror_runs_on() -> bool:
        cut_of(100)
        return stack.process("mirror") == supervisor

    produce(config, full, PARTITIONS * 100)
    wait_for(lambda: cut_of(100), "the mirror has copied all", 300)
    poller, victims = Poller(edge, topics), quorum(stack, config, full)
    try:
        for name in victims:
            stack.kill(name)
        holds(mirror_runs_on, "`hourmark mirror run` goes on", SHORT_S)
    finally:
        come_back(stack, *victims)
        poller.stop()
    assert poller.wrong == []
    assert unavailable and poller.unavailable, (
        "no offset was ever unknown: the test has not seen what it is about"
    )
    wait_for(lambda: cut_of(100), "a cut can be taken again", 120)
    produce(config, full, PARTITIONS * 10)
    wait_for(lambda: cut_of(110), "the mirror goes on", 300)
    assert stack.process("mirror") == supervisor, "`hourmark mirror run` ended"
    sites.close()
    database.close()


@pytest.mark.long
@pytest.mark.parametrize("named", CASES)
def test_hours_wait_and_go_on_while_brokers_are_away(
    running: Scene, stack: LocalStack, named: Sequence[str]
) -> None:
    config, topics = running.run.config, [events_topic(t) for t in running.types]
    supervisor, no_leader = stack.process("mirror"), AUDIT_LEADER in named
    assert supervisor is not None
    if no_leader:  # else the hour might be closed before they are away
        running.run.kill()
    hour = running.begin_hour(without=running.types[1:])
    pollers = [
        Poller(running.edge, topics),
        Poller(
            Cluster(config.kafka.central_cluster, "central"),
            [central_topic(t, config.kafka.edge_alias) for t in topics],
        ),
    ]
    victims = quorum(stack, config, AUDIT) if no_leader else named

    def all_is_well() -> bool:
        assert running.run.running(), f"the driver ended (see {running.run.log})"
        assert stack.process("mirror") == supervisor, "`hourmark mirror run` ended"
        return not no_leader or all(running.run.manifest(t, hour) is None for t in running.types)

    try:
        for name in victims:
            stack.kill(name)
        if no_leader:
            running.run.start()
            running.run.wait_until_staging(WITHIN_S)
        holds(
            all_is_well, "all goes on, and nothing closes without knowing the cut", LONG_S, POLL_S
        )
    finally:
        come_back(stack, *victims)
        for poller in pollers:
            poller.stop()
    assert [wrong for poller in pollers for wrong in poller.wrong] == []
    assert not no_leader or pollers[0].unavailable > 0, (
        "no offset was ever unknown: the test has not seen what it is about"
    )
    running.closed(hour)
    closed = running.run.manifest(running.types[0], hour)
    assert closed is not None
    assert_whole(closed)
    assert stack.process("mirror") == supervisor, "`hourmark mirror run` ended"
