"""What is asked of a cluster and made in it: topics of our own, who leads, who is there, who is in
sync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import TIMEOUT_S, Cluster
from hourmark.kafka.topic_setup import TopicSpec, ensure_topics
from hourmark_infra.stack.health import ANSWER_SECONDS, listens

REPLICAS_MAX: Final = 3


class Brokers:
    """One cluster: `name` is "edge" or "central"."""

    def __init__(self, name: str, bootstrap: str, properties: dict[str, str]) -> None:
        asked = Cluster(KafkaCluster(bootstrap=bootstrap, properties=properties), name)
        told = _metadata(asked).brokers
        self.ids = tuple(sorted(told))
        self._addresses = {
            broker: f"{told[broker].host}:{told[broker].port}" for broker in self.ids
        }
        replicas = min(REPLICAS_MAX, len(self.ids))
        self.settings = asked.settings.model_copy(
            update={"replication_factor": replicas, "min_insync_replicas": max(1, replicas - 1)}
        )
        self.cluster = Cluster(self.settings, name)

    @property
    def replication(self) -> int:
        """Of topics that are made here."""
        return self.settings.replication_factor

    def make(self, topics: Sequence[str], partitions: int) -> None:
        """New topics, with acknowledgements that outlive the loss of one broker where there are
        three.

        What is in them stays there until they are deleted, whatever is the cluster's default.
        """
        settings = {
            "min.insync.replicas": str(self.settings.min_insync_replicas),
            "unclean.leader.election.enable": "false",
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
        ensure_topics(self.cluster, [TopicSpec(topic, partitions, settings) for topic in topics])

    def delete(self, topics: Sequence[str]) -> None:
        """Those of them that are there; Unavailable where the cluster does not."""
        there = self.cluster.topics(topics)
        if not there:
            return
        for name, future in self.cluster.admin.delete_topics(
            list(there), request_timeout=TIMEOUT_S
        ).items():
            try:
                future.result(TIMEOUT_S + 1)
            except (KafkaException, TimeoutError) as error:
                raise Unavailable(
                    f"topic {name} of the {self.cluster.name} cluster could not be deleted: {error}"
                ) from error

    def forget_group(self, name: str) -> None:
        """Delete a consumer group, where it is there."""
        for future in self.cluster.admin.delete_consumer_groups(
            [name], request_timeout=TIMEOUT_S
        ).values():
            try:
                future.result(TIMEOUT_S + 1)
            except (KafkaException, TimeoutError) as error:
                code = error.args[0].name() if isinstance(error, KafkaException) else ""
                if code != "GROUP_ID_NOT_FOUND":
                    raise Unavailable(f"group {name} could not be deleted: {error}") from error

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the broker that leads; Unavailable where nobody does."""
        leader = _metadata(self.cluster, topic).topics[topic].partitions[partition].leader
        if leader < 0:
            raise Unavailable(f"nobody leads {topic}-{partition}")
        return int(leader)

    def address(self, broker: int) -> str:
        """host:port, as clients were told at the beginning."""
        return self._addresses[broker]

    def answers(self, broker: int) -> bool:
        """Whether this one does, asked by itself."""
        return self._seen_by(broker) is not None

    def all_there(self, topics: Collection[str]) -> bool:
        """Whether each broker answers for itself, and sees all of them, and each replica of these
        topics in sync.

        Each is asked, as others do not miss a broker before its session is over, and believe it in
        sync so long.
        """
        return all(self._sees_all(broker, topics) for broker in self.ids)

    def out_of_sync(self) -> int:
        """Partitions with a replica that is not in sync, of all topics; Unavailable."""
        return sum(map(_is_behind, _partitions(_metadata(self.cluster))))

    def of_one_copy(self) -> int:
        """Partitions that would be gone with one broker's disk, of all topics; Unavailable."""
        return sum(len(p.replicas) < 2 for p in _partitions(_metadata(self.cluster)))

    def _sees_all(self, broker: int, topics: Collection[str]) -> bool:
        seen = self._seen_by(broker)
        if seen is None or not set(self.ids) <= seen.brokers.keys():
            return False
        return all(topic in seen.topics for topic in topics) and not any(
            map(_is_behind, _partitions(seen, topics))
        )

    def _seen_by(self, broker: int) -> Any:
        """The cluster's metadata as this broker has it; None where it does not answer."""
        if not listens(self._addresses[broker]):
            return None
        alone = Cluster(
            self.settings.model_copy(update={"bootstrap": self._addresses[broker]}),
            self.cluster.name,
        )
        try:
            return alone.admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException:
            return None


def _partitions(seen: Any, topics: Collection[str] | None = None) -> Iterator[Any]:
    """Of these topics, or of all."""
    for name, topic in seen.topics.items():
        if topics is None or name in topics:
            yield from topic.partitions.values()


def _is_behind(partition: Any) -> bool:
    return len(partition.isrs) < len(partition.replicas) or partition.leader < 0


def _metadata(cluster: Cluster, topic: str | None = None) -> Any:
    try:
        return (
            cluster.admin.list_topics(topic, timeout=TIMEOUT_S)
            if topic
            else cluster.admin.list_topics(timeout=TIMEOUT_S)
        )
    except KafkaException as error:
        cluster.reconnect()
        raise Unavailable(
            f"the {cluster.name} cluster ({cluster.settings.bootstrap}) did not answer: {error}"
        ) from error
