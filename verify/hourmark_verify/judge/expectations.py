"""What the judge is told: where HDFS is, which files are sources, what was declared, and what the
writers say they wrote.

{"webhdfs": "http://127.0.0.1:9870", "root": "/hourmark/buckets", "user": "me", "host": "my-host", "host_id": "…",
 "files": [{"path": "/var/log/app/*.log"}, {"path": "/var/log/kafka.log", "form": "free", "type": "server-log", "size": 4711}],
 "types": {"lines": {"content": "msg-bytes", "field": "line"}, "server-log": {"content": "raw-line", "field": "line"},
           "track-played": {"content": "json", "fields": [{"name": "track", "type": "string"}]}}}

Where a type was declared anew meanwhile, `earlier` holds the older revisions' types: {"1-0f3a…":
{"lines": …}}. Where files are of several hosts, or a host's id changed, a file has its own:
{"path": …, "host": "b", "host_id": ["…", "…"]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

# One, several of which each event has one, or (absent) none: then it is not checked.
OneOrMore = Annotated[
    tuple[str, ...], BeforeValidator(lambda said: (said,) if isinstance(said, str) else said or ())
]


_PLAIN: Final = frozenset(("content", "field", "fields", "pattern", "time_format", "time"))


class _ExpectationModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileExpectation(_ExpectationModel):
    """Source files of one kind."""

    path: str = Field(description="a path or a glob; a file that several name is taken once")
    form: Literal["rfc5424", "syslog", "free"] = "rfc5424"
    hosts: Literal["line", "tailer"] = Field(
        "line", description="whether events bear the host that their line says"
    )
    type: str | list[str] | None = Field(
        None, description="its lines may carry; absent: all types if rfc5424, none if free"
    )
    catch_all: str | None = Field(None, description="the type of lines that fit nothing else")
    read_as: str | None = Field(
        None,
        description="where it was while it was read, a path or a glob, if it lies elsewhere now",
    )
    size: int | None = Field(
        None,
        ge=0,
        description="lines after this byte need not be there; those that are must be right",
    )
    generation: int = Field(0, ge=0, description="how often the file was truncated")
    copied: bool = Field(
        False,
        description=(
            "it is copied and truncated to rotate it: an event's id says which file has its line"
        ),
    )
    source: str | None = Field(None, description="the declared source; absent: not checked")
    zone: str = Field("UTC", description="as the tailer is told")
    record_start: str | None = Field(
        None, description="as the tailer is told: records are this line and those it is not in"
    )
    format: Literal["plain", "cri"] = Field(
        "plain", description="as the tailer is told; its records are not in pieces"
    )
    flushed: list[int] = Field(
        [], description="where a record begins because what is before it had been sent already"
    )
    fields: dict[str, str] = Field(
        {}, description="as the tailer is told: of events whose line says nothing there"
    )
    host: OneOrMore = Field((), description="instead of that of all files")
    host_id: OneOrMore = Field((), description="instead of that of all files")

    def extras(self) -> Iterator[str]:
        """What else its ranges say: names and values."""
        if self.record_start is not None:
            yield from ("record_start", self.record_start)
        if self.fields:
            yield from (
                "fields",
                json.dumps(self.fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True),
            )
        if self.format == "cri":
            yield from ("format", "cri")

    def carries(self, types: Iterable[str]) -> list[str]:
        """Those of these types that its lines may be of, in the order in which they are tried."""
        if self.type is None:
            return list(types) if self.form == "rfc5424" else []
        known = {*types}
        return [
            name
            for name in ([self.type] if isinstance(self.type, str) else self.type)
            if name in known
        ]


class TypeExpectation(_ExpectationModel):
    """How an event follows from its line, as the type's declaration says.

    What redacts or coerces is not read.

    raw-line   `field` is the whole line; the groups of `pattern` are fields, the group `time` is read by `time_format`
    msg-bytes  `field` is the message: what follows the header
    json       the message is a JSON object of the fields
    logfmt, tsv    the message is pairs, or the columns
    """

    content: Literal["raw-line", "msg-bytes", "json", "logfmt", "tsv"]
    field: str | None = None
    fields: list[dict[str, Any]] = Field(
        [], description="Avro's, after the envelope; absent: `field`, of bytes"
    )
    pattern: str | None = None
    columns: list[str] | None = None
    time_field: str | None = None
    time_format: str | None = Field(
        None, description="with a whole date, in UTC; of a time_field also rfc3339 and unix…"
    )
    time: Literal["event", "observed"] = "event"
    host_field: str | None = None
    header: dict[str, str] = Field({}, description="fields that take a part of the header")
    programs: list[str] = Field([], description="that its lines are of")
    unknown: Literal["refuse", "ignore", "keep"] = "refuse"
    unknown_field: str | None = None
    null_text: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether fields are filled by their names alone."""
        return self.content not in ("logfmt", "tsv") and not (self.model_fields_set - _PLAIN)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (
            self.content in ("raw-line", "msg-bytes")
            and self.pattern is None
            and self.field is None
        ):
            raise ValueError("raw-line and msg-bytes need `field`")
        if self.content in ("json", "logfmt", "tsv") and not self.fields:
            raise ValueError(f"{self.content} needs `fields`")
        return self


