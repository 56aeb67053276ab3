"""Event types and sources: what a declaration says, read from TOML.

One file a type, `types/<name>.toml`; the sources stand together in `types/sources.toml`. See docs/event-types.md.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeVar

from fastavro.schema import SchemaParseException, parse_schema
from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator

from hourmark import dead_letters
from hourmark.avro import ENVELOPE_NAMES, Schema, event_schema, plain_spelling, record_name
from hourmark.avro_fields import FIELD_NAME, check_fields, check_publishable
from hourmark.config import Group, Limits, Positive
from hourmark.errors import TypeFileError

TypeName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,99}$")]
SOURCES_FILE = "sources.toml"
_DECLARED: Final = {"declared": True}  # a file's fields are checked to the last; a revision in force is read as it stands
_GROUP_NAME: Final = re.compile(r"\(\?P?<(\w+)>")  # both of RE2's spellings
_LITERAL: Final = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)  # holds no groups
_Model = TypeVar("_Model", bound=BaseModel)


class LineRule(Group):
    """How lines of a type are parsed.

    json     the MSG of an RFC 5424 line is a JSON object of the type's fields
    text     that MSG goes into `field` as it is (`bytes` holds anything, `string` only UTF-8)
    pattern  the named groups of `pattern` (RE2) are fields of the same name; the group `time` is read by `time_format`
    """

    payload: Literal["json", "text", "pattern"] = "json"
    field: str | None = None
    """takes the text; also a whole line that the source's catch_all gives it"""
    pattern: str | None = None
    """RE2, must match the whole line"""
    time_format: str | None = None
    """of the group `time`, as datetime.strptime has it"""
    time: Literal["event", "observed"] = "event"
    """observed: without a timestamp, observed_at is taken"""

    @property
    def groups(self) -> frozenset[str]:
        """Names of the pattern's groups."""
        return frozenset(_GROUP_NAME.findall(_LITERAL.sub("", self.pattern or "")))

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Self:
        if self.payload == "pattern":
            if self.pattern is None:
                raise ValueError("payload = 'pattern' needs a pattern")
            if ("time" in _GROUP_NAME.findall(self.pattern)) != (self.time_format is not None):
                raise ValueError("the group `time` and time_format need each other")
            if self.time_format is None and self.time == "event":
                raise ValueError("a pattern without the group `time` needs time = 'observed'")
            if info.context == _DECLARED:
                _check_groups(self.pattern)
        elif self.pattern is not None or self.time_format is not None:
            raise ValueError("pattern and time_format go with payload = 'pattern' only")
        if self.payload == "text" and self.field is None:
            raise ValueError("payload = 'text' needs `field`, the name of the field that takes it")
        return self


def _check_groups(pattern: str) -> None:
    """RE2 takes a name twice, and then knows the first group alone: what the other matched would be lost."""
    names = _GROUP_NAME.findall(_LITERAL.sub("", pattern))
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the pattern names the group {name} twice; put what differs within one group")


