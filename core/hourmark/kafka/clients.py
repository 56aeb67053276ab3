"""Settings of Kafka clients, and the requests that all components send to a cluster.

An offset is always the next one to read. `confluent_kafka` (librdkafka) is the only client library;
the File Tailer does not import this module. Three properties of librdkafka shape it:

- While a partition has no leader, librdkafka returns offset -1001 without an error. Results are
  checked here.
- Brokers are replaced while a process runs for months, but a new client knows only the configured
  addresses. The process therefore remembers broker addresses from metadata (`remember_brokers`).
- Closing a client waits for its broker threads, for up to a quarter of an hour if a broker
  restarted. No client here is a member of a group or has unsent records, so `close_within` bounds
  the wait.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import (
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
    cimpl,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.printing import name_some

NAMED_MAX: Final = 16  # remembered addresses of a cluster; older ones are dropped

_named: Final[dict[str, dict[str, None]]] = {}  # by configured addresses; the most recent is last
_guard: Final = threading.Lock()


def remember_brokers(cluster: KafkaCluster, addresses: Iterable[str]) -> None:
    """Remember broker addresses of a Kafka cluster for clients that are created later.

    If all configured bootstrap brokers are down, new clients can still connect through these
    addresses. The process keeps the 16 most recent addresses of each cluster. Thread-safe.

    Args:
        cluster: The cluster, identified by its bootstrap setting.
        addresses: Addresses that the cluster reported, as host:port.
    """
    with _guard:
        known = _named.setdefault(cluster.bootstrap, {})
        for address in addresses:
            known.pop(address, None)
            known[address] = None
        for oldest in list(known)[:-NAMED_MAX]:
            del known[oldest]


def bootstrap_addresses(cluster: KafkaCluster) -> str:
    """Return all known broker addresses of a Kafka cluster for `bootstrap.servers`.

    Args:
        cluster: The cluster.

    Returns:
        The configured addresses, followed by those stored with `remember_brokers`, as
        comma-separated host:port.
    """
    configured = cluster.bootstrap.split(",")
    with _guard:
        named = list(_named.get(cluster.bootstrap, ()))
    return ",".join([*configured, *sorted(set(named) - set(configured))])


_LOG = logging.getLogger(__name__)

END_S: Final = 30.0


def close_within(close: Callable[[], None], description: str, seconds: float = END_S) -> None:
    """Run a blocking close function in a thread, and wait for it for a limited time.

    If the function takes longer, a warning is logged, and the function continues in a daemon
    thread. No exception is raised in either case.

    Args:
        close: The function that closes a client. Its exceptions are not propagated.
        description: Description of the client for the log.
        seconds: Maximum time to wait.
    """
    ending = threading.Thread(target=close, name=f"end {description}", daemon=True)
    ending.start()
    ending.join(seconds)
    if ending.is_alive():
        _LOG.warning(
            "%s did not stop within %.0f s and is abandoned; check whether a broker is down",
            description,
            seconds,
        )


def release_in_background(references: list[Any]) -> None:
    """Clear a list in a daemon thread, so that the caller does not wait for destructors.

    Destroying a Kafka client can block for a long time while a broker is down.

    Args:
        references: A list with the only references to the objects. It is modified in place.
    """
    threading.Thread(target=references.clear, name="drop", daemon=True).start()


TIMEOUT_S: Final = 15.0


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Partition:
    """A Kafka topic-partition. Instances sort by topic, then by partition number.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition, from 0.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Offset(int):
    """The offset of the next record to read from a topic-partition.

    The constructor raises `ValueError` for a negative number, because librdkafka uses negative
    numbers as error codes.

    Attributes:
        leader_epoch: For a log end offset, the epoch of the leader that reported the offset; None
            if the broker did not report an epoch.
    """

    leader_epoch: int | None

    def __new__(cls, number: int, leader_epoch: int | None = None) -> Self:
        if number < 0:
            raise ValueError(f"{number} is not a valid offset")
        made = super().__new__(cls, number)
        made.leader_epoch = leader_epoch if leader_epoch is None or leader_epoch >= 0 else None
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class TopicInfo:
    """The metadata of a Kafka topic, as reported by the cluster.

    Attributes:
        name: The topic's name.
        topic_id: Kafka's id of the topic, which changes when the topic is deleted and recreated.
        partitions: The partition numbers, ascending.
    """

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class TopicAccess(NamedTuple):
    """The permissions of this process's Kafka user on a topic.

    Attributes:
        may: Operations that the user may perform, by Kafka's names such as `READ`; None if the
            cluster does not report them.
        has_id: Whether the cluster reported a topic id (KIP-516). Without ids, a recreated topic
            cannot be distinguished from the deleted one.
    """

    may: frozenset[str] | None = None
    has_id: bool = True


