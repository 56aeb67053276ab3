"""Makes a lost ledger anew from what is left: markers, staged files, and the topics.

A published marker always wins: a type's frontier is the hour after its last marker, whatever the
ledger had reached beyond it. Where staging begins again, and what of staged files counts beside it,
is told in `rebuilt_offsets`.

Where the mirror stood at the last checks of the edge, and which gaps there were by then, is read
from storage too (`offset_records`); without it those checks begin anew, and what the edge has
deleted by now counts as a gap. That a log lost its end is kept there before any driver runs with
the new ledger: once the log has grown again, another rebuild would not find it.

Not rebuilt, because nothing tells it: overrides, whom a bucket waived, and which records were set
aside. The index of ids is a cache: what of it stands on storage is taken over, as what is staged
again is looked up in closed buckets.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, delete, insert, select

from hourmark.errors import Finding, Unavailable
from hourmark.records.event_id import SIZE
from hourmark.records.manifest import Manifest
from hourmark.rules.revision import KnownSchema, SchemaMeaning
from hourmark_etl.buckets.reader import list_types
from hourmark_etl.errors import Unreadable
from hourmark_etl.ids.kept import Bucket, kept_files, kept_runs
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import put_buckets
from hourmark_etl.ledger.closed import put_runs, unaudited_row
from hourmark_etl.ledger.database import Database, replace_rows
from hourmark_etl.ledger.frontier_rows import BUCKET_SECONDS, insert_frontier, sources_carrying
from hourmark_etl.ledger.rules import merge_rules
from hourmark_etl.ledger.schemas import put_schemas
from hourmark_etl.model import (
    DEFAULT_SHARD,
    EARLIEST_MS,
    NONE_MEANT,
    AuditOffsets,
)
from hourmark_etl.recovery.filled import refuse_filled
from hourmark_etl.recovery.first_hours import FirstHours, read_first_hours
from hourmark_etl.recovery.offset_records import keep_found
from hourmark_etl.recovery.rebuilt import Outside, Rebuilt
from hourmark_etl.recovery.rebuilt_offsets import OffsetsRebuild
from hourmark_etl.recovery.storage_scan import (
    Chain,
    audit_next,
    epochs,
    read_chain,
    unaudited_files,
)
from hourmark_etl.staging.files import read_note
from hourmark_etl.storage import map_concurrently
from hourmark_etl.topics import CentralTopics


def rebuild(outside: Outside, target: Database, say: Callable[[str], None]) -> Rebuilt:
    """Fill an empty ledger, in one transaction.

    `say` is told how it goes. One that `types apply` made counts as empty: its types begin where
    what is left says.

    UsageError if the target holds anything else; Finding where what is left contradicts itself:
    nothing is written then.
    """
    with target.transaction() as connection:
        refuse_filled(connection, outside.rules)
        connection.execute(delete(tables.frontiers))
        work = _Rebuild(connection=connection, outside=outside, say=say)
        work.run()
    return work.done


@dataclasses.dataclass(kw_only=True)
class _Rebuild:
    connection: Connection
    outside: Outside
    say: Callable[[str], None]
    topics: CentralTopics = dataclasses.field(init=False)  # of all types
    done: Rebuilt = dataclasses.field(default_factory=Rebuilt)
    chains: dict[str, Chain] = dataclasses.field(default_factory=dict)
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
        for event_type in list_types(self.outside.storage):
            self._put_buckets(event_type)
        self.say(f"{self.done.buckets} markers of {len(self.chains)} types")
        self._put_indexes()
        self._put_frontiers()
        offsets = OffsetsRebuild(
            connection=self.connection,
            outside=self.outside,
            done=self.done,
            topics=self.topics,
            chains=self.chains,
            shards=self.shards,
            promised=self._first_promise(),
        )
        known, ends = offsets.run()
        self.commits.add(known.commit)
        self.say(f"{self.done.staged_files} staged files of what Kafka no longer holds")
        self._put_unaudited()
        self._put_rules()
        self._put_meta()
        try:
            keep_found(self.outside.storage, self.done.ledger, self.done.commit, known, ends)
        except (Unavailable, Finding) as error:
            self.done.notes.append(
                "what was found is not kept on storage, until a driver has run with this "
                f"ledger: {error}"
            )

    def _put_buckets(self, event_type: str) -> None:
        closed = read_chain(self.outside.storage, event_type, self.outside.bucket_seconds)
        for at, (hour, manifest) in enumerate(closed):
            if at and closed[at - 1][0].next() != hour:
                self.done.notes.append(
                    f"{event_type}: no bucket between {closed[at - 1][0]} and {hour}"
                )
            self.commits.add(manifest.ledger_commit)
            self.ledgers.add(manifest.ledger)
            self.schemas |= {
                f.schema_id: SchemaMeaning(event_type, f.schema_fingerprint) for f in manifest.files
            }
            cut = (
                manifest.closed_at_ms,
                audit_next(manifest),
            )  # its audit offset may be of long after the cut began
            self.cuts[cut] = min(manifest.ledger_commit, self.cuts.get(cut, manifest.ledger_commit))
            self.published[manifest.attempt].append((event_type, hour.start_s))
        put_buckets(self.connection, closed)
        if closed:
            self.chains[event_type] = Chain.of(closed)
            self.done.buckets += len(closed)

    def _put_indexes(self) -> None:
        """Runs of those that the attempt published which kept the index: of others it may hold what
        was never published.
        """
        storage = self.outside.storage
        own = [
            (path, buckets)
            for path, attempt in kept_files(storage).items()
            if (buckets := self.published.get(attempt))
        ]
        found = map_concurrently(lambda of: kept_runs(storage, *of), own)
        runs = [run for of_file in found for run in of_file]
        put_runs(self.connection, runs, SIZE)
        self.say(f"{len({run.path for *_, run in runs})} indexes of ids")

    def _put_frontiers(self) -> None:
        recorded = read_first_hours(self.outside.storage)
        self._name_ledger(recorded)
        for own in (r for r in recorded if r.ledger == self.done.ledger):
            self.commits.add(own.commit)
            for event_type in own.first_hours_s.keys() - self.begun.keys():
                self.begun[event_type] = own
        for event_type in sorted(self.begun.keys() | self.chains.keys()):
            chain, begun = self.chains.get(event_type), self.begun.get(event_type)
            first_s = min(
                ([chain.first.start_s] if chain else [])
                + ([begun.first_hours_s[event_type]] if begun else [])
            )
            self.frontiers[event_type] = chain.frontier.start_s if chain else first_s
            sources, shard = self._declared(event_type)
            self.shards[event_type] = shard
            settled = chain.settled_next if chain else NONE_MEANT
            self.connection.execute(
                insert_frontier(
                    event_type, first_s, shard, sources, self.frontiers[event_type], settled
                )
            )
        self.done.types = len(self.frontiers)
        self.topics = CentralTopics.of(self.outside.kafka, self.frontiers)
        latest = self.outside.rules.latest.types if self.outside.rules.latest else {}
        if unknown := sorted(set(latest) - set(self.frontiers)):
            self.done.notes.append(
                f"nothing tells where these types begin: {', '.join(unknown)}; run "
                "`hourmark types apply` with their --first-hour"
            )

    def _name_ledger(self, recorded: Sequence[FirstHours]) -> None:
        """The UUID that markers name; where there are none, that of the last record."""
        if len(self.ledgers) > 1:
            raise Finding(
                f"{self.outside.storage.url('')} holds buckets of several ledgers "
                f"({', '.join(sorted(self.ledgers))}); move "
                "those of the others away"
            )
        self.done.ledger = [
            *self.ledgers,
            *(r.ledger for r in reversed(recorded)),
            str(uuid.uuid4()),
        ][0]

    def _declared(self, event_type: str) -> tuple[set[str], str]:
        """All sources that ever carried it, as none of their hosts is known to have left; the
        shard, as declared last.
        """
        knowing = [r for r in self.outside.rules.revisions if event_type in r.types]
        if knowing:
            sources = {
                source
                for r in knowing
                for source in sources_carrying(event_type, r.sources.values())
            }
            return sources, knowing[-1].types[event_type].declaration.shard
        self.done.notes.append(
            f"type {event_type}: no rules revision declares it; it waits for no source"
        )
        return set(), DEFAULT_SHARD

    def _first_promise(self) -> AuditOffsets:
        """The central audit offsets of the first promises that may count for a frontier hour, or
        for a late event of it.

        Promises of an hour, as its events, come no earlier than `EARLIEST_MS` before it; those of a
        type without a bucket, not before the ledger knew the type. A cut that was taken by then has
        all earlier ones below it, settled or of other hours.
        """
        first = []
        for event_type, hour_s in self.frontiers.items():
            commit = None if event_type in self.chains else self.begun[event_type].commit
            before = (
                offsets
                for (closed_at_ms, offsets), at in self.cuts.items()
                if closed_at_ms <= hour_s * 1000 - EARLIEST_MS and (commit is None or at <= commit)
            )
            first.append(functools.reduce(AuditOffsets.joined, before, NONE_MEANT))
        return functools.reduce(AuditOffsets.shared, first) if first else NONE_MEANT

    def _put_unaudited(self) -> None:
        """Of each closed hour, the file with as many rows as its manifest says; another is of a
        proof that failed.
        """
        table = tables.buckets
        found: set[tuple[str, int]] = set()
        for file in unaudited_files(self.outside.storage, self.outside.bucket_seconds):
            of = (file.event_type, file.hour.start_s)
            query = select(table.c.manifest).where(table.c.type == of[0], table.c.hour == of[1])
            text = self.connection.execute(query).scalar()
            if text is None or of in found:
                continue  # never sealed, or sealed and not published: the proof makes it again
            manifest = Manifest.decode(text.encode())
            try:
                rows = read_note(self.outside.storage, file.path).rows
            except Unreadable as error:
                self.done.notes.append(
                    f"{file.path} is not to be read ({error.why}): a promise that it "
                    "would keep stays unmet"
                )
                continue
            if rows == manifest.unaudited:
                found.add(of)
                kept = unaudited_row(
                    *of, file.path, rows, audit_next(manifest), manifest.closed_at_ms
                )
                self.connection.execute(insert(tables.unaudited).values(kept))

    def _put_rules(self) -> None:
        """Finding where an id stands for something else in a marker than in the rules: one of the
        two is not this site's.
        """
        merge_rules(self.connection, self.outside.rules)
        try:
            put_schemas(
                self.connection,
                [(i, KnownSchema(*meaning, "")) for i, meaning in sorted(self.schemas.items())],
            )
        except ValueError as error:
            raise Finding(
                "markers and hourmark.types contradict each other, is it this root's "
                f"cluster? {error}"
            ) from error
        if unknown := sorted(self.schemas.keys() - self.outside.rules.schemas().keys()):
            self.done.notes.append(
                f"no rules revision has the schema ids {', '.join(map(str, unknown))} of closed "
                "buckets, which stay readable, as "
                "they hold their schemas; run `hourmark types apply`, which asks the registry"
            )

    def _put_meta(self) -> None:
        """Its commit is above every number that a marker, a batch or a file of unaudited rows tells
        of the lost ledger.
        """
        self.done.commit = (
            max(self.commits | epochs(self.outside.storage, self.outside.bucket_seconds), default=0)
            + 1
        )
        meta = {
            "uuid": self.done.ledger,
            "commit": self.done.commit,
            BUCKET_SECONDS: self.outside.bucket_seconds,
        }
        replace_rows(
            self.connection,
            tables.meta,
            ["key"],
            [{"key": name, "value": str(value)} for name, value in meta.items()],
        )
