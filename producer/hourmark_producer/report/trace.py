"""`hourmark tail trace`: how far one line of a file was delivered from its log host.

Only the checkpoint and the file are read, and nothing is modified. Bytes before the position of a
file were sent as ranges, or are in unacknowledged ranges in the spool. A line before the position
that is not in the spool was therefore acknowledged or skipped. The file is read before the
checkpoint, and its size is read after it, so positions that change meanwhile cannot make the result
wrong.

A compressed file cannot be matched by name. If the tailer still tracks the original file, it is
recognized by the bytes before its position. Deleted files that are fully acknowledged are no longer
tracked.
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
from hourmark.printing import json_option, print_json, printable
from hourmark.process.file_identity import FileIdentity, identify
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
from hourmark_producer.files.patterns import PACKED

BLOCK_BYTES: Final = 1 << 20


class _Content(Protocol):
    def read(self, size: int, /) -> bytes: ...


def find_line_offset(content: _Content, line: int, block_bytes: int = BLOCK_BYTES) -> int | None:
    """Return the offset at which a line begins, or None if there is no such line.

    Args:
        content: Reader at the start of the file.
        line: Number of the line, counted from 1.
        block_bytes: Number of bytes to read at a time.
    """
    left, at = line - 1, 0
    while block := content.read(block_bytes):
        count = block.count(b"\n")
        if left <= count:
            begin = 0
            for _ in range(left):
                begin = block.index(b"\n", begin) + 1
            return at + begin if begin < len(block) or content.read(1) else None
        left, at = left - count, at + len(block)
    return None


_PACKED_BLOCK_BYTES: Final = 1 << 16


class CompressedFileScan(NamedTuple):
    """The result of `scan_compressed_file`.

    Attributes:
        line_offset: Offset of the requested line in the decompressed content; None if there is no
            such line.
        size: Size of the decompressed content in bytes.
        source_file: The tracked file from which the compressed file was created; None unless
            exactly one file matches.
    """

    line_offset: int | None
    size: int
    source_file: CheckpointedFile | None


def is_compressed_path(path: Path) -> bool:
    """Return whether a path has the suffix of a compressed file, such as `.gz`.

    Args:
        path: Path of the file, which need not exist.
    """
    return path.name.endswith(PACKED)


def scan_compressed_file(
    path: Path, files: Sequence[CheckpointedFile], line: int | None, offset: int | None
) -> CompressedFileScan:
    """Decompress a file to locate a line and to identify the original file.

    The file is read to its end.

    Args:
        path: The compressed file.
        files: Tracked files with which it is compared.
        line: Number of the line, counted from 1. If `line` and `offset` are None, line 1 is
            located.
        offset: Offset at which the line begins, instead of its number.

    Returns:
        Offset of the line, size of the content, and original file.

    Raises:
        UsageError: The content is damaged or incomplete.
        OSError: The file cannot be read.
    """
    try:
        watched = _AnchorMatcher(
            DecompressedReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path.name), files
        )
        try:
            begin = offset if offset is not None else find_line_offset(watched, line or 1)
            while watched.read(_PACKED_BLOCK_BYTES):
                pass
        finally:
            watched.close()
    except (CompressedFileIncomplete, CompressedFileDamaged) as error:
        raise UsageError(
            f"{path} cannot be unpacked: {error}; if it is still being written, try again later"
        ) from error
    return CompressedFileScan(
        begin, watched.size, watched.matches[0] if len(watched.matches) == 1 else None
    )


class _AnchorMatcher:
    def __init__(self, plain: DecompressedReader, files: Sequence[CheckpointedFile]) -> None:
        self._plain, self._tail = plain, b""
        self._files = [
            f for f in files if len(f.anchor) == ANCHOR_BYTES and not are_lines_equal(b"", f.anchor)
        ]
        self.size, self.matches = 0, list[CheckpointedFile]()

    def read(self, count: int) -> bytes:
        block = self._plain.read(count)
        window, start, end = self._tail + block, self.size - len(self._tail), self.size + len(block)
        for file in self._files:
            if self.size < file.offset <= end and window[: file.offset - start].endswith(
                file.anchor
            ):
                self.matches.append(file)
        self.size, self._tail = end, window[-ANCHOR_BYTES:]
        return block

    def close(self) -> None:
        self._plain.close()


class TraceStage(enum.Enum):
    """How far a line was delivered, as far as its log host knows.

    JSON output contains the values of the members.

    Attributes:
        NOT_FOLLOWED: The checkpoint does not contain the file.
        NO_SUCH_LINE: The file ends before the line.
        TRUNCATED: The file no longer contains the bytes that were read from it.
        NOT_READ: The line has not been read yet, or is incomplete.
        SPOOLED: The line is stored durably on this host, but is not acknowledged yet.
        ACKNOWLEDGED: A delivery service acknowledged the line.
        ACKNOWLEDGED_OR_SKIPPED: A delivery service acknowledged the line, or it was skipped as part
            of a copy or by a setting.
        PACKED: Unknown, because the file is compressed and the checkpoint does not contain its
            original.
    """

    NOT_FOLLOWED = "not_followed"
    NO_SUCH_LINE = "no_such_line"
    TRUNCATED = "truncated"
    NOT_READ = "not_read"
    SPOOLED = "spooled"
    ACKNOWLEDGED = "acknowledged"
    ACKNOWLEDGED_OR_SKIPPED = "acknowledged_or_skipped"
    PACKED = "packed"

    @property
    def is_deliverable(self) -> bool:
        """Return whether the line exists and was delivered, was skipped, or will be delivered."""
        return self not in (
            TraceStage.NOT_FOLLOWED,
            TraceStage.NO_SUCH_LINE,
            TraceStage.TRUNCATED,
            TraceStage.PACKED,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LineTrace:
    """The result of tracing one line of a file on its log host.

    Attributes:
        stage: Delivery stage of the line.
        path: Path of the file as given by the user.
        offset: Offset at which the line begins; None if there is no such line.
        host_id: Host id of the tailer.
        source: Source of the file; None if the file is not tracked.
        file_id: Id of the file; None if the file is not tracked.
        generation: Number of times the file was truncated or replaced; None if it is not tracked.
        losses: Number of recorded losses for any of the file's paths.
    """

    stage: TraceStage
    path: str
    offset: int | None
    host_id: str
    source: str | None
    file_id: str | None
    generation: int | None
    losses: int


def trace_line(
    state_dir: Path, path: Path, *, line: int | None = None, offset: int | None = None
) -> LineTrace:
    """Determine the delivery stage of a line from the checkpoint and the file.

    Args:
        state_dir: State folder of the tailer.
        path: Current path of the file.
        line: Number of the line, counted from 1. If `line` and `offset` are None, line 1 is traced.
        offset: Offset at which the line begins. If it is given, `line` is ignored.

    Raises:
        UsageError: The file or the checkpoint does not exist, or this user may not read it.
        Unavailable: The checkpoint cannot be read at the moment.
    """
    try:
        if is_compressed_path(path):
            return _trace_packed(state_dir, path, line, offset)
        with path.open("rb") as content:
            begin = offset if offset is not None else find_line_offset(content, line or 1)
            known = read_snapshot(state_dir / "checkpoint.sqlite")
            size = os.fstat(content.fileno()).st_size
            file = _match(known, identify(content.fileno()), path)
            if file is not None and not _is_anchored(content.fileno(), file):
                size = 0  # truncated and grown again: the current content was not read
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; specify the current path of the file"
        ) from error
    stage = determine_stage(
        file, begin, size, skipped=file is not None and _has_skipped_bytes(known, file.source)
    )
    return _traced(known, path, stage, begin, file)


def _trace_packed(state_dir: Path, path: Path, line: int | None, offset: int | None) -> LineTrace:
    known = read_snapshot(state_dir / "checkpoint.sqlite")
    begin, size, file = scan_compressed_file(path, known.files, line, offset)
    if file is not None:
        stage = determine_stage(file, begin, size, skipped=_has_skipped_bytes(known, file.source))
    else:
        stage = TraceStage.NO_SUCH_LINE if begin is None or begin >= size else TraceStage.PACKED
    return _traced(known, path, stage, begin, file)


def _traced(
    known: CheckpointSnapshot,
    path: Path,
    stage: TraceStage,
    begin: int | None,
    file: CheckpointedFile | None,
) -> LineTrace:
    noted = {str(path.absolute())} | ({file.path, file.seen_at} if file else set())
    return LineTrace(
        stage=stage,
        path=str(path),
        offset=begin,
        host_id=known.host_id,
        source=file.source if file else None,
        file_id=file.file_id if file else None,
        generation=file.generation if file else None,
        losses=sum(loss.path in noted for loss in known.recent_losses),
    )


def determine_stage(
    file: CheckpointedFile | None, offset: int | None, size: int, *, skipped: bool
) -> TraceStage:
    """Determine the delivery stage of a line.

    Args:
        file: The tracked file; None if the file is not tracked.
        offset: Offset at which the line begins; None if there is no such line.
        size: Current size of the content in bytes.
        skipped: Whether any bytes of the source were skipped. The checkpoint does not record which.

    Returns:
        NOT_FOLLOWED if `file` is None. TRUNCATED if the content is smaller than the part that was
        read. NO_SUCH_LINE if `offset` is None or not less than `size`. Otherwise NOT_READ, SPOOLED,
        or ACKNOWLEDGED (ACKNOWLEDGED_OR_SKIPPED if `skipped` is True).
    """
    if file is None:
        return TraceStage.NOT_FOLLOWED
    if size < file.offset:
        return TraceStage.TRUNCATED
    if offset is None or offset >= size:
        return TraceStage.NO_SUCH_LINE
    if offset >= file.offset:
        return TraceStage.NOT_READ
    if any(
        one.generation == file.generation and one.start <= offset < one.end for one in file.spooled
    ):
        return TraceStage.SPOOLED
    return TraceStage.ACKNOWLEDGED_OR_SKIPPED if skipped else TraceStage.ACKNOWLEDGED


def _match(
    known: CheckpointSnapshot, identity: FileIdentity, path: Path
) -> CheckpointedFile | None:
    # the device number of a file system may change when the machine restarts
    same = [file for file in known.files if file.inode == identity.inode and not file.missing]
    here = [file for file in same if file.device == identity.device]
    return next(
        iter(here or [file for file in same if str(path.absolute()) in (file.path, file.seen_at)]),
        None,
    )


def _is_anchored(descriptor: int, file: CheckpointedFile) -> bool:
    return os.pread(descriptor, len(file.anchor), file.offset - len(file.anchor)) == file.anchor


def _has_skipped_bytes(known: CheckpointSnapshot, source: str) -> bool:
    if known.accounting is None:  # an older version did not count them
        return True
    balance = compute_balances(known.accounting, {}).get(source)
    return balance is None or balance.skipped > 0


_ROTATED: Final = re.compile(
    r"([.-][0-9]+)*\.(gz|bz2|xz|zst)$"
)  # suffixes that logrotate and gzip append to a name
_STAGE_TEXTS: Final = {
    TraceStage.NOT_FOLLOWED: (
        "not tracked: the checkpoint does not contain this file",
        "check that a pattern of tailer.sources matches the file, and that the tailer has run "
        "since then",
    ),
    TraceStage.NO_SUCH_LINE: (
        "no such line: the file is shorter",
        "count lines from 1 in the current content of the file",
    ),
    TraceStage.TRUNCATED: (
        "truncated: the file no longer contains the content that was read",
        (
            "`hourmark tail status` shows losses; once the tailer has noticed, the "
            "current lines can be traced"
        ),
    ),
    TraceStage.NOT_READ: (
        "not read yet, or its line or record is incomplete",
        "`hourmark tail status` shows whether the tailer runs, and its errors",
    ),
    TraceStage.SPOOLED: (
        "spooled: read and durable on this host, but not acknowledged yet",
        "`hourmark tail status` shows whether a delivery service responds",
    ),
    TraceStage.ACKNOWLEDGED: (
        "acknowledged: a delivery service has stored it in Kafka",
        (
            "`hourmark trace --from` with the output of --json, on a host that can reach "
            "the clusters, shows when it was delivered and where it is now"
        ),
    ),
    TraceStage.ACKNOWLEDGED_OR_SKIPPED: (
        ("acknowledged or skipped: bytes of this source were skipped, as copies or by a setting"),
        (
            "`hourmark trace --from` with the output of --json, on a host that can reach the "
            "clusters; the tailer's log lists the files that it skipped"
        ),
    ),
    TraceStage.PACKED: (
        (
            "compressed: the checkpoint does not contain the original of this file; a deleted "
            "file is removed from the checkpoint once all of it is acknowledged or counted as "
            "lost"
        ),
        (
            "on a host that can reach the clusters, by the path under which it was read: "
            "{question}; --since and --until distinguish it from others of that name"
        ),
    ),
}


@click.command()
@click.argument("place", metavar="FILE[:LINE]")
@config_file_option("config_file")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    help="Byte offset at which the line begins, instead of LINE.",
)
@json_option
@click.pass_context
def trace(
    context: click.Context, place: str, config_file: Path | None, offset: int | None, as_json: bool
) -> None:
    """Show how far one line of a file was delivered, even if the tailer is not running.

    FILE is the current path of the file. LINE is the line number, counted from 1 (default: 1). The
    exit code is 1 if there is no such line to deliver. The command changes nothing.

    \b
    Examples:
      hourmark tail trace /var/log/app/app.log:1734
      hourmark tail trace /var/log/app/app.log.2.gz:1734
      hourmark tail trace /var/log/app/app.log.1 --offset 98211 --json
    """
    parent = context.parent.params if context.parent else {}
    config = load_config(config_file or parent.get("config_file"))
    path, line = parse_line_place(place)
    if offset is not None and line is not None:
        raise UsageError("specify either a line or --offset")
    found = trace_line(config.tailer.state_dir, path, line=line, offset=offset)
    if as_json:
        print_json(
            {**dataclasses.asdict(found), "stage": found.stage.value, "next": _next_step(found)}
        )
    else:
        click.echo("\n".join(map(printable, _text(found))))
    if not found.stage.is_deliverable:
        raise SystemExit(1)


def parse_line_place(place: str) -> tuple[Path, int | None]:
    """Split `FILE[:LINE]` into the path and the line number.

    If the whole text is the path of an existing file, it is not split.

    Args:
        place: Text of the form `FILE` or `FILE:LINE`. Lines are counted from 1.

    Returns:
        The path, and the line number or None if it is not given.

    Raises:
        UsageError: The line number is 0.
    """
    match = re.fullmatch(r"(.+):([0-9]+)", place, re.DOTALL)
    if match is None or Path(place).exists():
        return Path(place), None
    if int(match[2]) < 1:
        raise UsageError("lines are counted from 1")
    return Path(match[1]), int(match[2])


def _text(found: LineTrace) -> Iterator[str]:
    yield _STAGE_TEXTS[found.stage][0]
    if found.file_id is not None:
        at = "" if found.offset is None else f", offset {found.offset}"
        yield (
            f"  {found.path}, source {found.source}: host id {found.host_id}, file "
            f"{found.file_id}, "
            f"generation {found.generation}{at}"
        )
    if found.losses:
        yield (
            f"! {found.losses} losses are recorded under this file's names: `hourmark "
            "tail status` shows them"
        )
    yield f"next: {_next_step(found)}"


def _next_step(found: LineTrace) -> str:
    was = _ROTATED.sub("", str(Path(found.path).absolute()))
    return _STAGE_TEXTS[found.stage][1].replace(
        "{question}", f"`hourmark trace {found.host_id}:{was}:{found.offset}`"
    )
