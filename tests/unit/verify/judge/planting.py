"""How faults are planted in a right world: each changes one thing, and as consistently as a fault
in the product could.

`FAULTS` by name; a fault takes the world (not written yet) and chance, plants itself, and leaves
the world written. It answers False, and changes nothing, where the world has nothing to plant it
in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.judged.world import MINUTE, START_MS, BucketPlan, Row, World

from hourmark.records.event_id import LineIds

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
            yield from (
                (plan, row) for row in (*plan.rows, *plan.late) if (row["file"] is None) == posted
            )


def anything(world: World, row: Row) -> bool:
    """Any row will do."""
    return True


def on_rows(
    dead: bool | None = None, *, posted: bool = False, need: Need = anything, name: str = ""
) -> Decorator:
    """A fault in one row of a bucket, before buckets are written, by its `name`, or by that of what
    it decorates.
    """

    def decorate(change: Change) -> Change:
        def fault(world: World, chance: random.Random) -> bool:
            fit = [
                (plan, row)
                for plan, row in rows(world, dead=dead, posted=posted)
                if need(world, row)
            ]
            if not fit:
                return False
            plan, row = chance.choice(fit)
            change(world, plan, row)
            world.plans = [p for p in world.plans if p.hour.start_s >= 0]
            world.write()
            return True

        FAULTS[name or change.__name__] = fault
        return change

    return decorate


def held_with(plan: BucketPlan, row: Row) -> list[Row]:
    """The rows of its file."""
    return plan.rows if row in plan.rows else plan.late


def take(plan: BucketPlan, row: Row) -> None:
    """Out of its bucket."""
    for held in (plan.rows, plan.late):
        held[:] = [other for other in held if other is not row]


def line_of(world: World, row: Row) -> bytes:
    """The source line (or piece) of a row."""
    return (
        bytes(row["raw"])
        if "raw" in row
        else Path(row["source"]).read_bytes()[row["position"] :].split(b"\n")[0]
    )


def moved(world: World, row: Row, time_ms: int) -> Row:
    """The same row at another time, with the id that this makes."""
    made = made_by(world, row).make(time_ms, row["position"], line_of(world, row))
    return {**row, "event_time": time_ms, "event_id": bytes(made)}


def made_by(world: World, row: Row) -> LineIds:
    """What made its id: each of the file's hosts may have sent it."""
    file, line = row["file"], line_of(world, row)
    found = [
        LineIds(host_id, file["id"], file["generation"])
        for host_id in world.host_ids(Path(row["source"]))
    ]
    fit = (
        ids
        for ids in found
        if bytes(ids.make(row["event_time"], row["position"], line)) == row["event_id"]
    )
    return next(fit, found[-1])


def put(world: World, event_type: str, row: Row) -> None:
    """Into the bucket of its time; hours between are closed."""
    world.plan_at(event_type, row["event_time"]).rows.append(row)
    world.leave_no_gap(event_type)


def required(world: World, row: Row) -> bool:
    """Whether its line has to be there."""
    size = world.told_of(Path(row["source"])).get("size", 1 << 60)
    return bool(row["position"] + len(line_of(world, row)) < size)


def dead(world: World, row: Row, reason: str, start: int = 0, end: int | None = None) -> Row:
    """A dead letter of a line that ought to be none, or of a piece of it: everything else of it is
    right.
    """
    line = line_of(world, row)[start:end]
    position = row["position"] + start
    made = world.dead_letter(Path(row["source"]), position, line, START_MS + MINUTE, reason)
    return made if "reason" in made else {**made, "reason": reason}
