"""The mirror's positions of some topic-partitions are forgotten, so that it copies them from their beginning.

Kafka Connect forgets a position by a record without a value under the position's key. A worker reads positions when its tasks
start, and writes its own while they run: so nobody may be in the group meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.errors import UsageError
from hourmark.kafka import Offset, Partition
from hourmark.mirror_positions import apply, keys, positions_topic
from hourmark.mirror_workers import workers
from hourmark.topic_follower import read_topic
from hourmark.topic_writer import append_all
from hourmark_mirror.checks import Checks
from hourmark_mirror.observed import KnownPartition, Memory
from hourmark_mirror.sites import Sites
from hourmark_mirror.watch_memory import WatchMemory

_KEY_BYTES_MAX: Final = 1 << 16


class Kept(NamedTuple):
    """A position that the mirror has. `edge_end`: None where the edge told of no such topic-partition."""

    partition: Partition
    position: int
    edge_end: int | None
    key: bytes

    def as_object(self) -> dict[str, object]:
        """For programs."""
        at = self.partition
        return {"topic": at.topic, "partition": at.partition, "position": self.position, "edge_end": self.edge_end}

    def __str__(self) -> str:
        edge = "the edge has no such topic-partition" if self.edge_end is None else f"the edge ends at {self.edge_end}"
        return f"{self.partition}: the mirror stands at {self.position}, {edge}"


def kept(sites: Sites, selected: Callable[[str], bool]) -> list[Kept]:
    """Positions of the selected topics. Unavailable."""
    records = read_topic(sites.central.settings, positions_topic(sites.alias), cluster_name="central")
    positions: dict[Partition, Offset] = {}
    apply(positions, records, sites.alias)
    there = set(sites.partitions())  # after the positions: a lag below 0 is never a race
    ends = sites.edge.ends([p for p in positions if p in there])
    by_key = keys(records, sites.alias)
    return [Kept(p, position, ends.get(p), by_key[p]) for p, position in sorted(positions.items()) if selected(p.topic)]


def stale(found: Iterable[Kept]) -> list[Kept]:
    """Those of topics that were made again: of which any position lies past the edge's end.

    Of such a topic no other position means anything either, though the new topic may have outgrown it already. What the edge does
    not tell of is not among them: a broker that has just started knows of little.
    """
    rows = list(found)
    anew = {one.partition.topic for one in rows if one.edge_end is not None and one.position > one.edge_end}
    return [one for one in rows if one.partition.topic in anew]


def refuse_beside_workers(sites: Sites) -> None:
    """UsageError where somebody runs this mirror."""
    if there := workers(sites.central, sites.alias).hosts:
        raise UsageError(
            f"{len(there)} workers of this mirror are in its group, on {', '.join(there)}: they would go on from the positions "
            "that they know. End `hourmark mirror run` on each host, and try again; one that was killed is in the group for up "
            "to a minute more"
        )


def begin_anew(work_dir: Path, sites: Sites, chosen: Sequence[Kept]) -> None:
    """Forget these, and first what checks and the watch (`work_dir`) believe to be copied: a hole made from now on would be none
    to them, below that. No look comes between. UsageError where a worker runs, or the folder cannot be used; Unavailable.
    """
    refuse_beside_workers(sites)
    topics = {t.name: t for t in sites.topics()}
    there = [p for p in (one.partition for one in chosen) if p.topic in topics and p.partition in topics[p.topic].partitions]
    ids, starts = {name: t.topic_id for name, t in topics.items()}, sites.edge.starts(there)
    watched = WatchMemory(work_dir)
    with watched.turn() as memory:
        watched.keep(uncovered(memory, ids, starts))
        checks = Checks(work_dir, sites.edge.cluster_id())
        checks.copied_again(ids, starts)
        checks.save()
        forget(sites, chosen)


def uncovered(memory: Memory, ids: Mapping[str, str], starts: Mapping[Partition, int]) -> Memory:
    """What the watch remembers, where topics of these ids are copied again from these offsets on."""

    def again(topic: str, partitions: Mapping[int, KnownPartition]) -> dict[int, KnownPartition]:
        covered = {n: min(known.covered, starts.get(Partition(topic, n), known.covered)) for n, known in partitions.items()}
        return {n: dataclasses.replace(known, covered=covered[n]) for n, known in partitions.items()}

    topics = {
        name: dataclasses.replace(known, partitions=again(name, known.partitions)) if ids.get(name) == known.topic_id else known
        for name, known in memory.topics.items()
    }
    return dataclasses.replace(memory, topics=topics)


def forget(sites: Sites, chosen: Iterable[Kept]) -> None:
    """Forget these. UsageError where a worker runs; Unavailable."""
    refuse_beside_workers(sites)
    records = [(one.key.decode(), None) for one in chosen]
    append_all(sites.central.settings, positions_topic(sites.alias), records, _KEY_BYTES_MAX, as_java=True)
