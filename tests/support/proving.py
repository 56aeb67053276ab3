"""One type's events and promises, staged and closed hour by hour on a real ledger, and what a plain
oracle says of each proof.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Sequence

from tests.support.records import (
    Row,
    audit_record,
    kafka_table,
    manifest,
    position,
    seal,
    span,
    stage_plan,
)

from hourmark.avro.framing import framing_header
from hourmark.records.audit import AuditRecord, Promise
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark_etl.closing.proof.proof import Proof, Prover
from hourmark_etl.closing.runner import Runner
from hourmark_etl.ledger import batches, frontiers
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import SealEffects
from hourmark_etl.model import DEFAULT_SHARD, FIRST_SITE, AuditOffsets, Frontier
from hourmark_etl.staging.consumer import build_batch
from hourmark_etl.staging.stage import TaskResult, stage_table
from hourmark_etl.storage import Storage

TYPE = "click"
FIRST = Hour(1_800_000_000)
EVENTS, AUDIT = "edge.events.click", "edge.hourmark.audit"
CLUSTER = "cluster"
_IDS = LineIds("a" * 32, "b" * 32, 0)


def event_id(hour: int, number: int) -> EventId:
    """An event of the hour `FIRST` + `hour`."""
    return _IDS.make((FIRST.start_s + hour * 3600) * 1000 + number, number, b"line")


@dataclasses.dataclass(frozen=True)
class Range:
    """`events`: (hour, number) of each, in the order in which it is sent."""

    name: int
    events: tuple[tuple[int, int], ...]

    @property
    def range_id(self) -> bytes:
        return hashlib.blake2b(b"range %d" % self.name, digest_size=8).digest()

    def promises(self, extra: int = 0) -> dict[int, tuple[int, int]]:
        """By hour: count and sum; `extra` makes them differ."""
        tails: dict[int, set[int]] = collections.defaultdict(set)
        for hour, number in self.events:
            tails[hour].add(event_id(hour, number).low64)
        return {hour: (len(of), (sum(of) + extra) % 2**64) for hour, of in tails.items()}


@dataclasses.dataclass(frozen=True)
class Expected:
    """What the oracle says: `inside`: every promised id is in a bucket; `unaudited`: distinct rows.

    `kept`: range by range, by rows that are listed now, or were unaudited before.
    """

    kept: bool
    inside: bool
    unaudited: int


class Site:
    """Topics, a ledger, staged files; `close` proves the frontier hour and closes it, whatever the
    proof says.
    """

    def __init__(
        self,
        storage: Storage,
        database: Database,
        ranges_here_max: int = 1_000_000,
        unit_bytes_max: int = 1 << 20,
        runner: Runner | None = None,
    ) -> None:
        self.storage, self.database = storage, database
        self.lease = database.acquire("closer")
        self.prover = Prover(
            runner=runner or Runner(),
            storage=storage,
            database=database,
            unit_bytes_max=unit_bytes_max,
            ranges_here_max=ranges_here_max,
        )
        batches.insert_new_positions(
            database, self.lease, [position(topic=EVENTS), position(topic=AUDIT)]
        )
        self.audits: list[tuple[Range, int]] = []  # by central offset
        self._batches = 0
        self._pending: list[tuple[Range, tuple[int, int]]] = []
        self._staged_audits = 0
        self._unlisted: list[tuple[Range, tuple[int, int]]] = []
        self._listed: set[tuple[int, int, int]] = set()  # (range, hour, number), in any bucket
        self._unaudited: set[tuple[int, int, int]] = set()

    def send(
        self, sent: Range, rows: Sequence[int] | None = None, audit: bool = True, extra: int = 0
    ) -> None:
        """Append rows (all, or these indexes) to the topic, and then, perhaps, the audit record."""
        chosen = sent.events if rows is None else [sent.events[i] for i in rows]
        self._pending += [(sent, e) for e in chosen]
        if audit and sent.events:
            self.audits.append((sent, extra))

    def stage(self) -> None:
        """Stage and commit all that was sent."""
        rows, audits = self._pending, self.audits[self._staged_audits :]
        if not rows and not audits:
            return
        values: list[Row] = [
            (bytes(event_id(*e)) + r.range_id, framing_header(7) + b"datum", EVENTS, 0, n)
            for n, (r, e) in enumerate(rows)
        ]
        values += [
            (b"", framing_header(9) + _record(r, extra).encode(), AUDIT, 0, self._staged_audits + n)
            for n, (r, extra) in enumerate(audits)
        ]
        folder = f"_staging/{self._batches}"
        plan = stage_plan(folder, types={EVENTS: TYPE}, audits={AUDIT: FIRST_SITE})
        starts, added = (
            batches.positions(self.database, CLUSTER),
            {EVENTS: len(rows), AUDIT: len(audits)},
        )
        spans = tuple(span(p.next_offset, p.next_offset + added[p.topic], p.topic) for p in starts)
        piece = stage_table(kafka_table(values), spans, plan, self.storage)
        batches.commit_batch(
            self.database,
            self.lease,
            build_batch([TaskResult(piece, spans)], CLUSTER, DEFAULT_SHARD, 0),
        )
        self._batches, self._pending = self._batches + 1, []
        self._staged_audits = len(self.audits)
        self._unlisted += rows

    def frontier(self) -> Frontier:
        """Of the one type."""
        (found,) = [f for f in frontiers.frontiers(self.database, 3600) if f.event_type == TYPE]
        return found

    def close(self, back: int = 0) -> tuple[Proof, Expected]:
        """All that was sent is staged.

        Cut `back` audit records before the staged end; freeze, prove, seal, close.
        """
        self.stage()
        f = self.frontier()
        settled = f.settled_next.offset_of(FIRST_SITE)
        cut = max(settled, self._staged_audits - back)
        below = AuditOffsets.from_offsets(cut)
        frontiers.freeze(self.database, self.lease, [f], {TYPE: [EVENTS]})
        (proof,) = self.prover.prove([f], below)
        expected = self._expected((f.hour.start_s - FIRST.start_s) // 3600, settled, cut)
        kept = proof.unaudited_file
        rows = [kept.ledger_row(below, 1)] if kept else []
        sealed = seal(method=proof.method, audit_next=below, books=proof.books)
        frontiers.seal(
            self.database, self.lease, {TYPE: [sealed]}, [f], SealEffects(unaudited=rows)
        )
        frontiers.record_closed_hours(
            self.database, self.lease, [frontiers.PublishedHour(self.frontier(), manifest(f.hour))]
        )
        return proof, expected

    def _expected(self, hour: int, settled: int, below: int) -> Expected:
        listing = [(r, e) for r, e in self._unlisted if e[0] <= hour]
        self._unlisted = [(r, e) for r, e in self._unlisted if e[0] > hour]
        now = {(r.name, *e) for r, e in listing}
        self._listed |= now
        old = {
            (r.name, h, p)
            for r, extra in self.audits[:settled]
            for h, p in r.promises(extra).items()
            if h < hour
        }
        counting = {
            (r.name, h, p)
            for at, (r, extra) in enumerate(self.audits[:below])
            for h, p in r.promises(extra).items()
            if h == hour or (h < hour and at >= settled)
        } - old
        held: dict[tuple[int, int], set[int]] = collections.defaultdict(set)
        for name, h, number in now | self._unaudited:
            held[name, h].add(event_id(h, number).low64)
        kept = all((len(held[name, h]), sum(held[name, h]) % 2**64) == p for name, h, p in counting)
        ids = {(h, number) for _, h, number in self._listed}
        promised = {
            e
            for r, _ in self.audits[:below]
            for e in r.events
            if (r.name, e[0]) in {(n, h) for n, h, _ in counting}
        }
        audited = {(r.name, h) for r, extra in self.audits[:below] for h in r.promises(extra)}
        unaudited = {row for row in now if row[:2] not in audited} - self._unaudited
        self._unaudited |= unaudited
        return Expected(kept, promised <= ids, len(unaudited))


def _record(r: Range, extra: int) -> AuditRecord:
    promised = tuple(
        Promise(TYPE, FIRST.start_s + 3600 * h, count, total)
        for h, (count, total) in sorted(r.promises(extra).items())
    )
    return audit_record(range_id=RangeId(r.range_id), promised=promised)
