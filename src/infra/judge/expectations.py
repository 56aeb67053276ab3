"""What the judge is told: where HDFS is, which files are sources, and what an event of each type holds of its line.

{"webhdfs": "http://127.0.0.1:9870", "root": "/hourmark/buckets", "user": "me", "host": "my-host", "host_id": "…",
 "files": [{"path": "/var/log/app/*.log"}, {"path": "/var/log/kafka.log", "form": "free", "type": "server-log", "size": 4711}],
 "types": {"lines": {"content": "msg-bytes", "field": "line"}, "server-log": {"content": "raw-line", "field": "line"},
           "track-played": {"content": "json"}}}
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileExpectation(_Told):
    """Source files of one kind."""

    path: str = Field(description="a path or a glob; a file that several name is taken once")
    form: Literal["rfc5424", "free"] = "rfc5424"
    type: str | None = Field(None, description="of all lines; absent: each line's MSGID tells")
    size: int | None = Field(None, ge=0, description="what follows this byte is ignored, in the file and in HDFS")
    generation: int = Field(0, ge=0, description="how often the file was truncated")


class TypeExpectation(_Told):
    """How the bytes of a line are found again in an event.

    raw-line   `field` is the whole line
    msg-bytes  `field` is the MSG of the RFC 5424 line
    json       every key of the MSG, a JSON object, is a field of the same name and value
    """

    content: Literal["raw-line", "msg-bytes", "json"]
    field: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.field is None) != (self.content == "json"):
            raise ValueError("`field` goes with raw-line and msg-bytes, and with neither else")
        return self


class Expectations(_Told):
    """See the module."""

    webhdfs: str
    root: str = Field(description="of the buckets: a path in HDFS")
    user: str
    files: list[FileExpectation]
    types: dict[str, TypeExpectation]
    host: str | None = Field(None, description="of events whose line names none; absent: not checked")
    host_id: str | None = Field(None, description="32 hex digits; absent: the digests in event ids cannot be checked")
    line_bytes_max: int = Field(4 << 20, description="a longer line must be there in pieces, as dead letters")
    other_files: Literal["unexpected", "ignore"] = Field("unexpected", description="events of files that are not listed")


def read_expectations(file: Path) -> Expectations:
    """Read and check the file; ValueError says what is wrong in it."""
    try:
        return Expectations.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{file} holds no expectations: {error}") from error
