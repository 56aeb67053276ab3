"""Detects topics that do not accept records, from the metadata of the Kafka cluster.

A topic that is missing, or that has a partition without a leader or with too few in-sync replicas,
must not affect records of other topics. Without this module, each append to such a topic would wait
for the delivery timeout, hold the memory of its request meanwhile, and append the records of the
other topics again with each retry of the request.

An append is examined only after it has failed or has taken `SLOW_S` seconds, so a healthy cluster
is not queried. From then on, appends to the topic fail at once, and the cluster is queried at most
once per `METADATA_AGE_MAX_S`. If a control topic (audit records, host reports) has a problem too,
the cluster is at fault and not a single topic, so no topic is blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from hourmark.kafka.topic_names import CONTROL
from hourmark.printing import name_some
from hourmark_delivery_service.errors import TopicUnavailable
from hourmark_delivery_service.metrics import ServiceMetrics

SLOW_S: Final = 3.0
METADATA_AGE_MAX_S: Final = 1.0


class TopicProblem(NamedTuple):
    """The reason why a Kafka topic currently does not accept records.

    Attributes:
        topic: Name of the topic.
        is_missing: Whether the topic does not exist.
        message: Human-readable cause with the name of the topic, and the next step for the
            operator.
    """

    topic: str
    is_missing: bool
    message: str

    def to_error(self) -> TopicUnavailable:
        """Return the exception for an append to this topic. It is not raised."""
        return TopicUnavailable(self.topic, self.message, is_missing=self.is_missing)


def find_topic_problem(topic: str, metadata: Any, min_insync: int) -> TopicProblem | None:
    """Return the reason why a topic does not accept records, based on the cluster's metadata.

    Args:
        topic: Name of the topic.
        metadata: confluent_kafka's `TopicMetadata`; None if the cluster did not list the topic.
        min_insync: Number of in-sync replicas that a write requires.

    Returns:
        The problem, or None if every partition has a leader and enough in-sync replicas.
    """
    if metadata is None or (
        metadata.error is not None and metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    ):
        return TopicProblem(
            topic, True, f"topic {topic} does not exist; `hourmark types apply` creates it"
        )
    if metadata.error is not None:
        return TopicProblem(topic, False, f"topic {topic} cannot be used: {metadata.error}")
    if not metadata.partitions:
        return TopicProblem(topic, False, f"Kafka reports no partitions of the topic {topic}")
    found = []
    for partition in metadata.partitions.values():
        if partition.leader < 0:
            found.append(f"{topic}-{partition.id} has no leader")
        elif len(partition.isrs) < min_insync:
            found.append(
                f"{topic}-{partition.id} has {len(partition.isrs)} in-sync replicas of "
                f"{min_insync} needed"
            )
    if not found:
        return None
    listed = name_some(found)
    return TopicProblem(
        topic, False, f"{listed}; start the brokers that have replicas of the partition"
    )


class TopicMonitor:
    """Detects unavailable Kafka topics, so that appends to them fail immediately.

    A topic is unavailable if it is missing, or if a partition has no leader or too few in-sync
    replicas. If an append fails for such a reason, its topic is blocked until it is healthy again.
    Not thread-safe: use it in one event loop.

    Args:
        read_topics: Blocking function that returns a mapping of all topic names to their metadata.
            It raises `KafkaException` if the cluster does not respond.
        min_insync: Number of in-sync replicas that a write requires.
        metrics: Metrics that show each topic with a problem.
    """

    def __init__(
        self,
        read_topics: Callable[[], Mapping[str, Any]],
        min_insync: int,
        metrics: ServiceMetrics,
    ) -> None:
        self._read_topics, self._min_insync, self._metrics = read_topics, min_insync, metrics
        self._unavailable: dict[str, TopicProblem] = {}  # found by failed or slow appends
        self._shown: set[str] = set()
        self._reading = asyncio.Lock()
        self._read_s = float("-inf")
        self._topics: Mapping[str, Any] | KafkaException = {}

    async def problems(self, topics: Collection[str]) -> dict[str, TopicProblem]:
        """Return the given topics that are currently unavailable, with the reasons.

        The cluster is queried at most once per `METADATA_AGE_MAX_S` seconds. This method does not
        block topics.

        Args:
            topics: Names of the topics to examine.

        Returns:
            A dict that maps topic names to problems. Empty if there are none.

        Raises:
            KafkaException: If the cluster does not respond.
        """
        known = await self._metadata()
        found = {
            topic: problem
            for topic in topics
            if (problem := find_topic_problem(topic, known.get(topic), self._min_insync))
        }
        for topic in topics:
            self._show(topic, has_problem=topic in found)
        return found

    async def examine(self, topics: Collection[str]) -> TopicProblem | None:
        """Examine the topics of a failed or slow append, and block the unavailable ones.

        `check` rejects appends to a blocked topic. Topics that were blocked before are examined
        again, and are unblocked if they are healthy.

        Args:
            topics: Topics of the append.

        Returns:
            The problem of one of the given topics, preferably of a missing one. None if they have
            no problem, or if the cluster as a whole is unavailable.
        """
        asked = {*topics, *self._unavailable}
        try:
            found = await self.problems({*asked, *CONTROL})
        except KafkaException:
            found = {}
        if not found.keys().isdisjoint(CONTROL):
            found = {}
        for topic in asked:
            if topic in found:
                self._unavailable[topic] = found[topic]
            else:
                self._unavailable.pop(topic, None)
        mine = [self._unavailable[topic] for topic in topics if topic in self._unavailable]
        return min(mine, key=lambda problem: not problem.is_missing, default=None)

    async def check(self, topics: Collection[str]) -> None:
        """Check that none of the topics is blocked. Call this method before an append.

        `examine` blocks a topic after a failed append. This method examines blocked topics again,
        and unblocks healthy ones. If no topic is blocked, the cluster is not queried.

        Args:
            topics: Topics of the append.

        Raises:
            TopicUnavailable: If a blocked topic is still unavailable.
        """
        if self._unavailable.keys().isdisjoint(topics):
            return
        if problem := await self.examine(topics):
            raise problem.to_error()

    async def _metadata(self) -> Mapping[str, Any]:
        async with self._reading:
            loop = asyncio.get_running_loop()
            if loop.time() - self._read_s >= METADATA_AGE_MAX_S:
                try:
                    self._topics = await asyncio.to_thread(self._read_topics)
                except KafkaException as error:
                    self._topics = error
                self._read_s = loop.time()
        if isinstance(self._topics, KafkaException):
            raise self._topics
        return self._topics

    def _show(self, topic: str, *, has_problem: bool) -> None:
        if has_problem or topic in self._shown:
            self._shown.add(topic)
            self._metrics.topic_unavailable.labels(topic).set(has_problem)
