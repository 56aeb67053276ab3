"""What a line must have become: an event of a type, or a dead letter with a reason. Read from the declarations, a second time."""

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

import fastavro

from hourmark_infra.judge import forms, headers, rfc5424
from hourmark_infra.judge.buckets import DEAD_LETTERS
from hourmark_infra.judge.expectations import ApiEvent, Expectations, FileExpectation, TypeExpectation
from hourmark_infra.judge.headers import Header
from hourmark_infra.judge.values import Refused, from_json, from_text, plain, record

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DEPTH_MAX: Final = 64  # of a payload's brackets
_BOM: Final = b"\xef\xbb\xbf"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """`time_ms` None: the range's time. `host` None: the range's. `says` is part of a dead letter's detail."""

    type: str
    time_ms: int | None
    host: str | None
    fields: dict[str, Any]
    says: str = ""

    def __str__(self) -> str:
        return f"a dead letter ({self.fields['reason']})" if self.type == DEAD_LETTERS else f"an event of {self.type}"


class Type:
    """A declared type."""

    def __init__(self, name: str, rule: TypeExpectation) -> None:
        self.name, self.rule = name, rule
        self._names: dict[str, Any] = {}
        fields = rule.fields or [{"name": rule.field, "type": "bytes"}]
        self._plain = plain(fields)
        schema: Any = fastavro.parse_schema({"type": "record", "name": "own", "fields": fields}, named_schemas=self._names)
        self._fields = schema["fields"]
        self._pattern = re.compile(rule.pattern.encode()) if rule.pattern is not None else None

    def declares(self, fields: list[Any]) -> bool:
        """Whether these, below logical types, are its own fields."""
        return bool(fields == self._plain)

    def of_object(self, document: dict[str, Any]) -> dict[str, Any]:
        """The fields of a JSON object."""
        return record(self._fields, document, self._names)

    def of_texts(self, texts: dict[str, bytes | None]) -> dict[str, Any]:
        """The fields of a pattern's groups, or of one text; the others have their default, or null."""
        held = {}
        for field in self._fields:
            name, text = field["name"], texts.get(field["name"])
            try:
                if text is not None:
                    held[name] = from_text(field["type"], text, self._names)
                else:
                    held[name] = from_json(field["type"], field.get("default"), self._names)
            except Refused as refused:
                raise Refused(refused.reason if text is not None else "missing_field", name) from None
        return held

    def of_message(self, message: bytes) -> dict[str, Any]:
        """The fields of an RFC 5424 line's MSG."""
        if self.rule.content == "json":
            return self.of_object(_json_object(message))
        field = next(field for field in self._fields if field["name"] == self.rule.field)
        if message.startswith(_BOM) and "bytes" not in str(field["type"]) and "fixed" not in str(field["type"]):
            message = message[len(_BOM) :]
        return self.of_texts({field["name"]: message})

    @property
    def time_key(self) -> str | None:
        """What holds the time."""
        return self.rule.time_field or ("time" if self.rule.pattern is not None else None)

    def said(self, message: bytes) -> dict[str, Any]:
        """What a message says by name, texts as bytes; Refused if it has not this type's form."""
        rule = self.rule
        if rule.content == "json":
            return _json_object(message)
        if rule.content == "logfmt":
            texts: dict[str, Any] = forms.logfmt(message)
        elif rule.content == "tsv":
            texts = forms.columns(message, rule.columns or [])
        elif self._pattern is not None:
            match = self._pattern.fullmatch(message)
            if match is None:
                raise Refused("no_pattern")
            texts = {name: text for name, text in match.groupdict().items() if text is not None}
            if rule.field is not None:
                texts.setdefault(rule.field, message)
        else:
            assert rule.field is not None, "what is whole has a field"
            field = next(field for field in self._fields if field["name"] == rule.field)
            return {rule.field: message if "bytes" in str(field["type"]) else message.removeprefix(_BOM)}
        return {name: text for name, text in texts.items() if rule.null_text is None or text != rule.null_text.encode()}

    def of_said(self, said: dict[str, Any], header: Header | None) -> dict[str, Any]:
        """The fields, from what a message and its header say."""
        rule = self.rule
        own = {field["name"] for field in self._fields} - rule.header.keys() - {rule.unknown_field}
        unknown = {} if rule.pattern is not None else {name: said[name] for name in said if name not in own}
        for placed in (self.time_key, rule.host_field):
            unknown.pop(placed or "", None)
        if unknown and rule.unknown == "refuse":
            raise Refused("unknown_field")
        data = {} if header is None else {name: text.encode("latin-1") for name, text in header.data.items()}
        parts = {} if header is None else {name: text.encode("latin-1") for name, text in header.parts.items()}
        held = {}
        for field in self._fields:
            name, part = field["name"], rule.header.get(field["name"])
            if name == rule.unknown_field:
                held[name] = {key: forms.kept(value) for key, value in unknown.items()}
            elif part == "structured_data":
                held[name] = {key: forms.kept(value) for key, value in data.items()}
            elif part is not None:
                held[name] = self._held(field, data if part.startswith("[") else parts, part.strip("[]"), nulls=True)
            else:
                held[name] = self._held(field, said, name, nulls=rule.content != "json")
        return held

    def _held(self, field: Any, said: Mapping[str, Any], name: str, *, nulls: bool) -> Any:
        """A field of what is said under this name; else its default, or null."""
        if name not in said:
            if "default" not in field and not (nulls and isinstance(field["type"], list) and "null" in field["type"]):
                raise Refused("missing_field", field["name"])
            return from_json(field["type"], field.get("default"), self._names)
        try:
            read = from_text if isinstance(said[name], bytes) else from_json
            return read(field["type"], said[name], self._names)
        except Refused as refused:
            raise Refused(refused.reason, field["name"]) from None

    def of_groups(self, line: bytes) -> tuple[bytes | None, dict[str, Any]] | None:
        """The text of the time, and those of the fields; None where the pattern does not fit."""
        match = self._pattern.fullmatch(line) if self._pattern is not None else None
        if match is None:
            return None
        texts: dict[str, Any] = match.groupdict()
        if self.rule.field is not None:
            texts.setdefault(self.rule.field, line)
        return texts.get("time"), texts


