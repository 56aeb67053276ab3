"""Topics of a test on both sites of the real stack, its mirror, and what is done to both."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterable
from pathlib import Path

import psutil
from confluent_kafka import Producer, TopicPartition
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, client_settings, topic_settings
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.kafka.topic_setup import TopicSpec, alter_topic, ensure_topics
from hourmark_infra.stack import LocalStack
from hourmark_mirror.verify.result_formatting import format_result
from hourmark_mirror.verify.verification import Verification, VerificationResult

RUN = uuid.uuid4().hex[:8]  # topics of this run: the stack may be an older one's


def topic(name: str) -> str:
    return events_topic(f"mirror-{name}-{RUN}")


@dataclasses.dataclass(frozen=True)
class Sites:
    """Both clusters. Checks that are remembered are those of one test only."""

    config: Config
    central: KafkaCluster
    work_dir: Path

    def verify(
        self, name: str, *, timeout_s: float = 40.0, accept: bool = False
    ) -> VerificationResult:
        """The verdict on one topic."""
        mine = self.config.model_copy(
            update={"mirror": self.config.mirror.model_copy(update={"work_dir": self.work_dir})}
        )
        return Verification(mine, SystemClock(), topics=[topic(name)], accept=accept).run(timeout_s)

    def verified(self, name: str, *, timeout_s: float = 40.0) -> VerificationResult:
        """The same; it must be well."""
        verdict = self.verify(name, timeout_s=timeout_s)
        assert verdict.ok, format_result(verdict)
        return verdict

    def remote(self, name: str) -> str:
        """The topic at the centre."""
        return central_topic(topic(name), self.config.kafka.edge_alias)

    def produce(
        self, name: str, records: list[tuple[bytes, bytes]], *, partition: int = -1
    ) -> None:
        """Durably at the edge, as the delivery service does it."""
        producer = self.edge_producer()
        for key, value in records:
            producer.produce(topic(name), value, key, partition=partition)  # -1: by the key
            producer.poll(0)
        assert producer.flush(30) == 0

    def edge_producer(self) -> Producer:
        kafka = self.config.kafka
        return Producer(
            client_settings(
                kafka.edge,
                enable_idempotence=True,
                message_max_bytes=kafka.max_message_bytes,
                compression_type="none",
            )
        )

    def write_by_hand(self, name: str, *records: tuple[bytes, bytes]) -> None:
        """At the centre, where the mirror alone should write."""
        target = Producer(client_settings(self.central))
        for key, value in records:
            target.produce(self.remote(name), value, key, partition=0)
        target.flush(10)


def numbered(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%06d" % i, b"value %06d" % i) for i in range(count)]


def is_made(cluster: Cluster, wanted: TopicSpec) -> bool:
    """A broker may have an older view than the one that was asked whether the topic is there."""
    with contextlib.suppress(Unavailable):
        ensure_topics(cluster, [wanted])
        return True
    return False


def mirror_process(stack: LocalStack) -> psutil.Process:
    process = stack.process("mirror")
    assert process is not None, "the stack's mirror does not run"
    return psutil.Process(process.pid)


def java_of(stack: LocalStack) -> psutil.Process:
    """The child, once it is Java."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie, or gone meanwhile
            found[:] = [
                c
                for c in mirror_process(stack).children()
                if "MirrorMaker" in " ".join(c.cmdline())
            ]
        return bool(found)

    wait_for(is_there, "Java runs", 20)
    return found[0]


def start_mirror(stack: LocalStack) -> None:
    stack.start("mirror")
    stack.wait_ready("mirror")


def make_topics(config: Config, central: KafkaCluster, names: Iterable[str]) -> None:
    """At both sites."""
    for settings, name, prefix in (
        (central, "central", config.kafka.edge_alias),
        (config.kafka.edge, "edge", None),
    ):
        wanted = topic_settings(
            config.kafka.retention_hours,
            config.kafka.max_message_bytes,
            settings.min_insync_replicas,
        )
        ensure_topics(
            Cluster(settings, name),
            [TopicSpec(central_topic(topic(t), prefix), 2, wanted) for t in names],
        )


def set_topic(cluster: KafkaCluster, name: str, setting: str, value: str) -> None:
    """One setting of a topic, as an operator does it."""
    alter_topic(Cluster(cluster, "named"), name, {setting: value})


def make_anew(sites: Sites, name: str) -> None:
    """Deleted at the edge, and made again."""
    edge = Cluster(sites.config.kafka.edge, "edge")
    for future in edge.admin.delete_topics([topic(name)]).values():
        future.result(15)
    wait_for(lambda: not edge.topics([topic(name)]), "the topic is gone", 20)
    settings = topic_settings(
        sites.config.kafka.retention_hours,
        sites.config.kafka.max_message_bytes,
        sites.config.kafka.edge.min_insync_replicas,
    )
    wait_for(
        lambda: is_made(edge, TopicSpec(topic(name), 2, settings)),
        "all brokers know that it was gone",
        20,
    )


def delete_records(cluster: KafkaCluster, before: TopicPartition) -> None:
    asked = Cluster(cluster, "central")
    for future in asked.admin.delete_records([before]).values():
        future.result(15)
