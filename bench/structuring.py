"""CPU time of structuring, the service's work on a line: from JSON to framed Avro with id and key.

    python -m bench.structuring [--json]

For comparison, the same run uses `json.loads` and `fastavro.schemaless_writer`, which give the
datum alone: no RFC 5424 header is parsed, no id is made, no envelope is checked. The ratio shows
the additional cost of all that.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable

import fastavro

from hourmark.config.groups import ParsingSettings
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import DEAD_LETTERS, EventType, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, RangeParser, parse_range

EVENTS, ROUNDS = 5000, 9
NOW_MS = 1_795_225_200_000
TYPE = EventType(
    name="page-viewed",
    fields=[
        {"name": "page", "type": "string"},
        {"name": "milliseconds", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "agent", "type": "string"},
    ],
)


def payloads() -> list[bytes]:
    """Return JSON objects of about 150 bytes."""
    return [
        json.dumps(
            {
                "page": f"/shelf/{n % 97}/item/{n}",
                "milliseconds": n % 1000,
                "user": f"user-{n:08d}",
                "agent": "a" * 60,
            }
        ).encode()
        for n in range(EVENTS)
    ]


def seconds(work: Callable[[], object]) -> list[float]:
    """Return CPU seconds of each round, after one round that is not counted."""
    taken = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return taken[1:]


def measure() -> dict[str, float]:
    """Return the median CPU time per event in microseconds of both ways, and their ratio."""
    versions = {t.name: TypeVersion(t, n) for n, t in enumerate((TYPE, DEAD_LETTERS), 1)}
    compiled = CompiledRules(
        Rules(
            sequence=1,
            types=versions,
            sources={"app": Source(name="app", types=["page-viewed"])},
            parsing=ParsingSettings(),
        )
    )
    objects = payloads()
    body = b"".join(
        b"<134>1 2026-11-21T01:40:00.123Z web-1 shop - page-viewed - " + one + b"\n"
        for one in objects
    )
    byte_range = ByteRange(
        host_id="a" * 32,
        file_id="b" * 32,
        generation=0,
        start=0,
        end=len(body),
        observed_at_ms=NOW_MS,
        rules="1-x",
        zone="UTC",
        source="app",
        path="/log",
        host_name="web-1",
    )
    assert parse_range(byte_range, body, compiled).events == EVENTS
    schema = fastavro.parse_schema({"type": "record", "name": "plain", "fields": TYPE.fields})

    def structured() -> None:
        parser = RangeParser(byte_range, body, compiled)
        for _ in parser.slices():
            pass
        parser.audit()

    def plain() -> None:
        for one in objects:
            fastavro.schemaless_writer(io.BytesIO(), schema, json.loads(one))

    ours = statistics.median(seconds(structured)) / EVENTS * 1e6
    theirs = statistics.median(seconds(plain)) / EVENTS * 1e6
    return {
        "structuring_us": round(ours, 2),
        "json_fastavro_us": round(theirs, 2),
        "ratio": round(ours / theirs, 2),
    }


def run(description: str | None, measure: Callable[[], dict[str, float]]) -> None:
    """Run the command line of a benchmark; it prints results as text or as one JSON object."""
    arguments = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--json", action="store_true", help="one JSON object")
    as_json = arguments.parse_args().json
    figures = measure()
    print(
        json.dumps(figures)
        if as_json
        else "\n".join(f"{name:24} {value}" for name, value in figures.items())
    )


if __name__ == "__main__":
    run(__doc__, measure)
