"""Makes a lost ledger anew from what is left: markers first, then staged batches, then the topics.

A published marker always wins: a type's frontier is the hour after its last marker, whatever the ledger had reached beyond it.
Which batches were committed, how far, and which bucket holds which group: see `history`. Host reports are read again from their
topic, from its start to where they were staged; types, their sources and shards from the rules topic.

Not rebuilt, because nothing tells it: orders, accepted holes, whom a bucket excused, types that were set aside (their next batch
sets them aside again), and where the mirror stood at the last check of the edge: those checks begin anew. The index of ids is
a cache, and begins anew too.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, insert, select, update

from etl.buckets import list_types
from etl.ledger import tables
from etl.ledger.batch_file import read_batch_file
from etl.ledger.central import Central, Values
from etl.ledger.database import Database
from etl.ledger.first_hours import FirstHours, read_first_hours
from etl.ledger.frontier_rows import BUCKET_SECONDS, carriers
from etl.ledger.history import Gap, History, Key, bucket_of, history
from etl.ledger.remains import Batches, Chain, SurplusLeft, files_of, read_batches, read_chain, read_surplus_files
from etl.ledger.restaged import standing_again
from etl.ledger.rows import DEFAULT_SHARD, AuditGroup, Position, Reporter, StagedBatch, StagedFile, StagedGroup, State
from etl.ledger.staging import is_overtaken, put_reports, put_staged, reporters_of
from etl.storage import Storage
from etl.topics import CentralTopics
from hourmark.avro import Schema, canonical_json, fingerprint, unframe
from hourmark.config import Kafka
from hourmark.errors import Finding, UsageError
from hourmark.host_reports import HostReport
from hourmark.hours import Hour
from hourmark.kafka import Partition, TopicInfo
from hourmark.manifest import Manifest
from hourmark.rules import Rules

_Staged = TypeVar("_Staged", StagedFile, StagedGroup, AuditGroup)
_MUST_BE_EMPTY: Final = (tables.frontiers, tables.positions, tables.buckets, tables.staged_files)


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a rebuild reads. `rules`: every revision, in order; `values`: committed records of the central cluster."""

    storage: Storage
    kafka: Kafka
    central: Central
    values: Values
    rules: Sequence[Rules]
    fetch_schema: Callable[[int], Schema]
    bucket_seconds: int


@dataclasses.dataclass
class Rebuilt:
    """What was found. `notes`: what an operator should know; empty where the new ledger is as the lost one was."""

    ledger: str = ""
    commit: int = 0
    types: int = 0
    buckets: int = 0
    batches: int = 0
    given_up: Mapping[str, str] = dataclasses.field(default_factory=dict)
    staged_files: int = 0
    hosts: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)


def rebuild(outside: Outside, target: Database, say: Callable[[str], None]) -> Rebuilt:
    """Fill an empty ledger, in one transaction. `say` is told how it goes.

    UsageError if the target holds anything; Finding where what is left contradicts itself: nothing is written then.
    """
    work = _Rebuild(outside, Rebuilt(), say)
    with target.transaction() as connection:
        for table in _MUST_BE_EMPTY:
            if connection.execute(select(table)).first() is not None:
                raise UsageError(f"the ledger to fill is not empty (table {table.name}): name a new one with --into")
        work.run(connection)
    return work.done


