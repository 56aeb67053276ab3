"""CPU time of the ETL's own work per event, without Kafka and Spark: staging and writing a bucket.

    python -m bench.closing_units [--json]

The input is a million events of 94 bytes (envelope and two fields), a tenth of them twice. The
result is the CPU time of all threads of this process with files on local disk, with and without
Parquet files, and the bytes of both per event. For comparison, the same run measures Zstandard compression of the datums at the levels of staged files and containers.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from bench.structuring import run
from hourmark.avro.datum import Datum
from hourmark.avro.datum_check import event_program
from hourmark.avro.framing import event_schema, framing_header
from hourmark.records.hours import Hour
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.write.writing import SealedHour, WriteLimits, write_hours
from hourmark_etl.model import FIRST_SITE, StagedGroup
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage import LocalDisk

EVENTS = 1_000_000
HOUR = Hour(1_800_000_000)
BATCHES = 10
SCHEMA = event_schema(
    "click", [{"name": "path", "type": "string"}, {"name": "status", "type": "int"}]
)


@dataclasses.dataclass(frozen=True)
class Events:
    """Keys (rows x 24) and values (rows x size) of events as byte matrices."""

    keys: npt.NDArray[np.uint8]
    values: npt.NDArray[np.uint8]

    def table(self, start: int, end: int) -> pa.Table:
        """Return rows `start` to `end` as the Arrow table that a task receives from Kafka."""
        count = end - start
        return pa.table(
            {
                "key": _binary(self.keys[start:end]),
                "value": _binary(self.values[start:end]),
                "topic": pa.array(["events.click"] * count).dictionary_encode(),
                "partition": pa.array(np.zeros(count, np.int32)),
                "offset": pa.array(np.arange(start, end)),
            }
        )


def make_events(count: int) -> Events:
    """Return `count` realistic events.

    Ids are in order of arrival with random tails, and texts repeat.
    """
    random = np.random.default_rng(1)
    times = HOUR.start_s * 1000 + np.sort(random.integers(0, 3_600_000, count))
    keys = random.integers(0, 256, (count, 24), dtype=np.uint8)
    keys[:, :6] = times.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    texts = np.array([list(_after_id(n)) for n in range(997)], np.uint8)[
        random.integers(0, 997, count)
    ]
    framing = np.broadcast_to(np.frombuffer(framing_header(1), np.uint8), (count, 5))
    return Events(keys, np.concatenate([framing, keys[:, :16], texts], axis=1))


def _after_id(number: int) -> bytes:
    # A datum without its id; all have the same length.
    value = {
        "event_id": bytes(16),
        "event_time": HOUR.start_s * 1000 + number * 3600,
        "host": f"web-{number % 20:02d}.example",
        "source": "/var/log/app/access.log",
        "file": None,
        "position": 2_000_000 + number * 1009,
        "path": f"/shelf/{number:05d}/{number * 7919 % 10007:05d}?page=7",
        "status": 200,
    }
    return Datum(SCHEMA).encode(value)[16:]


def _binary(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    rows, size = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * size
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    )


def cpu_us(work: Callable[[], object], events: int) -> float:
    """Call `work` and return the CPU time per event in microseconds, over all threads of this
    process.
    """
    began = time.process_time()
    work()
    return (time.process_time() - began) / events * 1e6


def measure() -> dict[str, float]:
    """Return the CPU time per event in microseconds, by kind of work."""
    with tempfile.TemporaryDirectory(prefix="hourmark-bench-") as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> dict[str, float]:
    events, storage = make_events(EVENTS), LocalDisk(folder)
    plan = StagePlan(
        folder="_staging/one",
        bucket_seconds=3600,
        types={"events.click": "click"},
        audits={"audit": FIRST_SITE},
        hosts={"hosts"},
        schema_types={1: "click"},
        programs={1: event_program(json.dumps(SCHEMA))},
    )
    each = EVENTS // BATCHES
    tables = [events.table(n * each, (n + 1) * each) for n in range(BATCHES)]
    tables.append(events.table(0, each))  # a tenth came twice
    groups: list[StagedGroup] = []

    def stage() -> None:
        for table in tables:
            groups.extend(stage_table(table, (), plan, storage).groups)

    sizes: dict[str, int] = {}

    def write(name: str, parquet_types: Collection[str]) -> None:
        limits = WriteLimits(128 << 20, 256 << 20, 1, "deflate")
        sealed = SealedHour("click", HOUR, tuple(groups))
        (written,) = write_hours(
            Runner(),
            storage,
            [sealed],
            {},
            {1: json.dumps(SCHEMA)},
            f"_attempts/{name}",
            limits,
            parquet_types,
        )
        assert sum(f.records for f in written.files) == EVENTS and not written.publish_error
        sizes["avro"] = sum(f.bytes for f in written.files)
        sizes["parquet"] = sum(p.bytes for f in written.files for p in f.parquet)

    staged = EVENTS + each
    content = events.values[:, 5:].tobytes()
    blocks = [content[at : at + (1 << 20)] for at in range(0, len(content), 1 << 20)]
    figures = {
        "datum_bytes": events.values.shape[1] - 5,
        "staging_us": cpu_us(stage, staged),
        "writing_us": cpu_us(lambda: write("avro", ()), staged),
        "writing_with_parquet_us": cpu_us(lambda: write("parquet", {"click"}), staged),
        "zstd_1_us": cpu_us(
            lambda: [zstandard.ZstdCompressor(level=1).compress(b) for b in blocks], EVENTS
        ),
        "zstd_3_us": cpu_us(
            lambda: [zstandard.ZstdCompressor(level=3).compress(b) for b in blocks], EVENTS
        ),
    }
    figures |= {f"{name}_bytes": size / EVENTS for name, size in sizes.items()}
    return {name: round(value, 2) for name, value in figures.items()}


if __name__ == "__main__":
    run(__doc__, measure)
