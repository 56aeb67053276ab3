"""Publishes written hours as buckets.

The attempt folder gets exactly the manifest's files and a complete `_SUCCESS`, is read back, and
one rename that refuses an existing target turns it into the bucket. If the target exists, its
marker is authoritative.

`Publisher` writes all types of a round at once and then publishes each type's hours in order, many
types in parallel. If an hour cannot be published, only its type waits.

`check_foreign_root`, `check_not_published`, `check_seal_matches` verify that the buckets on storage
belong to this ledger and that this ledger is the newest copy. An older copy would list events for
buckets that exist already, and so lose them. A new, empty ledger would write every event that Kafka
still holds a second time. In both cases the driver stops.
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
    BucketEvidence,
    BucketFile,
    BucketOffset,
    Grade,
    HourTotals,
    Manifest,
    MissingRanges,
    PreviousMarker,
    SetAsideRecords,
)
from hourmark.rules.revision import KnownSchema
from hourmark_etl.buckets.reader import (
    NotClosed,
    decode_manifest,
    find_manifest,
    find_marker,
    read_marker,
)
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.write.containers import WrittenFile, WrittenHour
from hourmark_etl.closing.write.id_indexes import publish_indexes
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.errors import DamagedRow, ForeignLedger
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontiers import PublishedHour
from hourmark_etl.ledger.maintenance.overview import read_closed_marker
from hourmark_etl.ledger.schemas import find_schema_error, read_schemas_by_id
from hourmark_etl.ledger.staged.listings import read_assigned_groups, sum_groups
from hourmark_etl.ledger.staged.set_aside import find_set_aside_in_buckets
from hourmark_etl.model import (
    AuditOffsets,
    ExcludedRecords,
    Frontier,
    OriginHourTotals,
    Seal,
    StagedGroup,
)
from hourmark_etl.storage import AccessDenied, AlreadyExists, Storage, StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

_SET_ASIDE_MAX: Final = 50  # entries of `Manifest.set_aside_records`
_HELP = (
    "Restore the newest copy of the ledger, or recreate it by `hourmark ledger rebuild`; or, "
    "where this is a new installation, "
    "give it a root of its own (storage.root). Nothing was changed"
)


def build_manifest(
    frontier: Frontier,
    written_hour: WrittenHour,
    *,
    listed: Collection[StagedGroup],
    set_aside: Collection[ExcludedRecords] = (),
    fingerprints: Mapping[int, str],
    previous: PreviousMarker | None,
    ledger: tuple[str, int],
    attempt: str,
    now_ms: int,
    unverified: Collection[str] = (),
) -> Manifest:
    """Create the manifest of a bucket, which is the content of its `_SUCCESS` file.

    The function performs no I/O.

    Args:
        frontier: Event type and hour of the bucket. The hour must be sealed, which means that the
            content of the bucket is fixed.
        written_hour: The files that were written for the bucket.
        listed: The staged rows of the bucket, grouped by staged file, event type and hour.
        set_aside: Malformed records of the bucket that could not be staged.
        fingerprints: Schema fingerprints by schema id, for all schemas of the files.
        previous: Hour and digest of the previous bucket's `_SUCCESS` file; None for the type's
            first hour.
        ledger: Id (UUID) and commit number of the ledger, the state database of the ETL.
        attempt: Id of the publishing attempt.
        now_ms: Time of closing in Unix milliseconds.
        unverified: Human-readable descriptions of checks that were skipped because of an operator's
            override, in addition to those in `written_hour`.

    Returns:
        The manifest, which includes its own digest.
    """
    seal, hour = frontier.seal, frontier.hour
    assert seal is not None, "only a sealed hour is written"
    files = _named_files(written_hour.files)
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
        evidence=BucketEvidence(
            method=seal.method,
            cut_at_ms=seal.cut_at_ms,
            audit_records=seal.audit_records,
            promised=seal.promised,
            audit_next=seal.audit_next.to_marker_json(),
            waived=[
                *seal.waived,
                *_describe_left_out(written_hour),
                *(f"not verified: {what}" for what in (*written_hour.unverified, *unverified)),
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
        books=_books(seal, hour, listed, written_hour.files),
        duplicates_removed=sum(rows.events for rows in written_hour.duplicates.values()),
        unaudited=seal.unaudited,
        checked=seal.checked or 0,
        left_out=sum(rows.events for rows in written_hour.left_out.values()),
        set_aside=sum(len(of.offsets) for of in set_aside),
        set_aside_records=_set_aside(set_aside),
        lacks=_lacks(seal, written_hour),
        lost=dict(seal.lost),
        unknown=dict(seal.unknown),
        unrepeatable=list(seal.unrepeatable),
        id_sum=f"{sum(w.id_sum for _, w in files) % (1 << 64):016x}",
        offsets=[
            BucketOffset(
                topic=p.topic, topic_id=p.topic_id, partition=p.partition, next=p.next_offset
            )
            for p in seal.offsets
        ],
        ledger=ledger[0],
        ledger_commit=ledger[1],
        attempt=attempt,
        closed_at_ms=now_ms,
        software=f"hourmark {version('hourmark')}",
    ).with_own_digest()


def _describe_left_out(written: WrittenHour) -> list[str]:
    count = sum(rows.events for rows in written.left_out.values())
    return (
        [f"left out: {count} rows that cannot be written, such as {'; '.join(written.faults)}"]
        if count
        else []
    )


def _lacks(seal: Seal, written: WrittenHour) -> MissingRanges | None:
    if seal.lacks is None:
        return None
    return MissingRanges(
        ranges=list(seal.lacks.ranges), more=seal.lacks.more or bool(written.left_out)
    )


def _set_aside(found: Collection[ExcludedRecords]) -> list[SetAsideRecords]:
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


def read_previous_marker(storage: Storage, frontier: Frontier) -> PreviousMarker | None:
    """Read the `_SUCCESS` file of the bucket before an hour, to which the hour's manifest refers.

    Args:
        storage: The storage.
        frontier: The hour whose predecessor to read.

    Returns:
        Hour and digest of the previous bucket's marker; None for the type's first bucket.

    Raises:
        Finding: The previous marker is missing or damaged. An operator must restore it.
        StorageError: Storage is unavailable.
    """
    before = frontier.previous_hour
    if before is None:
        return None
    try:
        marker = read_marker(storage, frontier.event_type, before)
        decode_manifest(storage, frontier.event_type, before, marker)
        return PreviousMarker.from_marker(str(before), marker)
    except NotClosed as error:
        raise Finding(
            f"{frontier.event_type} {frontier.hour} follows a bucket that is gone: "
            f"{error}; bring it back"
        ) from error


def _books(
    seal: Seal, hour: Hour, listed: Collection[StagedGroup], written: Sequence[WrittenFile]
) -> dict[str, HourTotals]:
    rows, events = Counter[int](), Counter[int]()
    for g in listed:
        rows[g.hour_s] += g.rows
    for w in written:
        events.update({start_s: of.events for start_s, of in w.hours.items()})
    sealed = {b.hour_s: b for b in seal.books}
    books = {}
    for start_s in sorted(rows.keys() | sealed.keys()):
        of = sealed.get(start_s, OriginHourTotals(start_s, 0, 0))
        book = HourTotals(
            rows=rows[start_s], events=events[start_s], promised=of.promised, unaudited=of.unaudited
        )
        books[str(Hour(start_s, hour.length_s))] = book
    return books


def publish(
    storage: Storage, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
) -> Manifest:
    """Publish the written files of an hour as a bucket, with one atomic rename.

    The files and the manifest are first moved to a temporary folder. The file names, sizes and the
    manifest are verified before the folder is renamed. If the bucket already exists, it is not
    changed, and its manifest is returned. The caller must check this manifest.

    Args:
        storage: Storage with the written files and the buckets.
        frontier: Event type and hour of the bucket. The hour must be sealed, which means that the
            content of the bucket is fixed.
        written_hour: The files of the bucket.
        manifest: The manifest to publish.

    Returns:
        The manifest of the published or existing bucket.

    Raises:
        Unwritable: Some rows cannot be written. An operator's override can close the hour without
            them.
        Finding: The files differ from what was written, or the target folder exists without a
            `_SUCCESS` file. Nothing is published.
        StorageError: A storage operation failed.
    """
    if written_hour.publish_error:
        raise Finding(written_hour.publish_error)
    if written_hour.unwritable:
        raise Unwritable(
            f"{written_hour.unwritable}. `hourmark bucket force` closes the hour all the same, "
            "and its marker says so"
        )
    attempt = f"{ATTEMPTS_FOLDER}/{manifest.attempt}/{frontier.event_type}"
    target = frontier.hour.bucket_path(frontier.event_type)
    storage.make_folder(attempt)
    for name, file in _named_files(written_hour.files):
        storage.rename_new(file.path, f"{attempt}/{name}")
    storage.write_new(f"{attempt}/{MARKER}", manifest.encode(), unpublished=True)
    _read_back(storage, attempt, manifest)
    try:
        storage.rename_new(attempt, target)
    except AlreadyExists:
        standing = find_manifest(storage, frontier.event_type, frontier.hour)
        if standing is None:
            raise Finding(
                f"{storage.url(target)} stands, but without a {MARKER}: not made by "
                "Hourmark. Move it away, and closing goes on"
            ) from None
        return standing
    return manifest


def _named_files(written: Sequence[WrittenFile]) -> list[tuple[str, WrittenFile]]:
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
    """Raised if a bucket cannot be published unless an operator overrides the problem.

    Some rows cannot be written, or a check requires an older bucket that cannot be read. An
    operator's override closes the bucket without these rows or checks.
    """


class LedgerChanged(Finding):
    """Raised if rows of the ledger (the ETL's state database) for a sealed bucket have changed.

    The rows are damaged, or they were changed after the content of the bucket had been fixed. An
    operator must restore or rebuild the ledger.
    """


class PublishFailure(NamedTuple):
    """An hourly bucket that could not be published or checked.

    Attributes:
        frontier: Event type and hour of the bucket.
        error: The error that prevented the publication or the check.
    """

    frontier: Frontier
    error: Finding | StorageError


@dataclasses.dataclass
class PublishResult:
    """Result of publishing hourly buckets of several event types.

    Attributes:
        closings: The published buckets, with their manifests. The caller must record them as closed
            in the ledger (the ETL's state database).
        failures: The buckets that could not be published, with the errors.
    """

    closings: list[PublishedHour] = dataclasses.field(default_factory=list)
    failures: list[PublishFailure] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Publisher:
    """Writes sealed hourly buckets and publishes them on storage.

    A bucket is sealed when its content has been fixed in the ledger (the ETL's state database). The
    caller must record published buckets as closed in the ledger.

    Attributes:
        engine: Writes the container files.
        storage: Storage with staged files and buckets.
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
        clock: Clock for the time of closing.
        publishers: Number of event types that are published in parallel. Use 1 for a reproducible
            order.
    """

    engine: Engine
    storage: Storage
    database: Database
    lease: Lease
    clock: Clock
    publishers: int

    def find_published(self, sealed: Collection[Frontier]) -> PublishResult:
        """Find sealed hourly buckets that already exist on storage.

        A bucket is sealed when its content has been fixed in the ledger (the ETL's state database).
        Call this method after a restart, because a process that crashed may have published buckets
        without recording them as closed in the ledger.

        Args:
            sealed: The first sealed hour of each event type. Its `sealed_hours` include the
                following ones.

        Returns:
            The existing buckets with their manifests, and the buckets that could not be checked.
            Buckets that do not exist are in neither list.

        Raises:
            ForeignLedger: A bucket has a different content from what this ledger sealed.
        """
        chains = [f.sealed_hours for f in sealed]
        # An invalid manifest raises a Finding: buckets never change, so another program wrote it.
        return self._collect_manifests(
            chains, lambda f: find_manifest(self.storage, f.event_type, f.hour)
        )

    def publish(self, sealed: Collection[Frontier]) -> PublishResult:
        """Write and publish the sealed hourly buckets of several event types.

        A bucket is sealed when its content has been fixed in the ledger (the ETL's state database).
        If a bucket cannot be published, the result contains the error, and later buckets of the
        same type are not published. Other types are not affected. The call can be repeated after an
        exception.

        Args:
            sealed: The first sealed hour of each event type. Its `sealed_hours` include the
                following ones.

        Returns:
            The published buckets with their manifests, and the buckets that could not be published.

        Raises:
            Unreadable: A staged file is missing or damaged and must be staged again. Nothing is
                published.
            ForeignLedger: A bucket already exists with a different content from what this ledger
                sealed.
        """
        attempt = uuid.uuid4().hex
        folder = f"{ATTEMPTS_FOLDER}/{attempt}"
        asked = [h for f in sealed for h in f.sealed_hours]
        groups = read_assigned_groups(self.database, asked)
        hours = {
            (f.event_type, f.hour): SealedHour(
                f.event_type, f.hour, tuple(listed), *_waivers(f.seal)
            )
            for f, listed in zip(asked, groups, strict=True)
        }
        schemas = read_schemas_by_id(
            self.database, {s for h in hours.values() for s in _schema_ids(h)}
        )
        failures: list[PublishFailure] = []
        chains = [_publishable_hours(f.sealed_hours, hours, schemas, failures) for f in sealed]
        whole = {
            schema_id: schema
            for schema_id, schema in schemas.items()
            if isinstance(schema, KnownSchema)
        }
        texts = {schema_id: schema.text for schema_id, schema in whole.items() if schema.text}
        marks = {schema_id: schema.fingerprint for schema_id, schema in whole.items()}
        readable = [hours[f.event_type, f.hour] for chain in chains for f in chain]
        written = self.engine.write(readable, texts, f"{folder}/_tasks")  # not a valid type name
        by_hour = {(w.event_type, w.hour_s): w for w in written}
        set_aside = find_set_aside_in_buckets(
            self.database, {(f.event_type, f.hour.start_s) for f in asked}
        )
        identity = self.database.identity()

        def published(f: Frontier) -> Manifest:
            of = by_hour[f.event_type, f.hour.start_s]
            previous, unverified = self._previous_marker(f)
            manifest = build_manifest(
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

        result = self._collect_manifests(chains, published)
        result.failures += failures
        manifests = [c.manifest for c in result.closings]
        publish_indexes(
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

    def _previous_marker(self, f: Frontier) -> tuple[PreviousMarker | None, tuple[str, ...]]:
        # Return the previous hour's marker, and readable problems with it. If the marker is
        # unreadable and an override gives it up, the ledger's copy is used.
        try:
            return read_previous_marker(self.storage, f), ()
        except Finding as error:
            before = f.previous_hour
            assert before is not None, "the first bucket follows none"
            known = read_closed_marker(self.database, f.event_type, before)
            if known is None:
                raise
            if not _waivers(f.seal).gives_up:
                raise Unwritable(
                    f"{error}, or `hourmark bucket force` goes on with the ledger's copy "
                    "of its marker"
                ) from error
            decode_manifest(self.storage, f.event_type, before, known)
            return PreviousMarker.from_marker(str(before), known), (
                f"the bucket before it, {before}: {error}",
            )

    def _collect_manifests(
        self,
        chains: Sequence[Sequence[Frontier]],
        manifest_there: Callable[[Frontier], Manifest | None],
    ) -> PublishResult:
        # Collect each hour's manifest, many types in parallel and each type's hours in order. A
        # type ends at the first hour that has no manifest or raises an error.
        together, ledger = PublishResult(), self.database.identity()[0]

        def close(chain: Sequence[Frontier]) -> None:
            for f in chain:
                try:
                    if (manifest := manifest_there(f)) is None:
                        return
                except (Finding, StorageError) as error:
                    together.failures.append(PublishFailure(f, error))
                    return
                assert f.seal is not None
                check_seal_matches(manifest, f.seal, ledger)
                together.closings.append(PublishedHour(f, manifest))

        with ThreadPoolExecutor(self.publishers) as pool:
            list(pool.map(close, chains))
        return together


class _GivenUp(NamedTuple):
    leaves_out: bool
    gives_up: bool


def _waivers(seal: Seal | None) -> _GivenUp:
    return _GivenUp(seal is not None and seal.leaves_out, seal is not None and seal.gives_up)


def _schema_ids(hour: SealedHour) -> set[int]:
    return {s for g in hour.listed for s in g.schema_ids}


def _publishable_hours(
    chain: Sequence[Frontier],
    hours: Mapping[tuple[str, Hour], SealedHour],
    schemas: Mapping[int, KnownSchema | DamagedRow],
    failures: list[PublishFailure],
) -> tuple[Frontier, ...]:
    for at, f in enumerate(chain):
        if why := _publish_obstacle(f, hours[f.event_type, f.hour], schemas):
            failures.append(PublishFailure(f, why))
            return tuple(chain[:at])
    return tuple(chain)


def _publish_obstacle(
    f: Frontier, hour: SealedHour, schemas: Mapping[int, KnownSchema | DamagedRow]
) -> Finding | None:
    assert f.seal is not None
    listed, sealed = sum_groups(hour.listed), f.seal.listed
    if (
        f.seal.checked is None or listed.unchecked or sealed.unchecked
    ):  # the values of some rows are unknown
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
        if why := find_schema_error(f.event_type, schema_id, known):
            if isinstance(known, DamagedRow):
                return LedgerChanged(str(why))
            if not hour.leaves_out:
                return Unwritable(
                    f"{why}, or `hourmark bucket force` closes the hour without its events"
                )
    return None


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
            if standing := find_marker(storage, f.event_type):
                raise ForeignLedger(
                    f"{storage.url(standing)} stands, but this ledger has closed nothing "
                    f"of {f.event_type}. {_HELP}"
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
                    f"{storage.url(path)} stands, but the ledger has not closed "
                    f"{f.event_type} {f.hour}. {_HELP}"
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
            f"{manifest.ledger_commit}) with "
            f"other contents than this ledger {ledger_id} sealed. {_HELP}"
        )
