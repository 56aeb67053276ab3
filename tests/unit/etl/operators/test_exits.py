"""Every state that an hour can be held in has an exit: what `bucket why` names next, or an override
that takes effect.
"""

from __future__ import annotations

import pytest
from sqlalchemy import delete, update
from tests.support.closing import (
    frontier,
    grade,
    hour,
    override,
    report,
    send,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.simulator.truth import FIRST_HOUR, SCHEMA_IDS
from tests.support.simulator.world import World

from hourmark.records.manifest import MARKER, PreviousMarker
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.closing.publishing import Publisher
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.overrides import is_override_ineffective
from hourmark_etl.model import ClosingPhase, HourState
from hourmark_etl.storage import StorageError


@pytest.fixture
def world(world: World) -> World:
    return with_engine_alone(world)


def polls(world: World, count: int = 8) -> None:
    for _ in range(count):
        world.clock.advance(61)
        report(world)
        world.closer.step()
    for _ in range(3):  # without a pause, so that what holds an hour is written down
        world.closer.step()


def closed_first_hour(world: World) -> int:
    """With two clicks of it; when they were."""
    start_ms = world.clock.now_ms()
    send(world, ["click", "click"], start_ms)
    settle(world, FIRST_HOUR)
    assert grade(world) == "proved"
    return start_ms


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_an_hour_after_a_bucket_whose_marker_is_lost_closes_by_an_override_with_the_ledgers_copy(
    world: World, fault: str
) -> None:
    closed_first_hour(world)
    path = f"{FIRST_HOUR.bucket_path('click')}/{MARKER}"
    marker = world.storage.read(path)
    world.storage.delete(path)
    if fault == "damaged":
        world.storage.write_new(path, marker.replace(b"proved", b"pruved"))
    send(world, ["click"], world.clock.now_ms() + 1)
    # the judge knows of no bucket that is lost
    world.check = lambda: None  # type: ignore[method-assign]
    settle(world, hour(1))
    wait = wait_of(world)
    assert (frontier(world).state, wait.phase) == (HourState.SEALED, ClosingPhase.UNWRITABLE)
    assert "bucket force" in wait.what[0] and not is_override_ineffective(frontier(world), wait)
    world.clock.advance(1)
    override(world)
    polls(world)
    assert frontier(world).hour > hour(1)
    following = read_manifest(world.storage, "click", hour(1))
    assert following.grade.value == "forced" and following.previous == PreviousMarker.from_marker(
        str(FIRST_HOUR), marker
    )
    assert any(
        str(FIRST_HOUR) in text and text.startswith("not verified: ")
        for text in following.evidence.waived
    )


def test_a_sealed_hour_whose_late_events_cannot_be_compared_with_a_lost_bucket_closes_by_an_override(
    world: World,
) -> None:
    start_ms = closed_first_hour(world)
    with world.database.transaction() as connection:
        connection.execute(delete(tables.id_indexes))
    folder = FIRST_HOUR.bucket_path("click")
    for path in [p for p in world.storage.content(folder) if p.endswith(".avro")]:
        world.storage.delete(path)
    send(world, ["click"], start_ms + 1)
    # the judge knows of no bucket that is lost
    world.check = lambda: None  # type: ignore[method-assign]
    settle(world, hour(1))
    wait = wait_of(world)
    assert (frontier(world).state, wait.phase) == (HourState.SEALED, ClosingPhase.UNWRITABLE)
    world.clock.advance(1)
    override(world)
    polls(world)
    assert frontier(world).hour > hour(1)
    closed = read_manifest(world.storage, "click", hour(1))
    assert (closed.grade.value, closed.events, closed.left_out) == ("forced", 1, 0)
    assert any(
        "it is unknown which late events the bucket already contains" in text
        for text in closed.evidence.waived
    )


def sealed(world: World, patch: pytest.MonkeyPatch) -> None:
    """The first hour of clicks; storage is away when it is to be written."""

    def away(*_: object) -> None:
        raise StorageError("part", "file://part", "away")

    send(world, ["click", "view"])
    until(world, FIRST_HOUR)
    report(world)
    with patch.context() as for_now:
        for_now.setattr(Publisher, "publish", away)
        for _ in range(8):
            try:
                world.closer.step()
            except StorageError:
                break
    assert frontier(world).state is HourState.SEALED


@pytest.mark.parametrize("row", ["schema", "group"])
def test_a_sealed_hour_that_waits_for_a_row_of_the_ledger_names_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    sealed(world, monkeypatch)
    with world.database.transaction() as connection:
        if row == "schema":
            own = tables.schemas.c.schema_id == SCHEMA_IDS["click"]
            connection.execute(update(tables.schemas).where(own).values(schema='{"type":"string"}'))
        else:
            connection.execute(delete(tables.groups).where(tables.groups.c.type == "click"))
    polls(world)
    assert wait_of(world).phase is ClosingPhase.LEDGER
    assert frontier(world, "view").hour > FIRST_HOUR
