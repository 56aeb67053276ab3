"""Positions and workers of MirrorMaker 2, read from the clusters.

Where the mirror stands: for each topic-partition of the edge the next offset that it will copy; and
what may be concluded.

MirrorMaker 2 keeps its positions in the compacted topic `mm2-offsets.<source>.internal` on the
target, in the transactions that hold the copied records, so a committed position says that
everything readable below it is on the target:

    key    ["MirrorSourceConnector",{"cluster":"edge","partition":0,"topic":"events.click"}]
    value  {"offset":497}      the LAST record copied; here 498 is given out, the next to read, as everywhere in Hourmark

There is no entry for a partition of which nothing was copied, and a tombstone where an operator has
reset it. What is no such record somebody else has written: it is passed over, with a warning, as it
would stay there until it is compacted away.

Who shares the mirror now, and who leads: its workers are a group of Kafka Connect, `<source>-mm2`,
on the target cluster.
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
    """The topic on the target that holds the positions."""
    return f"mm2-offsets.{edge_alias}.internal"


class MirrorPositions:
    """Reads the positions from the central cluster, each time only what is new. Not thread-safe."""

    def __init__(self, central: KafkaCluster, edge_alias: str) -> None:
        self._edge_alias = edge_alias
        self._follower = TopicFollower(central, positions_topic(edge_alias))
        self._positions: dict[Partition, Offset] = {}

    def refresh(self) -> dict[Partition, Offset]:
        """Edge topic-partition → next edge offset to copy, as committed by now; Unavailable when
        the cluster does not answer.
        """
        anew, records = self._follower.poll()
        if anew:
            self._positions = {}
        apply_positions(self._positions, records, self._edge_alias)
        return dict(self._positions)

    def close(self) -> None:
        """Leave the cluster."""
        self._follower.close()
        self._positions = {}


def apply_positions(
    positions: dict[Partition, Offset], records: Iterable[KeyValue], edge_alias: str
) -> None:
    """Bring `positions` up to date with `records` of the positions topic, in their order."""
    for partition, _, position in _entries(records, edge_alias):
        if position is None:
            positions.pop(partition, None)
        else:
            positions[partition] = position


def position_keys(records: Iterable[KeyValue], edge_alias: str) -> dict[Partition, bytes]:
    """Under which key the position of each topic-partition was written last."""
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
            "%d records of the mirror's positions topic are none that MirrorMaker 2 writes, "
            "the first under the key %r; they are "
            "passed over: who else writes there?",
            len(strange),
            strange[0][:100],
        )


def _position(value: bytes) -> Offset | None:
    """ValueError where it is none."""
    written = json.loads(value)
    if not isinstance(written, dict):
        raise ValueError("no JSON object")
    copied = written.get("offset")
    return Offset(copied + 1) if isinstance(copied, int) and copied >= 0 else None


def _partition(key: bytes, edge_alias: str) -> Partition | None:
    """None: another connector's, or another site's; KeyError, TypeError or ValueError where it is
    no key.
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
    """A partition whose cut the mirror has not reached; `position` None: nothing of it was copied
    yet.
    """

    partition: Partition
    cut: int
    position: int | None

    def __str__(self) -> str:
        where = (
            "nothing was copied"
            if self.position is None
            else f"the mirror stands at {self.position}"
        )
        return f"{self.partition}: {where}, the cut is {self.cut}"


def partitions_behind(
    cut: Mapping[Partition, int],
    starts: Mapping[Partition, int],
    positions: Mapping[Partition, int],
) -> list[PartitionBehind]:
    """The partitions of `cut` that the mirror has not reached; empty when it has reached all.

    A partition has reached its cut when its position has, or when nothing readable lies below the
    cut (cut ≤ log start), as there is no position then. It relies on edge producers using no
    transactions: an end past a commit marker would never be reached. Only together with `gaps` and
    `recreated` does it say that all arrived.
    """
    return [
        PartitionBehind(partition, end, positions.get(partition))
        for partition, end in sorted(cut.items())
        if end > starts.get(partition, 0) and positions.get(partition, 0) < end
    ]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class MirrorGap:
    """Records of `partition` in [first, end) may never have been copied; `reason` says why that
    cannot be excluded.
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
    """Where retention may have deleted at the edge what the mirror had not copied.

    `previous_positions` are the mirror's at the previous check, `starts` the edge's log starts NOW.
    Up to the position of then, all was copied; so a log start not past it has deleted nothing
    uncopied. Past it, one cannot know (the mirror may have been quicker than retention, or not). No
    position then: nothing had been copied, so anything deleted since is suspect.
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
    """Topics that were deleted, or deleted and made again, since the previous check (topic name →
    topic id).

    Their offsets begin at 0 again while the mirror's positions are those of the old topic: neither
    `reached` nor `gaps` means anything for them, until an operator has looked.
    """
    return sorted(topic for topic, topic_id in previous_ids.items() if ids.get(topic) != topic_id)


def partitions_ahead(
    ends: Mapping[Partition, int], positions: Mapping[Partition, int]
) -> list[Partition]:
    """Partitions whose position lies past the edge's end: a stale positions topic, or a source that
    began anew.

    Nothing is copied there until the end passes the position, and nobody complains. `ends` must be
    taken after `positions`.
    """
    return sorted(p for p, end in ends.items() if positions.get(p, 0) > end)


class MirrorLeader(NamedTuple):
    """As members were told: who it is in the group, anew after each start, and the address of its
    REST server.
    """

    member: str = ""
    address: str = ""


NO_LEADER = MirrorLeader()


class MirrorWorkers(NamedTuple):
    """`hosts`: from where each reaches the target; `leader`: NOBODY where none leads, or it is not
    told.
    """

    hosts: tuple[str, ...] = ()
    leader: MirrorLeader = NO_LEADER

    @property
    def is_split(self) -> bool:
        """Whether workers on several hosts have a leader that they would look for on their own:
        `mirror.rest_host` is wrong.
        """
        return (
            len(set(self.hosts)) > 1
            and urlsplit(f"//{self.leader.address}").hostname in LOOPBACK_HOSTS
        )


def read_workers(central: Cluster, edge_alias: str) -> MirrorWorkers:
    """Those that are in the group now.

    Unavailable, also where this user may not see them, or nobody knows just now.
    """
    group = f"{edge_alias}-mm2"
    with warnings.catch_warnings():  # what should be used instead knows groups of consumers only
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
        f"the central cluster did not tell of group {group}: {error.str()}; may this user "
        "describe it?"
    )


def parse_leader(assignment: bytes | None) -> MirrorLeader:
    """Who leads as a member was told it (Kafka Connect's protocol: version, error, member, URL)."""
    if not assignment or len(assignment) < 6:
        return NO_LEADER
    member, at = _text(assignment, 4)
    url, _ = _text(assignment, at)
    return MirrorLeader(member, urlsplit(url).netloc)


def _text(content: bytes, at: int) -> tuple[str, int]:
    """A string with its length before it, -1 for none, and where it ends."""
    (length,) = struct.unpack_from(">h", content, at)
    end = at + 2 + max(0, length)
    return content[at + 2 : end].decode(), end
