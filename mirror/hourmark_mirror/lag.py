"""Replication lag of the mirror, per topic-partition."""

from __future__ import annotations

import contextlib
import dataclasses

from hourmark.config.loading import Config
from hourmark_mirror.settings.mirror_sites import MirrorSites


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Replication lag of one topic-partition from the edge cluster to the central cluster.

    Attributes:
        topic: Topic name on the edge cluster.
        partition: Partition number.
        edge_start: Log start offset at the edge.
        edge_end: Log end offset (exclusive) at the edge.
        position: Edge offset of the next record that MirrorMaker 2 will copy; None if it has not
            committed an offset.
        central_end: Log end offset (exclusive) on the central cluster; None if the remote
            topic-partition does not exist. It exceeds the number of records, because each
            transaction adds a commit marker.
    """

    topic: str
    partition: int
    edge_start: int
    edge_end: int
    position: int | None
    central_end: int | None

    @property
    def records(self) -> int:
        """Return the number of edge records that the mirror has not copied yet.

        Records that retention has deleted at the edge are not counted. A negative number means that
        the position is past the edge's log end, so the mirror copies nothing.
        """
        return self.edge_end - max(self.position or 0, self.edge_start)

    @property
    def overtaken(self) -> int:
        """Return the number of edge offsets that retention deleted before the mirror copied them.

        Retention has then overtaken the mirror, and the records are lost on the central cluster.

        Returns:
            The number of offsets; 0 if the position is at or after the edge's log start, or if the
            mirror has no position yet.
        """
        return 0 if self.position is None else max(0, self.edge_start - self.position)


def measure_lag(config: Config) -> list[Lag]:
    """Measure the replication lag of every mirrored topic-partition.

    Args:
        config: Configuration with both clusters.

    Returns:
        One entry for each mirrored topic-partition of the edge cluster, even if the central cluster
        has no copy of it.

    Raises:
        ConfigError: The configuration has no separate central cluster. Set `kafka.central`.
        Unavailable: A cluster does not respond. The call can be repeated later.
    """
    sites = MirrorSites(config)
    partitions = sites.partitions()
    with contextlib.closing(sites.positions()) as reader:
        # Read before the end offsets, so that a negative lag is never a race.
        positions = reader.refresh()
    ends, starts = sites.edge.ends(partitions), sites.edge.starts(partitions)
    remotes = sites.existing_remotes(partitions)
    remote_ends = sites.central.ends(list(remotes.values()))
    return [
        Lag(
            topic=p.topic,
            partition=p.partition,
            edge_start=starts[p],
            edge_end=ends[p],
            position=positions.get(p),
            central_end=remote_ends[remotes[p]] if p in remotes else None,
        )
        for p in partitions
    ]
