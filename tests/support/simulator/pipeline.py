"""The mirror and the consumer: a mirror of lists, and the real staging function and ledger commit
in micro-batches.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Collection, Sequence

import pyarrow as pa
from tests.support.memory_storage import MemoryStorage
from tests.support.simulator.losses import Losses
from tests.support.simulator.producers import Producers
from tests.support.simulator.sites import FakeCluster, FakeMirror, Log
from tests.support.simulator.truth import (
    CLUSTER,
    EDGE_PARTITIONS,
    FIRST_HOUR,
    KEY_CHANGED,
    TYPES,
    VALUE_CHANGED,
)

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, central_topic, events_topic
from hourmark.records.event_id import SIZE as EVENT_ID_BYTES
from hourmark.records.record_key import RecordKey
from hourmark_etl.closing.cut.clusters import KafkaSiteClusters
from hourmark_etl.closing.cut.edge import EdgeSite
from hourmark_etl.errors import DataLoss
from hourmark_etl.ledger import batches
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.partitions.offset_gaps import read_last_checks
from hourmark_etl.ledger.partitions.read_errors import ReadError
from hourmark_etl.ledger.schemas import SchemaCheck
from hourmark_etl.ledger.staged.staged_files import LedgerFile
from hourmark_etl.model import OffsetSpan, StagedBatch, StagingPosition
from hourmark_etl.staging import plan as planning
from hourmark_etl.staging.consumer import build_batch, collect_read_errors
from hourmark_etl.staging.pieces import StagedChunk, StagePlan
from hourmark_etl.staging.planner import StagingSchemas, load_schemas
from hourmark_etl.staging.read import RecordChunk
from hourmark_etl.staging.restage import Restager
from hourmark_etl.staging.stage import stage_chunks, stage_table
from hourmark_etl.topics import CentralTopicNames


class Pipeline:
    """From the edge into the ledger."""

    def __init__(
        self, producers: Producers, storage: MemoryStorage, database: Database, config: Config
    ) -> None:
        self.edge, self.seen, self.clock = producers.edge, producers.seen, producers.clock
        self.storage, self.database, self.config = storage, database, config
        self.junk, self.ranges, self._checks = (
            producers.junk,
            producers.ranges,
            dict[int, SchemaCheck](),
        )
        self.topics = CentralTopicNames.from_settings(config.kafka, TYPES)
        aliases = [alias or "" for alias in self.topics.aliases.values()]
        self.central = FakeCluster(
            "central",
            [
                Partition(central_topic(p.topic, alias), p.partition)
                for alias in aliases
                for p in EDGE_PARTITIONS
            ],
        )
        self.mirrors = [
            FakeMirror(edge, self.central, alias)
            for edge, alias in zip(producers.edges, aliases, strict=True)
        ]
        self.mirror, self.losses = self.mirrors[0], Losses(central=self.central)
        for mirror in self.mirrors:
            mirror.skipped = self.mirror.skipped  # of all
        self.consumer = database.acquire("consumer:default")
        infos = self.central.topics({p.topic for p in self.central.logs})
        begun = [
            StagingPosition(
                cluster_id=CLUSTER,
                topic_id=infos[p.topic].topic_id,
                topic=p.topic,
                partition=p.partition,
                next_offset=0,
            )
            for p in self.central.logs
        ]
        batches.insert_new_positions(database, self.consumer, begun)

    def clusters(self, database: Database, lease: Lease, clock: Clock) -> KafkaSiteClusters:
        """What closing asks, by the closer's ledger and clock."""
        edges = [
            EdgeSite(
                edge=mirror.edge,
                mirror=mirror,
                alias=mirror.alias,
                database=database,
                lease=lease,
                clock=clock,
                site=site,
            )
            for site, mirror in zip(self.topics.aliases, self.mirrors, strict=True)
        ]
        return KafkaSiteClusters(edges, self.central, database, lease)

    def mirror_some(self, draw: int) -> None:
        """The mirror copies a few records of one partition."""
        r = random.Random(draw)
        self.one_of(draw).copy(r.choice(EDGE_PARTITIONS), r.randint(1, 6))

    def change_key(self, draw: int) -> None:
        """An event's id in a record key changes before it is staged; no CRC tells.

        The event is lost, and must be missed.
        """
        r = random.Random(draw)
        if todo := self._unstaged_events():
            p, offset = r.choice(todo)
            record = self.central.logs[p].records[offset]
            assert record is not None
            at = r.randrange(EVENT_ID_BYTES)
            key = (
                record.key[:at]
                + bytes([record.key[at] ^ 1 << r.randrange(8)])
                + record.key[at + 1 :]
            )
            self.central.logs[p].records[offset] = dataclasses.replace(record, key=key)
            self.junk.add((key, record.value))
            self.mirror.skipped.append(record)
            self.seen[KEY_CHANGED] += 1

    def change_value(self, draw: int) -> None:
        """A value in the central log changes before it is staged, and is a value of its schema
        still; no CRC tells.
        """
        unchecked = {x.id for x in self.ranges if not x.has_checksums}
        todo = [
            (p, offset)
            for p, offset in self._unstaged_events()
            if (record := self.central.logs[p].records[offset])
            and RecordKey.decode(record.key).range_id not in unchecked
        ]
        if todo:
            p, offset = todo[draw % len(todo)]
            record = self.central.logs[p].records[offset]
            assert record is not None
            changed = record.value[:-1] + bytes([record.value[-1] ^ 2])
            self.central.logs[p].records[offset] = dataclasses.replace(record, value=changed)
            self.seen[VALUE_CHANGED] += 1

    def _unstaged_events(self) -> list[tuple[Partition, int]]:
        """Where the central logs have events that are not staged, after the mirrors caught up."""
        self.mirror_all(0)
        positions = {
            Partition(p.topic, p.partition): p.next_offset
            for p in batches.positions(self.database, CLUSTER)
        }
        types = {
            central_topic(events_topic(t), alias or "")
            for t in TYPES
            for alias in self.topics.aliases.values()
        }
        return [
            (p, offset)
            for p, log in self.central.logs.items()
            for offset, record in enumerate(log.records)
            if p.topic in types
            and record is not None
            and offset >= positions.get(p, 0)
            and (record.key, record.value) not in self.junk
        ]

    def one_of(self, draw: int) -> FakeMirror:
        """One of the mirrors."""
        return self.mirrors[draw % len(self.mirrors)]

    def mirror_all(self, _: int) -> None:
        """The mirrors catch up."""
        for mirror in self.mirrors:
            for p in EDGE_PARTITIONS:
                mirror.copy(p, mirror.lag(p))

    def arrive(self) -> None:
        """All that the edge has is mirrored and staged."""
        self.mirror_all(0)
        self.stage_all(0)

    def leaders_come_back(self) -> None:
        """Every partition has a leader again."""
        for cluster in (self.central, *(mirror.edge for mirror in self.mirrors)):
            cluster.leaderless.clear()

    def mirror_aborts(self, draw: int) -> None:
        """The mirror is killed in the middle of a transaction."""
        self.one_of(draw).abort(EDGE_PARTITIONS[draw % len(EDGE_PARTITIONS)], 1 + draw % 5)
        self.seen["mirror's transaction aborted"] += 1

    def no_leader(self, draw: int) -> None:
        """A broker of a cluster is gone: for a while nobody knows the offsets of some partitions,
        or of all.
        """
        r = random.Random(draw)
        cluster = r.choice((*(mirror.edge for mirror in self.mirrors), self.central))
        led = [p for p in cluster.logs if r.random() < 0.4] or list(cluster.logs)
        cluster.leaderless |= dict.fromkeys(led, r.randint(1, 6))
        self.seen["offsets not known"] += 1

    def mirror_drops(self, draw: int) -> None:
        """A faulty mirror drops an event and doubles its neighbour."""
        r = random.Random(draw)
        mirror = self.one_of(draw)
        busy = [p for p in EDGE_PARTITIONS if p.topic not in (HOSTS, AUDIT) and mirror.lag(p) >= 2]
        if busy:
            p = r.choice(busy)
            mirror.copy(p, 2, drop=1)
            self.seen["mirror dropped and doubled"] += 1

    def retention(self, draw: int) -> None:
        """The edge deletes what was copied long ago: before the closer's last poll for gaps."""
        p = EDGE_PARTITIONS[draw % len(EDGE_PARTITIONS)]
        if (known := read_last_checks(self.database).get(p)) is not None:
            self.edge.logs[p].start = max(self.edge.logs[p].start, known.mirror_next)

    def retention_overtakes(self, draw: int) -> None:
        """The edge deletes before the mirror has copied, in one partition or in all; the mirror
        goes on with what is left.
        """
        for p in (
            EDGE_PARTITIONS if draw % 2 else [EDGE_PARTITIONS[draw // 2 % len(EDGE_PARTITIONS)]]
        ):
            if (mirror := self.one_of(draw // 3)).lag(p):
                mirror.overtake(p)
                self.seen["retention overtook the mirror"] += 1

    def central_retention(self, draw: int) -> None:
        """The central cluster deletes what is staged, of some partitions or of all: it cannot be
        staged again.
        """
        r = random.Random(draw)
        share = r.choice((0.3, 1.0))
        for p, position in self.positions().items():
            log = self.central.logs[p]
            if r.random() < share and min(position.next_offset, len(log.records)) > log.start:
                log.start = r.randint(log.start + 1, min(position.next_offset, len(log.records)))
                self.seen["retention at the central cluster"] += 1

    def central_overtakes(self, draw: int) -> None:
        """It deletes also what is not staged yet."""
        r = random.Random(draw)
        ends = {
            p: (position.next_offset, len(self.central.logs[p].records))
            for p, position in self.positions().items()
        }
        if behind := [
            p for p, (start, end) in ends.items() if self.central.logs[p].start <= start < end
        ]:
            p = r.choice(behind)
            self.central.logs[p].start = r.randint(ends[p][0] + 1, ends[p][1])
            self.seen["retention overtook staging"] += 1

    def shorten(self, topics: Collection[str], count: int) -> None:
        """The central cluster loses so many of the last records, and marks of transactions, of
        these topics of the edge.
        """
        for topic in topics:
            log = self.central.logs[p := Partition(central_topic(topic, self.mirror.alias), 0)]
            self.losses.shorten(p, max(log.start, len(log.records) - count))
        self.seen["the central cluster lost records"] += 1

    def lose_ends(self, draw: int) -> Collection[str]:
        """The same, of some topics. All promises were staged: else only the mirror's
        watch sees it.
        """
        r = random.Random(draw)
        topics = r.sample((AUDIT, HOSTS, *map(events_topic, TYPES)), r.randint(1, 3))
        if AUDIT in topics or r.random() < 0.5:
            self.stage_all(0)
        self.shorten(topics, r.randint(1, 8))
        return topics

    def look(self) -> None:
        """A micro-batch, that finds nothing to stage."""
        self.stage_until({}, 1.0)

    def stage(self, draw: int) -> None:
        """A micro-batch of some of every partition; the driver may be killed before or after the
        commit.
        """
        r = random.Random(draw)
        ends = {}
        for p, start in self.positions().items():
            end = max(start.next_offset, len(self.central.logs[p].records))
            ends[p] = r.choice((start.next_offset, r.randint(start.next_offset, end), end))
        self.stage_until(ends, r.random())

    def stage_all(self, _: int) -> None:
        """A micro-batch of all there is."""
        self.stage_until({p: len(self.central.logs[p].records) for p in self.positions()}, 1.0)

    def positions(self) -> dict[Partition, StagingPosition]:
        """Where staging goes on."""
        return {
            Partition(p.topic, p.partition): p for p in batches.positions(self.database, CLUSTER)
        }

    def stage_until(self, ends: dict[Partition, int], fate: float) -> None:
        logs, starts = self.central.logs, self.positions()
        if any(logs[p].start > s.next_offset for p, s in starts.items()):
            self.losses.pass_over(starts)
            batches.skip_expired_offsets(
                self.database,
                self.consumer,
                self.topics.at_edge,
                {s: logs[p].start for p, s in starts.items()},
            )
            starts = self.positions()
        if short := {s: logs[p].start for p, s in starts.items() if self._lost_its_end(logs[p], s)}:
            batches.restart_truncated_logs(
                self.database, self.consumer, self.topics.at_edge, short, self.clock.now_ms()
            )
            starts = self.positions()
        moved = {p: min(end, len(logs[p].records)) for p, end in ends.items()}
        moved = {p: end for p, end in moved.items() if end > starts[p].next_offset}
        if not moved:
            return
        folder = f"_staging/{self.consumer.epoch:012d}-default-{uuid.uuid4().hex}"
        batch, unread = self._batch(folder, starts, moved)
        if fate < 0.1:
            self.seen["driver killed before the ledger commit"] += 1
            return
        batches.commit_batch(self.database, self.consumer, batch, unread)
        for p, end in ((Partition(of.topic, of.partition), of.next_offset) for of in batch.ends):
            read = enumerate(logs[p].records[starts[p].next_offset : end], starts[p].next_offset)
            self.losses.staged |= {(p, offset, r.key) for offset, r in read if r is not None}
        self.seen["staged"] += 1

    def _lost_its_end(self, log: Log, s: StagingPosition) -> bool:
        """As the planner sees it by the end, and a reader by the leader epoch."""
        if len(log.records) < s.next_offset:
            return True
        begin = planning.find_resume_offset(s, log.start)
        if begin is None or begin.leader_epoch is None:
            return False
        between = log.records[
            begin.offset : s.next_offset
        ]  # where a reader finds a record, others took the place of lost ones
        return log.is_truncated(begin.offset, begin.leader_epoch) or any(
            r is not None for r in between
        )

    def elect(self, draw: int) -> None:
        """Another broker leads some partitions of the central cluster, and has all of
        their logs.
        """
        r = random.Random(draw)
        for log in self.central.logs.values():
            if r.random() < 0.5:
                log.elect()
        self.seen["another leader"] += 1

    def _batch(
        self, folder: str, starts: dict[Partition, StagingPosition], ends: dict[Partition, int]
    ) -> tuple[StagedBatch, list[ReadError]]:
        """What one task stages of these spans, and partitions that it must leave."""
        moved = {p: s for p, s in starts.items() if p in ends}
        last = {p: self.central.logs[p].last_of(s.next_offset, ends[p]) for p, s in moved.items()}
        spans = tuple(
            OffsetSpan(
                topic=s.topic,
                topic_id=s.topic_id,
                partition=s.partition,
                start=s.next_offset,
                end=ends[p],
                leader_epoch=last[p][0],
                epoch_next=last[p][1],
            )
            for p, s in moved.items()
        )
        logs = self.central.logs
        one_epoch = frozenset(
            p
            for p, s in moved.items()
            if len({logs[p].epoch_of(offset) for offset in range(s.next_offset, ends[p])}) == 1
        )
        answers = list(
            stage_chunks(
                [RecordChunk(self.records(spans), spans, one_epoch)],
                self.plan(folder),
                self.storage,
                [],
            )
        )
        return build_batch(answers, CLUSTER, "default", self.clock.now_ms()), collect_read_errors(
            answers, self.clock.now_ms()
        )

    def staged(
        self, folder: str, spans: Sequence[OffsetSpan], schemas: StagingSchemas | None = None
    ) -> StagedChunk:
        """The real staging function over what the central cluster has there."""
        return stage_table(self.records(spans), spans, self.plan(folder, schemas), self.storage)

    def records(self, spans: Sequence[OffsetSpan]) -> pa.Table:
        """What the central cluster has there, as staging reads it."""
        rows = [
            (record.key, record.value, s.topic, s.partition, offset)
            for s in spans
            for offset in range(s.start, s.end)
            if (record := self.central.logs[Partition(s.topic, s.partition)].records[offset])
            is not None
        ]
        kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64())
        columns = [
            pa.array(c, k)
            for c, k in zip(list(zip(*rows, strict=True)) or [()] * 5, kinds, strict=True)
        ]
        return pa.table(columns, names=["key", "value", "topic", "partition", "offset"])

    def plan(self, folder: str, schemas: StagingSchemas | None = None) -> StagePlan:
        """What staging into the folder must know."""
        known = schemas or load_schemas(self.config, self.database, self.topics.types, self._checks)
        return StagePlan(
            folder=folder,
            bucket_seconds=FIRST_HOUR.length_s,
            types=self.topics.types,
            audits=self.topics.audits,
            hosts=self.topics.hosts,
            ledger=self.database.identity()[0],
            schema_types=known.types,
            programs=known.programs,
        )

    def restage(self, lease: Lease, path: str) -> str:
        """The real restager; only reading Kafka is played."""
        again = PlayedRestager(self).restage(lease, path)
        self.losses.healed.add(path)
        self.seen["staged again"] += 1
        return again


class PlayedRestager(Restager):
    """Only reading Kafka is played."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._config, self._database, self._storage = (
            pipeline.config,
            pipeline.database,
            pipeline.storage,
        )
        self._pipeline, self._logs = pipeline, pipeline.central.logs
        self.made: list[str] = []

    def _refuse_lost(self, spans: Sequence[OffsetSpan]) -> None:
        pass

    def _stage(
        self, known: LedgerFile, spans: Sequence[OffsetSpan], schemas: StagingSchemas
    ) -> StagedChunk:
        for s in spans:
            log = self._logs[Partition(s.topic, s.partition)]
            if s.start < log.start or s.end > len(log.records):
                raise DataLoss(
                    f"topic {s.topic} partition {s.partition}: offset {s.start} is to be "
                    "staged, and it is gone"
                )
        plan = self._pipeline.plan(known.folder, schemas)
        piece = stage_table(
            self._without_set_aside(self._pipeline.records(spans), spans),
            spans,
            plan,
            self._storage,
        )
        self.made += [f.path for f in piece.files]
        return piece
