"""What is wrong with one path, one row or one partition holds the type that needs it, by name;
every other type goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from sqlalchemy import select, update
from tests.support.closing import (
    arrive,
    frontier,
    grades,
    hour,
    override,
    send,
    send_again,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.rebuilding import staged_files
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.errors import Unavailable
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Lease
from hourmark_etl.recovery.check import check_ledger
from hourmark_etl.storage import AccessDenied, BadBlocks, StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER, UNAUDITED_FOLDER


def polls(world: World, at: Hour | None = None) -> None:
    """Six minutes of a driver's polls, from the hour's end on where one is named."""
    if at is not None:
        until(world, at)
    for _ in range(12):
        world.producers.report(0)
        arrive(world)
        for _ in range(5):
            with contextlib.suppress(Unavailable):
                world.closer.step()
        world.clock.advance(30)


def refused(
    world: World, name: str, error: type[StorageError], concerns: Callable[[str], bool]
) -> Callable[[], None]:
    """Storage says this of these paths from now on, where it is asked so; until what is returned is
    called.
    """
    real = getattr(world.storage, name)

    def asked(path: str, *more: object, **named: object) -> object:
        if concerns(path):
            raise error(path, world.storage.url(path), "so says the server")
        return real(path, *more, **named)

    setattr(world.storage, name, asked)
    return lambda: setattr(world.storage, name, real)


def hours_of(world: World) -> tuple[Hour, Hour]:
    return frontier(world).hour, frontier(world, "view").hour


def test_rows_without_a_record_that_storage_has_lost_hold_nobody_who_does_not_need_them(
    world: World,
) -> None:
    with_engine_alone(world)
    send(world, ["click", "view"])
    send(world, ["click"], recorded=False)
    settle(world, FIRST_HOUR)
    assert hours_of(world) == (hour(1), hour(1))
    refused(world, "open", BadBlocks, lambda path: path.startswith(UNAUDITED_FOLDER))
    send(world, ["click", "view"])
    send_again(
        world, world.producers.ranges[-1]
    )  # its sums differ: proved row by row, which reads the file
    polls(world, hour(1))
    assert hours_of(world) == (hour(2), hour(2))


@pytest.mark.slow
def test_a_marker_that_does_not_read_back_holds_its_own_type(world: World) -> None:
    send(world, ["click", "view"])
    real = world.storage.read

    def flipped(path: str, *, size: int | None = None) -> bytes:
        content = real(path, size=size)
        is_it = path.startswith(ATTEMPTS_FOLDER) and "/click/" in path and path.endswith(MARKER)
        return content[:20] + b"\xff" + content[21:] if is_it else content

    world.storage.read = flipped  # type: ignore[method-assign]
    polls(world, FIRST_HOUR)
    assert hours_of(world) == (FIRST_HOUR, hour(1))
    assert (wait_of(world).phase, "differs from the marker" in wait_of(world).what[0]) == (
        "publishing",
        True,
    )
    world.storage.read = real  # type: ignore[method-assign]
    polls(world)
    world.check()
    assert grades(world) == ["proved"]


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["clicj", "view"])
def test_a_damaged_row_of_a_schema_holds_the_type_that_is_written_under_it(
    world: World, changed: str
) -> None:
    """Its type is part of what may be damaged."""
    send(world, ["click", "view"])
    with world.database.transaction() as connection:
        connection.execute(
            update(tables.schemas).where(tables.schemas.c.type == "click").values(type=changed)
        )
    polls(world, FIRST_HOUR)
    assert hours_of(world) == (FIRST_HOUR, hour(1))
    assert (
        wait_of(world).phase == "ledger" and "the ledger's row of schemas" in wait_of(world).what[0]
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", [('":', '";'), ('"late"', '"lete"')])
def test_a_damaged_manifest_in_the_ledger_holds_the_type_whose_late_events_ask_for_it(
    world: World, damage: tuple[str, str]
) -> None:
    with_engine_alone(world)
    send(world, ["click", "view"])
    settle(world, FIRST_HOUR)
    of_click = tables.buckets.c.type == "click"
    text = world.database.fetch(select(tables.buckets.c.manifest).where(of_click)).scalar_one()
    with world.database.transaction() as connection:
        connection.execute(
            update(tables.buckets).where(of_click).values(manifest=text.replace(*damage, 1))
        )
    send_again(world, world.producers.ranges[-1])
    polls(world, hour(1))
    assert hours_of(world) == (hour(1), hour(2))
    assert (
        wait_of(world).phase == "ledger"
        and f"type 'click', hour {FIRST_HOUR.start_s}" in wait_of(world).what[0]
    )
    told = check_ledger(world.database, world.storage, FIRST_HOUR.length_s, world.pipeline.central)
    assert [f.where for f in told if "does not match its digest" in f.detail] == [
        f"click {FIRST_HOUR}"
    ]


def test_a_word_of_what_types_wait_for_that_is_damaged_is_said_again(world: World) -> None:
    send(world, ["click", "view"])
    until(world, FIRST_HOUR)
    world.closer.step()
    with world.database.transaction() as connection:
        connection.execute(
            update(tables.blockers)
            .where(tables.blockers.c.type == "click")
            .values(phase="quomises")
        )
    world.start_closer()
    world.closer.step()
    assert wait_of(world).phase == wait_of(world, "view").phase


def leaderless(lease: Lease, path: str) -> str:
    raise Unavailable(
        f"the central Kafka cluster returned no offset for a partition ({path}, {lease})"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["events", "audit"])
@pytest.mark.parametrize("overridden", [False, True])
def test_a_staged_file_that_cannot_be_staged_again_for_now_holds_the_types_that_need_it(
    world: World, kind: str, overridden: bool
) -> None:
    """And the driver comes to rest: at the next step it would meet the same file."""
    with_engine_alone(world)
    send(world, ["click"])
    arrive(world)
    (lost,) = staged_files(world, kind)
    world.damages.lose(lost)
    send(world, ["view"])
    restage = world.pipeline.restage
    world.pipeline.restage = leaderless  # type: ignore[method-assign]
    with_engine_alone(world)
    until(world, FIRST_HOUR)
    if overridden:
        override(world)
    world.producers.report(0)
    arrive(world)
    assert any(isinstance(world.closer.step(), Waiting) for _ in range(6))
    assert hours_of(world) == (FIRST_HOUR, hour(1))
    assert wait_of(world).phase == "servers" and lost in wait_of(world).what[0]
    world.pipeline.restage = restage  # type: ignore[method-assign]
    with_engine_alone(world)
    polls(world)
    world.check()
    assert grades(world) == ["forced" if overridden else "proved"]


@pytest.mark.slow
@pytest.mark.parametrize("closed", [0, 1])
def test_a_folder_that_may_not_be_looked_into_holds_its_own_type(world: World, closed: int) -> None:
    if closed:
        send(world, ["click", "view"])
        settle(world, FIRST_HOUR)
    allow_again = [
        refused(world, name, AccessDenied, lambda path: path.startswith("click/"))
        for name in ("read", "list", "exists", "delete")
    ]
    world.start_closer()
    send(world, ["click", "view"])
    polls(world, hour(closed))
    assert hours_of(world) == (hour(closed), hour(closed + 1))
    assert wait_of(world).phase == "storage" and "so says the server" in wait_of(world).what[0]
    for again in allow_again:
        again()
    polls(world)
    world.check()
    assert grades(world) == ["proved"] * (closed + 1)
