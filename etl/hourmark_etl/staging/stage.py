"""A Spark task that reads its spans from Kafka, stages them and returns only metadata.

Rows of any number of topics become one staged file of events (see `files`), without a loop over
events. Promises from audit records are written to a second file per site, and host reports are
returned to the driver; both are few. File names are never reused, so a repeated task leaves a
harmless file that the ledger does not name.

An event record that cannot be staged is set aside alone (see `records`). On a control topic, it is
unknown what a bad record promised: its partition is staged up to the record and then waits, as if
it could not be read, while all others continue.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark.avro.framing import FRAMING_SIZE, unframe
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Partition
from hourmark.records.audit import AuditRecord, Promise
from hourmark.records.host_reports import HostReport
from hourmark_etl.arrow import (
    Bools,
    distinct_schemas_by_run,
    find_run_starts,
    fixed_size_binary_array,
    hour_starts_s,
    to_single_array,
    value_hashes,
    value_lengths,
)
from hourmark_etl.errors import BadRecord
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    RANGE_WEIGHT,
    AuditGroup,
    ExcludedRecords,
    OffsetSpan,
    StagedGroup,
    replace_nul,
    to_signed,
    to_unsigned,
)
from hourmark_etl.staging.files import AUDIT_SCHEMA, EVENT_SCHEMA, write_rows
from hourmark_etl.staging.pieces import ReportRecord, StagedChunk, StagedNote, StagePlan
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.read import RecordChunk, SpanReader, UnreadablePartition
from hourmark_etl.staging.records import CheckedRecords, check_records
from hourmark_etl.storage import Storage

# Columns of the table that is staged: key and value binary, topic string or dictionary, partition
# int32, offset int64.
_END: Final = (1 << 31) - 1  # of any datum; without it, binary_slice of pyarrow 26 overflows
_T = TypeVar("_T")
PromiseRow = tuple[
    str, int, bytes, int, int, int, str, int, bytes, int | None, bytes | None
]  # of AUDIT_SCHEMA
_OBSERVED_AT: Final = 7
_TIME_S_MAX: Final = 253_402_300_800  # the year 10000
_COUNT_MAX: Final = 1 << 40  # a range has its events in memory


def stage_table(
    table: pa.Table, spans: Sequence[OffsetSpan], plan: StagePlan, storage: Storage
) -> StagedChunk:
    """Write all records of several Kafka offset ranges to Parquet files on storage (staged files).

    Malformed event records are not written; they are returned separately.

    Args:
        table: All records in `spans`, with the columns key, value, topic, partition and offset. The
            topics must be topics of the plan. The keys and the values may have up to 2 GiB each.
        spans: Offset ranges of the records.
        plan: Settings of the batch.
        storage: Storage to write to.

    Returns:
        Descriptions of the written files, host reports and malformed event records. The caller must
        commit them to the ledger (the ETL's state database).

    Raises:
        BadRecord: A record on a control topic (audit records, host reports) is malformed. No file
            was written.
        StorageError: A file could not be written.
    """
    topics = to_single_array(table.column("topic").unify_dictionaries()).dictionary_encode()
    names: list[str] = topics.dictionary.to_pylist()
    topic_codes = topics.indices.to_numpy()
    kinds = np.array([_kind(t, plan) for t in names])[topic_codes] if len(table) else np.array([])
    reports = _reports(_chosen(table, kinds == "report"))
    audits = {
        t: _audit_rows(_chosen(table, topic_codes == code), plan.bucket_seconds)
        for code, t in enumerate(names)
        if t in plan.audits
    }
    files: list[StagedNote] = []

    def write(kind: str, table: pa.Table, topics: Collection[str], **held: Any) -> None:
        spans_held = tuple(s for s in spans if s.topic in topics)
        note = StagedNote(ledger=plan.ledger, kind=kind, rows=len(table), spans=spans_held, **held)
        files.append(write_rows(storage, f"{plan.folder}/{kind}-{uuid.uuid4().hex}", table, note))

    set_aside: tuple[ExcludedRecords, ...] = ()
    if len(events := _chosen(table, kinds == "event")):
        types = [plan.types.get(t, "") for t in names]
        checked = check_records(events, types, topic_codes[kinds == "event"], spans, plan)
        set_aside = checked.set_aside
        if len(checked.table):
            in_file, groups = _sorted_events(checked, types, plan)
            write(EVENTS, in_file, plan.types, groups=groups)
    for topic, rows in audits.items():
        if not rows:
            continue
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), AUDIT_SCHEMA, strict=True)
        ]
        observed_ms = [row[_OBSERVED_AT] for row in rows]
        span_ms = (min(observed_ms), max(observed_ms))
        promises = pa.table(columns, schema=AUDIT_SCHEMA)
        write(
            AUDIT,
            promises,
            {topic},
            audit_groups=_audit_groups(rows, plan.audits[topic]),
            observed_ms=span_ms,
        )
    return StagedChunk(tuple(files), reports, set_aside)


def _kind(topic: str, plan: StagePlan) -> str:
    if topic in plan.audits:
        return "audit"
    if topic in plan.hosts:
        return "report"
    assert topic in plan.types, f"{topic} was not subscribed to"
    return "event"


def _chosen(table: pa.Table, mask: Bools) -> pa.Table:
    if mask.all():
        return table
    return table.filter(pa.array(mask)) if mask.any() else table.slice(0, 0)


def _sorted_events(
    checked: CheckedRecords, types: list[str], plan: StagePlan
) -> tuple[pa.Table, tuple[StagedGroup, ...]]:
    table, codes, key, schemas, _ = checked
    ranked = sorted(
        set(types)
    )  # in the file types stand by name, so that neighbours of a unit are neighbours in every file
    ranks = np.array([ranked.index(t) for t in types], np.int32)[codes]
    values = to_single_array(table.column("value"))
    hashes = value_hashes(key.low64, schemas, values, FRAMING_SIZE)
    order = np.lexsort((key.low64, key.head, ranks))  # an hour is the beginning of the head
    hashes = hashes[order]
    ranks, schemas, hours = (
        ranks[order],
        schemas[order],
        hour_starts_s(key.head[order], plan.bucket_seconds),
    )
    chosen = pa.array(order)
    ids = fixed_size_binary_array(key.matrix[order, :16])
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(ranks), pa.array(ranked, "string")),
        pa.array(hours),
        ids,
        fixed_size_binary_array(key.matrix[order, 16:]),
        pa.array(schemas),
        pc.binary_slice(values, FRAMING_SIZE, _END).cast("binary").take(chosen),
        to_single_array(table.column("partition")).cast("int32").take(chosen),
        to_single_array(table.column("offset")).take(chosen),
        pa.array(hashes),
    ]
    starts = find_run_starts(ranks, hours)
    ends = np.append(starts[1:], len(order))
    sizes = np.add.reduceat(value_lengths(values)[order] - FRAMING_SIZE, starts)
    # Digests wrap at 64 bits, as they must.
    low64_sums = np.add.reduceat((key.low64 + key.ranges * np.uint64(RANGE_WEIGHT))[order], starts)
    value_sums = np.add.reduceat(hashes, starts)
    groups = tuple(
        StagedGroup(
            path="",
            event_type=ranked[ranks[start]],
            hour_s=int(hours[start]),
            rows=end - start,
            datum_bytes=size,
            low64_sum=low64_sum,
            schema_ids=of_group,
            first_row=start,
            first_id=ids[start].as_py(),
            last_id=ids[end - 1].as_py(),
            value_sum=value_sum,
        )
        for start, end, size, low64_sum, value_sum, of_group in zip(
            *(column.tolist() for column in (starts, ends, sizes, low64_sums, value_sums)),
            distinct_schemas_by_run(ends - starts, schemas),
            strict=True,
        )
    )
    return pa.table(columns, schema=EVENT_SCHEMA), groups


def _audit_rows(table: pa.Table, bucket_seconds: int) -> list[PromiseRow]:
    records = _decoded(table, lambda value: AuditRecord.decode(unframe(value)[1]))
    rows = []
    for at, (record, offset) in enumerate(
        zip(records, table.column("offset").to_pylist(), strict=True)
    ):
        if strange := next(
            (p for p in record.promised if not _is_possible(p, bucket_seconds)), None
        ):
            raise _bad(
                table,
                at,
                f"no range has {strange.count} events of {strange.event_type!r}, hour "
                f"{strange.hour_start_s}",
            )
        host_name, path = replace_nul(record.host_name), replace_nul(record.path)
        origin = (
            f"{record.kind} of {host_name}: {path} [{record.start}, {record.end}) generation "
            f"{record.generation}"
        )
        own = (offset, origin, record.observed_at_ms, compute_promises_digest(record))
        values = compute_checksums_digest(record)
        for p in record.promised:
            named = (
                p.event_type,
                p.hour_start_s,
                bytes(record.range_id),
                p.count,
                to_signed(p.sum),
            )
            rows.append((*named, *own, p.checksum, values))
    return sorted(rows, key=lambda row: row[:_OBSERVED_AT])


def _is_possible(promised: Promise, bucket_seconds: int) -> bool:
    if "\0" in promised.event_type:
        return False
    is_hour = (
        0 <= promised.hour_start_s < _TIME_S_MAX and promised.hour_start_s % bucket_seconds == 0
    )
    return is_hour and promised.count < _COUNT_MAX


def compute_promises_digest(record: AuditRecord) -> bytes:
    """Compute a digest of the event ids and counts that an audit record states.

    An audit record states how many events of each type and hour a delivery service has written for
    a byte range of a log file. If two audit records of the same byte range have different digests,
    they contradict each other. The algorithm must never change, because new digests are compared
    with digests in old files on storage.

    Args:
        record: The audit record.

    Returns:
        8 bytes.
    """
    text = "\n".join(
        [
            record.ids.hex(),
            *(
                f"{p.event_type} {p.hour_start_s} {p.count} {p.sum}"
                for p in sorted(record.promised)
            ),
        ]
    )
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def compute_checksums_digest(record: AuditRecord) -> bytes | None:
    """Compute a digest of the checksums that an audit record states.

    An audit record may state, for each event type and hour, a checksum of the Kafka record values
    of its events. If two audit records describe the same events, their digests are equal.

    Args:
        record: The audit record.

    Returns:
        8 bytes; None if the record contains no checksums.
    """
    checksums = [
        f"{p.event_type} {p.hour_start_s} {p.checksum}"
        for p in sorted(record.promised)
        if p.checksum is not None
    ]
    return (
        hashlib.blake2b("\n".join(checksums).encode(), digest_size=8).digest()
        if checksums
        else None
    )


def _audit_groups(rows: list[PromiseRow], site: str) -> tuple[AuditGroup, ...]:
    groups = []
    for (event_type, hour), found in itertools.groupby(rows, lambda row: row[:2]):
        _, _, ranges, counts, totals, offsets, _, _, _, checksums, _ = zip(*found, strict=True)
        digests = (
            t + RANGE_WEIGHT * int.from_bytes(r, "big") * c
            for t, r, c in zip(totals, ranges, counts, strict=True)
        )
        groups.append(
            AuditGroup(
                path="",
                event_type=event_type,
                hour_s=hour,
                rows=len(counts),
                first_offset=min(offsets),
                last_offset=max(offsets),
                promised=sum(counts),
                low64_sum=to_unsigned(sum(digests)),
                site=site,
                value_sum=to_unsigned(sum(c for c in checksums if c is not None)),
                unchecked=sum(n for n, c in zip(counts, checksums, strict=True) if c is None),
            )
        )
    return tuple(groups)


def _reports(table: pa.Table) -> tuple[ReportRecord, ...]:
    # Decoded here to drop repeated reports, with their offsets: the driver no longer has those.
    places = zip(
        table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
    )
    decoded = zip(places, _decoded(table, _report), strict=True)
    return drop_repeated_reports(
        (ReportRecord(*place, datum), report) for place, (datum, report) in decoded
    )


@dataclasses.dataclass(slots=True)
class _Run:
    # Consecutive reports of one host that report the same losses of data. `report` is the decoded
    # content of `last`.
    first: ReportRecord
    last: ReportRecord
    report: HostReport

    def continues_with(self, report: HostReport) -> bool:
        before = self.report
        follows = before.incarnation == report.incarnation and before.sequence < report.sequence
        is_later = (
            before.received_at_ms <= report.received_at_ms
        )  # else one of several may be overtaken, and the other not
        return follows and is_later and _losses(before) == _losses(report)


def drop_repeated_reports(
    reports: Iterable[tuple[ReportRecord, HostReport]],
) -> tuple[ReportRecord, ...]:
    """Drop host reports that contain no new information for the ledger (the ETL's state database).

    A host report states how far each log source has been delivered and how much data was lost. The
    ledger only stores the last report of a host and the increase of its losses. If consecutive
    reports of a process state the same losses, only the first and the last of them are returned.

    Args:
        reports: Records with their decoded reports, in the order of offsets. All reports of a host
            are in the same partition.

    Returns:
        The remaining records in the order of partition and offset.
    """
    runs: list[_Run] = []
    latest: dict[str, _Run] = {}  # of each host
    for record, report in reports:
        run = latest.get(report.host_id)
        if run is not None and run.continues_with(report):
            run.last, run.report = record, report
        else:
            latest[report.host_id] = _Run(record, record, report)
            runs.append(latest[report.host_id])
    return tuple(sorted({record for run in runs for record in (run.first, run.last)}))


def _losses(report: HostReport) -> list[tuple[str, int, int]]:
    return sorted((s.source, s.lost_bytes, s.unknown_losses) for s in report.sources)


def _report(value: bytes) -> tuple[bytes, HostReport]:
    datum = unframe(value)[1]
    return datum, HostReport.decode(datum)


def _decoded(table: pa.Table, decode: Callable[[bytes], _T]) -> list[_T]:
    decoded = []
    for row, value in enumerate(table.column("value").to_pylist()):
        try:
            decoded.append(decode(value))
        except (ValueError, TypeError) as error:
            raise _bad(table, row, str(error)) from error
    return decoded


def _bad(table: pa.Table, row: int, why: str) -> BadRecord:
    topic, partition, offset = (
        table.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return BadRecord(topic, partition, offset, why)


class TaskResult(NamedTuple):
    """Result of copying one chunk of Kafka records to storage in a Spark task.

    Attributes:
        piece: The written files, the host reports, and the malformed records, which were not
            written.
        spans: Offset ranges that were copied.
        unread: Partitions that could not be read completely. Empty except in the last result of a
            task.
    """

    piece: StagedChunk
    spans: tuple[OffsetSpan, ...]
    unread: tuple[UnreadablePartition, ...] = ()


def read_and_stage(
    spans: Sequence[ReadSpan],
    plan: StagePlan,
    storage: Storage,
    cluster: KafkaCluster,
    max_message_bytes: int,
) -> Iterator[TaskResult]:
    """Read all records of a Spark task from Kafka and write them to staged files on storage.

    If a partition cannot be read, the others are still copied. The last result lists all partitions
    that could not be read.

    Args:
        spans: Offset ranges of the task.
        plan: Settings of the batch.
        storage: Storage to write to.
        cluster: Settings of the central cluster.
        max_message_bytes: Maximum size of a Kafka message in bytes.

    Yields:
        The result of each chunk of records.

    Raises:
        DataLoss: The log no longer has some of the offsets.
        Unavailable: Kafka or the storage cannot be reached.
    """
    unread: list[UnreadablePartition] = []
    with SpanReader(cluster, max_message_bytes) as reader:
        yield from stage_chunks(reader.read(spans, unread=unread), plan, storage, unread)


def stage_chunks(
    chunks: Iterable[RecordChunk],
    plan: StagePlan,
    storage: Storage,
    unread: list[UnreadablePartition],
) -> Iterator[TaskResult]:
    """Write chunks of Kafka records to files on storage (staged files), one after the other.

    A partition of a control topic (audit records, host reports) is copied up to its first malformed
    record.

    Args:
        chunks: Chunks to stage. The chunks of each partition must be in the order of offsets.
        plan: Settings of the batch.
        storage: Storage to write to.
        unread: Partitions that could not be read. The reader may add entries while chunks are
            consumed.

    Yields:
        The result of each chunk. If any partition could not be read or staged completely, the last
        result lists these partitions and contains no files.

    Raises:
        StorageError: A file could not be written.
    """
    bad: list[BadRecord] = []
    for chunk in chunks:
        left = _before(chunk, bad)
        while left.spans:
            try:
                yield TaskResult(stage_table(left.table, left.spans, plan, storage), left.spans)
                break
            except BadRecord as error:
                bad.append(error)
                left = _before(left, [error])
    first: dict[tuple[str, int], UnreadablePartition] = {}
    for of in (
        *unread,
        *(UnreadablePartition(of.topic, of.partition, of.offset, str(of)) for of in bad),
    ):
        known = first.setdefault((of.topic, of.partition), of)
        if of.offset < known.offset:
            first[of.topic, of.partition] = of
    if first:
        yield TaskResult(StagedChunk(), (), unread=tuple(first.values()))


def _before(chunk: RecordChunk, bad: Collection[BadRecord]) -> RecordChunk:
    table, spans, one_epoch = chunk
    for of in bad:
        at_topic = pc.equal(table.column("topic").cast("string"), of.topic)
        here = pc.and_(at_topic, pc.equal(table.column("partition"), of.partition))
        behind = pc.greater_equal(table.column("offset"), of.offset)
        last = pc.max(table.column("offset").filter(pc.and_(here, pc.invert(behind)))).as_py()
        table = table.filter(pc.invert(pc.and_(here, behind)))
        at = Partition(of.topic, of.partition)
        spans = tuple(
            _until(s, of.offset, last, at in one_epoch)
            if Partition(s.topic, s.partition) == at
            else s
            for s in spans
        )
    return RecordChunk(table, tuple(s for s in spans if s.end > s.start), one_epoch)


def _until(span: OffsetSpan, end: int, last: int | None, is_of_one_epoch: bool) -> OffsetSpan:
    # If leaders changed within the span, the leader that wrote its last record is unknown.
    if span.end <= end:
        return span
    epoch = span.leader_epoch if last is not None and is_of_one_epoch else None
    epoch_next = None if last is None else last + 1
    return dataclasses.replace(
        span, end=max(end, span.start), leader_epoch=epoch, epoch_next=epoch_next
    )


def find_first_valid_offset(table: pa.Table, plan: StagePlan) -> int | None:
    """Return the offset of the first well-formed record of a control topic.

    Control topics contain audit records or host reports.

    Args:
        table: Records of one partition of a control topic, in ascending order of offsets, with the
            columns key, value, topic, partition and offset.
        plan: Settings with the names of audit topics and the length of a bucket.

    Returns:
        The offset; None if all records are malformed or the table is empty.
    """
    for row in range(len(table)):
        one = table.slice(row, 1)
        try:
            if one.column("topic")[0].as_py() in plan.audits:
                _audit_rows(one, plan.bucket_seconds)
            else:
                _reports(one)
        except BadRecord:
            continue
        return int(one.column("offset")[0].as_py())
    return None
