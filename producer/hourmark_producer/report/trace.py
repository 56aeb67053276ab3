"""How far one line of a file has come on its log host (`hourmark tail trace`).

Where a line begins: by counting.

A packed file, as a trace sees it: where a line begins in its plain content, and which followed file
it was packed from.

Names say nothing of that: a file that is known is told by the bytes before its position. As a rule
it is not known any more, as what was read to its end and is gone is let go.

How far one line of a file has come on its log host, from the checkpoint and the file alone. Nothing
is changed.

A line is named by its place, and that decides: what lies before a file's position was cut into
ranges; those that are not acknowledged lie in the spool. So a line before the position that is not
in the spool is acknowledged, or was passed over.

The file is read before the checkpoint is, and its size after: positions that go on meanwhile make
no answer wrong.

`hourmark tail trace`: where a line of a file is, on its log host.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import click

from hourmark.config.loading import config_file_option, load_config
from hourmark.errors import UsageError
from hourmark.printing import json_option, printable, say_json
from hourmark_producer.checkpoint.books import compute_balances
from hourmark_producer.checkpoint.read_only import (
    CheckpointedFile,
    CheckpointSnapshot,
    read_snapshot,
)
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
)
from hourmark_producer.files.fingerprints import ANCHOR_BYTES, are_lines_equal
from hourmark_producer.files.identity import FileIdentity, identify
from hourmark_producer.files.patterns import PACKED

_BLOCK_BYTES: Final = 1 << 20


class _Content(Protocol):
    def read(self, size: int, /) -> bytes: ...


def begin_of_line(content: _Content, line: int) -> int | None:
    """The offset where `line` (from 1) begins; None where the file has no such line."""
    left, at = line - 1, 0
    while block := content.read(_BLOCK_BYTES):
        count = block.count(b"\n")
        if left <= count:
            begin = 0
            for _ in range(left):
                begin = block.index(b"\n", begin) + 1
            return at + begin if begin < len(block) or content.read(1) else None
        left, at = left - count, at + len(block)
    return None


_PACKED_BLOCK_BYTES: Final = 1 << 16


class Unpacked(NamedTuple):
    """`begin`: of the line, in plain content of `size` bytes; None: there is no such line.

    `file`: the one it holds.
    """

    begin: int | None
    size: int
    file: CheckpointedFile | None


def is_packed(path: Path) -> bool:
    """Whether its name says so."""
    return path.name.endswith(PACKED)


def unpacked(
    path: Path, files: Sequence[CheckpointedFile], line: int | None, offset: int | None
) -> Unpacked:
    """Reads it once, to its end. UsageError where that cannot be; OSError."""
    try:
        watched = _Watched(
            DecompressedReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path.name), files
        )
        try:
            begin = offset if offset is not None else begin_of_line(watched, line or 1)
            while watched.read(_PACKED_BLOCK_BYTES):
                pass
        finally:
            watched.close()
    except (CompressedFileIncomplete, CompressedFileDamaged) as error:
        raise UsageError(
            f"{path} cannot be unpacked: {error}; while it is being written, ask again later"
        ) from error
    return Unpacked(begin, watched.size, watched.held[0] if len(watched.held) == 1 else None)


class _Watched:
    """Plain content, and which files' bytes before their positions stand there where they stood."""

    def __init__(self, plain: DecompressedReader, files: Sequence[CheckpointedFile]) -> None:
        self._plain, self._tail = plain, b""
        self._files = [
            f for f in files if len(f.anchor) == ANCHOR_BYTES and not are_lines_equal(b"", f.anchor)
        ]
        self.size, self.held = 0, list[CheckpointedFile]()

    def read(self, count: int) -> bytes:
        """The next bytes; none at the end."""
        block = self._plain.read(count)
        window, start, end = self._tail + block, self.size - len(self._tail), self.size + len(block)
        for file in self._files:
            if self.size < file.offset <= end and window[: file.offset - start].endswith(
                file.anchor
            ):
                self.held.append(file)
        self.size, self._tail = end, window[-ANCHOR_BYTES:]
        return block

    def close(self) -> None:
        """Let go of the packed file."""
        self._plain.close()


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
    """An answer. `offset`: None where there is no such line. `losses`: occasions noted of its
    names.
    """

    stage: Stage
    path: str
    offset: int | None
    host_id: str
    source: str | None
    file_id: str | None
    generation: int | None
    losses: int


