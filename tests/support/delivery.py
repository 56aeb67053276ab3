"""Stands where the delivery service stands, with the faults a test plants: events without promises,
promises without events.

It writes real events, audit records and reports to a real cluster, by the contracts of `hourmark`,
and nothing else.
"""

from __future__ import annotations

import dataclasses
import io
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
from confluent_kafka import Producer
from tests.support.records import audit_record, host_report

from hourmark.avro.framing import framing_header
from hourmark.avro.value_hash import value_hash
from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.kafka.clients import client_settings
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.records import dead_letters
from hourmark.records.audit import promises
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.host_reports import API_SOURCE, SourceReport
from hourmark.records.hours import hour_start_s
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_declare.servers import read_applied_rules

HOST_ID = "a" * 32
FILE_ID = "f" * 32
SERVICE_ID = "5" * 32


@dataclasses.dataclass(frozen=True)
class Range:
    """Events of one range, as delivered."""

    range_id: RangeId
    start: int
    events: tuple[tuple[str, EventId, bytes], ...]  # type, id, framed value


class DirectDelivery:
    """Makes ranges of events of types that have one field, `number` (long), and delivers them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        rules = read_applied_rules(config)
        assert rules is not None
        self._schema_ids = {name: t.schema_id for name, t in rules.types.items()}
        self._schemas = {
            name: fastavro.parse_schema(t.declaration.schema()) for name, t in rules.types.items()
        }
        self._ids = LineIds(HOST_ID, FILE_ID, 0)
        self._offset = 0
        self.reconnect()

    def reconnect(self) -> None:
        """A new producer: one that saw a topic vanish refuses it for half a minute, though it is
        there again.
        """
        self._producer = Producer(
            client_settings(self._config.kafka.edge, acks="all", enable_idempotence=True)
        )

    def make(self, event_type: str, times_ms: Sequence[int]) -> Range:
        """A range of one event per time, at the next positions of the file."""
        start, events = self._offset, []
        for time_ms in times_ms:
            line = f"{event_type} {time_ms} {self._offset}".encode()
            event_id = self._ids.make(time_ms, self._offset, line)
            events.append((event_type, event_id, self._encode(event_type, event_id, time_ms)))
            self._offset += len(line) + 1
        return Range(RangeId(uuid.uuid4().bytes[:8]), start, tuple(events))

    def make_letter(self, time_ms: int, reason: str, detail: str) -> Range:
        """A range of one dead letter, at the next position of the file."""
        line, start, range_id = b"no event", self._offset, RangeId(uuid.uuid4().bytes[:8])
        event_id = self._ids.make(time_ms, start, line)
        own = {
            "reason": reason,
            "detail": detail,
            "claimed_type": None,
            "raw": line,
            "range_id": bytes(range_id),
            "range_start": start,
            "range_end": start + len(line) + 1,
            "rules": "1-0",
            "declared_source": "app",
        }
        value = self._encode(dead_letters.TYPE, event_id, time_ms, own)
        self._offset += len(line) + 1
        return Range(range_id, start, ((dead_letters.TYPE, event_id, value),))

    def recut(self, delivered: Range) -> Range:
        """The same events in a range with another id, as after a lost checkpoint."""
        return dataclasses.replace(delivered, range_id=RangeId(uuid.uuid4().bytes[:8]))

    def send_events(self, sent: Range, *, leave_out: int = 0) -> None:
        """Append the events, but for the last `leave_out`."""
        kept = sent.events[: len(sent.events) - leave_out]
        for event_type, event_id, value in kept:
            self._producer.produce(
                events_topic(event_type),
                key=RecordKey(event_id, sent.range_id).encode(),
                value=value,
            )
        assert self._producer.flush(30) == 0

    def send_audit(self, sent: Range) -> None:
        """Append the promise of the whole range."""
        seconds = self._config.parsing.bucket_seconds
        record = audit_record(
            range_id=sent.range_id,
            host_id=HOST_ID,
            host_name="host",
            file_id=FILE_ID,
            start=sent.start,
            end=self._offset,
            observed_at_ms=0,
            rules="1-0",
            lines=len(sent.events),
            promised=promises(
                (t, hour_start_s(i.time_ms, seconds), i, value_hash(i, v))
                for t, i, v in sent.events
            ),
            blanks=0,
        )
        self._produce(AUDIT, bytes(sent.range_id), record.encode())

    def deliver(self, sent: Range) -> None:
        """Events, then the promise: as an acknowledged range."""
        self.send_events(sent)
        self.send_audit(sent)

    def report(
        self,
        caught_up_at_ms: int,
        *,
        host_id: str = SERVICE_ID,
        source: str = API_SOURCE,
        goodbye: bool = False,
    ) -> None:
        """A service's report (or, with another source, a tailer's), received now."""
        kind = "service" if source == API_SOURCE else "tailer"
        sources = (SourceReport(source, caught_up_at_ms, 0, 0),)
        now_ms = SystemClock().now_ms()
        report = host_report(
            now_ms, host_id=host_id, host_name="host", kind=kind, goodbye=goodbye, sources=sources
        )
        self._produce(HOSTS, host_id.encode(), report.encode())

    def _produce(self, topic: str, key: bytes, datum: bytes) -> None:
        self._producer.produce(topic, key=key, value=framing_header(1) + datum)
        assert self._producer.flush(30) == 0

    def _encode(
        self, event_type: str, event_id: EventId, time_ms: int, own: Mapping[str, Any] | None = None
    ) -> bytes:
        row: dict[str, Any] = {
            "event_id": bytes(event_id),
            "event_time": time_ms,
            "host": "host",
            "source": "/log",
            "file": {"id": FILE_ID, "generation": 0},
            "position": self._offset,
            "number": self._offset,
            **(own or {}),
        }
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schemas[event_type], row)
        return framing_header(self._schema_ids[event_type]) + buffer.getvalue()
