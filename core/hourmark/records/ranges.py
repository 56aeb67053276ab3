"""Byte ranges of files: their host, file and range ids, and the fields that travel with them.

What a tailer's source says of each of its events: names and texts that travel in the range, and are
part of what it is.

Written in one way alone, so that equal fields are equal ranges: a JSON object, sorted by name,
without spaces, and nothing escaped that need not be. Bounded, as they come with every range.

Byte ranges of files, and the identities they rest on: host id, file id, range id.

A range is what the tailer ships and the delivery service parses: raw bytes and everything that
parsing depends on. It is durable on the host before its first send, so a retry is the same range
and has the same range id. Golden vectors: tests/contract/vectors/ranges.json.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import Final

FIELDS_MAX: Final = 32
FIELDS_BYTES_MAX: Final = 4000  # all of them, as written
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)  # as of fields of types


def encode_range_fields(fields: Mapping[str, str]) -> str:
    """As the range has them; empty where there are none. ValueError says what is wrong."""
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"there are {len(fields)} fields, allowed are {FIELDS_MAX}")
    for name, value in fields.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"the field {name!r:.120}: allowed are up to 100 letters, digits and _, "
                "not beginning with a digit"
            )
        if not isinstance(value, str):
            raise ValueError(f"the field {name} must be a text")
    written = (
        json.dumps(dict(fields), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if fields
        else ""
    )
    if len(written.encode()) > FIELDS_BYTES_MAX:
        raise ValueError(
            f"the fields have {len(written.encode())} bytes together, allowed are "
            f"{FIELDS_BYTES_MAX}"
        )
    return written


def decode_range_fields(written: str) -> dict[str, str]:
    """The inverse. ValueError if it is not written so."""
    if len(written.encode()) > FIELDS_BYTES_MAX:
        raise ValueError(f"the fields of a range must have at most {FIELDS_BYTES_MAX} bytes")
    try:
        read = json.loads(written) if written else {}
    except RecursionError as error:
        raise ValueError("the fields of a range must be a JSON object of texts") from error
    if not isinstance(read, dict) or encode_range_fields(read) != written:
        raise ValueError(
            "the fields of a range must be a JSON object of texts, sorted by name and "
            "without spaces"
        )
    return read


LINE_BYTES_MAX: Final = 4 * 1024 * 1024  # the hard limit of a line, without its LF

RECORD_START_BYTES_MAX: Final = 1000  # of a pattern: it travels with every range

LATER_FIELDS: Final = ("record_start", "fields", "format")  # of a range, after 0.2.0

HEX_128: Final = re.compile(r"[0-9a-f]{32}")


class Part(enum.Enum):
    """What the bytes are.

    A line over the hard limit is shipped as chunks, each of which becomes a dead letter.
    """

    # whole lines, each with its LF; where records are more than one line, whole records
    LINES = "lines"
    CHUNK = "chunk"  # a piece of an over-long line, or record, not its last
    LAST_CHUNK = "last-chunk"  # the piece that ends with its LF


class RangeId(bytes):
    """Eight bytes that name a range or an API batch: BLAKE2b over every field that parsing depends
    on, and its bytes.
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> RangeId:
        if len(value) != 8:
            raise ValueError(f"a range id has 8 bytes, not {len(value)}")
        return super().__new__(cls, value)

    def __str__(self) -> str:
        return self.hex()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Where bytes come from and how they are to be read. Raises ValueError, naming the field, when
    something is off.

    `start` and `end` are byte offsets in the file's generation; `end` is the next byte to read.
    """

    host_id: str  # 32 hex digits, minted once per installation
    file_id: str  # 32 hex digits, see `file_id`
    generation: int  # how often that file was truncated
    start: int
    end: int
    observed_at_ms: int  # the service's clock, as last answered to the tailer
    rules: str  # rules revision
    zone: str  # IANA time zone of timestamps without one
    source: str  # name of a declared source
    path: str  # where the file was found
    host_name: str  # human-readable; the envelope's `host`
    part: Part = Part.LINES
    record_start: str = (
        ""  # RE2, in lines that begin a record (see `record_start`); empty: each line is one
    )
    fields: str = ""  # what its source says of every event, as `encode_range_fields` writes it
    format: str = ""  # "cri": a container's log, see `cri`; empty: as it is

    def __post_init__(self) -> None:
        for name in ("host_id", "file_id"):
            if not HEX_128.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} must be 32 hex digits, not {getattr(self, name)!r}")
        for name in ("generation", "start", "end", "observed_at_ms"):
            if not 0 <= getattr(self, name) < 1 << 63:
                raise ValueError(f"{name} must be from 0 to 2^63 - 1, not {getattr(self, name)}")
        if self.end <= self.start:
            raise ValueError(
                f"a range holds at least a byte: end {self.end} is not after start {self.start}"
            )
        for name, longest in (
            ("rules", 64),
            ("zone", 64),
            ("source", 100),
            ("path", 4096),
            ("host_name", 255),
        ):
            if not 0 < len(getattr(self, name).encode(errors="surrogateescape")) <= longest:
                raise ValueError(f"{name} must have 1 to {longest} bytes")
        if len(self.record_start.encode()) > RECORD_START_BYTES_MAX:
            raise ValueError(f"record_start must have at most {RECORD_START_BYTES_MAX} bytes")
        if self.format not in ("", "cri") or (self.format and self.record_start):
            raise ValueError(
                f"format must be cri, and without record_start, or absent, not {self.format!r:.40}"
            )
        if self.fields:
            decode_range_fields(self.fields)

    @property
    def extras(self) -> dict[str, str]:
        """What came after 0.2.0, by name, where it says something. All else stays what it was: its
        id, its headers, its spool.
        """
        return {name: value for name in LATER_FIELDS if (value := getattr(self, name))}

    def range_id(self, body: bytes) -> RangeId:
        """The id of this range with these bytes (inflated)."""
        if len(body) != self.end - self.start:
            raise ValueError(
                f"the range says {self.end - self.start} bytes, the body has {len(body)}"
            )
        fields = dataclasses.astuple(self)[
            :_FIELDS
        ]  # in the order above, which must stay: it is part of the id
        more = (text for name, value in self.extras.items() for text in (name, value))
        return _range_id(("range", *map(str, fields), self.part.value, *more), body)


_FIELDS: Final = 11  # before `part`


def batch_range_id(
    event_type: str, batch_key: str, client: str, observed_at_ms: int, rules: str, body: bytes
) -> RangeId:
    """The range id of an API batch: its idempotency key, its time and rules, and its body
    (inflated).
    """
    return _range_id(("batch", event_type, batch_key, client, str(observed_at_ms), rules), body)


def file_id(device: int, inode: int, birth_ns: int) -> str:
    """The id of a file: 32 hex digits of BLAKE2b over device, inode and birth time (nanoseconds; 0
    where unknown).

    Taken when the file is first seen and kept in the checkpoint from then on.
    """
    parts = b"".join(value.to_bytes(8, "big") for value in (device, inode, birth_ns))
    return hashlib.blake2b(parts, digest_size=16).hexdigest()


def new_host_id() -> str:
    """A fresh host id: 32 hex digits, random."""
    return uuid.uuid4().hex


def _range_id(fields: tuple[str, ...], body: bytes) -> RangeId:
    digest = hashlib.blake2b(digest_size=8)
    for field in fields:
        encoded = field.encode(errors="surrogateescape")
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    digest.update(len(body).to_bytes(4, "big"))
    digest.update(body)
    return RangeId(digest.digest())
