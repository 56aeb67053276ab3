"""A driver with an older copy of the ledger, or another one, is stopped at its start; first hours
are kept on storage too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.bucket_chains import expire_days
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.records import rewritten
from tests.support.rules import put_rules

from hourmark.config.groups import EtlSettings
from hourmark.config.loading import Config
from hourmark.errors import Finding
from hourmark_etl.errors import ForeignLedger
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.recovery.check import check_markers
from hourmark_etl.recovery.first_hours import FirstHours, read_first_hours, record_first_hours
from hourmark_etl.recovery.markers import check_older_copy
from hourmark_etl.storage import AccessDenied, BadBlocks
from hourmark_etl.storage.interface import StorageEntry


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """A file, which can be copied."""
    return f"sqlite:///{tmp_path}/ledger.sqlite"


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[list[Database]]:
    """Whatever a test copies is closed at its end."""
    made: list[Database] = []
    yield made
    for database in made:
        database.close()


def copy_of(folder: Path, copied: list[Database]) -> Database:
    """The ledger as it is now, as a backup would keep it."""
    with (
        sqlite3.connect(folder / "ledger.sqlite") as source,
        sqlite3.connect(folder / "copy.sqlite") as kept,
    ):
        source.backup(kept)
    source.close()
    kept.close()
    copied.append(Database(f"sqlite:///{folder}/copy.sqlite"))
    return copied[-1]


def check(life: Life, database: Database | None = None) -> None:
    """The ledger, or another one, at a driver's start."""
    check_older_copy(life.storage, database or life.database, LENGTH_S)


def test_the_newest_ledger_is_taken_at_every_step(life: Life) -> None:
    check(life)
    for _ in range(3):
        life.close("click")
        check(life)
    life.close("view", in_ledger=False)
    check(life)
    life.freeze("click")
    check(life)


@pytest.mark.parametrize("closed_before", [0, 1, 2])
@pytest.mark.parametrize("closed_since", [1, 2])
def test_yesterdays_copy_is_refused(
    life: Life, tmp_path: Path, copied: list[Database], closed_before: int, closed_since: int
) -> None:
    for _ in range(closed_before):
        life.close("click")
    older = copy_of(tmp_path, copied)
    for _ in range(closed_since):
        life.close("click")
    with pytest.raises(
        ForeignLedger,
        match=(
            r"click .* older copy or a different ledger; restore the newest copy, or .*hourmark ledger "
            r"rebuild"
        ),
    ):
        check(life, older)


@pytest.mark.parametrize("closed_before", [0, 1])
def test_an_older_copy_is_refused_even_if_the_hours_since_were_removed(
    life: Life, tmp_path: Path, copied: list[Database], closed_before: int
) -> None:
    for _ in range(closed_before):
        life.close("click")
    older = copy_of(tmp_path, copied)
    for _ in range(30):
        life.close("click")
    expire_days(life.storage, "click", life.now_ms + 86_400_000, days=1)
    assert not life.storage.exists(FIRST.next().bucket_path("click"))
    check(life)
    with pytest.raises(ForeignLedger, match="older copy or a different ledger"):
        check(life, older)


def test_a_copy_that_had_sealed_what_was_closed_since_goes_on_unless_more_was(
    life: Life, tmp_path: Path, copied: list[Database]
) -> None:
    life.close("click", in_ledger=False)
    older = copy_of(tmp_path, copied)
    check(life, older)
    manifest = rewritten(
        life.storage.read(f"{FIRST.bucket_path('click')}/_SUCCESS"), hour=str(FIRST.next())
    )
    life.storage.write_new(f"{FIRST.next().bucket_path('click')}/_SUCCESS", manifest)
    with pytest.raises(ForeignLedger, match="has not sealed it"):
        check(life, older)


def test_a_new_ledger_on_an_old_root_is_refused(
    life: Life, tmp_path: Path, copied: list[Database]
) -> None:
    life.close("click")
    url = f"sqlite:///{tmp_path}/new.sqlite"
    copied.append(Database(url))
    with pytest.raises(ForeignLedger, match="types that are not in this ledger"):
        check(life, copied[0])
    later = FIRST.next().next()
    put_rules(Config(etl=EtlSettings(ledger=url)), life.declared, life.sources, later)
    with pytest.raises(ForeignLedger, match="has closed no bucket of the type"):
        check(life, copied[0])


