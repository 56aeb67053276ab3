"""The segment files of one source, and their repair after a kill.

The segments of one source: files that are appended to, one after another, and removed when they are
acknowledged.

    0000000001.log   lines; the one with the highest number is appended to, until it is long enough, or the run ends
    0000000001.done  acknowledged as a whole: to be forgotten by the checkpoint, then removed
    open             somebody receives, or was killed while he did
    last             of a source that can be asked again: the number of a segment that is gone, and its last line

A line is durable when `append` returns. What a full disk does not take is kept in memory, and is
tried again first.

What a kill left of segments, put in order before they are followed.

The end of a segment that is no whole line was never promised: it is cut off, and what looks had
seen of it was never there. A segment that was done is forgotten, then removed: the kill came
between the two.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hourmark.errors import Unavailable
from hourmark.process.durable import sync_folder, write_durably
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.files.identity import FileIdentity
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FilePosition,
    TrackedFile,
    TrackedFiles,
)

SEGMENT_BYTES_MAX: Final = 16 << 20
_OF_SPOOL: Final = (
    8  # so many segments, or more, have room in a spool: most of it is there again soon
)
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_OPEN: Final = "open"
_LAST: Final = "last"
_BLOCK_BYTES: Final = 1 << 16


class Unsynced(Unavailable):
    """The disk did not take what was written; nobody knows what of it is there.

    Nothing can be relied on any more.
    """


class Segments:
    """Written by one thread, released by another: `sealed_bytes` and `release`."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """OSError where the folder cannot be made or listed."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._bytes_max, self._segment_bytes = (
            bytes_max,
            min(SEGMENT_BYTES_MAX, bytes_max // _OF_SPOOL),
        )
        self._sealed = {path.stem: path.stat().st_size for path in listed(folder)}
        self._number = max([self._kept()[0], *map(int, self._sealed)])
        self._descriptor: int | None = None
        self._size = 0
        self._rest = b""

    @property
    def size(self) -> int:
        """Bytes on disk, acknowledged or not."""
        return sum(list(self._sealed.values())) + self._size

    @property
    def unwritten_bytes(self) -> int:
        """Of what was appended."""
        return len(self._rest)

    @property
    def is_full(self) -> bool:
        """Whether nothing may be appended now."""
        return bool(self._rest) or self.size >= self._bytes_max

    def append(self, content: bytes) -> None:
        """Durable on return.

        OSError: some of it is not written yet; `append(b"")` tries again. Unsynced.
        """
        self._rest += content
        while self._rest:
            descriptor = self._descriptor if self._descriptor is not None else self._begin()
            written = os.write(descriptor, self._rest)
            self._size += written
            is_line_end = self._rest[written - 1 : written] == b"\n"
            self._rest = self._rest[written:]
            if not self._rest:
                self._sync(descriptor)
                if is_line_end and self._size >= self._segment_bytes:
                    self._seal()

    def close(self) -> None:
        """Nothing more is appended."""
        if self._descriptor is not None:
            self._seal()

    def sealed_bytes(self, name: str) -> int | None:
        """The size of a segment that nothing more is appended to, by its number; None: there is no
        such one.
        """
        return self._sealed.get(name)

    def set_done(self, name: str) -> None:
        """It is acknowledged, and its name says so, durably."""
        path = self.folder / f"{name}.log"
        if path.exists():
            path.rename(path.with_suffix(".done"))
            sync_folder(self.folder)

    def remove(self, name: str) -> None:
        """The checkpoint has forgotten it."""
        (self.folder / f"{name}.done").unlink(missing_ok=True)
        self._sealed.pop(name, None)

    def keep_last(self, name: str) -> None:
        """Before it is done: its last line, where no later segment has one that is kept."""
        line = _last_line(self.folder / f"{name}.log")
        if line and int(name) >= self._kept()[0]:
            write_durably(self.folder / _LAST, b"%d\n" % int(name) + line)

    def last_line(self) -> bytes:
        """What was appended last, by any run; nothing where nothing was, or nobody kept it."""
        number, kept = self._kept()
        for path in sorted(self.folder.glob("*.log"), reverse=True):
            if int(path.stem) > number and (line := _last_line(path)):
                return line
        return kept

    def _kept(self) -> tuple[int, bytes]:
        try:
            number, line = (self.folder / _LAST).read_bytes().split(b"\n", 1)
        except FileNotFoundError:
            return 0, b""
        return int(number), line

    def was_left_open(self) -> bool:
        """Whether the run before was killed, or received what only came while it ran."""
        return (self.folder / _OPEN).exists()

    def mark_open(self) -> None:
        """Somebody receives from now on."""
        write_durably(self.folder / _OPEN, b"")

    def unmark(self) -> None:
        """What was received is on disk."""
        (self.folder / _OPEN).unlink(missing_ok=True)

    def _begin(self) -> int:
        number = self._number + 1
        descriptor = os.open(self.folder / f"{number:010d}.log", _APPEND, 0o600)
        self._number, self._descriptor, self._size = number, descriptor, 0
        sync_folder(self.folder)
        return descriptor

    def _sync(self, descriptor: int) -> None:
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            raise Unsynced(
                f"{self.folder}/{self._number:010d}.log cannot be synced: {error.strerror}"
            ) from error

    def _seal(self) -> None:
        assert self._descriptor is not None, "only what is open is sealed"
        os.close(self._descriptor)
        self._descriptor = None
        self._sealed[f"{self._number:010d}"] = self._size
        self._size = 0


def _last_line(path: Path) -> bytes:
    """Nothing of a file that is gone, or empty."""
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


def listed(folder: Path) -> Iterator[Path]:
    """All segments of a folder, done or not, in their order."""
    for path in sorted(folder.iterdir()):
        if path.suffix in (".log", ".done") and path.stem.isdigit():
            yield path


def recover(folder: Path, checkpoint: Checkpoint, identify: Callable[[int], FileIdentity]) -> None:
    """Before anything is appended or followed. OSError, CheckpointFailed: it must not be yet."""
    if not folder.is_dir():
        return
    known = TrackedFiles(checkpoint.files())
    for path in listed(folder):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            file = known.match(identify(descriptor))
            if path.suffix == ".done":
                if file is not None:
                    checkpoint.commit(end_of(file)[0])
                path.unlink()
                continue
            size = _cut_to_lines(descriptor, file.progress.position.offset if file else 0)
            if file is not None:
                _correct(file, size, checkpoint)
        finally:
            os.close(descriptor)


def end_of(file: TrackedFile) -> tuple[list[Change], FilePosition | None]:
    """That a segment is gone, as changes.

    Where there are no birth times, the next on its inode is its next generation.
    """
    if file.identity.birth_ns:
        return changes.delete_file(file.file_id), None
    position = FilePosition(
        generation=file.progress.position.generation + 1, settled=file.progress.position.settled + 1
    )
    place = file.place._replace(missing=True)
    return [
        changes.save_place(file, place),
        changes.save_position(file.file_id, position),
    ], position


def _cut_to_lines(descriptor: int, read_to: int) -> int:
    """The size of what is left; nothing that was read goes."""
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