def trace_line(
    state_dir: Path, path: Path, *, line: int | None = None, offset: int | None = None
) -> Trace:
    """`line`: from 1. `offset`: where a line begins. UsageError, Unavailable."""
    try:
        if is_packed(path):
            return _trace_packed(state_dir, path, line, offset)
        with path.open("rb") as content:
            begin = offset if offset is not None else begin_of_line(content, line or 1)
            known = read_snapshot(state_dir / "checkpoint.sqlite")
            size = os.fstat(content.fileno()).st_size
            file = _match(known, identify(content.fileno()), path)
            if file is not None and not _is_anchored(content.fileno(), file):
                size = 0  # truncated, and grown again: what stands there now was not read
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; name the file as it is called now"
        ) from error
    stage = stage_of(file, begin, size, skipped=file is not None and _skipped(known, file.source))
    return _traced(known, path, stage, begin, file)


def _trace_packed(state_dir: Path, path: Path, line: int | None, offset: int | None) -> Trace:
    known = read_snapshot(state_dir / "checkpoint.sqlite")
    begin, size, file = unpacked(path, known.files, line, offset)
    if file is not None:
        stage = stage_of(file, begin, size, skipped=_skipped(known, file.source))
    else:
        stage = Stage.NO_SUCH_LINE if begin is None or begin >= size else Stage.PACKED
    return _traced(known, path, stage, begin, file)


def _traced(
    known: CheckpointSnapshot,
    path: Path,
    stage: Stage,
    begin: int | None,
    file: CheckpointedFile | None,
) -> Trace:
    noted = {str(path.absolute())} | ({file.path, file.seen_at} if file else set())
    return Trace(
        stage=stage,
        path=str(path),
        offset=begin,
        host_id=known.host_id,
        source=file.source if file else None,
        file_id=file.file_id if file else None,
        generation=file.generation if file else None,
        losses=sum(loss.path in noted for loss in known.occasions),
    )


def stage_of(
    file: CheckpointedFile | None, offset: int | None, size: int, *, skipped: bool
) -> Stage:
    """`size`: the file's now.

    `skipped`: bytes of its source were passed over, and nobody noted which.
    """
    if file is None:
        return Stage.NOT_FOLLOWED
    if size < file.offset:
        return Stage.TRUNCATED
    if offset is None or offset >= size:
        return Stage.NO_SUCH_LINE
    if offset >= file.offset:
        return Stage.NOT_READ
    if any(
        one.generation == file.generation and one.start <= offset < one.end for one in file.spooled
    ):
        return Stage.SPOOLED
    return Stage.ACKNOWLEDGED_OR_SKIPPED if skipped else Stage.ACKNOWLEDGED


def _match(
    known: CheckpointSnapshot, identity: FileIdentity, path: Path
) -> CheckpointedFile | None:
    """By inode, as names change; where a restart changed the device's number, by inode and name."""
    same = [file for file in known.files if file.inode == identity.inode and not file.missing]
    here = [file for file in same if file.device == identity.device]
    return next(
        iter(here or [file for file in same if str(path.absolute()) in (file.path, file.seen_at)]),
        None,
    )


def _is_anchored(descriptor: int, file: CheckpointedFile) -> bool:
    return os.pread(descriptor, len(file.anchor), file.offset - len(file.anchor)) == file.anchor


def _skipped(known: CheckpointSnapshot, source: str) -> bool:
    """True, too, where the checkpoint is of a version that did not count."""
    if known.books is None:
        return True
    balance = compute_balances(known.books, {}).get(source)
    return balance is None or balance.skipped > 0


