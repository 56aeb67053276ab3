"""A bucket that was selected but not completed counts for every check of the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.object_clients import memory_objects

from hourmark.config.loading import Config, load_config
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import find_manifest
from hourmark_etl.buckets.selections import (
    InvalidSelection,
    SelectedHour,
    Selection,
    find_interrupted,
    find_selected_manifest,
    record_path,
    recorded_hours,
    selection_path,
)
from hourmark_etl.closing.publication.selection import SelectPublication
from hourmark_etl.errors import LostLedger
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators import ledger as ledger_commands
from hourmark_etl.recovery.check import LedgerFault, check_ledger
from hourmark_etl.storage import LocalDisk, ObjectStorage, Storage
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

CLICK = SelectedHour("click", FIRST)


@pytest.fixture
def storage() -> ObjectStorage:
    return memory_objects()


@pytest.fixture
def life(storage: ObjectStorage, tmp_path: Path) -> Iterator[Life]:
    made = Life(storage, f"sqlite:///{tmp_path}/ledger.sqlite")
    yield made
    made.database.close()


def select_only(life: Life) -> Manifest:
    """A closer is killed after it selected an attempt for the first hour of click."""
    manifest = life.close("click", in_ledger=False)
    life.storage.delete(FIRST.bucket_path("click"))
    select(life.storage, manifest)
    return manifest


def select(storage: Storage, manifest: Manifest) -> None:
    storage.write_new(record_path(*CLICK, manifest.attempt), manifest.encode())
    selection = Selection(
        attempt=manifest.attempt, marker=manifest.encode().decode(), sources={}
    ).model_dump_json()
    storage.write_new(selection_path(*CLICK), selection.encode())


def kinds(life: Life, database: Database) -> list[LedgerFault]:
    return [f.kind for f in check_ledger(database, life.storage, LENGTH_S, life.topics)]


def test_a_selected_hour_is_interrupted_until_its_bucket_has_a_marker(life: Life) -> None:
    assert find_interrupted(life.storage) == []
    manifest = select_only(life)
    life.storage.write_new(record_path(*CLICK, "other"), manifest.encode())
    assert find_interrupted(life.storage) == [CLICK]
    assert find_selected_manifest(life.storage, *CLICK) == manifest
    assert isinstance(life.storage, ObjectStorage)
    assert SelectPublication(life.storage).complete_interrupted() == [manifest, manifest]
    assert find_manifest(life.storage, *CLICK) == manifest
    assert find_interrupted(life.storage) == []


def test_a_recorded_attempt_that_was_not_selected_is_not_interrupted(life: Life) -> None:
    manifest = life.close("click", in_ledger=False)
    life.storage.delete(FIRST.bucket_path("click"))
    life.storage.write_new(record_path(*CLICK, "a"), manifest.encode())
    assert find_interrupted(life.storage) == []
    assert find_selected_manifest(life.storage, *CLICK) is None


def test_a_record_that_is_no_manifest_hides_no_other(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    bad = record_path(*CLICK, "0")
    life.storage.write_new(bad, b"{}")
    life.storage.write_new(f"{ATTEMPTS_FOLDER}/0/_tasks/1.avro", b"")
    manifest = select_only(life)
    assert manifest.attempt > "0"
    assert list(recorded_hours(life.storage)) == [CLICK]
    assert life.storage.url(bad) in caplog.text


def test_a_selection_that_is_not_valid_is_named(storage: ObjectStorage) -> None:
    storage.write_new(selection_path(*CLICK), b"{}")
    with pytest.raises(InvalidSelection, match="not a valid selection"):
        find_selected_manifest(storage, *CLICK)


def test_the_check_of_an_older_copy_finds_a_bucket_that_is_not_complete(
    life: Life, tmp_path: Path
) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as source,
        closing(sqlite3.connect(tmp_path / "copy.sqlite")) as kept,
    ):
        source.backup(kept)
    select_only(life)
    assert kinds(life, life.database) == [], "it is sealed in the newest copy"
    older = Database(f"sqlite:///{tmp_path}/copy.sqlite")
    assert kinds(life, older) == [LedgerFault.OLDER_COPY]
    older.close()


def test_a_ledger_is_lost_if_a_bucket_was_selected(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    select_only(life)
    monkeypatch.setattr(
        "hourmark_etl.ledger.maintenance.existing.open_storage", lambda _: life.storage
    )
    config = Config().model_copy(
        update={
            "etl": Config().etl.model_copy(update={"ledger": f"sqlite:///{tmp_path}/new.sqlite"})
        }
    )
    with pytest.raises(LostLedger, match="_selected/click/"):
        open_existing_ledger(config)


def test_a_rebuild_completes_selected_buckets_first(
    life: Life, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = select_only(life)
    read: list[Manifest | None] = []
    monkeypatch.setattr(ledger_commands, "open_storage", lambda _: life.storage)
    monkeypatch.setattr(ledger_commands, "read_rules", lambda _: None)

    def rebuild(sources: SimpleNamespace, *_: object) -> object:
        read.append(find_manifest(sources.storage, *CLICK))
        raise KeyboardInterrupt

    monkeypatch.setattr("hourmark_etl.recovery.rebuild.rebuild", rebuild)
    assert load_config(file).storage.root
    CliRunner().invoke(
        ledger_commands.ledger,
        ["rebuild", "--into", f"sqlite:///{tmp_path}/rebuilt.sqlite", "--config", str(file)],
    )
    assert read == [manifest]


def test_a_storage_with_folders_has_no_selections(tmp_path: Path) -> None:
    storage = LocalDisk(tmp_path)
    storage.write_new(f"{ATTEMPTS_FOLDER}/a/{FIRST.bucket_path('click')}/{MARKER}", b"")
    assert list(recorded_hours(storage)) == []
    assert find_interrupted(storage) == []
