"""In a Spark task: reads its spans from Kafka and stages them; only what was staged goes to the driver.

A record that cannot be staged ends its partition's part of the batch just before it; all else goes on. The driver then sets its
type aside. On the control topics, which are no types, it stops the driver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.errors import BadRecord, EtlStop
from etl.ledger.rows import Span
from etl.staging.pieces import StagedPiece, StagePlan
from etl.staging.planner import ReadSpan
from etl.staging.reading import Piece, SpanReader
from etl.staging.task import stage_table
from etl.storage import Storage, open_storage
from hourmark.config import KafkaCluster
from hourmark.kafka import Partition


@dataclasses.dataclass(frozen=True, slots=True)
class Bad:
    """A record that cannot be staged."""

    topic: str
    partition: int
    offset: int
    why: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a task did with one piece: `piece` holds all records of `spans`; `bad` are records right after the end of a span."""

    piece: StagedPiece
    spans: tuple[Span, ...]
    bad: tuple[Bad, ...] = ()


class Reader(Protocol):
    """What reads spans: `SpanReader`, or a test's."""

    def read(self, spans: Sequence[ReadSpan]) -> Iterator[Piece]:
        """Pieces, each partition's in order."""
        ...


def read_and_stage(spans: Sequence[ReadSpan], plan: StagePlan, cluster: KafkaCluster, max_message_bytes: int) -> Iterator[Answer]:
    """Read and stage all of a task's spans. Errors as `SpanReader.read`; EtlStop for a bad record on a control topic."""
    with SpanReader(cluster, max_message_bytes) as reader:
        yield from stage_pieces(reader, spans, plan, open_storage(plan.storage))


def stage_pieces(reader: Reader, spans: Sequence[ReadSpan], plan: StagePlan, storage: Storage) -> Iterator[Answer]:
    """Stage what the reader gives, piece by piece; nothing of a partition at or after its first bad record."""
    known: dict[Partition, Bad] = {}
    for piece in reader.read(spans):
        table, found = piece.table, piece.spans
        for bad in known.values():
            table, found = _before(table, found, bad)
        news = []
        while True:
            try:
                staged = stage_table(table, found, plan, storage)
                break
            except BadRecord as error:
                if error.topic not in plan.types:
                    raise EtlStop(str(error)) from error
                bad = Bad(error.topic, error.partition, error.offset, error.why)
                known[Partition(bad.topic, bad.partition)] = bad
                news.append(bad)
                table, found = _before(table, found, bad)
        yield Answer(staged, found, tuple(news))


def _before(table: pa.Table, spans: Sequence[Span], bad: Bad) -> tuple[pa.Table, tuple[Span, ...]]:
    """Rows and spans without what lies at or after the bad record in its partition."""
    topic = table.column("topic").cast(pa.string())
    number, offset = np.asarray(table.column("partition")), np.asarray(table.column("offset"))
    hit = np.asarray(pc.equal(topic, bad.topic)) & (number == bad.partition) & (offset >= bad.offset)
    cut = (
        dataclasses.replace(s, end=min(s.end, bad.offset)) if (s.topic, s.partition) == (bad.topic, bad.partition) else s
        for s in spans
    )
    return table.filter(pa.array(~hit)), tuple(s for s in cut if s.end > s.start)
