"""The results of parsing: Kafka records, counts, and the audit record, collected record by record."""

from __future__ import annotations

import collections
import dataclasses
import re
import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hourmark.avro.framing import ENVELOPE, put_long
from hourmark.avro.value_hash import value_hash
from hourmark.records.audit import AuditRecord, Promise, digest_ids, promises
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.event_id import SIZE, EventId
from hourmark.records.hours import hour_start_s
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import KEY_SIZE, RecordKey
from hourmark_delivery_service.message import Chunk, Messages
from hourmark_delivery_service.parsing import native
from hourmark_delivery_service.parsing.compiled import CompiledRules, CompiledType
from hourmark_delivery_service.parsing.dead_letter import withhold_payload
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.values.primitives import ENCODED_BYTES_MAX, put_bytes

_OTHER: Final = re.compile(rb"[^\r\n]")
_LETTERS: Final = bytes(byte if byte == ord("\n") else ord("x") for byte in range(256))


def skip_blank_lines(body: bytes, offset: int) -> tuple[int, int]:
    """Skip consecutive blank lines in a body, and count them.

    Args:
        body: Body to scan.
        offset: Start offset, at the beginning of a line.

    Returns:
        The offset of the first line that is not blank, and the number of blank lines before it. If
        the line at `offset` is not blank, these are `offset` and 0.
    """
    other = _OTHER.search(body, offset)
    end = body.rfind(b"\n", offset, len(body) if other is None else other.start()) + 1
    return (end, body.count(b"\n", offset, end)) if end else (offset, 0)


def count_lines(body: bytes) -> int:
    """Return the number of lines in a body.

    A last line without a line feed is counted. An empty body counts as one line.

    Args:
        body: Body to scan.
    """
    return body.count(b"\n") + (not body.endswith(b"\n"))


def max_nonblank_lines(body: bytes) -> int:
    """Return an upper bound for the number of lines in a body that are not blank.

    A line is blank if it contains only CR and LF characters.

    Args:
        body: Body to scan. Its last line may lack a line feed.
    """
    if b"\n\n" not in body and b"\r" not in body:
        return count_lines(body)
    unended = body[body.rfind(b"\n") + 1 :]
    return body.translate(_LETTERS, delete=b"\r").count(b"x\n") + (unended != b"")


_HASH: Final = struct.Struct("=Q")
_PLACE: Final = struct.Struct(
    "<II"
)  # a type's number, and the start of its hour in minutes: 4 bytes hold the year 9000
_SEED: Final = secrets.randbits(
    63
)  # random, so that no client can choose ids that are slow to compare


