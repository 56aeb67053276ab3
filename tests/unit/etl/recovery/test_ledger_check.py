"""The check finds nothing in a sound ledger at any step of its life, and each planted fault by its
kind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.bucket_chains import remove_bucket
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.ledger_queries import rewrite
from tests.support.records import rewritten

from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.tombstones import date_of, tombstone_path
from hourmark_etl.ledger import tables
from hourmark_etl.recovery.check import LedgerFault, check_ledger

SECOND = FIRST.next()


@pytest.fixture
def life(life: Life) -> Life:
    """One closed hour of click, with a late group in the second, which is open; view is open."""
    life.produce("click", FIRST, 5)
    life.take_in("view", FIRST, 2)
    life.close("click")
    life.produce("click", FIRST, 1)
    life.take_in("click", SECOND, 1)
    return life


def kinds(life: Life) -> list[LedgerFault]:
    return [f.kind for f in check_ledger(life.database, life.storage, LENGTH_S, life.topics)]


def sql(life: Life, statement: str) -> None:
    with life.database.transaction() as connection:
        connection.exec_driver_sql(statement)


def delete_needed_file(life: Life) -> None:
    life.storage.delete(files(life, "events")[0])


def files(life: Life, kind: str) -> list[str]:
    """Staged files of the newest batch."""
    folder = life.batches[-1]
    return [
        f"{folder}/{entry.name}"
        for entry in life.storage.list(folder)
        if entry.name.startswith(kind)
    ]


def damage_needed_file(life: Life) -> None:
    path = files(life, "events")[0]
    content = life.storage.read(path)
    life.storage.delete(path)
    life.storage.write_new(path, content[:-20])


def change_marker(life: Life) -> None:
    path = f"{FIRST.bucket_path('click')}/{MARKER}"
    content = life.storage.read(path)
    life.storage.delete(path)
    life.storage.write_new(path, rewritten(content, attempt="another"))


def put_frontier(life: Life, event_type: str, **changed: object) -> None:
    rewrite(life.database, tables.frontiers, tables.frontiers.c.type == event_type, **changed)


def publish_unknown(life: Life) -> None:
    content = rewritten(life.storage.read(f"{FIRST.bucket_path('click')}/{MARKER}"), type="view")
    life.storage.write_new(f"{FIRST.bucket_path('view')}/{MARKER}", content)


def test_nothing_is_found_at_any_step(life: Life) -> None:
    assert kinds(life) == []
    life.freeze("view")
    assert kinds(life) == []
    life.close("click", in_ledger=False)
    assert kinds(life) == []


def test_a_removed_bucket_is_compared_with_its_tombstone(life: Life) -> None:
    remove_bucket(life.storage, "click", FIRST)
    assert kinds(life) == []
    path = tombstone_path("click", date_of(FIRST))
    content = life.storage.read(path)
    life.storage.delete(path)
    life.storage.write_new(path, content[:-20])
    assert kinds(life) == [LedgerFault.MARKER]
    life.storage.delete(path)
    assert kinds(life) == [LedgerFault.MARKER], "without a tombstone, it is missing"


def test_files_that_nothing_needs_may_be_gone(life: Life) -> None:
    life.close("view")
    life.close("click")
    for kind in ("events", "audit"):
        life.storage.delete(files(life, kind)[0])
    assert kinds(life) == []


FAULTS: dict[str, tuple[LedgerFault, Callable[[Life], object]]] = {
    "a bucket forgotten": (LedgerFault.CHAIN, lambda life: sql(life, "DELETE FROM buckets")),
    "a frontier set back": (
        LedgerFault.CHAIN,
        lambda life: put_frontier(life, "click", hour=FIRST.start_s),
    ),
    "sealed without a seal": (
        LedgerFault.SEAL,
        lambda life: put_frontier(life, "view", state="sealed"),
    ),
    "listed for an open hour": (
        LedgerFault.LISTING,
        lambda life: sql(
            life,
            f"UPDATE staged_groups SET listed_hour = {SECOND.start_s} WHERE listed_hour IS NULL",
        ),
    ),
    "listed for an earlier hour": (
        LedgerFault.LISTING,
        lambda life: sql(
            life,
            f"UPDATE staged_groups SET listed_hour = {FIRST.start_s} WHERE hour = {SECOND.start_s}",
        ),
    ),
    "a group lost": (
        LedgerFault.SUMS,
        lambda life: sql(life, "DELETE FROM staged_groups WHERE type = 'view'"),
    ),
    "promises lost": (
        LedgerFault.SUMS,
        lambda life: sql(life, "DELETE FROM audit_groups WHERE type = 'view'"),
    ),
    "a marker lost": (
        LedgerFault.MARKER,
        lambda life: life.storage.delete(f"{FIRST.bucket_path('click')}/{MARKER}"),
    ),
    "a marker changed": (LedgerFault.MARKER, change_marker),
    "a marker that the ledger does not know": (LedgerFault.OLDER_COPY, publish_unknown),
    "a staged file lost": (LedgerFault.FILE, delete_needed_file),
    "a staged file cut off": (LedgerFault.FILE, damage_needed_file),
    "a row too many in a file": (
        LedgerFault.FILE,
        lambda life: sql(life, "UPDATE staged_files SET rows = rows + 1"),
    ),
    "an offset beyond the topic": (
        LedgerFault.POSITION,
        lambda life: sql(life, "UPDATE positions SET next_offset = 99 WHERE topic = 'events.view'"),
    ),
    "an offset below the log start": (
        LedgerFault.POSITION,
        lambda life: life.topics.log_starts.update({"events.view": 9}),
    ),
    "a topic recreated": (
        LedgerFault.POSITION,
        lambda life: sql(life, "UPDATE positions SET topic_id = 'x' WHERE topic = 'events.view'"),
    ),
    "a topic gone": (LedgerFault.POSITION, lambda life: life.topics.logs.pop("events.view")),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_by_its_kind(life: Life, fault: str) -> None:
    kind, plant = FAULTS[fault]
    plant(life)
    assert kind in kinds(life)
