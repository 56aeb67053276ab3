"""What checking and rebuilding a ledger ask of the central cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from hourmark.kafka import Partition, TopicInfo


class Central(Protocol):
    """`hourmark.kafka.Cluster`, as far as it is asked here."""

    def cluster_id(self) -> str:
        """The id the cluster was formatted with."""
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
