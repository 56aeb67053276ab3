"""How far the mirror is, per topic-partition."""

from __future__ import annotations

import contextlib
import dataclasses

from hourmark.config.loading import Config
from hourmark_mirror.settings.mirror_sites import MirrorSites


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """One edge topic-partition; offsets are the next to read. `central_end` None: there is no
    remote topic-partition.

    The remote end is higher than the count of records by one commit marker for each transaction.
    """

    topic: str
    partition: int
    edge_start: int
    edge_end: int
    position: int | None
    central_end: int | None

    @property
    def records(self) -> int:
        """Not yet copied; negative where the position lies past the edge's end, which means that it
        is stale.
        """
        return self.edge_end - max(self.position or 0, self.edge_start)

    @property
    def overtaken(self) -> int:
        """Offsets that retention deleted before they were copied; 0 again once the mirror has
        passed over them.
        """
        return 0 if self.position is None else max(0, self.edge_start - self.position)


def measure_lag(config: Config) -> list[Lag]:
    """The lag of every mirrored topic-partition; Unavailable when a cluster does not answer."""
    sites = MirrorSites(config)
    partitions = sites.partitions()
    with contextlib.closing(sites.positions()) as reader:
        positions = reader.refresh()  # before the ends: so a lag below 0 is never a race
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
