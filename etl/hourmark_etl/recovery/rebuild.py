"""Rebuilds a lost ledger from markers, staged files and topics.

Published markers are authoritative: a type's frontier is the hour after its last marker, regardless
of the state of the lost ledger. `rebuilt_offsets` determines where staging resumes and which staged
files are used.

The mirrors' positions at the last checks, and the gaps known then, are read from storage
(`offset_records`). Without these records, checks start from the beginning, and everything that an
edge has deleted by now counts as a gap. Lost ends of logs are recorded on storage before a driver
runs with the new ledger, because once a log has grown again, another rebuild would not find them.

Overrides, waived sources and set-aside records cannot be rebuilt. Id indexes on storage are reused;
they are a cache for looking up events that are staged again.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, delete, insert, or_, select

from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.records.event_id import SIZE
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark.rules.revision import KnownSchema, RulesBook, SchemaMeaning
from hourmark_etl.buckets.reader import list_types
from hourmark_etl.errors import Unreadable
from hourmark_etl.humanize import format_iso
from hourmark_etl.ids.index_files import Bucket, list_index_files, read_bucket_runs
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import insert_closed_buckets
from hourmark_etl.ledger.closed import make_unaudited_row, put_index_segments
from hourmark_etl.ledger.database import Database, replace_rows
from hourmark_etl.ledger.frontier_rows import (
    BUCKET_SECONDS,
    find_sources_in_revisions,
    insert_frontier,
)
from hourmark_etl.ledger.rules import merge_rules
from hourmark_etl.ledger.schemas import put_schemas
from hourmark_etl.model import DEFAULT_SHARD, EARLIEST_MS, NO_AUDIT_OFFSETS, AuditOffsets, HourState
from hourmark_etl.recovery.first_hours import FirstHours, read_first_hours
from hourmark_etl.recovery.offset_records import record_lost_ends
from hourmark_etl.recovery.rebuild_result import RebuildResult, RebuildSources
from hourmark_etl.recovery.rebuilt_offsets import OffsetRebuilder
from hourmark_etl.recovery.storage_scan import (
    BucketChain,
    audit_next,
    find_used_epochs,
    has_predecessor,
    read_chain,
    scan_unaudited_files,
)
from hourmark_etl.staging.files import read_note
from hourmark_etl.storage import map_concurrently
from hourmark_etl.topics import CentralTopicNames

# Tables that starting a driver and `types apply` fill.
_FILLED_BEFORE_USE: Final = (tables.meta, tables.leases, tables.schemas)


def rebuild(
    sources: RebuildSources, target: Database, report_progress: Callable[[str], None]
) -> RebuildResult:
    """Rebuild a lost ledger (the ETL's state database) from storage and Kafka topics.

    All data is written to an empty ledger in one transaction. A ledger on which only `hourmark
    types apply` has run is considered empty.

    Args:
        sources: Storage, Kafka cluster and other sources to read.
        target: The empty ledger.
        report_progress: Function that is called with human-readable progress messages.

    Returns:
        Numbers of recovered objects, open offset gaps, and messages for the operator.

    Raises:
        UsageError: The target ledger contains data.
        Finding: The sources contradict each other. The target ledger is not changed.
        Unavailable: Storage, the ledger or the cluster does not respond.
    """
    with target.transaction() as connection:
        check_ledger_is_empty(connection, sources.rules)
        connection.execute(delete(tables.frontiers))
        work = _Rebuild(connection=connection, sources=sources, report_progress=report_progress)
        work.run()
    return work.result


@dataclasses.dataclass(kw_only=True)
class _Rebuild:
    connection: Connection
    sources: RebuildSources
    report_progress: Callable[[str], None]
    topics: CentralTopicNames = dataclasses.field(init=False)  # of all types
    result: RebuildResult = dataclasses.field(default_factory=RebuildResult)
    chains: dict[str, BucketChain] = dataclasses.field(default_factory=dict)
    begun: dict[str, FirstHours] = dataclasses.field(
        default_factory=dict
    )  # of types without a bucket
    frontiers: dict[str, int] = dataclasses.field(
        default_factory=dict
    )  # type → its hour, Unix seconds
    shards: dict[str, str] = dataclasses.field(default_factory=dict)  # by type
    cuts: dict[tuple[int, AuditOffsets], int] = dataclasses.field(
        default_factory=dict
    )  # (closed by, its cut) → least commit
    commits: set[int] = dataclasses.field(
        default_factory=set
    )  # numbers that the lost ledger had reached
    ledgers: set[str] = dataclasses.field(default_factory=set)
    published: defaultdict[str, list[Bucket]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )  # by attempt
    schemas: dict[int, SchemaMeaning] = dataclasses.field(default_factory=dict)  # of ids in markers

    def run(self) -> None:
        for event_type in list_types(self.sources.storage):
            self._put_buckets(event_type)
        self.report_progress(f"{self.result.buckets} markers of {len(self.chains)} types")
        self._put_indexes()
        self._put_frontiers()
        offsets = OffsetRebuilder(
            connection=self.connection,
            sources=self.sources,
            result=self.result,
            topics=self.topics,
            chains=self.chains,
            shards=self.shards,
            first_audit_offsets=self._first_needed_promise(),
        )
        known, ends = offsets.run()
        self.commits.add(known.commit)
        self.report_progress(
            f"{self.result.staged_files} staged files with records that Kafka no longer has"
        )
        self._put_unaudited()
        self._put_rules()
        self._put_meta()
        try:
            record_lost_ends(
                self.sources.storage, self.result.ledger, self.result.commit, known, ends
            )
        except (Unavailable, Finding) as error:
            self.result.notes.append(
                "the recovered gaps are not saved on storage until a driver has run with this "
                f"ledger: {error}"
            )

    def _put_buckets(self, event_type: str) -> None:
        closed = read_chain(self.sources.storage, event_type, self.sources.bucket_seconds)
        for at, (hour, manifest) in enumerate(closed):
            before = closed[at - 1][0] if at else None
            if before and before.next() != hour and not has_predecessor(manifest, before):
                self.result.notes.append(f"{event_type}: no bucket between {before} and {hour}")
            self.commits.add(manifest.ledger_commit)
            self.ledgers.add(manifest.ledger)
            self.schemas |= {
                f.schema_id: SchemaMeaning(event_type, f.schema_fingerprint) for f in manifest.files
            }
            cut = (
                manifest.closed_at_ms,
                audit_next(manifest),
            )  # the audit offset may have been read long after the cut began
            self.cuts[cut] = min(manifest.ledger_commit, self.cuts.get(cut, manifest.ledger_commit))
            self.published[manifest.attempt].append((event_type, hour.start_s))
        insert_closed_buckets(self.connection, closed)
        if closed:
            self.chains[event_type] = BucketChain.from_markers(closed)
            self.result.buckets += len(closed)

    def _put_indexes(self) -> None:
        # Use an index file only for the buckets that were published by the attempt that wrote the
        # file.
        storage = self.sources.storage
        own = [
            (path, buckets)
            for path, attempt in list_index_files(storage).items()
            if (buckets := self.published.get(attempt))
        ]
        found = map_concurrently(lambda of: read_bucket_runs(storage, *of), own)
        runs = [run for of_file in found for run in of_file]
        put_index_segments(self.connection, runs, SIZE)
        self.report_progress(f"{len({run.path for *_, run in runs})} event id indexes")

    def _put_frontiers(self) -> None:
        recorded = read_first_hours(self.sources.storage)
        self._name_ledger(recorded)
        for own in (r for r in recorded if r.ledger == self.result.ledger):
            self.commits.add(own.commit)
            for event_type in own.first_hours_s.keys() - self.begun.keys():
                self.begun[event_type] = own
        for event_type in sorted(self.begun.keys() | self.chains.keys()):
            chain = self.chains.get(event_type)
            first_s = self._first_hour(event_type)
            before = chain.last_before(Hour(first_s, chain.first.length_s)) if chain else None
            self.frontiers[event_type] = chain.frontier.start_s if chain else first_s
            sources, shard = self._declared_sources(event_type)
            self.shards[event_type] = shard
            settled = chain.settled_next if chain else NO_AUDIT_OFFSETS
            self.connection.execute(
                insert_frontier(
                    event_type,
                    first_s,
                    shard,
                    sources,
                    self.frontiers[event_type],
                    settled,
                    before.start_s if before else None,
                )
            )
        self.result.types = len(self.frontiers)
        self.topics = CentralTopicNames.from_settings(self.sources.kafka, self.frontiers)
        latest = self.sources.rules.latest.types if self.sources.rules.latest else {}
        if unknown := sorted(set(latest) - set(self.frontiers)):
            self.result.notes.append(
                f"the first hours of these types are unknown: {', '.join(unknown)}; set them "
                "with `hourmark types apply --first-hour`"
            )

    def _first_hour(self, event_type: str) -> int:
        # Buckets before the recorded first hour were back-filled. Without a record, those before the
        # last skipped hours were.
        if begun := self.begun.get(event_type):
            return begun.first_hours_s[event_type]
        chain = self.chains[event_type]
        # A first hour is at most 300 buckets old when its type is applied, and hours before it close
        # first. A newest bucket that was far older when it closed was therefore back-filled, unless
        # a backlog was as old: its empty hours are then skipped, which loses nothing. The other
        # mistake would close each empty hour from that bucket on, which may be 184,000 of them.
        closed = Hour.containing(chain.last.closed_at_ms, chain.first.length_s)
        if chain.frontier >= closed.earliest_chain_start():
            return chain.runs[-1][0].start_s
        first = closed.previous()  # as `hourmark init` sets it
        self.result.notes.append(
            f"type {event_type}: no record states its first hour, and its newest bucket, "
            f"{chain.frontier.previous()}, was closed at {format_iso(chain.last.closed_at_ms)}: all "
            f"its buckets count as back-filled, and each hour from {first} on gets a bucket"
        )
        return first.start_s

    def _name_ledger(self, recorded: Sequence[FirstHours]) -> None:
        # Records of first hours are in order of their commit numbers.
        if len(self.ledgers) > 1:
            raise Finding(
                f"{self.sources.storage.url('')} contains buckets of several ledgers "
                f"({', '.join(sorted(self.ledgers))}); move the buckets of other ledgers "
                "elsewhere"
            )
        self.result.ledger = [
            *self.ledgers,
            *(r.ledger for r in reversed(recorded)),
            str(uuid.uuid4()),
        ][0]

    def _declared_sources(self, event_type: str) -> tuple[set[str], str]:
        # Sources of earlier revisions count, because their hosts may still have lines to deliver.
        knowing = [r for r in self.sources.rules.revisions if event_type in r.types]
        if knowing:
            sources = find_sources_in_revisions(event_type, knowing)
            return sources, knowing[-1].types[event_type].declaration.shard
        self.result.notes.append(
            f"type {event_type}: no rules revision declares it, so it waits for no source"
        )
        return set(), DEFAULT_SHARD

    def _first_needed_promise(self) -> AuditOffsets:
        # Audit records of an hour arrive at most `EARLIEST_MS` before it. Those of a type that has
        # closed nothing from its first hour on arrive after the ledger knew the type, also those of
        # back-filled hours. Open hours therefore do not need records below the offsets of a proof
        # that was completed before that time.
        first = []
        for event_type, hour_s in self.frontiers.items():
            commit, begun = None, self.begun.get(event_type)
            if begun and hour_s <= begun.first_hours_s[event_type]:
                commit, hour_s = begun.commit, begun.first_hours_s[event_type]
            before = (
                offsets
                for (closed_at_ms, offsets), at in self.cuts.items()
                if closed_at_ms <= hour_s * 1000 - EARLIEST_MS and (commit is None or at <= commit)
            )
            first.append(functools.reduce(AuditOffsets.maximum, before, NO_AUDIT_OFFSETS))
        return functools.reduce(AuditOffsets.minimum, first) if first else NO_AUDIT_OFFSETS

    def _put_unaudited(self) -> None:
        # Use a file only if it has as many rows as its manifest has unaudited events: other files
        # were left by failed proofs.
        table = tables.buckets
        found: set[tuple[str, int]] = set()
        for file in scan_unaudited_files(self.sources.storage, self.sources.bucket_seconds):
            of = (file.event_type, file.hour.start_s)
            query = select(table.c.manifest).where(table.c.type == of[0], table.c.hour == of[1])
            text = self.connection.execute(query).scalar()
            if text is None or of in found:
                continue  # never sealed, or not published: a new proof writes it again
            manifest = Manifest.decode(text.encode())
            try:
                rows = read_note(self.sources.storage, file.path).rows
            except Unreadable as error:
                self.result.notes.append(
                    f"{file.path} cannot be read ({error.why}), so a promise that its rows would "
                    "fulfill remains unmet"
                )
                continue
            if rows == manifest.unaudited:
                found.add(of)
                kept = make_unaudited_row(
                    *of, file.path, rows, audit_next(manifest), manifest.closed_at_ms
                )
                self.connection.execute(insert(tables.unaudited).values(kept))

    def _put_rules(self) -> None:
        merge_rules(self.connection, self.sources.rules)
        try:
            put_schemas(
                self.connection,
                [(i, KnownSchema(*meaning, "")) for i, meaning in sorted(self.schemas.items())],
            )
        except ValueError as error:
            raise Finding(
                "markers and hourmark.types contradict each other; check that the cluster "
                f"belongs to this storage root: {error}"
            ) from error
        if unknown := sorted(self.schemas.keys() - self.sources.rules.schemas().keys()):
            self.result.notes.append(
                f"no rules revision has the schema ids {', '.join(map(str, unknown))} of closed "
                "buckets. These buckets remain readable, because their files contain the "
                "schemas; run `hourmark types apply` to look up the ids in the registry"
            )

    def _put_meta(self) -> None:
        # The commit number must be greater than any that the lost ledger used.
        self.result.commit = (
            max(
                self.commits | find_used_epochs(self.sources.storage, self.sources.bucket_seconds),
                default=0,
            )
            + 1
        )
        meta = {
            "uuid": self.result.ledger,
            "commit": self.result.commit,
            BUCKET_SECONDS: self.sources.bucket_seconds,
        }
        replace_rows(
            self.connection,
            tables.meta,
            ["key"],
            [{"key": name, "value": str(value)} for name, value in meta.items()],
        )


def check_ledger_is_empty(connection: Connection, rules: RulesBook) -> None:
    """Check that a ledger (the ETL's state database) is empty, so that it can be rebuilt.

    Data that is written by the start of an ETL driver or by `hourmark types apply` is ignored.

    Args:
        connection: Connection to the ledger.
        rules: Revisions of the parsing rules in the Kafka topic of rules. A ledger with any other
            revision is not empty.

    Raises:
        UsageError: The ledger contains data. Use another database.
    """
    f = tables.frontiers.c
    moved = or_(
        f.hour != f.first_hour,
        f.state != HourState.OPEN.value,
        f.settled_next != 0,
        f.settled_further.is_not(None),
        f.backfilled_hour.is_not(None),
        f.seal.is_not(None),
        f.alarm.is_not(None),
    )
    for table in tables.metadata.sorted_tables:
        own = select(table)
        if table is tables.frontiers:
            own = own.where(moved)
        elif table is tables.rules:
            own = own.where(table.c.key.not_in([*rules.records]))
        if table not in _FILLED_BEFORE_USE and connection.execute(own).first() is not None:
            raise UsageError(
                f"the target ledger is not empty (table {table.name}); specify an empty one with "
                "--into. Nothing was changed"
            )
