"""Everything that exists in a history: hosts and services, two clusters and a mirror, staging, closers, and what is true of them.

Real are: ids, records and their encodings, the staging function, the ledger, all of closing. Played are: hosts, services,
Kafka, the mirror, the driver's loop. The rule that is put to the test: docs/architecture.md, "Closing".
"""

from __future__ import annotations

import collections
import dataclasses
import io
import random
import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from etl.closing.assembly import LedgerProgress
from etl.closing.closer import Closer, Ports
from etl.closing.cut import Waiting
from etl.closing.edge import TwoSites
from etl.ledger import staging
from etl.ledger.database import Database
from etl.ledger.edge import last_checks
from etl.ledger.frontier_rows import ensure_frontier_rows
from etl.ledger.frontiers import frontiers
from etl.ledger.orders import order_force_all
from etl.ledger.rows import Frontier, Position, Reporter, Span, StagedBatch, StagedFile
from etl.staging.pieces import StagePlan
from etl.staging.task import stage_table
from hourmark.audit import AuditRecord, promises
from hourmark.avro import Schema, event_schema, frame
from hourmark.clock import FakeClock
from hourmark.config import Config, Etl, Kafka, KafkaCluster
from hourmark.errors import HourmarkError, UsageError
from hourmark.event_id import EventId, LineIds
from hourmark.event_types import EventType, Source
from hourmark.host_reports import API_SOURCE, HostReport, SourceReport
from hourmark.hours import Hour
from hourmark.kafka import Partition
from hourmark.manifest import Manifest
from hourmark.ranges import RangeId
from hourmark.record_key import RecordKey
from hourmark.topics import AUDIT, HOSTS, central_topic, events_topic
from tests.property.hooks import Killed, PointedDatabase, PointedEngine, PointedStorage, Points, share_compiled
from tests.property.plain_engine import PlainEngine
from tests.property.sites import ALIAS, FakeCluster, FakeMirror, Record
from tests.support.memory_storage import MemoryStorage

FIRST_HOUR = Hour(1_800_000_000, 3600)
TYPES = ("click", "view")
HOSTS_OF = {"app": 2, "web": 1}  # source → hosts
SOURCES = [Source(name="app", types=["click", "view"]), Source(name="web", types=["view"])]
SCHEMAS: dict[int, Schema] = {n: event_schema(t, [{"name": "number", "type": "long"}]) for n, t in enumerate(TYPES, 1)}
PARSED = {n: fastavro.parse_schema(dict(schema)) for n, schema in SCHEMAS.items()}
SHARES = {P: n for n, P in enumerate(TYPES, 1)}
CLUSTER = "central-cluster"
POINTS = 40  # about as many as a step passes that closes an hour of each type
EDGE_PARTITIONS = [Partition(HOSTS, 0), Partition(AUDIT, 0), *(Partition(events_topic(t), n) for t in TYPES for n in range(2))]


class Broken(AssertionError):
    """The promise does not hold in this history."""


@dataclasses.dataclass(frozen=True)
class Event:
    """`line` is what was written on the host: the truth that ids must tell."""

    line: int
    event_type: str
    time_ms: int
    id: EventId
    value: bytes


@dataclasses.dataclass
class Range:
    """Lines of one host, durable there before the first send."""

    id: RangeId
    host: int
    events: tuple[Event, ...]
    acked: bool = False
    abandoned: bool = False  # will never be sent again


@dataclasses.dataclass
class Host:
    """A tailer."""

    number: int
    source: str
    caught_up_at_ms: int
    sequence: int = 0
    dead: bool = False


@dataclasses.dataclass
class Zombie:
    """A closer that stands still in the middle of a step."""

    thread: threading.Thread
    wake: threading.Event
    outcome: list[BaseException] = dataclasses.field(default_factory=list)


class Metrics:
    """Counts nothing."""

    def closed(self, hour: Hour, manifest: Manifest) -> None:
        """See `etl.closing.closer.Metrics`."""