def client_settings(cluster: KafkaCluster, **overrides: Any) -> dict[str, Any]:
    """Return the librdkafka settings for a client of a Kafka cluster.

    Args:
        cluster: The cluster, whose `properties` are included.
        overrides: Additional settings, which take precedence. Their names have `_` in place of `.`,
            such as `group_id`.

    Returns:
        A dict of librdkafka settings, for the constructor of a confluent_kafka client.
    """
    return {
        "bootstrap.servers": bootstrap_addresses(cluster),
        "log_level": 3,
        **cluster.properties,
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }


def consumer_settings(cluster: KafkaCluster, **overrides: Any) -> dict[str, Any]:
    """Return the librdkafka settings for a consumer of a Kafka cluster, with CRC checks enabled.

    By default, librdkafka does not verify the CRC of a batch, and would return records that were
    corrupted on disk or in transit. Neither `overrides` nor the cluster's properties can disable
    the check. The CRC does not cover a batch's base offset, length and leader epoch.

    Args:
        cluster: The cluster, whose `properties` are included.
        overrides: Additional settings. Their names have `_` in place of `.`, such as `group_id`.

    Returns:
        A dict of librdkafka settings, for the constructor of a confluent_kafka consumer.
    """
    return client_settings(cluster, **overrides) | {"check.crcs": True}


def supports_native_client(module: ModuleType) -> bool:
    """Return whether the compiled Kafka client can be used instead of the Python client.

    The compiled client calls the copy of librdkafka that confluent_kafka has loaded. The result is
    False if this copy does not export all functions that the client needs.

    Args:
        module: The compiled module of `hourmark_native`.
    """
    return bool(module.kafka(cimpl.__file__.encode()))


def librdkafka_logger() -> logging.Logger:
    """Return the logger for log messages of librdkafka.

    Pass it as the argument `logger` to confluent_kafka clients.
    """
    return logging.getLogger(f"{__name__}.librdkafka")


_NAMED_MAX: Final = 5
_NO_SUCH_TIME: Final = (
    -1
)  # the broker's answer if no record is as late; librdkafka's own codes are below -1000
_NO_LEADER: Final = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",  # the client knows an earlier leader; a new client refreshes it
    "UNKNOWN_LEADER_EPOCH",  # the client knows a later leader
    "_NOENT",  # librdkafka's own code if it knows no leader
)


class NoLeader(Unavailable):
    """A topic-partition currently has no leader that responds.

    This is normal for a few seconds after a broker fails or a topic is created. A retry may
    succeed.
    """


class _NoTopic(Unavailable): ...


