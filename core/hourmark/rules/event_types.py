"""Declarations of event types and sources, read from TOML files.

Each type has a file `types/<name>.toml`; all sources are in `types/sources.toml`. See
docs/reference/event-types.md.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from fastavro.schema import SchemaParseException, parse_schema
from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from hourmark.avro.fields import FIELD_NAME, check_fields, check_publishable
from hourmark.avro.framing import ENVELOPE_NAMES, Schema, event_schema, plain_spelling, record_name
from hourmark.avro.parquet_columns import parquet_columns
from hourmark.config.groups import BucketFormat, EventTimeLimits, FrozenModel, Positive
from hourmark.errors import TypeFileError
from hourmark.records import dead_letters
from hourmark.rules.line_rule import DECLARED
from hourmark.rules.line_rule import LineRule as LineRule  # part of a declaration

TypeName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,99}$")]
# MirrorMaker 2 never copies topics that end with `.internal` or `-internal`
# (ReplicationPolicy.isInternalTopic), or `.replica` (DefaultTopicFilter).
_NEVER_COPIED = re.compile(r"(?:.*-)?internal|replica")
SOURCES_FILE = "sources.toml"
_Model = TypeVar("_Model", bound=BaseModel)


class EventType(FrozenModel):
    """The declaration of an event type: its fields, parsing rule and Kafka topic.

    Attributes:
        name: Name of the type.
        doc: Documentation of the type, included in its schema.
        fields: Avro declarations of the type's own fields, which follow the fields common to all
            events.
        line: Rule for parsing lines of the type.
        partitions: Number of partitions of the type's topic.
        retention_hours: Retention of the type's topic. If None, `kafka.retention_hours` applies.
        shard: Name of the ETL shard that processes the type. One Spark streaming query reads all
            types of a shard from Kafka.
        format: Format of the type's buckets. If None, `etl.bucket_format` applies.
    """

    name: TypeName
    doc: str = ""
    fields: list[dict[str, Any]]
    line: LineRule = LineRule()
    partitions: int = Field(1, ge=1, le=1024)
    retention_hours: Positive | None = None
    shard: TypeName = "default"
    format: BucketFormat | None = None

    @field_validator("name")
    @classmethod
    def _copied(cls, name: str, info: ValidationInfo) -> str:
        # Types in force are accepted: nothing is copied where one cluster is edge and central.
        if info.context == DECLARED and _NEVER_COPIED.fullmatch(name):
            raise ValueError(
                f"{name}: MirrorMaker 2 treats events.{name} as one of its internal topics and "
                "never copies it; choose another name"
            )
        return name

    @field_validator("fields")
    @classmethod
    def _usable(cls, fields: list[dict[str, Any]], info: ValidationInfo) -> list[dict[str, Any]]:
        # Declarations are written in TOML, which cannot express a null default.
        fields = [
            {**field, "default": None}
            if "default" not in field
            and isinstance(field.get("type"), list)
            and field["type"][:1] == ["null"]
            else field
            for field in fields
        ]
        if info.context == DECLARED:
            check_fields(fields, record_name(info.data.get("name", "")))
        check_publishable(fields)
        return fields

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Self:
        names = [str(field.get("name")) for field in self.fields]
        for name in names:
            if not FIELD_NAME.fullmatch(name):
                raise ValueError(
                    f"field name {name!r}: allowed: letters, digits and _, not beginning with a "
                    "digit"
                )
            if name in ENVELOPE_NAMES:
                raise ValueError(
                    f"field {name!r} is reserved for the event envelope; choose another name"
                )
        if len(set(names)) < len(names):
            raise ValueError("a field is declared twice")
        self.line.check_names(self.fields)
        try:
            parse_schema(self.schema(), _write_hint=False)
        except (SchemaParseException, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the fields do not form a valid Avro schema: {error!r}") from error
        if info.context == DECLARED and self.format == "avro+parquet":
            parquet_columns(self.schema())
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # `format` is omitted if it is None, so that the digests of older versions stay valid.
        settings: dict[str, Any] = serialize(self)
        return {
            name: value for name, value in settings.items() if (name, value) != ("format", None)
        }

    # pydantic's deprecated classmethod of the same name
    def schema(self) -> Schema:  # type: ignore[override]
        """Build the Avro schema of the type's events.

        The fields common to all events (the envelope) come first, then the type's own fields. The
        schema has the form that schema registries return (`plain_spelling`).

        Returns:
            The record schema as parsed JSON.
        """
        schema: Schema = plain_spelling(event_schema(self.name, self.fields, self.doc))
        return schema


class Source(FrozenModel):
    """The declaration of a log source: its line format and its event types.

    Attributes:
        name: Name of the source.
        format: Header of the lines: `rfc5424` (syslog, with the event type as its MSGID), `syslog`
            (any form of syslog) or `free` (no header).
        types: Event types of the lines. Unless the format is `rfc5424`, each line is matched
            against the types in this order.
        host: Which host name events contain: `line` (the name in the line, if present) or `tailer`
            (always the host that read the line).
        catch_all: Event type that stores each line that matches no other type. If None, such lines
            are stored as dead letters instead of events.
    """

    name: TypeName
    format: Literal["rfc5424", "syslog", "free"] = "rfc5424"
    types: list[TypeName] = Field(min_length=1)
    host: Literal["line", "tailer"] = "line"
    catch_all: TypeName | None = None

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # `host` is omitted if it has its default, so that digests of older revisions stay valid.
        settings: dict[str, Any] = serialize(self)
        return {
            name: value for name, value in settings.items() if (name, value) != ("host", "line")
        }


DEAD_LETTERS = EventType(
    name=dead_letters.TYPE,
    doc="What could not become an event, with its reason and its raw bytes.",
    fields=[dict(field) for field in dead_letters.FIELDS],
    line=LineRule(payload="json", time="observed"),
)


# Lines of any system log. A declaration syslog.toml replaces this type. New fields need a default.
SYSLOG = EventType(
    name="syslog",
    doc="A line of a system log: RFC 5424, RFC 3164, or as syslog daemons write files.",
    fields=[
        {"name": "program", "type": ["null", "string"], "default": None},
        {"name": "pid", "type": ["null", "string"], "default": None},
        {"name": "message", "type": "bytes", "doc": "what follows the header, byte for byte"},
        {
            "name": "facility",
            "type": ["null", "int"],
            "default": None,
            "doc": "0 to 23; files mostly have none",
        },
        {"name": "severity", "type": ["null", "int"], "default": None, "doc": "0 (worst) to 7"},
        {"name": "msgid", "type": ["null", "string"], "default": None},
        {
            "name": "structured_data",
            "type": {"type": "map", "values": "string"},
            "default": {},
            "doc": "by `id param`",
        },
    ],
    line=LineRule(
        payload="text",
        field="message",
        time="observed",
        header={
            name: name
            for name in ("program", "pid", "facility", "severity", "msgid", "structured_data")
        },
    ),
)


class Declarations(NamedTuple):
    """All declarations of event types and log sources in a folder.

    Attributes:
        types: Event types including the built-in `dead-letters`, sorted by name.
        sources: Sources, sorted by name.
        limits: Limits on the difference between an event's time and its time of observation.
    """

    types: list[EventType]
    sources: list[Source]
    limits: EventTimeLimits = EventTimeLimits()


def read_declarations(folder: Path) -> Declarations:
    """Read and check all declarations of event types and log sources in a folder.

    Args:
        folder: Folder with a TOML file for each type, and `sources.toml`, which may be absent.

    Returns:
        The declared types and sources, and the built-in types.

    Raises:
        TypeFileError: The folder does not exist, a file cannot be read, or a declaration is
            invalid. The message contains the file and the field.
    """
    if not folder.is_dir():
        raise TypeFileError(
            f"the folder of event types, {folder}, does not exist; specify it with --dir or "
            "types.dir"
        )
    types = [
        _read_type(file) for file in sorted(folder.glob("*.toml")) if file.name != SOURCES_FILE
    ]
    sources, limits = _read_sources(folder / SOURCES_FILE)
    if SYSLOG.name not in {t.name for t in types} and any(
        SYSLOG.name in source.types for source in sources
    ):
        types.append(SYSLOG)
    check_declarations(types, sources)
    return Declarations(
        sorted([*types, DEAD_LETTERS], key=lambda t: t.name),
        sorted(sources, key=lambda s: s.name),
        limits,
    )


def check_declarations(types: list[EventType], sources: list[Source]) -> None:
    """Check that the declarations of event types and log sources are consistent with each other.

    Args:
        types: The declared types, without the built-in type `dead-letters`.
        sources: The declared sources.

    Raises:
        TypeFileError: A name is declared twice, a source refers to an unknown type, or lines of a
            source can never match one of its types.
    """
    known = {t.name: t for t in types}
    if len(known) < len(types) or len({s.name for s in sources}) < len(sources):
        raise TypeFileError("a type or a source is declared twice; names must be unique")
    if dead_letters.TYPE in known:
        raise TypeFileError(f"the type {dead_letters.TYPE} is built in; choose another name")
    for source in sources:
        for name in [*source.types, *([source.catch_all] if source.catch_all else [])]:
            if name not in known:
                raise TypeFileError(
                    f"source {source.name} refers to the type {name}, which no file declares; "
                    f"declared types: {sorted(known)}"
                )
        _check_source(source, [known[name] for name in source.types])
        if source.catch_all and (
            known[source.catch_all].line.field is None
            or known[source.catch_all].line.time != "observed"
        ):
            raise TypeFileError(
                f"the catch_all {source.catch_all} of source {source.name} needs "
                "line.field and line.time = 'observed'"
            )
        _check_catch_all(source, known)


def _check_source(source: Source, types: list[EventType]) -> None:
    """Check that each event type of a source can match some of the source's lines.

    Args:
        source: The source.
        types: Declarations of the source's types, in matching order.

    Raises:
        TypeFileError: A type is incompatible with the source's format, or an earlier type accepts
            all its lines.
    """
    taking: dict[str, str] = {}  # by payload: the type that accepts every line of it
    for declared in types:
        rule, said = (
            declared.line,
            f"source {source.name} has format {source.format}, but its type {declared.name}",
        )
        if source.format == "rfc5424":
            if rule.payload == "pattern" or rule.programs:
                raise TypeFileError(
                    f"{said} has "
                    f"{'payload pattern' if rule.payload == 'pattern' else 'line.programs'}; "
                    "patterns require format 'free' or 'syslog', and programs require 'syslog'; "
                    "with this format, the MSGID determines the type"
                )
            continue
        if source.format == "free":
            _check_free(rule, said)
        if before := taking.get("text") or taking.get(rule.payload):
            raise TypeFileError(
                f"source {source.name}: its type {declared.name} never matches a line: {before} "
                "takes all lines of this kind"
            )
        if rule.payload in ("text", "json", "logfmt") and not rule.programs:
            taking[rule.payload] = declared.name


def _check_free(rule: LineRule, said: str) -> None:
    # Lines without a header have no parts of a header, and no timestamp in it.
    if rule.header or rule.programs:
        raise TypeFileError(
            f"{said} has line.header or line.programs, which require format 'rfc5424' or 'syslog'"
        )
    if rule.payload != "pattern" and rule.time_field is None and rule.time == "event":
        raise TypeFileError(
            f"{said} has payload {rule.payload} with neither line.time_field nor line.time = "
            "'observed'; without a header, events would have no timestamp"
        )


def _check_catch_all(source: Source, known: Mapping[str, EventType]) -> None:
    """Check that the catch-all type of a source uses redaction if another type does.

    The catch-all type stores whole lines, which may include lines of a type with redaction.

    Args:
        source: The source.
        known: Maps the names of all declared types to their declarations.

    Raises:
        TypeFileError: Another type of the source uses redaction, but the catch-all type does not
            redact the field that stores the line.
    """
    redacts = [name for name in source.types if known[name].line.redact]
    if not redacts or source.catch_all is None:
        return
    rule = known[source.catch_all].line
    if rule.field not in {redaction.field for redaction in rule.redact}:
        raise TypeFileError(
            f"source {source.name}: its type {redacts[0]} redacts, but the catch_all "
            f"{source.catch_all} would store its lines unredacted; add a [[line.redact]] to "
            f"{source.catch_all} for its field {rule.field}, or remove the catch_all"
        )


def _read_type(file: Path) -> EventType:
    declared = _read(file, EventType)
    if declared.name != file.stem:
        raise TypeFileError(
            f"{file} declares the type {declared.name}; file and type must have the same name"
        )
    return declared


def _read_sources(file: Path) -> tuple[list[Source], EventTimeLimits]:
    class Sources(FrozenModel):
        source: list[Source] = Field([])
        limits: EventTimeLimits = EventTimeLimits()

    read = _read(file, Sources) if file.is_file() else Sources()
    return read.source, read.limits


def _read(file: Path, model: type[_Model]) -> _Model:
    try:
        declared = tomllib.loads(file.read_text())
    except OSError as error:
        raise TypeFileError(f"cannot read {file}: {error.strerror}") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # also for numbers that are too long, which is no TOMLDecodeError
        raise TypeFileError(f"{file} is not valid TOML: {error}") from error
    try:
        return model.model_validate(declared, context=DECLARED)
    except ValidationError as error:
        problems = "\n".join(
            (
                f"  {'.'.join(map(str, p['loc'])) or 'the file'}: "
                f"{p['msg'].removeprefix('Value error, ')}"
            )
            for p in error.errors()
        )
        raise TypeFileError(f"{file}:\n{problems}") from error
