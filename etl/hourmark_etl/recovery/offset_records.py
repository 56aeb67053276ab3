"""Offsets that a proof rests on and nothing but the ledger knows, kept on storage too: where the
mirror stood at the last checks of the edge, and its offset gaps. Without them a ledger that is
rebuilt cannot tell whether the edge deleted what was never copied, nor what a log lost that has
grown longer since.

`_ledger/offsets-<ledger>-<digest>.json`, one file of the ledger; the next one is written before it
goes. Where more than one stands, which is the later cannot be told (a driver was killed between, or
an older copy of the ledger goes on): the gaps of all count, and checks of none, as one that passes
behind an accepted gap says nothing of what was promised there. Without checks all that an edge has
deleted counts as a gap.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ValidationError
from sqlalchemy import select

from hourmark.clock import Clock
from hourmark.errors import Finding, Unavailable
from hourmark.kafka.topic_names import AUDIT
from hourmark_etl.folders import LEDGER_FOLDER
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import decode_position
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, all_gaps, last_checks, put_gaps
from hourmark_etl.staging.verified import digest_of
from hourmark_etl.storage import ContentLost, Storage, list_if_exists

EVERY_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"offsets-(?P<ledger>[0-9a-f-]+)-(?P<digest>[0-9a-f]{32})\.json")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTo:
    """How far promises of a central topic were staged: the offset after the last record, and that
    record's leader epoch.
    """

    topic: str
    partition: int
    topic_id: str
    epoch_next: int
    leader_epoch: int


class OffsetRecord(BaseModel, frozen=True, extra="forbid"):
    """What a ledger knew once it had reached this commit. Version 0.3.0 wrote no `staged`."""

    format: Literal[1]
    ledger: str
    commit: int
    checks: tuple[EdgeCheck, ...]
    gaps: tuple[OffsetGap, ...]
    staged: tuple[StagedTo, ...] = ()

    def encode(self) -> bytes:
        """JSON."""
        return self.model_dump_json().encode()


class OffsetRecorder:
    """Keeps the record up to date.

    Belongs to the driver that closes: it is fenced by the closer's lease.
    """

    def __init__(self, storage: Storage, database: Database, clock: Clock) -> None:
        self._storage, self._database, self._clock = storage, database, clock
        self._due_s = clock.monotonic_s()
        self._kept: OffsetRecord | None = None

    def poll(self, lease: Lease) -> None:
        """Once a minute, where anything has changed; gaps at once.

        What is away now is tried again at the next.
        """
        try:
            if self._clock.monotonic_s() >= self._due_s or (
                self._kept and self._kept.gaps != tuple(all_gaps(self._database))
            ):
                self._due_s = self._clock.monotonic_s() + EVERY_SECONDS
                self.keep(lease)
        except (Unavailable, Finding) as error:
            _LOG.warning(
                "where the mirror stands is not kept on storage, and tried again in %.0f s: %s",
                EVERY_SECONDS,
                error,
            )

    def keep(self, lease: Lease) -> None:
        """Write what is so now, if the last record says otherwise.

        StaleDriver for a closer that was replaced.
        """
        record = _offsets_of(self._database)
        content = record.model_copy(update={"commit": 0})  # it counts up by itself
        if content != self._kept:
            standing = [path for path, _ in _records(self._storage, record.ledger)]
            self._database.check_lease(lease)  # those of a later closer come after this, and stay
            _put(self._storage, record, standing)
            self._kept = content


def _offsets_of(database: Database) -> OffsetRecord:
    """As the ledger has them.

    Gaps are read after the checks that were begun anew as they were accepted: so none is missing.
    """
    ledger, commit = database.identity()
    checks = [check for _, check in sorted(last_checks(database).items())]
    staged = staged_to(
        database
    )  # before the gaps: what lost a record that is named here is a gap by then
    return OffsetRecord(
        format=1,
        ledger=ledger,
        commit=commit,
        checks=tuple(checks),
        gaps=tuple(all_gaps(database)),
        staged=staged,
    )


def staged_to(database: Database) -> tuple[StagedTo, ...]:
    """Return how far the topics of promises are staged, of those whose last record's leader epoch
    is known.
    """
    query = select(tables.positions).where(tables.positions.c.topic.like(f"%{AUDIT}"))
    known = sorted(
        (decode_position(row) for row in database.fetch(query).mappings()),
        key=lambda p: (p.topic, p.partition),
    )
    return tuple(
        StagedTo(
            topic=p.topic,
            partition=p.partition,
            topic_id=p.topic_id,
            epoch_next=p.epoch_next,
            leader_epoch=p.leader_epoch,
        )
        for p in known
        if p.leader_epoch is not None and p.epoch_next is not None
    )


def _put(storage: Storage, record: OffsetRecord, standing: Collection[str]) -> None:
    """In place of these."""
    written = record.encode()
    path = f"{LEDGER_FOLDER}/offsets-{record.ledger}-{digest_of(written).hex()}.json"
    if path not in standing:
        storage.write_new(path, written)
    for older in standing:
        if older != path:
            storage.delete(older)


@dataclass(frozen=True)
class KnownOffsets:
    """What records tell. `checks`: None where that is not known. `notes`: why, for an operator.
    `commit`: the highest of them.
    """

    commit: int
    checks: tuple[EdgeCheck, ...] | None
    gaps: tuple[OffsetGap, ...]
    notes: tuple[str, ...]
    staged: tuple[StagedTo, ...] = ()


def read_offset_records(storage: Storage, ledger: str) -> KnownOffsets:
    """Of this ledger."""
    found = {path: _read(storage, path, digest) for path, digest in _records(storage, ledger)}
    notes = [
        f"{storage.url(path)}: {record}"
        for path, record in found.items()
        if isinstance(record, str)
    ]
    records = sorted(
        (r for r in found.values() if isinstance(r, OffsetRecord)), key=lambda r: r.commit
    )
    if len(found) > 1:
        notes.append(f"{', '.join(map(storage.url, found))}: of these only one should stand")
    gaps = dict.fromkeys(gap for r in records for gap in r.gaps)
    checks = None if notes or not records else records[0].checks
    staged = tuple(at for r in records for at in r.staged)
    return KnownOffsets(
        max((r.commit for r in records), default=0), checks, tuple(gaps), tuple(notes), staged
    )


def keep_found(
    storage: Storage, ledger: str, commit: int, known: KnownOffsets, found: Collection[OffsetGap]
) -> None:
    """Beside what was known, that a rebuild found logs that have lost their ends: before it
    commits, so that it cannot be killed between. Once they have grown, nothing else tells of it to
    another rebuild, or to a copy of the old ledger that goes on after all.

    What neither Kafka nor a file holds another rebuild finds again, and a copy need not miss.
    Records that cannot be read stay.
    """
    if found:
        gaps = (*known.gaps, *found)
        record = OffsetRecord(
            format=1,
            ledger=ledger,
            commit=commit,
            checks=known.checks or (),
            gaps=gaps,
            staged=known.staged,
        )
        standing = [path for path, _ in _records(storage, ledger)]
        _put(storage, record, [] if known.notes else standing)


def take_over_gaps(storage: Storage, database: Database) -> None:
    """Put into the ledger what it does not know: it is an older copy, which goes on.

    Asked at a driver's start.

    A gap that is open in a record is known if it is open, or if it was accepted since.
    """
    found = read_offset_records(storage, database.identity()[0])
    for note in found.notes:
        _LOG.warning(
            "where an older copy of the ledger goes on, gaps that were found since may "
            "be unknown: %s",
            note,
        )
    known = set(all_gaps(database))
    since = {
        (gap.topic, gap.what)
        for gap in known.difference(found.gaps)
        if gap.accepted_at_ms is not None
    }
    missing = [
        g
        for g in found.gaps
        if g not in known and (g.accepted_at_ms is not None or (g.topic, g.what) not in since)
    ]
    if missing:
        with database.transaction() as connection:
            put_gaps(connection, missing)


def _read(storage: Storage, path: str, digest: str) -> OffsetRecord | str:
    """Or what is wrong with it."""
    try:
        content = storage.read(path)
        if digest_of(content).hex() != digest:
            return "it is not as it was written"
        return OffsetRecord.model_validate_json(content)
    except ContentLost as error:
        return str(error)
    except ValidationError as error:
        return f"no record of offsets that this version reads: {error}"


def _records(storage: Storage, ledger: str) -> list[tuple[str, str]]:
    """Paths, and the digests in their names."""
    found = ((e.name, _NAME.fullmatch(e.name)) for e in list_if_exists(storage, LEDGER_FOLDER))
    return [
        (f"{LEDGER_FOLDER}/{name}", m["digest"])
        for name, m in found
        if m is not None and m["ledger"] == ledger
    ]
