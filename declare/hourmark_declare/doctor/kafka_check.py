"""Checks brokers, topics and topic settings of all Kafka clusters. Changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata, TopicMetadata

from hourmark.commands.kafka_servers import ask_brokers, first_metadata
from hourmark.config.groups import KafkaCluster, KafkaSettings
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import TIMEOUT_S, Cluster, TopicAccess
from hourmark.kafka.topic_names import (
    AUDIT,
    EVENTS_PREFIX,
    HOSTS,
    TOKENS,
    TYPES,
    central_topic,
    edge_topic,
)
from hourmark.kafka.topic_setup import TopicSpec
from hourmark.rules.event_types import EventType
from hourmark.rules.rules_topic import read_rules
from hourmark.rules.topics import central_topics, edge_topics
from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, skipped_result
from hourmark_declare.doctor.kafka_evaluation import (
    CHECK,
    TopicFacts,
    evaluate_access,
    evaluate_brokers,
    evaluate_mirrored_topics,
    evaluate_topics,
)

_OF_HOURMARK: Final = (AUDIT, HOSTS, TYPES, TOKENS)
Facts = Mapping[str, TopicFacts]


def check_kafka(config: Config) -> Iterator[DoctorCheckResult]:
    """Check brokers, access rights and topics of all configured Kafka clusters.

    Args:
        config: Configuration of the edge cluster of each site and, if there is one, of the central
            cluster.

    Yields:
        The results for each site in turn. A cluster that does not respond produces one finding.
    """
    for n, kafka in enumerate(config.kafka.sites):
        yield from _site(kafka, "edge" if n == 0 else f"further_edges.{kafka.edge_alias}")


def _site(kafka: KafkaSettings, name: str) -> Iterator[DoctorCheckResult]:
    edge: Facts = {}
    types: Sequence[EventType] | None = None
    try:
        yield from _ask_brokers(kafka.edge, name)
        edge = _read_cluster(kafka.edge, name, lambda topic: topic)
        yield from evaluate_access(name, edge)
        try:
            types = _types_in_force(kafka.edge) if TYPES in edge else None
        except Unavailable as error:
            yield finding_result(
                CHECK,
                f"{name} {TYPES}",
                str(error),
                "what types declare is not compared; mend this, then ask again",
            )
        else:
            if types is None:
                yield skipped_result(
                    CHECK,
                    "types",
                    "none are applied yet, so no topic has to be there: `hourmark types apply`",
                )
        yield from evaluate_topics(
            name, kafka.edge, edge, _wanted(_edge_topics(kafka, types, edge), types, edge)
        )
    except Unavailable as error:
        yield _unavailable(name, kafka.edge, error)
    if kafka.central is not None:
        try:
            yield from _central(kafka, kafka.central, edge, types)
        except Unavailable as error:
            yield _unavailable("central", kafka.central, error)


def _central(
    kafka: KafkaSettings, settings: KafkaCluster, edge: Facts, types: Sequence[EventType] | None
) -> Iterator[DoctorCheckResult]:
    alias = kafka.edge_alias
    yield from _ask_brokers(settings, "central")
    central = _read_cluster(settings, "central", lambda name: edge_topic(name, alias))
    yield from evaluate_access("central", central)
    named = {central_topic(name, alias): facts for name, facts in central.items()}
    wanted = _wanted(central_topics(kafka, types or ()), types, named)
    yield from evaluate_topics("central", settings, named, wanted)
    yield from evaluate_mirrored_topics(
        {central_topic(name, alias): facts for name, facts in edge.items()}, named
    )


def _ask_brokers(settings: KafkaCluster, name: str) -> Iterator[DoctorCheckResult]:
    answers = ask_brokers(name, settings)
    metadata = first_metadata(answers)
    if metadata is None:
        reasons = dict.fromkeys(str(answer) for answer in answers.values())
        raise Unavailable("; ".join(reasons))
    yield from evaluate_brokers(
        name,
        settings,
        {number: f"{b.host}:{b.port}" for number, b in metadata.brokers.items()},
        {address: answer for address, answer in answers.items() if isinstance(answer, str)},
    )


def _read_cluster(settings: KafkaCluster, name: str, at_edge: Callable[[str], str]) -> Facts:
    # Return Hourmark's topics by their edge names.
    cluster = Cluster(settings, name)
    metadata = _metadata(cluster)
    topics = {topic: info for topic, info in metadata.topics.items() if _is_ours(topic, at_edge)}
    configs, access = cluster.topic_configs(topics), cluster.topic_access(topics)
    return {
        at_edge(topic): _facts(info, configs[topic], access.get(topic, TopicAccess()))
        for topic, info in topics.items()
    }


def _metadata(cluster: Cluster) -> ClusterMetadata:
    try:
        return cluster.admin.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise Unavailable(f"did not answer: {error.args[0].str()}") from error


def _is_ours(topic: str, at_edge: Callable[[str], str]) -> bool:
    try:
        name = at_edge(topic)
    except ValueError:  # a topic of another site
        return False
    return name in _OF_HOURMARK or name.startswith(EVENTS_PREFIX)


def _facts(info: TopicMetadata, settings: Mapping[str, str], access: TopicAccess) -> TopicFacts:
    partitions = sorted(info.partitions.values(), key=lambda p: p.id)
    return TopicFacts(
        partitions=len(partitions),
        replicas=min((len(p.replicas) for p in partitions), default=0),
        settings=settings,
        leaderless=tuple(p.id for p in partitions if p.leader < 0),
        out_of_sync=tuple(p.id for p in partitions if len(p.isrs) < len(p.replicas)),
        access=access,
    )


def _types_in_force(edge: KafkaCluster) -> list[EventType] | None:
    rules = read_rules(edge).latest
    return None if rules is None else [version.declaration for version in rules.types.values()]


def _wanted(
    all_topics: Sequence[TopicSpec], types: Sequence[EventType] | None, there: Facts
) -> dict[str, TopicSpec]:
    # Return the expected topics to compare with; without rules in force, no topic must exist.
    return {t.name: t for t in all_topics if types is not None or t.name in there}


def _edge_topics(
    kafka: KafkaSettings, types: Sequence[EventType] | None, there: Facts
) -> list[TopicSpec]:
    wanted = edge_topics(kafka, types or ())
    if TOKENS in there:  # created with the first token, with the settings of the topic of types
        wanted += [dataclasses.replace(t, name=TOKENS) for t in wanted if t.name == TYPES]
    return wanted


def _unavailable(cluster: str, settings: KafkaCluster, error: Unavailable) -> DoctorCheckResult:
    asked = "" if settings.bootstrap in str(error) else f" (asked: {settings.bootstrap})"
    return finding_result(
        CHECK,
        cluster,
        f"{error}{asked}",
        f"see that its brokers run, and that kafka.{cluster}.bootstrap (and properties, "
        "for TLS and login) names them",
    )
