"""Detects an older copy of the ledger by bucket markers that the ledger does not know."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from hourmark_etl.buckets.reader import (
    BadMarker,
    find_closed_manifest,
    find_marker,
    list_hours,
    list_types,
)
from hourmark_etl.errors import ForeignLedger
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import first_unsealed_hour, frontiers
from hourmark_etl.model import Frontier, HourState
from hourmark_etl.storage import AccessDenied, ContentLost, Storage, map_concurrently

_LOG: Final = logging.getLogger(__name__)
_HELP: Final = (
    "restore the newest copy, or recreate the ledger from storage with `hourmark ledger "
    "rebuild`. If this is a new installation, use a separate storage.root. Nothing was changed"
)


def check_older_copy(storage: Storage, database: Database, bucket_seconds: int) -> None:
    """Check that the ledger belongs to the buckets on storage and is not an older copy.

    An older copy lacks the buckets that were closed after the copy was made. The following
    conditions are checked:

    - Every event type that has buckets on storage is in the ledger.
    - The first hour of a type that the ledger has not sealed has no bucket on storage. An hour is
      sealed when the content of its bucket is fixed.
    - The last closed bucket of each type contains the id of this ledger, and a commit number that
      the ledger has reached.

    Args:
        storage: Storage with the buckets.
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.

    Raises:
        ForeignLedger: A bucket contradicts the ledger. The message explains how to restore or
            rebuild the ledger.
    """
    folders = set(list_types(storage))
    known = frontiers(database, bucket_seconds)
    suspected = _contradictions(
        storage,
        [f for f in known if f.event_type in folders and f.state is not HourState.DAMAGED],
        database.identity(),
    )
    if suspected:  # unless another driver has closed them since they were read
        now = [f for f in frontiers(database, bucket_seconds) if f.event_type in suspected]
        if still := _contradictions(storage, now, database.identity()):
            raise ForeignLedger(
                f"{'; '.join(still.values())}: this ledger is an older copy or a different "
                f"ledger; {_HELP}"
            )
    unknown = sorted(folders - {f.event_type for f in known})
    if strange := [t for t in unknown if _has_marker(storage, t)]:
        raise ForeignLedger(
            f"{storage.url('')} contains buckets of types that are not in this ledger "
            f"({', '.join(strange)}): it is an older copy or a different ledger; {_HELP}"
        )


def _has_marker(storage: Storage, folder: str) -> bool:
    # Return whether a folder contains a bucket; False if access to it is denied.
    try:
        return find_marker(storage, folder) is not None
    except AccessDenied as error:
        _LOG.warning(
            "cannot determine whether %s contains buckets, so it is ignored: %s",
            storage.url(folder),
            error,
        )
        return False


def _contradictions(
    storage: Storage, known: Sequence[Frontier], identity: tuple[str, int]
) -> dict[str, str]:
    found = map_concurrently(lambda f: _contradiction(storage, f, identity), known)
    return {f.event_type: problem for f, problem in zip(known, found, strict=True) if problem}


def _contradiction(storage: Storage, frontier: Frontier, identity: tuple[str, int]) -> str:
    unsealed = first_unsealed_hour(frontier)
    if found := find_closed_manifest(storage, frontier.event_type, unsealed):
        return (
            f"{frontier.event_type} {unsealed} is closed (by ledger {found.ledger}, commit "
            f"{found.ledger_commit}), but this ledger ({identity[0]}, commit {identity[1]}) has "
            "not sealed it"
        )
    last = frontier.previous_hour
    if frontier.hour <= frontier.first_hour:  # a back-fill may have skipped hours
        for hour in list_hours(storage, frontier.event_type, unsealed.length_s):
            is_later = hour >= unsealed or (last is None and hour < frontier.hour)
            if is_later and find_closed_manifest(storage, frontier.event_type, hour):
                closed = "no bucket of the type" if last is None else f"the type up to {last}"
                return (
                    f"{frontier.event_type} {hour} is closed, but this ledger has closed {closed}"
                )
    if last is None:
        return ""
    try:
        found = find_closed_manifest(storage, frontier.event_type, last)
    except (BadMarker, ContentLost) as error:
        _LOG.error(
            "cannot read by which ledger %s %s was closed; later buckets may have to wait for "
            "it: %s",
            frontier.event_type,
            last,
            error,
        )
        return ""
    if found is not None and (found.ledger != identity[0] or found.ledger_commit > identity[1]):
        return (
            f"{frontier.event_type} {last} was closed by ledger {found.ledger}, commit "
            f"{found.ledger_commit}, but this ledger is {identity[0]}, commit {identity[1]}"
        )
    return ""
