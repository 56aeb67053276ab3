"""Positions and workers of MirrorMaker 2, read from the Kafka clusters.

MirrorMaker 2 stores its positions in the compacted topic `mm2-offsets.<source>.internal` on the
target cluster, in the same transactions as the copied records. A committed position therefore means
that all readable records below it are on the target:

    key    ["MirrorSourceConnector",{"cluster":"edge","partition":0,"topic":"events.click"}]
    value  {"offset":497}

The stored offset is that of the last copied record. This module returns the next offset to copy,
498 in the example, as everywhere in Hourmark. A partition from which nothing has been copied has no
entry, and a position that an operator has reset is a tombstone. Other records in the topic are
skipped with a warning.

The workers of a mirror form a Kafka Connect group named `<source>-mm2` on the target cluster.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from confluent_kafka import KafkaError, KafkaException

from hourmark.config.groups import LOOPBACK_HOSTS, KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import TIMEOUT_S, Cluster, Offset, Partition
from hourmark.kafka.compacted_topic import KeyValue, TopicFollower

_LOG = logging.getLogger(__name__)

CONNECTOR: Final = "MirrorSourceConnector"


def positions_topic(edge_alias: str) -> str:
    """Return the name of MirrorMaker 2's offsets topic, which is on the target cluster.

    MirrorMaker 2 stores its position in each source partition there.

    Args:
        edge_alias: MirrorMaker 2's alias of the source cluster.

    Returns:
        A name such as `mm2-offsets.edge.internal`.
    """
    return f"mm2-offsets.{edge_alias}.internal"


class MirrorPositions:
    """The current positions of MirrorMaker 2 in the source partitions that it copies.

    The positions are read from MirrorMaker 2's offsets topic on the target cluster. Each refresh
    fetches only new records. Not thread-safe.

    Args:
        central: The target cluster.
        edge_alias: MirrorMaker 2's alias of the source cluster.
    """

    def __init__(self, central: KafkaCluster, edge_alias: str) -> None:
        self._edge_alias = edge_alias
        self._follower = TopicFollower(central, positions_topic(edge_alias))
        self._positions: dict[Partition, Offset] = {}

    def refresh(self) -> dict[Partition, Offset]:
        """Read new records, and return the mirror's position in each source partition.

        Returns:
            A dict that maps each topic-partition of the source cluster (edge) to the offset of the
            next record to copy. Partitions from which nothing has been copied are omitted.

        Raises:
            Unavailable: The target cluster (central) does not answer. A retry may succeed.
        """
        from_start, records = self._follower.poll()
        if from_start:
            self._positions = {}
        apply_positions(self._positions, records, self._edge_alias)
        return dict(self._positions)

    def close(self) -> None:
        """Close the Kafka consumer. A later `refresh` reads the topic from its beginning."""
        self._follower.close()
        self._positions = {}


def apply_positions(
    positions: dict[Partition, Offset], records: Iterable[KeyValue], edge_alias: str
) -> None:
    """Update mirror positions in place with records of MirrorMaker 2's offsets topic.

    Records that were not written by MirrorMaker 2 are skipped, and a warning is logged.

    Args:
        positions: Maps each topic-partition of the source cluster to the next offset to copy.
        records: Key and value of each record, in topic order. A tombstone removes its partition.
        edge_alias: MirrorMaker 2's alias of the source cluster. Records of other clusters are
            ignored.
    """
    for partition, _, position in _entries(records, edge_alias):
        if position is None:
            positions.pop(partition, None)
        else:
            positions[partition] = position


def position_keys(records: Iterable[KeyValue], edge_alias: str) -> dict[Partition, bytes]:
    """Return the record key that MirrorMaker 2's offsets topic uses for each source partition.

    To reset the position of a partition, write a tombstone with its key. Records that were not
    written by MirrorMaker 2 are skipped.

    Args:
        records: Key and value of each record of the offsets topic (`positions_topic`), in topic
            order.
        edge_alias: MirrorMaker 2's alias of the source cluster. Records of other clusters are
            ignored.

    Returns:
        The most recent key of each topic-partition of the source cluster. Empty if there is none.
    """
    return {partition: key for partition, key, _ in _entries(records, edge_alias)}


def _entries(
    records: Iterable[KeyValue], edge_alias: str
) -> Iterator[tuple[Partition, bytes, Offset | None]]:
    strange: list[bytes] = []
    for key, value in records:
        if key is None:
            continue
        try:
            partition = _partition(key, edge_alias)
            position = None if value is None or partition is None else _position(value)
        except (KeyError, TypeError, ValueError, RecursionError):
            strange.append(key)
            continue
        if partition is not None:
            yield partition, key, position
    if strange:
        _LOG.warning(
            "%d records of the mirror's positions topic were not written by MirrorMaker 2 and "
            "are skipped, the first with key %r; find out which other program writes to this "
            "topic",
            len(strange),
            strange[0][:100],
        )


def _position(value: bytes) -> Offset | None:
    written = json.loads(value)
    if not isinstance(written, dict):
        raise ValueError("not a JSON object")
    copied = written.get("offset")
    return Offset(copied + 1) if isinstance(copied, int) and copied >= 0 else None


def _partition(key: bytes, edge_alias: str) -> Partition | None:
    """Parse the source partition from the key of an offset record of MirrorMaker 2.

    Args:
        key: Key of a record in MirrorMaker 2's offsets topic: a JSON array of the connector's name
            and an object with `cluster`, `topic` and `partition`.
        edge_alias: MirrorMaker 2's alias of the source cluster.

    Returns:
        The partition. None if the key belongs to another connector or another source cluster.

    Raises:
        KeyError, TypeError, ValueError: The key is malformed.
    """
    entry: Any = json.loads(key) if key else None
    if (
        not isinstance(entry, list)
        or len(entry) != 2
        or entry[0] != CONNECTOR
        or not isinstance(entry[1], dict)
    ):
        return None  # another connector's (heartbeats, checkpoints)
    source = entry[1]
    if source.get("cluster") != edge_alias or not isinstance(source.get("topic"), str):
        return None
    return Partition(source["topic"], int(source["partition"]))


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PartitionBehind:
    """A topic-partition where the mirror has not yet reached a required offset.

    Attributes:
        partition: The partition on the source cluster (edge).
        cut: The required offset: the mirror must copy all records below it.
        position: Offset of the next record that the mirror will copy; None if nothing has been
            copied yet.
    """

    partition: Partition
    cut: int
    position: int | None

    def __str__(self) -> str:
        where = (
            "the mirror has copied nothing"
            if self.position is None
            else f"the mirror's position is {self.position}"
        )
        return f"{self.partition}: {where}, the cut is {self.cut}"


def partitions_behind(
    cut: Mapping[Partition, int],
    starts: Mapping[Partition, int],
    positions: Mapping[Partition, int],
) -> list[PartitionBehind]:
    """Return the topic-partitions where the mirror has not yet reached a required offset.

    A partition whose records below the offset have all been deleted counts as complete. Use
    `find_gaps` and `recreated_topics` to check whether the mirror missed any deleted records.
    Producers on the edge cluster must not use transactions, because the mirror never reaches an
    offset that follows a commit marker.

    Args:
        cut: Maps each partition to the edge offset that the mirror must reach.
        starts: Maps each partition to its log start offset on the edge cluster.
        positions: Maps each partition to the next offset that the mirror will copy.

    Returns:
        The incomplete partitions, sorted. Empty if all partitions are complete.
    """
    return [
        PartitionBehind(partition, end, positions.get(partition))
        for partition, end in sorted(cut.items())
        if end > starts.get(partition, 0) and positions.get(partition, 0) < end
    ]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class MirrorGap:
    """A range of offsets that retention may have deleted before the mirror copied it.

    Attributes:
        partition: The topic-partition on the source cluster (edge).
        first: First offset that may be missing on the target cluster.
        end: End of the range (exclusive).
        reason: Reason why records may be missing, for error messages.
    """

    partition: Partition
    first: int
    end: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.partition}: offsets {self.first} to {self.end - 1} may be missing: "
            f"{self.reason}"
        )


def find_gaps(
    previous_positions: Mapping[Partition, int], starts: Mapping[Partition, int]
) -> list[MirrorGap]:
    """Find offset ranges that retention may have deleted before the mirror copied them.

    All records below a previous position were copied. If the log start offset has since passed this
    position, the mirror may not have copied the deleted records in time. If a partition has no
    previous position, all its deleted records may be missing.

    Args:
        previous_positions: Maps each topic-partition to the mirror's position at the previous
            check.
        starts: Maps each topic-partition to its current log start offset on the edge cluster.

    Returns:
        One gap for each affected partition, sorted. Empty if nothing can be missing.
    """
    return [
        MirrorGap(
            partition,
            previous_positions.get(partition, 0),
            start,
            "the edge's log start passed the mirror's last known position",
        )
        for partition, start in sorted(starts.items())
        if start > previous_positions.get(partition, 0)
    ]


def recreated_topics(previous_ids: Mapping[str, str], ids: Mapping[str, str]) -> list[str]:
    """Return the topics that were deleted, or deleted and recreated, since the previous check.

    The offsets of a recreated topic begin at 0, but the mirror's positions still refer to the old
    topic. Until an operator resets the positions, the results of `partitions_behind` and
    `find_gaps` are meaningless for the topic.

    Args:
        previous_ids: Maps each topic name to its topic id at the previous check.
        ids: Maps each topic name to its current topic id.

    Returns:
        Topic names, sorted. Empty if all topics are unchanged.
    """
    return sorted(topic for topic, topic_id in previous_ids.items() if ids.get(topic) != topic_id)


def partitions_ahead(
    ends: Mapping[Partition, int], positions: Mapping[Partition, int]
) -> list[Partition]:
    """Return the topic-partitions whose mirror position is past the end of the source log.

    This happens if the mirror's stored positions are outdated or the source topic was recreated.
    MirrorMaker 2 then copies nothing until the log grows past the position, and reports no error.

    Args:
        ends: Maps each partition to its log end offset on the edge cluster, read after
            `positions`.
        positions: Maps each partition to the next offset that the mirror will copy.

    Returns:
        The partitions, sorted. Empty if no position is past the end of its log.
    """
    return sorted(p for p, end in ends.items() if positions.get(p, 0) > end)


class MirrorLeader(NamedTuple):
    """The worker that leads the Kafka Connect group of a mirror.

    Attributes:
        member: Its member id in the group, which changes when the worker restarts. Empty if there
            is no leader.
        address: Host and port of its REST server. Empty if there is no leader.
    """

    member: str = ""
    address: str = ""


NO_LEADER = MirrorLeader()


class MirrorWorkers(NamedTuple):
    """The MirrorMaker 2 workers that currently share the tasks of a mirror.

    Attributes:
        hosts: The client host of each worker as reported by the target cluster, sorted.
        leader: The leader of the workers; `NO_LEADER` if there is none or it is unknown.
    """

    hosts: tuple[str, ...] = ()
    leader: MirrorLeader = NO_LEADER

    @property
    def is_split(self) -> bool:
        """Return whether the workers cannot reach their leader because of a wrong REST address.

        The result is True if workers run on several hosts and the leader's REST address is a
        loopback address. Each worker then sends requests for the leader to its own host. To resolve
        the problem, correct the setting `mirror.rest_host`.
        """
        return (
            len(set(self.hosts)) > 1
            and urlsplit(f"//{self.leader.address}").hostname in LOOPBACK_HOSTS
        )


def read_workers(central: Cluster, edge_alias: str) -> MirrorWorkers:
    """Return the MirrorMaker 2 workers that are currently in the mirror's Kafka Connect group.

    Args:
        central: The target cluster.
        edge_alias: MirrorMaker 2's alias of the source cluster.

    Returns:
        The workers and their leader. `hosts` is empty if no worker is running.

    Raises:
        Unavailable: The cluster does not answer, or this user may not describe the group.
    """
    group = f"{edge_alias}-mm2"
    with warnings.catch_warnings():  # the replacement supports consumer groups only
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            found = central.admin.list_groups(group, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _untold(group, error.args[0]) from error
    if wrong := next((each.error for each in found if each.error is not None), None):
        raise _untold(group, wrong)
    there = [member for each in found for member in each.members]
    leaders = [
        leader for member in there if (leader := parse_leader(member.assignment)) != NO_LEADER
    ]
    return MirrorWorkers(
        tuple(sorted(str(member.client_host).lstrip("/") for member in there)),
        next(iter(leaders), NO_LEADER),
    )


def _untold(group: str, error: KafkaError) -> Unavailable:
    return Unavailable(
        f"the central cluster did not describe group {group}: {error.str()}; check that this "
        "user has permission to describe the group"
    )


def parse_leader(assignment: bytes | None) -> MirrorLeader:
    """Parse the leader of a Kafka Connect group from the assignment of one of its members.

    Args:
        assignment: Assignment in Kafka Connect's embedded protocol: version, error code, member id
            and URL of the leader. The remaining bytes are ignored. None or empty if there is no
            assignment.

    Returns:
        The leader; `NO_LEADER` if there is no assignment or it is shorter than 6 bytes.
    """
    if not assignment or len(assignment) < 6:
        return NO_LEADER
    member, at = _text(assignment, 4)
    url, _ = _text(assignment, at)
    return MirrorLeader(member, urlsplit(url).netloc)


def _text(content: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", content, at)
    end = at + 2 + max(0, length)
    return content[at + 2 : end].decode(), end
