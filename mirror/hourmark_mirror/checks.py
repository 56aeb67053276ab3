"""What is remembered from one check to the next: topic ids, the mirror's positions, and alarms (`work_dir/state/checks.json`).

Only with them can a gap be seen: retention that overtook the mirror, or a topic deleted and recreated. An alarm stays until
an operator accepts it: a topic with one keeps its old entry, and what was found is told again, although retention may have
deleted the evidence meanwhile. An edge that was formatted anew has other topic ids: its topics were recreated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from hourmark.alarm import Alarm
from hourmark.durable import write_durably
from hourmark.errors import UsageError
from hourmark.kafka import Partition

CHECKS: Final = "state/checks.json"  # below the work folder


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Of one topic: its id, and the mirror's positions by partition."""

    topic_id: str
    positions: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Content:
    """Of the file. `accepted`: topics and partitions that only the target has, and may."""

    edge_cluster_id: str
    topics: dict[str, Check]
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    accepted: list[str] = dataclasses.field(default_factory=list)
    format: Literal[1] = 1


_CONTENT: Final = TypeAdapter(_Content)


class Checks:
    """The remembered checks of a mirror."""

    def __init__(self, work_dir: Path, edge_cluster_id: str) -> None:
        self._path = work_dir / CHECKS
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
        self.topics = content.topics
        self.alarms = content.alarms
        self.accepted = set(content.accepted)

    @property
    def ids(self) -> dict[str, str]:
        """Topic name → topic id at the previous check."""
        return {name: check.topic_id for name, check in self.topics.items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """The mirror's positions at the previous check."""
        return {Partition(name, p): offset for name, check in self.topics.items() for p, offset in check.positions.items()}

    def raised(self, found: Sequence[Alarm]) -> list[Alarm]:
        """Remember these; all that stand: what was found as it is now, what is no longer seen as it was."""
        now, before = ({(a.name, a.subject): a for a in alarms} for alarms in (found, self.alarms))
        self.alarms = [*{**now, **before}.values()]  # the first text: it tells of evidence that goes
        return [*{**before, **now}.values()]

    def save(self) -> None:
        """Write durably."""
        content = _Content(self._cluster_id, dict(sorted(self.topics.items())), self.alarms, sorted(self.accepted))
        write_durably(self._path, _CONTENT.dump_json(content, indent=1))
