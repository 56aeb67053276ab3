"""Publishes a written hour: the attempt folder gets exactly the manifest's files and a finished
`_SUCCESS`, is read back, and one rename that refuses an existing target makes it the bucket. Where
the target stands already, its marker is the truth.

`Publisher`: one write for all types of a round, then each type's folders in turn, many types at
once. What cannot be published holds up its type alone: it is given back as trouble, and its later
hours wait with it.

`check_foreign_root`, `check_published`, `check_other_seal`: whether the buckets on storage are this
ledger's, and this ledger the newest. Going on with an older copy would list events for buckets that
are published already, and so lose them; going on with a new, empty ledger would write every event
that Kafka still holds a second time. So both stop.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import (
    MARKER,
    Book,
    BucketFile,
    Evidence,
    Grade,
    Lacks,
    Manifest,
    Offsets,
    Previous,
    SetAsideRecords,
)
from hourmark.rules.revision import KnownSchema
from hourmark_etl.buckets.reader import (
    NotClosed,
    any_marker,
    decoded_manifest,
    read_marker,
    standing_manifest,
)
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.write.containers import WrittenFile, WrittenHour
from hourmark_etl.closing.write.id_indexes import keep_indexes
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.errors import DamagedRow, ForeignLedger
from hourmark_etl.folders import ATTEMPTS_FOLDER
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontiers import PublishedHour
from hourmark_etl.ledger.listings import listed_groups, listed_sums
from hourmark_etl.ledger.overview import closed_marker
from hourmark_etl.ledger.schemas import schema_problem, schemas_by_id
from hourmark_etl.ledger.set_aside import listed_set_aside
from hourmark_etl.model import AuditOffsets, Frontier, OriginHourSums, Seal, SetAside, StagedGroup
from hourmark_etl.storage import AccessDenied, AlreadyExists, Storage, StorageError

_SET_ASIDE_MAX: Final = 50  # entries of `Manifest.set_aside_records`
_HELP = (
    "Restore the newest copy of the ledger, or recreate it by `hourmark ledger rebuild`; or, "
    "where this is a new installation, "
    "give it a root of its own (storage.root). Nothing was changed"
)


def manifest_of(
    frontier: Frontier,
    written: WrittenHour,
    *,
    listed: Collection[StagedGroup],
    set_aside: Collection[SetAside] = (),
    fingerprints: Mapping[int, str],
    previous: Previous | None,
    ledger: tuple[str, int],
    attempt: str,
    now_ms: int,
    unverified: Collection[str] = (),
) -> Manifest:
    """What `_SUCCESS` will say; pure.

    `unverified`: what an override gave up, beside what `written` names.
    """
    seal, hour = frontier.seal, frontier.hour
    assert seal is not None, "only a sealed hour is written"
    files = _named(written.files)
    late = Counter[str]()
    for _, w in files:
        for start_s, rows in w.hours.items() if w.late else ():
            late[str(Hour(start_s, hour.length_s))] += rows.events
    return Manifest(
        type=frontier.event_type,
        hour=str(hour),
        bucket_seconds=hour.length_s,
        previous=previous,
        grade=Grade(seal.grade),
        evidence=Evidence(
            method=seal.method,
            cut_at_ms=seal.cut_at_ms,
            audit_records=seal.audit_records,
            promised=seal.promised,
            audit_next=seal.audit_next.in_marker(),
            waived=[
                *seal.waived,
                *_left_out(written),
                *(f"not verified: {what}" for what in (*written.unverified, *unverified)),
            ],
        ),
        files=[
            BucketFile(
                name=name,
                records=w.records,
                bytes=w.bytes,
                blake2b=w.blake2b,
                schema_id=w.schema_id,
                schema_fingerprint=fingerprints[w.schema_id],
            )
            for name, w in files
        ],
        events=sum(w.records for _, w in files),
        late=dict(sorted(late.items())),
        books=_books(seal, hour, listed, written.files),
        duplicates_removed=sum(rows.events for rows in written.duplicates.values()),
        unaudited=seal.unaudited,
        checked=seal.checked or 0,
        left_out=sum(rows.events for rows in written.left_out.values()),
        set_aside=sum(len(of.offsets) for of in set_aside),
        set_aside_records=_set_aside(set_aside),
        lacks=_lacks(seal, written),
        lost=dict(seal.lost),
        unknown=dict(seal.unknown),
        unrepeatable=list(seal.unrepeatable),
        id_sum=f"{sum(w.id_sum for _, w in files) % (1 << 64):016x}",
        offsets=[
            Offsets(topic=p.topic, topic_id=p.topic_id, partition=p.partition, next=p.next_offset)
            for p in seal.offsets
        ],
        ledger=ledger[0],
        ledger_commit=ledger[1],
        attempt=attempt,
        closed_at_ms=now_ms,
        software=f"hourmark {version('hourmark')}",
    ).sealed()


def _left_out(written: WrittenHour) -> list[str]:
    count = sum(rows.events for rows in written.left_out.values())
    return (
        [f"left out: {count} rows that cannot be written, such as {'; '.join(written.faults)}"]
        if count
        else []
    )


def _lacks(seal: Seal, written: WrittenHour) -> Lacks | None:
    if seal.lacks is None:
        return None
    return Lacks(ranges=list(seal.lacks.ranges), more=seal.lacks.more or bool(written.left_out))


def _set_aside(found: Collection[SetAside]) -> list[SetAsideRecords]:
    offsets = defaultdict[tuple[str, int, str], list[int]](list)
    for of in found:
        offsets[of.topic, of.partition, of.reason] += of.offsets
    most = sorted(offsets.items(), key=lambda item: (-len(item[1]), item[0]))[:_SET_ASIDE_MAX]
    return [
        SetAsideRecords(
            topic=topic,
            partition=partition,
            reason=reason,
            records=len(of),
            first_offset=min(of),
            last_offset=max(of),
        )
        for (topic, partition, reason), of in most
    ]


def previous_of(storage: Storage, frontier: Frontier) -> Previous | None:
    """What the frontier's manifest says of the marker before it, as that stands; a Finding where it
    is gone, or damaged.
    """
    if frontier.hour == frontier.first_hour:
        return None
    before = frontier.hour.before()
    try:
        marker = read_marker(storage, frontier.event_type, before)
        decoded_manifest(storage, frontier.event_type, before, marker)
        return Previous.of(str(before), marker)
    except NotClosed as error:
        raise Finding(
            f"{frontier.event_type} {frontier.hour} follows a bucket that is gone: "
            f"{error}; bring it back"
        ) from error


def _books(
    seal: Seal, hour: Hour, listed: Collection[StagedGroup], written: Sequence[WrittenFile]
) -> dict[str, Book]:
    rows, events = Counter[int](), Counter[int]()
    for g in listed:
        rows[g.hour_s] += g.rows
    for w in written:
        events.update({start_s: of.events for start_s, of in w.hours.items()})
    sealed = {b.hour_s: b for b in seal.books}
    books = {}
    for start_s in sorted(rows.keys() | sealed.keys()):
        of = sealed.get(start_s, OriginHourSums(start_s, 0, 0))
        book = Book(
            rows=rows[start_s], events=events[start_s], promised=of.promised, unaudited=of.unaudited
        )
        books[str(Hour(start_s, hour.length_s))] = book
    return books


def publish(
    storage: Storage, frontier: Frontier, written: WrittenHour, manifest: Manifest
) -> Manifest:
    """Make it the bucket, and return the manifest that stands there: this one, or that of whoever
    was first.

    Finding, and nothing published, if what was written does not read back as the manifest says:
    files' contents were read back by the tasks that wrote them, their names and sizes and the
    manifest are here.
    """
    if written.trouble:
        raise Finding(written.trouble)
    if written.unwritable:
        raise Unwritable(
            f"{written.unwritable}. `hourmark bucket force` closes the hour all the same, "
            "and its marker says so"
        )
    attempt = f"{ATTEMPTS_FOLDER}/{manifest.attempt}/{frontier.event_type}"
    target = frontier.hour.bucket_path(frontier.event_type)
    storage.make_folder(attempt)
    for name, file in _named(written.files):
        storage.rename_new(file.path, f"{attempt}/{name}")
    storage.write_new(f"{attempt}/{MARKER}", manifest.encode(), unpublished=True)
    _read_back(storage, attempt, manifest)
    try:
        storage.rename_new(attempt, target)
    except AlreadyExists:
        standing = standing_manifest(storage, frontier.event_type, frontier.hour)
        if standing is None:
            raise Finding(
                f"{storage.url(target)} stands, but without a {MARKER}: not made by "
                "Hourmark. Move it away, and closing goes on"
            ) from None
        return standing
    return manifest


def _named(written: Sequence[WrittenFile]) -> list[tuple[str, WrittenFile]]:
    """The files in the bucket's order, with their names in it."""
    numbers = {"part": itertools.count(), "late": itertools.count()}
    files = [
        ("late" if w.late else "part", w)
        for w in sorted(written, key=lambda w: (w.late, w.schema_id, w.path))
    ]
    return [(f"{kind}-{next(numbers[kind]):05d}.avro", w) for kind, w in files]


