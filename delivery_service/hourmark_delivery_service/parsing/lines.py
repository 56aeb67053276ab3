"""Parsing of single lines into events: type, time, host and fields.

This module handles the most common formats with the least work: RFC 5424 with a JSON object or
text, and patterns, for types whose fields are filled by name. `messages` handles all other formats.
"""

from __future__ import annotations

from hourmark.config.groups import ParsingSettings
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import Source
from hourmark_delivery_service.parsing.compiled import CompiledRules, CompiledType
from hourmark_delivery_service.parsing.json_payload import parse_json_object
from hourmark_delivery_service.parsing.records import ParsedEvent, avro_string
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.rfc5424 import (
    BOM,
    NIL,
    Rfc5424Line,
    parse_rfc5424_line,
)
from hourmark_delivery_service.parsing.time_and_host import time_context
from hourmark_delivery_service.parsing.times.timestamps import SYSLOG_FRACTION_DIGITS, rfc3339_us


class LineReader:
    """Base class of parsers that convert the lines in one byte range of a file to events.

    Each subclass supports certain source formats, such as RFC 5424 or free text.

    Args:
        byte_range: Byte range of a file that contains the lines.
        rules: Compiled rules revision (version of the declared event types).
        source: Declaration of the source (kind of log file) of the range.

    Attributes:
        default_time_ms: Time of events without a time in their line, in Unix milliseconds.
    """

    def __init__(self, byte_range: ByteRange, rules: CompiledRules, source: Source) -> None:
        self._source = source
        self._types = {name: rules.types[name] for name in source.types if name in rules.types}
        self._catch_all = (
            rules.types.get(source.catch_all) if source.catch_all is not None else None
        )
        self._parsing = rules.parsing
        self._observed_at_ms = byte_range.observed_at_ms
        self.default_time_ms = (
            byte_range.observed_at_ms
        )  # the time of a record without one; set for each record if it differs
        self._host = avro_string(byte_range.host_name)

    def read(self, line: bytes) -> ParsedEvent:
        """Parse a line into an event without an id.

        Args:
            line: Line without its line feed.

        Raises:
            Rejected: If the line is not a valid event. The caller stores the line as a dead letter.
        """
        raise NotImplementedError

    def _otherwise(self, line: bytes, refusal: Rejected) -> ParsedEvent:
        # The source's catch_all type takes the whole line at its observed time; without such a type
        # the line is rejected.
        kind = self._catch_all
        if kind is None or kind.line_field is None:
            raise refusal
        check_plausible(self.default_time_ms, self._observed_at_ms, self._parsing, kind.name)
        return ParsedEvent(
            kind, self.default_time_ms, self._host, kind.encode_texts({kind.line_field.name: line})
        )


class Rfc5424Reader(LineReader):
    """A parser for RFC 5424 lines, whose MSGID names the event type.

    The declaration of the event type determines whether the message is JSON or text. A line that is
    not valid RFC 5424, or whose type is not declared, becomes an event of the source's catch-all
    type. It is rejected if the source has no such type.

    Args:
        byte_range: Byte range of a file that contains the lines.
        rules: Compiled rules revision (version of the declared event types).
        source: Declaration of the source (kind of log file) of the range.
    """

    def __init__(self, byte_range: ByteRange, rules: CompiledRules, source: Source) -> None:
        super().__init__(byte_range, rules, source)
        self._by_msgid = {name.encode(): t for name, t in self._types.items()}
        self._hosts: dict[bytes, bytes] = {NIL: self._host}

    def read(self, line: bytes) -> ParsedEvent:
        parts = parse_rfc5424_line(line)
        if parts is None:
            return self._otherwise(line, not_rfc5424_rejection())
        kind = self._by_msgid.get(parts.msgid)
        if kind is None:
            return self._otherwise(
                line, unknown_type_rejection(parts.msgid.decode("ascii"), self._source)
            )
        time_ms = self._time_ms(parts.timestamp, kind)
        check_plausible(time_ms, self._observed_at_ms, self._parsing, kind.name)
        try:
            body = _body(kind, parts)
        except Rejected as refusal:
            refusal.claimed_type = kind.name
            raise
        return ParsedEvent(kind, time_ms, self._host_of(parts.host), body)

    def _time_ms(self, timestamp: bytes, kind: CompiledType) -> int:
        if timestamp == NIL:
            if kind.rule.time == "observed":
                return self.default_time_ms
            raise Rejected(DeadLetterReason.NO_TIMESTAMP, "the TIMESTAMP is '-'", kind.name)
        micros = rfc3339_us(timestamp, SYSLOG_FRACTION_DIGITS)
        if micros is None:
            raise Rejected(
                DeadLetterReason.BAD_TIMESTAMP,
                f"the TIMESTAMP {quote_text(timestamp)} is not of RFC 5424's form",
                kind.name,
            )
        return micros // 1000

    def _host_of(self, host: bytes) -> bytes:
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = avro_string(host.decode("ascii"))
        return known


