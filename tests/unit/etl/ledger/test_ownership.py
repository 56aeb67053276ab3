"""A ledger that is not the newest, or not the root's, is noticed before it lists anything."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.records import HOUR, TOPIC, evidence, frontier, manifest, position, seal

from hourmark.records.manifest import BucketOffset
from hourmark_etl.closing.ownership import (
    check_foreign_root,
    check_not_published,
    check_seal_matches,
)
from hourmark_etl.errors import ForeignLedger
from hourmark_etl.model import AuditOffsets, HourState
from hourmark_etl.storage import AccessDenied, LocalDisk

SEAL = seal(audit_next=7, offsets=(position(42),))
OPENED, SEALED = frontier(), frontier(state=HourState.SEALED, seal=SEAL)
MARKER = manifest(
    ledger="mine",
    evidence=evidence(audit_next={"0": 7}),
    offsets=[BucketOffset(topic=TOPIC, topic_id=SEAL.offsets[0].topic_id, partition=0, next=42)],
)


def test_an_open_hour_whose_bucket_stands_means_an_older_ledger(tmp_path: Path) -> None:
    storage = LocalDisk(root=tmp_path)
    check_not_published(storage, [OPENED])
    storage.write_new(f"{HOUR.bucket_path('click')}/_SUCCESS", b"{}")
    with pytest.raises(ForeignLedger, match="has not closed click 2027-01-15T08"):
        check_not_published(storage, [OPENED])
    check_not_published(storage, [frontier(hour=HOUR.next())])


def test_what_a_local_disk_does_not_let_be_seen_is_said_of_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path, **_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", denied)
        (trouble,) = check_not_published(LocalDisk(root=tmp_path), [OPENED])
    assert trouble.frontier == OPENED and isinstance(trouble.error, AccessDenied)


def test_a_root_with_buckets_and_a_ledger_without_means_a_lost_one(tmp_path: Path) -> None:
    storage = LocalDisk(root=tmp_path)
    check_foreign_root(storage, [OPENED], set())
    storage.write_new(f"{HOUR.bucket_path('click')}/_SUCCESS", b"{}")
    with pytest.raises(
        ForeignLedger, match="_SUCCESS exists, but this ledger has not closed any bucket of click"
    ):
        check_foreign_root(storage, [OPENED], set())
    check_foreign_root(storage, [OPENED], {"click"})
    check_foreign_root(storage, [SEALED], set())


@pytest.mark.parametrize(
    "stray",
    [
        "click",
        "click/date=2027-01-15",
        "click/date=2027-01-15/hour=07",
        "click/_SUCCESS/backup",
        "click/date=2027-01-15/minute=07",
    ],
)
def test_folders_without_a_marker_make_no_foreign_root(tmp_path: Path, stray: str) -> None:
    storage = LocalDisk(root=tmp_path)
    storage.make_folder(stray)
    storage.write_new(f"{stray}/notes.txt", b"quota: 1 TiB")
    storage.write_new("notes.txt", b"not a type")
    check_foreign_root(storage, [OPENED], set())


def test_buckets_of_another_length_make_a_foreign_root_too(tmp_path: Path) -> None:
    storage = LocalDisk(root=tmp_path)
    storage.make_folder("click/date=2027-01-14/hour=07")
    storage.write_new("click/date=2027-01-15/hour=07/minute=59/_SUCCESS", b"{}")
    with pytest.raises(ForeignLedger, match="minute=59/_SUCCESS exists"):
        check_foreign_root(storage, [OPENED], set())


def test_only_a_marker_of_the_own_seal_is_taken_as_the_truth() -> None:
    check_seal_matches(MARKER, SEAL, "mine")
    for other in (
        dataclasses.replace(SEAL, audit_next=AuditOffsets.from_offsets(8)),
        dataclasses.replace(SEAL, offsets=(position(41),)),
        dataclasses.replace(SEAL, offsets=()),
    ):
        with pytest.raises(ForeignLedger, match="and its content differs from"):
            check_seal_matches(MARKER, other, "mine")
    with pytest.raises(ForeignLedger, match="by ledger mine"):
        check_seal_matches(MARKER, SEAL, "another")
