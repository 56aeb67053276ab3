"""The judge on records of more than one line: content with what the project makes of them, and with
no fault in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.judged.world import (
    HOST_ID,
    MINUTE,
    SCHEMAS,
    START_MS,
    Row,
    World,
    identity,
    rfc5424,
)
from tests.support.tiers import representative
from tests.unit.verify.judge.false_worlds import FAULTS
from tests.unit.verify.judge.test_judge_worlds import verdict

from hourmark.avro.framing import event_schema
from hourmark.records.event_id import LineIds
from hourmark.records.ranges import ByteRange, Part

LIMIT = 400
PATTERN = r"^(<\d|\[)"
FAULTS_OF_LINES = {"pieces_too", "pieces_instead"}  # they cut records as lines are cut


def event(number: int, lines: int) -> bytes:
    return rfc5424("lines", START_MS + number * 1000, b"m%d" % number + b"\n  at x" * lines) + b"\n"


RECORDS = [
    event(0, 0),
    event(1, 3),
    b"[no header\n\n at y\n",
    event(2, 1),
    b"[" + b"long\n" * 200,
    event(3, 0),
]


def record_world(folder: Path, seed: int, flushed: bool = False) -> World:
    """Records in random order, sent in random ranges, perhaps with one that was flushed before its
    end.
    """
    chance = random.Random(seed)
    world = World(folder)
    world.told["line_bytes_max"] = LIMIT
    records = [b"  what was before\n\n", *chance.sample(RECORDS, len(RECORDS))]
    if flushed:
        records.insert(chance.randint(1, len(records)), b"  at z, after a while\n")
    starts = [sum(map(len, records[:number])) for number in range(len(records))]
    told: dict[str, Any] = {
        "record_start": PATTERN,
        "flushed": [s for s, r in zip(starts, records, strict=True) if r[:2] == b"  "],
    }
    path = world.source("app.log", b"".join(records) + b"<unended", **told)
    world.files[-1]["size"] = sum(map(len, records))
    at, sent_ms = 0, START_MS + MINUTE
    while records:
        together = 1 if len(records[0]) > LIMIT + 1 else chance.randint(1, 3)
        while together > 1 and any(
            len(r) > LIMIT + 1 or r[:2] == b"  " for r in records[1:together]
        ):
            together -= 1
        end = at + sum(map(len, records[:together]))
        parts = (
            [(at, end, Part.LINES)]
            if end - at <= LIMIT + 1 or together > 1
            else [
                (
                    start,
                    min(start + LIMIT, end),
                    Part.LAST_CHUNK if start + LIMIT >= end else Part.CHUNK,
                )
                for start in range(at, end, LIMIT)
            ]
        )
        for start, stop, part in parts:
            for event_type, row in world.parse(path, start, stop, sent_ms, part):
                world.plan_at(event_type, row["event_time"]).rows.append(row)
        at, sent_ms, records = end, sent_ms + chance.randrange(MINUTE), records[together:]
    for event_type in {plan.event_type for plan in world.plans}:
        world.leave_no_gap(event_type)
    return world


@pytest.mark.parametrize("seed", range(12))
def test_right_worlds_of_records_are_not_objected_to(tmp_path: Path, seed: int) -> None:
    world = record_world(tmp_path, seed, flushed=seed % 2 == 0)
    world.write()
    report = verdict(world)
    assert report.passed, report.as_text()
    assert report.files[0].lines >= len(RECORDS) + 2
    assert (report.type_count("lines").in_buckets, report.files[0].lost) == (4, 0)


@pytest.mark.parametrize("name", representative(sorted(FAULTS.keys() - FAULTS_OF_LINES), keep=12))
def test_a_fault_in_such_a_world_is_objected_to(tmp_path: Path, name: str) -> None:
    for seed in range(3):
        world = record_world(tmp_path / str(seed), seed)
        if FAULTS[name](world, random.Random(seed)):
            assert not verdict(world).passed, f"fault {name}, seed {seed}"


def split_into_lines(world: World, rows: list[Row], row: Row) -> None:
    """As a service would that knows nothing of records."""
    rows.remove(row)
    at = row["position"]
    for line in row["line"].split(b"\n"):
        rows.append(remade(world, row, at, line))
        at += len(line) + 1


def cut_short(world: World, rows: list[Row], row: Row) -> None:
    rows[rows.index(row)] = remade(world, row, row["position"], row["line"].split(b"\n")[0])


def as_if_of_its_first_line(world: World, rows: list[Row], row: Row) -> None:
    made = LineIds(HOST_ID, row["file"]["id"], 0).make(
        row["event_time"], row["position"], row["line"].split(b"\n")[0]
    )
    row["event_id"] = bytes(made)


def joined_by_blanks(world: World, rows: list[Row], row: Row) -> None:
    row["line"] = row["line"].replace(b"\n", b" ")


def lost(world: World, rows: list[Row], row: Row) -> None:
    rows.remove(row)


def remade(world: World, row: Row, at: int, line: bytes) -> Row:
    """An event with a right id, of what is no record."""
    made = LineIds(HOST_ID, row["file"]["id"], 0).make(row["event_time"], at, line)
    return {**row, "position": at, "line": line, "event_id": bytes(made)}


@pytest.mark.parametrize(
    "fault", [split_into_lines, cut_short, as_if_of_its_first_line, joined_by_blanks, lost]
)
def test_a_fault_of_records_is_objected_to(
    tmp_path: Path, fault: Callable[[World, list[Row], Row], None]
) -> None:
    world = record_world(tmp_path, 1)
    rows = next(
        plan.rows for plan in world.plans for row in plan.rows if b"\n" in row.get("line", b"")
    )
    fault(world, rows, next(row for row in rows if b"\n" in row["line"]))
    world.write()
    assert not verdict(world).passed


@pytest.mark.parametrize(
    "told", [{"record_start": r"^<\d"}, {"record_start": None}, {"flushed": []}]
)
def test_records_read_otherwise_than_was_configured_are_objected_to(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    world = record_world(tmp_path, 2, flushed=True)
    world.write()
    assert verdict(world).passed
    world.files[-1] |= told
    assert not verdict(world).passed


def test_a_range_id_made_without_the_pattern_is_objected_to(tmp_path: Path) -> None:
    world = record_world(tmp_path, 3)
    (row, *_) = [
        row for plan in world.plans for row in plan.rows if row.get("reason") == "not_rfc5424"
    ]
    body = Path(row["source"]).read_bytes()[row["range_start"] : row["range_end"]]
    _, rules = world.compiled(world.told_of(Path(row["source"])))
    bare = ByteRange(
        host_id=HOST_ID,
        file_id=identity(Path(row["source"])),
        generation=0,
        start=row["range_start"],
        end=row["range_end"],
        observed_at_ms=row["event_time"],
        rules=rules.id,
        zone="UTC",
        source="s",
        path=row["source"],
        host_name="host",
    )
    row["range_id"] = bytes(bare.range_id(body))
    world.write()
    assert not verdict(world).passed


FIELDS: list[dict[str, Any]] = [
    {"name": "line", "type": "bytes"},
    {"name": "team", "type": ["null", "string"], "default": None},
    {"name": "labels", "type": {"type": "map", "values": "string"}, "default": {}},
]
TRACK: list[dict[str, Any]] = [
    {"name": "track", "type": "string"},
    {"name": "team", "type": ["null", "string"], "default": None},
]


def field_world(folder: Path) -> World:
    """Events with what the tailer says of them; one says it itself."""
    schemas = SCHEMAS | {
        "lines": event_schema("lines", FIELDS),
        "track-played": event_schema("track-played", TRACK),
    }
    world = World(folder, schemas)
    lines = [
        rfc5424("lines", START_MS, b"m"),
        rfc5424("track-played", START_MS, b'{"track": "t"}'),
        b"no header",
        rfc5424("track-played", START_MS, b'{"track": "t", "team": "own"}'),
    ]
    content = b"".join(line + b"\n" for line in lines)
    path = world.source("app.log", content, fields={"team": "pay", "env": "prod"})
    for event_type, row in world.parse(path, 0, len(content), START_MS + MINUTE):
        world.plan_at(event_type, row["event_time"]).rows.append(row)
    return world


@pytest.mark.parametrize(
    "told", [{"team": "pay", "env": "prod"}, {"team": "other", "env": "prod"}, {"team": "pay"}, {}]
)
def test_fields_are_those_that_the_tailer_was_told(tmp_path: Path, told: dict[str, str]) -> None:
    world = field_world(tmp_path)
    world.write()
    world.files[-1]["fields"] = told
    report = verdict(world)
    assert report.passed == (told == {"team": "pay", "env": "prod"}), report.as_text()


@pytest.mark.parametrize(
    "change",
    [{"team": None}, {"team": "other"}, {"labels": {}}, {"labels": {"team": "pay", "env": "test"}}],
)
def test_a_field_that_is_not_the_tailers_is_objected_to(tmp_path: Path, change: Row) -> None:
    world = field_world(tmp_path)
    (row,) = [row for plan in world.plans for row in plan.rows if "line" in row]
    row |= change
    world.write()
    assert not verdict(world).passed
