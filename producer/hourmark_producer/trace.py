"""How far one line of a file has come on its log host, from the checkpoint and the file alone. Nothing is changed.

A line is named by its place, and that decides: what lies before a file's position was cut into ranges; those that are not
acknowledged lie in the spool. So a line before the position that is not in the spool is acknowledged, or was passed over.

The file is read before the checkpoint is, and its size after: positions that go on meanwhile make no answer wrong.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from pathlib import Path

from hourmark.errors import UsageError
from hourmark_producer.books import balances
from hourmark_producer.identity import Identity, identify
from hourmark_producer.line_begin import begin_of_line
from hourmark_producer.packed_trace import is_packed, unpacked
from hourmark_producer.peek import KnownFile, Peek, peek


class Stage(enum.Enum):
    """Where a line is."""

    NOT_FOLLOWED = "not_followed"
    NO_SUCH_LINE = "no_such_line"
    TRUNCATED = "truncated"
    NOT_READ = "not_read"
    SPOOLED = "spooled"
    ACKNOWLEDGED = "acknowledged"
    ACKNOWLEDGED_OR_SKIPPED = "acknowledged_or_skipped"
    PACKED = "packed"

    @property
    def is_found(self) -> bool:
        """Whether the line is on its way, or about to be."""
        return self not in (Stage.NOT_FOLLOWED, Stage.NO_SUCH_LINE, Stage.TRUNCATED, Stage.PACKED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """An answer. `offset`: None where there is no such line. `losses`: occasions noted of its names."""

    stage: Stage
    path: str
    offset: int | None
    host_id: str
    source: str | None
    file_id: str | None
    generation: int | None
    losses: int


def trace_line(state_dir: Path, path: Path, *, line: int | None = None, offset: int | None = None) -> Trace:
    """`line`: from 1. `offset`: where a line begins. UsageError, Unavailable."""
    try:
        if is_packed(path):
            return _trace_packed(state_dir, path, line, offset)
        with path.open("rb") as content:
            begin = offset if offset is not None else begin_of_line(content, line or 1)
            known = peek(state_dir / "checkpoint.sqlite")
            size = os.fstat(content.fileno()).st_size
            file = _match(known, identify(content.fileno()), path)
            if file is not None and not _is_anchored(content.fileno(), file):
                size = 0  # truncated, and grown again: what stands there now was not read
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name the file as it is called now") from error
    stage = stage_of(file, begin, size, skipped=file is not None and _skipped(known, file.source))
    return _traced(known, path, stage, begin, file)


def _trace_packed(state_dir: Path, path: Path, line: int | None, offset: int | None) -> Trace:
    known = peek(state_dir / "checkpoint.sqlite")
    begin, size, file = unpacked(path, known.files, line, offset)
    if file is not None:
        stage = stage_of(file, begin, size, skipped=_skipped(known, file.source))
    else:
        stage = Stage.NO_SUCH_LINE if begin is None or begin >= size else Stage.PACKED
    return _traced(known, path, stage, begin, file)


def _traced(known: Peek, path: Path, stage: Stage, begin: int | None, file: KnownFile | None) -> Trace:
    noted = {str(path.absolute())} | ({file.path, file.seen_at} if file else set())
    return Trace(
        stage=stage, path=str(path), offset=begin, host_id=known.host_id,
        source=file.source if file else None, file_id=file.file_id if file else None,
        generation=file.generation if file else None, losses=sum(loss.path in noted for loss in known.occasions),
    )  # fmt: skip


def stage_of(file: KnownFile | None, offset: int | None, size: int, *, skipped: bool) -> Stage:
    """`size`: the file's now. `skipped`: bytes of its source were passed over, and nobody noted which."""
    if file is None:
        return Stage.NOT_FOLLOWED
    if size < file.offset:
        return Stage.TRUNCATED
    if offset is None or offset >= size:
        return Stage.NO_SUCH_LINE
    if offset >= file.offset:
        return Stage.NOT_READ
    if any(one.generation == file.generation and one.start <= offset < one.end for one in file.spooled):
        return Stage.SPOOLED
    return Stage.ACKNOWLEDGED_OR_SKIPPED if skipped else Stage.ACKNOWLEDGED


def _match(known: Peek, identity: Identity, path: Path) -> KnownFile | None:
    """By inode, as names change; where a restart changed the device's number, by inode and name."""
    same = [file for file in known.files if file.inode == identity.inode and not file.missing]
    here = [file for file in same if file.device == identity.device]
    return next(iter(here or [file for file in same if str(path.absolute()) in (file.path, file.seen_at)]), None)


def _is_anchored(descriptor: int, file: KnownFile) -> bool:
    return os.pread(descriptor, len(file.anchor), file.offset - len(file.anchor)) == file.anchor


def _skipped(known: Peek, source: str) -> bool:
    """True, too, where the checkpoint is of a version that did not count."""
    if known.books is None:
        return True
    balance = balances(known.books, {}).get(source)
    return balance is None or balance.skipped > 0
