"""What a run destroyed, so that nobody could deliver it, as the judge is told: no event more is excused, and no bucket more.

Each event is read from Kafka before it is destroyed there. Each hour that an operator closed by an override is named, and so is
each source file that vanished, with how far it had been read.
"""

from __future__ import annotations

import dataclasses
import io
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import fastavro

from hourmark.avro import event_schema, unframe
from hourmark.committed_reader import CommittedReader
from hourmark.config_groups import KafkaCluster
from hourmark.kafka import Partition
from hourmark_infra.judge.values import plain

_ENVELOPE: Final[Any] = fastavro.parse_schema(plain(event_schema("envelope", [])))  # with which every event begins


@dataclasses.dataclass(frozen=True)
class Vanished:
    """A source file that lies elsewhere now. `read`: bytes that its tailer had taken, which it delivers all the same."""

    host: str
    source: str
    read_as: Path
    lies_at: Path
    read: int

    def expectation(self, source: Mapping[str, Any], host_id: str) -> dict[str, Any]:
        """As the judge has it. `source`: how its lines are read."""
        return {
            **source, "host": f"host-{self.host}", "host_id": host_id, "copied": True, "size": self.read,
            "path": str(self.lies_at), "read_as": f"{self.read_as}*",
        }  # fmt: skip


class Losses:
    """Of one run. Faults end side by side, so any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._destroyed: list[dict[str, Any]] = []
        self._forced: defaultdict[str, set[str]] = defaultdict(set)
        self.vanished: list[Vanished] = []

    def destroyed(self, event_type: str, events: list[dict[str, Any]], at_ms: int) -> None:
        """These envelopes, at this time."""
        rows = [destroyed(event_type, envelope, at_ms) for envelope in events]
        with self._lock:
            self._destroyed += rows

    def forced(self, event_type: str, hour: str) -> None:
        """It may be closed as forced."""
        with self._lock:
            self._forced[event_type].add(hour)

    def told(self) -> dict[str, Any]:
        """As expectations have it; files are not among it."""
        return {"destroyed": self._destroyed, "forced": {name: sorted(hours) for name, hours in self._forced.items()}}


def envelopes(cluster: KafkaCluster, spans: Mapping[Partition, tuple[int, int]]) -> list[dict[str, Any]]:
    """Of all events there, below logical types."""
    reader = CommittedReader(cluster, "edge")
    try:
        records = [record for runs in reader.read(spans) for run in runs for record in run.records]
    finally:
        reader.close()
    found: list[Any] = [fastavro.schemaless_reader(io.BytesIO(unframe(r.value() or b"")[1]), _ENVELOPE, None) for r in records]
    return found


def destroyed(event_type: str, envelope: Mapping[str, Any], at_ms: int) -> dict[str, Any]:
    """As the judge is told of it. `envelope`: what every event begins with, below logical types."""
    file = envelope["file"]
    return {
        "type": event_type, "event_id": envelope["event_id"].hex(), "time_ms": envelope["event_time"], "at_ms": at_ms,
        "file_id": file and file["id"], "generation": file["generation"] if file else 0, "position": envelope["position"],
    }  # fmt: skip
