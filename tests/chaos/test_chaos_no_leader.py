"""Brokers are away for a minute and more while cuts are taken: no offset is made up, hours wait, and all goes on afterwards.

librdkafka answers -1001 for partitions whose leader is away, without an error; so two of three brokers are killed, among them
the one that leads the promises: without a quorum nobody else comes to lead. Topics are both empty and not.

    hourmark test --long tests/chaos/test_chaos_no_leader.py
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, Partition
from hourmark.topics import AUDIT, central_topic, events_topic
from infra.demo.leader_kill import leader_of
from infra.stack import Stack
from tests.support.etl_scene import DUPLICATES, EVENTS, Scene, scene
from tests.support.servers import come_back

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.timeout(3600)]

SHORT_S, LONG_S = 60.0, 180.0
AUDIT_LEADER = "the leader of the promises"
CASES = [
    pytest.param((AUDIT_LEADER, "another"), SHORT_S, id="no-quorum"),
    *(pytest.param((name,), LONG_S, id=name, marks=pytest.mark.long) for name in ("edge-1", "edge-2", "edge-3", "central-1")),
    pytest.param((AUDIT_LEADER, "another"), LONG_S, id="no-quorum-for-minutes", marks=pytest.mark.long),
]


class Looker:
    """Asks a cluster for topics, starts and ends all the time; `wrong`: answers that cannot be, `unavailable`: how often none."""

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self.unavailable = 0
        self.wrong: list[str] = []
        self._cluster, self._topics = cluster, list(topics)
        self._partitions = [Partition(name, n) for name, info in cluster.topics(topics).items() for n in info.partitions]
        self._ends = cluster.ends(self._partitions)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            try:
                infos = self._cluster.topics(self._topics)
                starts, ends = self._cluster.starts(self._partitions), self._cluster.ends(self._partitions)
            except Unavailable:
                self.unavailable += 1
                continue
            known = [Partition(name, n) for name, info in infos.items() for n in info.partitions]
            if sorted(known) != sorted(self._partitions):
                self.wrong.append(f"{known} instead of {self._partitions}")
            self.wrong += [f"{p} begins at {starts.get(p)}" for p in self._partitions if starts.get(p) != 0]
            self.wrong += [f"{p} ends at {ends.get(p)}, was {end}" for p, end in self._ends.items() if ends.get(p, -1) < end]
            self._ends = ends


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp(f"leaderless-{uuid.uuid4().hex[:6]}-")
    with scene(stack.layout.config_file, folder, ("full", "empty"), cluster="both") as made:
        made.closed(made.begin_hour(without=made.types[1:]))
        yield made


def victims_of(named: Sequence[str], stack: Stack, config: Config) -> list[str]:
    """The names of the brokers to kill."""
    if AUDIT_LEADER not in named:
        return list(named)
    leader = leader_of(config, AUDIT)
    return [leader, next(name for name in stack.brokers if name != leader)]


@pytest.mark.parametrize(("named", "away_s"), CASES)
def test_no_offset_is_made_up_and_hours_wait_while_brokers_are_away(
    running: Scene, stack: Stack, named: Sequence[str], away_s: float
) -> None:
    config, topics = running.run.config, [events_topic(t) for t in running.types]
    supervisor, no_leader = stack.process("mirror"), AUDIT_LEADER in named
    assert supervisor is not None
    if no_leader:  # else the hour might be closed before they are away
        running.run.kill()
    hour = running.begin_hour(without=running.types[1:])
    lookers = [
        Looker(running.edge, topics),
        Looker(Cluster(config.kafka.central_cluster, "central"), [central_topic(t, config.kafka.edge_alias) for t in topics]),
    ]
    victims = victims_of(named, stack, config)
    try:
        for name in victims:
            stack.kill(name)
        until_s = time.monotonic() + away_s
        if no_leader:
            running.run.start()
            running.run.wait_until_staging()
        while time.monotonic() < until_s:
            assert running.run.running(), f"the driver ended (see {running.run.log})"
            assert stack.process("mirror") == supervisor, "`hourmark mirror run` ended"
            if no_leader:
                assert all(running.run.manifest(t, hour) is None for t in running.types), "closed without knowing the cut"
            time.sleep(1.0)
    finally:
        come_back(stack, *victims)
        for looker in lookers:
            looker.stop()
    assert [wrong for looker in lookers for wrong in looker.wrong] == []
    assert not no_leader or lookers[0].unavailable > 0, "no offset was ever unknown: the test has not seen what it is about"
    closed = running.closed(hour)
    assert (closed.events, closed.duplicates_removed, closed.grade.value) == (EVENTS, DUPLICATES, "proved")
    assert stack.process("mirror") == supervisor, "`hourmark mirror run` ended"
