"""Inputs and results of staging tasks: small values, pickled between driver and executors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark_etl.model import (
    FIRST_SITE,
    AuditGroup,
    ExcludedRecords,
    OffsetSpan,
    StagedFile,
    StagedGroup,
    from_row,
)

NOTE_FORMAT: Final = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """Settings for the Spark tasks of a batch, which write Kafka records to staged files.

    The driver sends an instance to Spark's executors.

    Attributes:
        folder: Folder of the batch, relative to the storage root.
        bucket_seconds: Length of a bucket in seconds.
        types: Maps the name of an event topic on the central cluster to its event type.
        audits: Maps the name of a central audit topic to the id of the site (edge cluster) whose
            audit records it contains.
        hosts: Names of the central topics of host reports.
        ledger: UUID of the ledger, the state database of the ETL.
        schema_types: Maps each schema id to its event type.
        programs: Maps a schema id to the compiled check of encoded events
            (`hourmark.avro.datum_check`).
    """

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
    """Description of a staged file's content, stored in the file's Parquet footer.

    A staged file contains copies of all events or audit records in given ranges of Kafka offsets.

    Attributes:
        ledger: UUID of the ledger (the ETL's state database) for which the file was staged.
        kind: EVENTS or AUDIT.
        rows: Number of rows.
        spans: Kafka offset ranges from which the file was staged.
        groups: Totals by event type and hour, for a file of events.
        audit_groups: Totals by event type and hour, for a file of audit records.
        path: Path of the file, relative to the storage root. It is not stored in the footer.
        observed_ms: Earliest and latest time at which a service received the byte ranges of the
            audit records, in Unix milliseconds; None for a file of events.
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
        """Return the entry for this file in the ledger, the ETL's state database.

        The entry contains the path, kind, number of rows, offset ranges and observation times. It
        does not contain the totals by event type and hour.
        """
        return StagedFile(
            path=self.path,
            kind=self.kind,
            rows=self.rows,
            spans=self.spans,
            observed_ms=self.observed_ms,
        )

    def with_path(self, path: str) -> StagedNote:
        """Return a copy of the description with another file path.

        The path is also replaced in each item of `groups` and `audit_groups`.

        Args:
            path: New path relative to the storage root.
        """
        groups = tuple(dataclasses.replace(g, path=path) for g in self.groups)
        audit_groups = tuple(dataclasses.replace(g, path=path) for g in self.audit_groups)
        return dataclasses.replace(self, groups=groups, audit_groups=audit_groups, path=path)

    def to_json(self) -> str:
        """Return the description as JSON for the file's footer, without file paths.

        `from_json` is the inverse.
        """
        values = {
            name: _listed(getattr(self, name)) for name in ("spans", "groups", "audit_groups")
        }
        values["spans"] = [s.to_list() for s in self.spans]
        own = {name: getattr(self, name) for name in ("ledger", "kind", "rows", "observed_ms")}
        return json.dumps({"format": NOTE_FORMAT, **own, **values})

    @classmethod
    def from_json(cls, path: str, text: str) -> StagedNote:
        """Parse the JSON that `to_json` returned.

        Args:
            path: Path of the file, which is stored in the result.
            text: JSON from the file's footer.

        Returns:
            The description, with all fields that were stored and the given path.

        Raises:
            ValueError: The text is not a description, or has another format version.
            LookupError: A field is missing.
        """
        values: dict[str, Any] = json.loads(text)
        if (given := values.pop("format")) != NOTE_FORMAT:
            raise ValueError(
                f"its note has format {given}, but this version supports format {NOTE_FORMAT}"
            )
        try:
            values |= {
                "spans": tuple(OffsetSpan.from_list(s) for s in values["spans"]),
                "groups": tuple(_group(path, *g) for g in values["groups"]),
                "audit_groups": tuple(_audit_group(path, *g) for g in values["audit_groups"]),
                "observed_ms": tuple(values["observed_ms"]) if values["observed_ms"] else None,
            }
            return cls(path=path, **values)
        except TypeError as error:
            raise ValueError(f"not a note: {error}") from error


class ReportRecord(NamedTuple):
    """A record read from a topic of host reports.

    Attributes:
        partition: Partition of the topic.
        offset: Offset of the record.
        datum: The report in Avro binary encoding, without framing.
    """

    partition: int
    offset: int
    datum: bytes


class StagedChunk(NamedTuple):
    """Result of staging one chunk of Kafka records.

    The caller must commit it to the ledger, the ETL's state database.

    Attributes:
        files: Descriptions of the written files: at most one file of events, and at most one file
            of audit records per audit topic.
        reports: Host reports without repeated reports.
        set_aside: Malformed event records, which were not staged.
    """

    files: tuple[StagedNote, ...] = ()
    reports: tuple[ReportRecord, ...] = ()
    set_aside: tuple[ExcludedRecords, ...] = ()

    @property
    def groups(self) -> tuple[StagedGroup, ...]:
        """Return the totals of the event file by type and hour; empty if there is no such file."""
        return tuple(g for f in self.files for g in f.groups)

    @property
    def audit_groups(self) -> tuple[AuditGroup, ...]:
        """Return the totals of all audit files by event type and hour; empty if there are none."""
        return tuple(g for f in self.files for g in f.audit_groups)


def _listed(values: Sequence[Any]) -> list[list[Any]]:
    rows = (
        [getattr(of, f.name) for f in dataclasses.fields(of) if f.name != "path"] for of in values
    )
    return [
        [field.hex() if isinstance(field, bytes) else field for field in fields] for fields in rows
    ]


def _audit_group(path: str, *fields: Any) -> AuditGroup:
    # Files of version 0.3.0 have no site and no checksums: the first site's, unchecked.
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
