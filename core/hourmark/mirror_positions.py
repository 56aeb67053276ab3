"""Where the mirror stands: for each topic-partition of the edge the next offset that it will copy; and what may be concluded.

MirrorMaker 2 keeps its positions in the compacted topic `mm2-offsets.<source>.internal` on the target, in the transactions that
hold the copied records, so a committed position says that everything readable below it is on the target:

    key    ["MirrorSourceConnector",{"cluster":"edge","partition":0,"topic":"events.click"}]
    value  {"offset":497}      the LAST record copied; here 498 is given out, the next to read, as everywhere in Hourmark

There is no entry for a partition of which nothing was copied, and a tombstone where an operator has reset it. What is no such
record somebody else has written: it is passed over, with a warning, as it would stay there until it is compacted away.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hourmark.config_groups import KafkaCluster
from hourmark.kafka import Offset, Partition
from hourmark.topic_follower import KeyValue, TopicFollower

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
        """Edge topic-partition → next edge offset to copy, as committed by now; Unavailable when the cluster does not answer."""
        anew, records = self._follower.poll()
        if anew:
            self._positions = {}
        apply(self._positions, records, self._edge_alias)
        return dict(self._positions)

    def close(self) -> None:
        """Leave the cluster."""
        self._follower.close()
        self._positions = {}


def apply(positions: dict[Partition, Offset], records: Iterable[KeyValue], edge_alias: str) -> None:
    """Bring `positions` up to date with `records` of the positions topic, in their order."""
    for partition, _, position in _entries(records, edge_alias):
        if position is None:
            positions.pop(partition, None)
        else:
            positions[partition] = position


def keys(records: Iterable[KeyValue], edge_alias: str) -> dict[Partition, bytes]:
    """Under which key the position of each topic-partition was written last."""
    return {partition: key for partition, key, _ in _entries(records, edge_alias)}


def _entries(records: Iterable[KeyValue], edge_alias: str) -> Iterator[tuple[Partition, bytes, Offset | None]]:
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
            "%d records of the mirror's positions topic are none that MirrorMaker 2 writes, the first under the key %r; they are "
            "passed over: who else writes there?",
            len(strange), strange[0][:100],
        )  # fmt: skip


def _position(value: bytes) -> Offset | None:
    """ValueError where it is none."""
    written = json.loads(value)
    if not isinstance(written, dict):
        raise ValueError("no JSON object")
    copied = written.get("offset")
    return Offset(copied + 1) if isinstance(copied, int) and copied >= 0 else None


def _partition(key: bytes, edge_alias: str) -> Partition | None:
    """None: another connector's, or another site's; KeyError, TypeError or ValueError where it is no key."""
    entry: Any = json.loads(key) if key else None
    if not isinstance(entry, list) or len(entry) != 2 or entry[0] != CONNECTOR or not isinstance(entry[1], dict):
        return None  # another connector's (heartbeats, checkpoints)
    source = entry[1]
    if source.get("cluster") != edge_alias or not isinstance(source.get("topic"), str):
        return None
    return Partition(source["topic"], int(source["partition"]))


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Behind:
    """A partition whose cut the mirror has not reached; `position` None: nothing of it was copied yet."""

    partition: Partition
    cut: int
    position: int | None

    def __str__(self) -> str:
        where = "nothing was copied" if self.position is None else f"the mirror stands at {self.position}"
        return f"{self.partition}: {where}, the cut is {self.cut}"


def reached(cut: Mapping[Partition, int], starts: Mapping[Partition, int], positions: Mapping[Partition, int]) -> list[Behind]:
    """The partitions of `cut` that the mirror has not reached; empty when it has reached all.

    A partition has reached its cut when its position has, or when nothing readable lies below the cut (cut ≤ log start), as
    there is no position then. It relies on edge producers using no transactions: an end past a commit marker would never be
    reached. Only together with `gaps` and `recreated` does it say that all arrived.
    """
    return [
        Behind(partition, end, positions.get(partition))
        for partition, end in sorted(cut.items())
        if end > starts.get(partition, 0) and positions.get(partition, 0) < end
    ]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class OffsetGap:
    """Records of `partition` in [first, end) may never have been copied; `reason` says why that cannot be excluded."""

    partition: Partition
    first: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}: offsets {self.first} to {self.end - 1} may be missing: {self.reason}"


def gaps(previous_positions: Mapping[Partition, int], starts: Mapping[Partition, int]) -> list[OffsetGap]:
    """Where retention may have deleted at the edge what the mirror had not copied.

    `previous_positions` are the mirror's at the previous check, `starts` the edge's log starts NOW. Up to the position of then,
    all was copied; so a log start not past it has deleted nothing uncopied. Past it, one cannot know (the mirror may have been
    quicker than retention, or not). No position then: nothing had been copied, so anything deleted since is suspect.
    """
    return [
        OffsetGap(
            partition, previous_positions.get(partition, 0), start, "the edge's log start passed the mirror's last known position"
        )
        for partition, start in sorted(starts.items())
        if start > previous_positions.get(partition, 0)
    ]


def recreated(previous_ids: Mapping[str, str], ids: Mapping[str, str]) -> list[str]:
    """Topics that were deleted, or deleted and made again, since the previous check (topic name → topic id).

    Their offsets begin at 0 again while the mirror's positions are those of the old topic: neither `reached` nor `gaps` means
    anything for them, until an operator has looked.
    """
    return sorted(topic for topic, topic_id in previous_ids.items() if ids.get(topic) != topic_id)


def ahead(ends: Mapping[Partition, int], positions: Mapping[Partition, int]) -> list[Partition]:
    """Partitions whose position lies past the edge's end: a stale positions topic, or a source that began anew.

    Nothing is copied there until the end passes the position, and nobody complains. `ends` must be taken after `positions`.
    """
    return sorted(p for p, end in ends.items() if positions.get(p, 0) > end)
