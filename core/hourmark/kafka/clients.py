"""Settings of Kafka clients, and the requests that all components send to a cluster.

An offset is always the next one to read.

Brokers that clusters named to this process: who connects anew finds a cluster of which no
configured address is left.

Brokers come and go while a process runs for months. Its clients follow, but a client made later
knows the configuration alone.

Ends clients of Kafka without waiting for ever.

librdkafka ends a client once all of its threads have ended, and these wait for brokers: it has been
seen to wait for a quarter of an hour after one had come and gone. Nothing here is a member of a
group, and nothing is left to be sent, so nobody needs that.

Settings of Kafka clients, and what all rooms ask of a cluster. Offsets always mean: the next to
read.

`confluent_kafka` (librdkafka) is the one client library. Only rooms that talk to Kafka import this
module; the tailer never does. Its answers are checked here: while a leader is away, librdkafka
gives -1001 ("invalid") for an offset, and no error.
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

NAMED_MAX: Final = 16  # of a cluster, those named last: addresses may change for ever

_named: Final[dict[str, dict[str, None]]] = {}  # by the configured addresses, the latest last
_guard: Final = threading.Lock()


def remember_brokers(cluster: KafkaCluster, addresses: Iterable[str]) -> None:
    """The cluster named these just now."""
    with _guard:
        known = _named.setdefault(cluster.bootstrap, {})
        for address in addresses:
            known.pop(address, None)
            known[address] = None
        for oldest in list(known)[:-NAMED_MAX]:
            del known[oldest]


def bootstrap_addresses(cluster: KafkaCluster) -> str:
    """The configured addresses, then the others that the cluster named lately; as clients take
    them.
    """
    configured = cluster.bootstrap.split(",")
    with _guard:
        named = list(_named.get(cluster.bootstrap, ()))
    return ",".join([*configured, *sorted(set(named) - set(configured))])


_LOG = logging.getLogger(__name__)

END_S: Final = 30.0


def close_within(end: Callable[[], None], what: str, seconds: float = END_S) -> None:
    """Wait so long for `end` at most.

    Where it takes longer, it goes on in a thread of its own, and that is said.
    """
    ending = threading.Thread(target=end, name=f"end {what}", daemon=True)
    ending.start()
    ending.join(seconds)
    if ending.is_alive():
        _LOG.warning(
            "%s has not ended within %.0f s, and is left to itself: is a broker away?",
            what,
            seconds,
        )


def release_in_background(last: list[Any]) -> None:
    """Let go of what is in the list, of which nobody else knows: it ends where that keeps nobody
    waiting.
    """
    threading.Thread(target=last.clear, name="drop", daemon=True).start()


TIMEOUT_S: Final = 15.0


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Partition:
    """A topic-partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Offset(int):
    """The next offset of a topic-partition to read.

    ValueError for a negative number: librdkafka's codes are no offsets.

    `leader_epoch`: of an end, the epoch of the leader that has it; None where a broker does not
    say.
    """

    leader_epoch: int | None

    def __new__(cls, number: int, leader_epoch: int | None = None) -> Self:
        if number < 0:
            raise ValueError(f"{number} is no offset")
        made = super().__new__(cls, number)
        made.leader_epoch = leader_epoch if leader_epoch is None or leader_epoch >= 0 else None
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a cluster says of a topic. `topic_id` changes when a topic is deleted and recreated."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class TopicAccess(NamedTuple):
    """`may`: what this user may do with a topic, in Kafka's words; None where the cluster does not
    say. `has_id`: a topic id.
    """

    may: frozenset[str] | None = None
    has_id: bool = True


