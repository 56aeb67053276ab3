"""Evaluates what a Kafka cluster reports about brokers, topics and access. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from hourmark.commands.kafka_servers import silent_broker_step
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import TopicAccess
from hourmark.kafka.topic_setup import TopicSpec
from hourmark.printing import name_some
from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, passed_result

CHECK: Final = "kafka"
_APPLY: Final = "`hourmark types apply` makes it"
_RIGHTS: Final[Mapping[str, Mapping[str, str]]] = {
    # cluster: right: the component that needs it
    "edge": {
        "WRITE": "delivery services",
        "READ": "the mirror, or the ETL where there is none,",
        "DESCRIBE": "the ETL",
    },
    "central": {"WRITE": "the mirror", "READ": "the ETL", "DESCRIBE": "the ETL"},
}
_AT_LEAST: Final[Mapping[str, str]] = {
    # setting: consequence of a lower value
    "min.insync.replicas": "acknowledged records may be on fewer brokers than configured, and be lost with them",
    "retention.ms": "records are deleted before a component that was down for this long has read them",
    "max.message.bytes": "larger records are refused, and ranges with them wait for ever",
}
_UNTOLD: Final = TopicAccess()


@dataclasses.dataclass(frozen=True, slots=True)
class TopicFacts:
    """The properties of a Kafka topic, as reported by its cluster.

    Attributes:
        partitions: Number of partitions.
        replicas: Smallest number of replicas of any partition; 0 if there are no partitions.
        settings: Topic configuration, with names such as `retention.ms` as keys.
        leaderless: Numbers of the partitions without a leader.
        out_of_sync: Numbers of the partitions with at least one replica that is not in sync.
        access: Operations that the configured Kafka user may perform, and whether the topic has an
            id.
    """

    partitions: int
    replicas: int
    settings: Mapping[str, str]
    leaderless: tuple[int, ...] = ()
    out_of_sync: tuple[int, ...] = ()
    access: TopicAccess = _UNTOLD


def evaluate_brokers(
    cluster: str,
    settings: KafkaCluster,
    brokers: Mapping[int, str],
    silent: Mapping[str, str] = {},
) -> Iterator[DoctorCheckResult]:
    """Check whether all Kafka brokers respond, and whether there are enough for the replicas.

    Args:
        cluster: Name of the cluster, shown in the results.
        settings: Configured replication factor and minimum of in-sync replicas.
        brokers: Maps the id of each broker in the cluster metadata to its address.
        silent: Maps the address of each broker that does not respond to the reason. Bootstrap
            addresses that are not in `brokers` may be included.

    Yields:
        A finding if `min_insync_replicas` exceeds the replication factor. Then, a finding for each
        broker that does not respond, and a passed result that lists the other brokers. If all
        respond, a finding if there are fewer brokers than replicas, and otherwise a passed result.
    """
    needed, in_sync = settings.replication_factor, settings.min_insync_replicas
    if in_sync > needed:
        yield finding_result(
            CHECK,
            cluster,
            f"min_insync_replicas = {in_sync}, of {needed} replicas: nothing is ever acknowledged",
            f"set kafka.{cluster}.min_insync_replicas to {needed} at most; 2 of 3 "
            "survives one broker",
        )
    ids = {address: number for number, address in brokers.items()}
    for address, why in silent.items():
        number = f" (id {ids[address]})" if address in ids else ""
        yield finding_result(
            CHECK, f"{cluster} broker {address}{number}", why, silent_broker_step(address, why)
        )
    named = ", ".join(
        f"{number} at {address}"
        for number, address in sorted(brokers.items())
        if address not in silent
    )
    if silent:
        yield passed_result(CHECK, cluster, f"brokers that answer: {named or 'none'}")
    elif len(brokers) < needed:
        yield finding_result(
            CHECK,
            cluster,
            f"{len(brokers)} brokers are up ({named}), and topics are to have {needed} replicas",
            f"bring the others up, or set kafka.{cluster}.replication_factor where there "
            "are no more",
        )
    else:
        yield passed_result(
            CHECK, cluster, f"{len(brokers)} brokers ({named}), replication factor {needed}"
        )


def evaluate_topics(
    cluster: str,
    settings: KafkaCluster,
    topics: Mapping[str, TopicFacts],
    wanted: Mapping[str, TopicSpec],
) -> Iterator[DoctorCheckResult]:
    """Check all topics of a cluster, including expected topics that do not exist.

    Args:
        cluster: Name of the cluster, shown in the results.
        settings: Configured replication of the cluster.
        topics: Maps the name of each existing topic to its properties.
        wanted: Maps the name of each expected topic to its expected properties.

    Yields:
        One finding for each problem, or a single passed result if there are no problems.
    """
    found = [
        finding_result(CHECK, f"{cluster} {name}", "the topic does not exist", _APPLY)
        for name in sorted(wanted.keys() - topics.keys())
    ]
    for name, facts in sorted(topics.items()):
        found += evaluate_topic(cluster, settings, name, facts, wanted.get(name))
    yield from found
    if not found:
        count = f"{len(topics)} topic{'' if len(topics) == 1 else 's'}"
        yield passed_result(
            CHECK, f"{cluster} topics", f"{count}, replicated and set as configured"
        )


def evaluate_topic(
    cluster: str, settings: KafkaCluster, name: str, facts: TopicFacts, wanted: TopicSpec | None
) -> Iterator[DoctorCheckResult]:
    """Check replication, settings, partitions and availability of one topic.

    Args:
        cluster: Name of the cluster, shown in the results.
        settings: Configured replication of the cluster.
        name: Name of the topic.
        facts: Actual properties of the topic.
        wanted: Expected properties. None if no active event type uses the topic; retention and the
            number of partitions are then not checked.

    Yields:
        One finding for each problem; nothing if there are no problems.
    """
    subject = f"{cluster} {name}"
    if facts.replicas < settings.replication_factor:
        yield finding_result(
            CHECK,
            subject,
            f"replication factor {facts.replicas}, configured are {settings.replication_factor}",
            "give it more replicas by kafka-reassign-partitions.sh; a broker that is "
            "lost takes with it what has no other",
        )
    least = {
        "min.insync.replicas": str(settings.min_insync_replicas),
        **(wanted.settings if wanted else {}),
    }
    for setting, why in _AT_LEAST.items():
        if setting in least and _less(facts.settings.get(setting), least[setting]):
            given = facts.settings[setting]
            yield finding_result(
                CHECK,
                subject,
                f"{setting} = {given}, configured are {least[setting]}: {why}",
                _alter(least, setting),
            )
    yield from _election(subject, facts)
    yield from _in_sync_possible(subject, facts)
    yield from _cleanup(subject, facts, wanted)
    if wanted is not None:
        yield from _as_wanted(subject, facts, wanted)
    yield from _partitions_served(subject, facts)


def evaluate_access(cluster: str, topics: Mapping[str, TopicFacts]) -> Iterator[DoctorCheckResult]:
    """Check whether the configured Kafka user has all permissions for the topics of a cluster.

    The topics must also have ids, which are required to detect that a topic was deleted and
    recreated.

    Args:
        cluster: `edge` or `central`; the two require different permissions.
        topics: Maps the name of each existing topic to its properties.

    Yields:
        A finding for each missing permission, and one for topics without ids. A single passed
        result if there are no findings. Nothing if `topics` is empty.

    Raises:
        KeyError: `cluster` is neither `edge` nor `central`.
    """
    found = []
    for right, who in _RIGHTS[cluster].items():
        may = {name: facts.access.may for name, facts in topics.items()}
        if lacking := sorted(
            name for name, rights in may.items() if rights is not None and right not in rights
        ):
            found.append(
                finding_result(
                    CHECK,
                    cluster,
                    f"this user has not the right {right} on {name_some(lacking)}: {who} cannot "
                    "work with this configuration",
                    f"kafka-acls.sh --add --allow-principal User:… --operation {right} "
                    f"--topic …, or give {who} a user of its own",
                )
            )
    if without := sorted(name for name, facts in topics.items() if not facts.access.has_id):
        found.append(
            finding_result(
                CHECK,
                cluster,
                f"it reports no id for {name_some(without)}: a topic that was deleted and "
                "recreated would be mistaken for the "
                "previous one",
                "upgrade its brokers: topic ids require Kafka 2.8 and its metadata version",
            )
        )
    yield from found
    if topics and not found:
        yield passed_result(
            CHECK,
            f"{cluster} access",
            "topics have ids, and this user may read, write and describe them",
        )


def evaluate_mirrored_topics(
    edge: Mapping[str, TopicFacts], central: Mapping[str, TopicFacts]
) -> Iterator[DoctorCheckResult]:
    """Check whether the central cluster's topics can hold all records copied from the edge cluster.

    A central topic needs at least as many partitions, as large a maximum message size and as long a
    retention as its edge topic.

    Args:
        edge: Properties of the edge topics, with their names on the central cluster as keys.
        central: Properties of the central topics, with their names as keys.

    Yields:
        A finding for each value that is too low on the central cluster. Topics that exist on only
        one cluster are ignored.
    """
    for name in sorted(edge.keys() & central.keys()):
        subject = f"central {name}"
        here, there = edge[name], central[name]
        if there.partitions < here.partitions:
            yield finding_result(
                CHECK,
                subject,
                f"{there.partitions} partitions, the edge's topic has {here.partitions}",
                "give it as many by kafka-topics.sh --alter; until then what the others "
                "hold is not mirrored",
            )
        for setting in ("max.message.bytes", "retention.ms"):
            given, needed = there.settings.get(setting), here.settings.get(setting)
            if needed is not None and _less(given, needed):
                yield finding_result(
                    CHECK,
                    subject,
                    f"{setting} = {given}, at the edge it is {needed}: {_AT_LEAST[setting]}",
                    _alter({setting: needed}, setting),
                )


def _election(subject: str, facts: TopicFacts) -> Iterator[DoctorCheckResult]:
    if facts.settings.get("unclean.leader.election.enable") == "true":
        yield finding_result(
            CHECK,
            subject,
            "unclean.leader.election.enable = true: a broker that lacks "
            "acknowledged "
            "records may become leader",
            _alter({"unclean.leader.election.enable": "false"}, "unclean.leader.election.enable"),
        )


def _in_sync_possible(subject: str, facts: TopicFacts) -> Iterator[DoctorCheckResult]:
    in_sync = facts.settings.get("min.insync.replicas", "1")
    if _less(str(facts.replicas), in_sync):
        yield finding_result(
            CHECK,
            subject,
            f"min.insync.replicas = {in_sync}, and it has {facts.replicas} "
            "replicas: "
            "nothing is acknowledged",
            "give it more replicas by kafka-reassign-partitions.sh",
        )


def _cleanup(
    subject: str, facts: TopicFacts, wanted: TopicSpec | None
) -> Iterator[DoctorCheckResult]:
    policies = facts.settings.get("cleanup.policy", "delete").split(",")
    needed = wanted.settings.get("cleanup.policy", "delete") if wanted else "delete"
    if policies != [needed]:
        comes_of = (
            "records that share a key are deleted"
            if needed == "delete"
            else "rules in force are deleted by age"
        )
        yield finding_result(
            CHECK,
            subject,
            f"cleanup.policy = {','.join(policies)}, needed is {needed}: {comes_of}",
            _alter({"cleanup.policy": needed}, "cleanup.policy"),
        )
    if (limit := facts.settings.get("retention.bytes", "-1")) != "-1" and needed == "delete":
        yield finding_result(
            CHECK,
            subject,
            f"retention.bytes = {limit}: records are deleted by size, however young they are",
            _alter({"retention.bytes": "-1"}, "retention.bytes"),
        )


def _as_wanted(subject: str, facts: TopicFacts, wanted: TopicSpec) -> Iterator[DoctorCheckResult]:
    if facts.partitions < wanted.partitions:
        yield finding_result(
            CHECK,
            subject,
            f"{facts.partitions} partitions, declared are {wanted.partitions}",
            "give it as many by kafka-topics.sh --alter, or change the declaration",
        )
    setting = "message.timestamp.type"
    if (given := facts.settings.get(setting, "CreateTime")) != "CreateTime":
        yield finding_result(
            CHECK,
            subject,
            f"{setting} = {given}, needed is CreateTime: times of records are "
            "not those "
            "that were sent",
            _alter({setting: "CreateTime"}, setting),
        )


def _partitions_served(subject: str, facts: TopicFacts) -> Iterator[DoctorCheckResult]:
    if facts.leaderless:
        yield finding_result(
            CHECK,
            subject,
            f"no leader for partitions {name_some(facts.leaderless, 5)}: they take and give nothing",
            "bring the brokers back that hold them (kafka-topics.sh --describe names them)",
        )
    if behind := tuple(p for p in facts.out_of_sync if p not in facts.leaderless):
        yield finding_result(
            CHECK,
            subject,
            f"replicas of partitions {name_some(behind, 5)} are away or behind",
            "check that all brokers are up; they catch up automatically (kafka-topics.sh "
            "--describe --under-replicated-partitions)",
        )


def _less(given: str | None, needed: str) -> bool:
    # A setting that the cluster does not report counts as sufficient; -1 means unlimited.
    if given is None or given == "-1":
        return False
    return needed == "-1" or int(given) < int(needed)


def _alter(settings: Mapping[str, str], setting: str) -> str:
    return (
        "kafka-configs.sh --alter --entity-type topics --entity-name … --add-config "
        f"{setting}={settings[setting]}"
    )
