"""Creation and verification of topics and their settings. All operations can be repeated."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from hourmark.errors import Finding, Unavailable
from hourmark.kafka.clients import TIMEOUT_S, Cluster, Partition


@dataclasses.dataclass(frozen=True)
class TopicSpec:
    """The required number of partitions and settings of a Kafka topic.

    Attributes:
        name: The topic's name.
        partitions: Minimum number of partitions. A new topic gets exactly this number.
        settings: Maps Kafka's setting names to values.
    """

    name: str
    partitions: int
    settings: Mapping[str, str]


def ensure_topics(cluster: Cluster, wanted: Sequence[TopicSpec]) -> list[str]:
    """Create missing topics, and check the settings of existing ones.

    Existing topics are not changed.

    Args:
        cluster: The cluster.
        wanted: The required topics.

    Returns:
        Names of the created topics. Empty if all topics existed.

    Raises:
        Finding: Existing topics have too few partitions or different settings. The message lists
            them.
        Unavailable: The cluster does not answer or did not create a topic.
    """
    existing = cluster.topics([t.name for t in wanted])
    missing = [t for t in wanted if t.name not in existing]
    create_topics(cluster, missing)
    there = [(t, len(existing[t.name].partitions)) for t in wanted if t.name in existing]
    wrong = [
        f"{t.name} has {count} partitions, not {t.partitions}"
        for t, count in there
        if count < t.partitions
    ]
    wrong += _wrong_settings(cluster, [t for t, _ in there])
    if wrong:
        listed = "\n  ".join(wrong)
        raise Finding(
            f"topics of the {cluster.name} cluster differ from their declaration:\n  "
            f"{listed}\nalter them with Kafka's own tools (kafka-configs.sh, kafka-topics.sh), "
            "or change the declaration"
        )
    return [t.name for t in missing]


def create_topics(cluster: Cluster, missing: Sequence[TopicSpec]) -> None:
    """Create Kafka topics, and wait until all their partitions have leaders.

    Topics that already exist are not changed.

    Args:
        cluster: The cluster, whose settings contain the replication factor.
        missing: The topics to create.

    Raises:
        Unavailable: The cluster did not create a topic within 15 s.
    """
    if not missing:
        return
    replication = cluster.settings.replication_factor
    futures = cluster.admin.create_topics(
        [NewTopic(t.name, t.partitions, replication, config=dict(t.settings)) for t in missing],
        operation_timeout=TIMEOUT_S,
        request_timeout=TIMEOUT_S,
    )
    for name, future in futures.items():
        try:
            future.result(TIMEOUT_S + 1)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # another process created it
                raise Unavailable(
                    f"the {cluster.name} cluster did not create {name}: {error.args[0].str()}"
                ) from error
        except TimeoutError as error:
            raise Unavailable(
                f"the {cluster.name} cluster did not create {name} within {TIMEOUT_S:.0f} s"
            ) from error
    _wait_for_leaders(cluster, [Partition(t.name, n) for t in missing for n in range(t.partitions)])


def add_partitions(cluster: Cluster, topic: str, count: int) -> None:
    """Increase the number of partitions of a Kafka topic, and wait until all have leaders.

    A topic that already has at least this number of partitions is not changed.

    Args:
        cluster: The cluster.
        topic: Name of an existing topic.
        count: Number of partitions that the topic must have.

    Raises:
        Unavailable: The cluster did not add the partitions.
    """
    future = cluster.admin.create_partitions(
        [NewPartitions(topic, count)], operation_timeout=TIMEOUT_S
    )[topic]
    try:
        future.result(TIMEOUT_S + 1)
    except KafkaException as error:
        there = cluster.topics([topic]).get(topic)
        if there is None or len(there.partitions) < count:
            raise Unavailable(
                f"the {cluster.name} cluster did not add partitions to {topic}: "
                f"{error.args[0].str()}"
            ) from error
    _wait_for_leaders(cluster, [Partition(topic, n) for n in range(count)])


def alter_topic(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of a Kafka topic. Its other settings keep their values.

    Args:
        cluster: The cluster.
        topic: Name of an existing topic.
        settings: Maps Kafka's setting names, such as `retention.ms`, to new values.

    Raises:
        Unavailable: The cluster rejected the change or did not answer.
    """
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    (future,) = cluster.admin.incremental_alter_configs(
        [resource], request_timeout=TIMEOUT_S
    ).values()
    try:
        future.result(TIMEOUT_S + 1)
    except KafkaException as error:
        raise Unavailable(
            f"the {cluster.name} cluster did not alter {topic}: {error.args[0].str()}"
        ) from error


def _wait_for_leaders(cluster: Cluster, partitions: Sequence[Partition]) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            cluster.ends(partitions)
        except Unavailable:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.2)
        else:
            return


def _wrong_settings(cluster: Cluster, topics: Sequence[TopicSpec]) -> list[str]:
    actual = cluster.topic_configs(t.name for t in topics)
    return [
        f"{t.name}: {setting} = {actual[t.name][setting]}, not {value}"
        for t in topics
        for setting, value in t.settings.items()
        if actual[t.name].get(setting, value) != value
    ]
