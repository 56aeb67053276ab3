"""What is remembered from one check to the next: topic ids and the mirror's positions (`work_dir/state/checks.json`).

Only with them can a gap be seen: retention that overtook the mirror, or a topic deleted and recreated. An alarm stays until
an operator accepts it: a topic with an alarm keeps its old entry, so that the next check raises it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from hourmark.durable import write_durably
from hourmark.errors import UsageError
from hourmark.kafka import Partition


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Of one topic: its id, and the mirror's positions by partition."""

    topic_id: str
    positions: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Content:
    """Of the file."""

    edge_cluster_id: str
    topics: dict[str, Check]
    format: Literal[1] = 1


_CONTENT: Final = TypeAdapter(_Content)


class Checks:
    """The remembered checks of one edge cluster; another cluster's are not taken for this one's."""

    def __init__(self, work_dir: Path, edge_cluster_id: str) -> None:
        self._path = work_dir / "state" / "checks.json"
        self._cluster_id = edge_cluster_id
        try:
            content = _CONTENT.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            content = _Content(edge_cluster_id, {})
        except ValidationError as error:
            raise UsageError(
                f"{self._path} is damaged ({error}); what it remembered is lost: remove it, and the next check alarms "
                "for every topic whose beginning was deleted by retention"
            ) from error
        self.topics = content.topics if content.edge_cluster_id == edge_cluster_id else {}

    @property
    def ids(self) -> dict[str, str]:
        """Topic name → topic id at the previous check."""
        return {name: check.topic_id for name, check in self.topics.items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """The mirror's positions at the previous check."""
        return {Partition(name, p): offset for name, check in self.topics.items() for p, offset in check.positions.items()}

    def save(self) -> None:
        """Write durably."""
        content = _Content(self._cluster_id, dict(sorted(self.topics.items())))
        write_durably(self._path, _CONTENT.dump_json(content, indent=1))
