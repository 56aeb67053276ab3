"""Parsing of an API batch: NDJSON lines, each with the type's fields and two optional members.

    event_id     the client's id of the event, 1 to 255 characters
    event_time   Unix milliseconds or RFC 3339; default: observed_at

An invalid line becomes a dead letter and does not affect other lines. Equal arguments give equal
records.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any, Final

from hourmark.records import dead_letters
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.event_id import EventId, batch_event_id, client_event_id
from hourmark.records.host_reports import API_SOURCE
from hourmark.records.ranges import batch_range_id
from hourmark_delivery_service.parsing.compiled import CompiledRules, CompiledType
from hourmark_delivery_service.parsing.json_payload import parse_json_object
from hourmark_delivery_service.parsing.lines import check_plausible
from hourmark_delivery_service.parsing.records import (
    DETAIL_CHARS_MAX,
    ParsedEvent,
    Parser,
    RecordOrigin,
    avro_string,
)
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us

CLIENT_ID_CHARS_MAX: Final = 255
REJECTED_MAX: Final = 1000  # rejected events that an answer names
_NAME_CHARS_MAX: Final = 255
_NO_FILE: Final = b"\x00"  # the union's branch 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The metadata that identifies a batch of API events.

    A retry with the same metadata and the same body is the same batch and produces the same
    records.

    Attributes:
        event_type: Type of all events in the batch.
        client: Name of the client.
        key: Idempotency key from the client, or a random key if the client sent none.
        observed_at_ms: Time of the batch in Unix milliseconds.
        rules: Id of the rules revision (version of the declared event types) for parsing.
    """

    event_type: str
    client: str
    key: str
    observed_at_ms: int
    rules: str


@dataclasses.dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An invalid event of a batch, as reported to the client.

    Attributes:
        index: Index of the event in the batch, starting at 0: its line number, or its index in the
            JSON array.
        reason: Machine-readable reason.
        field: Name of the invalid field, or None if no single field is invalid.
        detail: Human-readable explanation, which may quote the event.
    """

    index: int
    reason: str
    field: str | None
    detail: str


class BatchParser(Parser):
    """A parser for the NDJSON body of one batch of API events.

    The id of an event is derived from its member `event_id`. If this member is absent, the id is
    derived from the client, the idempotency key, a digest of the body, and the index of the event.
    If a client reuses an idempotency key for another body by mistake, no events are lost.

    Args:
        batch: Identity of the batch.
        body: NDJSON body.
        rules: Compiled rules revision (version of the declared event types) of the batch.

    Attributes:
        rejected: The first 1000 invalid events.
        depends_on_key: Whether the id of any record depends on the idempotency key.
        depends_on_time: Whether the id of any record depends on the time of the batch.

    Raises:
        ValueError: If the body is empty, or the time of the batch is after the year 8999.
    """

    def __init__(self, batch: Batch, body: bytes, rules: CompiledRules) -> None:
        if not body:
            raise ValueError("the body holds no line")
        self._body = body if body.endswith(b"\n") else body + b"\n"
        self._batch = batch
        self._type: CompiledType = rules.types[batch.event_type]
        self._parsing = rules.parsing
        self._host = avro_string(batch.client)
        self._key = (
            f"{batch.client}\n{batch.key}\n{hashlib.blake2b(body, digest_size=16).hexdigest()}"
        )
        self.rejected: list[RejectedEvent] = []  # the first REJECTED_MAX
        self.depends_on_key = self.depends_on_time = (
            False  # whether the id of any record does, on those of the batch
        )
        origin = RecordOrigin(
            range_id=batch_range_id(
                batch.event_type, batch.key, batch.client, batch.observed_at_ms, batch.rules, body
            ),
            observed_at_ms=batch.observed_at_ms,
            host=self._host,
            source_and_file=self._host + _NO_FILE,
            declared_source=batch.client,
            start=0,
            end=self._body.count(b"\n"),
        )
        super().__init__(
            rules,
            origin,
            withholds=bool(self._type.rule.redact),
            kind="batch",
            host_id=batch.client,
            host_name=batch.client,
            file_id=batch.key,
            generation=0,
            source=API_SOURCE,
            path=batch.event_type,
        )

    def _read(self) -> Iterator[int]:
        for taken, (at, end) in enumerate(self._lines(self._body)):
            self._line(self._body[at:end], taken + self.blanks)
            yield end + 1 - at

    def _line(self, line: bytes, index: int) -> None:
        kind = self._type
        try:
            if not line.strip(b" \t\r"):
                raise Rejected(DeadLetterReason.EMPTY_LINE, "the line is empty", kind.name)
            values = parse_json_object(line)
            event_id, time_ms = self._id_and_time(values, index)
            event = ParsedEvent(kind, time_ms, self._host, kind.encode_object(values))
            self._event(event, event_id, index)
        except Rejected as refusal:
            self.depends_on_key = self.depends_on_time = True
            refusal.claimed_type = kind.name
            self._note(refusal, index)
            dead_id = batch_event_id(
                self._batch.observed_at_ms, dead_letters.TYPE, self._key, index
            )
            self._dead_letter(refusal, line, dead_id, index)

    def _note(self, refusal: Rejected, index: int) -> None:
        if len(self.rejected) < REJECTED_MAX:
            name = refusal.field or refusal.key
            field = None if name is None else name[:_NAME_CHARS_MAX]
            self.rejected.append(
                RejectedEvent(index, refusal.reason.value, field, refusal.detail[:DETAIL_CHARS_MAX])
            )

    def _id_and_time(self, values: dict[str, Any], index: int) -> tuple[EventId, int]:
        client_id, said_time = values.pop("event_id", None), values.pop("event_time", None)
        self.depends_on_time |= said_time is None
        time_ms = self._batch.observed_at_ms if said_time is None else _time_ms(said_time)
        check_plausible(time_ms, self._batch.observed_at_ms, self._parsing, self._type.name)
        if client_id is None:
            self.depends_on_key = True
            return batch_event_id(time_ms, self._type.name, self._key, index), time_ms
        if type(client_id) is not str or not 0 < len(client_id) <= CLIENT_ID_CHARS_MAX:
            detail = f"event_id must be a string of 1 to {CLIENT_ID_CHARS_MAX} characters"
            raise Rejected(DeadLetterReason.WRONG_FIELD, detail, key="event_id")
        return client_event_id(time_ms, self._type.name, client_id), time_ms


def _time_ms(value: object) -> int:
    if type(value) is int:
        return value
    micros = rfc3339_us(value.encode()) if type(value) is str else None
    if micros is None:
        detail = "event_time must be Unix milliseconds or an RFC 3339 time"
        raise Rejected(DeadLetterReason.BAD_TIMESTAMP, detail, key="event_time")
    return micros // 1000