class WriterRecord(_ExpectationModel):
    """The writer's own record of a file, whatever it is named by now."""

    path: str
    bytes: int
    blake2b: str
    broken: list[int] = Field(
        description="positions of the lines that must become dead letters, and no others"
    )


class ApiEvent(_ExpectationModel):
    """The sender's own record of an event that was acknowledged."""

    type: str
    client: str
    event_id: str = Field(description="the client's own")
    time_ms: int
    position: int = Field(description="in its batch")
    fields: dict[str, Any]


class DestroyedEvent(_ExpectationModel):
    """An event that a service had written, and Kafka lost before anybody could copy it, as somebody
    read it there.
    """

    type: str
    event_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    time_ms: int
    file_id: str | None = Field(None, description="absent: it came by the API")
    generation: int = 0
    position: int
    written_ms: int = Field(
        description=(
            "when the service wrote it: a bucket of its time with a later cut cannot be proved"
        )
    )


class Expectations(_ExpectationModel):
    """See the module."""

    webhdfs: str
    root: str = Field(description="of the buckets: a path in HDFS")
    user: str
    files: list[FileExpectation]
    types: dict[str, TypeExpectation]
    earlier: dict[str, dict[str, TypeExpectation]] = Field(
        {},
        description=(
            "by revision: all types as that declared them, where it did otherwise than `types`"
        ),
    )
    host: OneOrMore = Field((), description="of events whose line names none; absent: not checked")
    host_id: OneOrMore = Field(
        (), description="32 hex digits; absent: digests in event ids and range ids are not checked"
    )
    line_bytes_max: int = Field(
        4 << 20, description="a longer line must be there in pieces, as dead letters"
    )
    blank_lines: Literal["counted", "read", "either"] = Field(
        "counted",
        description=(
            "a line of no byte but CR makes no record; `read`, as any other, where all rules "
            "are of the first parser"
        ),
    )
    other_files: Literal["unexpected", "ignore"] = Field(
        "unexpected", description="events of files that are not listed"
    )
    written: list[WriterRecord] | None = Field(
        None, description="of every file without `size`; absent: not checked"
    )
    api: list[ApiEvent] = Field([], description="what was posted to the API, all of it")
    observed_ms: tuple[int, int] = Field(
        (0, (1 << 48) - 1), description="when all of it was delivered, at the earliest and latest"
    )
    parser: Literal[1, 2, 3] = Field(
        3, description="of the rules: before 3, lines of syslog had fewer forms"
    )
    rules: list[str] | None = Field(
        None, description="revisions in force then; absent: not checked"
    )
    future_seconds: int = Field(900, description="as the rules have it")
    lateness_seconds: int = Field(7 * 86_400, description="as the rules have it")
    grades: list[str] = Field(["proved"], description="that a bucket may have")
    destroyed: list[DestroyedEvent] = Field(
        [], description="events that need not be in any bucket; all others must"
    )
    forced: dict[str, list[str]] = Field(
        {}, description="by type: hours that were closed by an override, besides those grades"
    )


def read_expectations(file: Path) -> Expectations:
    """Read and check the file; ValueError says what is wrong in it."""
    try:
        return Expectations.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{file} holds no expectations: {error}") from error
