"""Where each type's chain of buckets begins, kept on storage too: a type of which nothing is closed
has it nowhere else.

`_ledger/first-hours-<uuid>.json`, one small file whenever a driver meets types that none of them
names. A lost ledger is rebuilt with them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import BaseModel

from hourmark.errors import Finding
from hourmark_etl.folders import LEDGER_FOLDER
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.storage import ContentLost, Storage, list_if_exists

_LOG: Final = logging.getLogger(__name__)


class FirstHours(BaseModel, frozen=True, extra="forbid"):
    """By type, the start of its first hour, Unix seconds; recorded by this ledger when it had
    reached this commit.
    """

    format: Literal[1]
    ledger: str
    commit: int
    first_hours_s: dict[str, int]

    def encode(self) -> bytes:
        """JSON, human-readable."""
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def decode(cls, content: bytes) -> FirstHours:
        """The inverse; ValueError says what is wrong."""
        try:
            return cls.model_validate_json(content)
        except ValueError as error:
            raise ValueError(f"no record of first hours: {error}") from error


def record_first_hours(storage: Storage, database: Database, bucket_seconds: int) -> None:
    """Record types that no file of this ledger names yet.

    Asked at a driver's start, and when types are new to it.

    Those of a file that cannot be read are recorded again.
    """
    ledger, commit = database.identity()
    known = set[tuple[str, str, int]]()
    for record in _records(storage):
        if isinstance(record, Finding):
            _LOG.warning("%s", record)
        else:
            known |= {(record.ledger, t, s) for t, s in record.first_hours_s.items()}
    wanted = {f.event_type: f.first_hour.start_s for f in frontiers(database, bucket_seconds)}
    if new := {t: s for t, s in wanted.items() if (ledger, t, s) not in known}:
        record = FirstHours(format=1, ledger=ledger, commit=commit, first_hours_s=new)
        storage.write_new(f"{LEDGER_FOLDER}/first-hours-{uuid.uuid4().hex}.json", record.encode())


def read_first_hours(storage: Storage) -> list[FirstHours]:
    """All records, the oldest commit first.

    Finding, naming the file, for one that is damaged or lost.
    """
    found = []
    for record in _records(storage):
        if isinstance(record, Finding):
            raise record
        found.append(record)
    return sorted(found, key=lambda r: r.commit)


def _records(storage: Storage) -> Iterator[FirstHours | Finding]:
    """Of each file what it says, or why that cannot be known."""
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
                f"{storage.url(path)}: {why}. Bring it back from a copy; where there is none, "
                "delete it, and tell a rebuilt "
                "ledger where types begin of which nothing is closed (`hourmark types apply "
                "--first-hour`)"
            )
