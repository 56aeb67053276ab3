"""The ETL on real Kafka, HDFS and Spark: what is promised is in one closed bucket, once; what is
missing keeps it open.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.integration.delivered import ids_in, ids_of, times
from tests.support.delivery import DirectDelivery, Range
from tests.support.etl import EtlRun, own_settings
from tests.support.waiting import wait_for

from hourmark.errors import Unavailable
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.storage import FolderStorage

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

# Unique, because topics of a stack that is used again keep what earlier runs wrote.
TYPES = CLICK, BROKEN = tuple(f"{name}-{uuid.uuid4().hex[:8]}" for name in ("click", "broken"))


@pytest.fixture(scope="module")
def hours(first_hour: Hour) -> Iterator[Hour]:
    """One hour after the other: whoever takes one can close it, as those before it close with it,
    empty or not.
    """
    return (Hour(first_hour.start_s + 60 * n, 60) for n in itertools.count())


def test_an_hour_holds_each_promised_event_once_and_names_unaudited_and_duplicates(
    run: EtlRun, delivery: DirectDelivery, hours: Iterator[Hour]
) -> None:
    hour = next(hours)
    promised = delivery.make(CLICK, times(hour, 100))
    delivery.deliver(promised)
    delivery.deliver(promised)  # the ack was lost
    delivery.deliver(delivery.recut(promised))  # the checkpoint was lost
    unaudited = delivery.make(CLICK, times(hour, 3))
    delivery.send_events(unaudited)  # the service was killed before the audit record
    delivery.report(hour.end_ms)
    manifest = run.closed(CLICK, hour)
    assert ids_in(run, CLICK, hour) == ids_of(promised, unaudited)
    assert (manifest.events, manifest.duplicates_removed, manifest.unaudited) == (103, 200, 3)
    assert (manifest.grade.value, manifest.evidence.method, manifest.evidence.promised) == (
        "proved",
        "join",
        200,
    )
    assert verify_bucket(run.storage, CLICK, hour).findings == ()


def test_late_events_go_to_the_next_bucket_and_what_a_bucket_holds_already_goes_to_none(
    run: EtlRun, delivery: DirectDelivery, hours: Iterator[Hour]
) -> None:
    first, second, third = itertools.islice(hours, 3)
    delivery.deliver(delivery.make(CLICK, times(first, 4)))
    delivery.report(first.end_ms)
    before = run.closed(CLICK, first)
    on_time, late = delivery.make(CLICK, times(second, 10)), delivery.make(CLICK, times(first, 5))
    delivery.deliver(on_time)
    delivery.deliver(late)
    delivery.report(second.end_ms)
    manifest = run.closed(CLICK, second)
    assert ids_in(run, CLICK, second) == ids_of(on_time, late)
    assert manifest.late == {str(first): 5}
    assert {f.name.split("-")[0] for f in manifest.files} == {"part", "late"}
    assert (
        run.manifest(CLICK, first) == before
        and verify_bucket(run.storage, CLICK, first).findings == ()
    )
    delivery.deliver(delivery.recut(late))
    delivery.deliver(delivery.recut(on_time))
    delivery.report(third.end_ms)
    manifest = run.closed(CLICK, third)
    assert (manifest.events, manifest.duplicates_removed, manifest.unaudited) == (0, 15, 0)
    assert manifest.grade.value == "proved"


def test_an_empty_hour_is_closed_with_a_marker_alone(
    run: EtlRun, delivery: DirectDelivery, hours: Iterator[Hour]
) -> None:
    hour = next(hours)
    delivery.report(hour.end_ms)
    manifest = run.closed(CLICK, hour)
    assert (manifest.events, manifest.files, manifest.grade.value) == (0, [], "proved")
    assert [entry.name for entry in run.storage.list(hour.bucket_path(CLICK))] == ["_SUCCESS"]


def test_a_promise_that_is_not_kept_keeps_its_type_open_names_the_range_and_holds_nobody_up(
    run: EtlRun, delivery: DirectDelivery, hours: Iterator[Hour]
) -> None:
    hour = next(hours)
    broken = delivery.make(BROKEN, times(hour, 20))
    delivery.send_events(broken, leave_out=1)
    delivery.send_audit(broken)
    delivery.report(hour.end_ms)
    run.closed(CLICK, hour)
    wait_for(lambda: run.logged(broken.range_id.hex()), "the range without all its events is named")
    assert run.logged(f"{BROKEN} {hour} is not proved and stays open")
    assert run.manifest(BROKEN, hour) is None
    delivery.send_events(broken)  # what was missing arrives after all
    assert run.closed(BROKEN, hour).events == 20


def test_a_folder_that_is_no_bucket_stops_its_type_alone_until_it_is_moved_away(
    run: EtlRun, delivery: DirectDelivery, hours: Iterator[Hour]
) -> None:
    hour = next(hours)
    cast(FolderStorage, run.storage).make_folder(hour.bucket_path(BROKEN))
    delivery.report(hour.end_ms)
    run.closed(CLICK, hour)
    wait_for(
        lambda: run.logged(f"{BROKEN} {hour} is sealed, but cannot be published"),
        "the folder in the way is named",
    )
    assert run.running()
    run.storage.delete(hour.bucket_path(BROKEN))
    assert run.closed(BROKEN, hour).events == 0


def test_another_ledger_on_the_same_root_stops_before_it_writes(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour, hours: Iterator[Hour], tmp_path: Path
) -> None:
    hour = next(hours)
    delivery.deliver(delivery.make(CLICK, times(hour, 5)))
    delivery.report(hour.end_ms)
    before = run.closed(CLICK, hour)
    folder = tmp_path / "another"
    other = EtlRun(
        run.file, folder, [CLICK, BROKEN], first_hour
    )  # begun on a root of its own: on this one it is refused
    with pytest.raises(Unavailable, match="contains closed"):
        EtlRun(run.file, tmp_path / "a third", [CLICK], first_hour, root=run.config.storage.root)
    other.file.write_text(own_settings(run.file, folder, run.config.storage.root, {}, "edge"))
    with other:
        wait_for(lambda: not other.running(), "the driver with the other ledger ends", 120)
        assert other.exit_code() == 1
        assert other.logged("this ledger is an")
    assert run.manifest(CLICK, hour) == before
    assert verify_bucket(run.storage, CLICK, hour).findings == ()


@pytest.mark.long
def test_the_driver_killed_at_random_moments_loses_and_doubles_nothing(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour, hours: Iterator[Hour]
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    sent: list[Range] = []
    for hour in itertools.islice(hours, 3):
        for _ in range(5):
            sent.append(delivery.make(CLICK, [*times(hour, 40), *times(first_hour, 1)]))
            delivery.deliver(sent[-1])
        delivery.report(hour.end_ms)
        run.wait_until_staging()
        moment = time.monotonic() + chance.uniform(0, 8)
        wait_for(lambda until=moment: time.monotonic() > until, "the moment to kill")  # type: ignore[misc]
        run.kill()
        run.start()
    run.closed(CLICK, hour)
    found: list[EventId] = []
    for start_s in range(first_hour.start_s, hour.end_s, 60):
        assert verify_bucket(run.storage, CLICK, Hour(start_s, 60)).findings == (), f"seed {seed}"
        found += ids_in(run, CLICK, Hour(start_s, 60))
    assert len(found) == len(set(found)), f"an event is in two buckets (seed {seed})"
    assert set(ids_of(*sent)) <= set(found), f"an acknowledged event is missing (seed {seed})"
