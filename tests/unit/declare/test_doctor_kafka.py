"""What the doctor says of a cluster: each fault planted is found, with a next step, and a cluster
as it is to be has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from hourmark.config.groups import KafkaCluster, KafkaSettings
from hourmark.kafka.clients import TopicAccess
from hourmark.kafka.topic_names import TYPES, events_topic
from hourmark.kafka.topic_setup import TopicSpec
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark.rules.topics import edge_topics
from hourmark_declare.doctor.check_result import CheckStatus, DoctorCheckResult
from hourmark_declare.doctor.kafka_evaluation import (
    TopicFacts,
    evaluate_access,
    evaluate_brokers,
    evaluate_mirrored_topics,
    evaluate_topics,
)

EDGE = KafkaCluster()
EVENTS = events_topic(DEAD_LETTERS.name)
WANTED = {topic.name: topic for topic in edge_topics(KafkaSettings(), [DEAD_LETTERS])}


def facts_of(wanted: TopicSpec) -> TopicFacts:
    """As `types apply` makes it."""
    return TopicFacts(
        partitions=wanted.partitions,
        replicas=3,
        settings={"cleanup.policy": "delete", **wanted.settings},
    )


WELL = {name: facts_of(wanted) for name, wanted in WANTED.items()}


def findings(answers: Iterable[DoctorCheckResult]) -> list[str]:
    found = [answer for answer in answers if answer.verdict is CheckStatus.FINDING]
    assert all(answer.to_do for answer in found)
    return [f"{answer.subject}: {answer.seen}" for answer in found]


def judged(topics: Mapping[str, TopicFacts], wanted: Mapping[str, TopicSpec] = WANTED) -> list[str]:
    return findings(evaluate_topics("edge", EDGE, topics, wanted))


BROKERS = {n: f"kafka-{n}:9092" for n in (1, 2, 3)}


def with_settings(topic: str, **changed: str) -> dict[str, TopicFacts]:
    settings = {
        **WELL[topic].settings,
        **{name.replace("_", "."): value for name, value in changed.items()},
    }
    return {**WELL, topic: dataclasses.replace(WELL[topic], settings=settings)}


def test_a_cluster_as_it_is_to_be_has_no_finding() -> None:
    assert judged(WELL) == []
    assert [str(a) for a in evaluate_topics("edge", EDGE, WELL, WANTED)] == [
        "well       kafka: edge topics: 4 topics, replicated and set as configured"
    ]
    assert findings(evaluate_brokers("edge", EDGE, BROKERS)) == []
    assert findings(evaluate_mirrored_topics(WELL, WELL)) == []


@pytest.mark.parametrize(
    ("topic", "changed", "said"),
    [
        (EVENTS, {"min_insync_replicas": "1"}, "min.insync.replicas = 1, configured are 2"),
        (
            EVENTS,
            {"min_insync_replicas": "4"},
            "min.insync.replicas = 4, and it has 3 replicas: nothing is acknowledged",
        ),
        (
            EVENTS,
            {"unclean_leader_election_enable": "true"},
            "unclean.leader.election.enable = true",
        ),
        (EVENTS, {"cleanup_policy": "compact"}, "cleanup.policy = compact, needed is delete"),
        (
            EVENTS,
            {"cleanup_policy": "compact,delete"},
            "cleanup.policy = compact,delete, needed is delete",
        ),
        (
            TYPES,
            {"cleanup_policy": "delete"},
            "cleanup.policy = delete, needed is compact: rules in force are deleted",
        ),
        (
            EVENTS,
            {"retention_ms": "604799999"},
            "retention.ms = 604799999, configured are 604800000",
        ),
        (EVENTS, {"retention_ms": "-2"}, "retention.ms = -2, configured are 604800000"),
        (TYPES, {"retention_ms": "604800000"}, "retention.ms = 604800000, configured are -1"),
        (
            EVENTS,
            {"retention_bytes": "1073741824"},
            "retention.bytes = 1073741824: records are deleted by size",
        ),
        (
            EVENTS,
            {"max_message_bytes": "1048588"},
            "max.message.bytes = 1048588, configured are 8388608",
        ),
        (
            EVENTS,
            {"message_timestamp_type": "LogAppendTime"},
            "message.timestamp.type = LogAppendTime, needed is CreateTime",
        ),
    ],
)
def test_a_setting_that_breaks_a_promise_is_found(
    topic: str, changed: dict[str, str], said: str
) -> None:
    (found,) = judged(with_settings(topic, **changed))
    assert found.startswith(f"edge {topic}: {said}")


@pytest.mark.parametrize(
    "changed",
    [
        {"retention_ms": "-1"},
        {"retention_ms": "604800001"},
        {"max_message_bytes": "9000000"},
        {"min_insync_replicas": "3"},
    ],
)
def test_more_than_is_configured_is_well(changed: dict[str, str]) -> None:
    assert judged(with_settings(EVENTS, **changed)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"replicas": 2}, "replication factor 2, configured are 3"),
        ({"leaderless": (0,), "out_of_sync": (0,)}, "no leader for partitions 0"),
        (
            {"out_of_sync": tuple(range(7))},
            "replicas of partitions 0, 1, 2, 3, 4 and 2 more are away or behind",
        ),
        ({"partitions": 0}, "0 partitions, declared are 1"),
    ],
)
def test_a_topic_that_is_not_where_it_should_be_is_found(
    changed: dict[str, Any], said: str
) -> None:
    (found,) = judged({**WELL, EVENTS: dataclasses.replace(WELL[EVENTS], **changed)})
    assert found.startswith(f"edge {EVENTS}: {said}")


def test_a_topic_that_is_declared_and_not_there_is_found() -> None:
    assert judged({name: facts for name, facts in WELL.items() if name != EVENTS}) == [
        f"edge {EVENTS}: the topic does not exist"
    ]


def test_of_a_topic_that_no_type_in_force_has_all_is_judged_but_how_long_it_is_kept() -> None:
    assert judged(with_settings(EVENTS, retention_ms="1", max_message_bytes="1"), {}) == [
        f"edge {TYPES}: cleanup.policy = compact, needed is delete: records that share a "
        "key are deleted"
    ]
    del_types = {
        name: facts
        for name, facts in with_settings(EVENTS, min_insync_replicas="1").items()
        if name != TYPES
    }
    (found,) = judged(del_types, {})
    assert found.startswith(f"edge {EVENTS}: min.insync.replicas = 1")


def test_fewer_brokers_than_replicas_are_found() -> None:
    (found,) = findings(evaluate_brokers("edge", EDGE, {1: "kafka-1:9092", 3: "kafka-3:9092"}))
    assert found == (
        "edge: 2 brokers are up (1 at kafka-1:9092, 3 at kafka-3:9092), and topics are to have 3 "
        "replicas"
    )


def test_brokers_that_answer_are_named_and_each_that_does_not() -> None:
    (well,) = evaluate_brokers("edge", EDGE, BROKERS)
    assert well.seen.startswith("3 brokers (1 at kafka-1:9092, 2 at kafka-2:9092, 3 at")
    silent = {"kafka-2:9092": "no answer within 4 s", "kafka-9:9092": "the name does not resolve"}
    first, second, well = evaluate_brokers("edge", EDGE, BROKERS, silent)
    assert (first.subject, first.seen) == (
        "edge broker kafka-2:9092 (id 2)",
        silent["kafka-2:9092"],
    )
    assert (
        second.subject == "edge broker kafka-9:9092"
        and "let this machine resolve kafka-9" in second.to_do
    )
    assert "on kafka-2: see" in first.to_do
    assert well.seen == "brokers that answer: 1 at kafka-1:9092, 3 at kafka-3:9092"


def test_an_ack_that_can_never_come_is_found() -> None:
    (found,) = findings(evaluate_brokers("edge", KafkaCluster(replication_factor=1), BROKERS))
    assert found == "edge: min_insync_replicas = 2, of 1 replicas: nothing is ever acknowledged"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"max_message_bytes": "1048588"},
            "max.message.bytes = 1048588, at the edge it is 8388608",
        ),
        ({"retention_ms": "1000"}, "retention.ms = 1000, at the edge it is 604800000"),
    ],
)
def test_a_central_topic_that_takes_less_than_the_edges_is_found(
    changed: dict[str, str], said: str
) -> None:
    (found,) = findings(evaluate_mirrored_topics(WELL, with_settings(EVENTS, **changed)))
    assert found.startswith(f"central {EVENTS}: {said}")


def test_a_central_topic_with_fewer_partitions_is_found() -> None:
    more = {**WELL, EVENTS: dataclasses.replace(WELL[EVENTS], partitions=4)}
    (found,) = findings(evaluate_mirrored_topics(more, WELL))
    assert found == f"central {EVENTS}: 1 partitions, the edge's topic has 4"


ALL = frozenset(("READ", "WRITE", "DESCRIBE", "ALTER"))


def with_access(access: TopicAccess) -> dict[str, TopicFacts]:
    return {EVENTS: dataclasses.replace(WELL[EVENTS], access=access)}


@pytest.mark.parametrize(
    ("cluster", "right", "who"),
    [
        ("edge", "WRITE", "delivery services cannot work"),
        ("edge", "READ", "the mirror, or the ETL where there is none, cannot work"),
        ("edge", "DESCRIBE", "the ETL cannot work"),
        ("central", "WRITE", "the mirror cannot work"),
        ("central", "READ", "the ETL cannot work"),
        ("central", "DESCRIBE", "the ETL cannot work"),
    ],
)
def test_a_right_that_a_component_needs_and_has_not_is_found(
    cluster: str, right: str, who: str
) -> None:
    (found,) = findings(evaluate_access(cluster, with_access(TopicAccess(may=ALL - {right}))))
    assert found.startswith(f"{cluster}: this user has not the right {right} on {EVENTS}: {who}")


def test_topics_without_ids_are_found() -> None:
    (found,) = findings(evaluate_access("edge", with_access(TopicAccess(may=ALL, has_id=False))))
    assert found.startswith(f"edge: it reports no id for {EVENTS}")


@pytest.mark.parametrize("may", [ALL, None])
def test_who_may_all_or_is_not_told_has_no_finding(may: frozenset[str] | None) -> None:
    assert findings(evaluate_access("edge", with_access(TopicAccess(may=may)))) == []
