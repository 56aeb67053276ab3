"""Creates the manifest of a bucket, and names its files. Pure functions."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from hourmark.records.hours import Hour
from hourmark.records.manifest import (
    PARQUET_FOLDER,
    BucketEvidence,
    BucketFile,
    BucketOffset,
    Grade,
    HourTotals,
    Manifest,
    MissingRanges,
    ParquetFile,
    PreviousMarker,
    SetAsideRecords,
)
from hourmark.records.self_digest import software_name
from hourmark_etl.closing.write.containers import WrittenFile, WrittenHour
from hourmark_etl.closing.write.parquet_files import WrittenParquet
from hourmark_etl.model import ExcludedRecords, Frontier, OriginHourTotals, Seal, StagedGroup

_SET_ASIDE_MAX: Final = 50  # entries of `Manifest.set_aside_records`


def build_manifest(
    frontier: Frontier,
    written_hour: WrittenHour,
    *,
    listed: Collection[StagedGroup],
    set_aside: Collection[ExcludedRecords] = (),
    fingerprints: Mapping[int, str],
    previous: PreviousMarker | None,
    ledger: tuple[str, int],
    attempt: str,
    now_ms: int,
    unverified: Collection[str] = (),
) -> Manifest:
    """Create the manifest of a bucket, which is the content of its `_SUCCESS` file.

    Args:
        frontier: Event type and hour of the bucket, which must be sealed (its content is fixed).
        written_hour: The files that were written for the bucket.
        listed: The staged rows of the bucket, grouped by staged file, event type and hour.
        set_aside: Malformed records of the bucket that could not be staged.
        fingerprints: Schema fingerprints by schema id, for all schemas of the files.
        previous: Hour and digest of the previous bucket's `_SUCCESS` file; None for the first
            bucket of the type.
        ledger: Id (UUID) and commit number of the ledger, the state database of the ETL.
        attempt: Id of the publishing attempt.
        now_ms: Time of closing in Unix milliseconds.
        unverified: Further readable descriptions of checks that an operator's override skipped.

    Returns:
        The manifest, which includes its own digest.
    """
    seal, hour = frontier.seal, frontier.hour
    assert seal is not None, "only a sealed hour is written"
    files = name_files(written_hour.files)
    late = Counter[str]()
    for _, w in files:
        for start_s, rows in w.hours.items() if w.late else ():
            late[str(Hour(start_s, hour.length_s))] += rows.events
    return Manifest(
        type=frontier.event_type,
        hour=str(hour),
        bucket_seconds=hour.length_s,
        previous=previous,
        grade=Grade(seal.grade),
        evidence=BucketEvidence(
            method=seal.method,
            cut_at_ms=seal.cut_at_ms,
            audit_records=seal.audit_records,
            promised=seal.promised,
            audit_next=seal.audit_next.to_marker_json(),
            waived=[
                *seal.waived,
                *_describe_left_out(written_hour),
                *(f"not verified: {what}" for what in (*written_hour.unverified, *unverified)),
            ],
        ),
        codec=_codec_field(files),
        files=[
            BucketFile(
                name=name,
                records=w.records,
                bytes=w.bytes,
                blake2b=w.blake2b,
                schema_id=w.schema_id,
                schema_fingerprint=fingerprints[w.schema_id],
            )
            for name, w in files
        ],
        events=sum(w.records for _, w in files),
        late=dict(sorted(late.items())),
        books=_books(seal, hour, listed, written_hour.files),
        duplicates_removed=sum(rows.events for rows in written_hour.duplicates.values()),
        unaudited=seal.unaudited,
        checked=seal.checked or 0,
        left_out=sum(rows.events for rows in written_hour.left_out.values()),
        set_aside=sum(len(of.offsets) for of in set_aside),
        set_aside_records=_set_aside(set_aside),
        lacks=_lacks(seal, written_hour),
        lost=dict(seal.lost),
        unknown=dict(seal.unknown),
        unrepeatable=list(seal.unrepeatable),
        parquet=[
            ParquetFile(
                name=name,
                rows_of=rows_of,
                records=w.records,
                bytes=w.bytes,
                blake2b=w.blake2b,
                origin_hour=str(Hour(w.hour_s, hour.length_s)),
            )
            for name, rows_of, w in name_parquet_files(written_hour.files)
        ],
        id_sum=f"{sum(w.id_sum for _, w in files) % (1 << 64):016x}",
        offsets=[
            BucketOffset(
                topic=p.topic, topic_id=p.topic_id, partition=p.partition, next=p.next_offset
            )
            for p in seal.offsets
        ],
        ledger=ledger[0],
        ledger_commit=ledger[1],
        attempt=attempt,
        closed_at_ms=now_ms,
        software=software_name(),
    ).with_own_digest()


def _describe_left_out(written: WrittenHour) -> list[str]:
    count = sum(rows.events for rows in written.left_out.values())
    return (
        [f"left out: {count} rows that cannot be written, such as {'; '.join(written.faults)}"]
        if count
        else []
    )


def _codec_field(files: Sequence[tuple[str, WrittenFile]]) -> Literal["deflate"] | None:
    # Version 0.3.0 knows no such field, so markers of buckets that it can read do not have it.
    codecs = {w.codec for _, w in files}
    assert len(codecs) <= 1, "all files of a bucket are written with one codec"
    return "deflate" if "deflate" in codecs else None


def _lacks(seal: Seal, written: WrittenHour) -> MissingRanges | None:
    if seal.lacks is None:
        return None
    return MissingRanges(
        ranges=list(seal.lacks.ranges), more=seal.lacks.more or bool(written.left_out)
    )


def _set_aside(found: Collection[ExcludedRecords]) -> list[SetAsideRecords]:
    offsets = defaultdict[tuple[str, int, str], list[int]](list)
    for of in found:
        offsets[of.topic, of.partition, of.reason] += of.offsets
    most = sorted(offsets.items(), key=lambda item: (-len(item[1]), item[0]))[:_SET_ASIDE_MAX]
    return [
        SetAsideRecords(
            topic=topic,
            partition=partition,
            reason=reason,
            records=len(of),
            first_offset=min(of),
            last_offset=max(of),
        )
        for (topic, partition, reason), of in most
    ]


def _books(
    seal: Seal, hour: Hour, listed: Collection[StagedGroup], written: Sequence[WrittenFile]
) -> dict[str, HourTotals]:
    rows, events = Counter[int](), Counter[int]()
    for g in listed:
        rows[g.hour_s] += g.rows
    for w in written:
        events.update({start_s: of.events for start_s, of in w.hours.items()})
    sealed = {b.hour_s: b for b in seal.books}
    books = {}
    for start_s in sorted(rows.keys() | sealed.keys()):
        of = sealed.get(start_s, OriginHourTotals(start_s, 0, 0))
        book = HourTotals(
            rows=rows[start_s], events=events[start_s], promised=of.promised, unaudited=of.unaudited
        )
        books[str(Hour(start_s, hour.length_s))] = book
    return books


def name_files(written: Sequence[WrittenFile]) -> list[tuple[str, WrittenFile]]:
    """Choose the names of a bucket's files within its folder.

    Args:
        written: The files of the bucket, in any order.

    Returns:
        Pairs of a name, such as `part-00000.avro`, and the file; empty if the bucket has no events.
        Files with late events are named `late-…`.
    """
    numbers = {"part": itertools.count(), "late": itertools.count()}
    files = [
        ("late" if w.late else "part", w)
        for w in sorted(written, key=lambda w: (w.late, w.schema_id, w.path))
    ]
    return [(f"{kind}-{next(numbers[kind]):05d}.avro", w) for kind, w in files]


def name_parquet_files(written: Sequence[WrittenFile]) -> list[tuple[str, str, WrittenParquet]]:
    """Choose the paths of a bucket's Parquet files within its folder.

    Args:
        written: The Avro files of the bucket, in any order.

    Returns:
        A path such as `_parquet/part-00000.parquet`, the name of the Avro file with the same rows,
        and the Parquet file; empty if the bucket has no Parquet files. The Parquet files of an Avro
        file are in the order of its rows.
    """
    numbers = {"part": itertools.count(), "late": itertools.count()}
    return [
        (f"{PARQUET_FOLDER}/{kind}-{next(numbers[kind]):05d}.parquet", name, parquet)
        for name, w in name_files(written)
        for kind in ("late" if w.late else "part",)
        for parquet in w.parquet
    ]
