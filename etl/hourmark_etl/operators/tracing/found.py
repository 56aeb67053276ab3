"""What a trace found, step by step, and what it was looked for in: "not found" is worth as much as
what was looked at.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Generic, TypeVar

from hourmark.errors import HourmarkError, UsageError
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark_etl.buckets.reader import Event
from hourmark_etl.model import HourState, ReportedSource

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Looked(Generic[T]):
    """`whole`: nothing that may hold it was left out, so what is not found is not there. `failed`:
    the server did not answer.
    """

    found: T | None
    where: str
    whole: bool = False
    failed: str | None = None


def found(step: Looked[T] | None) -> T | None:
    """What a step found, if it was asked."""
    return None if step is None else step.found


def asked(where: str, ask: Callable[[], Looked[T]]) -> Looked[T]:
    """What it gives; where a server does not answer, that, and the other steps go on."""
    try:
        return ask()
    except UsageError:
        raise
    except HourmarkError as error:
        return Looked(None, where, failed=str(error))


class Site(enum.Enum):
    """Which of the two clusters; where one is both, either."""

    EDGE = "edge"
    CENTRAL = "central"


@dataclasses.dataclass(frozen=True, slots=True)
class ById:
    """One event."""

    event_id: EventId


@dataclasses.dataclass(frozen=True, slots=True)
class ByPosition:
    """What begins at `position`, in a range; where ranges are not kept, in a file."""

    range_id: RangeId
    file_id: str
    generation: int
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ByPlace:
    """What begins at `position` of a file, as buckets name it: host by name, file by id or path."""

    host: str
    file: str
    generation: int | None
    position: int


Sought = ById | ByPosition | ByPlace


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """An audit record, and when it was written: the acknowledgement followed at once.

    `other_files`: how many that were read under the same path have the place too, among what was
    looked at.
    """

    record: AuditRecord
    at_ms: int
    topic: str
    partition: int
    offset: int
    other_files: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event in Kafka. `event`: its envelope, and of a dead letter all; `at_ms`: when the
    delivery service wrote it.
    """

    topic: str
    partition: int
    offset: int
    at_ms: int
    event_id: EventId
    range_id: RangeId
    event: Event


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A row of a staged file. `listed`: the bucket that a freeze has listed it for."""

    path: str
    event_id: EventId
    range_id: RangeId
    partition: int
    offset: int
    hour: Hour
    listed: Hour | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InBucket:
    """A record of a closed bucket: `row`, from 0, of its file. `hour`: the bucket's."""

    hour: Hour
    file: str
    row: int
    event: Event
    grade: str
    closed_at_ms: int

    @property
    def event_id(self) -> EventId:
        """Of the record."""
        return EventId(self.event["event_id"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The next hour of the type to close."""

    hour: Hour
    state: HourState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """All that was found. A step that is None was not asked: nothing was known to ask it for.

    `begins_at`: of the record before the place, where none begins there. `reported`: what the
    place's host said last, of each of its sources. `mirror`: the next offset of the edge's
    partition that the mirror will copy; `staging`: the next one of the central partition that will
    be staged.
    """

    mirrored: bool
    begins_at: int | None = None
    reported: Looked[tuple[ReportedSource, ...]] | None = None
    event_type: str | None = None
    event_id: EventId | None = None
    acknowledged: Looked[Acknowledged] | None = None
    edge: Looked[Record] | None = None
    mirror: Looked[int] | None = None
    central: Looked[Record] | None = None
    staging: Looked[int] | None = None
    staged: Looked[Staged] | None = None
    bucket: Looked[InBucket] | None = None
    standing: Looked[Standing] | None = None

    @property
    def event(self) -> Event | None:
        """The event, as far as a step gave it."""
        given = (
            step.found.event
            for step in (self.bucket, self.central, self.edge)
            if step is not None and step.found is not None
        )
        return next(given, None)
