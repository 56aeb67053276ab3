"""The real restager on a played central cluster, whose retention may have passed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from etl.closing.engine import LocalEngine
from etl.errors import DataLoss
from etl.ledger.rows import Span
from etl.staging.pieces import StagedPiece
from etl.staging.restaging import Restager
from etl.staging.task import stage_table
from hourmark.kafka import Partition
from hourmark.topics import central_topic
from tests.property.sites import ALIAS
from tests.property.world import World


class PlayedRestager(Restager):
    """Only reading Kafka is played."""

    def __init__(self, world: World) -> None:
        self._config, self._database, self._storage = world.config, world.database, world.storage
        self._pipeline, self._logs = world.pipeline, world.pipeline.central.logs
        self.made: list[str] = []

    def _refuse_other_topics(self, spans: Sequence[Span]) -> None:
        pass

    def _stage(self, folder: str, spans: Sequence[Span]) -> StagedPiece:
        for s in spans:
            if s.start < self._logs[Partition(s.topic, s.partition)].start:
                raise DataLoss(f"topic {s.topic} partition {s.partition}: offset {s.start} is to be staged, and it is gone")
        rows = [
            (record.key, record.value, s.topic, s.partition, offset)
            for s in spans
            for offset in range(s.start, s.end)
            if (record := self._logs[Partition(s.topic, s.partition)].records[offset]) is not None
        ]
        plan = self._pipeline.plan(folder)
        kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64())
        columns = [pa.array(c, k) for c, k in zip(list(zip(*rows, strict=True)) or [()] * 5, kinds, strict=True)]
        table = pa.table(columns, names=["key", "value", "topic", "partition", "offset"])
        piece = stage_table(table, spans, plan, self._storage)
        self.made += [f.path for f in piece.files]
        return piece


def play_restager(world: World) -> PlayedRestager:
    """A new closer stages files again by it, and reads none but for its own sake."""
    restager = PlayedRestager(world)
    world.pipeline.restage = restager.restage  # type: ignore[method-assign]
    world.engine = lambda database: LocalEngine(world.storage, database, world.config)  # type: ignore[method-assign]
    world.start_closer()
    return restager


def retention_passes(world: World, *topics: str) -> None:
    """The central cluster holds nothing any more of what these topics (edge names) had until now."""
    for p, log in world.pipeline.central.logs.items():
        if p.topic in [central_topic(t, ALIAS) for t in topics]:
            log.start = len(log.records)
