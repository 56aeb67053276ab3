"""Reads a small, compacted topic to its end, again and again, paying only for what is new."""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from hourmark.config import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import FETCH_WAIT_MS, Cluster, Offset, Partition, consumed, read_only_consumer

KeyValue = tuple[bytes | None, bytes | None]


class TopicFollower:
    """A topic's committed records, in the order of each partition. Not thread-safe; blocks while reading."""

    def __init__(self, settings: KafkaCluster, topic: str, *, cluster_name: str = "central", timeout_s: float = 30.0) -> None:
        self.topic = topic
        self._settings = settings
        self._cluster = Cluster(settings, cluster_name)
        self._timeout_s = timeout_s
        self._consumer: Consumer | None = None
        self._topic_id = ""
        self._missed = 0  # how often in turn it was not there
        self._next: dict[Partition, Offset] = {}

    def poll(self) -> tuple[bool, list[KeyValue]]:
        """Records since the last call, up to the end the topic has now; and whether they begin anew (drop what was known).

        It begins anew at the first call, and where the topic was deleted and made again. A topic that does not exist (yet) has
        no records; that one is gone is believed the second time, as a broker that just started knows none. Raises Unavailable
        when the cluster does not answer, or the end is not reached in time.
        """
        info = self._cluster.topics([self.topic]).get(self.topic)
        if info is None:
            self._missed += 1
            anew = bool(self._topic_id) and self._missed > 1
            if anew:
                self.close()
            return anew, []
        self._missed = 0
        ends = self._cluster.ends([Partition(self.topic, p) for p in info.partitions])
        anew = (
            info.topic_id != self._topic_id or ends.keys() != self._next.keys() or any(ends[p] < n for p, n in self._next.items())
        )
        try:
            if anew:
                self._begin(info.topic_id, list(ends))
            return anew, self._read(ends)
        except KafkaException as error:
            self.close()
            raise Unavailable(f"reading {self.topic} of the {self._cluster.name} cluster failed: {error}") from error

    def close(self) -> None:
        """Leave the cluster; a later `poll` begins anew."""
        consumer, self._consumer, self._topic_id, self._next = self._consumer, None, "", {}
        if consumer is not None:
            with contextlib.suppress(KafkaException):  # it is not used again, and other errors have been told
                consumer.close()

    def _begin(self, topic_id: str, partitions: list[Partition]) -> None:
        self.close()
        starts = self._cluster.starts(partitions)
        self._consumer = read_only_consumer(self._settings)
        self._consumer.assign([TopicPartition(p.topic, p.partition, starts[p]) for p in partitions])
        self._topic_id, self._next = topic_id, starts

    def _read(self, ends: dict[Partition, Offset]) -> list[KeyValue]:
        assert self._consumer is not None
        records: list[KeyValue] = []
        give_up = time.monotonic() + self._timeout_s
        while behind := [p for p, end in ends.items() if self._next[p] < end]:
            for partition, after, record in consumed(self._consumer.consume(num_messages=1000, timeout=FETCH_WAIT_MS / 1000)):
                self._next[partition] = max(self._next[partition], after)
                if record is not None:
                    records.append((record.key(), record.value()))
            if behind and time.monotonic() > give_up:
                reached = self._next[behind[0]]
                self.close()
                raise Unavailable(
                    f"{behind[0]} of the {self._cluster.name} cluster was not read to offset {ends[behind[0]]} within "
                    f"{self._timeout_s:g} s (reached {reached}); is the cluster healthy? `hourmark status`"
                )
        return records


def read_topic(settings: KafkaCluster, topic: str, *, cluster_name: str) -> list[KeyValue]:
    """All committed records that a small topic has now; none if it does not exist."""
    follower = TopicFollower(settings, topic, cluster_name=cluster_name)
    try:
        return follower.poll()[1]
    finally:
        follower.close()