@dataclasses.dataclass
class _Rebuild:
    outside: Outside
    done: Rebuilt
    say: Callable[[str], None]
    batches: Batches = dataclasses.field(default_factory=Batches)
    chains: dict[str, Chain] = dataclasses.field(default_factory=dict)
    frontiers: dict[str, int] = dataclasses.field(default_factory=dict)  # type → its hour, Unix seconds
    commits: set[int] = dataclasses.field(default_factory=set)  # numbers that the lost ledger had reached
    ledgers: set[str] = dataclasses.field(default_factory=set)
    schemas: dict[int, str] = dataclasses.field(default_factory=dict)  # id → fingerprint in markers

    def run(self, connection: Connection) -> None:
        self.batches = read_batches(self.outside.storage)
        self.say(f"{len(self.batches.moves)} batch files ({self.batches.unfinished} folders without one)")
        self._put_buckets(connection)
        self._name_ledger()
        self._put_frontiers(connection)
        marked: dict[Key, list[int]] = {}
        for chain in self.chains.values():
            for key, offsets in chain.marked().items():
                marked[key] = sorted({*marked.get(key, ()), *offsets})
        topics = CentralTopics.of(self.outside.kafka, self.frontiers)
        infos = self.outside.central.topics(topics.all)
        settled = [chain.settled_next for chain in self.chains.values()]  # the ledger had staged promises so far
        audits = [(infos[topics.audit].topic_id, p) for p in infos[topics.audit].partitions] if topics.audit in infos else []
        found = history(self.batches.moves, marked, dict.fromkeys(audits, max(settled, default=0)))
        self.done.given_up = found.given_up
        positions = self._put_positions(connection, found, topics, infos.values())
        self._put_batches(connection, found)
        self._put_surplus(connection)
        self._put_reporters(connection, positions)
        self._put_schemas(connection)
        self._put_meta(connection)
        self.done.notes += [f"{why}; its offsets are staged again" for why in self.batches.unreadable]

    def _put_buckets(self, connection: Connection) -> None:
        lowest = self.batches.lowest()
        for event_type in list_types(self.outside.storage):
            chain = Chain(event_type, lowest)
            for hour, manifest in read_chain(self.outside.storage, event_type, self.outside.bucket_seconds):
                if chain.hours and chain.hours[-1].next() != hour:
                    self.done.notes.append(f"{event_type}: no bucket between {chain.hours[-1]} and {hour}")
                chain.add(hour, manifest)
                self.commits.add(manifest.ledger_commit)
                self.ledgers.add(manifest.ledger)
                self.schemas |= {f.schema_id: f.schema_fingerprint for f in manifest.files}
                connection.execute(
                    insert(tables.buckets).values(
                        type=event_type, hour=hour.start_s, grade=manifest.grade.value, manifest=manifest.encode().decode(),
                        closed_at_ms=manifest.closed_at_ms,
                    )
                )  # fmt: skip
            if chain.hours:
                self.chains[event_type] = chain
                self.done.buckets += len(chain.hours)
        self.say(f"{self.done.buckets} markers of {len(self.chains)} types")

    def _name_ledger(self) -> None:
        """The UUID that markers name; where there are none, that of the last record or batch."""
        if len(self.ledgers) > 1:
            raise Finding(
                f"{self.outside.storage.url('')} holds buckets of several ledgers ({', '.join(sorted(self.ledgers))}); move "
                "those of the others away"
            )
        recorded = [r.ledger for r in read_first_hours(self.outside.storage)]
        latest = max(self.batches.moves, key=lambda m: m.order, default=None)
        staged = [self.batches.ledgers[latest.folder]] if latest else []
        self.done.ledger = [*self.ledgers, *staged, *reversed(recorded), str(uuid.uuid4())][0]
        self.batches.only_of(self.done.ledger)
        self.commits |= {m.order[0] for m in self.batches.moves}

    def _put_frontiers(self, connection: Connection) -> None:
        recorded = [r for r in read_first_hours(self.outside.storage) if r.ledger == self.done.ledger]
        self.commits |= {r.commit for r in recorded}
        first = _first_hours(recorded, self.chains)
        for event_type, first_s in sorted(first.items()):
            chain = self.chains.get(event_type)
            self.frontiers[event_type] = chain.hours[-1].end_s if chain else first_s
            sources, shard = self._declared(event_type)
            connection.execute(
                insert(tables.frontiers).values(
                    type=event_type, first_hour=first_s, hour=self.frontiers[event_type], state=State.OPEN.value, shard=shard,
                    sources=json.dumps(sorted(sources)), settled_next=chain.settled_next if chain else 0,
                )
            )  # fmt: skip
        self.done.types = len(first)
        if unknown := sorted(set(self._latest_types()) - set(first)):
            self.done.notes.append(
                f"nothing tells where these types begin: {', '.join(unknown)}; run `hourmark types apply` with their --first-hour"
            )

    def _declared(self, event_type: str) -> tuple[set[str], str]:
        """Sources and shard, of the last revision that knows the type."""
        for rules in reversed(self.outside.rules):
            if event_type in rules.types:
                return carriers(event_type, rules.sources.values()), rules.types[event_type].declaration.shard
        self.done.notes.append(f"type {event_type}: no rules revision declares it; it waits for no source")
        return set(), DEFAULT_SHARD

    def _latest_types(self) -> Collection[str]:
        return self.outside.rules[-1].types if self.outside.rules else ()

    def _put_positions(
        self, connection: Connection, found: History, topics: CentralTopics, infos: Iterable[TopicInfo]
    ) -> dict[Key, Position]:
        shards = {topic: self._declared(event_type)[1] for topic, event_type in topics.types.items()}
        known = dict(self.batches.partitions)
        cluster_id = next((p.cluster_id for p in known.values()), None) or self.outside.central.cluster_id()
        for chain in self.chains.values():
            for o in chain.last.offsets if chain.last else ():
                known.setdefault((o.topic_id, o.partition), Position(cluster_id, o.topic_id, o.topic, o.partition, 0))
        for info in infos:
            for partition in info.partitions:
                known.setdefault((info.topic_id, partition), Position(cluster_id, info.topic_id, info.name, partition, 0))
        offsets = {key: found.positions.get(key, 0) for key in known} | self._staged_again(found.gaps, known, topics)
        hosts = {key: Partition(p.topic, p.partition) for key, p in known.items() if p.topic == topics.hosts}
        starts = self.outside.central.starts(list(hosts.values()))
        offsets |= {key: max(offsets[key], starts[p]) for key, p in hosts.items()}  # reports below are superseded, or silent
        positions = {
            key: dataclasses.replace(p, next_offset=offsets[key], shard=shards.get(p.topic, DEFAULT_SHARD))
            for key, p in known.items()
        }
        connection.execute(insert(tables.positions), [dataclasses.asdict(p) for p in positions.values()])
        return positions

    def _staged_again(self, gaps: Sequence[Gap], known: Mapping[Key, Position], topics: CentralTopics) -> dict[Key, int]:
        """By partition, where staging must begin again because records lie in a gap; duplicates are dropped as ever."""
        again: dict[Key, int] = {}
        settled = min((self.chains[t].settled_next if t in self.chains else 0 for t in self.frontiers), default=0)
        for gap in gaps:
            p = known[gap.key]
            if p.topic == topics.hosts or gap.key in again:  # reports are read again below
                continue
            partition = Partition(p.topic, p.partition)
            start = max(gap.start, self.outside.central.starts([partition])[partition], settled if p.topic == topics.audit else 0)
            if start < gap.end and any(True for _ in self.outside.values(partition, start, gap.end)):
                again[gap.key] = start
                self.done.notes.append(
                    f"{partition}: no batch file and no bucket tells of offsets [{start}, {gap.end}); all from {start} on is "
                    "staged again"
                )
        return again

    def _put_batches(self, connection: Connection, found: History) -> None:
        topics = {t: topic for topic, t in CentralTopics.of(self.outside.kafka, self.frontiers).types.items()}
        for folder in found.committed:
            batch = read_batch_file(self.outside.storage, folder).batch
            moved = [(s, e) for s, e in zip(batch.starts, batch.ends, strict=True) if e.next_offset > s.next_offset]
            listed: dict[tuple[str, int], int | None] = {}
            for g in batch.groups:
                ends = {(e.topic_id, e.partition): e.next_offset for _, e in moved if e.topic == topics.get(g.event_type)}
                closed = self.chains[g.event_type].closed if g.event_type in self.chains else ()
                listed[g.event_type, g.hour_s] = bucket_of(g.hour_s, ends, closed) if ends else None
            kept = self._without_cleaned(batch, listed)
            put_staged(connection, kept, lambda g, listed=listed: listed[g.event_type, g.hour_s])  # type: ignore[misc]
            self.done.batches += 1
            self.done.staged_files += len(kept.files)
        self.say(f"{self.done.batches} batches, {self.done.staged_files} staged files")

    def _without_cleaned(self, batch: StagedBatch, listed: Mapping[tuple[str, int], int | None]) -> StagedBatch:
        """Files that are gone because nothing needs them any more; one that is needed stays named, and is staged again."""
        standing = files_of(self.outside.storage, batch.folder)
        batch = _as_staged_again(batch, standing)
        needed = {g.path for g in batch.groups if listed[g.event_type, g.hour_s] is None}
        needed |= {g.path for g in batch.audit_groups if not self._is_settled(g)}
        kept = [f for f in batch.files if f.path in standing or f.path in needed]
        self.done.notes += [f"{f.path} is gone; it is staged again from its offsets" for f in kept if f.path not in standing]
        paths = {f.path for f in kept}
        return dataclasses.replace(
            batch,
            files=tuple(kept),
            groups=tuple(g for g in batch.groups if g.path in paths),
            audit_groups=tuple(g for g in batch.audit_groups if g.path in paths),
        )

    def _is_settled(self, group: AuditGroup) -> bool:
        chain = self.chains.get(group.event_type)
        if chain is None:
            return group.event_type not in self.frontiers  # nobody will ask
        return group.hour_s < self.frontiers[group.event_type] and group.last_offset < chain.settled_next

    def _put_surplus(self, connection: Connection) -> None:
        """Of each closed hour, the file with as many rows as its manifest says; another is of a proof that failed."""
        files: dict[tuple[str, Hour], list[SurplusLeft]] = {}
        for file in read_surplus_files(self.outside.storage, self.outside.bucket_seconds):
            files.setdefault((file.event_type, file.hour), []).append(file)
        table = tables.buckets
        for (event_type, hour), found in sorted(files.items()):
            query = select(table.c.manifest).where(table.c.type == event_type, table.c.hour == hour.start_s)
            text = connection.execute(query).scalar()
            if text is None:
                continue  # never sealed, or sealed and not published: the proof makes it anew
            manifest = Manifest.decode(text.encode())
            if sealed := [f for f in found if f.rows == manifest.surplus]:
                row = {"type": event_type, "hour": hour.start_s, "path": sealed[0].path, "rows": sealed[0].rows}
                audit_next = max(manifest.evidence.audit_next.values(), default=0)
                connection.execute(
                    insert(tables.surplus).values(**row, audit_next=audit_next, sealed_at_ms=manifest.closed_at_ms)
                )

    def _put_reporters(self, connection: Connection, positions: Mapping[Key, Position]) -> None:
        """The last report of each host, as if all had been staged again in the order of the topic."""
        hosts = CentralTopics.of(self.outside.kafka, ()).hosts
        last: dict[str, tuple[Reporter, ...]] = {}
        for p in sorted((p for p in positions.values() if p.topic == hosts), key=lambda p: p.partition):
            partition = Partition(p.topic, p.partition)
            start = self.outside.central.starts([partition])[partition]
            for value in self.outside.values(partition, start, p.next_offset) if start < p.next_offset else ():
                report = HostReport.decode(unframe(value)[1])
                said = reporters_of(report, report.received_at_ms)
                if said and not _overtaken(said[0], last.get(said[0].host_id)):
                    last[said[0].host_id] = said
        put_reports(connection, list(last.values()))
        self.done.hosts = len(last)
        self.say(f"reports of {len(last)} hosts")

    def _put_schemas(self, connection: Connection) -> None:
        for schema_id, mark in sorted(self.schemas.items()):
            schema = self.outside.fetch_schema(schema_id)
            if fingerprint(schema) != mark:
                self.done.notes.append(
                    f"schema id {schema_id} stands for another schema now than in the markers ({mark}); closing stops at it "
                    "until the registry is restored"
                )
            connection.execute(
                insert(tables.schemas).values(schema_id=schema_id, fingerprint=mark, schema=canonical_json(schema))
            )

    def _put_meta(self, connection: Connection) -> None:
        """Above every number that the lost ledger can have used: each batch after its lease's epoch was one commit."""
        self.done.commit = max(self.commits, default=0) + len(self.batches.moves) + 1
        meta: dict[str, Any] = {"uuid": self.done.ledger, "commit": self.done.commit, BUCKET_SECONDS: self.outside.bucket_seconds}
        known = set(connection.execute(select(tables.meta.c.key)).scalars())
        for name, value in meta.items():
            if name in known:
                connection.execute(update(tables.meta).where(tables.meta.c.key == name).values(value=str(value)))
            else:
                connection.execute(insert(tables.meta).values(key=name, value=str(value)))


def _first_hours(recorded: Sequence[FirstHours], chains: Mapping[str, Chain]) -> dict[str, int]:
    """By type. A record says it; a chain that begins earlier knows better."""
    first = {t: chain.hours[0].start_s for t, chain in chains.items()}
    for record in recorded:
        for event_type, start_s in record.first_hours_s.items():
            first[event_type] = min(start_s, first.get(event_type, start_s))
    return first


def _overtaken(said: Reporter, known: tuple[Reporter, ...] | None) -> bool:
    return known is not None and is_overtaken(said, known[0].incarnation, known[0].sequence, known[0].received_at_ms)


def _as_staged_again(batch: StagedBatch, standing: Collection[str]) -> StagedBatch:
    """With the files that stand in the place of damaged ones."""
    again = {f.path: standing_again(f.path, standing) or f.path for f in batch.files if f.path not in standing}

    def moved(of: _Staged) -> _Staged:
        return dataclasses.replace(of, path=again[of.path]) if of.path in again else of

    return dataclasses.replace(
        batch,
        files=tuple(map(moved, batch.files)),
        groups=tuple(map(moved, batch.groups)),
        audit_groups=tuple(map(moved, batch.audit_groups)),
    )
