"""A bit of a record changes in Kafka, and no CRC tells: no bucket that differs from what was
acknowledged is proved.

python -m tests.simulation.test_flipped_records SAMPLES [SEED]     as many flips, and what became of the buckets
"""

from __future__ import annotations

import collections
import dataclasses
import io
import logging
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest
from tests.support.closing import (
    override,
    override_all,
    report,
    send,
    send_again,
    until,
    with_engine_alone,
)
from tests.support.simulator.sites import Log
from tests.support.simulator.truth import FIRST_HOUR, PARSED, TYPES, make_template
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.avro.framing import unframe
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, central_topic, events_topic
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.ledger import batches
from hourmark_etl.ledger.partitions.read_errors import read_errors

EDGE: Final = "edge"
ROUNDS: Final = 8
Row = tuple[tuple[str, object], ...]
PARTS: Final = ("value", "value", "key", "promise", "report")


class FlippedRecord:
    """One world, one flip: an hour of two types, each range of one type or both, sent once or
    twice, with a promise each.
    """

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world, self.draw = world, draw
        self.part = draw.choice(PARTS)
        self.type = draw.choice(TYPES)
        self.twice = draw.random() < 0.5
        self.lots = draw.choice(([TYPES * 5], [[t] * 10 for t in TYPES]))

    def play(self) -> str:
        """What became of the changed type's first bucket.

        AssertionError where the promise does not hold.
        """
        for number in range(4):
            for lot in self.lots:
                send(self.world, lot, FIRST_HOUR.start_s * 1000 + 600_000 * (number + 1))
                if self.twice:
                    send_again(self.world, self.world.producers.ranges[-1], recorded=True)
        self.world.producers.report(0)
        self.world.pipeline.mirror_all(0)
        self._flip()
        until(self.world, FIRST_HOUR)
        self._close()
        for event_type in TYPES:
            if self.part in ("value", "key") and event_type != self.type:
                assert self._grade(event_type) == "proved", (
                    f"{self}: {event_type} was not changed: {self._grade(event_type)}"
                )
        before = self._grade(self.type)
        for _ in range(2):  # what is given up first may show what else is missing
            if any(self._grade(t) == "waits" for t in TYPES):
                self._override()
        for event_type in TYPES:
            grade = self._grade(event_type)
            assert grade != "waits", f"{self}: {event_type} is resolved by no override"
            if grade == "proved":
                assert self._rows(event_type) == self._truth(event_type), (
                    f"{self}: {event_type} is proved and differs"
                )
        return (
            f"{self.part}: "
            f"{before}{', then ' + self._grade(self.type) if before == 'waits' else ''}"
        )

    def _close(self) -> None:
        for _ in range(ROUNDS):
            report(self.world)
            self.world.closer.step()
            self.world.clock.advance(11)

    def _override(self) -> None:
        """What an operator does: skip what cannot be staged, and order the hours to close."""
        pipeline = self.world.pipeline
        for error in read_errors(pipeline.database).values():
            batches.skip_unreadable(
                pipeline.database, pipeline.topics.at_edge, error, error.offset + 1
            )
        report(self.world)
        self.world.closer.step()
        waiting = [t for t in TYPES if self._grade(t) == "waits"]
        if len(waiting) == len(TYPES):
            override_all(self.world)
        else:
            override(self.world, *waiting)
        self._close()

    def __str__(self) -> str:
        return f"{self.part} of {self.type}, sent {'twice' if self.twice else 'once'}"

    def _flip(self) -> None:
        topic = {"promise": AUDIT, "report": HOSTS}.get(self.part, events_topic(self.type))
        log = self.world.pipeline.central.logs[Partition(central_topic(topic, EDGE), 0)]
        at = self.draw.choice([n for n, record in enumerate(log.records) if record is not None])
        _flip(log, at, self.draw, is_key=self.part == "key")

    def _grade(self, event_type: str) -> str:
        files = self.world.storage.content(FIRST_HOUR.bucket_path(event_type))
        return (
            Manifest.decode(files[f"{FIRST_HOUR.bucket_path(event_type)}/{MARKER}"]).grade.value
            if files
            else "waits"
        )

    def _rows(self, event_type: str) -> collections.Counter[Row]:
        files = self.world.storage.content(FIRST_HOUR.bucket_path(event_type))
        rows: list[Any] = [
            row
            for path, content in files.items()
            if path.endswith(".avro")
            for row in fastavro.reader(io.BytesIO(content))
        ]
        return collections.Counter(_row(row) for row in rows)

    def _truth(self, event_type: str) -> collections.Counter[Row]:
        """Every acknowledged event of the hour, once."""
        events = {
            e.id: e
            for sent in self.world.producers.ranges
            for e in sent.events
            if e.event_type == event_type
        }
        within = [
            e.value
            for e in events.values()
            if Hour.containing(e.time_ms, FIRST_HOUR.length_s) == FIRST_HOUR
        ]
        return collections.Counter(map(_decoded, within))


def _flip(log: Log, at: int, draw: random.Random, *, is_key: bool) -> None:
    record = log.records[at]
    assert record is not None
    changed = bytearray(record.key if is_key else record.value)
    bit = draw.randrange(8 * len(changed))
    changed[bit // 8] ^= 1 << bit % 8
    log.records[at] = (
        dataclasses.replace(record, key=bytes(changed))
        if is_key
        else dataclasses.replace(record, value=bytes(changed))
    )


def _decoded(value: bytes) -> Row:
    schema_id, datum = unframe(value)
    row: Any = fastavro.schemaless_reader(io.BytesIO(datum), PARSED[schema_id], None)
    return _row(row)


def _row(row: dict[str, Any]) -> Row:
    return tuple(sorted((name, str(value)) for name, value in row.items()))


def played(folder: Path, template: Path, seed: int) -> str:
    world = World(folder, template)
    with_engine_alone(world)
    world.check = lambda: None  # type: ignore[method-assign]  # it knows of no flip
    try:
        return FlippedRecord(world, random.Random(seed)).play()
    finally:
        world.end()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield make_template(tmp_path_factory.mktemp("flips"))


@pytest.mark.parametrize("seed", representative(range(24), 2))
def test_no_flipped_bit_of_a_record_ends_in_a_proved_bucket_that_differs(
    tmp_path: Path, template: Path, seed: int
) -> None:
    played(tmp_path, template, seed)


def main(samples: int, seed: int) -> None:
    logging.disable(logging.CRITICAL)
    found: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        template = make_template(Path(folder))
        for number in range(seed, seed + samples):
            try:
                found[played(Path(folder), template, number)] += 1
            except Exception as error:  # noqa: BLE001  # of whatever kind, it is counted
                print(f"seed {number}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                found["violations"] += 1
    for what, count in sorted(found.items()):
        print(count, what)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
