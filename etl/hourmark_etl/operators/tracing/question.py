"""What `hourmark trace` can be asked for: an event by its id, a record by its offset, a line by its
place on its host. Pure.
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
    "at which the line begins. For "
    "FILE:LINE, on the line's host: `hourmark tail trace FILE:LINE --json`, and here --from "
    "that"
)


@dataclasses.dataclass(frozen=True, slots=True)
class OfEvent:
    """An event of this type."""

    event_id: EventId
    event_type: str


@dataclasses.dataclass(frozen=True, slots=True)
class OfRecord:
    """A record of a topic of events, at the edge or, by its name there, of the central cluster."""

    topic: str
    partition: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class OfPlace:
    """A line that begins at byte `offset` of a file.

    `host`: its id, or its name. `file`: its id, or its path when it was read. `generation` None:
    whichever. `event_type`: whose buckets are read where Kafka has let go of its audit record.
    """

    host: str
    file: str
    offset: int
    generation: int | None = None
    event_type: str | None = None

    def is_in(self, r: AuditRecord) -> bool:
        """Whether the line is one of this range."""
        return (
            r.kind == "range"
            and r.start <= self.offset < r.end
            and self.host in (r.host_id, r.host_name)
            and self.file in (r.file_id, r.path)
            and self.generation in (None, r.generation)
        )


Question = OfEvent | OfRecord | OfPlace


@dataclasses.dataclass(frozen=True, slots=True)
class HostSays:
    """What `hourmark tail trace` said, on the line's host. `next_step`: of an operator there."""

    stage: str
    path: str
    next_step: str
    losses: int


def parsed(what: str, event_type: str | None, generation: int | None) -> Question:
    """UsageError where it is none of the forms."""
    event_id = _event_id(what)
    if event_id is not None:
        if event_type is None:
            raise UsageError(
                f"of which type is {what}? name it by --type; `hourmark types list` names "
                "those declared"
            )
        return OfEvent(event_id, event_type)
    if match := _RECORD.fullmatch(what):
        return OfRecord(match[1], int(match[2]), int(match[3]))
    if match := _PLACE.fullmatch(what):
        return OfPlace(match[1], match[2], int(match[3]), generation, event_type)
    raise UsageError(f"{what!r:.200} names nothing to trace: {_FORMS}")


def told_by_host(answer: str, event_type: str | None = None) -> tuple[OfPlace | None, HostSays]:
    """Of the JSON that `hourmark tail trace` gives; no place where its host knows none.

    UsageError where it is other text.
    """
    try:
        told: Any = json.loads(answer)
        says = HostSays(
            str(told["stage"]), str(told["path"]), str(told["next"]), int(told["losses"])
        )
        if told["offset"] is None or told["file_id"] is None:
            return None, says
        file = str(told["host_id"]), str(told["file_id"])
        return OfPlace(*file, int(told["offset"]), int(told["generation"]), event_type), says
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(
            "--from: this is not what `hourmark tail trace FILE:LINE --json` prints "
            f"({error!r:.100})"
        ) from error


def _event_id(text: str) -> EventId | None:
    try:
        return EventId(uuid.UUID(text).bytes)
    except ValueError:
        return None