def _read_back(storage: Storage, attempt: str, manifest: Manifest) -> None:
    found = {entry.name: entry.size for entry in storage.list(attempt)}
    wanted = {f.name: f.bytes for f in manifest.files} | {MARKER: len(manifest.encode())}
    if found != wanted:
        raise Finding(
            f"{storage.url(attempt)} holds {found}, the manifest says {wanted}; the "
            "attempt is not published"
        )
    if storage.read(f"{attempt}/{MARKER}", size=found[MARKER]) != manifest.encode():
        raise Finding(
            f"{storage.url(attempt)}/{MARKER} does not read back as written; the attempt "
            "is not published"
        )


class Unwritable(Finding):
    """A sealed hour cannot be written as it was sealed; an override closes it all the same."""


class LedgerChanged(Finding):
    """Rows of the ledger that a sealed hour needs were changed, or are gone."""


class Trouble(NamedTuple):
    """Why an hour cannot be published for now."""

    frontier: Frontier
    error: Finding | StorageError


@dataclasses.dataclass
class Published:
    """What became of a round."""

    closings: list[PublishedHour] = dataclasses.field(default_factory=list)
    troubles: list[Trouble] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Publisher:
    """Sealed hours → buckets. `publishers`: how many types are published at once; with 1, in an
    order that can be repeated.
    """

    engine: Engine
    storage: Storage
    database: Database
    lease: Lease
    clock: Clock
    publishers: int

    def standing(self, sealed: Collection[Frontier]) -> Published:
        """Those of them that were published already, by a closer that was interrupted or by
        another; by their markers.
        """
        chains = [f.sealed_hours for f in sealed]
        # No manifest of this bucket is a Finding: buckets never change, so somebody else wrote it.
        return self._each(chains, lambda f: standing_manifest(self.storage, f.event_type, f.hour))

    def publish(self, sealed: Collection[Frontier]) -> Published:
        """Write and publish every hour that is sealed on these frontiers."""
        attempt = uuid.uuid4().hex
        folder = f"{ATTEMPTS_FOLDER}/{attempt}"
        asked = [h for f in sealed for h in f.sealed_hours]
        groups = listed_groups(self.database, asked)
        hours = {
            (f.event_type, f.hour): SealedHour(
                f.event_type, f.hour, tuple(listed), *_given_up(f.seal)
            )
            for f, listed in zip(asked, groups, strict=True)
        }
        schemas = schemas_by_id(self.database, {s for h in hours.values() for s in _schema_ids(h)})
        troubles: list[Trouble] = []
        chains = [_readable(f.sealed_hours, hours, schemas, troubles) for f in sealed]
        whole = {
            schema_id: schema
            for schema_id, schema in schemas.items()
            if isinstance(schema, KnownSchema)
        }
        texts = {schema_id: schema.text for schema_id, schema in whole.items() if schema.text}
        marks = {schema_id: schema.fingerprint for schema_id, schema in whole.items()}
        readable = [hours[f.event_type, f.hour] for chain in chains for f in chain]
        written = self.engine.write(readable, texts, f"{folder}/_tasks")  # no type has such a name
        by_hour = {(w.event_type, w.hour_s): w for w in written}
        set_aside = listed_set_aside(self.database, {(f.event_type, f.hour.start_s) for f in asked})
        identity = self.database.identity()

        def published(f: Frontier) -> Manifest:
            of = by_hour[f.event_type, f.hour.start_s]
            previous, unverified = self._previous(f)
            manifest = manifest_of(
                f,
                of,
                listed=hours[f.event_type, f.hour].listed,
                fingerprints=marks,
                set_aside=set_aside.get((f.event_type, f.hour.start_s), ()),
                previous=previous,
                ledger=identity,
                attempt=attempt,
                now_ms=self.clock.now_ms(),
                unverified=unverified,
            )
            return publish(self.storage, f, of, manifest)

        result = self._each(chains, published)
        result.troubles += troubles
        manifests = [c.manifest for c in result.closings]
        keep_indexes(
            self.storage,
            self.database,
            self.lease,
            attempt,
            manifests,
            written,
            self.clock.now_ms(),
        )
        self.storage.delete(folder)
        return result

    def _previous(self, f: Frontier) -> tuple[Previous | None, tuple[str, ...]]:
        """Return the marker before this hour's, with what is wrong with it where an override goes
        on by the ledger's copy.
        """
        try:
            return previous_of(self.storage, f), ()
        except Finding as error:
            before = f.hour.before()
            known = closed_marker(self.database, f.event_type, before)
            if known is None:
                raise
            if not _given_up(f.seal).gives_up:
                raise Unwritable(
                    f"{error}, or `hourmark bucket force` goes on with the ledger's copy "
                    "of its marker"
                ) from error
            decoded_manifest(self.storage, f.event_type, before, known)
            return Previous.of(str(before), known), (f"the bucket before it, {before}: {error}",)

    def _each(
        self,
        chains: Sequence[Sequence[Frontier]],
        manifest_there: Callable[[Frontier], Manifest | None],
    ) -> Published:
        """Many types at once, each type's hours in turn: up to one of which no manifest stands
        then, or that an error holds.
        """
        together, ledger = Published(), self.database.identity()[0]

        def close(chain: Sequence[Frontier]) -> None:
            for f in chain:
                try:
                    if (manifest := manifest_there(f)) is None:
                        return
                except (Finding, StorageError) as error:
                    together.troubles.append(Trouble(f, error))
                    return
                assert f.seal is not None
                check_other_seal(manifest, f.seal, ledger)
                together.closings.append(PublishedHour(f, manifest))

        with ThreadPoolExecutor(self.publishers) as pool:
            list(pool.map(close, chains))
        return together


