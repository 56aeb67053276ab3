"""Parsing of lines in any source format and payload format: header, message, time, host, fields.

It also covers what `lines` parses with less work: RFC 5424 with JSON or text, and patterns, for
types with simple declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import Source
from hourmark_delivery_service.parsing.compiled import CompiledRules, CompiledType
from hourmark_delivery_service.parsing.forms import ParsedMessage
from hourmark_delivery_service.parsing.lines import (
    LineReader,
    check_plausible,
    not_rfc5424_rejection,
    quote_text,
    unknown_type_rejection,
)
from hourmark_delivery_service.parsing.records import ParsedEvent
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.forms import parse_syslog_forms
from hourmark_delivery_service.parsing.syslog.header import (
    SyslogHeader,
    header_time_ms,
    not_syslog_rejection,
    parse_rfc5424,
    parse_syslog_line,
)
from hourmark_delivery_service.parsing.time_and_host import HostEncoder, time_context
from hourmark_delivery_service.parsing.times.timestamps import (
    FRACTION_DIGITS_MAX,
    SYSLOG_FRACTION_DIGITS,
)


class MessageReader(LineReader):
    """A parser for log lines in all source formats and payload formats.

    The source formats are RFC 5424, general syslog, and free text. In RFC 5424 lines, the MSGID
    names the event type. In the other formats, the types of the source are tried in declaration
    order, and the first type whose payload format matches the line is used.

    Args:
        byte_range: Byte range of a file that contains the lines.
        rules: Compiled rules revision (version of the declared event types).
        source: Declaration of the source (kind of log file) of the range.
    """

    def __init__(self, byte_range: ByteRange, rules: CompiledRules, source: Source) -> None:
        super().__init__(byte_range, rules, source)
        self._context = time_context(byte_range, rules)
        self._zone_name = byte_range.zone
        self._hosts = HostEncoder(byte_range, source, rules.parser)
        self._take_apart = (
            parse_syslog_forms if rules.parser.reads_syslog_forms else parse_syslog_line
        )
        self._tried = tuple(
            (kind, frozenset(name.encode() for name in kind.rule.programs))
            for kind in self._types.values()
        )
        self._fraction_digits_max = (
            SYSLOG_FRACTION_DIGITS if source.format == "rfc5424" else FRACTION_DIGITS_MAX
        )

    def read(self, line: bytes) -> ParsedEvent:
        """Parse a line into an event.

        A line that matches no declared type becomes an event of the source's catch-all type, if the
        source has one.

        Args:
            line: Line without its line feed.

        Raises:
            Rejected: If the line is not a valid event.
        """
        if self._source.format == "free":
            return self._first_that_fits(line, None, line)
        if self._source.format == "rfc5424":
            return self._named(line)
        parts = self._take_apart(line)
        if parts is None:
            return self._otherwise(line, not_syslog_rejection())
        return self._first_that_fits(line, parts.header, parts.message)

    def _named(self, line: bytes) -> ParsedEvent:
        parts = parse_rfc5424(line)
        if parts is None:
            return self._otherwise(line, not_rfc5424_rejection())
        name = (parts.header.msgid or b"-").decode("ascii")
        kind = self._types.get(name)
        if kind is None:
            return self._otherwise(line, unknown_type_rejection(name, self._source))
        try:
            return self._event(kind, kind.parse_message(parts.message), parts.header)
        except Rejected as refusal:
            refusal.claimed_type = kind.name
            raise

    def _first_that_fits(
        self, line: bytes, header: SyslogHeader | None, message: bytes
    ) -> ParsedEvent:
        refusals: list[Rejected] = []
        for kind, programs in self._tried:
            if programs and (header is None or header.program not in programs):
                continue
            try:
                said = kind.parse_message(message)
            except Rejected as refusal:
                refusal.claimed_type = kind.name
                refusals.append(refusal)
                continue
            return self._event(kind, said, header)
        return self._otherwise(line, _none_fits(refusals, self._types))

    def _event(
        self, kind: CompiledType, said: ParsedMessage, header: SyslogHeader | None
    ) -> ParsedEvent:
        time_ms = self._time_ms(kind, said, header)
        check_plausible(time_ms, self._observed_at_ms, self._parsing, kind.name)
        host = self._hosts.encode(said.host or (header.host if header is not None else None), kind)
        return ParsedEvent(kind, time_ms, host, kind.encode_message(said, header))

    def _time_ms(self, kind: CompiledType, said: ParsedMessage, header: SyslogHeader | None) -> int:
        text, time_ms = said.time, None
        if text is not None and kind.time_format is not None:
            time_ms, form = (
                kind.time_format.read_ms(text, self._context),
                kind.rule.time_format or "rfc3339",
            )
        elif header is not None and header.time is not None:
            text, form = header.time, "of a header of syslog"
            if header.parsed_time is not None:
                time_ms = header.parsed_time.read_ms(self._context)
            else:
                time_ms = header_time_ms(text, self._context, self._fraction_digits_max)
        elif kind.rule.time == "observed":
            return self.default_time_ms
        else:
            raise Rejected(
                DeadLetterReason.NO_TIMESTAMP,
                "the line has no time, neither in its header nor in its message",
                kind.name,
            )
        if time_ms is None:
            zone = (
                ""
                if self._context.zone is not None
                else f" (there is no time zone {self._zone_name!r:.80})"
            )
            raise Rejected(
                DeadLetterReason.BAD_TIMESTAMP,
                f"{quote_text(text)} does not have the format {form}{zone}",
                kind.name,
            )
        return time_ms


def _none_fits(refusals: Sequence[Rejected], types: Iterable[str]) -> Rejected:
    if len(refusals) == 1:
        return refusals[0]
    reasons = "; ".join(f"{refusal.claimed_type}: {refusal.detail}" for refusal in refusals)
    return Rejected(
        DeadLetterReason.NO_PATTERN,
        f"no type fits the message; {reasons or 'none takes its program: ' + ', '.join(types)}",
    )
