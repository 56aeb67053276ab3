"""The expected event or dead letter of a source line, derived from the type declarations."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final

from hourmark_verify.judge import rfc5424, syslog_headers
from hourmark_verify.judge.buckets import DEAD_LETTERS
from hourmark_verify.judge.container_logs import ContainerRecord
from hourmark_verify.judge.declared_types import DeclaredType
from hourmark_verify.judge.expectations import (
    ApiEvent,
    Expectations,
    FileExpectation,
    TypeExpectation,
)
from hourmark_verify.judge.syslog_headers import ParsedHeader
from hourmark_verify.judge.values import LineRejected

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEvent:
    """The event or dead letter that is expected for a source line.

    A dead letter is the record of a line that cannot be converted to an event.

    Attributes:
        type: Event type, or the type of dead letters.
        time_ms: Event time in Unix milliseconds. None if the line has no time. The event then has
            the observation time of its byte range (about when the range was first sent).
        host: Host of the event. None if the line names no host. The event then has the host name of
            the tailer that read the file.
        fields: Values by field name.
        detail: Text that the detail of a dead letter must contain; may be empty.
    """

    type: str
    time_ms: int | None
    host: str | None
    fields: dict[str, Any]
    detail: str = ""

    def __str__(self) -> str:
        return (
            f"a dead letter ({self.fields['reason']})"
            if self.type == DEAD_LETTERS
            else f"an event of {self.type}"
        )


class LineInterpreter:
    """A parser that derives the expected event or dead letter from each source line.

    It shares no code with the delivery service, whose results it verifies. It applies one revision
    of the event type declarations.

    Args:
        expectations: Input of the verification. It contains the limits for event times, and the
            version of the delivery service's parser whose results are expected.
        types: Type declarations of the revision, by type name.

    Attributes:
        types: Event types by name, as declared. They do not include field values that the tailer's
            settings define for some files.
    """

    def __init__(self, expectations: Expectations, types: Mapping[str, TypeExpectation]) -> None:
        self._expectations = expectations
        # the time of a line without a time; None for that of its range
        self._default_ms: int | None = None
        self._rules, self._types_by_settings = types, dict[str, dict[str, DeclaredType]]()
        self.types = self._types_with({})

    def _types_with(self, fields: Mapping[str, str]) -> dict[str, DeclaredType]:
        key = json.dumps(fields, sort_keys=True)
        if key not in self._types_by_settings:
            self._types_by_settings[key] = {
                name: DeclaredType(name, rule, fields) for name, rule in self._rules.items()
            }
        return self._types_by_settings[key]

    def interpret(
        self,
        file: FileExpectation,
        line: bytes,
        part: str,
        observed: tuple[int, int],
        container: ContainerRecord | None = None,
    ) -> ExpectedEvent:
        """Return the expected event or dead letter for a source line.

        A dead letter is expected for a line that cannot be converted to an event, because it
        matches no type or has an invalid time or field. No error is raised for such lines.

        Args:
            file: Settings of the source file.
            line: Line, or piece of a line that exceeds the size limit, without its line feed.
            part: "lines" for a whole line, "chunk" for a piece, "last-chunk" for the last piece.
            observed: First and last possible time of delivery, in Unix milliseconds.
            container: Record of the container log that has this line; None for other files.
        """
        self._default_ms = None if container is None else container.time_ms
        if container is not None:
            file = file.model_copy(update={"fields": {**file.fields, "stream": container.stream}})
        try:
            if container is not None and self._default_ms is None:
                raise LineRejected("bad_timestamp" if container.stream else "not_cri")
            if part != "lines":
                raise LineRejected("line_too_long", part)
            if not line:
                raise LineRejected("empty_line")
            if self._is_general(file):
                return self._interpret_general(file, line, observed)
            return (
                self._interpret_rfc5424(file, line, observed)
                if file.form == "rfc5424"
                else self._interpret_free(file, line, observed)
            )
        except LineRejected as rejected:
            return _dead_letter(rejected, line)

    def _is_general(self, file: FileExpectation) -> bool:
        # whether it needs more than RFC 5424 with JSON or text, or patterns
        carried = [self.types[name].rule for name in file.possible_types(self.types)]
        return (
            file.form == "syslog"
            or file.hosts != "line"
            or not all(rule.is_plain for rule in carried)
            or (
                file.form == "free"
                and any(rule.content in ("json", "msg-bytes") for rule in carried)
            )
        )

    def _interpret_general(
        self, file: FileExpectation, line: bytes, observed: tuple[int, int]
    ) -> ExpectedEvent:
        header = (
            None
            if file.form == "free"
            else syslog_headers.parse_header(
                line, accept_older=file.form == "syslog", parser=self._expectations.parser
            )
        )
        if file.form != "free" and header is None:
            return self._fall_back(
                file,
                line,
                LineRejected("not_syslog" if file.form == "syslog" else "not_rfc5424"),
                observed,
            )
        message = line if header is None else header.message.encode("latin-1")
        carried = file.possible_types(self.types)
        if file.form == "rfc5424" and header is not None:
            named = header.parts.get("msgid", "-")
            if named not in carried:
                return self._fall_back(
                    file, line, LineRejected("unknown_type", named, named), observed
                )
            with _claimed_by(declared := self._types_with(file.fields)[named]):
                return self._build_event(
                    file, declared, declared.parse_message(message), header, observed
                )
        rejected: list[LineRejected] = []
        for declared in (self._types_with(file.fields)[name] for name in carried):
            if declared.rule.programs and (
                header is None or header.parts.get("program") not in declared.rule.programs
            ):
                continue
            with _claimed_by(declared):
                try:
                    values = declared.parse_message(message)
                except LineRejected as error:
                    error.claimed_type = declared.name
                    rejected.append(error)
                    continue
                return self._build_event(file, declared, values, header, observed)
        return self._fall_back(
            file, line, rejected[0] if len(rejected) == 1 else LineRejected("no_pattern"), observed
        )

    def _build_event(
        self,
        file: FileExpectation,
        declared: DeclaredType,
        values: dict[str, Any],
        header: ParsedHeader | None,
        observed: tuple[int, int],
    ) -> ExpectedEvent:
        rule = declared.rule
        time, host = (
            _as_text(values.get(name)) if name is not None else None
            for name in (declared.time_key, rule.host_field)
        )
        latest_ms = observed[1] + self._expectations.future_seconds * 1000
        time_ms = None
        if time is not None or (header is not None and header.time is not None):
            if time is not None:
                time_ms = parse_time_ms(time, rule.time_format or "rfc3339")
            elif header is not None and header.when is not None:
                time_ms = syslog_headers.resolve_time_ms(header.when, file.zone, latest_ms)
            elif header is not None and header.time is not None:
                time_ms = syslog_headers.header_time_ms(
                    header.time, file.zone, latest_ms, file.form == "rfc5424"
                )
            if time_ms is None:
                raise LineRejected("bad_timestamp")
        time_ms = self._check_time(time_ms, observed, declared)
        host = host or (header.host if header is not None else None)
        if file.hosts == "line" and host is not None and len(host) > 255:
            raise LineRejected
        errors = "backslashreplace" if self._expectations.parser >= 3 else "replace"
        own = host if file.hosts == "line" and host and host != "-" else None
        readable = None if own is None else own.encode("latin-1").decode(errors=errors)
        return ExpectedEvent(
            type=declared.name,
            time_ms=time_ms,
            host=readable,
            fields=declared.fields_from_values(values, header),
        )

    def interpret_api_event(self, row: ApiEvent) -> ExpectedEvent:
        """Return the expected event or dead letter for an event that was sent to the HTTP API.

        A dead letter is expected if the event type is unknown, or if the fields do not match it.

        Args:
            row: The event as its client sent it.
        """
        try:
            if row.type not in self.types:
                raise LineRejected("unknown_type")
            return ExpectedEvent(
                type=row.type,
                time_ms=row.time_ms,
                host=row.client,
                fields=self.types[row.type].fields_from_object(row.fields),
            )
        except LineRejected as rejected:
            return _dead_letter(rejected, b"")

    def _interpret_rfc5424(
        self, file: FileExpectation, line: bytes, observed: tuple[int, int]
    ) -> ExpectedEvent:
        parts = rfc5424.split_rfc5424(line)
        if parts is None:
            return self._fall_back(file, line, LineRejected("not_rfc5424", "RFC 5424"), observed)
        if parts.msgid not in file.possible_types(self.types):
            return self._fall_back(
                file, line, LineRejected("unknown_type", parts.msgid, parts.msgid), observed
            )
        declared = self._types_with(file.fields)[parts.msgid]
        with _claimed_by(declared):
            if parts.time != "-" and parts.time_ms is None:
                raise LineRejected("bad_timestamp", parts.time)
            time_ms = self._check_time(parts.time_ms, observed, declared)
            host = None if parts.host == "-" else parts.host
            return ExpectedEvent(
                type=declared.name,
                time_ms=time_ms,
                host=host,
                fields=declared.fields_from_message(parts.message),
            )

    def _interpret_free(
        self, file: FileExpectation, line: bytes, observed: tuple[int, int]
    ) -> ExpectedEvent:
        carried = file.possible_types(self.types)
        for declared in (self._types_with(file.fields)[name] for name in carried):
            if (found := declared.match_pattern(line)) is not None:
                time, texts = found
                with _claimed_by(declared):
                    time_ms = self._check_time(
                        None if time is None else _pattern_time_ms(time, declared),
                        observed,
                        declared,
                    )
                    return ExpectedEvent(
                        type=declared.name,
                        time_ms=time_ms,
                        host=None,
                        fields=declared.fields_from_texts(texts),
                    )
            if declared.rule.pattern is None:
                return self._whole_line_event(declared, line, observed)
        return self._fall_back(file, line, LineRejected("no_pattern", ", ".join(carried)), observed)

    def _fall_back(
        self, file: FileExpectation, line: bytes, rejected: LineRejected, observed: tuple[int, int]
    ) -> ExpectedEvent:
        if file.catch_all is None:
            raise rejected
        return self._whole_line_event(self._types_with(file.fields)[file.catch_all], line, observed)

    def _whole_line_event(
        self, declared: DeclaredType, line: bytes, observed: tuple[int, int]
    ) -> ExpectedEvent:
        assert declared.rule.field is not None, "a catch-all type has a field for the line"
        with _claimed_by(declared):
            time_ms = (
                None
                if self._default_ms is None
                else self._check_time(self._default_ms, observed, declared)
            )
        return ExpectedEvent(
            type=declared.name,
            time_ms=time_ms,
            host=None,
            fields=declared.fields_from_texts({declared.rule.field: line}),
        )

    def _check_time(
        self, time_ms: int | None, observed: tuple[int, int], declared: DeclaredType
    ) -> int | None:
        """Check that the event time of a line is plausible, and return it.

        Args:
            time_ms: Time in the line, in Unix milliseconds; None if the line has none.
            observed: First and last possible time of delivery, in Unix milliseconds.
            declared: Event type of the line.

        Returns:
            The time. If the line has none, the time of its container log record; None if there is
            no such record.

        Raises:
            LineRejected: With reason `no_timestamp` if the type requires a time, or `future` or
                `too_late` if the time is outside the limits.
        """
        if time_ms is None:
            if declared.rule.time == "event":
                raise LineRejected("no_timestamp")
            if self._default_ms is None:
                return None
            time_ms = self._default_ms
        earliest, latest = observed
        detail = str(earliest) if earliest == latest else ""
        if time_ms > latest + self._expectations.future_seconds * 1000:
            raise LineRejected("future", detail)
        if time_ms < max(0, earliest - self._expectations.lateness_seconds * 1000):
            raise LineRejected("too_late", detail)
        return time_ms


def _dead_letter(rejected: LineRejected, line: bytes) -> ExpectedEvent:
    fields = {"reason": rejected.reason, "claimed_type": rejected.claimed_type, "raw": line}
    return ExpectedEvent(
        type=DEAD_LETTERS, time_ms=None, host=None, fields=fields, detail=rejected.detail
    )


@contextmanager
def _claimed_by(declared: DeclaredType) -> Iterator[None]:
    # exceptions that are raised in the block get this type as their claimed type
    try:
        yield
    except LineRejected as rejected:
        rejected.claimed_type = declared.name
        raise


def _as_text(value: Any) -> str | None:
    # one character for each byte
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return (value if isinstance(value, str) else json.dumps(value)).encode().decode("latin-1")


def parse_time_ms(text: str, time_format: str) -> int | None:
    """Parse a complete timestamp and return Unix milliseconds, rounded down.

    Args:
        text: The timestamp.
        time_format: "rfc3339", "unix" (seconds), "unix-ms", "unix-us", "unix-ns", or a `strptime`
            format. A time in a `strptime` format is in UTC.

    Returns:
        The time; None if the text does not match the format.
    """
    if time_format == "rfc3339":
        return syslog_headers.header_time_ms(text, "UTC", 0) if text[:1].isdigit() else None
    if time_format.startswith("unix"):
        match = re.fullmatch(r"(-?\d{1,20})(?:\.(\d{1,30}))?", text, re.ASCII)
        if match is None or (match[2] and time_format != "unix"):
            return None
        exact = Fraction(text) * {"unix": 1000, "unix-ms": 1}.get(
            time_format, Fraction(1, 1000 if time_format == "unix-us" else 1_000_000)
        )
        return math.floor(exact)
    try:
        return (
            dt.datetime.strptime(text, time_format).replace(tzinfo=dt.UTC) - _EPOCH
        ) // dt.timedelta(milliseconds=1)
    except ValueError:
        return None


def _pattern_time_ms(text: bytes, declared: DeclaredType) -> int | None:
    if declared.rule.time_format is None:
        return None
    if (time_ms := parse_time_ms(text.decode("latin-1"), declared.rule.time_format)) is None:
        raise LineRejected("bad_timestamp")
    return time_ms
