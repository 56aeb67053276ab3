"""Makes a lost ledger anew from what is left: markers, staged files, and the topics.

A published marker always wins: a type's frontier is the hour after its last marker, whatever the ledger had reached beyond it.
Nothing is concluded about which batches had been committed. Staging begins again:

- events where the type's markers say that every record below stands in a closed bucket, or at the log start;
- promises and reports at the log start. What is staged twice is dropped by its id; a promise, by its range.

Whatever Kafka no longer holds is listed from staged files: each says what it holds, and its name that it says so truly. What
neither has is a gap. Of promises, back to the first that may count for an hour that is open: they hold every type until an
override accepts that. Of events, it is only named: promises tell whether anything is missing, and then the hour is forced.

Where the mirror stood at the last checks of the edge, and which gaps there were by then, is read from storage too
(`offset_records`); without it those checks begin anew, and what the edge has deleted by now counts as a gap.

A log of promises that ends before what was staged or settled of it has lost records, and others take their offsets. It counts as
if it began there: what stood in it is listed from staged files, and a gap holds every type, as in the lost ledger.

Not rebuilt, because nothing tells it: overrides, whom a bucket waived, and types that were quarantined (their next batch
quarantines them again). The index of ids is a cache, and begins anew too.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from hourmark.config_groups import Kafka
from hourmark.errors import Finding
from hourmark.kafka import Partition
from hourmark.manifest import Manifest
from hourmark.rules import KnownSchema, RulesBook, SchemaMeaning
from hourmark.topics import central_topic, events_topic
from hourmark_etl.buckets.reader import list_types
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import lost_behind, lost_to_retention, put_positions, put_staged
from hourmark_etl.ledger.closed import unaudited_row
from hourmark_etl.ledger.database import Database, put
from hourmark_etl.ledger.frontier_rows import BUCKET_SECONDS, carriers, new_frontier
from hourmark_etl.ledger.frontiers import bucket_row
from hourmark_etl.ledger.offset_gaps import put_checks, put_gaps
from hourmark_etl.ledger.rules import put_book
from hourmark_etl.ledger.schemas import put_schemas
from hourmark_etl.model import (
    DEFAULT_SHARD,
    EARLIEST_MS,
    FIRST_SITE,
    NONE_MEANT,
    AuditOffsets,
    Position,
    Span,
)
from hourmark_etl.recovery.filled import refuse_filled
from hourmark_etl.recovery.first_hours import FirstHours, read_first_hours
from hourmark_etl.recovery.offset_records import read_offset_record
from hourmark_etl.recovery.storage_scan import (
    Chain,
    Key,
    audit_next,
    batch_of,
    epochs,
    read_chain,
    read_notes,
    unaudited_files,
    uncovered,
)
from hourmark_etl.staging.files import read_note
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage
from hourmark_etl.topics import Central, CentralTopics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outside:
    """What a rebuild reads. `rules`: every revision that the topic has."""

    storage: Storage
    kafka: Kafka
    central: Central
    rules: RulesBook
    bucket_seconds: int
    now_ms: int


@dataclasses.dataclass(kw_only=True)
class Rebuilt:
    """What was found. `lost`: what holds types until an override; `notes`: what else an operator should know."""

    ledger: str = ""
    commit: int = 0
    types: int = 0
    buckets: int = 0
    staged_files: int = 0
    lost: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def rebuild(outside: Outside, target: Database, say: Callable[[str], None]) -> Rebuilt:
    """Fill an empty ledger, in one transaction. `say` is told how it goes. One that `types apply` made counts as empty: its types
    begin where what is left says.

    UsageError if the target holds anything else; Finding where what is left contradicts itself: nothing is written then.
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
    begun: dict[str, FirstHours] = dataclasses.field(default_factory=dict)  # of types without a bucket
    frontiers: dict[str, int] = dataclasses.field(default_factory=dict)  # type → its hour, Unix seconds
    shards: dict[str, str] = dataclasses.field(default_factory=dict)  # by type
    cuts: dict[tuple[int, AuditOffsets], int] = dataclasses.field(default_factory=dict)  # (closed by, its cut) → least commit
    commits: set[int] = dataclasses.field(default_factory=set)  # numbers that the lost ledger had reached
    ledgers: set[str] = dataclasses.field(default_factory=set)
    schemas: dict[int, SchemaMeaning] = dataclasses.field(default_factory=dict)  # of ids in markers
    shortened: set[Partition] = dataclasses.field(default_factory=set)  # logs of promises that lost records
    known: set[tuple[str, str]] = dataclasses.field(default_factory=set)  # gaps of the lost ledger: topics, and what they say

    def run(self) -> None:
        for event_type in list_types(self.outside.storage):
            self._put_buckets(event_type)
        self.say(f"{self.done.buckets} markers of {len(self.chains)} types")
        self._put_frontiers()
        positions, starts = self._put_positions()
        covered = self._put_staged(starts)
        self.say(f"{self.done.staged_files} staged files of what Kafka no longer holds")
        self._put_offsets()
        self._put_gaps(positions, starts, covered)
        self._put_unaudited()
        self._put_rules()
        self._put_meta()

    def _put_buckets(self, event_type: str) -> None:
        closed = read_chain(self.outside.storage, event_type, self.outside.bucket_seconds)
        for at, (hour, manifest) in enumerate(closed):
            if at and closed[at - 1][0].next() != hour:
                self.done.notes.append(f"{event_type}: no bucket between {closed[at - 1][0]} and {hour}")
            self.commits.add(manifest.ledger_commit)
            self.ledgers.add(manifest.ledger)
            self.schemas |= {f.schema_id: SchemaMeaning(event_type, f.schema_fingerprint) for f in manifest.files}
            cut = (manifest.closed_at_ms, audit_next(manifest))  # its audit offset may be of long after the cut began
            self.cuts[cut] = min(manifest.ledger_commit, self.cuts.get(cut, manifest.ledger_commit))
            self.connection.execute(insert(tables.buckets).values(bucket_row(hour, manifest)))
        if closed:
            self.chains[event_type] = Chain.of(closed)
            self.done.buckets += len(closed)

    def _put_frontiers(self) -> None:
        recorded = read_first_hours(self.outside.storage)
        self._name_ledger(recorded)
        for own in (r for r in recorded if r.ledger == self.done.ledger):
            self.commits.add(own.commit)
            for event_type in own.first_hours_s.keys() - self.begun.keys():
                self.begun[event_type] = own
        for event_type in sorted(self.begun.keys() | self.chains.keys()):
            chain, begun = self.chains.get(event_type), self.begun.get(event_type)
            first_s = min(([chain.first.start_s] if chain else []) + ([begun.first_hours_s[event_type]] if begun else []))
            self.frontiers[event_type] = chain.frontier.start_s if chain else first_s
            sources, shard = self._declared(event_type)
            self.shards[event_type] = shard
            settled = chain.settled_next if chain else NONE_MEANT
            self.connection.execute(new_frontier(event_type, first_s, shard, sources, self.frontiers[event_type], settled))
        self.done.types = len(self.frontiers)
        self.topics = CentralTopics.of(self.outside.kafka, self.frontiers)
        latest = self.outside.rules.latest.types if self.outside.rules.latest else {}
        if unknown := sorted(set(latest) - set(self.frontiers)):
            self.done.notes.append(
                f"nothing tells where these types begin: {', '.join(unknown)}; run `hourmark types apply` with their --first-hour"
            )

    def _name_ledger(self, recorded: Sequence[FirstHours]) -> None:
        """The UUID that markers name; where there are none, that of the last record."""
        if len(self.ledgers) > 1:
            raise Finding(
                f"{self.outside.storage.url('')} holds buckets of several ledgers ({', '.join(sorted(self.ledgers))}); move "
                "those of the others away"
            )
        self.done.ledger = [*self.ledgers, *(r.ledger for r in reversed(recorded)), str(uuid.uuid4())][0]

    def _declared(self, event_type: str) -> tuple[set[str], str]:
        """All sources that ever carried it, as none of their hosts is known to have left; the shard, as declared last."""
        knowing = [r for r in self.outside.rules.revisions if event_type in r.types]
        if knowing:
            sources = {source for r in knowing for source in carriers(event_type, r.sources.values())}
            return sources, knowing[-1].types[event_type].declaration.shard
        self.done.notes.append(f"type {event_type}: no rules revision declares it; it waits for no source")
        return set(), DEFAULT_SHARD

    def _put_positions(self) -> tuple[dict[Key, Position], dict[Key, int]]:
        """Positions where staging begins again, and where the logs begin, or count as beginning."""
        central = self.outside.central
        live = {
            (info.topic_id, n): Partition(info.name, n)
            for info in central.topics(self.topics.all).values()
            for n in info.partitions
        }
        log_starts, log_ends = {**central.starts([*live.values()])}, central.ends([*live.values()])
        settled = functools.reduce(AuditOffsets.joined, (c.settled_next for c in self.chains.values()), NONE_MEANT)
        self._refuse_other_sites(settled)
        staged = self._promises_staged(live)
        for p, end in log_ends.items():
            if (site := self.topics.audits.get(p.topic)) is not None and end < (to := max(settled.at(site), staged.get(p, 0))):
                log_starts[p] = to
                self.shortened.add(p)
        known = {  # of topics that are gone too: the driver says so
            (o.topic_id, o.partition): Partition(o.topic, o.partition)
            for chain in self.chains.values()
            for o in chain.last.offsets
        }
        starts = {key: log_starts[p] for key, p in live.items()}
        cluster_id, closed = central.cluster_id(), self._closed_next()
        shards = {topic: self.shards[event_type] for topic, event_type in self.topics.types.items()}
        positions = {
            key: Position(
                cluster_id=cluster_id,
                topic_id=key[0],
                topic=p.topic,
                partition=p.partition,
                next_offset=max(starts.get(key, 0), closed.get(key, 0)),
                shard=shards.get(p.topic, DEFAULT_SHARD),
            )
            for key, p in (known | live).items()
        }
        put_positions(self.connection, positions.values())
        return positions, starts

    def _promises_staged(self, live: Mapping[Key, Partition]) -> dict[Partition, int]:
        """To where, by the files. Finding for promises of a topic that is not there any more."""
        found: dict[Partition, int] = {}
        own = (n for n in read_notes(self.outside.storage) if isinstance(n, StagedNote) and n.ledger == self.done.ledger)
        for s in (s for note in own for s in note.spans if s.topic in self.topics.audits):
            if (p := live.get((s.topic_id, s.partition))) is None:
                raise Finding(
                    f"topic {s.topic} partition {s.partition} is not the one whose promises were staged (of id {s.topic_id}): "
                    "offsets in markers mean others there. Bring that topic back, or begin a new ledger and root"
                )
            found[p] = max(s.end, found.get(p, 0))
        return found

    def _refuse_other_sites(self, settled: AuditOffsets) -> None:
        """Finding where a marker speaks of a site that is not configured: its promises would be left out for ever."""
        if gone := sorted(settled.further.keys() - set(self.topics.audits.values())):
            raise Finding(f"markers name the sites {', '.join(gone)}, which kafka.further_edges does not; name them as before")
        first = self.topics.aliases[FIRST_SITE]
        for event_type, chain in self.chains.items() if len(self.topics.aliases) > 1 else ():
            own = central_topic(events_topic(event_type), first)
            if chain.last.offsets and own not in {o.topic for o in chain.last.offsets}:
                raise Finding(f"the last bucket of {event_type} holds nothing of {own}: let kafka.edge be the site that it was")

    def _closed_next(self) -> dict[Key, int]:
        return {key: offset for chain in self.chains.values() for key, offset in chain.closed_next.items()}

    def _put_staged(self, starts: Mapping[Key, int]) -> dict[Key, list[Span]]:
        """List files of which Kafka no longer holds all; what intact files cover below the logs' starts, by partition."""
        covered = defaultdict[Key, list[Span]](list)
        closed = self._closed_next()
        for note in read_notes(self.outside.storage):  # again, as all of them may be more than memory holds
            if isinstance(note, Unreadable):
                self.done.notes.append(f"{note.path} is not to be read ({note.why})")
                continue
            spans = [((s.topic_id, s.partition), s) for s in note.spans]
            below = [(key, s) for key, s in spans if closed.get(key, 0) < s.end and s.start < starts.get(key, 0)]
            if note.ledger == self.done.ledger and below:
                put_staged(self.connection, batch_of(note))
                self.done.staged_files += 1
                for key, s in below:
                    covered[key].append(s)
        return covered

    def _put_offsets(self) -> None:
        found = read_offset_record(self.outside.storage, self.done.ledger)
        self.done.notes += found.notes
        if found.record is None:
            if self.outside.kafka.mirrored:
                self.done.notes.append(
                    "nothing tells what the mirror had copied: types of whose topics an edge has deleted records stay open, "
                    "whether these were copied or not, until `hourmark bucket force` accepts it"
                )
            return
        self.commits.add(found.record.commit)
        put_checks(self.connection, found.record.checks)
        put_gaps(self.connection, found.record.gaps)
        self.known = {(gap.topic, gap.what) for gap in found.record.gaps}
        self.done.lost += [gap.what for gap in found.record.gaps if gap.accepted_at_ms is None]

    def _put_gaps(
        self,
        positions: Mapping[Key, Position],
        starts: Mapping[Key, int],
        covered: Mapping[Key, Sequence[Span]],
    ) -> None:
        closed, promised = self._closed_next(), self._first_promise()
        behind = [
            gap for p in positions.values() if p.of in self.shortened and (gap := lost_behind(p)).what not in self.done.lost
        ]
        self.done.lost += [gap.what for gap in behind]
        put_gaps(self.connection, behind)
        for key, start in sorted(starts.items()):
            p = positions[key]
            if p.topic in self.topics.hosts:
                continue  # later reports say what the lost ones said, or their host is silent
            site = self.topics.audits.get(p.topic)
            needed = closed.get(key, 0) if site is None else promised.at(site)
            for first, end in uncovered(needed, start, covered.get(key, ())):
                gap = lost_to_retention(self.topics.at_edge(p.topic), dataclasses.replace(p, next_offset=first), end)
                if (gap.topic, gap.what) in self.known:
                    continue
                if site is not None:
                    self.done.lost.append(gap.what)
                else:
                    gap = dataclasses.replace(gap, accepted_at_ms=self.outside.now_ms, reason="the ledger was rebuilt")
                put_gaps(self.connection, [gap])

    def _first_promise(self) -> AuditOffsets:
        """The central audit offsets of the first promises that may count for a frontier hour, or for a late event of it.

        Promises of an hour, as its events, come no earlier than `EARLIEST_MS` before it; those of a type without a bucket, not
        before the ledger knew the type. A cut that was taken by then has all earlier ones below it, settled or of other hours.
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
        """Of each closed hour, the file with as many rows as its manifest says; another is of a proof that failed."""
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
                self.done.notes.append(f"{file.path} is not to be read ({error.why}): a promise that it would keep stays unmet")
                continue
            if rows == manifest.unaudited:
                found.add(of)
                kept = unaudited_row(*of, file.path, rows, audit_next(manifest), manifest.closed_at_ms)
                self.connection.execute(insert(tables.unaudited).values(kept))

    def _put_rules(self) -> None:
        """Finding where an id stands for something else in a marker than in the rules: one of the two is not this site's."""
        put_book(self.connection, self.outside.rules)
        try:
            put_schemas(self.connection, [(i, KnownSchema(*meaning, "")) for i, meaning in sorted(self.schemas.items())])
        except ValueError as error:
            raise Finding(f"markers and hourmark.types contradict each other, is it this root's cluster? {error}") from error
        if unknown := sorted(self.schemas.keys() - self.outside.rules.schemas().keys()):
            self.done.notes.append(
                f"no rules revision has the schema ids {', '.join(map(str, unknown))} of closed buckets, which stay readable, as "
                "they hold their schemas; run `hourmark types apply`, which asks the registry"
            )

    def _put_meta(self) -> None:
        """Its commit is above every number that a marker, a batch or a file of unaudited rows tells of the lost ledger."""
        self.done.commit = max(self.commits | epochs(self.outside.storage, self.outside.bucket_seconds), default=0) + 1
        meta = {"uuid": self.done.ledger, "commit": self.done.commit, BUCKET_SECONDS: self.outside.bucket_seconds}
        put(self.connection, tables.meta, ["key"], [{"key": name, "value": str(value)} for name, value in meta.items()])
