"""A Kafka cluster under evaluation: topics, partition leaders, brokers and in-sync replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import TIMEOUT_S, Cluster
from hourmark.kafka.topic_setup import TopicSpec, ensure_topics
from hourmark_infra.stack.health import ANSWER_SECONDS, accepts_connections

REPLICAS_MAX: Final = 3


class EvaluatedCluster:
    """A Kafka cluster under evaluation, with operations on its topics and consumer groups.

    The constructor connects to the cluster and raises `Unavailable` if it does not answer.

    Args:
        name: "edge" or "central".
        bootstrap: Bootstrap servers, as HOST:PORT separated by commas.
        properties: Additional client settings, by librdkafka's names.

    Attributes:
        ids: Ids of all brokers at the time of connection, ascending.
        settings: Connection settings, with the replication factor of new topics.
        cluster: The client of the cluster.
    """

    def __init__(self, name: str, bootstrap: str, properties: dict[str, str]) -> None:
        client = Cluster(KafkaCluster(bootstrap=bootstrap, properties=properties), name)
        brokers = _metadata(client).brokers
        self.ids = tuple(sorted(brokers))
        self._addresses = {
            broker: f"{brokers[broker].host}:{brokers[broker].port}" for broker in self.ids
        }
        replicas = min(REPLICAS_MAX, len(self.ids))
        self.settings = client.settings.model_copy(
            update={"replication_factor": replicas, "min_insync_replicas": max(1, replicas - 1)}
        )
        self.cluster = Cluster(self.settings, name)

    @property
    def replication(self) -> int:
        """Replication factor of new topics: 3, or the number of brokers if there are fewer."""
        return self.settings.replication_factor

    def create_topics(self, topics: Sequence[str], partitions: int) -> None:
        """Create topics whose records are kept until the topics are deleted.

        With three or more brokers, `min.insync.replicas` is 2: acknowledged records survive the
        loss of one broker. Existing topics are not changed.

        Args:
            topics: Names of the topics.
            partitions: Number of partitions of each topic.

        Raises:
            Finding: A topic exists with fewer partitions or other settings.
            Unavailable: The cluster does not answer or did not create a topic.
        """
        settings = {
            "min.insync.replicas": str(self.settings.min_insync_replicas),
            "unclean.leader.election.enable": "false",
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
        ensure_topics(self.cluster, [TopicSpec(topic, partitions, settings) for topic in topics])

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete topics of the cluster, together with their records.

        Args:
            topics: Names of the topics. Topics that do not exist are ignored.

        Raises:
            Unavailable: The cluster does not answer or could not delete a topic.
        """
        existing = self.cluster.topics(topics)
        if not existing:
            return
        for name, future in self.cluster.admin.delete_topics(
            list(existing), request_timeout=TIMEOUT_S
        ).items():
            try:
                future.result(TIMEOUT_S + 1)
            except (KafkaException, TimeoutError) as error:
                raise Unavailable(
                    f"topic {name} of the {self.cluster.name} cluster could not be deleted: {error}"
                ) from error

    def delete_consumer_group(self, name: str) -> None:
        """Delete a consumer group; do nothing if it does not exist.

        Raises:
            Unavailable: The group could not be deleted, for example because it still has members.
        """
        for future in self.cluster.admin.delete_consumer_groups(
            [name], request_timeout=TIMEOUT_S
        ).values():
            try:
                future.result(TIMEOUT_S + 1)
            except (KafkaException, TimeoutError) as error:
                code = error.args[0].name() if isinstance(error, KafkaException) else ""
                if code != "GROUP_ID_NOT_FOUND":
                    raise Unavailable(f"group {name} could not be deleted: {error}") from error

    def partition_leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the broker that leads a partition.

        Args:
            topic: Name of an existing topic.
            partition: Partition number.

        Raises:
            Unavailable: The partition has no leader, or the cluster does not answer.
        """
        leader = _metadata(self.cluster, topic).topics[topic].partitions[partition].leader
        if leader < 0:
            raise Unavailable(f"partition {topic}-{partition} has no leader")
        return int(leader)

    def broker_address(self, broker: int) -> str:
        """Return the address that a broker advertised when this object was created.

        Args:
            broker: Id of the broker.

        Returns:
            HOST:PORT.

        Raises:
            KeyError: The cluster had no broker of this id.
        """
        return self._addresses[broker]

    def responds(self, broker: int) -> bool:
        """Return whether a broker answers a metadata request.

        The request is sent directly to the broker, because other brokers may still list it after
        it was stopped.

        Args:
            broker: Id of the broker.
        """
        return self._metadata_from(broker) is not None

    def are_all_in_sync(self, topics: Collection[str]) -> bool:
        """Return whether all brokers are available and the given topics are fully in sync.

        Metadata is requested directly from each broker. Other brokers report a stopped broker as
        available and in sync until its session expires.

        Args:
            topics: Names of the topics to check.

        Returns:
            True if every broker responds, lists all other brokers, and reports every partition of
            the topics as fully in sync; False otherwise, including if a broker does not know a
            topic.
        """
        return all(self._reports_all_in_sync(broker, topics) for broker in self.ids)

    def count_out_of_sync(self) -> int:
        """Count the partitions of the cluster without a leader or with an out-of-sync replica.

        Raises:
            Unavailable: The cluster does not answer.
        """
        return sum(map(_is_out_of_sync, _partitions(_metadata(self.cluster))))

    def count_single_replica(self) -> int:
        """Count the partitions of the cluster that have only one replica.

        Such a partition is lost if its broker loses its disk.

        Raises:
            Unavailable: The cluster does not answer.
        """
        return sum(len(p.replicas) < 2 for p in _partitions(_metadata(self.cluster)))

    def _reports_all_in_sync(self, broker: int, topics: Collection[str]) -> bool:
        metadata = self._metadata_from(broker)
        if metadata is None or not set(self.ids) <= metadata.brokers.keys():
            return False
        return all(topic in metadata.topics for topic in topics) and not any(
            map(_is_out_of_sync, _partitions(metadata, topics))
        )

    def _metadata_from(self, broker: int) -> Any:
        if not accepts_connections(self._addresses[broker]):
            return None
        client = Cluster(
            self.settings.model_copy(update={"bootstrap": self._addresses[broker]}),
            self.cluster.name,
        )
        try:
            return client.admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException:
            return None


def _partitions(metadata: Any, topics: Collection[str] | None = None) -> Iterator[Any]:
    for name, topic in metadata.topics.items():
        if topics is None or name in topics:
            yield from topic.partitions.values()


def _is_out_of_sync(partition: Any) -> bool:
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
            f"the {cluster.name} cluster ({cluster.settings.bootstrap}) did not respond: {error}"
        ) from error
