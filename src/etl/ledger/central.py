"""What closing, and checking and rebuilding a ledger, ask of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from hourmark.kafka import Partition, TopicInfo


class SiteCluster(Protocol):
    """`hourmark.kafka.Cluster`, as far as the ETL asks one."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of `names` that exist."""
        ...

    def starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Log start offsets."""
        ...

    def ends(self, partitions: Sequence[Partition], *, committed: bool = True) -> Mapping[Partition, int]:
        """Last stable offsets, or high watermarks."""
        ...


class Central(SiteCluster, Protocol):
    """The central one."""

    def cluster_id(self) -> str:
        """The id the cluster was formatted with."""
        ...