class EventType(Group):
    """A type of events."""

    name: TypeName
    doc: str = ""
    fields: list[dict[str, Any]]
    """Avro fields, after the envelope"""
    line: LineRule = LineRule()
    partitions: int = Field(1, ge=1, le=1024)
    retention_hours: Positive | None = None
    """of the topic; default: kafka.retention_hours"""
    shard: TypeName = "default"

    @field_validator("fields")
    @classmethod
    def _usable(cls, fields: list[dict[str, Any]], info: ValidationInfo) -> list[dict[str, Any]]:
        """TOML has no null: a union that begins with it has it as its default, unless another is declared."""
        fields = [
            {**field, "default": None}
            if "default" not in field and isinstance(field.get("type"), list) and field["type"][:1] == ["null"]
            else field
            for field in fields
        ]
        if info.context == _DECLARED:
            check_fields(fields, record_name(info.data.get("name", "")))
        check_publishable(fields)
        return fields

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [str(field.get("name")) for field in self.fields]
        for name in names:
            if not FIELD_NAME.fullmatch(name):
                raise ValueError(f"field name {name!r}: allowed are letters, digits and _, not beginning with a digit")
            if name in ENVELOPE_NAMES:
                raise ValueError(f"field {name!r} is the envelope's; name it otherwise")
        if len(set(names)) < len(names):
            raise ValueError("a field is declared twice")
        if self.line.field is not None and self.line.field not in names:
            raise ValueError(f"line.field = {self.line.field!r} is none of the fields {names}")
        try:
            parse_schema(self.schema(), _write_hint=False)
        except (SchemaParseException, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the fields make no valid Avro schema: {error!r}") from error
        return self

    def schema(self) -> Schema:  # type: ignore[override]  # pydantic's deprecated classmethod of the same name
        """The Avro schema of its events, envelope included."""
        schema: Schema = plain_spelling(event_schema(self.name, self.fields, self.doc))
        return schema


class Source(Group):
    """Where lines come from: their form, and the types they may carry."""

    name: TypeName
    format: Literal["rfc5424", "free"] = "rfc5424"
    types: list[TypeName] = Field(min_length=1)
    """tried in this order where format = 'free'"""
    catch_all: TypeName | None = None
    """takes whole lines that fit nothing else, instead of dead letters"""


DEAD_LETTERS = EventType(
    name=dead_letters.TYPE,
    doc="What could not become an event, with its reason and its raw bytes.",
    fields=[dict(field) for field in dead_letters.FIELDS],
    line=LineRule(payload="json", time="observed"),
)


class Declarations(NamedTuple):
    """What a folder declares: types, `dead-letters` included, and sources, both sorted by name, and limits."""

    types: list[EventType]
    sources: list[Source]
    limits: Limits = Limits()


def read_folder(folder: Path) -> Declarations:
    """All declarations of a folder; TypeFileError names file and field."""
    if not folder.is_dir():
        raise TypeFileError(f"there is no folder {folder} with event types; name it with --dir or types.dir")
    types = [_read_type(file) for file in sorted(folder.glob("*.toml")) if file.name != SOURCES_FILE]
    sources, limits = _read_sources(folder / SOURCES_FILE)
    check_together(types, sources)
    return Declarations(sorted([*types, DEAD_LETTERS], key=lambda t: t.name), sorted(sources, key=lambda s: s.name), limits)


def check_together(types: list[EventType], sources: list[Source]) -> None:
    """What no single declaration can tell; raises TypeFileError."""
    known = {t.name: t for t in types}
    if len(known) < len(types) or len({s.name for s in sources}) < len(sources):
        raise TypeFileError("a type or a source is declared twice; every name stands for one")
    if dead_letters.TYPE in known:
        raise TypeFileError(f"the type {dead_letters.TYPE} is built in; name yours otherwise")
    for source in sources:
        for name in [*source.types, *([source.catch_all] if source.catch_all else [])]:
            if name not in known:
                raise TypeFileError(f"source {source.name} names the type {name}, which no file declares; known: {sorted(known)}")
        for name in source.types:
            if (known[name].line.payload == "pattern") != (source.format == "free"):
                raise TypeFileError(
                    f"source {source.name} has format {source.format}, but its type {name} has payload "
                    f"{known[name].line.payload}; patterns go with 'free', json and text with 'rfc5424'"
                )
        if source.catch_all and (known[source.catch_all].line.field is None or known[source.catch_all].line.time != "observed"):
            raise TypeFileError(
                f"the catch_all {source.catch_all} of source {source.name} needs line.field and line.time = 'observed'"
            )


def _read_type(file: Path) -> EventType:
    declared = _read(file, EventType)
    if declared.name != file.stem:
        raise TypeFileError(f"{file} declares the type {declared.name}; file and type must have one name")
    return declared


def _read_sources(file: Path) -> tuple[list[Source], Limits]:
    class Sources(Group):
        source: list[Source] = Field([])
        limits: Limits = Limits()

    read = _read(file, Sources) if file.is_file() else Sources()
    return read.source, read.limits


def _read(file: Path, model: type[_Model]) -> _Model:
    try:
        declared = tomllib.loads(file.read_text())
    except OSError as error:
        raise TypeFileError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also of numbers without end, which are no TOMLDecodeError
        raise TypeFileError(f"{file} is no valid TOML: {error}") from error
    try:
        return model.model_validate(declared, context=_DECLARED)
    except ValidationError as error:
        problems = "\n".join(
            f"  {'.'.join(map(str, p['loc'])) or 'the file'}: {p['msg'].removeprefix('Value error, ')}" for p in error.errors()
        )
        raise TypeFileError(f"{file}:\n{problems}") from error
