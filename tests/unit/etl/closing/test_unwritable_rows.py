"""Rows that can be in no bucket: they hold their hour before it is sealed, and an override closes
it without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import delete, select
from tests.support.closing import (
    arrive,
    frontier,
    grades,
    override,
    send,
    send_again,
    settle,
    wait_of,
    with_engine_alone,
)
from tests.support.simulator.truth import FIRST_HOUR, SCHEMA_IDS, make_template
from tests.support.simulator.world import World

from hourmark.avro.framing import framing_header
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import events_topic
from hourmark.records.event_id import LineIds
from hourmark.records.manifest import Manifest, MissingRanges
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.overrides import is_override_ineffective
from hourmark_etl.model import HourState

UNKNOWN = 77
AT_MS = FIRST_HOUR.start_s * 1000 + 600_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = with_engine_alone(World(tmp_path, make_template(tmp_path)))
    yield made
    made.end()


def append(world: World, value: bytes) -> None:
    """A record of the first hour with a key that is in order."""
    event_id = LineIds("e" * 32, "f" * 32, 0).make(AT_MS, 5, b"line")
    key = RecordKey(event_id, RangeId(b"\0" * 8)).encode()
    world.producers.append_junk("click", key, value)


def as_staged_by_version_0_3_0(world: World, patch: pytest.MonkeyPatch) -> None:
    """Stage what arrives without looking into datums."""

    def unchecked(ids: npt.NDArray[np.uint8], *_: object) -> npt.NDArray[np.uint8]:
        return np.zeros(len(ids), np.uint8)

    with patch.context() as for_now:
        for_now.setattr("hourmark_etl.staging.records.datum_verdicts", unchecked)
        arrive(world)


def closed(world: World) -> Manifest:
    return read_manifest(world.storage, "click", FIRST_HOUR)


def poll_again(world: World) -> None:
    for _ in range(3):
        world.clock.advance(11)
        world.producers.report(0)
        arrive(world)
        world.closer.step()


def test_an_unknown_schema_id_holds_its_hour_before_the_seal_until_an_override_leaves_its_rows_out(
    world: World,
) -> None:
    send(world, ["click", "view"], AT_MS)
    append(world, framing_header(UNKNOWN) + b"datum")
    settle(world, FIRST_HOUR)
    assert (grades(world), grades(world, "view")) == ([], ["proved"])
    assert (frontier(world).state, wait_of(world).phase) == (HourState.OPEN, "unwritable")
    assert f"no schema with id {UNKNOWN}" in wait_of(world).what[0]
    override(world)
    poll_again(world)
    marker = closed(world)
    assert (marker.grade.value, marker.events, marker.left_out) == ("forced", 1, 1)
    assert marker.lacks == MissingRanges(more=True), "of which ranges the rows are, no row tells"
    (left_out,) = (text for text in marker.evidence.waived if text.startswith("left out: "))
    assert f"its schema id {UNKNOWN} stands for no schema" in left_out
    assert frontier(world).hour > FIRST_HOUR


def test_a_sealed_hour_with_a_row_that_cannot_be_written_closes_by_an_override_without_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(world, ["click", "view"], AT_MS)
    append(world, framing_header(SCHEMA_IDS["click"]) + b"\xff\xff\xff")
    as_staged_by_version_0_3_0(world, monkeypatch)
    settle(world, FIRST_HOUR)
    assert (grades(world), grades(world, "view")) == ([], ["proved"])
    assert (frontier(world).state, wait_of(world).phase) == (HourState.SEALED, "unwritable")
    assert (
        "1 rows cannot be written: event " in wait_of(world).what[0]
        and "bucket force" in wait_of(world).what[0]
    )
    assert not is_override_ineffective(frontier(world), wait_of(world))
    override(world)
    poll_again(world)
    marker = closed(world)
    assert (marker.grade.value, marker.events, marker.left_out) == ("forced", 1, 1)
    assert marker.lacks == MissingRanges(more=True), "of which ranges the rows are, no row tells"
    assert marker.evidence.waived[0].startswith("forced by ")
    poll_again(world)
    assert frontier(world).hour > FIRST_HOUR


def test_a_promise_of_a_row_that_was_left_out_is_missed_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the hour after it would be `proved`, although the event is in no bucket."""
    send(world, ["click"], AT_MS)
    sent = world.producers.ranges[-1]
    send(world, ["click"], AT_MS + 1, recorded=False)
    late = world.producers.ranges[-1]
    assert late is not sent
    log = world.producers.edge.logs[Partition(events_topic("click"), 0)].records
    for at, record in enumerate(log):
        if record is not None and record.key == RecordKey(late.events[0].id, late.id).encode():
            log[at] = type(record)(record.key, record.value[:-1] + b"\xff\xff", record.at_ms)
    as_staged_by_version_0_3_0(world, monkeypatch)
    settle(world, FIRST_HOUR)
    assert wait_of(world).phase == "unwritable"
    override(world)
    poll_again(world)
    assert closed(world).left_out == 1
    world.producers.promise(late, late.events)
    # the judge knows of no row that is left out
    world.check = lambda: None  # type: ignore[method-assign]
    settle(world, FIRST_HOUR.next())
    assert frontier(world).hour == FIRST_HOUR.next() and wait_of(world).phase == "proof"


