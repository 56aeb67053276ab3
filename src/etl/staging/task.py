"""In a Spark task: Kafka rows of any number of topics → one staged Parquet file of events, sorted by (type, hour).

Promises of audit records go to a second file, host reports back to the driver: both are few. Names are never reused, so a task
that is tried again leaves an orphan that no ledger names, and harms nothing.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from etl.errors import EtlStop
from etl.ledger.rows import AUDIT, EVENTS, to_signed, to_unsigned
from etl.staging.columns import BadRecord, key_columns, lengths, schema_ids
from etl.storage import Storage, open_storage
from hourmark.audit import AuditRecord
from hourmark.avro import unframe
from hourmark.config import Storage as StorageSettings

# Columns of the Kafka source that a task reads.
INPUT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset")
# One row a piece: what was staged, as JSON (see `Staged`).
OUTPUT_SCHEMA: Final = "staged string"

EVENT_SCHEMA: Final = pa.schema(
    [
        ("type", pa.dictionary(pa.int32(), pa.string())),
        ("hour", pa.int64()),
        ("event_id", pa.binary(16)),
        ("tail", pa.int64()),
        ("range_id", pa.binary(8)),
        ("schema_id", pa.int32()),
        ("value", pa.binary()),  # framed: the datum begins at byte 5, and is copied without decoding
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
AUDIT_SCHEMA: Final = pa.schema(
    [
        ("type", pa.string()),
        ("hour", pa.int64()),
        ("range_id", pa.binary(8)),
        ("count", pa.int64()),
        ("sum", pa.int64()),
        ("offset", pa.int64()),
        ("origin", pa.string()),  # for people: host, path and bytes of the range
    ]
)
_ROWS_IN_GROUP: Final = 65_536
PIECE_BYTES: Final = 256 << 20  # what a task holds at once, several times over; far below the 2 GiB of an Arrow column


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """What a task must know; travels to the executors."""

    storage: StorageSettings
    folder: str  # of this batch, relative to the storage root
    bucket_seconds: int
    types: Mapping[str, str]  # central topic → type
    audit_topic: str
    hosts_topic: str


def stage_task(batches: Iterable[pa.RecordBatch], plan: StagePlan) -> Iterator[pa.RecordBatch]:
    """Stage all rows of the task, a piece of bounded size at a time; yields one row a piece, none where there are no rows.

    EtlStop, naming topic, partition and offset, for a record that only the delivery service may write, and did not.
    """
    storage = open_storage(plan.storage)
    for piece in _pieces(batches):
        yield pa.RecordBatch.from_pydict({"staged": [json.dumps(_stage_piece(piece, plan, storage))]})


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about `PIECE_BYTES`; a task of quiet or aborted partitions is given no batch at all."""
    taken: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        taken.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            yield pa.Table.from_batches(taken)
            taken, size = [], 0
    if any(b.num_rows for b in taken):
        yield pa.Table.from_batches(taken)


def _stage_piece(table: pa.Table, plan: StagePlan, storage: Storage) -> dict[str, Any]:
    topics = table.column("topic").combine_chunks().dictionary_encode()
    if isinstance(topics, pa.ChunkedArray):
        topics = topics.combine_chunks()
    kinds = np.array([_kind(t, plan) for t in topics.dictionary.to_pylist()])
    row_kinds = kinds[topics.indices.to_numpy()]
    staged: dict[str, Any] = {"files": [], "groups": [], "audit_groups": [], "reports": []}
    if (row_kinds == "event").any():
        _stage_events(table.filter(pa.array(row_kinds == "event")), plan, storage, staged)
    if (row_kinds == "audit").any():
        _stage_audits(table.filter(pa.array(row_kinds == "audit")), plan, storage, staged)
    staged["reports"] = _reports(table.filter(pa.array(row_kinds == "report")))
    return staged


def _kind(topic: str, plan: StagePlan) -> str:
    if topic == plan.audit_topic:
        return "audit"
    if topic == plan.hosts_topic:
        return "report"
    assert topic in plan.types, f"{topic} was not subscribed to"
    return "event"


