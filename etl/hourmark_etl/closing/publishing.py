"""Writes and publishes sealed hours.

`Publisher` writes all types of a round at once and then publishes each type's hours in order, many
types in parallel. If an hour cannot be published, only its type waits.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest, PreviousMarker
from hourmark.rules.revision import KnownSchema
from hourmark_etl.buckets.reader import NotClosed, decode_manifest, find_manifest, read_marker
from hourmark_etl.closing.attempts import PublishFailure, Unwritable, publish
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.ownership import check_seal_matches
from hourmark_etl.closing.write.id_indexes import publish_indexes
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontiers import PublishedHour
from hourmark_etl.ledger.maintenance.overview import read_closed_marker
from hourmark_etl.ledger.schemas import find_schema_error, read_schemas_by_id
from hourmark_etl.ledger.staged.listings import read_assigned_groups, sum_groups
from hourmark_etl.ledger.staged.set_aside import find_set_aside_in_buckets
from hourmark_etl.model import Frontier, Seal
from hourmark_etl.storage import Storage, StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER


class LedgerChanged(Finding):
    """Raised if rows of the ledger (the ETL's state database) for a sealed bucket have changed.

    The rows are damaged, or they were changed after the content of the bucket had been fixed. An
    operator must restore or rebuild the ledger.
    """


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