class PatternReader(LineReader):
    """A parser for free text that uses the first event type whose pattern matches the whole line.

    The event types of the source are tried in declaration order. A line that matches no pattern
    becomes an event of the source's catch-all type. It is rejected if the source has no such type.

    Args:
        byte_range: Byte range of a file that contains the lines.
        rules: Compiled rules revision (version of the declared event types).
        source: Declaration of the source (kind of log file) of the range.
    """

    def __init__(self, byte_range: ByteRange, rules: CompiledRules, source: Source) -> None:
        super().__init__(byte_range, rules, source)
        self._zone_name = byte_range.zone
        self._time_context = time_context(byte_range, rules)

    def read(self, line: bytes) -> ParsedEvent:
        for kind in self._types.values():
            texts = kind.match(line)
            if texts is not None:
                time_ms = self._time_ms(texts.get("time"), kind)
                check_plausible(time_ms, self._observed_at_ms, self._parsing, kind.name)
                return ParsedEvent(kind, time_ms, self._host, kind.encode_texts(texts))
        tried = ", ".join(self._types)
        unusable = "".join(
            f"; {kind.problem}" for kind in self._types.values() if kind.problem is not None
        )
        return self._otherwise(
            line,
            Rejected(
                DeadLetterReason.NO_PATTERN,
                f"no pattern fits the whole line; tried: {tried}{unusable}",
            ),
        )

    def _time_ms(self, text: bytes | None, kind: CompiledType) -> int:
        if text is None or kind.time_format is None:
            if kind.rule.time == "observed":
                return self.default_time_ms
            raise Rejected(
                DeadLetterReason.NO_TIMESTAMP,
                "the group `time` took no part in the match",
                kind.name,
            )
        time_ms = kind.time_format.read_ms(text, self._time_context)
        if time_ms is None:
            zone = (
                ""
                if self._time_context.zone is not None
                else f" (there is no time zone {self._zone_name!r:.80})"
            )
            detail = f"{quote_text(text)} does not have the format {kind.rule.time_format}{zone}"
            raise Rejected(DeadLetterReason.BAD_TIMESTAMP, detail, kind.name)
        return time_ms


def not_rfc5424_rejection() -> Rejected:
    """Create the exception for a line that is not valid RFC 5424.

    The exception is returned, not raised. Its reason is `NOT_RFC5424`.
    """
    return Rejected(DeadLetterReason.NOT_RFC5424, "the line is not of the form of RFC 5424")


def unknown_type_rejection(name: str, source: Source) -> Rejected:
    """Create the exception for a line whose event type is not declared for its source.

    The exception is returned, not raised. Its reason is `UNKNOWN_TYPE`, and its message lists the
    types of the source.

    Args:
        name: Event type that the line names.
        source: Declaration of the source (kind of log file) of the line.
    """
    detail = (
        f"the source {source.name} carries no type {name}; its types are {', '.join(source.types)}"
    )
    return Rejected(DeadLetterReason.UNKNOWN_TYPE, detail, name)


def check_plausible(
    time_ms: int, observed_at_ms: int, parsing: ParsingSettings, event_type: str
) -> None:
    """Check that the time of an event is within the configured limits.

    Args:
        time_ms: Time of the event in Unix milliseconds.
        observed_at_ms: Observation time of the data, in Unix milliseconds.
        parsing: Limits on how long an event may be after the observation (`future_seconds`) or
            before it (`lateness_seconds`).
        event_type: Event type for the error.

    Raises:
        Rejected: If the time exceeds a limit or is before 1970.
    """
    if time_ms > observed_at_ms + parsing.future_seconds * 1000:
        ahead_s = (time_ms - observed_at_ms) // 1000
        raise Rejected(
            DeadLetterReason.FUTURE,
            f"the event's time is {ahead_s} s ahead of {observed_at_ms} ms",
            event_type,
        )
    if time_ms < observed_at_ms - parsing.lateness_seconds * 1000 or time_ms < 0:
        behind_s = (observed_at_ms - time_ms) // 1000
        raise Rejected(
            DeadLetterReason.TOO_LATE,
            f"the event's time is {behind_s} s before {observed_at_ms} ms",
            event_type,
        )


def _body(kind: CompiledType, parts: Rfc5424Line) -> bytearray:
    if kind.rule.payload == "json":
        return kind.encode_object(parse_json_object(parts.msg))
    field = kind.line_field
    if field is None:
        raise Rejected(
            DeadLetterReason.MISSING_FIELD,
            kind.problem or f"{kind.name} has no line.field to take the text",
        )
    msg = parts.msg
    if msg.startswith(BOM) and not field.takes_bytes:
        msg = msg[len(BOM) :]
    return kind.encode_texts({field.name: msg})


def quote_text(text: bytes) -> str:
    """Quote the first 80 bytes of a text for use in error messages.

    Args:
        text: Text to quote.

    Returns:
        The text in quotes. Bytes that are not printable ASCII are escaped as in Python literals.
    """
    return repr(text[:80])[1:]