class _GivenUp(NamedTuple):
    leaves_out: bool
    gives_up: bool


def _given_up(seal: Seal | None) -> _GivenUp:
    return _GivenUp(seal is not None and seal.leaves_out, seal is not None and seal.gives_up)


def _schema_ids(hour: SealedHour) -> set[int]:
    return {s for g in hour.listed for s in g.schema_ids}


def _readable(
    chain: Sequence[Frontier],
    hours: Mapping[tuple[str, Hour], SealedHour],
    schemas: Mapping[int, KnownSchema | DamagedRow],
    troubles: list[Trouble],
) -> tuple[Frontier, ...]:
    """The hours of the chain before the first with events that nobody could read, or with other
    rows than it was sealed with.
    """
    for at, f in enumerate(chain):
        if why := _unpublishable(f, hours[f.event_type, f.hour], schemas):
            troubles.append(Trouble(f, why))
            return tuple(chain[:at])
    return tuple(chain)


def _unpublishable(
    f: Frontier, hour: SealedHour, schemas: Mapping[int, KnownSchema | DamagedRow]
) -> Finding | None:
    assert f.seal is not None
    listed, sealed = listed_sums(hour.listed), f.seal.listed
    if (
        f.seal.checked is None or listed.unchecked or sealed.unchecked
    ):  # values are not known of all rows
        listed, sealed = (dataclasses.replace(of, values=0, unchecked=0) for of in (listed, sealed))
    if listed != sealed:
        return LedgerChanged(
            f"the ledger lists {listed.events} rows for {f.event_type} {f.hour}, which was "
            f"sealed with {sealed.events}, or with "
            "others: rows of the table staged_groups were changed or are gone; restore the "
            "newest copy of the ledger, or "
            "recreate it by `hourmark ledger rebuild`"
        )
    for schema_id in sorted(_schema_ids(hour)):
        known = schemas.get(schema_id)
        if why := schema_problem(f.event_type, schema_id, known):
            if isinstance(known, DamagedRow):
                return LedgerChanged(str(why))
            if not hour.leaves_out:
                return Unwritable(
                    f"{why}, or `hourmark bucket force` closes the hour without its events"
                )
    return None


