"""Logs of a cluster in memory, in place of `Cluster` and `CommittedReader`: records with times,
starts that retention moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Offset, Partition, TopicInfo
from hourmark.kafka.committed_reader import MessageRun
from hourmark.kafka.partitions_reader import RecordRun


@dataclasses.dataclass(frozen=True)
class LoggedRecord:
    """As confluent_kafka's Message is asked."""

    place: Partition
    at: int
    at_ms: int
    own_key: bytes
    own_value: bytes

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at_ms

    def key(self) -> bytes:
        return self.own_key

    def value(self) -> bytes:
        return self.own_value


@dataclasses.dataclass
class Logs:
    """One cluster. `read` counts records that were handed out."""

    logs: dict[Partition, list[LoggedRecord]] = dataclasses.field(default_factory=dict)
    log_starts: dict[Partition, int] = dataclasses.field(default_factory=dict)
    is_away: bool = False
    questions: int = 0
    read_records: int = 0
    settings: Any = None

    def append(self, topic: str, at_ms: int, key: bytes, value: bytes, partition: int = 0) -> int:
        """Its offset."""
        place = Partition(topic, partition)
        log = self.logs.setdefault(place, [])
        log.append(LoggedRecord(place, len(log), at_ms, key, value))
        return len(log) - 1

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self._ask()
        known = {
            name: tuple(sorted(p.partition for p in self.logs if p.topic == name)) for name in names
        }
        return {
            name: TopicInfo(name, f"id of {name}", numbers)
            for name, numbers in known.items()
            if numbers
        }

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, Offset]:
        return {p: Offset(self.log_starts.get(p, 0)) for p in partitions}

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> dict[Partition, Offset]:
        return {p: Offset(len(self.logs[p])) for p in partitions}

    def at_time(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, Offset]:
        starts = self.starts(partitions)
        late = {
            p: (r.at for r in self.logs[p] if r.at_ms >= time_ms and r.at >= starts[p])
            for p in partitions
        }
        return {p: Offset(next(of, len(self.logs[p]))) for p, of in late.items()}

    def newest_ms(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        self._ask()
        return {p: max(record.at_ms for record in self.logs[p]) for p in partitions if self.logs[p]}

    def read(
        self, spans: Mapping[Partition, tuple[int, int]]
    ) -> Generator[list[MessageRun], None, None]:
        self._ask()
        for p, (start, end) in spans.items():
            for record in self.logs[p][start:end]:
                self.read_records += 1
                # it answers as one
                yield [RecordRun(p, [record], record.at + 1)]  # type: ignore[list-item]

    def close(self) -> None:
        """Nothing is held."""

    def _ask(self) -> None:
        self.questions += 1
        if self.is_away:
            raise Unavailable("the cluster did not answer")


def of_two_sites(file: Path) -> dict[str, Logs]:
    """Empty ones of the edges paris and lyon and of the centre, by bootstrap; the configuration
    names them from now on.
    """
    file.write_text(f"""{file.read_text()}
[kafka]
edge_alias = "paris"
[kafka.edge]
bootstrap = "paris:9092"
[kafka.central]
bootstrap = "central:9092"
[kafka.further_edges.lyon]
bootstrap = "lyon:9092"
""")
    made = {name: Logs() for name in ("paris:9092", "central:9092", "lyon:9092")}
    for logs in made.values():
        logs.settings = logs
    return made
