"""Conversion between rows of the checkpoint and domain objects."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Final

from hourmark.process.file_identity import FileIdentity
from hourmark.records.ranges import LATER_FIELDS, ByteRange, Part
from hourmark_producer.files.fingerprints import Truncation
from hourmark_producer.files.tracked_file import (
    NEVER,
    FileAccount,
    FileLocation,
    FilePosition,
    FileProgress,
    SpooledRange,
    TrackedFile,
)

_FIELDS: Final = tuple(field.name for field in dataclasses.fields(ByteRange))


def identity_columns(file: TrackedFile) -> tuple[int, int, int]:
    """Return the columns of the table `files` that identify a file.

    Args:
        file: The tracked file.

    Returns:
        The values of `device`, `inode` and `birth_ns`, in this order. Device and inode are
        converted to signed 64-bit integers, as SQLite stores them.
    """
    # SQLite's integers are signed; device and inode numbers are not
    device, inode = (
        value - (1 << 64) if value >> 63 else value
        for value in (file.identity.device, file.identity.inode)
    )
    return device, inode, file.identity.birth_ns


def location_columns(place: FileLocation) -> tuple[str, bytes, bytes, int]:
    """Return the columns of the table `files` that describe where a file was found.

    Args:
        place: Source of the file, its first and latest path, and whether it is missing.

    Returns:
        The values of `source`, `path`, `seen_at` and `missing`, in this order. Paths are bytes.
    """
    return place.source, os.fsencode(place.path), os.fsencode(place.seen_at), place.missing


def position_columns(position: FilePosition) -> tuple[int, int, bool, bytes, int]:
    """Return the columns of the table `files` that describe a position.

    Args:
        position: Read position of a file.

    Returns:
        The values of `generation`, `offset`, `in_line`, `anchor` and `size_seen`, in this order.
    """
    return (
        position.generation,
        position.offset,
        position.in_line,
        position.anchor,
        position.size_seen,
    )


def row_to_file(row: tuple[Any, ...], in_flight: tuple[SpooledRange, ...]) -> TrackedFile:
    """Return the tracked file that a row of the table `files` describes.

    Args:
        row: All columns of the row, in the order of the table.
        in_flight: The byte ranges of the file that are stored until a service acknowledges them.
    """
    (
        file_id,
        device,
        inode,
        birth_ns,
        source,
        path,
        seen_at,
        missing,
        generation,
        offset,
        in_line,
        anchor,
        size_seen,
    ) = row
    return TrackedFile(
        file_id=file_id,
        identity=FileIdentity(device % (1 << 64), inode % (1 << 64), birth_ns),
        place=FileLocation(source, os.fsdecode(path), os.fsdecode(seen_at), bool(missing)),
        progress=FileProgress(
            position=FilePosition(
                generation=generation,
                offset=offset,
                in_line=bool(in_line),
                anchor=bytes(anchor),
                size_seen=size_seen,
            ),
            in_flight=in_flight,
            quiet_to=offset,
        ),
    )


def restore_account(
    file: TrackedFile,
    generation: int,
    settled: int,
    doubted: int,
    high: int,
    shrinks: str,
    head: bytes,
) -> None:
    """Restore the observations of a file from its row in the table `accounts`.

    The observations are the sizes and truncations that scans detected. Does nothing if the content
    of the file was replaced after the row was written. All arguments except `file` are columns of
    the row.

    Args:
        file: The file, which is modified.
        generation: Number of times that the content had been replaced.
        settled: Number of truncations whose lost bytes were already counted.
        doubted: 1 if a warning was logged that all lines of the file are equal, otherwise 0.
        high: Largest size since the latest truncation, in bytes.
        shrinks: Truncations whose lost bytes were not counted yet, as a JSON array. Each element
            is an array of the values of a `Truncation`, with bytes in hexadecimal.
        head: First bytes of the content.
    """
    progress, former = file.progress, file.earlier.latest
    if generation != progress.position.generation:  # a version without accounts has gone on since
        return
    is_void = (
        former is not None and former.generation == generation
    )  # the run before saw it truncated
    read_head = former.head if former is not None and is_void else bytes(head)
    position = dataclasses.replace(
        progress.position, head=read_head, settled=settled, doubted=bool(doubted)
    )
    file.progress = dataclasses.replace(progress, position=position)
    seen = tuple(
        Truncation(high, low, other, bytes.fromhex("".join(head)))
        for high, low, other, *head in json.loads(shrinks)
    )
    account = FileAccount(high if seen else max(high, position.offset), seen, bytes(head))
    file.observed = dataclasses.replace(NEVER, account=account, base_s=progress.examined_at_s)
    file.saved = account


def orphaned_ranges_to_file(in_flight: tuple[SpooledRange, ...]) -> TrackedFile:
    """Create a substitute for a deleted file that still has unacknowledged ranges.

    Args:
        in_flight: The ranges, at least one, all of the same file, in sequence order.

    Returns:
        A file that is positioned at the end of the last range. It is marked as retired, so that
        nothing more is read from it.
    """
    sent = in_flight[-1].range
    return TrackedFile(
        file_id=sent.file_id,
        identity=FileIdentity(0, 0, 0),
        place=FileLocation(sent.source, sent.path, sent.path),
        progress=FileProgress(
            position=FilePosition(generation=sent.generation, offset=sent.end, size_seen=sent.end),
            in_flight=in_flight,
            quiet_to=sent.end,
        ),
        retired=True,
    )


def range_to_fields(sent: ByteRange) -> dict[str, Any]:
    """Convert a byte range to the dict of fields that is stored in the table `ranges`.

    Fields that were added after version 0.2.0 are included only if they are set, so that earlier
    versions can read the table.

    Args:
        sent: The byte range, without its bytes.

    Returns:
        Maps each field name to a value that JSON can represent.
    """
    fields = {name: getattr(sent, name) for name in _FIELDS} | {
        "part": sent.part.value
    }  # asdict copies deeply
    return {name: value for name, value in fields.items() if name not in LATER_FIELDS} | sent.extras


def json_to_range(text: str) -> ByteRange:
    """Parse a byte range from its JSON form in the table `ranges`.

    This is the inverse of `range_to_fields`.

    Args:
        text: JSON object with the fields of the range.
    """
    fields = json.loads(text)
    return ByteRange(**fields | {"part": Part(fields["part"])})
