"""What a line must have become: an event of a type, or a dead letter with a reason.

Read from the declarations, a second time.
"""

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
    """The event or dead letter that a line must have become.

    Attributes:
        type: event type, or the dead letter type.
        time_ms: event time in Unix milliseconds; None for the time of the range.
        host: host of the event; None for the host of the range.
        fields: values by field name.
        says: text that the detail of a dead letter must contain.
    """

    type: str
    time_ms: int | None
    host: str | None
    fields: dict[str, Any]
    says: str = ""

    def __str__(self) -> str:
        return (
            f"a dead letter ({self.fields['reason']})"
            if self.type == DEAD_LETTERS
            else f"an event of {self.type}"
        )


class LineInterpreter:
    """A parser of source lines under one revision of the type declarations."""

    def __init__(self, told: Expectations, types: Mapping[str, TypeExpectation]) -> None:
        self._told = told
        self._unsaid_ms: int | None = (
            None  # the time of a line that says none, if that is not the range's
        )
        self._rules, self._of_fields = types, dict[str, dict[str, DeclaredType]]()
        self.types = self._types({})

    def _types(self, fields: Mapping[str, str]) -> dict[str, DeclaredType]:
        """The types, where the tailer says these of every event."""
        key = json.dumps(fields, sort_keys=True)
        if key not in self._of_fields:
            self._of_fields[key] = {
                name: DeclaredType(name, rule, fields) for name, rule in self._rules.items()
            }
        return self._of_fields[key]

    def read(
        self,
        file: FileExpectation,
        line: bytes,
        part: str,
        observed: tuple[int, int],
        container: ContainerRecord | None = None,
    ) -> ExpectedEvent:
        """What became of this line (without its LF), or piece of one, sent between these times.

        `part`: as ranges name it.
        """
        self._unsaid_ms = None if container is None else container.time_ms
        if container is not None:
            file = file.model_copy(update={"fields": {**file.fields, "stream": container.stream}})
        try:
            if container is not None and self._unsaid_ms is None:
                raise LineRejected("bad_timestamp" if container.stream else "not_cri")
            if part != "lines":
                raise LineRejected("line_too_long", part)
            if not line:
                raise LineRejected("empty_line")
            if self._is_general(file):
                return self._general(file, line, observed)
            return (
                self._rfc5424(file, line, observed)
                if file.form == "rfc5424"
                else self._free(file, line, observed)
            )
        except LineRejected as refused:
            return _dead_letter(refused, line)

    def _is_general(self, file: FileExpectation) -> bool:
        """Whether its lines have another form than RFC 5424 with JSON or text, and patterns."""
        carried = [self.types[name].rule for name in file.carries(self.types)]
        return (
            file.form == "syslog"
            or file.hosts != "line"
            or not all(rule.is_plain for rule in carried)
            or (
                file.form == "free"
                and any(rule.content in ("json", "msg-bytes") for rule in carried)
            )
        )

    def _general(
        self, file: FileExpectation, line: bytes, observed: tuple[int, int]
    ) -> ExpectedEvent:
        header = (
            None
            if file.form == "free"
            else syslog_headers.parse_header(
                line, older=file.form == "syslog", parser=self._told.parser
            )
        )
        if file.form != "free" and header is None:
            return self._otherwise(
                file,
                line,
                LineRejected("not_syslog" if file.form == "syslog" else "not_rfc5424"),
                observed,
            )
        message = line if header is None else header.message.encode("latin-1")
        carried = file.carries(self.types)
        if file.form == "rfc5424" and header is not None:
            named = header.parts.get("msgid", "-")
            if named not in carried:
                return self._otherwise(
                    file, line, LineRejected("unknown_type", named, named), observed
                )
            with _claimed_by(kind := self._types(file.fields)[named]):
                return self._event(file, kind, kind.said(message), header, observed)
        refused: list[LineRejected] = []
        for kind in (self._types(file.fields)[name] for name in carried):
            if kind.rule.programs and (
                header is None or header.parts.get("program") not in kind.rule.programs
            ):
                continue
            with _claimed_by(kind):
                try:
                    said = kind.said(message)
                except LineRejected as error:
                    error.claimed = kind.name
                    refused.append(error)
                    continue
                return self._event(file, kind, said, header, observed)
        return self._otherwise(
            file, line, refused[0] if len(refused) == 1 else LineRejected("no_pattern"), observed
        )

    def _event(
        self,
        file: FileExpectation,
        kind: DeclaredType,
        said: dict[str, Any],
        header: ParsedHeader | None,
        observed: tuple[int, int],
    ) -> ExpectedEvent:
        rule = kind.rule
        time, host = (
            _as_text(said.get(name)) if name is not None else None
            for name in (kind.time_key, rule.host_field)
        )
        latest_ms = observed[1] + self._told.future_seconds * 1000
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
        time_ms = self._plausible(time_ms, observed, kind)
        host = host or (header.host if header is not None else None)
        if file.hosts == "line" and host is not None and len(host) > 255:
            raise LineRejected
        errors = "backslashreplace" if self._told.parser >= 3 else "replace"
        own = host if file.hosts == "line" and host and host != "-" else None
        readable = None if own is None else own.encode("latin-1").decode(errors=errors)
        return ExpectedEvent(
            type=kind.name, time_ms=time_ms, host=readable, fields=kind.of_said(said, header)
        )

    def posted(self, row: ApiEvent) -> ExpectedEvent:
        """Return the event or dead letter that an API event must have become."""
        try:
            if row.type not in self.types:
                raise LineRejected("unknown_type")
            return ExpectedEvent(
                type=row.type,
                time_ms=row.time_ms,
                host=row.client,
                fields=self.types[row.type].of_object(row.fields),
            )
        except LineRejected as refused:
            return _dead_letter(refused, b"")

    def _rfc5424(
        self, file: FileExpectation, line: bytes, observed: tuple[int, int]
    ) -> ExpectedEvent:
        parts = rfc5424.split_rfc5424(line)
        if parts is None:
            return self._otherwise(file, line, LineRejected("not_rfc5424", "RFC 5424"), observed)
        if parts.msgid not in file.carries(self.types):
            return self._otherwise(
                file, line, LineRejected("unknown_type", parts.msgid, parts.msgid), observed
            )
        kind = self._types(file.fields)[parts.msgid]
        with _claimed_by(kind):
            if parts.time != "-" and parts.time_ms is None:
                raise LineRejected("bad_timestamp", parts.time)
            time_ms = self._plausible(parts.time_ms, observed, kind)
            host = None if parts.host == "-" else parts.host
            return ExpectedEvent(
                type=kind.name, time_ms=time_ms, host=host, fields=kind.of_message(parts.message)
            )

    def _free(self, file: FileExpectation, line: bytes, observed: tuple[int, int]) -> ExpectedEvent:
        carried = file.carries(self.types)
        for kind in (self._types(file.fields)[name] for name in carried):
            if (found := kind.of_groups(line)) is not None:
                time, texts = found
                with _claimed_by(kind):
                    time_ms = self._plausible(
                        None if time is None else _pattern_time_ms(time, kind), observed, kind
                    )
                    return ExpectedEvent(
                        type=kind.name, time_ms=time_ms, host=None, fields=kind.of_texts(texts)
                    )
            if kind.rule.pattern is None:
                return self._whole(kind, line, observed)
        return self._otherwise(file, line, LineRejected("no_pattern", ", ".join(carried)), observed)

    def _otherwise(
        self, file: FileExpectation, line: bytes, refused: LineRejected, observed: tuple[int, int]
    ) -> ExpectedEvent:
        if file.catch_all is None:
            raise refused
        return self._whole(self._types(file.fields)[file.catch_all], line, observed)

    def _whole(self, kind: DeclaredType, line: bytes, observed: tuple[int, int]) -> ExpectedEvent:
        assert kind.rule.field is not None, "a catch-all has a field for the line"
        with _claimed_by(kind):
            time_ms = (
                None
                if self._unsaid_ms is None
                else self._plausible(self._unsaid_ms, observed, kind)
            )
        return ExpectedEvent(
            type=kind.name,
            time_ms=time_ms,
            host=None,
            fields=kind.of_texts({kind.rule.field: line}),
        )

    def _plausible(
        self, time_ms: int | None, observed: tuple[int, int], kind: DeclaredType
    ) -> int | None:
        """The line's own time, if an event may have it; None: it has none, and need not."""
        if time_ms is None:
            if kind.rule.time == "event":
                raise LineRejected("no_timestamp")
            if self._unsaid_ms is None:
                return None
            time_ms = self._unsaid_ms
        earliest, latest = observed
        says = str(earliest) if earliest == latest else ""
        if time_ms > latest + self._told.future_seconds * 1000:
            raise LineRejected("future", says)
        if time_ms < max(0, earliest - self._told.lateness_seconds * 1000):
            raise LineRejected("too_late", says)
        return time_ms


