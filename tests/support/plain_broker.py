"""One real broker for one test: its log files may be changed, and it may be killed and started
again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from tests.support.own_kafka import answers, new_cluster_id, own_server
from tests.support.waiting import wait_for

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Cluster, Partition, client_settings
from hourmark_infra.stack.kafka import MESSAGE_BYTES_MAX
from hourmark_infra.stack.layout import free_ports
from hourmark_infra.stack.servers import Programs

Record = tuple[bytes, bytes]


class LogFile(NamedTuple):
    """The first segment of a partition's log."""

    path: Path

    def read(self) -> bytes:
        """All batches: a segment is written without padding."""
        return self.path.read_bytes()

    @contextlib.contextmanager
    def with_flipped_bit(self, at: int, bit: int) -> Iterator[None]:
        """One bit differs; the page cache, from which the broker answers, has the change
        at once.
        """
        self._flip(at, bit)
        try:
            yield
        finally:
            self._flip(at, bit)

    def _flip(self, at: int, bit: int) -> None:
        with self.path.open("r+b") as file:
            file.seek(at)
            before = file.read(1)[0]
            file.seek(at)
            file.write(bytes([before ^ 1 << bit]))

    def cut(self, size: int) -> None:
        """Lose all bytes from `size` on, and the indexes, as a disk that was not flushed.

        The broker must be down.
        """
        with self.path.open("r+b") as file:
            file.truncate(size)
        for other in self.path.parent.iterdir():
            if other.name.endswith(("index", "snapshot")):
                other.unlink()


class PlainBroker:
    """It keeps its port and its data from one `running` to the next."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self._folder, self._programs, self._cluster_id = folder, programs, new_cluster_id()
        port, controller = free_ports(("broker", "controller")).values()
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(MESSAGE_BYTES_MAX),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self.settings = KafkaCluster(
            bootstrap=f"127.0.0.1:{port}", replication_factor=1, min_insync_replicas=1
        )
        self.cluster = Cluster(self.settings, "central")

    @contextlib.contextmanager
    def running(self) -> Iterator[PlainBroker]:
        """It answers meanwhile, and is killed at the end."""
        with own_server(self._programs, self._folder, self._properties, self._cluster_id):
            wait_for(lambda: answers(self.settings), f"the broker of {self._folder} answers", 180)
            yield self

    def make_topic(self, name: str, partitions: int = 1) -> None:
        """It is there, and has leaders."""
        self.cluster.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        self.cluster.ends([Partition(name, n) for n in range(partitions)])

    def append(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        batched: bool = True,
        **settings: str,
    ) -> None:
        """In one batch, or in one for each; in the log when this returns."""
        producer = Producer(
            client_settings(self.settings, linger_ms=300 if batched else 0, **settings)
        )
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition)
            if not batched:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0

    def log(self, topic: str, partition: int = 0) -> LogFile:
        """Of this partition."""
        return LogFile(self._folder / "data" / f"{topic}-{partition}" / f"{0:020d}.log")
