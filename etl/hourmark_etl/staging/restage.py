"""Replaces a staged file that is missing or damaged, from the offsets that the ledger has for it.

The new file gets a new name in the same folder. It replaces the old one only if every group has the
same row count and the same sum of low 64-bit ids as in the ledger. If Kafka no longer has the
records, DataLoss is raised with topics and offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pyarrow as pa

from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster, Partition
from hourmark_etl.errors import DataLoss, TopicReplaced
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.staged.set_aside import find_set_aside_offsets
from hourmark_etl.ledger.staged.staged_files import (
    LedgerFile,
    format_spans,
    read_ledger_file,
    replace_damaged_file,
)
from hourmark_etl.model import AUDIT, EventTotals, OffsetSpan
from hourmark_etl.staging.pieces import StagedChunk
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.planner import StagingSchemas, build_stage_plan, load_schemas
from hourmark_etl.staging.read import SpanReader
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage import Storage
from hourmark_etl.topics import CentralTopicNames

_LOG = logging.getLogger(__name__)


class Restager:
    """Replaces missing or damaged staged files by reading their records from Kafka again.

    A staged file contains records that were copied from Kafka. The records are processed in the
    driver process, which needs enough memory for the records of one staged file.

    Args:
        config: The configuration.
        database: The ledger (the ETL's state database), which stores the offset ranges and totals
            of each file.
        storage: Storage with the staged files.
    """

    def __init__(self, config: Config, database: Database, storage: Storage) -> None:
        self._config, self._database, self._storage = config, database, storage
        self._central = Cluster(config.kafka.central_cluster, "central")

    def restage(self, lease: Lease, path: str) -> str:
        """Create a staged file again from Kafka, and replace the unreadable file.

        A staged file contains records that were copied from Kafka. The rows of the new file must
        match the totals in the ledger (the ETL's state database). The unreadable file is then
        replaced in the ledger and deleted.

        Args:
            lease: Lease that gives this process the exclusive right to change the ledger.
            path: Path of the missing or damaged file, relative to the storage root.

        Returns:
            Path of the new file, relative to the storage root.

        Raises:
            DataLoss: Kafka no longer has all of the records, or they differ from the ledger. The
                message contains the topics and offsets.
            Finding: The ledger does not list the file.
            StaleDriver: Another process has taken over the lease.
        """
        known = read_ledger_file(self._database, path)
        audits = CentralTopicNames.from_settings(self._config.kafka).audits
        spans = [s for s in known.file.spans if (s.topic in audits) == (known.file.kind == AUDIT)]
        try:
            self._refuse_lost(spans)
            piece = self._stage(known, spans, StagingSchemas({}, {}))
            if not _are_same(known.groups, _sums(piece, known.file.kind)):
                # A ledger that was rebuilt does not know what was set aside: it is found again.
                self._delete(piece)
                piece = self._stage(
                    known,
                    spans,
                    load_schemas(self._config, self._database, {s.topic for s in spans}),
                )
        except (DataLoss, TopicReplaced) as error:
            raise DataLoss(
                f"{path} cannot be staged again: {error}. It was staged from {format_spans(spans)}"
            ) from error
        if not _are_same(known.groups, sums := _sums(piece, known.file.kind)):
            self._delete(piece)
            raise DataLoss(
                f"{path} cannot be staged again: {_difference(known.groups, sums)}. It was "
                f"staged from {format_spans(spans)}"
            )
        (made,) = (f for f in piece.files if f.kind == known.file.kind)
        replace_damaged_file(self._database, lease, known, made.path, piece.groups)
        self._storage.delete(path)
        _LOG.warning(
            "%s was staged again as %s: %d rows, the same as before", path, made.path, made.rows
        )
        return made.path

    def _delete(self, piece: StagedChunk) -> None:
        for file in piece.files:
            self._storage.delete(file.path)

    def _stage(
        self, known: LedgerFile, spans: Sequence[OffsetSpan], schemas: StagingSchemas
    ) -> StagedChunk:
        # Without schemas, datums are not checked, as when an older version staged the file.
        kafka = self._config.kafka
        wanted = [ReadSpan(s, bytes_max=1 << 62) for s in spans]
        with SpanReader(kafka.central_cluster, kafka.max_message_bytes) as reader:
            pieces = [*reader.read(wanted, chunk_bytes=1 << 62)]
        _refuse_other_epochs(spans, [s for piece in pieces for s in piece.spans])
        tables = [piece.table for piece in pieces]
        if not tables:
            return StagedChunk()
        ledger, _ = self._database.identity()
        plan = build_stage_plan(
            self._config, known.folder, {s.topic for s in spans}, ledger, schemas
        )
        return stage_table(
            self._without_set_aside(pa.concat_tables(tables), spans), spans, plan, self._storage
        )

    def _without_set_aside(self, table: pa.Table, spans: Sequence[OffsetSpan]) -> pa.Table:
        if not (left_out := find_set_aside_offsets(self._database, spans)):
            return table
        columns = (
            table.column("topic").cast("string"),
            table.column("partition"),
            table.column("offset"),
        )
        keys = zip(*(column.to_pylist() for column in columns), strict=True)
        return table.filter(pa.array([key not in left_out for key in keys]))

    def _refuse_lost(self, spans: Sequence[OffsetSpan]) -> None:
        infos = self._central.topics(sorted({s.topic for s in spans}))
        for s in spans:
            if s.topic not in infos or infos[s.topic].topic_id != s.topic_id:
                raise TopicReplaced(
                    f"topic {s.topic} no longer has id {s.topic_id}, from which the file was "
                    "staged, so its records no longer exist"
                )
        ends = self._central.ends([Partition(s.topic, s.partition) for s in spans])
        for s in spans:
            if (end := ends[Partition(s.topic, s.partition)]) < s.end:
                raise DataLoss(
                    f"topic {s.topic} partition {s.partition} now ends at offset {end}: it lost "
                    "records"
                )


def _refuse_other_epochs(before: Sequence[OffsetSpan], now: Sequence[OffsetSpan]) -> None:
    found = {(s.topic, s.partition, s.start): s for s in now}
    for s in before:
        again = found.get((s.topic, s.partition, s.start))
        if s.leader_epoch is None or again is None or again.leader_epoch is None:
            continue
        if (again.leader_epoch, again.epoch_next) != (s.leader_epoch, s.epoch_next):
            raise DataLoss(
                f"topic {s.topic} partition {s.partition}: the last record before offset "
                f"{s.epoch_next} had leader epoch {s.leader_epoch}, but now the last one before "
                f"{again.epoch_next} has {again.leader_epoch}: the log lost records"
            )


def _sums(piece: StagedChunk, kind: str) -> dict[tuple[str, int], EventTotals]:
    groups = piece.audit_groups if kind == AUDIT else piece.groups
    return {
        (g.event_type, g.hour_s): EventTotals(
            g.rows,
            digest=g.low64_sum,
            values=g.value_sum or 0,
            unchecked=g.rows if g.value_sum is None else 0,
        )
        for g in groups
    }


def _are_same(
    before: Mapping[tuple[str, int], EventTotals], now: Mapping[tuple[str, int], EventTotals]
) -> bool:
    return before.keys() == now.keys() and all(
        not _differ(of, now[key]) for key, of in before.items()
    )


def _differ(had: EventTotals, has: EventTotals) -> str:
    if (had.records, had.digest) != (has.records, has.digest):
        return ", but different ones" if had.records == has.records else ", but a different number"
    if not had.unchecked and not has.unchecked and had.values != has.values:
        return ", with the same ids but different values"
    return ""


def _difference(
    before: Mapping[tuple[str, int], EventTotals], now: Mapping[tuple[str, int], EventTotals]
) -> str:
    event_type, hour_s = min(
        key
        for key in before.keys() | now.keys()
        if _differ(before.get(key, EventTotals()), now.get(key, EventTotals()))
    )
    had, has = (sums.get((event_type, hour_s), EventTotals()) for sums in (before, now))
    return (
        f"Kafka has {has.records} records of {event_type} in the hour from Unix second {hour_s}, "
        f"but the ledger has {had.records}"
    ) + (_differ(had, has) if had.records == has.records else "")
