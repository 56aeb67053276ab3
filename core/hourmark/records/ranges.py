"""Byte ranges of files: their host, file and range ids, and the fields that travel with them.

A range is the unit that the File Tailer sends and the delivery service parses: raw bytes, and
everything that parsing depends on. The tailer stores a range durably before it sends it, so a retry
sends the same range with the same range id. Test vectors: tests/contract/vectors/ranges.json.

The `fields` of a range are constant field values that a tailer's source adds to each of its events.
They have one canonical form, so that equal fields give equal ranges: a JSON object sorted by name,
without spaces or unnecessary escapes.
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
FIELDS_BYTES_MAX: Final = 4000  # all fields in canonical form
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)  # as in event types


def encode_range_fields(fields: Mapping[str, str]) -> str:
    """Serialize the constant fields of a byte range as canonical JSON.

    These fields are added to every event of the range.

    Args:
        fields: Values by field name. A name has up to 100 letters, digits and underscores, and does
            not begin with a digit.

    Returns:
        A JSON object sorted by name. An empty string if there are no fields.

    Raises:
        ValueError: There are more than 32 fields, the result is longer than 4,000 bytes, or a name
            or value is invalid.
    """
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"there are {len(fields)} fields; the maximum is {FIELDS_MAX}")
    for name, value in fields.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"the field {name!r:.120}: allowed: up to 100 letters, digits and _, not "
                "beginning with a digit"
            )
        if not isinstance(value, str):
            raise ValueError(f"the field {name} must be a string")
    written = (
        json.dumps(dict(fields), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if fields
        else ""
    )
    if len(written.encode()) > FIELDS_BYTES_MAX:
        raise ValueError(
            f"the fields have {len(written.encode())} bytes in total; the maximum is "
            f"{FIELDS_BYTES_MAX}"
        )
    return written


def decode_range_fields(text: str) -> dict[str, str]:
    """Parse the constant fields of a byte range from canonical JSON.

    These fields are added to every event of the range.

    Args:
        text: The output of `encode_range_fields`.

    Returns:
        Values by field name. Empty if `text` is empty.

    Raises:
        ValueError: The JSON is not in canonical form, or is longer than 4,000 bytes.
    """
    if len(text.encode()) > FIELDS_BYTES_MAX:
        raise ValueError(f"the fields of a range must have at most {FIELDS_BYTES_MAX} bytes")
    try:
        read = json.loads(text) if text else {}
    except RecursionError as error:
        raise ValueError("the fields of a range must be a JSON object of strings") from error
    if not isinstance(read, dict) or encode_range_fields(read) != text:
        raise ValueError(
            "the fields of a range must be a JSON object of strings, sorted by name and "
            "without spaces"
        )
    return read


LINE_BYTES_MAX: Final = 4 * 1024 * 1024  # maximum length of a line, without its LF

RECORD_START_BYTES_MAX: Final = 1000  # of a pattern, which is sent with every range

# of a range, added after 0.2.0; `ending` after 0.3.0
LATER_FIELDS: Final = ("record_start", "fields", "format", "ending")
END_OF_FILE: Final = "eof"  # the value of `ending`

HEX_128: Final = re.compile(r"[0-9a-f]{32}")


class Part(enum.Enum):
    """The content of a byte range: whole lines, or a piece of a line that exceeds the size limit.

    Each piece of such a line is stored as a dead letter instead of an event.

    Attributes:
        LINES: Whole lines, each with its line feed, or whole multi-line records. Only the last line
            of a range with `ending` has no line feed.
        CHUNK: A piece, but not the last one, of a line or record that exceeds the size limit.
        LAST_CHUNK: The last piece of such a line or record.
    """

    # whole lines, each with its LF; with multi-line records, whole records
    LINES = "lines"
    CHUNK = "chunk"  # a piece of an over-long line, or record, not its last
    LAST_CHUNK = "last-chunk"  # the piece that ends with its LF


class RangeId(bytes):
    """An 8-byte id of a byte range or an API batch.

    The id is a BLAKE2b digest of the bytes and of all metadata that is needed to parse them. The
    constructor raises `ValueError` if the value does not have 8 bytes.
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
    """A range of bytes in a log file, with all metadata that is needed to parse it.

    The constructor raises `ValueError` if a field is invalid. The message names the field.

    Attributes:
        host_id: 32 hex digits, created once for each installation.
        file_id: 32 hex digits; see the function `file_id`.
        generation: Number of times that the file has been truncated.
        start: Offset of the first byte, counted from the file's last truncation.
        end: Offset after the last byte.
        observed_at_ms: Time at which the tailer read the range, in Unix milliseconds on the
            service's clock, as last reported to the tailer.
        rules: Id of the rules revision that the range is parsed with. A rules revision is a
            numbered version of the declared event types, sources and limits.
        zone: IANA time zone of timestamps without a zone.
        source: Name of a declared source.
        path: Path of the file when it was found.
        host_name: Human-readable name of the host.
        part: Whether the bytes are whole lines, or one piece of a line that exceeds the size limit.
        record_start: RE2 pattern that matches the first line of each multi-line record; empty if
            each line is a record.
        fields: Constant fields that are added to every event, from `encode_range_fields`.
        format: "cri" for container logs; empty otherwise.
        ending: "eof" if the last line has no LF, because the file ends there; empty otherwise.
    """

    host_id: str
    file_id: str
    generation: int
    start: int
    end: int
    observed_at_ms: int
    rules: str
    zone: str
    source: str
    path: str
    host_name: str
    part: Part = Part.LINES
    record_start: str = ""
    fields: str = ""
    format: str = ""
    ending: str = ""

    def __post_init__(self) -> None:
        for name in ("host_id", "file_id"):
            if not HEX_128.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} must be 32 hex digits, not {getattr(self, name)!r}")
        for name in ("generation", "start", "end", "observed_at_ms"):
            if not 0 <= getattr(self, name) < 1 << 63:
                raise ValueError(f"{name} must be from 0 to 2^63 - 1, not {getattr(self, name)}")
        if self.end <= self.start:
            raise ValueError(
                f"a range must contain at least one byte: end {self.end} is not after start "
                f"{self.start}"
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
        if self.ending not in ("", END_OF_FILE) or (self.ending and self.part is Part.CHUNK):
            raise ValueError(
                f"ending must be {END_OF_FILE}, and not for a chunk, or absent, "
                f"not {self.ending!r:.40}"
            )
        if self.fields:
            decode_range_fields(self.fields)

    @property
    def extras(self) -> dict[str, str]:
        """Return the non-empty fields of the range that were added after version 0.2.0.

        A range without such fields has the same id and HTTP headers as in version 0.2.0.

        Returns:
            Values by field name, in the order of `LATER_FIELDS`. Empty if no field is set.
        """
        return {name: value for name in LATER_FIELDS if (value := getattr(self, name))}

    def range_id(self, body: bytes) -> RangeId:
        """Compute the id of this range from its fields and its bytes.

        A retry of the same range has the same id.

        Args:
            body: The range's bytes, uncompressed.

        Raises:
            ValueError: The body does not have `end - start` bytes.
        """
        if len(body) != self.end - self.start:
            raise ValueError(
                f"the range has {self.end - self.start} bytes, but the body has {len(body)}"
            )
        fields = dataclasses.astuple(self)[
            :_FIELDS
        ]  # the order of the fields is part of the id and must not change
        more = (text for name, value in self.extras.items() for text in (name, value))
        return _range_id(("range", *map(str, fields), self.part.value, *more), body)


_FIELDS: Final = 11  # before `part`


def batch_range_id(
    event_type: str, batch_key: str, client: str, observed_at_ms: int, rules: str, body: bytes
) -> RangeId:
    """Compute the id of a batch of events sent to the HTTP API.

    The id is a digest of all arguments, so a retry of the same batch has the same id.

    Args:
        event_type: Name of the event type.
        batch_key: Idempotency key of the batch.
        client: The client's name.
        observed_at_ms: Time of the batch, in Unix milliseconds on the service's clock.
        rules: Id of the rules revision that the batch is parsed with. A rules revision is a
            numbered version of the declared event types, sources and limits.
        body: The batch's bytes, uncompressed.
    """
    return _range_id(("batch", event_type, batch_key, client, str(observed_at_ms), rules), body)


def file_id(device: int, inode: int, birth_ns: int) -> str:
    """Compute the id of a file from the properties that identify it on its host.

    Compute the id when the file is first found, and store it, because a later file may reuse the
    inode.

    Args:
        device: Device number of the file system.
        inode: Inode number.
        birth_ns: Creation time in nanoseconds; 0 if unknown.

    Returns:
        32 hex digits of a BLAKE2b digest.
    """
    parts = b"".join(value.to_bytes(8, "big") for value in (device, inode, birth_ns))
    return hashlib.blake2b(parts, digest_size=16).hexdigest()


def new_host_id() -> str:
    """Generate a random host id for a new installation.

    Returns:
        32 hex digits.
    """
    return uuid.uuid4().hex


def _range_id(fields: tuple[str, ...], body: bytes) -> RangeId:
    digest = hashlib.blake2b(digest_size=8)
    for field in fields:
        encoded = field.encode(errors="surrogateescape")
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    digest.update(len(body).to_bytes(4, "big"))
    digest.update(body)
    return RangeId(digest.digest())