@pytest.mark.parametrize(
    "stray",
    [
        "click",
        FIRST.next().bucket_path("click"),
        FIRST.bucket_path("view"),
        "other",
        FIRST.bucket_path("other"),
    ],
)
def test_folders_without_a_marker_say_nothing_of_the_ledger(life: Life, stray: str) -> None:
    life.storage.make_folder(stray)
    check(life)


def test_a_bucket_of_a_later_commit_than_the_ledgers_is_refused(life: Life, tmp_path: Path) -> None:
    life.close("click")
    with life.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE meta SET value = '1' WHERE key = 'commit'")
    with pytest.raises(ForeignLedger, match=r"was closed by ledger .*commit"):
        check(life)


def test_first_hours_are_recorded_once_and_new_types_beside_them(
    life: Life, ledger_url: str
) -> None:
    ledger = life.database.identity()[0]
    record_first_hours(life.storage, life.database, LENGTH_S)
    (only,) = read_first_hours(life.storage)
    assert (only.ledger, only.first_hours_s) == (
        ledger,
        {"click": FIRST.start_s, "view": FIRST.start_s},
    )
    more = life.declared[0].model_copy(update={"name": "more"})
    put_rules(
        Config(etl=EtlSettings(ledger=ledger_url)),
        [*life.declared, more],
        life.sources,
        FIRST.next(),
    )
    record_first_hours(life.storage, life.database, LENGTH_S)
    assert [r.first_hours_s for r in read_first_hours(life.storage)][1:] == [
        {"more": FIRST.next().start_s}
    ]


def test_a_damaged_record_of_first_hours_is_named(life: Life) -> None:
    life.storage.write_new("_ledger/first-hours-x.json", b"{}")
    with pytest.raises(
        Finding,
        match=r"(?s)first-hours-x\.json: not a valid record of first hours.* Restore it from a copy",
    ):
        read_first_hours(life.storage)
    record = FirstHours(format=1, ledger="l", commit=1, first_hours_s={"a": 2})
    assert FirstHours.decode(record.encode()) == record


def unreadable(life: Life, path: str, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands there is cut short, or storage has lost it."""
    real = life.storage.read

    def read(asked: str, *, size: int | None = None) -> bytes:
        if asked == path and trouble == "lost":
            raise BadBlocks(asked, life.storage.url(asked), "no live replica has it")
        return real(asked, size=size)[: 50 if asked == path else None]

    monkeypatch.setattr(life.storage, "read", read)


@pytest.mark.parametrize("trouble", ["damaged", "lost"])
def test_a_record_of_first_hours_that_cannot_be_read_stops_no_driver_and_is_made_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    (entry,) = [e for e in life.storage.list("_ledger") if e.name.startswith("first-hours-")]
    unreadable(life, f"_ledger/{entry.name}", trouble, monkeypatch)
    record_first_hours(life.storage, life.database, LENGTH_S)
    with pytest.raises(Finding, match=r"Restore it from a copy\. If there is no copy, delete it"):
        read_first_hours(life.storage)
    life.storage.delete(f"_ledger/{entry.name}")
    assert [r.first_hours_s for r in read_first_hours(life.storage)] == [
        {"click": FIRST.start_s, "view": FIRST.start_s}
    ]


@pytest.mark.parametrize("trouble", ["damaged", "lost"])
def test_the_last_marker_of_a_type_that_cannot_be_read_stops_no_driver(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    life.close("click")
    unreadable(life, f"{FIRST.bucket_path('click')}/_SUCCESS", trouble, monkeypatch)
    check(life)
    assert f"cannot read by which ledger click {FIRST} was closed" in caplog.text
    told = check_markers(life.database, life.storage, frontiers(life.database, LENGTH_S), {})
    assert [f.where for f in told] == [f"click {FIRST}"]


def test_a_folder_of_somebody_else_that_may_not_be_looked_into_stops_no_driver(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life.storage.make_folder("tmp")
    real = life.storage.list

    def listed(folder: str) -> list[StorageEntry]:
        if folder == "tmp":
            raise AccessDenied(folder, life.storage.url(folder), "denied")
        return real(folder)

    monkeypatch.setattr(life.storage, "list", listed)
    check(life)
    assert "so it is ignored" in caplog.text
