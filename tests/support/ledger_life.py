"""A small ETL without servers, on real staging and a real ledger: what a rebuild must find again,
and what it may look at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from tests.support import ledger_queries
from tests.support.clock import FakeClock
from tests.support.records import (
    audit_record,
    evidence,
    host_report,
    kafka_table,
    manifest,
    position,
    seal,
    span,
    stage_plan,
)
from tests.support.rules import put_rules

from hourmark.avro.framing import framing_header
from hourmark.avro.value_hash import value_hash
from hourmark.config.groups import EtlSettings, KafkaSettings, ParsingSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Partition, TopicInfo
from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark.records.audit import promises
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, BucketFile, BucketOffset, Grade, HourTotals, Manifest
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark.rules.event_types import EventType, Source
from hourmark.rules.revision import Rules, RulesBook, TypeVersion
from hourmark_etl.closing.publishing import read_previous_marker
from hourmark_etl.ledger import batches, frontiers
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import (
    DEFAULT_SHARD,
    Frontier,
    OriginHourTotals,
    StagedBatch,
    StagingPosition,
)
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.offset_records import OffsetBackupWriter
from hourmark_etl.recovery.rebuild_result import RebuildSources
from hourmark_etl.staging.consumer import build_batch
from hourmark_etl.staging.stage import TaskResult, stage_table
from hourmark_etl.storage import Storage
from hourmark_etl.topics import CentralCluster, CentralTopicNames

CLUSTER = "cluster"
LENGTH_S = 3600
FIRST = Hour(1_800_000_000 // LENGTH_S * LENGTH_S)


@dataclasses.dataclass
class Topics(CentralCluster):
    """The central cluster: each topic one partition, a list of (key, value)."""

    logs: dict[str, list[tuple[bytes, bytes]]]
    log_starts: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return "central"

    def cluster_id(self) -> str:
        return CLUSTER

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(name, position(topic=name).topic_id, (0,))
            for name in names
            if name in self.logs
        }

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {p: self.log_starts.get(p.topic, 0) for p in partitions}

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        return {p: len(self.logs[p.topic]) for p in partitions}

    def truncated(self, begins: Mapping[Partition, tuple[int, int]]) -> set[Partition]:
        return set()


class Life:
    """Types are produced, staged and closed step by step; `outside` is what is left when the ledger
    is lost.
    """

    def __init__(
        self,
        storage: Storage,
        url: str,
        types: Sequence[str] = ("click", "view"),
        first: Hour = FIRST,
    ) -> None:
        self.storage = storage
        self.declared = [EventType(name=t, fields=[{"name": "n", "type": "long"}]) for t in types]
        self.sources = [Source(name="app", types=list(types))]
        self.kafka = KafkaSettings()
        topics = CentralTopicNames.from_settings(self.kafka, types)
        self.topics = Topics({name: [] for name in topics.all})
        self._plan = stage_plan(types=dict(topics.types))
        put_rules(Config(etl=EtlSettings(ledger=url)), self.declared, self.sources, first)
        self.database = Database(url)
        versions = {t.name: TypeVersion(t, at) for at, t in enumerate(self.declared, 1)}
        self.rules = Rules(
            sequence=1,
            types=versions,
            sources={s.name: s for s in self.sources},
            parsing=ParsingSettings(),
        )
        self.closer = self.database.acquire("closer")
        self.batches: list[str] = []
        self._lines = self._reports = 0
        self.now_ms = first.start_s * 1000
        self.start_driver()

    def start_driver(self) -> None:
        """As the driver does: take the lease, begin from the ledger, and keep on storage what it
        knows.
        """
        self._lease = self.database.acquire("consumer:default")
        record_first_hours(self.storage, self.database, LENGTH_S)
        OffsetBackupWriter(self.storage, self.database, FakeClock(self.now_ms)).update(self.closer)
        begun = [position(topic=name) for name in self.topics.logs]
        known = {p.topic: p for p in batches.positions(self.database, CLUSTER)}
        batches.insert_new_positions(
            self.database, self._lease, [known.get(p.topic, p) for p in begun]
        )

    def send(self, event_type: str, range_id: RangeId, ids: Iterable[EventId]) -> None:
        """Events of a range."""
        records = [(RecordKey(i, range_id).encode(), self._value(event_type, i)) for i in ids]
        self.topics.logs[f"events.{event_type}"] += records

    def _value(self, event_type: str, event_id: EventId) -> bytes:
        return framing_header(self._version(event_type).schema_id) + b"datum" + bytes(event_id)

    def promise(self, event_type: str, range_id: RangeId, ids: Sequence[EventId]) -> None:
        """The audit record of a range."""
        promised = promises(
            (
                event_type,
                Hour.containing(i.time_ms).start_s,
                i,
                value_hash(i, self._value(event_type, i)),
            )
            for i in ids
        )
        record = audit_record(range_id=range_id, lines=len(ids), promised=promised, blanks=0)
        self.topics.logs[AUDIT].append((bytes(range_id), framing_header(1) + record.encode()))

    def produce(self, event_type: str, hour: Hour, count: int) -> None:
        """A range: its events, then its promise."""
        self.now_ms = max(self.now_ms, hour.start_s * 1000)
        range_id = RangeId(self._lines.to_bytes(8, "big"))
        lines = range(self._lines + 1, self._lines + count + 1)
        ids = [
            LineIds("a" * 32, "b" * 32, 0).make(hour.start_s * 1000 + line, line, b"line")
            for line in lines
        ]
        self._lines += count
        self.send(event_type, range_id, ids)
        self.promise(event_type, range_id, ids)

    def take_in(self, event_type: str, hour: Hour, count: int) -> StagedBatch:
        """A range, staged."""
        self.produce(event_type, hour, count)
        return self.stage()

    def report(self, host: str) -> None:
        """One more report of a host."""
        self._reports += 1
        said = host_report(self._reports, host_id=host, host_name=host, sequence=self._reports)
        self.topics.logs[HOSTS].append((host.encode(), framing_header(1) + said.encode()))

    def stage(self, *, commit: bool = True, at_most: int = 1000) -> StagedBatch:
        """A batch of what arrived; without `commit` it is an orphan: written, and never
        committed.
        """
        folder = f"_staging/batch-{len(self.batches)}"
        self.batches.append(folder)
        spans = tuple(
            span(
                p.next_offset,
                min(len(self.topics.logs[p.topic]), p.next_offset + at_most),
                p.topic,
                topic_id=p.topic_id,
            )
            for p in self.positions()
        )
        table = kafka_table(
            (*self.topics.logs[s.topic][offset], s.topic, 0, offset)
            for s in spans
            for offset in range(s.start, s.end)
        )
        plan = dataclasses.replace(self._plan, folder=folder, ledger=self.database.identity()[0])
        piece = stage_table(table, spans, plan, self.storage)
        batch = build_batch([TaskResult(piece, spans)], CLUSTER, DEFAULT_SHARD, self._reports)
        if commit:
            batches.commit_batch(self.database, self._lease, batch)
        return batch

    def positions(self) -> list[StagingPosition]:
        """As the ledger has them."""
        return batches.positions(self.database, CLUSTER)

    def freeze(self, event_type: str) -> tuple[StagingPosition, ...]:
        """As a closer that dies before its proof."""
        topics = {event_type: [f"events.{event_type}"]}
        return frontiers.freeze(self.database, self.closer, [self.frontier(event_type)], topics)[
            event_type
        ]

    def close(
        self,
        event_type: str,
        book: HourTotals | None = None,
        *,
        grade: Grade = Grade.PROVED,
        in_ledger: bool = True,
    ) -> Manifest:
        """Close the frontier hour, of which the bucket holds what the book says, as is staged where
        there is none; without `in_ledger` the closer dies after it published.
        """
        offsets, opened = self.freeze(event_type), self.frontier(event_type)
        self.now_ms = max(self.now_ms, opened.hour.end_ms)
        rows = sum(
            g.rows
            for g in ledger_queries.read_assigned_groups(self.database, event_type, opened.hour)
        )
        book = book or HourTotals(rows=rows, events=rows, promised=1, unaudited=0)
        audit = next(p for p in self.positions() if p.topic == AUDIT)
        counts = {"promised": book.promised, "cut_at_ms": self.now_ms}
        sealed = seal(
            **counts,
            grade=grade.value,
            audit_next=audit.next_offset,
            unaudited=book.unaudited,
            offsets=offsets,
            books=(OriginHourTotals(opened.hour.start_s, book.promised, book.unaudited),),
        )
        frontiers.seal(self.database, self.closer, {event_type: [sealed]}, [opened])
        version, (ledger, commit) = self._version(event_type), self.database.identity()
        file = {
            "name": "part-00000.avro",
            "records": book.events,
            "bytes": 1,
            "blake2b": "0" * 32,
            "schema_id": version.schema_id,
            "schema_fingerprint": version.meaning.fingerprint,
        }
        made = manifest(
            opened.hour,
            type=event_type,
            grade=grade,
            events=book.events,
            ledger=ledger,
            previous=read_previous_marker(self.storage, opened),
            software="hourmark 0.3.0",
            files=[BucketFile.model_validate(file)] if book.events else [],
            evidence=evidence(**counts, audit_next={"0": audit.next_offset}),
            books={str(opened.hour): book},
            duplicates_removed=book.rows - book.events,
            unaudited=book.unaudited,
            ledger_commit=commit,
            closed_at_ms=self.now_ms,
            offsets=[
                BucketOffset(
                    topic=p.topic, topic_id=p.topic_id, partition=p.partition, next=p.next_offset
                )
                for p in offsets
            ],
        ).with_own_digest()
        self.storage.write_new(f"{opened.hour.bucket_path(event_type)}/{MARKER}", made.encode())
        if in_ledger:
            frontiers.record_closed_hours(
                self.database,
                self.closer,
                [frontiers.PublishedHour(self.frontier(event_type), made)],
            )
        return made

    def recover(self, event_type: str) -> None:
        """As the next closer does: what was published is closed."""
        frontier = self.frontier(event_type)
        if frontier.seal is not None:
            content = self.storage.read(f"{frontier.hour.bucket_path(event_type)}/{MARKER}")
            frontiers.record_closed_hours(
                self.database,
                self.closer,
                [frontiers.PublishedHour(frontier, Manifest.decode(content))],
            )

    def frontier(self, event_type: str) -> Frontier:
        """The type's, as the ledger has it."""
        return next(
            f for f in frontiers.frontiers(self.database, LENGTH_S) if f.event_type == event_type
        )

    def go_on_with(self, rebuilt: Database) -> None:
        """The lost ledger is replaced, and the driver starts again."""
        self.database.close()
        self.database, self.closer = rebuilt, rebuilt.acquire("closer")
        self.start_driver()

    def outside(self) -> RebuildSources:
        """What a rebuild may look at."""
        return RebuildSources(
            storage=self.storage,
            kafka=self.kafka,
            central=self.topics,
            rules=RulesBook(self.rules.records()),
            bucket_seconds=LENGTH_S,
            now_ms=self.now_ms,
        )

    def _version(self, event_type: str) -> TypeVersion:
        return self.rules.types[event_type]
