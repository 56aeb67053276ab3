"""What a kill left of segments, put in order before they are followed.

The end of a segment that is no whole line was never promised: it is cut off, and what looks had seen of it was never there. A
segment that was done is forgotten, then removed: the kill came between the two.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hourmark_producer import checkpoint as changes
from hourmark_producer.checkpoint import Change, Checkpoint
from hourmark_producer.files import Account, Files, Position, TrackedFile
from hourmark_producer.identity import Identity
from hourmark_producer.spool.segments import listed

_BLOCK_BYTES: Final = 1 << 16


def recover(folder: Path, checkpoint: Checkpoint, identify: Callable[[int], Identity]) -> None:
    """Before anything is appended or followed. OSError, CheckpointFailed: it must not be yet."""
    if not folder.is_dir():
        return
    known = Files(checkpoint.files())
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


def end_of(file: TrackedFile) -> tuple[list[Change], Position | None]:
    """That a segment is gone, as changes. Where there are no birth times, the next on its inode is its next generation."""
    if file.identity.birth_ns:
        return changes.forget_file(file.file_id), None
    position = Position(generation=file.progress.position.generation + 1, settled=file.progress.position.settled + 1)
    place = file.place._replace(missing=True)
    return [changes.save_place(file, place), changes.save_position(file.file_id, position)], position


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
    account, position = file.observed.of(file.progress), file.progress.position
    if max(account.high, position.size_seen) <= size:
        return
    position = dataclasses.replace(position, size_seen=size)
    account = Account(size, (), account.head[:size])
    checkpoint.commit([changes.save_position(file.file_id, position), changes.save_account(file.file_id, position, account)])
