"""What parsing makes: Kafka records, counts, and the audit record, gathered record by record."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Final, NamedTuple

from hourmark import dead_letters
from hourmark.audit import AuditRecord, digest_of_ids, promises
from hourmark.avro import ENVELOPE, put_long
from hourmark.dead_letters import Reason
from hourmark.event_id import EventId
from hourmark.hours import hour_start_s
from hourmark.ranges import RangeId
from hourmark.record_key import RecordKey
from hourmark_delivery_service.parsing.compiled import CompiledRules, CompiledType
from hourmark_delivery_service.parsing.primitives import put_bytes
from hourmark_delivery_service.parsing.reject import Rejected

EVENT_BYTES_MAX: Final = 6 << 20  # key and value; under Kafka's limit along the path, above any dead letter
SLICE_RECORDS: Final = 128  # what is parsed in one go: about two milliseconds
SLICE_BYTES: Final = 32 << 10
TIME_MS_END: Final = 221_845_392_000_000  # 9000-01-01: where calendars are safe and ids hold the time

_DETAIL_CHARS_MAX: Final = 500

assert [f["name"] for f in ENVELOPE] == ["event_id", "event_time", "host", "source", "file", "position"], "as `_datum` writes it"


class Record(NamedTuple):
    """A Kafka record but for its timestamp."""

    event_type: str
    key: bytes
    value: bytes
    hour_start_s: int


class Event(NamedTuple):
    """What a line says: its type, time, host (Avro string) and the datum of its own fields."""

    type: CompiledType
    time_ms: int
    host: bytes
    body: bytes | bytearray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What all records of a range or batch share. `host`, `source_and_file`: their Avro encodings in the envelope."""

    range_id: RangeId
    observed_at_ms: int
    host: bytes
    source_and_file: bytes
    declared_source: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.observed_at_ms >= TIME_MS_END:
            raise ValueError(f"observed_at {self.observed_at_ms} ms is after the year 8999")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRange:
    """All of a range. `lines = events + dead_letters`, always."""

    records: tuple[Record, ...]
    lines: int
    events: int
    dead_letters: int
    audit: AuditRecord


class Gatherer:
    """Turns events and refusals into records; counts them for the audit."""

    def __init__(self, rules: CompiledRules, origin: Origin) -> None:
        self._rules = rules
        self._origin = origin
        self._promised: list[tuple[str, int, EventId]] = []
        self._bucket_s = rules.parsing.bucket_seconds
        self._pending: list[Record] = []
        self.reasons: collections.Counter[Reason] = collections.Counter()
        self.events: collections.Counter[str] = collections.Counter()

    def event(self, event: Event, event_id: EventId, position: int) -> bool:
        """Take an event; False, and nothing is taken, if it is too large."""
        value = bytearray(event.type.header)
        value += event_id
        put_long(event.time_ms, value)
        value += event.host
        value += self._origin.source_and_file
        put_long(position, value)
        value += event.body
        if len(value) + 24 > EVENT_BYTES_MAX:
            return False
        self._take(event.type.name, event.time_ms, event_id, bytes(value))
        self.events[event.type.name] += 1
        return True

    def dead_letter(self, refusal: Rejected, raw: bytes, event_id: EventId, position: int) -> None:
        """Take what could be no event. `event_id` holds the time of `observed_at`."""
        kind, origin = self._rules.dead_letters, self._origin
        body = kind.encode(
            {
                "reason": refusal.reason.value,
                "detail": refusal.detail[:_DETAIL_CHARS_MAX],
                "claimed_type": refusal.claimed_type,
                "raw": raw,
                "range_id": bytes(origin.range_id),
                "range_start": origin.start,
                "range_end": origin.end,
                "rules": self._rules.id,
                "declared_source": origin.declared_source,
            }
        )
        value = bytearray(kind.header)
        value += event_id
        put_long(origin.observed_at_ms, value)
        value += origin.host
        value += origin.source_and_file
        put_long(position, value)
        value += body
        self._take(dead_letters.TYPE, origin.observed_at_ms, event_id, bytes(value))
        self.reasons[refusal.reason] += 1

    def flush(self) -> list[Record]:
        """The records since the last call."""
        taken, self._pending = self._pending, []
        return taken

    @property
    def pending(self) -> int:
        """How many records wait for `flush`."""
        return len(self._pending)

    def audit(self, **identity: object) -> AuditRecord:
        """The audit record; `identity`: those of its fields that are not of all origins."""
        origin = self._origin
        return AuditRecord(
            range_id=origin.range_id,
            start=origin.start,
            end=origin.end,
            observed_at_ms=origin.observed_at_ms,
            rules=self._rules.id,
            lines=len(self._promised),
            promised=promises(self._promised),
            ids=digest_of_ids(event_id for _, _, event_id in self._promised),
            **identity,  # type: ignore[arg-type]  # the callers' literal keyword arguments
        )

    def _take(self, event_type: str, time_ms: int, event_id: EventId, value: bytes) -> None:
        start_s = hour_start_s(time_ms, self._bucket_s)
        self._promised.append((event_type, start_s, event_id))
        self._pending.append(Record(event_type, RecordKey(event_id, self._origin.range_id).encode(), value, start_s))


class Parser:
    """Parses one range or batch, in slices, so that whoever drives it can do other work in between.

    Pure: equal arguments give equal slices. `slices` must be exhausted before `audit` is asked for.
    """

    def __init__(self, rules: CompiledRules, origin: Origin) -> None:
        self.gathered = Gatherer(rules, origin)

    def slices(self) -> Iterator[list[Record]]:
        """The records, some at a time."""
        raise NotImplementedError

    def audit(self) -> AuditRecord:
        """What the whole of it promises."""
        raise NotImplementedError

    def whole(self) -> ParsedRange:
        """All of it in one go."""
        records = tuple(record for part in self.slices() for record in part)
        return ParsedRange(
            records=records, lines=len(records), events=self.event_count, dead_letters=self.dead_letter_count, audit=self.audit()
        )

    @property
    def event_count(self) -> int:
        """Events so far."""
        return self.gathered.events.total()

    @property
    def dead_letter_count(self) -> int:
        """Dead letters so far."""
        return self.gathered.reasons.total()


def avro_string(text: str) -> bytes:
    """A string's Avro encoding; bytes that were no UTF-8 (surrogate escapes) become U+FFFD."""
    out = bytearray()
    put_bytes(readable(text).encode(), out)
    return bytes(out)


def readable(text: str) -> str:
    """`text` without surrogate escapes: what can be written as UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
