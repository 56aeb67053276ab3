"""Audit records: how many events each byte range contains, by event type and hour.

They are in the topic `hourmark.audit`, keyed by range id. The delivery service appends an audit
record when all events of a range are in Kafka, and acknowledges the range afterwards. A retry
produces an identical record, so two records with the same key and different content raise an alarm.
Events in Kafka without an audit record were never acknowledged.

`lines = events + dead letters + blanks`: a blank line produces no record. Parser 1 produced dead
letters for blank lines; its audit records have no field `blanks`, and are encoded in the schema of
their time. Since 0.4.0 a record has a checksum of the record values of each promise (`value_hash`).
Each schema version appends fields to the previous one, so an older reader ignores later fields, and
a newer reader recognizes the version by where the datum ends.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Final

from hourmark.avro.datum import Datum, decode_any_version
from hourmark.avro.framing import read_schema, unix_ms
from hourmark.records.event_id import EventId
from hourmark.records.ranges import RangeId

_MODULUS: Final = 1 << 64

SCHEMA: Final = read_schema("audit.avsc")
SCHEMA_BEFORE_BLANKS: Final = read_schema("audit_before_blanks.avsc")
SCHEMA_BEFORE_CHECKSUMS: Final = SCHEMA | {"fields": SCHEMA["fields"][:-1]}
_DATUM: Final = Datum(SCHEMA)
_DATUM_BEFORE_CHECKSUMS: Final = Datum(SCHEMA_BEFORE_CHECKSUMS)
_DATUM_BEFORE_BLANKS: Final = Datum(SCHEMA_BEFORE_BLANKS)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Promise:
    """The number of events of one type and hour that a byte range contains, with checksums.

    Promises are the entries of audit records. A delivery service writes an audit record to Kafka
    before it acknowledges a byte range, and so promises that these events will reach their bucket.
    To detect losses, the ETL compares the promises with the events that it has read.

    Attributes:
        event_type: Name of the event type.
        hour_start_s: Unix seconds at the start of the hour.
        count: Number of distinct event ids.
        sum: Sum of the last 8 bytes of each distinct id as an integer, modulo 2^64.
        checksum: Sum of the value hashes (`value_hash`) of all distinct pairs of event id and hash,
            modulo 2^64. None if the audit record contains no checksums, as before version 0.4.0.
    """

    event_type: str
    hour_start_s: int
    count: int
    sum: int
    checksum: int | None = None

    def __post_init__(self) -> None:
        assert self.count > 0, "a promise must count at least one event"
        assert 0 <= self.sum < _MODULUS
        assert self.checksum is None or 0 <= self.checksum < _MODULUS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """The event counts of one byte range or API batch, by event type and hour.

    A delivery service writes the audit record to Kafka after the events of the range, and then
    acknowledges the range. Before the ETL closes an hourly bucket, it compares the audit records
    with the events that it has read.

    Attributes:
        range_id: Id of the byte range or batch.
        kind: "range" or "batch".
        host_id: Id of the host; the client's name for a batch.
        host_name: Name of the host; the client's name for a batch.
        file_id: Id of the file; the idempotency key for a batch.
        generation: Number of times that the file has been truncated; 0 for a batch.
        start: Start offset of the range in the file, in bytes; 0 for a batch.
        end: End offset of the range (exclusive); the number of lines for a batch.
        observed_at_ms: Time at which the tailer read the range, or the time of the batch, in Unix
            milliseconds on the service's clock.
        rules: Id of the rules revision that the range is parsed with. A rules revision is a
            numbered version of the declared event types, sources and limits.
        source: Name of the declared source; `api` for a batch.
        path: Path of the file; the event type for a batch.
        lines: Number of lines.
        promised: Counts and checksums, sorted by type and hour.
        ids: Digest of the event ids in the order of their records (`digest_ids`).
        blanks: Number of blank lines; None if the parser stored each as a dead letter (a line that
            could not become an event).
    """

    range_id: RangeId
    kind: str  # "range" or "batch"
    host_id: str
    host_name: str
    file_id: str
    generation: int
    start: int
    end: int
    observed_at_ms: int
    rules: str
    source: str
    path: str
    lines: int
    promised: tuple[Promise, ...]
    # unlike the sums, this digest also detects a time that moved within its hour
    ids: bytes = b""
    blanks: int | None = None  # None: its parser made dead letters of blank lines

    def encode(self, *, with_checksums: bool = True) -> bytes:
        """Return the audit record as an Avro datum without framing.

        The oldest schema that contains all fields of the record is used: fields that are None
        (checksums, blank lines) require no later schema.

        Args:
            with_checksums: Whether to include the checksums of `promised`. Pass False if readers
                of version 0.3.0 must be able to decode the datum.
        """
        promised = [
            {
                "type": p.event_type,
                "hour_start": p.hour_start_s,
                "count": p.count,
                "sum": p.sum.to_bytes(8, "big"),
            }
            for p in self.promised
        ]
        checksums = [p.checksum.to_bytes(8, "big") for p in self.promised if p.checksum is not None]
        assert len(checksums) in (0, len(promised)), (
            "either all promises of a record have checksums, or none"
        )
        datum = _DATUM if checksums and with_checksums else _DATUM_BEFORE_CHECKSUMS
        if self.blanks is None:
            assert not checksums, "records of parsers that count no blank lines have no checksums"
            datum = _DATUM_BEFORE_BLANKS
        row = {"observed_at": self.observed_at_ms, "promised": promised, "checksums": checksums}
        return datum.encode(dataclasses.asdict(self) | row)

    @classmethod
    def decode(cls, datum: bytes) -> AuditRecord:
        """Decode an audit record that was written by this or an older version.

        Args:
            datum: The Avro datum without framing.

        Raises:
            ValueError: The datum is not an audit record.
        """
        row = decode_any_version((_DATUM, _DATUM_BEFORE_CHECKSUMS, _DATUM_BEFORE_BLANKS), datum)
        promised, checksums = row.pop("promised"), row.pop("checksums", [])
        if any(p["count"] < 1 for p in promised):
            raise ValueError("not an audit record: it contains an empty promise")
        if len(checksums) not in (0, len(promised)):
            raise ValueError(
                f"not an audit record: it has {len(promised)} promises and {len(checksums)} "
                "checksums"
            )
        known: list[int | None] = [int.from_bytes(c, "big") for c in checksums] or [None] * len(
            promised
        )
        return cls(
            range_id=RangeId(row.pop("range_id")),
            observed_at_ms=unix_ms(row.pop("observed_at")),
            promised=tuple(
                Promise(
                    p["type"],
                    p["hour_start"],
                    p["count"],
                    int.from_bytes(p["sum"], "big"),
                    checksum,
                )
                for p, checksum in zip(promised, known, strict=True)
            ),
            **row,
        )


def promises(events: Iterable[tuple[str, int, EventId, int]]) -> tuple[Promise, ...]:
    """Count the events of one byte range by event type and hour, and compute checksums.

    The result is stored in the audit record of the range (`AuditRecord.promised`).

    Args:
        events: Tuples of event type, start of the hour in Unix seconds, event id and value hash.
            Events with the same id count once. Events with the same id and hash are included in
            the checksum once.

    Returns:
        One `Promise` (count and checksums) for each type and hour, sorted. Empty if there are no
        events.
    """
    hashes: dict[tuple[str, int], dict[EventId, set[int]]] = {}
    for event_type, hour_start_s, event_id, value_hash in events:
        hashes.setdefault((event_type, hour_start_s), {}).setdefault(event_id, set()).add(
            value_hash
        )
    return tuple(
        Promise(
            t,
            h,
            len(found),
            sum_low64(found),
            sum(sum(of_id) for of_id in found.values()) % _MODULUS,
        )
        for (t, h), found in sorted(hashes.items())
    )


def digest_ids(ids: Iterable[bytes | bytearray]) -> bytes:
    """Return a digest of a sequence of event ids.

    The digest depends on the order of the ids.

    Args:
        ids: The ids of a byte range's events, in the order of their records.

    Returns:
        The 8-byte BLAKE2b digest of the concatenated ids.
    """
    return hashlib.blake2b(b"".join(ids), digest_size=8).digest()


def sum_low64(ids: Iterable[EventId]) -> int:
    """Return an order-independent checksum of event ids.

    Args:
        ids: The event ids. Duplicates are not removed.

    Returns:
        The sum of the last 8 bytes of each id as a big-endian integer, modulo 2^64. 0 if there are
        no ids.
    """
    return sum(int.from_bytes(event_id[8:], "big") for event_id in ids) % _MODULUS
