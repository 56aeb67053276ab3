"""A record on storage of each type's first hour, for rebuilding a lost ledger.

For a type without a closed bucket no other source of it exists. A driver writes a small file
`_ledger/first-hours-<uuid>.json` whenever it finds types that no such file contains.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import BaseModel

from hourmark.errors import Finding
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.storage import ContentLost, Storage, list_if_exists
from hourmark_etl.storage.folders import LEDGER_FOLDER

_LOG: Final = logging.getLogger(__name__)


class FirstHours(BaseModel, frozen=True, extra="forbid"):
    """Content of a JSON file on storage that records the hour of each event type's first bucket.

    The file is used to rebuild a lost ledger (the ETL's state database).

    Attributes:
        format: Version of the file format.
        ledger: Id of the ledger.
        commit: Commit number of the ledger when the file was written.
        first_hours_s: Unix seconds at the start of the first hour, by event type.
    """

    format: Literal[1]
    ledger: str
    commit: int
    first_hours_s: dict[str, int]

    def encode(self) -> bytes:
        """Return the content of the file as indented JSON in UTF-8."""
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def decode(cls, content: bytes) -> FirstHours:
        """Parse the content of a file that `encode` created.

        Args:
            content: JSON in UTF-8.

        Returns:
            The hours of the event types' first buckets.

        Raises:
            ValueError: The content is not valid JSON of this file format.
        """
        try:
            return cls.model_validate_json(content)
        except ValueError as error:
            raise ValueError(f"not a valid record of first hours: {error}") from error


def record_first_hours(storage: Storage, database: Database, bucket_seconds: int) -> None:
    """Record the hour of each event type's first bucket in a file on storage.

    The file is needed to rebuild a lost ledger. Hours that an intact file contains are not recorded
    again. If a file is damaged, a warning is logged, and its hours are written to a new file. Call
    this function at startup and when types are added.

    Args:
        storage: Storage to write to.
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.

    Raises:
        Unavailable: Storage or the ledger does not respond.
    """
    ledger, commit = database.identity()
    known = set[tuple[str, str, int]]()
    for record in _read_records(storage):
        if isinstance(record, Finding):
            _LOG.warning("%s", record)
        else:
            known |= {(record.ledger, t, s) for t, s in record.first_hours_s.items()}
    wanted = {f.event_type: f.first_hour.start_s for f in frontiers(database, bucket_seconds)}
    if new := {t: s for t, s in wanted.items() if (ledger, t, s) not in known}:
        record = FirstHours(format=1, ledger=ledger, commit=commit, first_hours_s=new)
        storage.write_new(f"{LEDGER_FOLDER}/first-hours-{uuid.uuid4().hex}.json", record.encode())


def read_first_hours(storage: Storage) -> list[FirstHours]:
    """Read all files on storage that record the hours of event types' first buckets.

    Args:
        storage: Storage with the files.

    Returns:
        The contents of the files, sorted by commit number; empty if there are no files.

    Raises:
        Finding: A file is damaged or lost; the message names it.
        StorageError: Storage is unavailable.
    """
    found = []
    for record in _read_records(storage):
        if isinstance(record, Finding):
            raise record
        found.append(record)
    return sorted(found, key=lambda r: r.commit)


def _read_records(storage: Storage) -> Iterator[FirstHours | Finding]:
    names = [
        entry.name
        for entry in list_if_exists(storage, LEDGER_FOLDER)
        if entry.name.startswith("first-hours-")
    ]
    for path in (f"{LEDGER_FOLDER}/{name}" for name in names):
        try:
            yield FirstHours.decode(storage.read(path))
        except (ValueError, ContentLost) as error:
            why = error.what if isinstance(error, ContentLost) else str(error)
            yield Finding(
                f"{storage.url(path)}: {why}. Restore it from a copy. If there is no copy, "
                "delete it; after a rebuild of the ledger, set the first hour of types without "
                "closed buckets with `hourmark types apply --first-hour`"
            )