class Cluster:
    """A Kafka cluster, accessed through its admin API.

    Requests raise `Unavailable` if the cluster does not answer within 15 s. The message contains
    the cluster's name and addresses.

    Args:
        settings: The cluster's settings.
        name: Name of the cluster in messages, such as `edge`.

    Attributes:
        settings: The cluster's settings.
        name: Name of the cluster in messages.
        admin: confluent_kafka's admin client, for requests that this class does not cover.
    """

    def __init__(self, settings: KafkaCluster, name: str) -> None:
        self.settings = settings
        self.name = name
        self.admin = self._connect()  # public, for requests that this class does not cover

    def reconnect(self) -> None:
        """Replace the Kafka admin client of this object with a new one.

        Call this method after a failed request, because the old client would keep sending requests
        to a broker that is down. The old client is closed in the background.
        """
        old, self.admin = [self.admin], self._connect()
        release_in_background(old)

    def cluster_id(self) -> str:
        """Return the id of the Kafka cluster.

        The id is assigned when the storage of the brokers is formatted, and never changes. A
        different id at the same address means that the cluster was replaced.

        Raises:
            Unavailable: The cluster does not answer within 15 s.
        """
        description = self._result(
            self.admin.describe_cluster(request_timeout=TIMEOUT_S), "describe the cluster"
        )
        return str(description.cluster_id)

    def names(self) -> list[str]:
        """Return the sorted names of all topics that are visible to this user.

        Raises:
            Unavailable: The cluster does not answer within 15 s.
        """
        try:
            return sorted(self.admin.list_topics(timeout=TIMEOUT_S).topics)
        except KafkaException as error:
            raise self._unavailable("list topics", error) from error

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Fetch the metadata of topics.

        Args:
            names: Names of the topics.

        Returns:
            Metadata by topic name. Topics that do not exist are omitted.

        Raises:
            NoLeader: The cluster did not report all partitions of a topic. A retry may succeed.
            Unavailable: The cluster does not answer within 15 s.
        """
        wanted = list(names)
        if not wanted:
            return {}
        futures = self.admin.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT_S)
        found = {}
        for name, future in futures.items():
            try:
                description = self._result(future, f"describe topic {name}")
            except _NoTopic:
                continue
            partitions = tuple(sorted(p.id for p in description.partitions))
            if partitions != tuple(range(max(1, len(partitions)))):
                raise self._error(
                    NoLeader, f"returned only the partitions {partitions} of topic {name}"
                )
            found[name] = TopicInfo(name, str(description.topic_id), partitions)
            nodes = [node for p in description.partitions for node in p.replicas]
            remember_brokers(
                self.settings, [f"{node.host}:{node.port}" for node in nodes if node.host]
            )  # a broker without host is unavailable
        return found

    def leaderless(self, names: Iterable[str]) -> frozenset[Partition]:
        """Return the topic-partitions that currently have no leader.

        Args:
            names: Names of the topics to check. Topics that do not exist are ignored.

        Returns:
            The partitions without a leader. Empty if all partitions have one.

        Raises:
            Unavailable: The cluster does not answer within 15 s.
        """
        wanted = list(names)
        if not wanted:
            return frozenset()
        found = set[Partition]()
        for name, future in self.admin.describe_topics(
            TopicCollection(wanted), request_timeout=TIMEOUT_S
        ).items():
            with contextlib.suppress(_NoTopic):
                partitions = self._result(future, f"describe topic {name}").partitions
                found |= {
                    Partition(name, p.id) for p in partitions if p.leader is None or p.leader.id < 0
                }
        return frozenset(found)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Fetch the settings of topics, including settings with default values.

        Args:
            names: Names of existing topics.

        Returns:
            A dict that maps each topic name to its settings. The settings map Kafka's setting
            names, such as `retention.ms`, to values.

        Raises:
            Unavailable: A topic does not exist, or the cluster does not answer within 15 s.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self.admin.describe_configs(resources, request_timeout=TIMEOUT_S)
        return {
            r.name: {
                name: entry.value
                for name, entry in self._result(future, f"settings of topic {r.name}").items()
            }
            for r, future in futures.items()
        }

    def topic_access(self, names: Iterable[str]) -> dict[str, TopicAccess]:
        """Fetch the permissions of this process's Kafka user on topics.

        Args:
            names: Names of the topics.

        Returns:
            Permissions by topic name. Topics that do not exist are omitted.

        Raises:
            Unavailable: The cluster does not answer within 15 s.
        """
        wanted = list(names)
        if not wanted:
            return {}
        futures = self.admin.describe_topics(
            TopicCollection(wanted), request_timeout=TIMEOUT_S, include_authorized_operations=True
        )
        found = {}
        for name, future in futures.items():
            with contextlib.suppress(_NoTopic):
                description = self._result(future, f"describe topic {name}")
                may = description.authorized_operations
                found[name] = TopicAccess(
                    may=None if may is None else frozenset(operation.name for operation in may),
                    has_id=(
                        description.topic_id.get_most_significant_bits(),
                        description.topic_id.get_least_significant_bits(),
                    )
                    != (0, 0),
                )
        return found

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> dict[Partition, Offset]:
        """Return the log end offset of each topic-partition.

        Args:
            partitions: Existing partitions.
            committed: If true, return the last stable offset, which limits `read_committed`
                consumers. If false, return the high watermark. The two differ while a transaction
                is open.

        Returns:
            The end offset (exclusive) of each partition. Empty if `partitions` is empty.

        Raises:
            NoLeader: A partition has had no leader for several seconds.
        """
        return self._offsets(partitions, OffsetSpec.latest(), committed=committed)

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, Offset]:
        """Return the log start offset of each topic-partition.

        Records below this offset were deleted, usually because their retention expired.

        Args:
            partitions: Existing partitions.

        Returns:
            The first available offset of each partition. Empty if `partitions` is empty.

        Raises:
            NoLeader: A partition has had no leader for several seconds.
        """
        return self._offsets(partitions, OffsetSpec.earliest())

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> frozenset[Partition]:
        """Return the topic-partitions that have lost records since they were read (KIP-320).

        A log is truncated if a replica that lacks its latest records becomes the leader.

        Args:
            begins: Maps each partition to the offset after the last record that was read, and the
                leader epoch of this record.

        Returns:
            The truncated partitions. Empty if no log was truncated.

        Raises:
            PartitionError: A partition could not be checked. A retry may succeed.
        """
        from hourmark.kafka.committed_reader import CommittedReader  # imports this module
        from hourmark.kafka.partitions_reader import LogTruncated, PartitionError, StartOffset

        failed: list[PartitionError] = []
        spans = {p: (offset, offset) for p, (offset, _) in begins.items()}
        with contextlib.closing(CommittedReader(self.settings, self.name)) as reader:
            for _ in reader.read(
                spans,
                starts={p: StartOffset(*of) for p, of in begins.items()},
                on_error=failed.append,
            ):
                pass
        if other := [error for error in failed if not isinstance(error, LogTruncated)]:
            raise other[0]
        return frozenset(error.partition for error in failed)

    def at_time(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, Offset]:
        """Return the offset of the first record at or after a time in each topic-partition.

        Args:
            partitions: Existing partitions.
            time_ms: The time in Unix milliseconds, compared with record timestamps.

        Returns:
            The offset for each partition. It is the log end offset if all records are older.

        Raises:
            NoLeader: A partition has had no leader for several seconds.
        """
        ends = self.ends(partitions)
        return self._offsets(partitions, OffsetSpec.for_timestamp(time_ms), where_none=ends)

    def newest_ms(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the highest timestamp of the committed records in each topic-partition.

        Args:
            partitions: Existing partitions.

        Returns:
            The timestamp for each partition, in Unix milliseconds. Partitions without records are
            omitted.

        Raises:
            Unavailable: The cluster does not answer within 15 s.
        """
        if not partitions:
            return {}
        request = {
            TopicPartition(p.topic, p.partition): OffsetSpec.max_timestamp() for p in partitions
        }
        futures = self.admin.list_offsets(
            request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
        )
        timestamps_ms = {
            Partition(tp.topic, tp.partition): self._result(
                future, f"newest record of {tp.topic}-{tp.partition}"
            ).timestamp
            for tp, future in futures.items()
        }
        return {p: int(time_ms) for p, time_ms in timestamps_ms.items() if time_ms >= 0}

    def _offsets(
        self,
        partitions: Sequence[Partition],
        spec: OffsetSpec,
        *,
        committed: bool = True,
        where_none: Mapping[Partition, Offset] | None = None,
    ) -> dict[Partition, Offset]:
        if not partitions:
            return {}
        give_up_s = time.monotonic() + TIMEOUT_S
        for pause_s in (
            0.2,
            0.5,
            1.0,
            2.0,
        ):  # a new topic, or one that lost its leader, has none for a moment
            try:
                return self._list_offsets(partitions, spec, committed, where_none or {})
            except NoLeader:
                if (
                    time.monotonic() + pause_s > give_up_s
                ):  # librdkafka itself has waited for the leader
                    raise
                time.sleep(pause_s)
        return self._list_offsets(partitions, spec, committed, where_none or {})

    def _list_offsets(
        self,
        partitions: Sequence[Partition],
        spec: OffsetSpec,
        committed: bool,
        where_none: Mapping[Partition, Offset],
    ) -> dict[Partition, Offset]:
        request = {TopicPartition(p.topic, p.partition): spec for p in partitions}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self.admin.list_offsets(request, isolation_level=level, request_timeout=TIMEOUT_S)
        found = {
            Partition(tp.topic, tp.partition): self._result(
                future, f"offsets of {tp.topic}-{tp.partition}"
            )
            for tp, future in futures.items()
        }
        offsets = {p: result.offset for p, result in found.items()}
        offsets |= {p: end for p, end in where_none.items() if offsets.get(p) == _NO_SUCH_TIME}
        if silent := [p for p in partitions if offsets.get(p, -1) < 0]:
            named = name_some(silent, _NAMED_MAX)
            raise self._error(NoLeader, f"returned no offset for {named}: no leader responds")
        return {p: Offset(offsets[p], found[p].leader_epoch) for p in partitions}

    def _result(self, future: Any, what: str) -> Any:
        try:
            return future.result(TIMEOUT_S + 1)
        except (
            KafkaException,
            TimeoutError,
            RuntimeError,
        ) as error:  # RuntimeError: the response is incomplete
            raise self._unavailable(what, error) from error

    def _unavailable(self, what: str, error: Exception) -> Unavailable:
        code = error.args[0].name() if isinstance(error, KafkaException) else ""
        kind = (
            NoLeader
            if code in _NO_LEADER
            else _NoTopic
            if code == "UNKNOWN_TOPIC_OR_PART"
            else Unavailable
        )
        return self._error(
            kind,
            f"did not respond ({what}): {str(error) or f'no response within {TIMEOUT_S:.0f} s'}",
        )

    def _error(self, kind: type[Unavailable], what: str) -> Unavailable:
        if kind is not _NoTopic:
            self.reconnect()
        setting = (
            "kafka.edge.bootstrap"
            if self.name == "edge"
            else "kafka.central.bootstrap or, if it is not set, kafka.edge.bootstrap"
        )
        return kind(
            f"the {self.name} Kafka cluster ({self.settings.bootstrap}) {what}; check that it is "
            f"running and that its address is still correct ({setting}). `hourmark status` shows "
            "which brokers do not respond, and why"
        )

    def _connect(self) -> AdminClient:
        # With sparse connections, librdkafka 2.16 busy-waits during a request to a broker that is
        # down: its main thread and the broker's thread wake each other, using up to one core.
        return AdminClient(
            client_settings(self.settings, enable_sparse_connections=False),
            logger=librdkafka_logger(),
        )


def topic_settings(
    retention_hours: int, max_message_bytes: int, min_insync_replicas: int
) -> Mapping[str, str]:
    """Return the Kafka topic settings that Hourmark requires for its topics.

    They apply to event topics and to topics with internal records, such as audit records.

    Args:
        retention_hours: Retention of records, in hours.
        max_message_bytes: Maximum size of a record batch, in bytes.
        min_insync_replicas: Number of replicas that must acknowledge a write.

    Returns:
        A mapping of Kafka's setting names to values.
    """
    return {
        "retention.ms": str(retention_hours * 3_600_000),
        "max.message.bytes": str(max_message_bytes),
        "min.insync.replicas": str(min_insync_replicas),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
