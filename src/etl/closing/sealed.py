"""Writes and publishes sealed hours: one write for all types of a round, then each type's folders in turn, many types at once.

What cannot be published holds up its type alone: it is given back as trouble, and its later hours wait with it.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from etl.buckets import standing_manifest
from etl.closing.containers import WrittenHour
from etl.closing.engine import Engine
from etl.closing.indexing import keep_indexes
from etl.closing.ownership import refuse_other_seal
from etl.closing.publishing import ATTEMPTS_FOLDER, manifest_of, previous_of, publish
from etl.closing.writing import SealedHour
from etl.ledger.database import Database, Lease
from etl.ledger.frontiers import Closing
from etl.ledger.listings import listed_groups, listed_sums
from etl.ledger.rows import Frontier, Sums
from etl.ledger.schemas import remembered_schema
from etl.storage import Storage, StorageError
from hourmark.avro import Schema
from hourmark.clock import Clock
from hourmark.errors import Finding
from hourmark.hours import Hour
from hourmark.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class Trouble:
    """Why an hour cannot be published for now."""

    frontier: Frontier
    error: Finding | StorageError


@dataclasses.dataclass
class Published:
    """What became of a round."""

    closings: list[Closing] = dataclasses.field(default_factory=list)
    troubles: list[Trouble] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Publisher:
    """Sealed hours → buckets. `publishers`: how many types are published at once; with 1, in an order that can be repeated."""

    engine: Engine
    storage: Storage
    database: Database
    lease: Lease
    fetch_schema: Callable[[int], Schema]
    clock: Clock
    publishers: int

    def standing(self, sealed: Collection[Frontier]) -> Published:
        """Those of them that were published already, by a closer that was interrupted or by another; by their markers."""
        return self._each([f.sealed_hours for f in sealed], self._standing_of)

    def publish(self, sealed: Collection[Frontier]) -> Published:
        """Write and publish every hour that is sealed on these frontiers."""
        attempt = uuid.uuid4().hex
        folder = f"{ATTEMPTS_FOLDER}/{attempt}"
        chains = [f.sealed_hours for f in sealed]
        hours = self._sealed_hours([f for chain in chains for f in chain])
        schemas, unknown = self._schemas({s for h in hours.values() for s in _schema_ids(h)})
        troubles: list[Trouble] = []
        chains = [_readable(chain, hours, unknown, troubles) for chain in chains]
        hours = {(f.event_type, f.hour): hours[f.event_type, f.hour] for chain in chains for f in chain}
        texts = {s: text for s, (text, _) in schemas.items()}
        written = self.engine.write(list(hours.values()), texts, f"{folder}/_tasks")  # no type has such a name
        by_hour = {(w.event_type, w.hour_s): w for w in written}
        identity = self.database.identity()

        def manifest(f: Frontier, of: WrittenHour) -> Manifest:
            return manifest_of(
                f, of, listed=hours[f.event_type, f.hour].listed,
                fingerprints={s: mark for s, (_, mark) in schemas.items()}, previous=previous_of(self.storage, f),
                ledger=identity, attempt=attempt,
                now_ms=self.clock.now_ms(),
            )  # fmt: skip

        def publish_chain(chain: Sequence[Frontier]) -> Published:
            done = Published()
            for f in chain:
                of = by_hour[f.event_type, f.hour.start_s]
                try:
                    done.closings.append(self._closing(f, publish(self.storage, f, of, manifest(f, of))))
                except (Finding, StorageError) as error:
                    done.troubles.append(Trouble(f, error))
                    break
            return done

        result = self._each(chains, publish_chain)
        result.troubles += troubles
        published = [c.manifest for c in result.closings]
        keep_indexes(self.storage, self.database, self.lease, attempt, published, written, self.clock.now_ms())
        self.storage.delete(folder)
        return result

    def _schemas(self, ids: Collection[int]) -> tuple[dict[int, tuple[str, str]], dict[int, Finding]]:
        """By id: text and fingerprint, or why there is none."""
        known, unknown = {}, {}
        for schema_id in sorted(ids):
            try:
                known[schema_id] = remembered_schema(self.database, self.lease, schema_id, self.fetch_schema)
            except Finding as error:
                unknown[schema_id] = error
        return known, unknown

    def _standing_of(self, chain: Sequence[Frontier]) -> Published:
        found = Published()
        for f in chain:
            try:
                marker = standing_manifest(self.storage, f.event_type, f.hour)
            except Finding as error:  # no manifest of this bucket: buckets never change, so somebody else wrote it
                found.troubles.append(Trouble(f, error))
                break
            if marker is None:
                break
            found.closings.append(self._closing(f, marker))
        return found

    def _closing(self, f: Frontier, manifest: Manifest) -> Closing:
        assert f.seal is not None
        refuse_other_seal(manifest, f.seal, self.database.identity()[0])
        return Closing(f, manifest)

    def _sealed_hours(self, sealed: Sequence[Frontier]) -> dict[tuple[str, Hour], SealedHour]:
        groups = listed_groups(self.database, sealed)
        return {
            (f.event_type, f.hour): SealedHour(f.event_type, f.hour, tuple(listed))
            for f, listed in zip(sealed, groups, strict=True)
        }

    def _each(self, chains: Sequence[Sequence[Frontier]], act: Callable[[Sequence[Frontier]], Published]) -> Published:
        together = Published()
        with ThreadPoolExecutor(self.publishers) as pool:
            for done in pool.map(act, chains):
                together.closings += done.closings
                together.troubles += done.troubles
        return together


def _other_rows(f: Frontier, listed: Sums) -> Finding:
    sealed = f.seal.listed.events if f.seal else 0
    return Finding(
        f"the ledger lists {listed.events} rows for {f.event_type} {f.hour}, which was sealed with {sealed}, or with others: "
        "rows of the table staged_groups were changed or are gone; restore the newest copy of the ledger, or make it anew by "
        "`hourmark ledger rebuild`"
    )


def _schema_ids(hour: SealedHour) -> set[int]:
    return {s for g in hour.listed for s in g.schema_ids}


def _readable(
    chain: Sequence[Frontier],
    hours: Mapping[tuple[str, Hour], SealedHour],
    unknown: Mapping[int, Finding],
    troubles: list[Trouble],
) -> tuple[Frontier, ...]:
    """The hours of the chain before the first with events that nobody can read, or with other rows than it was sealed with."""
    for at, f in enumerate(chain):
        listed = listed_sums(hours[f.event_type, f.hour].listed)
        if f.seal is None or listed != f.seal.listed:
            troubles.append(Trouble(f, _other_rows(f, listed)))
            return tuple(chain[:at])
        if ids := sorted(_schema_ids(hours[f.event_type, f.hour]) & unknown.keys()):
            troubles.append(Trouble(f, unknown[ids[0]]))
            return tuple(chain[:at])
    return tuple(chain)
