"""The input of the judge: the HDFS address, source files, event types and writers' records.

The input is a JSON file. An example:

{"webhdfs": "http://127.0.0.1:9870", "root": "/hourmark/buckets", "user": "me", "host": "my-host", "host_id": "…",
 "files": [{"path": "/var/log/app/*.log"}, {"path": "/var/log/kafka.log", "form": "free", "type": "server-log", "size": 4711}],
 "types": {"lines": {"content": "msg-bytes", "field": "line"}, "server-log": {"content": "raw-line", "field": "line"},
           "track-played": {"content": "json", "fields": [{"name": "track", "type": "string"}]}}}

If types were declared again during the period, `earlier` holds the types of the older revisions:
{"1-0f3a…": {"lines": …}}. If the files are from several hosts, or the id of a host changed, each
file has its own host: {"path": …, "host": "b", "host_id": ["…", "…"]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

# A string or a list of strings, any of which an event may have; if absent, it is not checked.
OneOrMore = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value or ()),
]


_PLAIN: Final = frozenset(("content", "field", "fields", "pattern", "time_format", "time"))


class _ExpectationModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileExpectation(_ExpectationModel):
    """An entry of the expectations file: one or more source files with the same settings.

    The settings determine which events are expected for the lines of the files. Unknown keys are
    errors. The settings `zone`, `record_start`, `format` and `fields` must equal those of the
    tailer that read the files.

    Attributes:
        path: Path or glob of the files.
        form: Format of the lines: `rfc5424`, `syslog` (any syslog format) or `free`.
        hosts: Whether the host of an event comes from its `line` or from the `tailer`.
        type: Event types that the lines may have. None means all types if `form` is `rfc5424`,
            otherwise no type.
        catch_all: Event type of lines that match no other type; None if such lines are expected to
            become dead letters.
        size: Size in bytes up to which the lines must be delivered; None for the whole file.
        generation: Number of times that the file was truncated.
    """

    path: str = Field(
        description="a path or a glob; a file that several entries match is read once"
    )
    form: Literal["rfc5424", "syslog", "free"] = Field("rfc5424", description="format of its lines")
    hosts: Literal["line", "tailer"] = Field(
        "line", description="whether the host of an event comes from its line or from the tailer"
    )
    type: str | list[str] | None = Field(
        None, description="types of its lines; absent: all types if rfc5424, otherwise none"
    )
    catch_all: str | None = Field(None, description="the type of lines that match no other type")
    read_as: str | None = Field(
        None,
        description="path or glob of the file when the tailer read it, if it was moved since",
    )
    size: int | None = Field(
        None,
        ge=0,
        description="lines after this byte are optional, but are compared if they are present",
    )
    generation: int = Field(0, ge=0, description="number of times that the file was truncated")
    copied: bool = Field(
        False,
        description=(
            "whether rotation copies and truncates the file: then event ids decide which copy "
            "has a line"
        ),
    )
    source: str | None = Field(None, description="the declared source; absent: not checked")
    zone: str = Field("UTC", description="time zone, as in the tailer's settings")
    record_start: str | None = Field(
        None,
        description="pattern of the first line of a multi-line record, as in the tailer's settings",
    )
    format: Literal["plain", "cri"] = Field(
        "plain", description="as in the tailer's settings; cri records are never split into pieces"
    )
    flushed: list[int] = Field(
        [],
        description="offsets at which a record starts because the bytes before had been sent",
    )
    fields: dict[str, str] = Field(
        {}, description="as in the tailer's settings: values of fields that a line does not set"
    )
    host: OneOrMore = Field((), description="overrides the host of all files")
    host_id: OneOrMore = Field((), description="overrides the host id of all files")

    def range_settings(self) -> Iterator[str]:
        """Yield the settings of this file that are included in the ids of its byte ranges.

        Append the texts to the argument `fields` of `range_id`, which computes such an id.

        Yields:
            The name and the value of each of these settings that differs from its default:
            `record_start`, `fields` (as JSON with sorted names) and `format`.
        """
        if self.record_start is not None:
            yield from ("record_start", self.record_start)
        if self.fields:
            yield from (
                "fields",
                json.dumps(self.fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True),
            )
        if self.format == "cri":
            yield from ("format", "cri")

    def possible_types(self, types: Iterable[str]) -> list[str]:
        """Return the event types that lines of this file can have, in the order of matching.

        Args:
            types: Names of all declared types.

        Returns:
            The file's own types, without unknown names. If the file names no types: all of `types`
            for an RFC 5424 file, otherwise an empty list.
        """
        if self.type is None:
            return list(types) if self.form == "rfc5424" else []
        known = {*types}
        return [
            name
            for name in ([self.type] if isinstance(self.type, str) else self.type)
            if name in known
        ]


class TypeExpectation(_ExpectationModel):
    """The declaration of an event type: how the fields of an event are derived from its line.

    Attributes:
        content: Format of the lines. `raw-line`: `field` receives the whole line, and the groups of
            `pattern` are fields. `msg-bytes`: `field` receives the message after the syslog header.
            `json`: the message is a JSON object of the fields. `logfmt`: the message consists of
            `key=value` pairs. `tsv`: the message consists of `columns`, separated by tabs.
        fields: Avro fields of the type; empty if `field`, of type bytes, is the only one.
        time_field: Key or column with the event time; None if there is none.
        time_format: Format of the event time: a `strptime` format, `rfc3339`, or a Unix time format
            such as `unix-ms`.
        time: How lines without a time are handled: with `event`, they become dead letters; with
            `observed`, they get the time at which they were delivered.
        unknown: How undeclared keys are handled: `refuse` rejects the line, `ignore` drops the
            keys, and `keep` stores them in `unknown_field`.

    Declarations with redaction, coercion or `keys` are not supported.
    """

    content: Literal["raw-line", "msg-bytes", "json", "logfmt", "tsv"]
    field: str | None = None
    fields: list[dict[str, Any]] = Field(
        [], description="Avro fields after the envelope; absent: `field`, of type bytes"
    )
    pattern: str | None = None
    columns: list[str] | None = None
    time_field: str | None = None
    time_format: str | None = Field(
        None, description="strptime format with a complete date, in UTC; or rfc3339 or unix…"
    )
    time: Literal["event", "observed"] = "event"
    host_field: str | None = None
    header: dict[str, str] = Field({}, description="part of the syslog header, by field name")
    programs: list[str] = Field([], description="only lines of these programs; absent: any")
    unknown: Literal["refuse", "ignore", "keep"] = "refuse"
    unknown_field: str | None = None
    null_text: str | None = None

    @property
    def is_plain(self) -> bool:
        """True if the declaration sets only the basic keys, which a simple parser supports.

        The basic keys are `content`, `field`, `fields`, `pattern`, `time` and `time_format`. A
        declaration with the content `logfmt` or `tsv` requires the full parser in any case.
        """
        return self.content not in ("logfmt", "tsv") and not (self.model_fields_set - _PLAIN)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (
            self.content in ("raw-line", "msg-bytes")
            and self.pattern is None
            and self.field is None
        ):
            raise ValueError("content raw-line and msg-bytes require `field`")
        if self.content in ("json", "logfmt", "tsv") and not self.fields:
            raise ValueError(f"content {self.content} requires `fields`")
        return self


class WriterRecord(_ExpectationModel):
    """The size and digest of a source file, as recorded by the process that wrote it.

    The verification matches records with files by content, because a file may have been renamed.

    Attributes:
        path: Path of the file when it was written.
        bytes: Size of the file in bytes.
        blake2b: BLAKE2b-128 digest of the content, in hexadecimal.
        broken: Start offsets of all lines that cannot be converted to events and are therefore
            expected to become dead letters.
    """

    path: str
    bytes: int
    blake2b: str
    broken: list[int]


class ApiEvent(_ExpectationModel):
    """An acknowledged event of the HTTP API, as recorded by the client that sent it.

    Attributes:
        type: Event type.
        client: Name of the client.
        event_id: Id that the client assigned to the event.
        time_ms: Event time in Unix milliseconds.
        position: Index of the event in its batch.
        fields: Values by field name.
    """

    type: str
    client: str
    event_id: str
    time_ms: int
    position: int
    fields: dict[str, Any]


class DestroyedEvent(_ExpectationModel):
    """An event that a test destroyed in Kafka after the delivery service had written it there.

    The event is destroyed before the mirror or the ETL has read it. The judge then checks that the
    bucket of the event does not have the grade `proved` (verified to be complete).

    Attributes:
        type: Event type.
        event_id: Event id, 32 hexadecimal digits.
        time_ms: Event time in Unix milliseconds.
        file_id: Id of the source file; None for an event of the HTTP API.
        generation: Generation of the source file (how often it was truncated).
        position: Byte offset of the event's line in the source file; not compared for an event of
            the HTTP API.
        written_ms: Time at which the service wrote the event to Kafka, in Unix milliseconds.
    """

    type: str
    event_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    time_ms: int
    file_id: str | None = None
    generation: int = 0
    position: int
    written_ms: int


class Expectations(_ExpectationModel):
    """The input of the judge: location of the buckets, source files and event types.

    The judge is an independent program that compares source files with closed buckets. The
    attributes are the keys of its JSON input file, which `read_expectations` reads. Unknown keys
    are errors.

    Attributes:
        webhdfs: Address of WebHDFS, such as http://127.0.0.1:9870.
        root: Path of the root folder of all buckets in HDFS.
        user: HDFS user name.
        files: Source files with their settings.
        types: Declarations of the event types by name.
        observed_ms: First and last time of delivery, in Unix milliseconds, inclusive.
        api: Events that clients sent to the HTTP API.
        destroyed: Events that may be missing, because a test destroyed them in Kafka.
        grades: Allowed grades of buckets, by default only `proved` (verified to be complete).
        written: Sizes and digests of the files, as recorded by their writer; None to skip the
            comparison with such records.
    """

    webhdfs: str = Field(description="address of WebHDFS, such as http://127.0.0.1:9870")
    root: str = Field(description="root of the buckets, a path in HDFS")
    user: str
    files: list[FileExpectation]
    types: dict[str, TypeExpectation]
    earlier: dict[str, dict[str, TypeExpectation]] = Field(
        {},
        description="the types of each rules revision that declared them differently, by revision",
    )
    host: OneOrMore = Field(
        (), description="host of events whose line names none; absent: not checked"
    )
    host_id: OneOrMore = Field(
        (), description="32 hex digits; absent: digests in event ids and range ids are not checked"
    )
    line_bytes_max: int = Field(
        4 << 20, description="a longer line must become several dead letters, one for each piece"
    )
    blank_lines: Literal["counted", "read", "either"] = Field(
        "counted",
        description=(
            "counted: a line without bytes other than CR makes no event; read: it is read as any "
            "other line, as parser 1 does; either: both are accepted"
        ),
    )
    other_files: Literal["unexpected", "ignore"] = Field(
        "unexpected", description="how to treat events of files that are not listed"
    )
    written: list[WriterRecord] | None = Field(
        None, description="records of all files without `size`; absent: not checked"
    )
    api: list[ApiEvent] = Field([], description="all events that were sent to the HTTP API")
    observed_ms: tuple[int, int] = Field(
        (0, (1 << 48) - 1),
        description="first and last time of delivery in Unix milliseconds, inclusive",
    )
    parser: Literal[1, 2, 3] = Field(
        3, description="parser version of the rules; before 3, fewer syslog formats are known"
    )
    rules: list[str] | None = Field(
        None, description="rules revisions in force; absent: not checked"
    )
    future_seconds: int = Field(900, description="as in the rules")
    lateness_seconds: int = Field(7 * 86_400, description="as in the rules")
    grades: list[str] = Field(["proved"], description="grades that a bucket may have")
    destroyed: list[DestroyedEvent] = Field(
        [], description="events that may be in no bucket; all other events must be in one"
    )
    forced: dict[str, list[str]] = Field(
        {}, description="hours that may have the grade forced, by type"
    )

    @field_validator("root")
    @classmethod
    def _is_in_hdfs(cls, value: str) -> str:
        if "://" in value and not value.startswith("hdfs://"):
            raise ValueError("allowed: a path in HDFS; the judge cannot read other storages")
        return value


def read_expectations(file: Path) -> Expectations:
    """Read and validate the expectations file of a verification.

    The file names the source files and the location of the buckets. It also defines which events
    are expected for the lines of the files.

    Args:
        file: Path of the JSON file.

    Raises:
        ValueError: The content is invalid; the message lists the invalid fields.
        OSError: The file cannot be read.
    """
    try:
        return Expectations.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{file} is not a valid expectations file: {error}") from error
