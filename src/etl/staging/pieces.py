"""What a task is told, and what it answers: small values that travel between driver and executors, as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from etl.ledger.rows import AuditGroup, StagedGroup
from hourmark.config import Storage as StorageSettings


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """What a task must know; travels to the executors."""

    storage: StorageSettings
    folder: str  # of this batch, relative to the storage root
    bucket_seconds: int
    types: Mapping[str, str]  # central topic → type
    audit_topic: str
    hosts_topic: str


@dataclasses.dataclass(frozen=True, slots=True)
class PieceFile:
    """A file that was written. `kind`: EVENTS or AUDIT of `etl.ledger.rows`."""

    path: str
    kind: str
    rows: int


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ReportRecord:
    """A host report as it stood in Kafka: `datum` is its Avro, without framing."""

    partition: int
    offset: int
    datum: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class StagedPiece:
    """What one call of `stage_table` staged: at most one file of events and one of promises."""

    files: tuple[PieceFile, ...] = ()
    groups: tuple[StagedGroup, ...] = ()
    audit_groups: tuple[AuditGroup, ...] = ()
    reports: tuple[ReportRecord, ...] = ()

    def to_json(self) -> str:
        """For the way to the driver."""
        return json.dumps({field.name: [_listed(v) for v in getattr(self, field.name)] for field in dataclasses.fields(self)})

    @classmethod
    def from_json(cls, text: str) -> StagedPiece:
        """The inverse."""
        told: dict[str, list[list[Any]]] = json.loads(text)
        return cls(
            tuple(PieceFile(*f) for f in told["files"]),
            tuple(_group(*g) for g in told["groups"]),
            tuple(AuditGroup(*g) for g in told["audit_groups"]),
            tuple(ReportRecord(r[0], r[1], bytes.fromhex(r[2])) for r in told["reports"]),
        )


def _listed(value: PieceFile | StagedGroup | AuditGroup | ReportRecord) -> list[Any]:
    fields = (getattr(value, field.name) for field in dataclasses.fields(value))
    return [field.hex() if isinstance(field, bytes) else field for field in fields]


def _group(*fields: Any) -> StagedGroup:
    path, event_type, hour_s, rows, size, tail_sum, schema_ids, first_row, first_id, last_id = fields
    ids = (bytes.fromhex(first_id), bytes.fromhex(last_id))
    return StagedGroup(path, event_type, hour_s, rows, size, tail_sum, tuple(schema_ids), first_row, *ids)