class World:
    """One history. Every action takes a number from which it draws what it needs, so a history is a list of pairs."""

    def __init__(self, folder: Path, template: Path) -> None:
        self.clock = FakeClock(FIRST_HOUR.start_s * 1000 + 600_000)
        self.seen: collections.Counter[str] = collections.Counter()
        self.storage = MemoryStorage()
        ledger = folder / f"{uuid.uuid4().hex}.sqlite"
        shutil.copy(template, ledger)
        self.ledger = ledger
        self.config = config_of(ledger)
        self.database = Database(self.config.etl.ledger)
        share_compiled(self.database)
        self.edge = FakeCluster("edge", EDGE_PARTITIONS)
        self.central = FakeCluster("central", [Partition(central_topic(p.topic, ALIAS), p.partition) for p in EDGE_PARTITIONS])
        self.mirror = FakeMirror(self.edge, self.central)
        self.hosts = [
            Host(n, s, self.clock.now_ms()) for n, s in enumerate(s for s, count in HOSTS_OF.items() for _ in range(count))
        ]
        self.service_sequence = 0
        self.lines = 0
        self.ranges: list[Range] = []
        self.events: dict[EventId, Event] = {}
        self.closed: dict[tuple[str, Hour], dict[str, bytes]] = {}
        self.where: dict[EventId, tuple[str, Hour]] = {}
        self.manifests: dict[tuple[str, Hour], Manifest] = {}
        self.zombies: list[Zombie] = []
        self.whole: dict[str, bytes] = {}  # damaged files as they were
        self.consumer = self.database.acquire("consumer:default")
        infos = self.central.topics({p.topic for p in self.central.logs})
        staging.begin_positions(
            self.database,
            self.consumer,
            [Position(CLUSTER, infos[p.topic].topic_id, p.topic, p.partition, 0) for p in self.central.logs],
        )
        self.start_closer()
        self.report(0)

    def end(self) -> None:
        """Let go of everything, whatever became of the history."""
        for zombie in self.zombies:
            zombie.wake.set()
            zombie.thread.join()
        self.closer_database.close()
        self.database.close()
        self.storage.forget()
        for file in self.ledger.parent.glob(f"{self.ledger.name}*"):
            file.unlink()

    # hosts and services ----------------------------------------------------------------------------------------------

    def cut_range(self, draw: int) -> None:
        """A host writes lines, of now or as of some hours ago, and cuts a range."""
        r = random.Random(draw)
        living = [h for h in self.hosts if not h.dead]
        if not living:
            return
        host = r.choice(living)
        events = []
        for _ in range(r.randint(1, 4)):
            event_type = r.choice(next(s.types for s in SOURCES if s.name == host.source))
            late_ms = 0 if r.random() < 0.8 else r.randint(1, 4) * 3_600_000
            time_ms = max(FIRST_HOUR.start_s * 1000, self.clock.now_ms() - late_ms)
            self.lines += 1
            events.append(self._event(self.lines, host.number, event_type, time_ms))
        self._take(host.number, tuple(events))

    def send(self, draw: int) -> None:
        """A range is sent: it is acknowledged, or the ack is lost, or the service is killed before the audit record."""
        r = random.Random(draw)
        todo = [x for x in self.ranges if not x.acked and not x.abandoned and not self.hosts[x.host].dead]
        if not todo:
            return
        sent, fate = r.choice(todo), r.random()
        upto = len(sent.events) if fate > 0.2 else r.randint(0, len(sent.events))
        for e in sent.events[:upto]:
            self._append(Partition(events_topic(e.event_type), r.randint(0, 1)), RecordKey(e.id, sent.id).encode(), e.value)
        if fate <= 0.2:
            self.seen["service killed before the audit record"] += 1
            return
        self._append(Partition(AUDIT, 0), bytes(sent.id), frame(1) + self._audit(sent).encode())
        if fate <= 0.35:
            self.seen["ack lost"] += 1
            return
        sent.acked = True
        self.seen["acked"] += 1

    def send_all(self, draw: int) -> None:
        """Whatever hosts hold is acknowledged."""
        r = random.Random(draw)
        for _ in range(200):
            if all(x.acked or x.abandoned or self.hosts[x.host].dead for x in self.ranges):
                return
            self.send(r.getrandbits(32))

    def lose_checkpoint(self, draw: int) -> None:
        """A host reads its last lines again, and cuts them differently."""
        r = random.Random(draw)
        host = r.choice(self.hosts)
        mine = [x for x in self.ranges if x.host == host.number and not x.abandoned][-3:]
        if host.dead or not mine:
            return
        for x in mine:
            x.abandoned = x.abandoned or not x.acked  # the same lines come again below
        again = [self._event(e.line, host.number, e.event_type, e.time_ms) for x in mine for e in x.events]
        at = r.randint(0, len(again))
        for part in (again[:at], again[at:]):
            if part:
                self._take(host.number, tuple(part))
        self.seen["checkpoint lost"] += 1

    def host_dies(self, draw: int) -> None:
        """A host falls silent with what it holds."""
        host = self.hosts[draw % len(self.hosts)]
        if not host.dead:
            host.dead = True
            self.seen["host dead"] += 1

    def host_returns(self, draw: int) -> None:
        """It comes back with its old files."""
        dead = [h for h in self.hosts if h.dead]
        if dead:
            dead[draw % len(dead)].dead = False
            self.seen["host back"] += 1

    def report(self, _: int) -> None:
        """Every living host and the service report; nobody says that it caught up while it holds something."""
        now_ms = self.clock.now_ms()
        for host in self.hosts:
            if host.dead:
                continue
            if not any(x.host == host.number and not x.acked and not x.abandoned for x in self.ranges):
                host.caught_up_at_ms = now_ms
            host.sequence += 1
            self._report("tailer", f"{host.number:032x}", host.sequence, host.source, host.caught_up_at_ms)
        self.service_sequence += 1
        self._report("service", "5" * 32, self.service_sequence, API_SOURCE, now_ms)

    def _report(self, kind: str, host_id: str, sequence: int, source: str, caught_up_at_ms: int) -> None:
        now_ms = self.clock.now_ms()
        sources = (SourceReport(source, caught_up_at_ms, 0, 0),)
        report = HostReport(host_id, f"host-{host_id[-1]}", kind, "one", sequence, now_ms, False, sources)
        self._append(Partition(HOSTS, 0), host_id.encode(), frame(1) + report.encode())

    def _event(self, line: int, host: int, event_type: str, time_ms: int) -> Event:
        event_id = LineIds(f"{host:032x}", "f" * 32, 0).make(time_ms, line, b"line")
        row: dict[str, Any] = {
            "event_id": bytes(event_id), "event_time": time_ms, "host": "h", "source": "/log", "file": None, "position": line,
            "number": line,
        }  # fmt: skip
        buffer, schema_id = io.BytesIO(), SHARES[event_type]
        fastavro.schemaless_writer(buffer, PARSED[schema_id], row)
        event = Event(line, event_type, time_ms, event_id, frame(schema_id) + buffer.getvalue())
        self.events[event_id] = event
        return event

    def _take(self, host: int, events: tuple[Event, ...]) -> None:
        self.ranges.append(Range(RangeId((len(self.ranges) + 1).to_bytes(8, "big")), host, events))

    def _audit(self, sent: Range) -> AuditRecord:
        promised = promises((e.event_type, Hour.of(e.time_ms).start_s, e.id) for e in sent.events)
        return AuditRecord(
            sent.id, "range", f"{sent.host:032x}", "host", "f" * 32, 0, 0, 1, 0, "1-0", "app", "/log", len(sent.events), promised
        )

    def _append(self, partition: Partition, key: bytes, value: bytes) -> None:
        self.clock.advance(0.001)
        self.edge.append(partition, Record(key, value, self.clock.now_ms()))

    # mirror and consumer ---------------------------------------------------------------------------------------------

    def mirror_some(self, draw: int) -> None:
        """The mirror copies a few records of one partition."""
        r = random.Random(draw)
        self.mirror.copy(r.choice(EDGE_PARTITIONS), r.randint(1, 6))

    def mirror_all(self, _: int) -> None:
        """The mirror catches up."""
        for p in EDGE_PARTITIONS:
            self.mirror.copy(p, self.mirror.lag(p))

    def mirror_drops(self, draw: int) -> None:
        """A faulty mirror drops an event and doubles its neighbour."""
        r = random.Random(draw)
        busy = [p for p in EDGE_PARTITIONS if p.topic not in (HOSTS, AUDIT) and self.mirror.lag(p) >= 2]
        if busy:
            p = r.choice(busy)
            self.mirror.copy(p, 2, drop=1)
            self.seen["mirror dropped and doubled"] += 1

    def retention(self, draw: int) -> None:
        """The edge deletes what was copied long ago: before the closer's last look for holes."""
        p = EDGE_PARTITIONS[draw % len(EDGE_PARTITIONS)]
        if (known := last_checks(self.database).get(p)) is not None:
            self.edge.logs[p].start = max(self.edge.logs[p].start, known.mirror_next)

    def retention_overtakes(self, draw: int) -> None:
        """The edge deletes before the mirror has copied, in one partition or in all; the mirror goes on with what is left."""
        for p in EDGE_PARTITIONS if draw % 2 else [EDGE_PARTITIONS[draw // 2 % len(EDGE_PARTITIONS)]]:
            if self.mirror.lag(p):
                self.mirror.overtake(p)
                self.seen["retention overtook the mirror"] += 1

    def stage(self, draw: int) -> None:
        """A micro-batch of some of every partition; the driver may be killed before or after the commit."""
        r = random.Random(draw)
        ends = {}
        for p, start in self._positions().items():
            end = len(self.central.logs[p].records)
            ends[p] = r.choice((start.next_offset, r.randint(start.next_offset, end), end))
        self._stage(ends, r.random())

    def stage_all(self, _: int) -> None:
        """A micro-batch of all there is."""
        self._stage({p: len(self.central.logs[p].records) for p in self._positions()}, 1.0)

    def _positions(self) -> dict[Partition, Position]:
        return {Partition(p.topic, p.partition): p for p in staging.positions(self.database, CLUSTER)}

    def _stage(self, ends: dict[Partition, int], fate: float) -> None:
        starts = self._positions()
        moved = {p: end for p, end in ends.items() if end > starts[p].next_offset}
        if not moved:
            return
        rows = [
            (record.key, record.value, p.topic, p.partition, offset)
            for p, end in moved.items()
            for offset in range(starts[p].next_offset, end)
            if (record := self.central.logs[p].records[offset]) is not None
        ]
        folder = f"_staging/{uuid.uuid4().hex}"
        batch = self._batch(folder, rows, starts, moved)
        if fate < 0.1:
            self.seen["driver killed before the ledger commit"] += 1
            return
        staging.commit_batch(self.database, self.consumer, batch)
        self.seen["staged"] += 1

    def _batch(
        self,
        folder: str,
        rows: list[tuple[bytes, bytes, str, int, int]],
        starts: dict[Partition, Position],
        ends: dict[Partition, int],
    ) -> StagedBatch:
        types = {central_topic(events_topic(t), ALIAS): t for t in TYPES}
        plan = StagePlan(
            self.config.storage, folder, FIRST_HOUR.length_s, types, central_topic(AUDIT, ALIAS), central_topic(HOSTS, ALIAS)
        )
        kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64())
        names = ("key", "value", "topic", "partition", "offset")
        columns = list(zip(*rows, strict=True)) or [()] * 5
        piece = stage_table(
            pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)}), plan, self.storage
        )
        spans = tuple(Span(s.topic, s.topic_id, s.partition, s.next_offset, ends[p]) for p, s in starts.items() if p in ends)
        reports = [HostReport.decode(r.datum) for r in sorted(piece.reports)]
        return StagedBatch(
            folder,
            tuple(s for p, s in starts.items() if p in ends),
            tuple(dataclasses.replace(s, next_offset=ends[p]) for p, s in starts.items() if p in ends),
            tuple(StagedFile(f.path, f.kind, f.rows, spans) for f in piece.files),
            piece.groups,
            piece.audit_groups,
            tuple(_reporters(report) for report in reports),
        )

    def damage(self, draw: int) -> None:
        """A staged file of events loses its second half."""
        files = sorted(p for p in self.storage.content("_staging") if "/events-" in p and p not in self.whole)
        if files:
            path = files[draw % len(files)]
            self.whole[path] = self.storage.read(path)
            self.storage.damage(path)
            self.seen["staged file damaged"] += 1

    def restage(self, path: str) -> None:
        """What staging does with an unreadable file, in short: the same rows again."""
        self.storage.delete(path)
        self.storage.write_new(path, self.whole.pop(path))
        self.seen["staged again"] += 1

    # closers ---------------------------------------------------------------------------------------------------------

    def start_closer(self) -> None:
        """A new closer on the same ledger; whoever was there loses at the lease."""
        self.points = Points()
        self.closer_database = PointedDatabase(self.config.etl.ledger, self.points)
        database, storage = self.closer_database, PointedStorage(self.storage, self.points)
        ports = Ports(
            engine=PointedEngine(self.engine(database), self.points),
            storage=storage,
            database=database,
            sites=lambda lease: TwoSites(self.edge, self.central, self.mirror, ALIAS, database, lease, self.clock),
            progress=LedgerProgress(database, CLUSTER),
            fetch_schema=lambda schema_id: SCHEMAS[schema_id],
            restage=self.restage,
            metrics=Metrics(),
            clock=self.clock,
            publishers=1,
        )
        self.closer = Closer(ports, self.config)

    def engine(self, database: Database) -> PlainEngine:
        """What proves and writes."""
        return PlainEngine(self.storage, database, self.config)

    def close_step(self, _: int) -> int | None:
        """One look of the closer; None while it waits. A kill brings a new closer."""
        try:
            outcome = self.closer.step()
        except Killed:
            self.seen["closer killed"] += 1
            self.points.disarm()
            self.closer_database.close()
            self.start_closer()
            return 0
        return None if isinstance(outcome, Waiting) else outcome

    def kill_at(self, draw: int) -> None:
        """The closer is killed at a point of a step in which it may have something to close, or of a later one."""

        def kill() -> None:
            raise Killed

        self._all_staged()
        self.points.arm(1 + draw % POINTS, kill)
        self.close_step(draw)

    def go_on_at(self, draw: int) -> None:
        """In the middle of such a step, ranges arrive and are staged."""

        def go_on() -> None:
            r = random.Random(draw)
            self.cut_range(r.getrandbits(32))
            for _ in range(r.randint(1, 3)):
                self.send(r.getrandbits(32))
            self.mirror_all(0)
            self.stage_all(0)
            self.seen["staged in the middle of a step"] += 1

        self._all_staged()
        self.points.arm(1 + draw % POINTS, go_on)
        self.close_step(draw)

    def _all_staged(self) -> None:
        self.report(0)
        self.mirror_all(0)
        self.stage_all(0)

    def pause(self, draw: int) -> None:
        """The closer takes a step and is paused in it, before its rename or at another point; another one takes over."""
        if len(self.zombies) >= 2:
            return
        paused, wake = threading.Event(), threading.Event()

        def stand_still() -> None:
            paused.set()
            wake.wait()

        self._all_staged()
        self.points.disarm()
        self.points.arm(1 + draw % POINTS, stand_still)
        closer, database, points = self.closer, self.closer_database, self.points
        zombie = Zombie(threading.Thread(target=lambda: None), wake)

        def step() -> None:
            try:
                closer.step()
            except BaseException as error:  # noqa: BLE001  # looked at when it has ended
                zombie.outcome.append(error)
            finally:
                paused.set()

        zombie.thread = threading.Thread(target=step, daemon=True)
        zombie.thread.start()
        paused.wait()
        points.disarm()
        if zombie.thread.is_alive() and not wake.is_set() and not zombie.outcome:
            self.zombies.append(zombie)
            self.seen["closer paused"] += 1
            self.start_closer()
            return
        zombie.thread.join()
        self._check_outcome(zombie)
        if zombie.outcome:
            database.close()
            self.start_closer()

    def wake(self, draw: int) -> None:
        """A paused closer goes on where it stood."""
        if not self.zombies:
            return
        zombie = self.zombies.pop(draw % len(self.zombies))
        zombie.wake.set()
        zombie.thread.join()
        self._check_outcome(zombie)
        self.seen["closer woken"] += 1

    def _check_outcome(self, zombie: Zombie) -> None:
        for error in zombie.outcome:
            if not isinstance(error, HourmarkError):
                raise error
            self.seen[f"woken closer: {type(error).__name__}"] += 1

    # time, and the end -----------------------------------------------------------------------------------------------

    def tick(self, draw: int) -> None:
        """Time passes; never so much that a history outgrows some twelve hours."""
        if self.clock.now_ms() < (FIRST_HOUR.start_s + 8 * 3600) * 1000:
            self.clock.advance(60 * (5 + draw % 40))

    def flow(self, draw: int) -> None:
        """A calm moment: what was reported is staged, and the closer looks."""
        self._all_staged()
        self.close_step(draw)

    def haste(self, draw: int) -> None:
        """A moment in which staging has not caught up, and the closer looks."""
        self.report(0)
        self.mirror_all(0)
        self.stage(draw)
        self.close_step(draw)

    def frontiers(self) -> list[Frontier]:
        """As the ledger has them."""
        return frontiers(self.database, FIRST_HOUR.length_s)

    def drain(self) -> None:
        """No new lines: everything that can arrive arrives, deadlines pass, an operator orders what nothing else closes."""
        self.points.disarm()
        end_s = Hour.of(self.clock.now_ms()).end_s
        for round_number in range(60):
            while self.zombies:
                self.wake(0)
            self.send_all(round_number)
            self.flow(0)
            for _ in range(50):
                if self.close_step(0) is None:
                    break
            else:
                raise Broken("the closer never comes to rest")
            self.check()
            if all(f.hour.start_s >= end_s for f in self.frontiers()):
                return
            self.clock.advance(20 * 60)
            if round_number > 10:
                self._order()
        raise Broken(f"hangs: {[(f.event_type, str(f.hour), f.state.value, f.alarm) for f in self.frontiers()]}")

    def _order(self) -> None:
        if not self.mirror.skipped:
            raise Broken(
                f"an hour stays open, and nothing was lost: {[(f.event_type, str(f.hour), f.alarm) for f in self.frontiers()]}"
            )
        try:
            order_force_all(self.database, FIRST_HOUR.length_s, "records are lost", "operator", self.clock.now_ms())
            self.seen["forced"] += 1
        except UsageError:
            return  # not all hours have ended

    # what must hold --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After every action: no closed bucket changed, no event is in two, and `proved` is true of new ones."""
        for (event_type, hour), content in self.closed.items():
            if self.storage.content(hour.bucket_path(event_type)) != content:
                raise Broken(f"the closed bucket {event_type} {hour} has changed")
        for event_type in TYPES:
            hour = FIRST_HOUR
            while hour.end_ms <= self.clock.now_ms():
                if (event_type, hour) not in self.closed:
                    content = self.storage.content(hour.bucket_path(event_type))
                    if content:
                        self._take_in(event_type, hour, content)
                hour = hour.next()

    def _take_in(self, event_type: str, hour: Hour, content: dict[str, bytes]) -> None:
        folder = hour.bucket_path(event_type)
        if f"{folder}/_SUCCESS" not in content:
            raise Broken(f"{folder} stands without a marker")
        manifest = Manifest.decode(content[f"{folder}/_SUCCESS"])
        if hour > FIRST_HOUR and (event_type, Hour(hour.start_s - 3600, 3600)) not in self.closed:
            raise Broken(f"{event_type} {hour} was closed before the hour that precedes it")
        ids = []
        for file in manifest.files:
            rows: Any = fastavro.reader(io.BytesIO(content[f"{folder}/{file.name}"]))
            ids += [EventId(row["event_id"]) for row in rows]
        if len(ids) != manifest.events or set(content) != {f"{folder}/{f.name}" for f in manifest.files} | {f"{folder}/_SUCCESS"}:
            raise Broken(f"{event_type} {hour} does not hold what its manifest says")
        for event_id in ids:
            event = self.events[event_id]
            if event_id in self.where:
                raise Broken(f"line {event.line} is in {self.where[event_id]} and in {event_type} {hour}")
            if event.event_type != event_type or Hour.of(event.time_ms) > hour:
                raise Broken(f"line {event.line} is in {event_type} {hour}, where it does not belong")
            self.where[event_id] = (event_type, hour)
        self.closed[event_type, hour] = content
        self.manifests[event_type, hour] = manifest
        grade = manifest.grade.value
        self.seen[f"buckets {grade}"] += 1
        self.seen["events in buckets"] += len(ids)
        self.seen["late events"] += sum(manifest.late.values())
        self.seen["duplicates removed"] += manifest.duplicates_removed
        if (grade == "proved") != (not manifest.evidence.excused):
            raise Broken(f"{event_type} {hour} is {grade}, and excuses {manifest.evidence.excused}")
        if grade == "proved":
            self._check_proof(event_type, hour, manifest)

    def _check_proof(self, event_type: str, hour: Hour, manifest: Manifest) -> None:
        """Every event promised before its cut, of hours up to this one, is inside, or an earlier marker names its range."""
        excused = [e for (t, h), m in self.manifests.items() if t == event_type and h < hour for e in m.evidence.excused]
        by_id = {bytes(x.id): x for x in self.ranges}
        told = any("may be missing" in e for (t, _), m in self.manifests.items() if t == event_type for e in m.evidence.excused)
        lost = {id(record) for record in self.mirror.skipped} if told else set()
        for record in self.edge.logs[Partition(AUDIT, 0)].records:
            if record is None or record.at_ms >= manifest.evidence.cut_at_ms or id(record) in lost:
                continue
            for e in by_id[record.key].events:
                if e.event_type != event_type or Hour.of(e.time_ms) > hour or e.id in self.where:
                    continue
                if not any(record.key.hex() in text for text in excused):
                    raise Broken(f"{event_type} {hour} is proved without line {e.line}, promised before its cut")

    def check_end(self) -> None:
        """Every acknowledged line is in one closed bucket, once; what was lost on the way is named."""
        self.check()
        lost = {RecordKey.decode(r.key).event_id for r in self.mirror.skipped if len(r.key) == 24}
        count = collections.Counter(self.events[i].line for i in self.where)
        for acked in (x for x in self.ranges if x.acked):
            for e in acked.events:
                if count[e.line] != 1 and not (count[e.line] == 0 and e.id in lost):
                    raise Broken(f"the acknowledged line {e.line} is in closed buckets {count[e.line]} times")
        if doubled := [line for line, times in count.items() if times > 1]:
            raise Broken(f"lines {doubled} are in closed buckets twice")
        for (event_type, hour), m in self.manifests.items():
            if not self.mirror.skipped and any("not kept" in e or "not verified" in e for e in m.evidence.excused):
                raise Broken(f"nothing was lost, yet {event_type} {hour} excuses {m.evidence.excused}")


def config_of(ledger: Path) -> Config:
    """Two sites; a bucket is an hour."""
    return Config(kafka=Kafka(central=KafkaCluster()), etl=Etl(ledger=f"sqlite:///{ledger}"))


def make_template(folder: Path) -> Path:
    """A ledger with the types, made once: each history begins with a copy."""
    path = folder / "template.sqlite"
    types = [EventType(name=t, fields=[{"name": "number", "type": "long"}]) for t in TYPES]
    ensure_frontier_rows(config_of(path), types, SOURCES, FIRST_HOUR)
    return path


def _reporters(report: HostReport) -> tuple[Reporter, ...]:
    return tuple(
        Reporter(
            report.host_id, s.source, report.host_name, report.kind, report.incarnation, report.sequence, report.received_at_ms,
            s.caught_up_at_ms, s.pending_bytes, s.lost_bytes, report.goodbye,
        )
        for s in report.sources
    )  # fmt: skip


Action = Callable[[World, int], object]
