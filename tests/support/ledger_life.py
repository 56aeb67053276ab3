"""A small ETL without servers, on real staging and a real ledger: what a rebuild must find again, and what it may look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import pyarrow as pa
from sqlalchemy import delete, select
from tests.support import ledger_queries
from tests.support.rules import put_rules

from hourmark.audit import AuditRecord, promises
from hourmark.avro import frame
from hourmark.config import Config, Etl, Kafka, Parsing
from hourmark.config import Storage as StorageSettings
from hourmark.event_id import EventId, LineIds
from hourmark.event_types import EventType, Source
from hourmark.host_reports import HostReport, SourceReport
from hourmark.hours import Hour
from hourmark.kafka import Partition, TopicInfo
from hourmark.manifest import MARKER, BucketFile, Evidence, Grade, Manifest, Offsets
from hourmark.ranges import RangeId
from hourmark.record_key import RecordKey
from hourmark.rules import Rules, RulesBook, TypeVersion
from hourmark_etl.ledger import batches, frontiers, tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import Frontier, Position, Seal, Span, StagedBatch
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.rebuild import Outside
from hourmark_etl.staging.pieces import StagedPiece, StagePlan
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage import Storage
from hourmark_etl.topics import Central, CentralTopics

CLUSTER = "cluster"
LENGTH_S = 3600
FIRST = Hour(1_800_000_000 // LENGTH_S * LENGTH_S)


@dataclasses.dataclass
class Topics(Central):
    """The central cluster: each topic one partition, a list of (key, value)."""

    logs: dict[str, list[tuple[bytes, bytes]]]
    log_starts: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return "central"

    def cluster_id(self) -> str:
        return CLUSTER

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id of {name}", (0,)) for name in names if name in self.logs}

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {p: self.log_starts.get(p.topic, 0) for p in partitions}

    def ends(self, partitions: Sequence[Partition], *, committed: bool = True) -> dict[Partition, int]:
        return {p: len(self.logs[p.topic]) for p in partitions}


class Life:
    """Types are produced, staged and closed step by step; `outside` is what is left when the ledger is lost."""

    def __init__(self, storage: Storage, url: str, types: Sequence[str]) -> None:
        self.storage, self.types = storage, list(types)
        self.declared = [EventType(name=t, fields=[{"name": "n", "type": "long"}]) for t in types]
        self.sources = [Source(name="app", types=list(types))]
        self.kafka = Kafka()
        topics = CentralTopics.of(self.kafka, types)
        self.topics = Topics({name: [] for name in topics.all})
        self._plan = StagePlan(
            storage=StorageSettings(),
            folder="",
            bucket_seconds=LENGTH_S,
            types=dict(topics.types),
            audit_topic=topics.audit,
            hosts_topic=topics.hosts,
        )
        put_rules(Config(etl=Etl(ledger=url)), self.declared, self.sources, FIRST)
        versions = {t.name: TypeVersion(t, at) for at, t in enumerate(self.declared, 1)}
        self.rules = Rules(
            sequence=1, types=versions, sources={s.name: s for s in self.sources}, parsing=Parsing(bucket_seconds=LENGTH_S)
        )
        self.database = Database(url)
        self.closer = self.database.acquire("closer")
        self.batches: list[str] = []
        self._lines = self._reports = 0
        self.now_ms = FIRST.start_s * 1000
        self.start_driver()

    def start_driver(self) -> None:
        """As the driver does: take the lease, begin from the ledger."""
        self._lease = self.database.acquire("consumer:default")
        record_first_hours(self.storage, self.database, LENGTH_S)
        infos = self.topics.topics(self.topics.logs)
        begun = [
            Position(cluster_id=CLUSTER, topic_id=i.topic_id, topic=i.name, partition=0, next_offset=0) for i in infos.values()
        ]
        known = {p.topic: p for p in batches.positions(self.database, CLUSTER)}
        batches.begin_positions(self.database, self._lease, [known.get(p.topic, p) for p in begun])

    def produce(self, event_type: str, hour: Hour, count: int) -> None:
        """A range: its events, then its promise."""
        self.now_ms = max(self.now_ms, hour.start_s * 1000)
        ids: list[EventId] = []
        range_id = RangeId(self._lines.to_bytes(8, "big"))
        for _ in range(count):
            self._lines += 1
            ids.append(LineIds("a" * 32, "b" * 32, 0).make(hour.start_s * 1000 + self._lines, self._lines, b"line"))
            topic = f"events.{event_type}"
            value = frame(self._version(event_type).schema_id) + b"datum" + bytes(ids[-1])
            self.topics.logs[topic].append((RecordKey(ids[-1], range_id).encode(), value))
        record = AuditRecord(
            range_id=range_id,
            kind="range",
            host_id="h",
            host_name="host",
            file_id="f",
            generation=0,
            start=0,
            end=9,
            observed_at_ms=1,
            rules="1-x",
            source="app",
            path="/log",
            lines=count,
            promised=promises((event_type, hour.start_s, i) for i in ids),
        )
        self.topics.logs[self._plan.audit_topic].append((bytes(range_id), frame(1) + record.encode()))

    def report(self, host: str, *, goodbye: bool = False) -> None:
        """One more report of a host."""
        self._reports += 1
        said = HostReport(
            host_id=host,
            host_name=host,
            kind="tailer",
            incarnation="one",
            sequence=self._reports,
            received_at_ms=self._reports,
            goodbye=goodbye,
            sources=(SourceReport("app", self._reports, 0, 0),),
        )
        self.topics.logs[self._plan.hosts_topic].append((host.encode(), frame(1) + said.encode()))

    def stage(self, *, commit: bool = True, at_most: int = 1000) -> StagedBatch:
        """A batch of what arrived; without `commit` it is an orphan: written, and never committed."""
        folder = f"_staging/batch-{len(self.batches)}"
        self.batches.append(folder)
        starts = tuple(self.positions())
        ends = tuple(
            dataclasses.replace(p, next_offset=min(len(self.topics.logs[p.topic]), p.next_offset + at_most)) for p in starts
        )
        rows = [
            (key, value, s.topic, 0, offset)
            for s, e in zip(starts, ends, strict=True)
            for offset in range(s.next_offset, e.next_offset)
            for key, value in [self.topics.logs[s.topic][offset]]
        ]
        spans = tuple(
            Span(topic=s.topic, topic_id=s.topic_id, partition=0, start=s.next_offset, end=e.next_offset)
            for s, e in zip(starts, ends, strict=True)
        )
        piece = self._staged(rows, spans, folder)
        reports = [HostReport.decode(r.datum) for r in piece.reports]
        batch = StagedBatch(
            folder=folder, starts=starts, ends=ends, files=tuple(f.file for f in piece.files), groups=piece.groups,
            audit_groups=piece.audit_groups, reports=tuple(batches.reporters_of(r, r.received_at_ms) for r in reports),
        )  # fmt: skip
        if commit:
            batches.commit_batch(self.database, self._lease, batch)
        return batch

    def _staged(self, rows: list[tuple[bytes, bytes, str, int, int]], spans: Sequence[Span], folder: str) -> StagedPiece:
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5
        kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64())
        arrays = [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)]
        table = pa.table(arrays, names=["key", "value", "topic", "partition", "offset"])
        return stage_table(
            table, spans, dataclasses.replace(self._plan, folder=folder, ledger=self.database.identity()[0]), self.storage
        )

    def positions(self) -> list[Position]:
        """As the ledger has them."""
        return batches.positions(self.database, CLUSTER)

    def freeze(self, event_type: str) -> None:
        """As a closer that dies before its proof."""
        frontiers.freeze(self.database, self.closer, [self.frontier(event_type)], {event_type: f"events.{event_type}"})

    def close(self, event_type: str, *, in_ledger: bool = True, unaudited: int = 0) -> Manifest:
        """Close the frontier hour; without `in_ledger` the closer dies after it published."""
        opened = self.frontier(event_type)
        self.now_ms = max(self.now_ms, opened.hour.end_ms)
        offsets = frontiers.freeze(self.database, self.closer, [opened], {event_type: f"events.{event_type}"})
        audit = next(p for p in batches.positions(self.database, CLUSTER) if p.topic == self._plan.audit_topic)
        sealed = Seal(
            grade="proved",
            method="join",
            cut_at_ms=self.now_ms,
            audit_next=audit.next_offset,
            audit_records=1,
            promised=1,
            unaudited=unaudited,
            waived=(),
            offsets=offsets[event_type],
        )
        frontiers.seal(self.database, self.closer, {event_type: [sealed]}, [self.frontier(event_type)])
        frontier = self.frontier(event_type)
        manifest = self._manifest(event_type, frontier.hour, sealed)
        self.storage.write_new(f"{frontier.hour.bucket_path(event_type)}/{MARKER}", manifest.encode())
        if in_ledger:
            frontiers.close_all(self.database, self.closer, [frontiers.Closing(frontier, manifest)])
        return manifest

    def recover(self, event_type: str) -> None:
        """As the next closer does: what was published is closed."""
        frontier = self.frontier(event_type)
        if frontier.seal is not None:
            content = self.storage.read(f"{frontier.hour.bucket_path(event_type)}/{MARKER}")
            frontiers.close_all(self.database, self.closer, [frontiers.Closing(frontier, Manifest.decode(content))])

    def frontier(self, event_type: str) -> Frontier:
        """The type's, as the ledger has it."""
        return next(f for f in frontiers.frontiers(self.database, LENGTH_S) if f.event_type == event_type)

    def _manifest(self, event_type: str, hour: Hour, sealed: Seal) -> Manifest:
        listed = ledger_queries.listed_groups(self.database, event_type, hour)
        version = self._version(event_type)
        file = BucketFile(
            name="part-00000.avro", records=1, bytes=1, blake2b="0" * 32, schema_id=version.schema_id,
            schema_fingerprint=version.meaning.fingerprint,
        )  # fmt: skip
        ledger, commit = self.database.identity()
        return Manifest(
            type=event_type, hour=str(hour), bucket_seconds=LENGTH_S, grade=Grade.PROVED, files=[file] if listed else [], late={},
            evidence=Evidence(
                method="join", cut_at_ms=self.now_ms, audit_records=1, promised=1, audit_next={"0": sealed.audit_next}
            ),
            events=sum(g.rows for g in listed), duplicates_removed=0, unaudited=sealed.unaudited, id_sum="0" * 16, ledger=ledger,
            ledger_commit=commit, attempt="a", closed_at_ms=self.now_ms, software="test",
            offsets=[
                Offsets(topic=p.topic, topic_id=p.topic_id, partition=p.partition, next=p.next_offset) for p in sealed.offsets
            ],
        )  # fmt: skip

    def clean(self, batch: StagedBatch) -> None:
        """Delete a batch that nothing needs any more."""
        self.storage.delete(batch.folder)
        for p in batch.ends:
            if p.topic in (
                self._plan.audit_topic,
                self._plan.hosts_topic,
            ):  # batches with promises are kept longer than the topic's
                self.topics.log_starts[p.topic] = p.next_offset
        files = select(tables.staged_files.c.id).where(tables.staged_files.c.batch == batch.folder)
        with self.database.transaction(self._lease) as connection:
            for table in (tables.groups, tables.audit_groups):
                connection.execute(delete(table).where(table.c.file_id.in_(files)))
            connection.execute(delete(tables.staged_files).where(tables.staged_files.c.batch == batch.folder))

    def go_on_with(self, rebuilt: Database) -> None:
        """The lost ledger is replaced, and the driver starts again."""
        self.database.close()
        self.database, self.closer = rebuilt, rebuilt.acquire("closer")
        self.start_driver()

    def outside(self) -> Outside:
        """What a rebuild may look at."""
        return Outside(
            storage=self.storage,
            kafka=self.kafka,
            central=self.topics,
            rules=RulesBook(self.rules.records()),
            bucket_seconds=LENGTH_S,
            now_ms=self.now_ms,
        )

    def _version(self, event_type: str) -> TypeVersion:
        return self.rules.types[event_type]
