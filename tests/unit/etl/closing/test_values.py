"""A value that changed between the delivery service and the bucket is found, named, and never part
of a proved bucket.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.closing import (
    arrive,
    frontier,
    grade,
    hour,
    manifest,
    override,
    send,
    send_again,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.simulator.truth import FIRST_HOUR, make_template
from tests.support.simulator.world import World

from hourmark.avro.framing import framing_header, unframe
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark.records.audit import AuditRecord
from hourmark_etl.model import ClosingPhase
from hourmark_etl.operators.buckets.text import format_manifest

START_MS = FIRST_HOUR.start_s * 1000 + 600_000
AUDITS, CLICKS = (
    Partition(central_topic(AUDIT, "edge"), 0),
    Partition(central_topic(events_topic("click"), "edge"), 0),
)
Change = Callable[[bytes], bytes]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, make_template(tmp_path))
    with_engine_alone(made)
    yield made
    made.end()


def another_number(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 2])


def change(world: World, partition: Partition, at: int, how: Change) -> None:
    """What is in the central log changes, before it is staged, and its CRC is right."""
    world.pipeline.mirror_all(0)
    records = world.pipeline.central.logs[partition].records
    found = records[[n for n, record in enumerate(records) if record is not None][at]]
    records[records.index(found)] = dataclasses.replace(found, value=how(found.value))  # type: ignore[type-var, union-attr]


def without_checksums(value: bytes) -> bytes:
    record = AuditRecord.decode(unframe(value)[1])
    return (
        framing_header(1)
        + dataclasses.replace(
            record,
            promised=tuple(dataclasses.replace(p, checksum=None) for p in record.promised),
            blanks=0,
        ).encode()
    )


def other_checksums(value: bytes) -> bytes:
    record = AuditRecord.decode(unframe(value)[1])
    promised = tuple(
        dataclasses.replace(p, checksum=(p.checksum or 0) ^ 1) for p in record.promised
    )
    return framing_header(1) + dataclasses.replace(record, promised=promised).encode()


def test_an_hour_whose_values_are_those_of_its_promises_is_proved_by_sums_and_says_so(
    world: World,
) -> None:
    send(world, ["click"] * 3, START_MS)
    settle(world, FIRST_HOUR)
    found = manifest(world)
    assert (grade(world), found.evidence.method, found.checked) == ("proved", "sums", 3)
    assert "of 3 of 3 promised events verified by checksum" in format_manifest(
        world.storage, FIRST_HOUR, found
    )


@pytest.mark.parametrize("copies", [0, 1], ids=["sent once", "beside a copy that did not change"])
def test_an_hour_with_a_changed_value_is_not_proved_and_an_override_names_its_range(
    world: World, copies: int
) -> None:
    send(world, ["click"] * 3, START_MS)
    for _ in range(copies):
        send_again(world, world.producers.ranges[-1], recorded=True)
    change(world, CLICKS, 1, another_number)
    settle(world, FIRST_HOUR)
    blocked = wait_of(world)
    assert blocked.phase is ClosingPhase.PROOF and "values differ" in str(blocked)
    override(world)
    world.clock.advance(11)
    settle(world)
    assert grade(world) == "forced"
    (named,) = [text for text in manifest(world).evidence.waived if "values differ" in text]
    assert str(world.producers.ranges[-1].id) in named


def test_events_that_are_missing_are_not_called_values_that_differ(world: World) -> None:
    send(world, ["click"] * 3, START_MS)
    world.pipeline.mirror_all(0)
    world.pipeline.central.logs[CLICKS].records[0] = None
    settle(world, FIRST_HOUR)
    assert "3 events" in str(wait_of(world)) and "values differ" not in str(wait_of(world))


def test_an_hour_without_checksums_is_proved_by_its_ids_alone_and_counts_none_as_checked(
    world: World,
) -> None:
    send(world, ["click"] * 3, START_MS)
    change(world, AUDITS, 0, without_checksums)
    settle(world, FIRST_HOUR)
    assert (grade(world), manifest(world).evidence.method, manifest(world).checked) == (
        "proved",
        "sums",
        0,
    )


@pytest.mark.parametrize("changed", [False, True])
def test_where_some_promises_have_checksums_the_join_compares_those(
    world: World, changed: bool
) -> None:
    send(world, ["click"] * 3, START_MS)
    send(world, ["click"] * 2, START_MS + 1000)
    change(world, AUDITS, 0, without_checksums)
    if changed:
        change(world, CLICKS, 4, another_number)
    settle(world, FIRST_HOUR)
    if changed:
        assert "values differ" in str(wait_of(world))
    else:
        assert (grade(world), manifest(world).evidence.method, manifest(world).checked) == (
            "proved",
            "join",
            2,
        )


def test_a_second_record_with_equal_ids_and_other_values_is_a_conflict(world: World) -> None:
    send(world, ["click"] * 3, START_MS)
    settle(world, FIRST_HOUR)
    send_again(world, world.producers.ranges[-1], recorded=True)
    change(world, AUDITS, 1, other_checksums)
    send(world, ["click"], hour(1).start_s * 1000 + 1000)
    settle(world, hour(1))
    assert wait_of(world).phase is ClosingPhase.CONFLICT and frontier(world).hour == hour(1)
    assert "checksums of values, differ" in str(wait_of(world))


def test_a_late_copy_with_another_value_is_dropped_and_the_closed_bucket_stays(
    world: World,
) -> None:
    send(world, ["click"] * 3, START_MS)
    settle(world, FIRST_HOUR)
    send_again(world, world.producers.ranges[-1], recorded=True)
    change(world, CLICKS, 4, another_number)
    send(world, ["click"], hour(1).start_s * 1000 + 1000)
    settle(world, hour(1))
    assert (grade(world), grade(world, at=hour(1))) == ("proved", "proved")
    assert (manifest(world, at=hour(1)).duplicates_removed, manifest(world, at=hour(1)).events) == (
        3,
        1,
    )


def test_rows_without_a_record_keep_their_values_for_the_record_that_comes_later(
    world: World,
) -> None:
    send(world, ["click"] * 3, START_MS, recorded=False)
    change(world, CLICKS, 1, another_number)
    settle(world, FIRST_HOUR)
    assert (grade(world), manifest(world).unaudited) == ("proved", 3)
    sent = world.producers.ranges[-1]
    world.producers.promise(sent, sent.events)
    arrive(world)
    until(world, hour(1))
    settle(world)
    assert "values differ" in str(wait_of(world))