_ROTATED: Final = re.compile(
    r"([.-][0-9]+)*\.(gz|bz2|xz|zst)$"
)  # what logrotate and gzip add to a name
_TOLD: Final = {
    Stage.NOT_FOLLOWED: (
        "not followed: the checkpoint knows no such file",
        "does a pattern of tailer.sources name it, and has the tailer run since?",
    ),
    Stage.NO_SUCH_LINE: (
        "no such line: the file ends before it",
        "count from 1, in the file as it is now",
    ),
    Stage.TRUNCATED: (
        "truncated: what was read of the file stands there no more",
        (
            "`hourmark tail status` shows losses; once the tailer has found out, the lines "
            "that stand here now can be traced"
        ),
    ),
    Stage.NOT_READ: (
        "not read yet, or its line or record has no end yet",
        "`hourmark tail status` says whether the tailer runs, and what ails it",
    ),
    Stage.SPOOLED: (
        "spooled: read, durable on this host, and not acknowledged yet",
        "`hourmark tail status` says whether a delivery service answers",
    ),
    Stage.ACKNOWLEDGED: (
        "acknowledged: a delivery service has it, and Kafka before that",
        (
            "`hourmark trace --from` what --json prints here, where the clusters can be "
            "reached, says when, and where it is now"
        ),
    ),
    Stage.ACKNOWLEDGED_OR_SKIPPED: (
        (
            "acknowledged, or passed over: bytes of this source were skipped, as copies or "
            "by a setting"
        ),
        "`hourmark trace --from` what --json prints here, where the clusters can be reached; "
        "the tailer's log names files that "
        "it passed over",
    ),
    Stage.PACKED: (
        "packed: the checkpoint does not know what this was packed from; it lets go of a file "
        "that is gone, once all of it is "
        "acknowledged or counted as lost",
        "where the clusters can be reached, by the path that it was read under: {question}; "
        "--since and --until tell it from "
        "others of that name",
    ),
}


@click.command()
@click.argument("place", metavar="FILE[:LINE]")
@config_file_option("config_file")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    help="The byte where the line begins, instead of its number.",
)
@json_option
@click.pass_context
def trace(
    context: click.Context, place: str, config_file: Path | None, offset: int | None, as_json: bool
) -> None:
    """Show how far a line has come on this host, whether or not the tailer runs. Changes nothing.

    FILE as it is named now; LINE from 1, the first where none is given. Exit code 1 where there is no such line to deliver.

    \b
    Examples:
      hourmark tail trace /var/log/app/app.log:1734
      hourmark tail trace /var/log/app/app.log.2.gz:1734
      hourmark tail trace /var/log/app/app.log.1 --offset 98211 --json
    """
    parent = context.parent.params if context.parent else {}
    config = load_config(config_file or parent.get("config_file"))
    path, line = placed(place)
    if offset is not None and line is not None:
        raise UsageError("name a line or --offset, not both")
    found = trace_line(config.tailer.state_dir, path, line=line, offset=offset)
    if as_json:
        say_json(
            {**dataclasses.asdict(found), "stage": found.stage.value, "next": _next_step(found)}
        )
    else:
        click.echo("\n".join(map(printable, _text(found))))
    if not found.stage.is_found:
        raise SystemExit(1)


def placed(place: str) -> tuple[Path, int | None]:
    """The file and the line; a file that is named with a colon and a number is that file.

    UsageError.
    """
    match = re.fullmatch(r"(.+):([0-9]+)", place, re.DOTALL)
    if match is None or Path(place).exists():
        return Path(place), None
    if int(match[2]) < 1:
        raise UsageError("lines are counted from 1")
    return Path(match[1]), int(match[2])


def _text(found: Trace) -> Iterator[str]:
    yield _TOLD[found.stage][0]
    if found.file_id is not None:
        at = "" if found.offset is None else f", offset {found.offset}"
        yield (
            f"  {found.path}, source {found.source}: host id {found.host_id}, file "
            f"{found.file_id}, "
            f"generation {found.generation}{at}"
        )
    if found.losses:
        yield (
            f"! losses were noted {found.losses} times under this file's names: `hourmark "
            "tail status` shows them"
        )
    yield f"next: {_next_step(found)}"


def _next_step(found: Trace) -> str:
    was = _ROTATED.sub("", str(Path(found.path).absolute()))
    return _TOLD[found.stage][1].replace(
        "{question}", f"`hourmark trace {found.host_id}:{was}:{found.offset}`"
    )
