"""Checks that the buckets on storage belong to this ledger, and that it is the newest copy.

An older copy of the ledger would list events for buckets that exist already, and so lose them. A
new, empty ledger would write every event that Kafka still holds a second time. In both cases the
driver stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import find_marker
from hourmark_etl.closing.publication.port import PublishFailure
from hourmark_etl.errors import ForeignLedger
from hourmark_etl.model import AuditOffsets, Frontier, Seal
from hourmark_etl.storage import AccessDenied, Storage

_HELP: Final = (
    "Restore the newest copy of the ledger, or recreate it with `hourmark ledger rebuild`. If "
    "this is a new installation, use a separate storage.root. Nothing was changed"
)


def check_foreign_root(
    storage: Storage, frontiers: Iterable[Frontier], closed_types: Collection[str]
) -> list[PublishFailure]:
    """Check that the storage root does not belong to another ledger (the ETL's state database).

    If this ledger has not closed or sealed any bucket of a type, no bucket of the type may exist on
    storage. A bucket is sealed if its content is fixed. Folders without a `_SUCCESS` file are
    ignored, because administrators may create them in advance.

    Args:
        storage: Storage to check.
        frontiers: The next hour to close for each event type.
        closed_types: Event types with a closed bucket in the ledger.

    Returns:
        The types that could not be checked because storage denies access; empty if all were
        checked.

    Raises:
        ForeignLedger: A bucket of such a type exists.
        StorageError: Storage is unavailable.
    """
    failures = []
    for f in frontiers:
        if f.event_type in closed_types or f.seal is not None:
            continue
        try:
            if marker := find_marker(storage, f.event_type):
                raise ForeignLedger(
                    f"{storage.url(marker)} exists, but this ledger has not closed any bucket of "
                    f"{f.event_type}. {_HELP}"
                )
        except AccessDenied as error:
            failures.append(PublishFailure(f, error))
    return failures


def check_not_published(
    storage: Storage, open_frontiers: Collection[Frontier]
) -> list[PublishFailure]:
    """Check that no bucket exists for hours that are open in the ledger (the ETL's state database).

    Args:
        storage: Storage to check.
        open_frontiers: The open hours, one per event type.

    Returns:
        The hours that could not be checked because storage denies access; empty if all were
        checked.

    Raises:
        ForeignLedger: The bucket of an open hour exists, so another ledger has published it.
        StorageError: Storage is unavailable.
    """
    failures = []
    for f in open_frontiers:
        path = f"{f.hour.bucket_path(f.event_type)}/{MARKER}"
        try:
            if storage.exists(path):
                raise ForeignLedger(
                    f"{storage.url(path)} exists, but this ledger has not closed {f.event_type} "
                    f"{f.hour}. {_HELP}"
                )
        except AccessDenied as error:
            failures.append(PublishFailure(f, error))
    return failures


def check_seal_matches(manifest: Manifest, seal: Seal, ledger_id: str) -> None:
    """Check that an existing bucket has the content that is recorded in this ledger.

    The ledger (the ETL's state database) records the content of each bucket in a seal before the
    bucket is written.

    Args:
        manifest: Manifest of the existing bucket.
        seal: The seal of the bucket.
        ledger_id: Id of the ledger.

    Raises:
        ForeignLedger: The ledger ids, staging offsets or audit offsets differ.
    """
    offsets = {(o.topic_id, o.partition): o.next for o in manifest.offsets}
    sealed = {(p.topic_id, p.partition): p.next_offset for p in seal.offsets}
    if (
        manifest.ledger != ledger_id
        or offsets != sealed
        or AuditOffsets.from_offsets(manifest.evidence.audit_next) != seal.audit_next
    ):
        raise ForeignLedger(
            f"{manifest.type} {manifest.hour} was published by ledger {manifest.ledger} (commit "
            f"{manifest.ledger_commit}), and its content differs from what this ledger "
            f"{ledger_id} sealed. {_HELP}"
        )
