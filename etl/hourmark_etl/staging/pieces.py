"""What a task is told, and what it answers: small values that travel between driver and executors,
pickled.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark.config.groups import StorageSettings
from hourmark_etl.model import (
    FIRST_SITE,
    AuditGroup,
    OffsetSpan,
    SetAside,
    StagedFile,
    StagedGroup,
    from_row,
)

NOTE_FORMAT: Final = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """What a task must know; travels to the executors."""

    storage: StorageSettings
    folder: str  # of this batch, relative to the storage root
    bucket_seconds: int
    types: Mapping[str, str]  # central topic → type
    audits: Mapping[str, str]  # central audit topic → site
    hosts: Collection[str]  # central topics of host reports
    ledger: str = ""  # UUID
    schema_types: Mapping[int, str] = dataclasses.field(
        default_factory=dict
    )  # schema id → type, as the rules fixed it
    programs: Mapping[int, bytes] = dataclasses.field(
        default_factory=dict
    )  # schema id → check of its datums


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedNote:
    """What a staged file holds, as its footer says: every record of its `kind` (EVENTS or AUDIT of
    `ledger.rows`) in `spans`.

    `ledger`: UUID of the one it was staged for. `path` is where it was found, and of its groups
    too. `observed_ms`: as of `hourmark_etl.model.StagedFile`.
    """

    ledger: str
    kind: str
    rows: int
    spans: tuple[OffsetSpan, ...] = ()
    groups: tuple[StagedGroup, ...] = ()
    audit_groups: tuple[AuditGroup, ...] = ()
    path: str = ""
    observed_ms: tuple[int, int] | None = None

    @property
    def file(self) -> StagedFile:
        """What the ledger keeps of the file itself."""
        return StagedFile(
            path=self.path,
            kind=self.kind,
            rows=self.rows,
            spans=self.spans,
            observed_ms=self.observed_ms,
        )

    def at(self, path: str) -> StagedNote:
        """The same, of a file that stands there."""
        groups = tuple(dataclasses.replace(g, path=path) for g in self.groups)
        audit_groups = tuple(dataclasses.replace(g, path=path) for g in self.audit_groups)
        return dataclasses.replace(self, groups=groups, audit_groups=audit_groups, path=path)

    def to_json(self) -> str:
        """Without paths."""
        told = {name: _listed(getattr(self, name)) for name in ("spans", "groups", "audit_groups")}
        told["spans"] = [s.to_list() for s in self.spans]
        own = {name: getattr(self, name) for name in ("ledger", "kind", "rows", "observed_ms")}
        return json.dumps({"format": NOTE_FORMAT, **own, **told})

    @classmethod
    def from_json(cls, path: str, text: str) -> StagedNote:
        """The inverse. ValueError or LookupError for what is none, or none of this version."""
        told: dict[str, Any] = json.loads(text)
        if (given := told.pop("format")) != NOTE_FORMAT:
            raise ValueError(
                f"its note has format {given}, this version reads format {NOTE_FORMAT}"
            )
        try:
            told |= {
                "spans": tuple(OffsetSpan.from_list(s) for s in told["spans"]),
                "groups": tuple(_group(path, *g) for g in told["groups"]),
                "audit_groups": tuple(_audit_group(path, *g) for g in told["audit_groups"]),
                "observed_ms": tuple(told["observed_ms"]) if told["observed_ms"] else None,
            }
            return cls(path=path, **told)
        except TypeError as error:
            raise ValueError(f"not a note: {error}") from error


class ReportRecord(NamedTuple):
    """A host report as it stood in Kafka: `datum` is its Avro, without framing."""

    partition: int
    offset: int
    datum: bytes


class StagedPiece(NamedTuple):
    """What one call of `stage_table` staged: at most one file of events and one of promises; and
    what it did not stage.
    """

    files: tuple[StagedNote, ...] = ()
    reports: tuple[ReportRecord, ...] = ()
    set_aside: tuple[SetAside, ...] = ()

    @property
    def groups(self) -> tuple[StagedGroup, ...]:
        """Of its file of events."""
        return tuple(g for f in self.files for g in f.groups)

    @property
    def audit_groups(self) -> tuple[AuditGroup, ...]:
        """Of its file of promises."""
        return tuple(g for f in self.files for g in f.audit_groups)


def _listed(values: Sequence[Any]) -> list[list[Any]]:
    """The fields of dataclasses, less their path."""
    told = (
        [getattr(of, f.name) for f in dataclasses.fields(of) if f.name != "path"] for of in values
    )
    return [
        [field.hex() if isinstance(field, bytes) else field for field in fields] for fields in told
    ]


def _audit_group(path: str, *fields: Any) -> AuditGroup:
    """Return a group of the first site where it names none, without checksums where it has none, as
    those of 0.3.0.
    """
    missing = len(dataclasses.fields(AuditGroup)) - 1 - len(fields)
    return from_row(AuditGroup, (path, *fields, *(FIRST_SITE, None, None)[3 - missing :]))


def _group(*fields: Any) -> StagedGroup:
    (
        path,
        event_type,
        hour_s,
        rows,
        size,
        low64_sum,
        schema_ids,
        first_row,
        first_id,
        last_id,
        *value_sum,
    ) = fields
    ids = (bytes.fromhex(first_id), bytes.fromhex(last_id))
    known = value_sum or [None]  # files of version 0.3.0 have none
    return from_row(
        StagedGroup,
        (
            path,
            event_type,
            hour_s,
            rows,
            size,
            low64_sum,
            tuple(schema_ids),
            first_row,
            *ids,
            *known,
        ),
    )