def check_foreign_root(
    storage: Storage, frontiers: Iterable[Frontier], closed_types: Collection[str]
) -> list[Trouble]:
    """ForeignLedger if a type has buckets on storage, and this ledger has closed none of it and
    sealed nothing. Of which types storage does not let that be seen.

    Only markers tell: an administrator may make folders, with rights and quota, before the first
    bucket.
    """
    troubles = []
    for f in frontiers:
        if f.event_type in closed_types or f.seal is not None:
            continue
        try:
            if standing := any_marker(storage, f.event_type):
                raise ForeignLedger(
                    f"{storage.url(standing)} stands, but this ledger has closed nothing "
                    f"of {f.event_type}. {_HELP}"
                )
        except AccessDenied as error:
            troubles.append(Trouble(f, error))
    return troubles


def check_published(storage: Storage, opened: Collection[Frontier]) -> list[Trouble]:
    """ForeignLedger if the bucket of an open hour stands already: only a sealed hour can have been
    published. Of which of them storage does not let that be seen.
    """
    troubles = []
    for f in opened:
        path = f"{f.hour.bucket_path(f.event_type)}/{MARKER}"
        try:
            if storage.exists(path):
                raise ForeignLedger(
                    f"{storage.url(path)} stands, but the ledger has not closed "
                    f"{f.event_type} {f.hour}. {_HELP}"
                )
        except AccessDenied as error:
            troubles.append(Trouble(f, error))
    return troubles


def check_other_seal(manifest: Manifest, seal: Seal, ledger_id: str) -> None:
    """ForeignLedger if a standing marker does not say what this ledger sealed."""
    offsets = {(o.topic_id, o.partition): o.next for o in manifest.offsets}
    sealed = {(p.topic_id, p.partition): p.next_offset for p in seal.offsets}
    if (
        manifest.ledger != ledger_id
        or offsets != sealed
        or AuditOffsets.of(manifest.evidence.audit_next) != seal.audit_next
    ):
        raise ForeignLedger(
            f"{manifest.type} {manifest.hour} was published by ledger {manifest.ledger} (commit "
            f"{manifest.ledger_commit}) with "
            f"other contents than this ledger {ledger_id} sealed. {_HELP}"
        )