class LineReader:
    """Reads lines of all source files, under one revision of the types' declarations."""

    def __init__(self, told: Expectations, types: Mapping[str, TypeExpectation]) -> None:
        self._told = told
        self.types = {name: Type(name, rule) for name, rule in types.items()}

    def read(self, file: FileExpectation, line: bytes, part: str, observed: tuple[int, int]) -> Expected:
        """What became of this line (without its LF), or piece of one, sent between these times. `part`: as ranges name it."""
        try:
            if part != "lines":
                raise Refused("line_too_long", part)
            if not line:
                raise Refused("empty_line")
            if self._is_general(file):
                return self._general(file, line, observed)
            return self._rfc5424(file, line, observed) if file.form == "rfc5424" else self._free(file, line, observed)
        except Refused as refused:
            return _dead_letter(refused, line)

    def _is_general(self, file: FileExpectation) -> bool:
        """Whether its lines have another form than RFC 5424 with JSON or text, and patterns."""
        carried = [self.types[name].rule for name in file.carries(self.types)]
        return (
            file.form == "syslog"
            or file.hosts != "line"
            or not all(rule.is_plain for rule in carried)
            or (file.form == "free" and any(rule.content in ("json", "msg-bytes") for rule in carried))
        )

    def _general(self, file: FileExpectation, line: bytes, observed: tuple[int, int]) -> Expected:
        header = None if file.form == "free" else headers.read(line, older=file.form == "syslog")
        if file.form != "free" and header is None:
            return self._otherwise(file, line, Refused("not_syslog" if file.form == "syslog" else "not_rfc5424"))
        message = line if header is None else header.message.encode("latin-1")
        carried = file.carries(self.types)
        if file.form == "rfc5424" and header is not None:
            named = header.parts.get("msgid", "-")
            if named not in carried:
                return self._otherwise(file, line, Refused("unknown_type", named, named))
            with _claiming(self.types[named]):
                return self._event(file, self.types[named], self.types[named].said(message), header, observed)
        refused: list[Refused] = []
        for kind in (self.types[name] for name in carried):
            if kind.rule.programs and (header is None or header.parts.get("program") not in kind.rule.programs):
                continue
            with _claiming(kind):
                try:
                    said = kind.said(message)
                except Refused as error:
                    error.claimed = kind.name
                    refused.append(error)
                    continue
                return self._event(file, kind, said, header, observed)
        return self._otherwise(file, line, refused[0] if len(refused) == 1 else Refused("no_pattern"))

    def _event(
        self, file: FileExpectation, kind: Type, said: dict[str, Any], header: Header | None, observed: tuple[int, int]
    ) -> Expected:
        rule = kind.rule
        time, host = (_as_text(said.get(name)) if name is not None else None for name in (kind.time_key, rule.host_field))
        latest_ms = observed[1] + self._told.future_seconds * 1000
        time_ms = None
        if time is not None or (header is not None and header.time is not None):
            if time is not None:
                time_ms = moment_ms(time, rule.time_format or "rfc3339")
            elif header is not None and header.time is not None:
                time_ms = headers.time_ms(header.time, file.zone, latest_ms, file.form == "rfc5424")
            if time_ms is None:
                raise Refused("bad_timestamp")
        time_ms = self._plausible(time_ms, observed, kind)
        host = host or (header.host if header is not None else None)
        if file.hosts == "line" and host is not None and len(host) > 255:
            raise Refused
        own = host if file.hosts == "line" and host and host != "-" else None
        readable = None if own is None else own.encode("latin-1").decode(errors="replace")
        return Expected(type=kind.name, time_ms=time_ms, host=readable, fields=kind.of_said(said, header))

    def posted(self, row: ApiEvent) -> Expected:
        """What became of an event of the API."""
        try:
            if row.type not in self.types:
                raise Refused("unknown_type")
            return Expected(
                type=row.type, time_ms=row.time_ms, host=row.client, fields=self.types[row.type].of_object(row.fields)
            )
        except Refused as refused:
            return _dead_letter(refused, b"")

    def _rfc5424(self, file: FileExpectation, line: bytes, observed: tuple[int, int]) -> Expected:
        parts = rfc5424.split(line)
        if parts is None:
            return self._otherwise(file, line, Refused("not_rfc5424", "RFC 5424"))
        if parts.msgid not in file.carries(self.types):
            return self._otherwise(file, line, Refused("unknown_type", parts.msgid, parts.msgid))
        kind = self.types[parts.msgid]
        with _claiming(kind):
            if parts.time != "-" and parts.time_ms is None:
                raise Refused("bad_timestamp", parts.time)
            time_ms = self._plausible(parts.time_ms, observed, kind)
            host = None if parts.host == "-" else parts.host
            return Expected(type=kind.name, time_ms=time_ms, host=host, fields=kind.of_message(parts.message))

    def _free(self, file: FileExpectation, line: bytes, observed: tuple[int, int]) -> Expected:
        carried = file.carries(self.types)
        for kind in (self.types[name] for name in carried):
            if (found := kind.of_groups(line)) is not None:
                time, texts = found
                with _claiming(kind):
                    time_ms = self._plausible(None if time is None else _local_ms(time, kind), observed, kind)
                    return Expected(type=kind.name, time_ms=time_ms, host=None, fields=kind.of_texts(texts))
            if kind.rule.pattern is None:
                return self._whole(kind, line)
        return self._otherwise(file, line, Refused("no_pattern", ", ".join(carried)))

    def _otherwise(self, file: FileExpectation, line: bytes, refused: Refused) -> Expected:
        if file.catch_all is None:
            raise refused
        return self._whole(self.types[file.catch_all], line)

    def _whole(self, kind: Type, line: bytes) -> Expected:
        assert kind.rule.field is not None, "a catch-all has a field for the line"
        return Expected(type=kind.name, time_ms=None, host=None, fields=kind.of_texts({kind.rule.field: line}))

    def _plausible(self, time_ms: int | None, observed: tuple[int, int], kind: Type) -> int | None:
        """The line's own time, if an event may have it; None: it has none, and need not."""
        if time_ms is None:
            if kind.rule.time == "event":
                raise Refused("no_timestamp")
            return None
        earliest, latest = observed
        says = str(earliest) if earliest == latest else ""
        if time_ms > latest + self._told.future_seconds * 1000:
            raise Refused("future", says)
        if time_ms < max(0, earliest - self._told.lateness_seconds * 1000):
            raise Refused("too_late", says)
        return time_ms