def _stage_events(table: pa.Table, plan: StagePlan, storage: Storage, staged: dict[str, Any]) -> None:
    events, sizes = _event_table(table, plan)
    type_codes = events.column("type").combine_chunks().indices.to_numpy()
    hours = events.column("hour").to_numpy()
    time_and_hash = events.column("event_id").combine_chunks()
    words = np.frombuffer(time_and_hash.buffers()[1], ">u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0], hours, type_codes))
    events = events.take(pa.array(order))
    path = f"{plan.folder}/events-{uuid.uuid4().hex}.parquet"
    _write(storage, path, events)
    staged["files"].append([path, EVENTS, events.num_rows])
    event_ids = events.column("event_id").to_pylist()
    names = events.column("type").combine_chunks().dictionary.to_pylist()
    tails = events.column("tail").to_numpy()
    ids = events.column("schema_id").to_numpy()
    starts = _run_starts(type_codes[order], hours[order])
    counts = np.diff(np.append(starts, len(order)))
    for at, start in enumerate(starts):
        end = start + counts[at]
        staged["groups"].append(
            [
                path,
                names[type_codes[order[start]]],
                int(hours[order[start]]),
                int(counts[at]),
                int(sizes[order[start:end]].sum()),
                int(tails[start:end].view(np.uint64).sum(dtype=np.uint64)),
                np.unique(ids[start:end]).tolist(),
                int(start),
                event_ids[start].hex(),
                event_ids[end - 1].hex(),
            ]
        )


def _event_table(table: pa.Table, plan: StagePlan) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    keys, values = _one(table.column("key")), _one(table.column("value"))
    try:
        key, ids = key_columns(keys), schema_ids(values)
    except BadRecord as error:
        raise _not_ours(table, error) from error
    topics = _one(table.column("topic")).dictionary_encode()
    types = pa.DictionaryArray.from_arrays(
        topics.indices, pa.array([plan.types[t] for t in topics.dictionary.to_pylist()], pa.string())
    )
    seconds = key.time_ms // 1000
    columns = [
        types,
        pa.array(seconds - seconds % plan.bucket_seconds),
        key.event_id,
        pa.array(key.tail),
        key.range_id,
        pa.array(ids),
        values.cast(pa.binary()),
        topics,
        _one(table.column("partition")).cast(pa.int32()),
        _one(table.column("offset")),
    ]
    return pa.table(columns, schema=EVENT_SCHEMA), lengths(values)


def _stage_audits(table: pa.Table, plan: StagePlan, storage: Storage, staged: dict[str, Any]) -> None:
    rows: list[tuple[str, int, bytes, int, int, int, str]] = []
    for value, offset in zip(table.column("value").to_pylist(), table.column("offset").to_pylist(), strict=True):
        record = AuditRecord.decode(unframe(value)[1])
        origin = (
            f"{record.kind} of {record.host_name}: {record.path} [{record.start}, {record.end}) generation {record.generation}"
        )
        for p in record.promised:
            rows.append((p.event_type, p.hour_start_s, bytes(record.range_id), p.count, to_signed(p.sum), offset, origin))
    if not rows:
        return
    rows.sort()
    path = f"{plan.folder}/audit-{uuid.uuid4().hex}.parquet"
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), AUDIT_SCHEMA, strict=True)]
    _write(storage, path, pa.table(columns, schema=AUDIT_SCHEMA))
    staged["files"].append([path, AUDIT, len(rows)])
    groups: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for event_type, hour, _, count, tail_sum, offset, _ in rows:
        groups.setdefault((event_type, hour), []).append((offset, count, tail_sum))
    for (event_type, hour), found in groups.items():
        offsets, counts, sums = zip(*found, strict=True)
        staged["audit_groups"].append(
            [path, event_type, hour, len(found), min(offsets), max(offsets), sum(counts), to_unsigned(sum(sums))]
        )


def _reports(table: pa.Table) -> list[tuple[int, int, str]]:
    values = (unframe(value)[1].hex() for value in table.column("value").to_pylist())
    return list(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), values, strict=True))


def _write(storage: Storage, path: str, table: pa.Table) -> None:
    plain = [name for name in table.column_names if name in ("type", "topic", "schema_id", "range_id", "hour", "origin")]
    with storage.create(path) as file:
        pq.write_table(table, file, compression="zstd", compression_level=1, use_dictionary=plain, row_group_size=_ROWS_IN_GROUP)


def _run_starts(*columns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where, in sorted columns, a new combination of values begins."""
    changed = np.zeros(len(columns[0]), bool)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _not_ours(table: pa.Table, error: BadRecord) -> EtlStop:
    topic, partition, offset = (table.column(name)[error.row].as_py() for name in ("topic", "partition", "offset"))
    return EtlStop(
        f"topic {topic} partition {partition} offset {offset}: {error}; only the delivery service may write to this topic. "
        "Find who wrote it; nothing was staged past the ledger's offsets"
    )