def _dead_letter(refused: LineRejected, line: bytes) -> ExpectedEvent:
    fields = {"reason": refused.reason, "claimed_type": refused.claimed, "raw": line}
    return ExpectedEvent(
        type=DEAD_LETTERS, time_ms=None, host=None, fields=fields, says=refused.says
    )


@contextmanager
def _claimed_by(kind: DeclaredType) -> Iterator[None]:
    """What is refused in here says that it is of this type."""
    try:
        yield
    except LineRejected as refused:
        refused.claimed = kind.name
        raise


def _as_text(value: Any) -> str | None:
    """A time or a host, a character a byte."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return (value if isinstance(value, str) else json.dumps(value)).encode().decode("latin-1")


def parse_time_ms(text: str, form: str) -> int | None:
    """Parse a complete timestamp and return Unix milliseconds, rounded down.

    Args:
        text: timestamp.
        form: "rfc3339", "unix", "unix-ms", "unix-us", another "unix-" unit for nanoseconds, or a
            `strptime` format in UTC.

    Returns:
        The time, or None if the text does not match the format.
    """
    if form == "rfc3339":
        return syslog_headers.header_time_ms(text, "UTC", 0) if text[:1].isdigit() else None
    if form.startswith("unix"):
        match = re.fullmatch(r"(-?\d{1,20})(?:\.(\d{1,30}))?", text, re.ASCII)
        if match is None or (match[2] and form != "unix"):
            return None
        exact = Fraction(text) * {"unix": 1000, "unix-ms": 1}.get(
            form, Fraction(1, 1000 if form == "unix-us" else 1_000_000)
        )
        return math.floor(exact)
    try:
        return (dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(
            milliseconds=1
        )
    except ValueError:
        return None


def _pattern_time_ms(text: bytes, kind: DeclaredType) -> int | None:
    if kind.rule.time_format is None:
        return None
    if (time_ms := parse_time_ms(text.decode("latin-1"), kind.rule.time_format)) is None:
        raise LineRejected("bad_timestamp")
    return time_ms
