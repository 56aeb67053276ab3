"""Faults to plant in a right world. Each changes one thing, and as consistently as a fault in the product could.

`FAULTS` by name; a fault takes the world (not written yet) and chance, plants itself, and leaves the world written. It answers
False, and changes nothing, where the world has nothing to plant it in.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hourmark.event_id import LineIds, client_event_id
from tests.unit.judge.random_worlds import hour_of
from tests.unit.judge.world import HOST_ID, MINUTE, START_MS, BucketPlan, Row, World

Fault = Callable[[World, random.Random], bool]
FAULTS: dict[str, Fault] = {}
Chosen = tuple[BucketPlan, Row]
Need = Callable[[World, Row], bool]
Change = Callable[[World, BucketPlan, Row], None]
Decorator = Callable[[Change], Change]


def rows(world: World, *, dead: bool | None = None, posted: bool = False) -> Iterator[Chosen]:
    """All rows with their buckets. `dead`: dead letters only, or none."""
    for plan in world.plans:
        if dead is None or dead == (plan.event_type == "dead-letters"):
            yield from ((plan, row) for row in (*plan.rows, *plan.late) if (row["file"] is None) == posted)


def on_rows(dead: bool | None = None, *, posted: bool = False, need: Need = lambda *_: True) -> Decorator:
    """A fault in one row of a bucket, before buckets are written."""

    def decorate(change: Change) -> Change:
        def fault(world: World, chance: random.Random) -> bool:
            fit = [(plan, row) for plan, row in rows(world, dead=dead, posted=posted) if need(world, row)]
            if not fit:
                return False
            plan, row = chance.choice(fit)
            change(world, plan, row)
            world.plans = [p for p in world.plans if p.hour.start_s >= 0]
            world.write()
            return True

        FAULTS[change.__name__] = fault
        return change

    return decorate


def take(plan: BucketPlan, row: Row) -> None:
    """Out of its bucket."""
    for held in (plan.rows, plan.late):
        held[:] = [other for other in held if other is not row]


def line_of(world: World, row: Row) -> bytes:
    """The source line (or piece) of a row."""
    return bytes(row["raw"]) if "raw" in row else Path(row["source"]).read_bytes()[row["position"] :].split(b"\n")[0]


def moved(world: World, row: Row, time_ms: int) -> Row:
    """The same row at another time, with the id that this makes."""
    made = LineIds(HOST_ID, row["file"]["id"], row["file"]["generation"]).make(time_ms, row["position"], line_of(world, row))
    return {**row, "event_time": time_ms, "event_id": bytes(made)}


def put(world: World, event_type: str, row: Row) -> None:
    """Into the bucket of its time; hours between are closed."""
    hour = hour_of(row)
    minutes = [p.hour.start_s for p in world.plans if p.event_type == event_type] + [hour.start_s]
    for start_s in range(min(minutes), max(minutes) + 60, 60):
        world.plan(event_type, (start_s * 1000 - START_MS) // MINUTE)
    world.plan(event_type, (hour.start_s * 1000 - START_MS) // MINUTE).rows.append(row)


def required(world: World, row: Row) -> bool:
    """Whether its line has to be there."""
    told = next(file for file in world.files if file["path"] == row["source"])
    return bool(row["position"] + len(line_of(world, row)) < told.get("size", 1 << 60))


# What becomes of a line.
@on_rows(need=required)
def dropped(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)


@on_rows()
def doubled_in_its_file(world: World, plan: BucketPlan, row: Row) -> None:
    (plan.rows if row in plan.rows else plan.late).append(dict(row))


@on_rows()
def doubled_as_late(world: World, plan: BucketPlan, row: Row) -> None:
    last = max((p for p in world.plans if p.event_type == plan.event_type), key=lambda p: p.hour)
    world.plan(plan.event_type, (last.hour.start_s * 1000 - START_MS) // MINUTE + 1).late.append(dict(row))


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


def dead(world: World, row: Row, reason: str, start: int = 0, end: int | None = None) -> Row:
    """A dead letter of a line that ought to be none, or of a piece of it: everything else of it is right."""
    line = line_of(world, row)[start:end]
    position = row["position"] + start
    made = world.dead_letter(Path(row["source"]), position, line, START_MS + MINUTE, reason)
    return made if "reason" in made else {**made, "reason": reason}


@on_rows(dead=False)
def whole_type_dead_lettered(world: World, plan: BucketPlan, row: Row) -> None:
    for other, found in list(rows(world, dead=False)):
        if other.event_type == plan.event_type:
            take(other, found)
            put(world, "dead-letters", dead(world, found, "wrong_field"))


# The envelope.
@on_rows()
def source_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    row["source"] = "/no/such/file"


@on_rows()
def host_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    row["host"] = "evil"


@on_rows(need=required)
def generation_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    row["file"] = {**row["file"], "generation": 1}


@on_rows(need=required)
def file_id_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    row["file"] = {**row["file"], "id": "0" * 32}


@on_rows(need=lambda world, row: len(line_of(world, row)) > 0)
def position_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    row["position"] += 1


@on_rows()
def id_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    row["event_id"] = row["event_id"][:-1] + bytes([row["event_id"][-1] ^ 1])


@on_rows()
def hour_wrong(world: World, plan: BucketPlan, row: Row) -> None:
    if row in plan.late:
        plan.late.remove(row)
        world.plan(plan.event_type, (plan.hour.start_s * 1000 - START_MS) // MINUTE).rows.append(row)
    else:
        plan.rows.remove(row)
        plan.late.append(row)


def own_time(world: World, row: Row) -> bool:
    """Whether its line says when it was."""
    line = line_of(world, row)
    return (b"2025-11-21" in line and b"message" in line) or line.startswith(b"<134>1 2")


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

    def fault(world: World, plan: BucketPlan, row: Row) -> None:
        row[name] = change(row[name])

    fault.__name__ = f"dead_letter_{name}_wrong"
    on_rows(dead=True)(fault)


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
def field_changed(world: World, plan: BucketPlan, row: Row) -> None:
    name = changeable(row)[0]
    row[name] = other(row[name])


@on_rows(dead=False, need=lambda _, row: row.get("opt", 0) is None)
def field_invented(world: World, plan: BucketPlan, row: Row) -> None:
    row["opt"] = 8


@on_rows(dead=False, need=lambda _, row: row.get("opt") is not None)
def field_forgotten(world: World, plan: BucketPlan, row: Row) -> None:
    row["opt"] = None


@on_rows(dead=False, need=lambda _, row: row.get("v_double") == 0 or row.get("v_union") == 0.0)
def sign_of_zero_changed(world: World, plan: BucketPlan, row: Row) -> None:
    name = "v_double" if row.get("v_double") == 0 else "v_union"
    row[name] = -row[name] if isinstance(row[name], float) and row[name] == 0 else 1.0


@on_rows(dead=False, need=lambda _, row: type(row.get("v_union")) in (int, float) and row["v_union"] == 1)
def whole_number_and_float_changed(world: World, plan: BucketPlan, row: Row) -> None:
    row["v_union"] = 1.0 if isinstance(row["v_union"], int) else 1


# Events of nothing.
@on_rows()
def of_an_unterminated_line(world: World, plan: BucketPlan, row: Row) -> None:
    content = Path(row["source"]).read_bytes()
    at = content.rfind(b"\n") + 1
    new = {**row, "position": at}
    new["event_id"] = bytes(LineIds(HOST_ID, row["file"]["id"], 0).make(row["event_time"], at, content[at:]))
    (plan.rows if row in plan.rows else plan.late).append(new)


@on_rows(dead=False)
def of_no_file(world: World, plan: BucketPlan, row: Row) -> None:
    made = client_event_id(row["event_time"], plan.event_type, "never sent")
    (plan.rows if row in plan.rows else plan.late).append({**row, "file": None, "event_id": bytes(made), "source": "shop"})


@on_rows(need=lambda world, row: not required(world, row))
def past_the_size_doubled(world: World, plan: BucketPlan, row: Row) -> None:
    (plan.rows if row in plan.rows else plan.late).append(dict(row))


@on_rows(dead=False, need=lambda world, row: not required(world, row) and bool(changeable(row)))
def past_the_size_altered(world: World, plan: BucketPlan, row: Row) -> None:
    row[changeable(row)[0]] = other(row[changeable(row)[0]])


# The API.
@on_rows(posted=True)
def posted_event_dropped(world: World, plan: BucketPlan, row: Row) -> None:
    take(plan, row)


@on_rows(posted=True)
def posted_event_doubled(world: World, plan: BucketPlan, row: Row) -> None:
    (plan.rows if row in plan.rows else plan.late).append(dict(row))


@on_rows(posted=True)
def posted_event_altered(world: World, plan: BucketPlan, row: Row) -> None:
    row["ms"] += 1


@on_rows(posted=True)
def posted_event_of_another_sender(world: World, plan: BucketPlan, row: Row) -> None:
    row["source"] = row["host"] = "other"


# Sources.
@on_rows()
def source_cut_short_with_its_events(world: World, plan: BucketPlan, row: Row) -> None:
    path = Path(row["source"])
    next(file for file in world.files if file["path"] == str(path)).pop("size", None)  # one that its writer keeps a record of
    for other_plan, found in list(rows(world)):
        if found["source"] == row["source"] and found["position"] >= row["position"]:
            take(other_plan, found)
    path.write_bytes(path.read_bytes()[: row["position"]])


@on_rows()
def source_gone_with_its_events(world: World, plan: BucketPlan, row: Row) -> None:
    told = next(file for file in world.files if file["path"] == row["source"])
    told.pop("size", None)
    told["path"] += "*"
    world.files.append({"path": str(world.source("empty.log", b""))})
    told["path"] = world.files[-1]["path"]
    for other_plan, found in list(rows(world)):
        if found["source"] == row["source"]:
            take(other_plan, found)
    Path(row["source"]).unlink()


# Markers: they are written, then one is changed.
def on_marker(name: str, change: Callable[[dict[str, Any]], Any], fits: Callable[[BucketPlan], bool] = lambda _: True) -> None:
    """A fault in one marker: `change` does it in place, or answers what is to be changed."""

    def fault(world: World, chance: random.Random) -> bool:
        fit = [plan for plan in world.plans if fits(plan)]
        world.write()
        if not fit:
            return False
        marker = world.folder(chance.choice(fit)) / "_SUCCESS"
        said = json.loads(marker.read_bytes())
        said |= change(said) or {}
        marker.write_text(json.dumps(said))
        world.chain()  # so that it is this fault that is found
        return True

    FAULTS[f"marker_{name}"] = fault


def full(plan: BucketPlan) -> bool:
    """Whether it has events."""
    return bool(plan.rows or plan.late)


def evidence(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """A change in the evidence."""
    return lambda said: said["evidence"].update(changes)


def of_file(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """A change in the first file."""
    return lambda said: said["files"][0].update(changes)


def more(name: str) -> Callable[[dict[str, Any]], Any]:
    """One more of it."""
    return lambda said: {name: said[name] + 1}


def book(**changes: int) -> Callable[[dict[str, Any]], Any]:
    """So much more in the first book."""

    def change(said: dict[str, Any]) -> None:
        of = next(iter(said["books"].values()))
        of.update({name: of[name] + count for name, count in changes.items()})

    return change


def doubled_promise(said: dict[str, Any]) -> None:
    """More promised than there is, in books and evidence alike."""
    book(promised=1)(said)
    said["evidence"] |= {"promised": said["evidence"]["promised"] + 1, "method": "join"}


on_marker("empty_over_events", evidence(method="empty"), full)
on_marker("empty_over_events_and_promises", evidence(method="empty", promised=0, audit_records=0), full)
on_marker("proved_with_excuse", evidence(excused=["host x had not caught up"]))
on_marker("forced", lambda said: said["evidence"].update(excused=["forced by x"]) or {"grade": "forced"})
on_marker("forced_without_excuse", lambda _: {"grade": "forced"})
on_marker("grade_of_no_kind", lambda _: {"grade": "banana"})
on_marker("promised_less", evidence(promised=0), full)
on_marker("promised_without_records", evidence(audit_records=0), full)
on_marker("promised_more_than_there_is", doubled_promise, full)
on_marker("cut_early", evidence(cut_at_ms=0))
on_marker("closed_early", lambda _: {"closed_at_ms": 1})
on_marker("events", more("events"))
on_marker("duplicates", more("duplicates_removed"))
on_marker("surplus", more("surplus"))
on_marker("book_rows", book(rows=1), full)
on_marker("book_events", book(events=1), full)
on_marker("book_promised", book(promised=1), full)
on_marker("book_surplus", book(surplus=1), full)
on_marker("book_of_another_hour", lambda said: {"books": {"2025-11-20T23:59": next(iter(said["books"].values()))}}, full)
on_marker("no_books", lambda _: {"books": {}}, full)
on_marker("late", lambda said: {"late": {**said["late"], "2025-11-20T00:00": 1}})
on_marker("id_sum", lambda said: {"id_sum": f"{int(said['id_sum'], 16) ^ 1:016x}"})
on_marker("type", lambda _: {"type": "other"})
on_marker("hour", lambda _: {"hour": "2025-11-21T01:00"})
on_marker("bucket_seconds", lambda _: {"bucket_seconds": 120})
on_marker("format", lambda _: {"format": 2})
on_marker("unknown_key", lambda _: {"hello": 1})
on_marker("number_as_float", lambda said: {"events": float(said["events"])})
on_marker("no_offsets", lambda _: {"offsets": []}, full)
on_marker("attempt", lambda _: {"attempt": ""})
on_marker("ledger_commit", lambda _: {"ledger_commit": -1})
on_marker("file_records", of_file(records=77), full)
on_marker("file_bytes", of_file(bytes=77), full)
on_marker("file_digest", of_file(blake2b="0" * 32), full)
on_marker("file_name", of_file(name="part-00009.avro"), full)
on_marker("schema_fingerprint", of_file(schema_fingerprint="0" * 16), full)
on_marker("file_twice", lambda said: {"files": said["files"] * 2, "events": said["events"] * 2}, full)


def chain(world: World, at_least: int) -> list[BucketPlan]:
    """The buckets of a type that has so many, in turn."""
    types = sorted({plan.event_type for plan in world.plans})
    chains = [sorted((p for p in world.plans if p.event_type == t), key=lambda p: p.hour) for t in types]
    return next((found for found in chains if len(found) >= at_least), [])


def in_chain(change: Callable[[list[Path]], None]) -> None:
    """A fault in the markers of a type that has three buckets."""

    def fault(world: World, chance: random.Random) -> bool:
        world.write()
        found = chain(world, 3)
        if found:
            change([world.folder(plan) / "_SUCCESS" for plan in found])
            if change.__name__.startswith("ledger"):
                world.chain()
        return bool(found)

    FAULTS[change.__name__] = fault


def edit(marker: Path, **changes: Any) -> None:
    """Change what a marker says."""
    marker.write_text(json.dumps(json.loads(marker.read_bytes()) | changes))


@in_chain
def ledger_that_comes_back(markers: list[Path]) -> None:
    edit(markers[1], ledger="other")


@in_chain
def ledger_commit_that_falls(markers: list[Path]) -> None:
    edit(markers[1], ledger_commit=1)


@in_chain
def marker_that_follows_another(markers: list[Path]) -> None:
    edit(markers[1], previous={"hour": "2025-11-21T00:00", "blake2b": "0" * 32})


@in_chain
def second_marker_that_says_it_is_the_first(markers: list[Path]) -> None:
    edit(markers[1], previous=None)


@in_chain
def markers_that_name_none_before_them(markers: list[Path]) -> None:
    for marker in markers[0].parents[3].rglob("_SUCCESS"):
        said = json.loads(marker.read_bytes())
        del said["previous"]
        marker.write_text(json.dumps(said))


@in_chain
def hour_missing_in_the_chain(markers: list[Path]) -> None:
    shutil.rmtree(markers[1].parent)


# What lies beside buckets.
def beside(change: Callable[[World, Path], None]) -> None:
    """A fault beside a bucket that is not empty."""

    def fault(world: World, chance: random.Random) -> bool:
        world.write()
        fit = [plan for plan in world.plans if plan.rows]
        if fit:
            change(world, world.folder(chance.choice(fit)))
        return bool(fit)

    FAULTS[change.__name__] = fault


@beside
def file_unlisted(world: World, folder: Path) -> None:
    shutil.copy(folder / "part-00000.avro", folder / "part-00009.avro")


@beside
def file_unlisted_and_hidden(world: World, folder: Path) -> None:
    (folder / "_leftover").touch()


@beside
def folder_unlisted(world: World, folder: Path) -> None:
    (folder / "sub").mkdir()


@beside
def attempt_in_a_bucket(world: World, folder: Path) -> None:
    shutil.copytree(folder, folder / "attempt-1")


@beside
def attempt_named_like_a_bucket(world: World, folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("minute=00.attempt"))


@beside
def attempt_in_a_type(world: World, folder: Path) -> None:
    shutil.copytree(folder, folder.parents[2] / "attempt-1")


@beside
def folder_without_marker(world: World, folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("minute=59"))
    (folder.with_name("minute=59") / "_SUCCESS").unlink()


@beside
def marker_gone(world: World, folder: Path) -> None:
    (folder / "_SUCCESS").unlink()


@beside
def file_in_the_root(world: World, folder: Path) -> None:
    shutil.copy(folder / "part-00000.avro", world.root / "part-00000.avro")


@beside
def hour_closed_above_its_minutes(world: World, folder: Path) -> None:
    shutil.copy(folder / "_SUCCESS", folder.parent / "_SUCCESS")


@beside
def byte_of_a_file_flipped(world: World, folder: Path) -> None:
    file = folder / "part-00000.avro"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