def client_settings(cluster: KafkaCluster, **more: Any) -> dict[str, Any]:
    """librdkafka's settings for this cluster; `more` in its names with `.` as `_`."""
    return {
        "bootstrap.servers": bootstrap_addresses(cluster),
        "log_level": 3,
        **cluster.properties,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def consumer_settings(cluster: KafkaCluster, **more: Any) -> dict[str, Any]:
    """Return librdkafka's settings of a consumer of this cluster: those of `client_settings`, and
    CRCs are always checked.

    librdkafka does not compare a batch's CRC by default, and then returns what a disk or a network
    changed. Neither `more` nor `kafka.*.properties` can turn the check off. A batch's base offset,
    length and leader epoch are not in its CRC.
    """
    return client_settings(cluster, **more) | {"check.crcs": True}


def supports_native_client(module: ModuleType) -> bool:
    """Whether the librdkafka that confluent_kafka has loaded is all that the compiled module
    (`hourmark.native`) needs.
    """
    return bool(module.kafka(cimpl.__file__.encode()))


def librdkafka_logger() -> logging.Logger:
    """Where librdkafka's own log lines go."""
    return logging.getLogger(f"{__name__}.librdkafka")


_NAMED_MAX: Final = 5
_NO_SUCH_TIME: Final = (
    -1
)  # the broker's answer where no record is so late; librdkafka's own codes lie below -1000
_NO_LEADER: Final = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",  # the client knows a leader of before; a new one asks anew
    "UNKNOWN_LEADER_EPOCH",  # or of after
    "_NOENT",  # librdkafka's own, where it finds none that it could ask
)


class NoLeader(Unavailable):
    """A partition has no leader that answers at the moment."""


class _NoTopic(Unavailable):
    """The cluster does not know the topic."""


