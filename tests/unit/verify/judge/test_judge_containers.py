"""The judge on container logs: content with what the project makes of them, and with no fault in
it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.judged.world import HOST_ID, MINUTE, SCHEMAS, START_MS, TYPES, Row, World
from tests.support.tiers import representative
from tests.unit.verify.judge.false_worlds import FAULTS
from tests.unit.verify.judge.test_judge_worlds import verdict

from hourmark.avro.framing import event_schema
from hourmark.records.event_id import LineIds

FIELDS: list[dict[str, Any]] = [
    {"name": "line", "type": "bytes"},
    {"name": "pod", "type": ["null", "string"], "default": None},
    {"name": "labels", "type": {"type": "map", "values": "string"}, "default": {}},
]
CONTAINER = {"pod": "web-0", "namespace": "shop", "container": "nginx"}
NEEDS_LINES = {"pieces_too", "pieces_instead"}  # they cut records as lines are cut


def stamped(seconds: float, stream: str, tag: str, text: bytes) -> bytes:
    """A line of the log, some time after the world's start: 2025-11-21T00:00:00Z."""
    return (
        f"2025-11-21T00:{int(seconds // 60):02}:{seconds % 60:09.6f}Z {stream} {tag} ".encode()
        + text
        + b"\n"
    )


def container_world(folder: Path, seed: int) -> World:
    """A log of some records, partial ones of both streams among them."""
    chance = random.Random(seed)
    world = World(folder, SCHEMAS | {"server-log": event_schema("server-log", FIELDS)}, TYPES)
    odd = {3: b"no form at all\n", 7: b"\n", 9: stamped(9, "stdin", "F", b"x")}
    content, partial, number = b"", set[str](), 0
    while number < 14 or partial:
        number += 1
        if number in odd:
            content += odd[number]
            continue
        stream, tag = (
            chance.choice(["stdout", "stderr"]),
            "F" if number >= 14 else chance.choice("PPFFF"),
        )
        (partial.add if tag == "P" else partial.discard)(stream)
        content += stamped(number, stream, tag, b"\r" if number == 11 else b"text %d " % number)
    told = {
        "form": "free",
        "type": "server-log",
        "format": "cri",
        "size": len(content),
        "fields": CONTAINER,
    }
    path = world.source("0.log", content, **told)
    for event_type, row in world.parse(path, 0, len(content), START_MS + MINUTE):
        world.plan_at(event_type, row["event_time"]).rows.append(row)
    for event_type in {plan.event_type for plan in world.plans}:
        world.leave_no_gap(event_type)
    return world


@pytest.mark.parametrize("seed", range(12))
def test_right_logs_are_not_objected_to(tmp_path: Path, seed: int) -> None:
    world = container_world(tmp_path, seed)
    world.write()
    report = verdict(world)
    assert report.passed, report.as_text()
    assert report.type_count("server-log").in_buckets > 3
    assert sum(file.dead_letters for file in report.files) == 2


@pytest.mark.parametrize("name", representative(sorted(FAULTS.keys() - NEEDS_LINES), keep=12))
def test_a_fault_in_such_a_log_is_objected_to(tmp_path: Path, name: str) -> None:
    for seed in range(3):
        world = container_world(tmp_path / str(seed), seed)
        if FAULTS[name](world, random.Random(seed)):
            assert not verdict(world).passed, f"fault {name}, seed {seed}"


def remade(row: Row, line: bytes, time_ms: int | None = None) -> None:
    """With a right id."""
    row["event_time"] = row["event_time"] if time_ms is None else time_ms
    row["line"] = line
    made = LineIds(HOST_ID, row["file"]["id"], 0).make(row["event_time"], row["position"], line)
    row["event_id"] = bytes(made)


def cut_short(row: Row) -> None:
    remade(row, row["line"][:7])


def of_the_other_stream(row: Row) -> None:
    row["labels"]["stream"] = {"stdout": "stderr", "stderr": "stdout"}[row["labels"]["stream"]]


def when_it_was_read(row: Row) -> None:
    remade(row, row["line"], row["event_time"] + 1)


def of_another_pod(row: Row) -> None:
    row["pod"] = "web-1"


def with_its_header(row: Row) -> None:
    remade(row, b"stdout F " + row["line"])


@pytest.mark.parametrize(
    "fault", [cut_short, of_the_other_stream, when_it_was_read, of_another_pod, with_its_header]
)
def test_a_fault_of_containers_is_objected_to(tmp_path: Path, fault: Callable[[Row], None]) -> None:
    world = container_world(tmp_path, 5)
    rows = [row for plan in world.plans for row in plan.rows if plan.event_type == "server-log"]
    fault(max(rows, key=lambda row: len(row["line"])))
    world.write()
    assert not verdict(world).passed


@pytest.mark.parametrize(
    "told", [{"format": "plain"}, {"fields": {}}, {"fields": {**CONTAINER, "pod": "other"}}]
)
def test_a_log_read_otherwise_than_was_configured_is_objected_to(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    world = container_world(tmp_path, 2)
    world.write()
    assert verdict(world).passed
    world.files[-1] |= told
    assert not verdict(world).passed
