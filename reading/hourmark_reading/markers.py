"""The marker of a closed bucket, as far as readers need it. Pure functions.

The marker is the file `_SUCCESS`, a JSON object (docs/reference/formats.md). A marker is untrusted
input: file names that could lead out of the bucket's folder, impossible numbers and a wrong digest
are refused. Unknown fields are ignored, so that newer markers remain readable.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hourmark_reading.errors import InvalidMarker
from hourmark_reading.hours import HOUR_S, format_label, parse_label

MARKER_NAME: Final = "_SUCCESS"
REMOVED_FOLDER: Final = "_removed"  # with tombstones: the markers of removed buckets by day
MARKER_BYTES_MAX: Final = 64 << 20
GRADES: Final = ("proved", "timed_out", "forced")
_FORMAT: Final = 1
_FILE_NAME: Final = re.compile(r"(?:part|late)-\d{5,9}\.avro")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_OWN_DIGEST: Final = re.compile(rb'"software": ?"[^"\\]* blake2b=([0-9a-f]{32})"')
_SOFTWARE_CHARS_MAX: Final = 40  # a longer text must contain a digest, even if it is damaged
_BLANK: Final = b"0" * 32  # replaces the digest while it is computed


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A data file that a marker lists.

    Attributes:
        name: Name in the bucket's folder.
        records: Number of records.
        bytes: Size of the file.
        blake2b: BLAKE2b digest of the file (16 bytes) in hex.
        schema_id: Id of the writer schema in the schema registry.
    """

    name: str
    records: int
    bytes: int
    blake2b: str
    schema_id: int

    @property
    def has_late_events(self) -> bool:
        """Whether the file contains events of earlier hours instead of the bucket's hour."""
        return self.name.startswith("late-")


@dataclass(frozen=True, slots=True)
class BucketMarker:
    """The content of a marker that readers need.

    Attributes:
        start_s: Start of the bucket's hour in Unix seconds.
        length_s: Length of the bucket in seconds.
        grade: `proved`, `timed_out` or `forced`.
        previous_s: Start of the type's previous bucket in Unix seconds; None for the first bucket.
        files: The data files.
        late_hours: Starts of the hours of the late events, in Unix seconds.
    """

    start_s: int
    length_s: int
    grade: str
    previous_s: int | None
    files: tuple[ListedFile, ...]
    late_hours: frozenset[int]

    @property
    def events(self) -> int:
        """Number of events of the bucket's own hour, without late events."""
        return sum(file.records for file in self.files if not file.has_late_events)


def parse_marker(content: bytes, event_type: str, start_s: int, where: str) -> BucketMarker:
    """Parse and check the content of a marker.

    Args:
        content: Content of the file `_SUCCESS`.
        event_type: Event type of the bucket's folder.
        start_s: Start of the hour of the bucket's folder, in Unix seconds.
        where: URL of the marker, for messages.

    Raises:
        InvalidMarker: The content is not a valid marker of this bucket.
    """
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        if found.get("format") != _FORMAT:
            raise ValueError(
                f"its format is {found.get('format')!r:.40}, and this version reads {_FORMAT}; "
                "upgrade hourmark-reading"
            )
        _check_own_digest(found, content)
        return _parse(found, event_type, start_s)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidMarker(
            f"{where} is not a valid marker: {problem}; `hourmark bucket verify` lists the "
            "problems of a bucket"
        ) from error


def parse_tombstone(
    content: bytes, event_type: str, length_s: int, where: str
) -> list[BucketMarker]:
    """Parse and check a tombstone, which contains the markers of the removed buckets of a day.

    Args:
        content: Content of the file `_removed/DATE.json`.
        event_type: Event type of the folder.
        length_s: Length of a bucket in seconds.
        where: URL of the tombstone, for messages.

    Returns:
        The markers of the removed buckets; empty if the buckets had another length.

    Raises:
        InvalidMarker: The content is not a valid tombstone of this type.
    """
    try:
        found = json.loads(content)
        if found["format"] != _FORMAT or found["type"] != event_type:
            raise ValueError(
                f"its format is {found['format']!r:.40}, its type {found['type']!r:.120}"
            )
        _check_own_digest(found, content)
        if found["bucket_seconds"] != length_s:
            return []
        entries = [
            (of["marker"].encode(), parse_label(of["hour"], length_s)) for of in found["buckets"]
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidMarker(
            f"{where} is not a valid tombstone: {error!r:.300}; `hourmark bucket verify` lists the "
            "problems of a type"
        ) from error
    return [parse_marker(marker, event_type, start_s, where) for marker, start_s in entries]


def _parse(found: Mapping[str, Any], event_type: str, start_s: int) -> BucketMarker:
    length_s = _number(found["bucket_seconds"], 60)
    if length_s % 60 or HOUR_S % length_s:
        raise ValueError(f"bucket_seconds is {length_s}")
    if (found["type"], found["hour"]) != (event_type, format_label(start_s, length_s)):
        raise ValueError(
            f"it is the marker of {found['type']!r:.120} {found['hour']!r:.40}, not of "
            f"{event_type} {format_label(start_s, length_s)}"
        )
    if found["grade"] not in GRADES:
        raise ValueError(f"its grade is {found['grade']!r:.40}")
    previous = found.get("previous")
    previous_s = None if previous is None else parse_label(previous["hour"], length_s)
    late = {parse_label(hour, length_s): _number(n, 1) for hour, n in found["late"].items()}
    earlier = [*late, *([] if previous_s is None else [previous_s])]
    if any(earlier_s >= start_s for earlier_s in earlier):
        raise ValueError("it names a later hour as an earlier one")
    files = tuple(map(_parse_file, found["files"]))
    if len({file.name for file in files}) < len(files):
        raise ValueError("it lists a file twice")
    if sum(late.values()) != sum(file.records for file in files if file.has_late_events):
        raise ValueError("its numbers of late events differ from those of its files")
    return BucketMarker(start_s, length_s, found["grade"], previous_s, files, frozenset(late))


def _parse_file(found: Mapping[str, Any]) -> ListedFile:
    name, digest = found["name"], found["blake2b"]
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
        raise ValueError(f"it lists the file {name!r:.120}, which is not the name of a data file")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"the digest of {name} is not 16 bytes in hex")
    return ListedFile(
        name,
        _number(found["records"], 1),
        _number(found["bytes"], 1),
        digest,
        _number(found["schema_id"], 0),
    )


def _number(value: object, at_least: int) -> int:
    if type(value) is not int or not at_least <= value < 1 << 63:
        raise ValueError(f"it contains {value!r:.40} instead of a number from {at_least} on")
    return value


def _check_own_digest(found: Mapping[str, Any], content: bytes) -> None:
    if len(found["software"]) <= _SOFTWARE_CHARS_MAX:
        return  # written before 0.3.0
    own = _OWN_DIGEST.search(content, max(content.rfind(b'"software"'), 0))
    if own is not None:
        blank = content[: own.start(1)] + _BLANK + content[own.end(1) :]
        if hashlib.blake2b(blank, digest_size=16).hexdigest() == own[1].decode():
            return
    raise ValueError("its content does not match its own digest, so it was changed")