def _dead_letter(refused: Refused, line: bytes) -> Expected:
    fields = {"reason": refused.reason, "claimed_type": refused.claimed, "raw": line}
    return Expected(type=DEAD_LETTERS, time_ms=None, host=None, fields=fields, says=refused.says)


@contextmanager
def _claiming(kind: Type) -> Iterator[None]:
    """What is refused in here says that it is of this type."""
    try:
        yield
    except Refused as refused:
        refused.claimed = kind.name
        raise


def _as_text(value: Any) -> str | None:
    """A time or a host, a character a byte."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return (value if isinstance(value, str) else json.dumps(value)).encode().decode("latin-1")


def moment_ms(text: str, form: str) -> int | None:
    """Unix milliseconds, cut, of a time that holds all that it needs."""
    if form == "rfc3339":
        return headers.time_ms(text, "UTC", 0) if text[:1].isdigit() else None
    if form.startswith("unix"):
        match = re.fullmatch(r"(-?\d{1,20})(?:\.(\d{1,30}))?", text, re.ASCII)
        if match is None or (match[2] and form != "unix"):
            return None
        exact = Fraction(text) * {"unix": 1000, "unix-ms": 1}.get(form, Fraction(1, 1000 if form == "unix-us" else 1_000_000))
        return math.floor(exact)
    try:
        return (dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)
    except ValueError:
        return None


def _local_ms(text: bytes, kind: Type) -> int | None:
    if kind.rule.time_format is None:
        return None
    if (time_ms := moment_ms(text.decode("latin-1"), kind.rule.time_format)) is None:
        raise Refused("bad_timestamp")
    return time_ms


def _json_object(payload: bytes) -> dict[str, Any]:
    payload = payload.removeprefix(_BOM)
    depth = deepest = 0
    for bracket in _STRING.sub(b"", payload).translate(None, bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    try:
        if deepest > _DEPTH_MAX:
            raise ValueError
        text = payload.decode()
        document = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    except UnicodeDecodeError:
        raise Refused("not_utf8", "UTF-8") from None
    except ValueError:
        raise Refused("bad_json") from None
    if not isinstance(document, dict):
        raise Refused("bad_json")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
