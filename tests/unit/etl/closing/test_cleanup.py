"""Cleaning up: what stands in closed buckets goes, what may still be read stays, whatever was
interrupted in between.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.support.ledger_life import FIRST, Life
from tests.support.memory_storage import MemoryStorage

from hourmark.clock import SystemClock
from hourmark.config.groups import EtlSettings
from hourmark.config.loading import Config
from hourmark_etl.closing.cleanup import Cleaner, CleanupCounts
from hourmark_etl.errors import StaleDriver
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import create_truncation_gap
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap, put_gaps
from hourmark_etl.model import EARLIEST_MS, StagingPosition
from hourmark_etl.storage import AccessDenied, LocalDisk, StorageError
from hourmark_etl.storage.folders import INDEX_FOLDER
from hourmark_etl.storage.paths import SCRATCH

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
KEEP_S = 100.0
LONG_AFTER = FIRST.end_ms + 10 * 24 * HOUR_MS  # past every time for which anything is kept


@pytest.fixture
def life(ledger_url: str) -> Iterator[Life]:
    made = Life(MemoryStorage(), ledger_url, ["click", "dead-letters"])
    yield made
    made.database.close()


@pytest.fixture
def cleaner(life: Life) -> Cleaner:
    return Cleaner(
        life.storage,
        life.database,
        Config(etl=EtlSettings(staged_keep_seconds=KEEP_S)),
        SystemClock(),
    )


def clean(life: Life, cleaner: Cleaner, now_ms: int = LONG_AFTER) -> CleanupCounts:
    return cleaner.clean(life.closer, now_ms)


def named(life: Life) -> list[str]:
    with life.database.reading() as connection:
        return sorted(connection.execute(select(tables.staged_files.c.path)).scalars())


@pytest.mark.slow
def test_event_files_go_once_their_buckets_are_closed_and_not_before(
    life: Life, cleaner: Cleaner
) -> None:
    batch = life.take_in("click", FIRST, 3)
    events = next(f.path for f in batch.files if f.kind == "events")
    assert clean(life, cleaner).event_files == 0
    life.close("click")
    assert clean(life, cleaner, FIRST.end_ms + round(KEEP_S * 1000)).event_files == 0, (
        "the bucket was closed just now"
    )
    assert clean(life, cleaner, FIRST.end_ms + round(KEEP_S * 1000) + 1).event_files == 1
    assert not life.storage.exists(events) and events not in named(life)
    assert all(life.storage.exists(path) for path in named(life)) and named(life)


def test_a_file_with_one_open_group_stays(life: Life, cleaner: Cleaner) -> None:
    life.produce("click", FIRST, 3)
    life.take_in("click", FIRST.next(), 1)
    life.close("click")
    assert clean(life, cleaner).event_files == 0
    life.close("click")
    assert clean(life, cleaner).event_files == 1


def test_audit_files_stay_as_long_as_a_second_copy_may_come_and_then_the_whole_folder_goes(
    life: Life, cleaner: Cleaner
) -> None:
    batch = life.take_in("click", FIRST, 3)
    close_hours(life, "click", "dead-letters")
    kept_ms = (Config().kafka.retention_hours + 24) * HOUR_MS
    assert clean(life, cleaner, FIRST.end_ms + kept_ms).audit_files == 0
    assert clean(life, cleaner, FIRST.end_ms + kept_ms + 1).audit_files == 1
    assert named(life) == [] and not life.storage.exists(batch.folder), (
        "the folder goes with the last file"
    )


def close_hours(life: Life, *types: str) -> None:
    for _ in range(3):
        for event_type in types:
            life.close(event_type)


def test_promises_that_came_with_those_of_an_open_hour_stay_so_that_a_rebuild_finds_no_gap(
    life: Life, cleaner: Cleaner
) -> None:
    life.take_in("dead-letters", FIRST, 3)
    close_hours(life, "dead-letters")  # while click's first hour is open
    assert clean(life, cleaner).audit_files == 0
    close_hours(life, "click")
    assert clean(life, cleaner).audit_files == 1


def test_promises_of_an_open_hour_stay_however_old(life: Life, cleaner: Cleaner) -> None:
    life.take_in("click", FIRST, 3)
    life.close("dead-letters")
    assert clean(life, cleaner).audit_files == 0


def test_an_old_file_that_is_needed_holds_up_no_newer_one(
    life: Life, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_etl.closing.cleanup.FILES_AT_ONCE", 1)
    life.take_in("click", FIRST.next(), 1)
    for _ in range(3):
        life.take_in("click", FIRST, 1)
    life.close("click")
    assert sum(clean(life, cleaner).event_files for _ in range(5)) == 3


def test_folders_that_no_commit_can_name_any_more_go_and_those_of_a_batch_under_way_stay(
    life: Life, cleaner: Cleaner
) -> None:
    before = life.database.acquire("consumer:default").epoch
    now = life.database.acquire("consumer:default").epoch
    folders = {
        f"_staging/{before:012d}-default-{'a' * 32}": False,
        f"_staging/{now:012d}-default-{'b' * 32}": True,
        f"_staging/{before:012d}-big-{'c' * 32}": True,
        "_staging/somebody-else": True,
    }
    for folder in folders:
        life.storage.write_new(f"{folder}/events", b"rows")
    assert clean(life, cleaner).folders == 1
    assert {folder: life.storage.exists(folder) for folder in folders} == folders


def test_folders_that_the_ledger_does_not_know_stay_while_records_are_lost(
    life: Life, cleaner: Cleaner
) -> None:
    folder = f"_staging/{life.database.acquire('consumer:default').epoch:012d}-default-{'a' * 32}"
    life.database.acquire("consumer:default")
    life.storage.write_new(f"{folder}/events", b"rows")
    gap = OffsetGap(
        topic="events.click", accepted_at_ms=None, what="offsets [0, 3) are lost to retention"
    )
    for known, deleted in (
        (gap, 0),
        (dataclasses.replace(gap, accepted_at_ms=1, reason="an override"), 1),
    ):
        with life.database.transaction() as connection:
            put_gaps(connection, [known])
        assert clean(life, cleaner).folders == deleted


@pytest.mark.slow
@pytest.mark.parametrize(("before_ms", "deleted"), [(0, 0), (EARLIEST_MS - 1, 0), (EARLIEST_MS, 1)])
def test_they_stay_while_an_hour_is_open_that_a_log_may_have_lost_events_of(
    life: Life, cleaner: Cleaner, before_ms: int, deleted: int
) -> None:
    folder = f"_staging/{life.database.acquire('consumer:default').epoch:012d}-default-{'a' * 32}"
    life.database.acquire("consumer:default")
    life.storage.write_new(f"{folder}/events", b"rows")
    position = StagingPosition(
        cluster_id="c", topic_id="t", topic="events.click", partition=0, next_offset=9
    )
    found = create_truncation_gap("events.click", position)
    with life.database.transaction() as connection:  # an older copy of the ledger took it over
        put_gaps(
            connection,
            [
                dataclasses.replace(
                    found, accepted_at_ms=FIRST.start_s * 1000 - before_ms, reason="staged again"
                )
            ],
        )
    assert clean(life, cleaner).folders == deleted


def test_a_closer_that_was_replaced_deletes_nothing(life: Life, cleaner: Cleaner) -> None:
    stale = life.database.acquire("closer")
    life.database.acquire("closer")
    batch = life.take_in("click", FIRST, 3)
    life.closer = life.database.acquire("closer")
    life.close("click")
    with pytest.raises(StaleDriver):
        cleaner.clean(stale, LONG_AFTER)
    assert all(life.storage.exists(f.path) for f in batch.files)


def test_uploads_that_a_crash_cut_short_go_after_a_day(ledger_url: str, tmp_path: Path) -> None:
    storage = LocalDisk(tmp_path / "root")
    database = Database(ledger_url)
    cleaner = Cleaner(storage, database, Config(), SystemClock())
    lease = database.acquire("closer")
    crashed = storage.create("folder/file")
    crashed.__enter__().write(b"half")  # and no more is heard of it
    (tmp_path / "root" / ".unfinished" / "deletion").mkdir()  # of a folder, cut short
    (tmp_path / "root" / ".unfinished" / "deletion" / "file").write_bytes(b"old")
    now_ms = SystemClock().now_ms()
    assert cleaner.clean(lease, now_ms + 23 * HOUR_MS).folders == 0, "somebody may be writing it"
    assert cleaner.clean(lease, now_ms + 25 * HOUR_MS).folders == 2
    assert storage.list(".unfinished") == []
    with pytest.raises(StorageError):  # a writer that was paused for so long learns of it
        crashed.__exit__(None, None, None)
    assert not storage.exists("folder/file")
    database.acquire("closer")
    storage.write_new(".unfinished/another", b"")
    with pytest.raises(StaleDriver):
        cleaner.clean(lease, now_ms + 25 * HOUR_MS)
    assert storage.exists(".unfinished/another")
    database.close()


def test_what_may_not_be_deleted_holds_up_nothing_else(
    life: Life, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = [f"{SCRATCH}/{n}" for n in range(3)]
    for path in [*uploads, f"{INDEX_FOLDER}/20200101T000000-old.ids"]:
        life.storage.write_new(path, b"x")
    real = life.storage.delete

    def refused(path: str) -> None:
        if path == uploads[0]:
            raise AccessDenied(path, life.storage.url(path), "denied")
        real(path)

    monkeypatch.setattr(life.storage, "delete", refused)
    assert clean(life, cleaner, SystemClock().now_ms() + 10 * 24 * HOUR_MS).index_files == 1
    assert [path for path in uploads if life.storage.exists(path)] == uploads[:1]
    assert not life.storage.exists(f"{INDEX_FOLDER}/20200101T000000-old.ids")


def test_some_are_deleted_at_a_time(
    life: Life, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waits meanwhile, and after a ledger was restored there are hundreds of folders."""
    both = threading.Barrier(2, timeout=30)
    for n in range(2):
        life.storage.write_new(f"{SCRATCH}/{n}", b"x")
    monkeypatch.setattr(life.storage, "delete", lambda path: both.wait())
    assert clean(life, cleaner, SystemClock().now_ms() + 10 * 24 * HOUR_MS).folders == 2