def test_a_copy_of_a_row_that_was_left_out_is_no_second_reading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range is sent again, later and whole: the event is in no closed bucket, and its hour need
    not wait for that.
    """
    world.producers.older_services = (
        True  # else the marker names the range, as its checksum differs
    )
    for event_type in ("view", "view", "click"):
        send(world, [event_type], AT_MS)
    sent = world.producers.ranges[-1]
    assert not sent.has_checksums
    log = world.producers.edge.logs[Partition(events_topic("click"), 0)].records
    at = next(n for n, record in enumerate(log) if record is not None)
    whole = log[at]
    assert whole is not None
    log[at] = type(whole)(whole.key, whole.value[:-1] + b"\xff\xff", whole.at_ms)
    as_staged_by_version_0_3_0(world, monkeypatch)
    settle(world, FIRST_HOUR)
    override(world)
    poll_again(world)
    assert closed(world).left_out == 1
    # the judge knows of no row that is left out
    world.check = lambda: None  # type: ignore[method-assign]
    send_again(world, sent)
    settle(world, FIRST_HOUR.next())
    poll_again(world)
    late = read_manifest(world.storage, "click", FIRST_HOUR.next())
    assert (late.events, late.late) == (1, {str(FIRST_HOUR): 1})


def test_a_damaged_row_of_a_schema_is_repaired_and_not_overridden(world: World) -> None:
    send(world, ["click"], AT_MS)
    arrive(world)
    own = tables.schemas.c.schema_id == SCHEMA_IDS["click"]
    row = dict(world.database.fetch(select(tables.schemas).where(own)).mappings().one())
    with world.database.transaction() as connection:
        connection.execute(delete(tables.schemas).where(own))
        connection.execute(tables.schemas.insert().values(**row | {"schema": '{"type":"string"}'}))
    settle(world, FIRST_HOUR)
    assert (
        wait_of(world).phase == "ledger"
        and str(DamagedRow("schemas", "schema_id 1"))[:20] in wait_of(world).what[0]
    )
    override(world)
    poll_again(world)
    assert (
        not world.storage.exists(FIRST_HOUR.bucket_path("click"))
        and frontier(world).state is HourState.OPEN
    )
    with world.database.transaction() as connection:
        connection.execute(delete(tables.schemas).where(own))
        connection.execute(tables.schemas.insert().values(**row))
    poll_again(world)
    assert (closed(world).grade.value, closed(world).events, closed(world).left_out) == (
        "forced",
        1,
        0,
    )
