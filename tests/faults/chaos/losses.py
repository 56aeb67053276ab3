"""What a run destroyed, so that nobody could deliver it, as the judge is told: no event more is
waived, and no bucket more.

Each event is read from the edge before it is destroyed there, and waived unless the central cluster
has it. Each hour that an operator closed by an override is named, and so is each log that vanished,
with how far it had been read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import fastavro

from hourmark.avro.framing import event_schema, unframe
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark_verify.judge.values import strip_annotations

_ENVELOPE: Final[Any] = fastavro.parse_schema(
    strip_annotations(event_schema("envelope", []))
)  # with which every event begins
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Vanished:
    """A source file that lies elsewhere now. `read`: bytes that its tailer had taken, which it
    delivers all the same.
    """

    host: str
    source: str
    read_as: Path
    lies_at: Path
    read: int

    def expectation(self, source: Mapping[str, Any], host_id: str) -> Row:
        """As the judge has it. `source`: how its lines are read."""
        return {
            **source,
            "host": f"host-{self.host}",
            "host_id": host_id,
            "copied": True,
            "size": self.read,
            "path": str(self.lies_at),
            "read_as": f"{self.read_as}*",
        }


class Losses:
    """Of one run. Faults end side by side, so any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._destroyed: list[Row] = []
        self._forced: defaultdict[str, set[str]] = defaultdict(set)
        self._vanished: list[Vanished] = []

    def add_destroyed(self, rows: Collection[Row]) -> None:
        """Events, as `destroyed` makes them."""
        with self._lock:
            self._destroyed += rows

    def add_forced(self, event_type: str, hour: str) -> None:
        """It may be closed as forced."""
        with self._lock:
            self._forced[event_type].add(hour)

    def add_vanished(self, log: Vanished) -> None:
        """It need not be read to its end."""
        with self._lock:
            self._vanished.append(log)

    @property
    def vanished(self) -> list[Vanished]:
        """All of them."""
        return [*self._vanished]

    def told(self, copied: Callable[[str], Collection[str]]) -> Row:
        """As expectations have it, but for files.

        `copied`: ids of a type's events that the central cluster has.
        """
        there = {
            event_type: copied(event_type)
            for event_type in {row["type"] for row in self._destroyed}
        }
        gone = [row for row in self._destroyed if row["event_id"] not in there[row["type"]]]
        return {
            "destroyed": gone,
            "forced": {name: sorted(hours) for name, hours in self._forced.items()},
        }


def partitions_of(cluster: Cluster, topic: str) -> list[Partition]:
    """All of a topic's, which is there."""
    return [Partition(topic, number) for number in cluster.topics([topic])[topic].partitions]


def read_rows(
    cluster: Cluster, event_type: str, spans: Mapping[Partition, tuple[int, int]]
) -> list[Row]:
    """All events there, as the judge is told of those that are destroyed."""
    found = []
    with contextlib.closing(CommittedReader(cluster.settings, cluster.name)) as reader:
        for record in (
            record for runs in reader.read(spans) for run in runs for record in run.records
        ):
            datum = io.BytesIO(unframe(record.value() or b"")[1])
            envelope: Any = fastavro.schemaless_reader(datum, _ENVELOPE, None)
            found.append(destroyed(event_type, envelope, record.timestamp()[1]))
    return found


def destroyed(event_type: str, envelope: Mapping[str, Any], written_ms: int) -> Row:
    """As the judge is told of it. `envelope`: what every event begins with, below logical types."""
    file = envelope["file"]
    return {
        "type": event_type,
        "event_id": envelope["event_id"].hex(),
        "time_ms": envelope["event_time"],
        "written_ms": written_ms,
        "file_id": file and file["id"],
        "generation": file["generation"] if file else 0,
        "position": envelope["position"],
    }