class PromiseAccumulator:
    """Computes the entries of the audit record for the events of one request body.

    An audit record allows consumers to verify that they have received all events. Each entry, also
    called a promise, contains the number of distinct events of one event type and hour, and
    checksums of these events.

    Args:
        types: Names of the event types. The index of a name is the type's number.
    """

    def __init__(self, types: Sequence[str]) -> None:
        """Create an accumulator without records.

        Args:
            types: Names of the event types. The index of a name is the type's number.
        """
        self._types = types
        self._ids = bytearray()
        self._places = bytearray()
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._ids) // SIZE

    def add(self, type_number: int, hour_start_s: int, event_id: EventId, value: bytes) -> None:
        """Add one Kafka record, which contains one event.

        Args:
            type_number: Number of the record's event type.
            hour_start_s: Start of the record's hour in Unix seconds.
            event_id: Id of the event.
            value: Value of the record, including the schema id.
        """
        self._ids += event_id
        self._places += _PLACE.pack(type_number, hour_start_s // 60)
        self._hashes += _HASH.pack(value_hash(event_id, value))

    def extend(self, ids: bytes, places: bytes, hashes: bytes) -> None:
        """Add records in the packed form that the native parser returns.

        Each argument is the concatenation of one fixed-size element per record, in the same order.

        Args:
            ids: Event ids.
            places: Event type and hour of each record: the number of the type and the start of the
                hour in Unix minutes, as unsigned 32-bit little-endian integers.
            hashes: Hash of each record's value, as unsigned 64-bit integers in native byte order.
        """
        self._ids += ids
        self._places += places
        self._hashes += hashes

    def places(self) -> Iterator[tuple[str, int]]:
        """Yield the place of each added record, in insertion order.

        Yields:
            Name of the record's event type, and start of its hour in Unix seconds.
        """
        for number, minute in _PLACE.iter_unpack(self._places):
            yield self._types[number], 60 * minute

    def promises(self) -> tuple[Promise, ...]:
        """Return the entries of the audit record (promises), one for each event type and hour.

        An entry contains the number of distinct events and their checksums.

        Returns:
            Entries sorted by event type and hour. Empty if no record was added.
        """
        if native.MODULE is None:
            ids = (
                EventId(bytes(self._ids[at : at + SIZE])) for at in range(0, len(self._ids), SIZE)
            )
            hashes = (value for (value,) in _HASH.iter_unpack(self._hashes))
            return promises(
                (*place, event_id, h)
                for place, event_id, h in zip(self.places(), ids, hashes, strict=True)
            )
        found = native.MODULE.promises(
            bytes(self._ids), bytes(self._places), bytes(self._hashes), _SEED
        )
        return tuple(
            sorted(
                Promise(self._types[number], 60 * minute, count, total, checksum)
                for place, count, total, checksum in found
                for number, minute in (_PLACE.unpack(place),)
            )
        )

    def digest(self) -> bytes:
        """Return an 8-byte digest of the event ids of all added records.

        The digest depends on the order of the records.
        """
        return digest_ids((self._ids,))


EVENT_BYTES_MAX: Final = (
    ENCODED_BYTES_MAX  # key and value; under Kafka's limit along the path, above any dead letter
)
SLICE_RECORDS: Final = 128  # what is parsed in one go: about two milliseconds
SLICE_BYTES: Final = 32 << 10
_SLICE_VALUE_BYTES: Final = (
    1 << 20
)  # values of a slice, at most one record more: short lines can become long values
TIME_MS_END: Final = (
    221_845_392_000_000  # 9000-01-01: where calendars are safe and ids hold the time
)

DETAIL_CHARS_MAX: Final = 500

assert [f["name"] for f in ENVELOPE] == [
    "event_id",
    "event_time",
    "host",
    "source",
    "file",
    "position",
], "as `_value` writes it"


class Slice:
    """A small portion of a parser's Kafka records, grouped by event type.

    A parser returns its results in slices, so that its caller can do other work in between.

    Attributes:
        messages: Maps each event type to its records, in line order.
        count: Number of records.
        size: Total size of the record values in bytes.
    """

    def __init__(self) -> None:
        self.messages: dict[str, Messages] = {}
        self.count = self.size = 0

    def add_messages(self, event_type: str, messages: Chunk, size: int) -> None:
        """Append records of one event type.

        Args:
            event_type: Event type of the records.
            messages: Records to append.
            size: Total size of their values in bytes. It is added to `size` of the slice.
        """
        known = self.messages.get(event_type)
        if known is None:
            known = self.messages[event_type] = Messages()
        known.add(messages)
        self.count += len(messages)
        self.size += size

    def merge(self, other: Slice) -> None:
        """Append all records of another slice to this one and add its counts.

        Args:
            other: Slice to append. It must not be used afterwards.
        """
        for event_type, messages in other.messages.items():
            for chunk in messages.chunks:
                self.add_messages(event_type, chunk, 0)
        self.size += other.size


class ParsedRecord(NamedTuple):
    """A Kafka record, without its timestamp, of an event or a dead letter.

    A dead letter is the record of a line that is not a valid event.

    Attributes:
        event_type: Event type, which determines the Kafka topic.
        key: Record key.
        value: Record value.
        hour_start_s: Start of the event's hour in Unix seconds.
    """

    event_type: str
    key: bytes
    value: bytes
    hour_start_s: int


class ParsedEvent(NamedTuple):
    """An event that was parsed from a line, before its id is assigned.

    Attributes:
        type: Event type.
        time_ms: Time of the event in Unix milliseconds.
        host: Host of the event as an encoded Avro string.
        body: Avro encoding of the fields that the event type declares.
    """

    type: CompiledType
    time_ms: int
    host: bytes
    body: bytes | bytearray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordOrigin:
    """Values that are common to all records of one byte range or batch.

    Attributes:
        range_id: Id of the range or batch.
        observed_at_ms: Observation time of the data, in Unix milliseconds.
        host: Host name as an encoded Avro string.
        source_and_file: Avro encoding of the fields `source` and `file` of every event.
        declared_source: Name of the source, or the client's name for a batch.
        start: Offset of the range's first byte in its file, or 0 for a batch.
        end: Offset after the range's last byte, or the number of lines of a batch.

    Raises:
        ValueError: If the observation time is after the year 8999.
    """

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
    """The complete result of parsing a byte range of a file, or a batch.

    `lines` always equals `events + dead_letters + blanks`.

    Attributes:
        records: Records of all events and dead letters (invalid lines), in order.
        lines: Number of lines; a multi-line record counts as one.
        events: Number of events.
        dead_letters: Number of dead letters.
        blanks: Number of blank lines, which produce no record.
        audit: Audit record with the number of events per type and hour.
    """

    records: tuple[ParsedRecord, ...]
    lines: int
    events: int
    dead_letters: int
    blanks: int
    audit: AuditRecord


class Parser:
    """Base class of parsers that convert a byte range of a file, or a batch, to Kafka records.

    The records are produced in slices, so that the caller can do other work in between. Parsing is
    deterministic: the same arguments give the same slices. An invalid line becomes a dead letter.
    The counts are complete once `slices` is exhausted.

    Attributes:
        events: Maps each event type to its number of events.
        reasons: Maps each reason to its number of dead letters.
        refused: Maps pairs of event type and reason to the number of dead letters. The event type
            is the one that the line names, or empty if it is not declared.
        blanks: Number of blank lines.
        joins_lines: Whether a record may consist of several lines.
        withholds: Whether dead letters must not contain their line, because it may be of a type
            with redaction.
    """

    def __init__(
        self, rules: CompiledRules, origin: RecordOrigin, *, withholds: bool, **identity: object
    ) -> None:
        """Create a parser for one body.

        Args:
            rules: Compiled rules revision (version of the declared event types) to parse with.
            origin: Values that are common to all records.
            withholds: Whether dead letters must not contain their line, because it may be of a type
                with redaction.
            identity: Additional fields of the audit record, such as `host_id`.
        """
        self._rules = rules
        self.withholds = withholds
        self._origin = origin
        self._identity = identity
        self._of_dead_letters: dict[str, object] = {
            "range_id": bytes(origin.range_id),
            "range_start": origin.start,
            "range_end": origin.end,
            "rules": rules.id,
            "declared_source": origin.declared_source,
        }
        self._promised = PromiseAccumulator(rules.numbered)
        self._bucket_s = rules.parsing.bucket_seconds
        self._pending = Slice()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[tuple[str, str]] = (
            collections.Counter()
        )  # by claimed type, if declared, and reason
        self.events: collections.Counter[str] = collections.Counter()
        self.blanks = 0
        self.joins_lines = False  # whether a record may be many lines, and so long

    def slices(self) -> Iterator[Slice]:
        """Parse the body step by step and yield its Kafka records in small slices.

        Each step takes about two milliseconds, so that the caller can do other work in between.
        Call this method only once per parser.

        Yields:
            Slices in line order. A slice may be empty, for example if all its lines are blank.
        """
        seen = 0
        for size in self._read():
            seen += size
            if (
                self._pending.count >= SLICE_RECORDS
                or seen >= SLICE_BYTES
                or self._pending.size >= _SLICE_VALUE_BYTES
            ):
                yield self._pending
                self._pending, seen = Slice(), 0
        if self._pending.count:
            yield self._pending

    def max_records(self, body: bytes) -> int:
        """Return an upper bound for the number of Kafka records that parsing a body produces.

        The bound is based on the number of lines. Blank lines are excluded if the parser version
        produces no record for them.

        Args:
            body: Body to be parsed.
        """
        return (max_nonblank_lines if self._rules.parser.counts_blanks else count_lines)(body)

    def audit(self) -> AuditRecord:
        """Return the audit record of the whole body.

        An audit record contains the number of events for each event type and hour. Call this method
        only after `slices` is exhausted. Before that, the record is incomplete.
        """
        origin, promised = self._origin, self._promised.promises()
        counts_blanks = self._rules.parser.counts_blanks
        if not counts_blanks:  # the schema of these records has no checksums
            promised = tuple(dataclasses.replace(p, checksum=None) for p in promised)
        return AuditRecord(
            range_id=origin.range_id,
            start=origin.start,
            end=origin.end,
            observed_at_ms=origin.observed_at_ms,
            rules=self._rules.id,
            lines=len(self._promised) + self.blanks,
            promised=promised,
            ids=self._promised.digest(),
            blanks=self.blanks if counts_blanks else None,
            **self._identity,  # type: ignore[arg-type]  # the subclasses' literal keyword arguments
        )

    def parse_all(self) -> ParsedRange:
        """Parse the whole body at once and return the complete result.

        Use this method in place of `slices` if the caller does not need to do other work in
        between. Call it only once per parser.

        Returns:
            All records in line order, their counts, and the audit record.
        """
        everything = Slice()
        for part in self.slices():
            everything.merge(part)
        of_type = {
            event_type: iter(messages) for event_type, messages in everything.messages.items()
        }
        records = tuple(
            ParsedRecord(event_type, one["key"], one["value"], start_s)
            for event_type, start_s in self._promised.places()
            for one in (next(of_type[event_type]),)
        )
        audit = self.audit()
        return ParsedRange(
            records=records,
            lines=audit.lines,
            events=self.event_count,
            dead_letters=self.dead_letter_count,
            blanks=self.blanks,
            audit=audit,
        )

    @property
    def declared_source(self) -> str:
        """Return the name of the body's source, for use as a metric label.

        Returns an empty string if the source of a byte range is not declared. The source of a batch
        of API events is always `api`.
        """
        source = str(self._identity["source"])
        return source if source in self._rules.sources or self._identity["kind"] == "batch" else ""

    @property
    def event_count(self) -> int:
        """Return the number of valid events parsed so far, over all event types."""
        return self.events.total()

    @property
    def dead_letter_count(self) -> int:
        """Return the number of dead letters so far, over all reasons.

        A dead letter is the record of a line that is not a valid event.
        """
        return self.reasons.total()

    def _read(self) -> Iterator[int]:
        # Subclasses take each line by `_event` or `_dead_letter`, and yield its size.
        raise NotImplementedError

    def _lines(self, body: bytes) -> Iterator[tuple[int, int]]:
        at = 0
        while (at := self._after_blanks(body, at)) < len(body):
            end = body.index(b"\n", at)
            yield at, end
            at = end + 1

    def _after_blanks(self, body: bytes, at: int) -> int:
        if at < len(body) and body[at] in b"\r\n" and self._rules.parser.counts_blanks:
            at, blanks = skip_blank_lines(body, at)
            self.blanks += blanks
        return at

    def _event(self, event: ParsedEvent, event_id: EventId, position: int) -> None:
        value = self._value(event, event_id, position)
        if len(value) + KEY_SIZE > EVENT_BYTES_MAX:
            raise Rejected(
                DeadLetterReason.EVENT_TOO_LARGE,
                "the encoded event is over Kafka's message limit",
                event.type.name,
            )
        self._take(event, event_id, value)
        self.events[event.type.name] += 1

    def _dead_letter(self, refusal: Rejected, raw: bytes, event_id: EventId, position: int) -> None:
        # its frames hold it and all of the range: a circle that only the collector would end
        refusal.__traceback__ = None
        if self.withholds:
            refusal, raw = withhold_payload(refusal, raw, self._rules.types)
        kind, origin, reason = self._rules.dead_letters, self._origin, refusal.reason.value
        values = {
            "reason": reason,
            "detail": refusal.detail[:DETAIL_CHARS_MAX],
            "claimed_type": refusal.claimed_type,
            "raw": raw,
            **self._of_dead_letters,
        }
        for name in self._rules.undeclared:
            del values[name]
        body = kind.encode_object(values)
        assert len(body) < ENCODED_BYTES_MAX, (
            "a line and what is said of it are below the limit, so nothing was cut off"
        )
        event = ParsedEvent(kind, origin.observed_at_ms, origin.host, body)
        self._take(event, event_id, self._value(event, event_id, position))
        self.reasons[reason] += 1
        claimed = refusal.claimed_type or ""
        self.refused[claimed if claimed in self._rules.types else "", reason] += 1

    def _value(self, event: ParsedEvent, event_id: EventId, position: int) -> bytes:
        value = bytearray(event.type.header)
        value += event_id
        put_long(event.time_ms, value)
        value += event.host
        value += self._origin.source_and_file
        put_long(position, value)
        value += event.body
        return bytes(value)

    def _take(self, event: ParsedEvent, event_id: EventId, value: bytes) -> None:
        event_type, start_s = event.type.name, hour_start_s(event.time_ms, self._bucket_s)
        self._promised.add(self._rules.numbers[event_type], start_s, event_id, value)
        message = {"key": RecordKey(event_id, self._origin.range_id).encode(), "value": value}
        self._pending.add_messages(event_type, [message], len(value))


def avro_string(text: str) -> bytes:
    """Return the Avro encoding of a string: its length in bytes, followed by its UTF-8 encoding.

    Surrogate escapes, which represent undecodable bytes, are replaced with U+FFFD.

    Args:
        text: String to encode.
    """
    out = bytearray()
    put_bytes(replace_surrogates(text).encode(), out)
    return bytes(out)


def replace_surrogates(text: str) -> str:
    """Replace surrogate escapes in a string with U+FFFD, so that it can be encoded as UTF-8.

    Python uses surrogate escapes for undecodable bytes, for example in file names.

    Args:
        text: String that may contain surrogate escapes.

    Returns:
        The changed string. A string without surrogate escapes is returned unchanged.
    """
    return text.encode(errors="surrogateescape").decode(errors="replace")
