"""Reader and writer of small compacted topics.

`TopicFollower` reads a topic to its end repeatedly and fetches only new records each time.
`append_all` appends records and returns when all in-sync replicas have them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException, Producer

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Offset, Partition, client_settings, librdkafka_logger
from hourmark.kafka.committed_reader import CommittedReader

STALL_S: Final = 30.0

KeyValue = tuple[bytes | None, bytes | None]


class TopicFollower:
    """A reader of a small Kafka topic that fetches only new records on each poll.

    It reads committed records of all partitions, and starts from the beginning if the topic is
    recreated. Not thread-safe.

    Args:
        settings: The cluster.
        topic: Name of the topic, which may not exist yet.
        cluster_name: Name of the cluster in error messages, such as `edge`.
    """

    def __init__(
        self, settings: KafkaCluster, topic: str, *, cluster_name: str = "central"
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._cluster = Cluster(settings, cluster_name)
        self._reader: CommittedReader | None = None
        self._topic_id = ""
        self._missed = 0  # consecutive polls that did not find the topic
        self._next: dict[Partition, Offset] = {}

    def poll(self) -> tuple[bool, list[KeyValue]]:
        """Return the records since the previous poll, up to the current end of the topic.

        The first poll starts at the beginning of the topic. A later poll does so again if the topic
        was recreated, its partitions changed, or an end offset decreased. A topic is treated as
        deleted only if two consecutive polls do not find it, because a broker that has just started
        reports no topics.

        Returns:
            A flag, and the key and value of each new record in partition order. If the flag is
            True, the topic was read from its beginning or was deleted, and the caller must discard
            the records of earlier polls.

        Raises:
            Unavailable: The cluster does not answer, or no record arrives for 30 s before the end
                of the topic.
        """
        info = self._cluster.topics([self.topic]).get(self.topic)
        if info is None:
            self._missed += 1
            if gone := bool(self._topic_id) and self._missed > 1:
                self.close()
            return gone, []
        self._missed = 0
        ends = self._cluster.ends([Partition(self.topic, p) for p in info.partitions])
        from_start = (
            info.topic_id != self._topic_id
            or ends.keys() != self._next.keys()
            or any(ends[p] < n for p, n in self._next.items())
        )
        try:
            if from_start:
                self._begin(info.topic_id, list(ends))
            return from_start, self._read(ends)
        except Unavailable:
            self.close()
            raise

    def close(self) -> None:
        """Close the Kafka consumer. A later `poll` reads the topic from its beginning."""
        reader, self._reader, self._topic_id, self._next = self._reader, None, "", {}
        if reader is not None:
            reader.close()

    def _begin(self, topic_id: str, partitions: list[Partition]) -> None:
        self.close()
        starts = self._cluster.starts(partitions)
        self._reader = CommittedReader(self._settings, self._cluster.name, stall_s=STALL_S)
        self._topic_id, self._next = topic_id, starts

    def _read(self, ends: dict[Partition, Offset]) -> list[KeyValue]:
        assert self._reader is not None
        behind = {p: (self._next[p], end) for p, end in ends.items()}
        records = [
            (r.key(), r.value())
            for runs in self._reader.read(behind)
            for run in runs
            for r in run.records
        ]
        self._next = ends
        return records


def read_topic(settings: KafkaCluster, topic: str, *, cluster_name: str) -> list[KeyValue]:
    """Read all committed records of a small Kafka topic into memory.

    Args:
        settings: The cluster.
        topic: The topic's name.
        cluster_name: Name of the cluster in error messages, such as `edge`.

    Returns:
        The key and value of each record, in offset order within each partition. Empty if the topic
        does not exist.

    Raises:
        Unavailable: The cluster does not answer, or no record arrives for 30 s.
    """
    with contextlib.closing(TopicFollower(settings, topic, cluster_name=cluster_name)) as follower:
        return follower.poll()[1]


APPEND_S: Final = 30.0


def append_all(
    cluster: KafkaCluster,
    topic: str,
    records: Iterable[tuple[str, str | None]],
    bytes_max: int,
    *,
    java_partitioning: bool = False,
    timeout_s: float = APPEND_S,
) -> None:
    """Append records to a Kafka topic, and return when all in-sync replicas have them.

    If the call fails, some records may have been appended. Retry it only if duplicate records are
    acceptable.

    Args:
        cluster: The cluster.
        topic: The topic's name.
        records: Key and value of each record. A value of None is a tombstone.
        bytes_max: Maximum size of a record, in bytes.
        java_partitioning: Whether to assign keys to partitions as Kafka's Java clients do.
        timeout_s: Delivery timeout of a record, in seconds.

    Raises:
        Unavailable: Not all records were acknowledged. The message contains the first error.
    """
    failures: list[str] = []
    settings = {
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": int(timeout_s * 1000),
        "message_max_bytes": bytes_max,
        "partitioner": "murmur2_random" if java_partitioning else "consistent_random",
    }
    producer = Producer(client_settings(cluster, **settings), logger=librdkafka_logger())

    def delivered(error: object, _: object) -> None:
        if error:
            failures.append(str(error))

    for key, value in records:
        try:
            producer.produce(topic, key=key, value=value, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            failures.append(f"{key}: {error}")
        producer.poll(0)
    unsent = producer.flush(timeout_s + 5)
    if unsent or failures:
        raise Unavailable(
            f"not all records were published to {topic}: "
            f"{failures[0] if failures else f'{unsent} unsent'}"
        )
