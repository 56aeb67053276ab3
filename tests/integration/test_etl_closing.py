"""The ETL on real Kafka, HDFS and Spark: what is promised is in one closed bucket, once; what is missing keeps it open."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.support.delivery import DirectDelivery, Range
from tests.support.etl import EtlRun, own_settings
from tests.support.waiting import wait_for

from hourmark.errors import Unavailable
from hourmark.event_id import EventId
from hourmark.hours import Hour
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_infra.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

# Unique, because topics of a stack that is used again keep what earlier runs wrote.
CLICK, BROKEN = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("click", "broken"))


@pytest.fixture(scope="module")
def first_hour() -> Hour:
    """Ten minutes ago: hours of the past can be closed at once."""
    return Hour.of(time.time_ns() // 1_000_000 - 600_000, 60)


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory, first_hour: Hour) -> Iterator[EtlRun]:
    folder = tmp_path_factory.mktemp(f"etl-{uuid.uuid4().hex[:6]}-")
    with EtlRun(stack.layout.config_file, folder, [CLICK, BROKEN], first_hour) as made:
        yield made


@pytest.fixture(scope="module")
def delivery(run: EtlRun) -> DirectDelivery:
    return DirectDelivery(run.config)


def times(hour: Hour, count: int) -> list[int]:
    return [hour.start_s * 1000 + 500 * n for n in range(count)]


def ids_in(run: EtlRun, event_type: str, hour: Hour) -> list[EventId]:
    """Every id in the bucket, read by a stock Avro reader."""
    manifest = run.manifest(event_type, hour)
    assert manifest is not None
    found = []
    for file in manifest.files:
        with run.storage.open(f"{hour.bucket_path(event_type)}/{file.name}") as stream:
            rows: Any = fastavro.reader(stream)
            found += [EventId(row["event_id"]) for row in rows]
    return found


def ids_of(*ranges: Range) -> list[EventId]:
    return sorted(event_id for r in ranges for _, event_id, _ in r.events)


def test_an_hour_holds_each_promised_event_once_and_names_unaudited_and_duplicates(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    promised = delivery.make(CLICK, times(first_hour, 100))
    delivery.deliver(promised)
    delivery.deliver(promised)  # the ack was lost
    delivery.deliver(delivery.recut(promised))  # the checkpoint was lost
    unaudited = delivery.make(CLICK, times(first_hour, 3))
    delivery.send_events(unaudited)  # the service was killed before the audit record
    delivery.report(first_hour.end_ms)
    manifest = run.closed(CLICK, first_hour)
    assert sorted(ids_in(run, CLICK, first_hour)) == ids_of(promised, unaudited)
    assert (manifest.events, manifest.duplicates_removed, manifest.unaudited) == (103, 200, 3)
    assert (manifest.grade.value, manifest.evidence.method, manifest.evidence.promised) == ("proved", "join", 200)
    assert verify_bucket(run.storage, CLICK, first_hour).findings == ()


def test_late_events_go_to_the_next_bucket_and_what_a_bucket_holds_already_goes_to_none(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    second, third = first_hour.next(), first_hour.next().next()
    before = ids_in(run, CLICK, first_hour)
    on_time, late = delivery.make(CLICK, times(second, 10)), delivery.make(CLICK, times(first_hour, 5))
    delivery.deliver(on_time)
    delivery.deliver(late)
    delivery.report(second.end_ms)
    manifest = run.closed(CLICK, second)
    assert sorted(ids_in(run, CLICK, second)) == ids_of(on_time, late)
    assert manifest.late == {str(first_hour): 5}
    assert {f.name.split("-")[0] for f in manifest.files} == {"part", "late"}
    assert ids_in(run, CLICK, first_hour) == before
    delivery.deliver(delivery.recut(late))
    delivery.deliver(delivery.recut(on_time))
    delivery.report(third.end_ms)
    manifest = run.closed(CLICK, third)
    assert (manifest.events, manifest.duplicates_removed, manifest.unaudited) == (0, 15, 0)
    assert manifest.grade.value == "proved"


def test_an_empty_hour_is_closed_with_a_marker_alone(run: EtlRun, delivery: DirectDelivery, first_hour: Hour) -> None:
    fourth = Hour(first_hour.start_s + 180, 60)
    delivery.report(fourth.end_ms)
    manifest = run.closed(CLICK, fourth)
    assert (manifest.events, manifest.files, manifest.grade.value) == (0, [], "proved")
    assert [entry.name for entry in run.storage.list(fourth.bucket_path(CLICK))] == ["_SUCCESS"]


def test_a_promise_that_is_not_kept_keeps_its_type_open_names_the_range_and_holds_nobody_up(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    fifth = Hour(first_hour.start_s + 240, 60)
    broken = delivery.make(BROKEN, times(fifth, 20))
    delivery.send_events(broken, leave_out=1)
    delivery.send_audit(broken)
    delivery.report(fifth.end_ms)
    run.closed(CLICK, fifth)
    wait_for(lambda: run.logged(broken.range_id.hex()), "the range without all its events is named")
    assert run.logged(f"{BROKEN} {fifth} is not proved and stays open")
    assert run.manifest(BROKEN, fifth) is None
    delivery.send_events(broken)  # what was missing arrives after all
    assert run.closed(BROKEN, fifth).events == 20


def test_a_folder_that_is_no_bucket_stops_its_type_alone_until_it_is_moved_away(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    sixth = Hour(first_hour.start_s + 300, 60)
    run.storage.make_folder(sixth.bucket_path(BROKEN))
    delivery.report(sixth.end_ms)
    run.closed(CLICK, sixth)
    wait_for(lambda: run.logged(f"{BROKEN} {sixth} is sealed and cannot be published"), "the folder in the way is named")
    assert run.running()
    run.storage.delete(sixth.bucket_path(BROKEN))
    assert run.closed(BROKEN, sixth).events == 0


def test_another_ledger_on_the_same_root_stops_before_it_writes(run: EtlRun, first_hour: Hour, tmp_path: Path) -> None:
    before = {h: run.manifest(CLICK, h) for h in (first_hour, first_hour.next())}
    folder = tmp_path / "another"
    other = EtlRun(run.file, folder, [CLICK, BROKEN], first_hour)  # begun on a root of its own: on this one it is refused
    with pytest.raises(Unavailable, match="it is lost"):
        EtlRun(run.file, tmp_path / "a third", [CLICK], first_hour, root=run.config.storage.root)
    other.file.write_text(own_settings(run.file, folder, run.config.storage.root, {}, "edge"))
    with other:
        wait_for(lambda: not other.running(), "the driver with the other ledger ends", 120)
        assert other.exit_code() == 1
        assert other.logged("this ledger is an")
    assert before == {h: run.manifest(CLICK, h) for h in before}
    assert verify_bucket(run.storage, CLICK, first_hour).findings == ()


@pytest.mark.long
def test_the_driver_killed_at_random_moments_loses_and_doubles_nothing(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    hours = [Hour(first_hour.start_s + 60 * n, 60) for n in range(6, 9)]
    sent: list[Range] = []
    for hour in hours:
        for _ in range(5):
            sent.append(delivery.make(CLICK, [*times(hour, 40), *times(first_hour, 1)]))
            delivery.deliver(sent[-1])
        delivery.report(hour.end_ms)
        run.wait_until_staging()
        moment = time.monotonic() + chance.uniform(0, 8)
        wait_for(lambda until=moment: time.monotonic() > until, "the moment to kill")  # type: ignore[misc]
        run.kill()
        run.start()
    run.closed(CLICK, hours[-1])
    found: list[EventId] = []
    for n in range(9):
        hour = Hour(first_hour.start_s + 60 * n, 60)
        assert verify_bucket(run.storage, CLICK, hour).findings == (), f"seed {seed}"
        found += ids_in(run, CLICK, hour)
    assert len(found) == len(set(found)), f"an event is in two buckets (seed {seed})"
    assert set(ids_of(*sent)) <= set(found), f"an acknowledged event is missing (seed {seed})"
