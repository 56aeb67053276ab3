"""The segments of one receiving source, and their repair after a kill.

Segments are files to which lines are appended; each is removed once it is acknowledged. The folder
of a source contains:

    0000000001.log   lines; appended to until it is large enough or the run ends
    0000000001.done  acknowledged; to be forgotten by the checkpoint, then removed
    open             a receiver runs, or was killed while running
    last             of a resumable input: number and last line of a removed segment

A line is durable when `SegmentStore.append` returns. Bytes that a full disk does not take are kept
in memory and written first next time.

`recover_segments` repairs a folder before its files are tailed. An incomplete line at the end of a
segment was never durable, so it is cut off. A `.done` segment is forgotten and removed, because the
kill came between the two.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hourmark.errors import Unavailable
from hourmark.process.durable import sync_folder, write_durably
from hourmark.process.file_identity import FileIdentity
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FilePosition,
    TrackedFile,
    TrackedFiles,
)

SEGMENT_BYTES_MAX: Final = 16 << 20
_OF_SPOOL: Final = 8  # segments per spool at least, so that space is freed in small steps
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_OPEN: Final = "open"
_LAST: Final = "last"
_BLOCK_BYTES: Final = 1 << 16


class SegmentNotSynced(Unavailable):
    """Raised when fsync(2) fails for a segment, a file of received lines.

    It is then unknown which bytes of the segment are on disk. The tailer must end.
    """


class SegmentStore:
    """Stores the received lines of one source in files on disk, which are called segments.

    A segment is deleted once its lines are acknowledged. One thread appends lines. Another thread
    may call `complete_size`, `mark_done`, `save_last_line` and `remove`.

    Attributes:
        folder: Folder of the segments.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Create the folder if it does not exist, and list its segments.

        Args:
            folder: Folder of the source.
            bytes_max: Total size in bytes at which the store is full. A segment holds about an
                eighth of this size, but at most 16 MiB.

        Raises:
            OSError: The folder cannot be created or listed.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._bytes_max, self._segment_bytes = (
            bytes_max,
            min(SEGMENT_BYTES_MAX, bytes_max // _OF_SPOOL),
        )
        self._sealed = {path.stem: path.stat().st_size for path in list_segments(folder)}
        self._number = max([self._read_saved_line()[0], *map(int, self._sealed)])
        self._descriptor: int | None = None
        self._size = 0
        self._unwritten = b""

    @property
    def size(self) -> int:
        """Return the total size of all existing segment files in bytes.

        Acknowledged segments that are not deleted yet are included.
        """
        return sum(list(self._sealed.values())) + self._size

    @property
    def unwritten_bytes(self) -> int:
        """Return the number of appended bytes that are in memory because a write to disk failed."""
        return len(self._unwritten)

    @property
    def is_full(self) -> bool:
        """Return whether the receiver must stop reading.

        True if the total size has reached its limit, or if appended bytes could not be written to
        disk.
        """
        return bool(self._unwritten) or self.size >= self._bytes_max

    def append(self, content: bytes) -> None:
        """Append bytes to the current segment and sync them to disk.

        Args:
            content: Complete lines. If empty, only the bytes that an earlier call failed to write
                are written.

        Raises:
            OSError: Some bytes could not be written. They are kept in memory. Call `append(b"")` to
                try again.
            SegmentNotSynced: The segment cannot be synced. The tailer must end.
        """
        self._unwritten += content
        while self._unwritten:
            descriptor = self._descriptor if self._descriptor is not None else self._start_segment()
            written = os.write(descriptor, self._unwritten)
            self._size += written
            is_line_end = self._unwritten[written - 1 : written] == b"\n"
            self._unwritten = self._unwritten[written:]
            if not self._unwritten:
                self._sync(descriptor)
                if is_line_end and self._size >= self._segment_bytes:
                    self._seal()

    def close(self) -> None:
        """Close the current segment file, which then counts as complete.

        Does nothing if no segment is open.
        """
        if self._descriptor is not None:
            self._seal()

    def complete_size(self, name: str) -> int | None:
        """Return the size of a complete segment in bytes.

        Args:
            name: Number of the segment with ten digits, as in its file name.

        Returns:
            The size; None if there is no such segment, or if lines are still appended to it.
        """
        return self._sealed.get(name)

    def mark_done(self, name: str) -> None:
        """Rename an acknowledged segment durably from `.log` to `.done`.

        Does nothing if the segment does not exist.

        Args:
            name: Number of the segment with ten digits.
        """
        path = self.folder / f"{name}.log"
        if path.exists():
            path.rename(path.with_suffix(".done"))
            sync_folder(self.folder)

    def remove(self, name: str) -> None:
        """Delete an acknowledged segment.

        First rename it with `mark_done`, and remove it from the checkpoint. Does nothing if there
        is no such segment.

        Args:
            name: Number of the segment with ten digits.
        """
        (self.folder / f"{name}.done").unlink(missing_ok=True)
        self._sealed.pop(name, None)

    def save_last_line(self, name: str) -> None:
        """Save the last line of a segment durably, so that reading can resume after it.

        Call this method before `mark_done`. Does nothing if the segment has no lines, or if the
        line of a later segment is already saved.

        Args:
            name: Number of the segment with ten digits.
        """
        line = _last_line(self.folder / f"{name}.log")
        if line and int(name) >= self._read_saved_line()[0]:
            write_durably(self.folder / _LAST, b"%d\n" % int(name) + line)

    def last_line(self) -> bytes:
        """Return the last line that was appended in this run or an earlier one.

        Returns:
            The line; `b""` if no line was ever appended, or if the line no longer exists.
        """
        number, kept = self._read_saved_line()
        for path in sorted(self.folder.glob("*.log"), reverse=True):
            if int(path.stem) > number and (line := _last_line(path)):
                return line
        return kept

    def _read_saved_line(self) -> tuple[int, bytes]:
        try:
            number, line = (self.folder / _LAST).read_bytes().split(b"\n", 1)
        except FileNotFoundError:
            return 0, b""
        return int(number), line

    def was_left_open(self) -> bool:
        """Return whether the marker file of a running receiver exists, so that data may be lost.

        `mark_open` creates the file in the folder of the source, and `clear_open_mark` removes it.
        It exists after a crash. After an orderly stop, it exists only if the input loses data while
        no receiver runs.
        """
        return (self.folder / _OPEN).exists()

    def mark_open(self) -> None:
        """Create the marker file that indicates a running receiver, and sync it to disk."""
        write_durably(self.folder / _OPEN, b"")

    def clear_open_mark(self) -> None:
        """Remove the marker file that `mark_open` created.

        Call it only when all received data is on disk. Does nothing if the file does not exist.
        """
        (self.folder / _OPEN).unlink(missing_ok=True)

    def _start_segment(self) -> int:
        number = self._number + 1
        descriptor = os.open(self.folder / f"{number:010d}.log", _APPEND, 0o600)
        self._number, self._descriptor, self._size = number, descriptor, 0
        sync_folder(self.folder)
        return descriptor

    def _sync(self, descriptor: int) -> None:
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            raise SegmentNotSynced(
                f"{self.folder}/{self._number:010d}.log cannot be synced: {error.strerror}"
            ) from error

    def _seal(self) -> None:
        assert self._descriptor is not None, "only what is open is sealed"
        os.close(self._descriptor)
        self._descriptor = None
        self._sealed[f"{self._number:010d}"] = self._size
        self._size = 0


def _last_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            end, found = file.seek(0, os.SEEK_END), b""
            while end and found.count(b"\n") < 2:
                start = max(0, end - _BLOCK_BYTES)
                file.seek(start)
                found, end = file.read(end - start) + found, start
    except FileNotFoundError:
        return b""
    return found[found.rfind(b"\n", 0, -1) + 1 :]


def list_segments(folder: Path) -> Iterator[Path]:
    """Yield the segment files of a folder in ascending order of their numbers.

    A segment file contains lines that a source such as syslog received.

    Args:
        folder: Folder of one source.

    Yields:
        Paths of the files with the suffix `.log` (in use) or `.done` (acknowledged).
    """
    for path in sorted(folder.iterdir()):
        if path.suffix in (".log", ".done") and path.stem.isdigit():
            yield path


def recover_segments(
    folder: Path, checkpoint: Checkpoint, identify: Callable[[int], FileIdentity]
) -> None:
    """Repair the segments of a source after the tailer was killed.

    A segment is a file of received lines. Call this function before any segment is read or written.
    Incomplete lines at the end of a segment are removed. Segments with the suffix `.done`, whose
    lines were acknowledged, are deleted and removed from the checkpoint. A missing folder is
    ignored.

    Args:
        folder: Folder of one source.
        checkpoint: Checkpoint in which the segments are tracked files.
        identify: Function that returns the identity of an open file.

    Raises:
        OSError: A segment cannot be read or repaired. The tailer must not start.
        CheckpointFailed: The checkpoint cannot be written. The tailer must not start.
    """
    if not folder.is_dir():
        return
    known = TrackedFiles(checkpoint.files())
    for path in list_segments(folder):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            file = known.match(identify(descriptor))
            if path.suffix == ".done":
                if file is not None:
                    checkpoint.commit(segment_removal_changes(file)[0])
                path.unlink()
                continue
            size = _cut_to_lines(descriptor, file.progress.position.offset if file else 0)
            if file is not None:
                _correct(file, size, checkpoint)
        finally:
            os.close(descriptor)


def segment_removal_changes(file: TrackedFile) -> tuple[list[Change], FilePosition | None]:
    """Return the SQL statements that record the deletion of a segment file.

    A segment is a file to which a source such as syslog appends received lines. The statements
    delete the file from the checkpoint. If the file system does not record birth times, a later
    file with the same inode cannot be distinguished from it. In this case, the statements mark the
    file as missing instead. Execute them with `Checkpoint.commit`.

    Args:
        file: The segment as a tracked file.

    Returns:
        The statements with their parameters; and the position at which reading of a later file with
        the same inode begins, or None if the file is deleted from the checkpoint.
    """
    if file.identity.birth_ns:
        return changes.delete_file(file.file_id), None
    position = FilePosition(
        generation=file.progress.position.generation + 1, settled=file.progress.position.settled + 1
    )
    place = file.place._replace(missing=True)
    return [
        changes.save_location(file, place),
        changes.save_position(file.file_id, position),
    ], position


def _cut_to_lines(descriptor: int, read_to: int) -> int:
    size = end = os.fstat(descriptor).st_size
    while end > read_to:
        start = max(read_to, end - _BLOCK_BYTES)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        end = start + newline + 1 if newline >= 0 else start
        if newline >= 0:
            break
    end = max(end, min(read_to, size))
    if end < size:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    return end


def _correct(file: TrackedFile, size: int, checkpoint: Checkpoint) -> None:
    account, position = file.observed.account_since(file.progress), file.progress.position
    if max(account.high, position.size_seen) <= size:
        return
    position = dataclasses.replace(position, size_seen=size)
    account = FileAccount(size, (), account.head[:size])
    checkpoint.commit(
        [
            changes.save_position(file.file_id, position),
            changes.save_account(file.file_id, position, account),
        ]
    )
