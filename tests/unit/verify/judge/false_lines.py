"""Faults in what became of lines and of posted events, and in the source files themselves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.judged.world import MINUTE, BucketPlan, Row, World
from tests.unit.verify.judge.planting import (
    dead,
    held_with,
    line_of,
    made_by,
    moved,
    on_rows,
    put,
    required,
    rows,
    take,
)

from hourmark.records.event_id import client_event_id


# What becomes of a line.
@on_rows(need=required)
@on_rows(posted=True, name="posted_event_dropped")
def dropped(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)


@on_rows()
@on_rows(need=lambda world, row: not required(world, row), name="past_the_size_doubled")
@on_rows(posted=True, name="posted_event_doubled")
def doubled_in_its_file(world: World, plan: BucketPlan, row: Row) -> None:
    held_with(plan, row).append(dict(row))


@on_rows()
def doubled_as_late(world: World, plan: BucketPlan, row: Row) -> None:
    last = max((p for p in world.plans if p.event_type == plan.event_type), key=lambda p: p.hour)
    world.plan_at(plan.event_type, last.hour.end_ms).late.append(dict(row))


@on_rows(dead=False)
def a_dead_letter_instead(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)
    dead_letter_too(world, plan, row)


@on_rows(dead=False)
def dead_letter_too(world: World, plan: BucketPlan, row: Row) -> None:
    put(world, "dead-letters", dead(world, row, "bad_json"))


@on_rows(dead=False)
def pieces_too(world: World, plan: BucketPlan, row: Row) -> None:
    line = line_of(world, row)
    for start, end in ((0, len(line) // 2), (len(line) // 2, len(line))):
        put(world, "dead-letters", dead(world, row, "line_too_long", start, end))


@on_rows(dead=False)
def pieces_instead(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)
    pieces_too(world, plan, row)


@on_rows(dead=False)
def whole_type_dead_lettered(world: World, plan: BucketPlan, row: Row) -> None:
    for other, found in list(rows(world, dead=False)):
        if other.event_type == plan.event_type:
            take(other, found)
            put(world, "dead-letters", dead(world, found, "wrong_field"))


def in_field(
    fault: str, name: str, change: Callable[[Any], Any], dead: bool | None = None, **which: Any
) -> None:
    """A fault in one field of a row; `which`: see `on_rows`."""

    @on_rows(dead, name=fault, **which)
    def changed(world: World, plan: BucketPlan, row: Row) -> None:
        row[name] = change(row[name])


# The envelope.
in_field("source_wrong", "source", lambda _: "/no/such/file")
in_field("host_wrong", "host", lambda _: "evil")
in_field("generation_wrong", "file", lambda file: {**file, "generation": 1}, need=required)
in_field("file_id_wrong", "file", lambda file: {**file, "id": "0" * 32}, need=required)
in_field(
    "position_wrong",
    "position",
    lambda at: at + 1,
    need=lambda world, row: len(line_of(world, row)) > 0,
)
in_field("id_wrong", "event_id", lambda event_id: event_id[:-1] + bytes([event_id[-1] ^ 1]))


@on_rows()
def hour_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    if row in plan.late:
        plan.late.remove(row)
        plan.rows.append(row)
    else:
        plan.rows.remove(row)
        plan.late.append(row)


def own_time(world: World, row: Row) -> bool:
    """Whether its line says when it was."""
    moment, line = dt.datetime.fromtimestamp(row["event_time"] // 1000, dt.UTC), line_of(world, row)
    return f"{moment:%H:%M:%S}".encode() in line and b"%03d" % (row["event_time"] % 1000) in line


@on_rows(dead=False, need=own_time)
def time_and_hour_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)
    put(world, plan.event_type, moved(world, row, row["event_time"] + 2 * MINUTE))


@on_rows(need=lambda world, row: "raw" in row or not own_time(world, row))
def observed_when_nothing_was_sent(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)
    put(world, plan.event_type, moved(world, row, row["event_time"] + 102 * MINUTE))


# Dead letters.
def of_dead(name: str, change: Callable[[Any], Any]) -> None:
    """A fault in one field of a dead letter."""

    in_field(f"dead_letter_{name}_wrong", name, change, dead=True)


of_dead("reason", lambda reason: "not_utf8" if reason != "not_utf8" else "bad_json")
of_dead("claimed_type", lambda claimed: None if claimed else "lines")
of_dead("raw", lambda raw: raw + b"\n")
of_dead("range_id", lambda value: bytes(8))
of_dead("range_start", lambda value: value + 1)
of_dead("range_end", lambda value: value + 1)
of_dead("rules", lambda value: "9" + value)
of_dead("declared_source", lambda value: "t")
of_dead("detail", lambda value: "")


@on_rows(dead=True)
def dead_letter_at_another_time(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)
    put(world, "dead-letters", moved(world, row, row["event_time"] + MINUTE))


# Content.
def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if abs(value) < 1e9 else value - 1 if isinstance(value, int) else value / 2
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return value + b"x"
    if isinstance(value, list):
        return [*value, *value] if value else None
    return None


def changeable(row: Row) -> list[str]:
    """Own fields that can be changed and written."""
    fixed = ("v_fixed", "v_uuid_fixed", "v_enum", "v_date", "v_time", "v_int")
    return [name for name in list(row)[6:] if name not in fixed and other(row[name]) is not None]


@on_rows(dead=False, need=lambda _, row: bool(changeable(row)))
@on_rows(
    dead=False,
    need=lambda world, row: not required(world, row) and bool(changeable(row)),
    name="past_the_size_altered",
)
def field_changed(world: World, plan: BucketPlan, row: Row) -> None:
    name = changeable(row)[0]
    row[name] = other(row[name])


in_field(
    "field_invented", "opt", lambda _: 8, dead=False, need=lambda _, row: row.get("opt", 0) is None
)
in_field(
    "field_forgotten",
    "opt",
    lambda _: None,
    dead=False,
    need=lambda _, row: row.get("opt") is not None,
)


@on_rows(dead=False, need=lambda _, row: row.get("v_double") == 0 or row.get("v_union") == 0.0)
def sign_of_zero_changed(world: World, plan: BucketPlan, row: Row) -> None:
    name = "v_double" if row.get("v_double") == 0 else "v_union"
    row[name] = -row[name] if isinstance(row[name], float) and row[name] == 0 else 1.0


@on_rows(
    dead=False, need=lambda _, row: type(row.get("v_union")) in (int, float) and row["v_union"] == 1
)
def whole_number_and_float_changed(world: World, plan: BucketPlan, row: Row) -> None:
    row["v_union"] = 1.0 if isinstance(row["v_union"], int) else 1


# Events of nothing.
@on_rows()
def of_an_unterminated_line(world: World, plan: BucketPlan, row: Row) -> None:
    content = Path(row["source"]).read_bytes()
    at = content.rfind(b"\n") + 1
    new = {**row, "position": at}
    new["event_id"] = bytes(made_by(world, row).make(row["event_time"], at, content[at:]))
    held_with(plan, row).append(new)


@on_rows(dead=False)
def of_no_file(world: World, plan: BucketPlan, row: Row) -> None:
    made = client_event_id(row["event_time"], plan.event_type, "never sent")
    held_with(plan, row).append({**row, "file": None, "event_id": bytes(made), "source": "shop"})


# The API.
in_field("posted_event_altered", "ms", lambda ms: ms + 1, posted=True)


@on_rows(posted=True)
def posted_event_of_another_sender(world: World, plan: BucketPlan, row: Row) -> None:
    row["source"] = row["host"] = "other"


# Sources.
@on_rows()
def source_cut_short_with_its_events(world: World, plan: BucketPlan, row: Row) -> None:
    path = Path(row["source"])
    world.told_of(path).pop("size", None)  # one that its writer keeps a record of
    for other_plan, found in list(rows(world)):
        if found["source"] == row["source"] and found["position"] >= row["position"]:
            take(other_plan, found)
    path.write_bytes(path.read_bytes()[: row["position"]])


@on_rows()
def source_gone_with_its_events(world: World, plan: BucketPlan, row: Row) -> None:
    told = world.told_of(Path(row["source"]))
    told.pop("size", None)
    told["path"] += "*"
    world.files.append({"path": str(world.source("empty.log", b""))})
    told["path"] = world.files[-1]["path"]
    for other_plan, found in list(rows(world)):
        if found["source"] == row["source"]:
            take(other_plan, found)
    Path(row["source"]).unlink()