class Cluster:
    """One cluster, asked through its admin API.

    Every method raises Unavailable, naming the cluster, when it does not answer.
    """

    def __init__(self, settings: KafkaCluster, name: str) -> None:
        self.settings = settings
        self.name = name
        self.admin = self._connect()  # confluent_kafka's own client, for what is not here

    def reconnect(self) -> None:
        """The next question goes to a new client: an old one asks a broker that died again, until
        that comes back.
        """
        old, self.admin = [self.admin], self._connect()
        release_in_background(old)

    def cluster_id(self) -> str:
        """The id the cluster was formatted with."""
        description = self._result(
            self.admin.describe_cluster(request_timeout=TIMEOUT_S), "describe the cluster"
        )
        return str(description.cluster_id)

    def names(self) -> list[str]:
        """Of all topics."""
        try:
            return sorted(self.admin.list_topics(timeout=TIMEOUT_S).topics)
        except KafkaException as error:
            raise self._unavailable("list topics", error) from error

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of `names` that exist.

        A topic of which partitions are not told is Unavailable: it is neither there nor gone.
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
                    NoLeader, f"did not tell all partitions of topic {name}, only {partitions}"
                )
            found[name] = TopicInfo(name, str(description.topic_id), partitions)
            nodes = [node for p in description.partitions for node in p.replicas]
            remember_brokers(
                self.settings, [f"{node.host}:{node.port}" for node in nodes if node.host]
            )  # none: that broker is away
        return found

    def leaderless(self, names: Iterable[str]) -> frozenset[Partition]:
        """Return the partitions of these topics that have no leader; of topics that do not exist
        none.
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
        """By topic: its settings, in Kafka's names; the topics must exist."""
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
        """By topic, what this user may do with it; those that do not exist are left out."""
        wanted = list(names)
        if not wanted:
            return {}
        futures = self.admin.describe_topics(
            TopicCollection(wanted), request_timeout=TIMEOUT_S, include_authorized_operations=True
        )
        found = {}
        for name, future in futures.items():
            with contextlib.suppress(_NoTopic):
                told = self._result(future, f"describe topic {name}")
                may = told.authorized_operations
                found[name] = TopicAccess(
                    may=None if may is None else frozenset(operation.name for operation in may),
                    has_id=(
                        told.topic_id.get_most_significant_bits(),
                        told.topic_id.get_least_significant_bits(),
                    )
                    != (0, 0),
                )
        return found

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> dict[Partition, Offset]:
        """End offsets of all: those that a `read_committed` reader can reach now (last stable
        offsets), or the high watermarks.

        A record of a transaction that is being committed may lie between the two: whoever must not
        miss it takes the latter.
        """
        return self._offsets(partitions, OffsetSpec.latest(), committed=committed)

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, Offset]:
        """Log start offsets of all: below them, retention has deleted."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> frozenset[Partition]:
        """Return the partitions whose logs lost records before this offset, by the leader epoch of
        the record before it.

        `begins`: by partition, the offset after a record that was read, and that record's leader
        epoch (KIP-320).
        """
        from hourmark.kafka.committed_reader import CommittedReader  # it needs this module
        from hourmark.kafka.partitions_reader import LogTruncated, PartitionError, StartOffset

        failed: list[PartitionError] = []
        spans = {p: (offset, offset) for p, (offset, _) in begins.items()}
        with contextlib.closing(CommittedReader(self.settings, self.name)) as reader:
            for _ in reader.read(
                spans,
                starts={p: StartOffset(*of) for p, of in begins.items()},
                failed=failed.append,
            ):
                pass
        if other := [error for error in failed if not isinstance(error, LogTruncated)]:
            raise other[0]
        return frozenset(error.partition for error in failed)

    def at_time(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, Offset]:
        """The first offset of each whose record has this timestamp (Unix milliseconds) or a later
        one; its end where none has.
        """
        ends = self.ends(partitions)
        return self._offsets(partitions, OffsetSpec.for_timestamp(time_ms), where_none=ends)

    def newest_ms(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """When the newest record of each was written (Unix milliseconds), by its timestamp; those
        without one are left out.
        """
        if not partitions:
            return {}
        request = {
            TopicPartition(p.topic, p.partition): OffsetSpec.max_timestamp() for p in partitions
        }
        futures = self.admin.list_offsets(
            request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
        )
        told = {
            Partition(tp.topic, tp.partition): self._result(
                future, f"newest record of {tp.topic}-{tp.partition}"
            ).timestamp
            for tp, future in futures.items()
        }
        return {p: int(time_ms) for p, time_ms in told.items() if time_ms >= 0}

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
        ):  # a topic just made, or a leader just lost, has none for a moment
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
        told = {p: result.offset for p, result in found.items()}
        told |= {p: end for p, end in where_none.items() if told.get(p) == _NO_SUCH_TIME}
        if silent := [p for p in partitions if told.get(p, -1) < 0]:
            more = f" and {len(silent) - _NAMED_MAX} more" if len(silent) > _NAMED_MAX else ""
            named = ", ".join(map(str, silent[:_NAMED_MAX])) + more
            raise self._error(NoLeader, f"told no offset of {named}: no leader answers")
        return {p: Offset(told[p], found[p].leader_epoch) for p in partitions}

    def _result(self, future: Any, what: str) -> Any:
        try:
            return future.result(TIMEOUT_S + 1)
        except (
            KafkaException,
            TimeoutError,
            RuntimeError,
        ) as error:  # RuntimeError: its answer lacks what was asked for
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
            kind, f"did not answer ({what}): {str(error) or f'nothing within {TIMEOUT_S:.0f} s'}"
        )

    def _error(self, kind: type[Unavailable], what: str) -> Unavailable:
        if kind is not _NoTopic:
            self.reconnect()
        setting = (
            "kafka.edge.bootstrap"
            if self.name == "edge"
            else "kafka.central.bootstrap; where that is absent, of the edge"
        )
        return kind(
            f"the {self.name} Kafka cluster ({self.settings.bootstrap}) {what}; is it up, and "
            f"still there ({setting})? "
            "`hourmark status` shows the local stack"
        )

    def _connect(self) -> AdminClient:
        # With connections made on demand, a question to a broker that is down has librdkafka 2.16
        # spin until it times out: its main thread and the broker's wake each other, at up to a
        # core.
        return AdminClient(
            client_settings(self.settings, enable_sparse_connections=False),
            logger=librdkafka_logger(),
        )


def topic_settings(
    retention_hours: int, max_message_bytes: int, min_insync_replicas: int
) -> Mapping[str, str]:
    """Settings of event and control topics, the same on both clusters."""
    return {
        "retention.ms": str(retention_hours * 3_600_000),
        "max.message.bytes": str(max_message_bytes),
        "min.insync.replicas": str(min_insync_replicas),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
