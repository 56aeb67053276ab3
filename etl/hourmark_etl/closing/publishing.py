"""Writes and publishes sealed hours.

`Publisher` writes all types of a round at once and then publishes each type's hours in order, many
types in parallel. If an hour cannot be published, only its type waits.

Buckets are prepared concurrently, also those of one type, and up to `_AHEAD` of a type ahead of the
one that is published. Each marker names the digest of the marker before it, so a prepared bucket is
published only after the bucket that its marker names, or at once with it. If another attempt has
published that one, later hours of the type are only looked up. Those that do not exist yet are
written again.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from typing import Final, NamedTuple, TypeVar

from hourmark.clock import Clock
from hourmark.config.groups import AvroCodec
from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest, PreviousMarker
from hourmark.rules.revision import KnownSchema
from hourmark_etl.buckets.reader import (
    BucketRemoved,
    NotClosed,
    decode_manifest,
    find_closed_manifest,
    read_marker,
)
from hourmark_etl.closing.attempts import (
    PublishFailure,
    Unwritable,
    bucket_parent,
    prepare_bucket,
    publish_folder,
    publish_prepared,
)
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.ownership import check_seal_matches
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.id_indexes import publish_indexes
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontiers import PublishedHour
from hourmark_etl.ledger.maintenance.overview import read_closed_marker
from hourmark_etl.ledger.schemas import find_schema_error, read_schemas_by_id
from hourmark_etl.ledger.staged.listings import read_assigned_groups, sum_groups
from hourmark_etl.ledger.staged.set_aside import find_set_aside_in_buckets
from hourmark_etl.model import ExcludedRecords, Frontier, Seal, StagedGroup
from hourmark_etl.storage import Storage, StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

_AHEAD: Final = 16  # buckets of a type that are prepared before the one that is published
_Key = tuple[str, int]
_Bucket = tuple[Frontier, Manifest]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LedgerChanged(Finding):
    """Raised if rows of the ledger (the ETL's state database) for a sealed bucket have changed.

    The rows are damaged, or they were changed after the content of the bucket had been fixed. An
    operator must restore or rebuild the ledger.
    """


def read_previous_marker(storage: Storage, frontier: Frontier) -> PreviousMarker | None:
    """Return the hour of the bucket before an hour, and the digest of its `_SUCCESS` file.

    The manifest of each bucket contains both, so that missing and changed buckets can be detected.

    Args:
        storage: Storage with the buckets.
        frontier: Event type and hour whose previous bucket to read.

    Returns:
        Hour and digest; None for the first bucket of the type.

    Raises:
        Finding: The previous `_SUCCESS` file is missing or damaged. An operator must restore it.
        StorageError: Storage is unavailable.
    """
    before = frontier.previous_hour
    if before is None:
        return None
    try:
        marker = read_marker(storage, frontier.event_type, before)
        decode_manifest(storage, frontier.event_type, before, marker)
        return PreviousMarker.from_marker(str(before), marker)
    except BucketRemoved as error:
        return error.bucket.reference
    except NotClosed as error:
        raise Finding(
            f"{frontier.event_type} {frontier.hour} follows a bucket that no longer exists: "
            f"{error}; restore that bucket"
        ) from error


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
        executor: Function that creates an executor for parallel storage operations.
        codec: Codec of the files of new buckets.
    """

    engine: Engine
    storage: Storage
    database: Database
    lease: Lease
    clock: Clock
    executor: Callable[[], Executor]
    codec: AvroCodec

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
        return self._collect_manifests(chains, self._read_existing)

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
        known = {of: schema for of, schema in schemas.items() if isinstance(schema, KnownSchema)}
        texts = {of: schema.text for of, schema in known.items() if schema.text}
        readable = [hours[f.event_type, f.hour] for chain in chains for f in chain]
        tasks_folder = f"{folder}/_tasks"  # not a valid type name
        written = self.engine.write(readable, texts, tasks_folder, self.codec)
        written_round = _WrittenRound(
            attempt=attempt,
            ledger=self.database.identity(),
            listed={(h.event_type, h.hour.start_s): h.listed for h in hours.values()},
            written={(w.event_type, w.hour_s): w for w in written},
            set_aside=find_set_aside_in_buckets(
                self.database, {(f.event_type, f.hour.start_s) for f in asked}
            ),
            fingerprints={of: schema.fingerprint for of, schema in known.items()},
        )
        with self.executor() as preparing:
            result = self._collect_manifests(
                chains, lambda chain: self._publish_chain(chain, written_round, preparing)
            )
        result.failures += failures
        publish_indexes(
            self.storage,
            self.database,
            self.lease,
            attempt,
            [c.manifest for c in result.closings],
            written,
            self.clock.now_ms(),
        )
        self.storage.delete(folder)
        return result

    def _publish_chain(
        self, chain: Sequence[Frontier], written_round: _WrittenRound, preparing: Executor
    ) -> Generator[Manifest]:
        # Yield the manifests of a type's buckets as they are published, in order.
        def prepare(bucket: _Bucket) -> _Bucket:
            f, manifest = bucket
            written = written_round.written[f.event_type, f.hour.start_s]
            prepare_bucket(self.storage, f, written, manifest)
            return bucket

        buckets = self._build_manifests(chain, written_round)
        with closing(_map_ahead(preparing, prepare, buckets)) as prepared:
            for _, hours in itertools.groupby(chain, key=_folder_of):
                ready, error = _take_prepared(prepared, len(list(hours)))
                if not error and _is_folder_new(ready) and publish_folder(self.storage, ready):
                    yield from (manifest for _, manifest in ready)
                    continue
                for f, manifest in ready:
                    published = publish_prepared(self.storage, f, manifest)
                    yield published
                    if published != manifest:  # the markers of later hours do not name this one
                        yield from self._read_existing([x for x in chain if x.hour > f.hour])
                        return
                if error:
                    raise error

    def _read_existing(self, chain: Sequence[Frontier]) -> Generator[Manifest]:
        # Yield the manifests of existing buckets, up to the first one that does not exist. An
        # invalid manifest raises a Finding: buckets never change, so another program wrote it.
        for f in chain:
            # A closer that was killed may have published it long ago, so that it was removed since.
            manifest = find_closed_manifest(self.storage, f.event_type, f.hour)
            if manifest is None:
                return
            yield manifest

    def _build_manifests(
        self, chain: Sequence[Frontier], written_round: _WrittenRound
    ) -> Iterator[_Bucket]:
        # Each manifest refers to the one before it, which is not published yet.
        previous: PreviousMarker | None = None
        for at, f in enumerate(chain):
            unverified: tuple[str, ...] = ()
            if at == 0:
                previous, unverified = self._previous_marker(f)
            manifest = written_round.build_manifest(f, previous, unverified, self.clock.now_ms())
            previous = PreviousMarker.from_marker(manifest.hour, manifest.encode())
            yield f, manifest

    def _previous_marker(self, f: Frontier) -> tuple[PreviousMarker | None, tuple[str, ...]]:
        # Return the previous hour's marker, and readable problems with it. If the marker is
        # unreadable and an override gives it up, the ledger's copy is used.
        try:
            return read_previous_marker(self.storage, f), ()
        except Finding as error:
            before = f.previous_hour
            assert before is not None, "the first bucket has no predecessor"
            known = read_closed_marker(self.database, f.event_type, before)
            if known is None:
                raise
            if not _waivers(f.seal).gives_up:
                raise Unwritable(
                    f"{error}; alternatively, `hourmark bucket force` continues with the "
                    "ledger's copy of its marker"
                ) from error
            decode_manifest(self.storage, f.event_type, before, known)
            return PreviousMarker.from_marker(str(before), known), (
                f"the bucket before it, {before}: {error}",
            )

    def _collect_manifests(
        self,
        chains: Sequence[Sequence[Frontier]],
        manifests_of: Callable[[Sequence[Frontier]], Generator[Manifest]],
    ) -> PublishResult:
        # Collect each hour's manifest, many types in parallel and each type's hours in order. A
        # type ends at the first hour that has no manifest or raises an error.
        together, ledger = PublishResult(), self.database.identity()[0]

        def close(chain: Sequence[Frontier]) -> None:
            with closing(manifests_of(chain)) as manifests:
                for f in chain:
                    try:
                        if (manifest := next(manifests, None)) is None:
                            return
                    except (Finding, StorageError) as error:
                        together.failures.append(PublishFailure(f, error))
                        return
                    assert f.seal is not None
                    check_seal_matches(manifest, f.seal, ledger)
                    together.closings.append(PublishedHour(f, manifest))

        with self.executor() as pool:
            list(pool.map(close, chains))
        return together


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WrittenRound:
    # What an attempt has written of all types, by type and hour (Unix seconds).
    attempt: str
    ledger: tuple[str, int]
    listed: Mapping[_Key, Sequence[StagedGroup]]
    written: Mapping[_Key, WrittenHour]
    set_aside: Mapping[_Key, Collection[ExcludedRecords]]
    fingerprints: Mapping[int, str]  # by schema id

    def build_manifest(
        self, f: Frontier, previous: PreviousMarker | None, unverified: Collection[str], now_ms: int
    ) -> Manifest:
        key = f.event_type, f.hour.start_s
        return build_manifest(
            f,
            self.written[key],
            listed=self.listed[key],
            fingerprints=self.fingerprints,
            set_aside=self.set_aside.get(key, ()),
            previous=previous,
            ledger=self.ledger,
            attempt=self.attempt,
            now_ms=now_ms,
            unverified=unverified,
        )


def _folder_of(f: Frontier) -> str:
    return bucket_parent(f.event_type, f.hour)


def _is_folder_new(buckets: Sequence[_Bucket]) -> bool:
    # Whether several buckets are the first ones in their folder.
    f = buckets[0][0]
    before = f.previous_hour
    return len(buckets) > 1 and (
        before is None or bucket_parent(f.event_type, before) != _folder_of(f)
    )


def _take_prepared(
    prepared: Iterator[_Bucket], count: int
) -> tuple[list[_Bucket], Finding | StorageError | None]:
    # Return the next prepared buckets, and the error of the one that could not be prepared.
    ready: list[_Bucket] = []
    try:
        for _ in range(count):
            ready.append(next(prepared))
    except (Finding, StorageError) as error:
        return ready, error
    return ready, None


def _map_ahead(
    executor: Executor, function: Callable[[_Item], _Result], items: Iterator[_Item]
) -> Generator[_Result]:
    # Yield the result of the function for each item, in order, while the next calls are executed.
    begun = deque[Future[_Result]]()
    try:
        for item in items:
            begun.append(executor.submit(function, item))
            if len(begun) > _AHEAD:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()


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
            f"the ledger lists {listed.events} rows for {f.event_type} {f.hour}, but "
            f"{sealed.events} or different rows were sealed: rows of the table staged_groups "
            "were changed or deleted. Restore the newest copy of the ledger, or recreate it "
            "with `hourmark ledger rebuild`"
        )
    for schema_id in sorted(_schema_ids(hour)):
        known = schemas.get(schema_id)
        if why := find_schema_error(f.event_type, schema_id, known):
            if isinstance(known, DamagedRow):
                return LedgerChanged(str(why))
            if not hour.leaves_out:
                return Unwritable(
                    f"{why}; alternatively, `hourmark bucket force` closes the hour without the "
                    "events of this schema"
                )
    return None
