"""Where the mirror stood at the last checks of the edge, and which gaps overrides accepted, kept on storage too: nothing else can
tell, once the ledger is lost, whether the edge deleted what was never copied.

`_ledger/edge-<ledger>-<commit>-<digest>.json`, one file, which takes the place of the one before. An older one says less, and is
as true: what the edge has deleted since then counts as a gap. It holds checks and accepted gaps of one moment, as a check that
passes behind an accepted gap of promises says nothing of what they promised.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark_etl.folders import LEDGER_FOLDER
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, accepted_gaps, last_checks
from hourmark_etl.staging.verified import digest_of
from hourmark_etl.storage import AlreadyExists, NotFound, Storage, entries_of

EVERY_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"edge-(?P<ledger>[0-9a-f-]+)-(?P<commit>\d{12,})-(?P<digest>[0-9a-f]{32})\.json")
_LOG = logging.getLogger(__name__)


class EdgeRecord(BaseModel, frozen=True, extra="forbid"):
    """What a ledger knew of the edges once it had reached this commit."""

    format: Literal[1]
    ledger: str
    commit: int
    checks: tuple[EdgeCheck, ...]
    accepted: tuple[OffsetGap, ...]

    def encode(self) -> bytes:
        """JSON."""
        return self.model_dump_json().encode()


@dataclass
class FoundRecord:
    """`record`: the newest that is as it was written. `commits`: that the ledger had reached, by all of them."""

    record: EdgeRecord | None = None
    commits: set[int] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)  # newer ones, and what is wrong


class EdgeRecorder:
    """Keeps the record up to date. Belongs to the driver that closes; one that was replaced does no harm."""

    def __init__(self, storage: Storage, database: Database, clock: Clock) -> None:
        self._storage, self._database, self._clock = storage, database, clock
        self._due_s = clock.monotonic_s()
        self._kept: object = ([], [])

    def poll(self) -> None:
        """Once a minute, where anything has changed. What is away now is tried again at the next."""
        if self._clock.monotonic_s() < self._due_s:
            return
        self._due_s = self._clock.monotonic_s() + EVERY_SECONDS
        try:
            self.keep()
        except Unavailable as error:
            _LOG.warning("where the mirror stands is not kept on storage, and tried again in %.0f s: %s", EVERY_SECONDS, error)

    def keep(self) -> None:
        """Write what is so now, if the last record says otherwise; then older ones go."""
        ledger, commit = self._database.identity()
        checks = [check for _, check in sorted(last_checks(self._database).items())]
        accepted = accepted_gaps(self._database)  # after the checks that passed as they were accepted
        if (checks, accepted) == self._kept:
            return
        content = EdgeRecord(format=1, ledger=ledger, commit=commit, checks=tuple(checks), accepted=tuple(accepted)).encode()
        with contextlib.suppress(AlreadyExists):  # the very same
            self._storage.write_new(f"{LEDGER_FOLDER}/edge-{ledger}-{commit:012d}-{digest_of(content).hex()}.json", content)
        for older in _named(self._storage, ledger):
            if older.commit < commit:
                self._storage.delete(older.path)
        self._kept = (checks, accepted)


def read_edge_record(storage: Storage, ledger: str) -> FoundRecord:
    """The newest record of this ledger that can be read."""
    found = FoundRecord()
    for named in sorted(_named(storage, ledger), key=lambda n: n.commit, reverse=True):
        found.commits.add(named.commit)
        if found.record is not None:
            continue
        try:
            content = storage.read(named.path)
            if digest_of(content).hex() != named.digest:
                raise ValueError("it is not as it was written")
            found.record = EdgeRecord.model_validate_json(content)
        except (NotFound, ValueError) as error:
            found.damaged.append(f"{storage.url(named.path)}: {error}")
    return found


class _Named(NamedTuple):
    path: str
    commit: int
    digest: str


def _named(storage: Storage, ledger: str) -> Iterator[_Named]:
    for entry in entries_of(storage, LEDGER_FOLDER):
        match = _NAME.fullmatch(entry.name)
        if match is not None and match["ledger"] == ledger:
            yield _Named(f"{LEDGER_FOLDER}/{entry.name}", int(match["commit"]), match["digest"])
