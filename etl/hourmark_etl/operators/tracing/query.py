"""The objects that `hourmark trace` accepts, and their text forms. Pure.

An event is named by its id, a record by its offset, and a line by its position on its host.
"""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from typing import Any, Final

from hourmark.errors import UsageError
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import EventId

_RECORD: Final = re.compile(r"([A-Za-z0-9._-]+):([0-9]{1,9}):([0-9]{1,18})")
_PLACE: Final = re.compile(r"([^:/]+):(.+):([0-9]{1,18})", re.DOTALL)
_FORMS: Final = (
    "write an event id, TOPIC:PARTITION:OFFSET, or HOST:FILE:OFFSET, where OFFSET is the byte "
    "at which the line begins. For FILE:LINE, run `hourmark tail trace FILE:LINE --json` on the "
    "line's host, and pass its output here with --from"
)


@dataclasses.dataclass(frozen=True, slots=True)
class EventQuery:
    """Request to trace the event with a given id through the pipeline.

    Attributes:
        event_id: Id of the event.
        event_type: Type of the event.
    """

    event_id: EventId
    event_type: str


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaRecordQuery:
    """Request to trace the event in a given Kafka record through the pipeline.

    Attributes:
        topic: Name of the topic on the edge cluster, or the name with the edge alias as prefix on
            the central cluster.
        partition: Partition number.
        offset: Offset of the record.
    """

    topic: str
    partition: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class FilePositionQuery:
    """Request to trace the line at a given position of a log file through the pipeline.

    Attributes:
        host: Id or name of the host.
        file: Id of the file, or its path when it was read.
        offset: Byte offset at which the line begins.
        generation: Number of times the file had been truncated before the line was read; None
            matches any number.
        event_type: Event type whose closed buckets are searched if Kafka no longer has the audit
            record, which confirms the delivery of the line; None searches no buckets in that case.
    """

    host: str
    file: str
    offset: int
    generation: int | None = None
    event_type: str | None = None

    def matches_range(self, audit: AuditRecord) -> bool:
        """Return whether the byte range of an audit record contains the requested position.

        An audit record confirms the delivery of a byte range of a log file. The host and the file
        must match as well, and so must the number of earlier truncations of the file unless
        `generation` is None.

        Args:
            audit: Audit record to compare. Records that do not describe a byte range never match.

        Returns:
            True if `offset` is in the range and all other fields match.
        """
        return (
            audit.kind == "range"
            and audit.start <= self.offset < audit.end
            and self.host in (audit.host_id, audit.host_name)
            and self.file in (audit.file_id, audit.path)
            and self.generation in (None, audit.generation)
        )


TraceQuery = EventQuery | KafkaRecordQuery | FilePositionQuery


@dataclasses.dataclass(frozen=True, slots=True)
class HostTrace:
    """Parsed output of `hourmark tail trace`, which an operator ran on the host of a traced line.

    Attributes:
        stage: How far the host has processed the line, such as `not_read`, `spooled` (stored
            durably on the host but not acknowledged yet) or `acknowledged`.
        path: Path of the file.
        next_step: Human-readable next step for an operator on the host.
        losses: Number of data losses that the tailer (the agent on the host) recorded under any
            known path of the file.
    """

    stage: str
    path: str
    next_step: str
    losses: int


def parse_query(text: str, event_type: str | None, generation: int | None) -> TraceQuery:
    """Parse the command-line argument of `hourmark trace` that identifies the object to trace.

    Args:
        text: An event id (UUID), TOPIC:PARTITION:OFFSET, or HOST:FILE:OFFSET.
        event_type: Type of the event; required if `text` is an event id.
        generation: Number of earlier truncations of the file; None matches any number. It is used
            only if `text` has the form HOST:FILE:OFFSET.

    Returns:
        An `EventQuery`, `KafkaRecordQuery` or `FilePositionQuery`, according to the form of `text`.

    Raises:
        UsageError: The text has none of these forms, or it is an event id and `event_type` is None.
            The message states the accepted forms.
    """
    event_id = _event_id(text)
    if event_id is not None:
        if event_type is None:
            raise UsageError(
                f"the type of {text} is unknown; specify it with --type; `hourmark types list` "
                "shows the declared types"
            )
        return EventQuery(event_id, event_type)
    if match := _RECORD.fullmatch(text):
        return KafkaRecordQuery(match[1], int(match[2]), int(match[3]))
    if match := _PLACE.fullmatch(text):
        return FilePositionQuery(match[1], match[2], int(match[3]), generation, event_type)
    raise UsageError(f"{text!r:.200} cannot be traced: {_FORMS}")


def parse_host_trace(
    output: str, event_type: str | None = None
) -> tuple[FilePositionQuery | None, HostTrace]:
    """Parse the output of `hourmark tail trace FILE:LINE --json`.

    Args:
        output: The JSON text that the command printed.
        event_type: Event type whose closed buckets are searched if Kafka no longer has the audit
            record, which confirms the delivery of the line; None searches no buckets in that case.

    Returns:
        A pair. The first element is the position to trace, or None if the host does not know the
        file or the offset. The second element is the host's report.

    Raises:
        UsageError: The text is not the output of that command.
    """
    try:
        fields: Any = json.loads(output)
        host = HostTrace(
            str(fields["stage"]), str(fields["path"]), str(fields["next"]), int(fields["losses"])
        )
        if fields["offset"] is None or fields["file_id"] is None:
            return None, host
        file = str(fields["host_id"]), str(fields["file_id"])
        return FilePositionQuery(
            *file, int(fields["offset"]), int(fields["generation"]), event_type
        ), host
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(
            "--from: this is not the output of `hourmark tail trace FILE:LINE --json` "
            f"({error!r:.100})"
        ) from error


def _event_id(text: str) -> EventId | None:
    try:
        return EventId(uuid.UUID(text).bytes)
    except ValueError:
        return None
