"""Recognition of copies that `copytruncate` creates next to a log file.

The content of a copy was already read, so it is skipped. A copy is a file of which nothing was read
since it began, or since it began anew after a truncation, and that meets two conditions:

- Its name is the current or first name of another tracked file with a suffix (`app.log.1` for
  `app.log`).
- Its content matches that file: the same first bytes, and the same bytes before the offset up to
  which that file was read, now or before it was truncated. If the file has been read further than
  the end of the copy, the bytes before the end of the copy are compared.

The decision waits until part of the original was read. Unless the original was truncated, it also
waits until neither file is being written, because both may still grow. A file whose lines are all
equal cannot be identified, and is sent again. If the original is gone or has a new generation, the
copy is read from the offset at which reading of the original stopped.

Skipped bytes are saved in the checkpoint, counted and logged.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hourmark.process.file_identity import open_without_waiting
from hourmark_producer.checkpoint.marks import matches_last_mark
from hourmark_producer.files import waits
from hourmark_producer.files.examination import content_end, read_at
from hourmark_producer.files.fingerprints import (
    ANCHOR_BYTES,
    HEAD_BYTES,
    IDENTIFYING_BYTES,
    begins_alike,
)
from hourmark_producer.files.remainder import RemainderStage
from hourmark_producer.files.tracked_file import FilePosition, TrackedFile, TrackedFiles
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.rotated_names import former_names

_TAIL_BYTES: Final = 1 << 16


class CopyCandidate(NamedTuple):
    """The content of an unread file that may be a copy of a tracked file.

    Attributes:
        size: Size of the content in bytes.
        read: Function that takes an offset and a number of bytes, and returns these bytes of the
            content.
        is_new: Whether the file was found within the last `waits.COPYING_S` (5) seconds.
        growing: Whether the file was written to within the last `waits.COPYING_S` seconds, so that
            the copy may be incomplete.
    """

    size: int
    read: Callable[[int, int], bytes]
    is_new: bool = False
    growing: bool = False


def describe_candidate(
    descriptor: int, now_s: float, found_s_ago: float, changed_s_ago: float
) -> CopyCandidate:
    """Return the properties of an open uncompressed file that may be a copy of another file.

    Pass the result to `find_origin`.

    Args:
        descriptor: File descriptor, open for reading.
        now_s: Current time of this host in Unix seconds.
        found_s_ago: Seconds since the file was opened.
        changed_s_ago: Seconds since a scan detected a change. Used if the modification time is in
            the future, for example because the clock was set back.

    Returns:
        The candidate. Its `read` function uses `descriptor`, which must stay open.

    Raises:
        OSError: The status of the file cannot be read.
    """
    status = os.fstat(descriptor)
    age_s = now_s - status.st_mtime
    growing = (age_s if age_s >= 0 else changed_s_ago) < waits.COPYING_S
    return CopyCandidate(
        status.st_size,
        functools.partial(read_at, descriptor),
        found_s_ago < waits.COPYING_S,
        growing,
    )


class CopyOrigin(NamedTuple):
    """The original of a copy, and how far the tailer has read the original.

    Attributes:
        file: The original file.
        known: Position up to which the original was read.
        is_still_read: Whether the tailer continues to read the original after `known`. If False,
            for example because the original was deleted, the bytes after `known` must be read from
            the copy.
    """

    file: TrackedFile
    known: FilePosition
    is_still_read: bool


def find_origin(
    files: TrackedFiles, file: TrackedFile, candidate: CopyCandidate
) -> CopyOrigin | None:
    """Find the original of an unread file that may be a copy.

    Files are compared only if their names suggest a copy, such as `app.log.1` and `app.log`. A file
    is a copy if it contains the same first bytes as the original, and the same bytes before the
    position up to which the original was read. If the file ends before this position, the bytes
    before its end are compared instead.

    Args:
        files: All tracked files.
        file: The unread file.
        candidate: Size and content of the unread file.

    Returns:
        The original, or None if the file is not a copy.

    Raises:
        RetryLater: The decision is not possible yet, for example because the copy is still being
            written. Call again after a pause.
        OSError: A file cannot be read.
    """
    size, read, is_new, growing = candidate
    head = read(0, HEAD_BYTES)
    for other in _namesakes(files, file):
        seen = other.observed.account_since(other.progress).head
        if _will_be_read(files, other) and begins_alike(seen, head):
            raise RetryLater(
                f"it begins like {other.place.seen_at}, which has not been read yet",
                is_expected=True,
            )
        if (
            growing
            and 0 < size < IDENTIFYING_BYTES
            and any(
                one.startswith(head)
                for one in (seen, *(known.head for known in _known_positions(other)))
            )
        ):
            raise RetryLater(
                f"it is still too short to be distinguished from a copy of {other.place.seen_at}",
                is_expected=True,
            )
        if is_new and _is_hardly_known(files, file, other, head):
            raise RetryLater(
                f"it begins like {other.place.seen_at}, of which too little has been read yet",
                is_expected=True,
            )
        for known in _known_positions(other):
            if not known.is_identifying or not known.head.startswith(head[: len(known.head)]):
                continue
            if size >= known.offset:
                if _has_it_all(known, read):
                    origin = _origin(files, other, known)
                    if (
                        origin.is_still_read and growing and not _is_truncated(other)
                    ):  # both may have grown since the last scan
                        raise RetryLater(
                            f"it is a copy of {other.place.seen_at}, and possibly incomplete",
                            is_expected=True,
                        )
                    return origin
                continue
            is_part = _is_part(other, known, size, read)
            if growing and head and (is_part or size < 2 * HEAD_BYTES):
                raise RetryLater(
                    f"it begins like {other.place.seen_at}; it may be a copy that is still being "
                    "written",
                    is_expected=True,
                )
            if size >= IDENTIFYING_BYTES and is_part:
                return _origin(files, other, known)
    return None


def _known_positions(other: TrackedFile) -> Iterator[FilePosition]:
    yield other.progress.position
    yield from other.earlier.positions


def _has_it_all(known: FilePosition, read: Callable[[int, int], bytes]) -> bool:
    # an older position has no anchor, but digests
    if not known.anchor:
        return matches_last_mark(known.marks, known.offset, read)
    length = len(known.anchor)
    return read(known.offset - length, length) == known.anchor


def _origin(files: TrackedFiles, other: TrackedFile, known: FilePosition) -> CopyOrigin:
    is_over = (
        other.is_gone
        or files.is_displaced(other)
        or known.generation != other.progress.position.generation
    )
    is_unseen = (
        other.observed.size < known.offset
    )  # not scanned in this run, or truncated and not yet examined
    if (
        other.rest is None
        and not is_over
        and (is_unseen or (other.descriptor is None and other.unfound > 0))
    ):
        raise RetryLater(
            f"it is a copy of {other.place.seen_at}, which is being searched for", is_expected=True
        )
    return CopyOrigin(other, known, not is_over)


def _is_truncated(other: TrackedFile) -> bool:
    # observed, but not accounted for yet
    return other.rest is not None or bool(other.observed.account_since(other.progress).shrinks)


def _is_part(
    other: TrackedFile, known: FilePosition, size: int, read: Callable[[int, int], bytes]
) -> bool:
    # whether the candidate is the beginning of the content that was read from `other`
    is_now = known is other.progress.position
    if is_now and (is_copy := _is_in_log(other, known, size, read)) is not None:
        return is_copy
    if size <= len(known.head):  # all of it is known to the byte
        return True
    return matches_last_mark(known.marks, size, read)


def _is_in_log(
    other: TrackedFile, known: FilePosition, size: int, read: Callable[[int, int], bytes]
) -> bool | None:
    # None if the file cannot be read or its content was replaced
    start = max(0, size - ANCHOR_BYTES)
    with (
        contextlib.suppress(OSError),
        open(other.place.seen_at, "rb", opener=open_without_waiting) as opened,
    ):
        status = os.fstat(opened.fileno())
        if (status.st_dev, status.st_ino) == (other.identity.device, other.identity.inode):
            is_same = read_at(opened.fileno(), start, size - start) == read(start, size - start)
            if not is_same and read_at(opened.fileno(), 0, len(known.head)) != known.head:
                return None
            return is_same
    return None


def _will_be_read(files: TrackedFiles, other: TrackedFile) -> bool:
    # a candidate is compared with a file only after enough of the file was read
    is_over = other.is_gone or files.is_displaced(other) or _has_left_nothing(other)
    begins = other.progress.position.offset < IDENTIFYING_BYTES and not other.is_read
    return not is_over and (begins or _is_truncated(other))


def _has_left_nothing(other: TrackedFile) -> bool:
    # the search for its unread content has ended
    is_away = other.descriptor is None and other.unfound > 0
    return (
        is_away
        and other.rest is not None
        and other.rest.stage in (RemainderStage.FINISHED, RemainderStage.NOWHERE)
    )


def _is_hardly_known(
    files: TrackedFiles, file: TrackedFile, other: TrackedFile, head: bytes
) -> bool:
    # whether `file` may be a copy of `other`, of which too little was read to tell; if nothing was
    # read, the younger file counts as the copy
    known, is_over = other.progress.position, other.is_gone or files.is_displaced(other)
    if is_over or known.offset >= IDENTIFYING_BYTES or len(head) <= known.offset:
        return False
    is_younger = file.identity.birth_ns > other.identity.birth_ns > 0
    return head.startswith(known.head[: known.offset]) if known.offset else is_younger


def possible_origins(files: TrackedFiles) -> set[TrackedFile]:
    """Return the tracked files of which unread files may be copies, judging by their names.

    Keep tracking these files until the contents have been compared. Otherwise, the tailer cannot
    recognize the copies and sends their lines again.

    Args:
        files: All tracked files.

    Returns:
        The possible originals; an empty set if there are none.
    """
    untouched = (file for file in files if file.progress.is_untouched and not file.is_gone)
    unread = [
        file
        for file in untouched
        if file.observed.account_since(file.progress).high >= IDENTIFYING_BYTES
    ]
    return {origin for file in unread for origin in _namesakes(files, file)}


def largest_unread_copy(files: TrackedFiles, file: TrackedFile) -> int:
    """Return the size of the largest unread copy of a deleted or truncated file.

    Only open files that contain all bytes that were read from the original count as copies. The
    tailer continues in the copy at the position of the original, so the bytes in the copy are not
    lost.

    Args:
        files: All tracked files.
        file: The original.

    Returns:
        Size in bytes, or 0 if there is no such copy.
    """
    known, sizes = file.progress.position, [0]
    for other in files if known.is_identifying else ():
        descriptor = other.descriptor
        if (
            descriptor is None
            or not other.progress.is_untouched
            or file not in _namesakes(files, other)
        ):
            continue
        with contextlib.suppress(OSError):  # let go by now
            status, read = os.fstat(descriptor), functools.partial(read_at, descriptor)
            if (
                status.st_ino == other.identity.inode
                and read(0, len(known.head)) == known.head
                and _has_it_all(known, read)
            ):
                sizes.append(status.st_size)
    return max(sizes)


def end_of_last_line(descriptor: int) -> int:
    """Return the offset after the last complete line of an open file.

    Only the last 64 KiB are searched. NUL bytes at the end of the file are ignored.

    Args:
        descriptor: File descriptor, open for reading.

    Returns:
        The offset in bytes, or 0 if no line end was found.

    Raises:
        OSError: The file cannot be read.
    """
    size = content_end(descriptor, os.fstat(descriptor).st_size, 0)
    start = max(0, size - _TAIL_BYTES)
    end = read_at(descriptor, start, size - start).rfind(b"\n")
    return start + end + 1 if end >= 0 else 0


def _namesakes(files: TrackedFiles, file: TrackedFile) -> Iterator[TrackedFile]:
    # The name without its suffixes must be a name of the other file, in the same source. The current
    # names of tracked files are those that the file system has now.
    for name in former_names(file.place.path):
        others = list(files.with_name(name))
        with contextlib.suppress(OSError):
            status = os.stat(name)  # noqa: PTH116
            if (
                here := files.at_inode(status.st_dev, status.st_ino)
            ) is not None and here not in others:
                others.append(here)
        yield from (
            other
            for other in others
            if other is not file and other.place.source == file.place.source
        )


def first_new_offset(origin: CopyOrigin, descriptor: int) -> int:
    """Return the offset of the first byte of a copy that must be read from the copy.

    The bytes before it are skipped, because they are read from the original. If the tailer still
    reads the original, all complete lines of the copy are skipped. If the original was deleted or
    truncated, only the bytes that were already read are skipped.

    Args:
        origin: The original, from `find_origin`.
        descriptor: File descriptor of the copy, open for reading.

    Returns:
        The offset; 0 if nothing is skipped.

    Raises:
        OSError: The copy cannot be read.
    """
    status = os.fstat(descriptor)
    if not origin.is_still_read or status.st_size <= origin.known.offset:
        return min(status.st_size, origin.known.offset)
    end, rest = max(end_of_last_line(descriptor), origin.known.offset), origin.file.rest
    if rest is not None and rest.reading_inode == status.st_ino:
        return min(
            end, rest.readable
        )  # what was written to the copy since it was opened there is its own
    return end
