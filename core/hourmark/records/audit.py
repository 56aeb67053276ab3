"""Audit records: what was promised, range by range (topic `hourmark.audit`, keyed by range id).

The delivery service appends one after all of a range is in Kafka and before it acknowledges it. A
retry makes the very same record, so two records with one key and different content are an alarm.
What is in Kafka without an audit record was never acknowledged.

`lines = events + dead letters + blanks`: a blank line makes no record. Ranges whose rules are of a
parser that made dead letters of blank lines have records without `blanks`, in the schema of then,
byte for byte. Since 0.4.0 a record has a checksum of the record values of each promise
(`value_hash`). Each later schema has the same fields first, so an older reader ignores the later
ones, and a newer one distinguishes the schemas by where they end.
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
    """What one range promises for one type and hour.

    Attributes: event_type: The type's name. hour_start_s: Unix seconds at the start of the hour.
        count: The number of distinct event ids. sum: The sum of the ids' low 64 bits, modulo 2^64.
        checksum: The sum of the value hashes (`value_hash`) of these records, modulo 2^64. A pair
        of event id and hash counts
            once, so a client's event that a batch has with two contents counts with both. None in
            records of services before 0.4.0, and in records of parsers that count no blank lines.
    """

    event_type: str
    hour_start_s: int
    count: int
    sum: int
    checksum: int | None = None

    def __post_init__(self) -> None:
        assert self.count > 0, "a promise of nothing is not written"
        assert 0 <= self.sum < _MODULUS
        assert self.checksum is None or 0 <= self.checksum < _MODULUS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One range's promises, sorted by type and hour."""

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
    # digest of the records' ids in their order: it also tells a time that moved within its hour
    ids: bytes = b""
    blanks: int | None = None  # None: its parser made dead letters of blank lines

    def encode(self, *, with_checksums: bool = True) -> bytes:
        """Return the Avro datum, without framing; without checksums it is one that has the schema
        of 0.3.0.
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
            "all promises of a record have checksums, or none has"
        )
        datum = _DATUM if checksums and with_checksums else _DATUM_BEFORE_CHECKSUMS
        if self.blanks is None:
            assert not checksums, "records of parsers that count no blank lines have no checksums"
            datum = _DATUM_BEFORE_BLANKS
        row = {"observed_at": self.observed_at_ms, "promised": promised, "checksums": checksums}
        return datum.encode(dataclasses.asdict(self) | row)

    @classmethod
    def decode(cls, datum: bytes) -> AuditRecord:
        """Decode an Avro datum of this version or an older one. Raises ValueError if it is not an
        audit record.
        """
        row = decode_any_version((_DATUM, _DATUM_BEFORE_CHECKSUMS, _DATUM_BEFORE_BLANKS), datum)
        promised, checksums = row.pop("promised"), row.pop("checksums", [])
        if any(p["count"] < 1 for p in promised):
            raise ValueError("it is no record of an audit: it promises nothing of a type")
        if len(checksums) not in (0, len(promised)):
            raise ValueError(
                f"it is no record of an audit: it has {len(promised)} promises and "
                f"{len(checksums)} checksums"
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
    """Return the promises of a range's records, sorted by type and hour.

    Args: events: Type, hour start (Unix seconds), event id and value hash of each record. An id
        that occurs twice counts once; a
            pair of id and hash that occurs twice counts once in the checksum.
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
    """8 bytes of BLAKE2b over the ids, in the order of the range's records."""
    return hashlib.blake2b(b"".join(ids), digest_size=8).digest()


def sum_low64(ids: Iterable[EventId]) -> int:
    """Sum of the ids' last 8 bytes, modulo 2^64."""
    return sum(int.from_bytes(event_id[8:], "big") for event_id in ids) % _MODULUS
