"""Obstacles to continuing with an older version of the tailer on the same checkpoint."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hourmark.config.loading import Config
from hourmark.rollback.obstacle import NothingToCheck, Obstacle
from hourmark.rollback.version import OlderVersion
from hourmark.state_folder import StateFolder
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.read_only import CheckpointedFile, open_read_only, read_snapshot
from hourmark_producer.files.patterns import PACKED

_END_IN_ORDER = (
    "start the tailer, wait until `hourmark tail status` shows nothing in flight, and stop "
    "it with SIGTERM"
)


def obstacles(config: Config, older: OlderVersion) -> Iterator[Obstacle]:
    """Yield the reasons why an older version of the tailer cannot continue with this checkpoint.

    `hourmark rollback check` reports them.

    Args:
        config: Configuration of the tailer.
        older: The older version.

    Yields:
        The affected object, the reason, and how to resolve the problem. Nothing if the older
        version can continue.

    Raises:
        NothingToCheck: The state folder has no checkpoint.
        UsageError: This user may not read the checkpoint.
        Unavailable: The checkpoint cannot be read at the moment.
    """
    path = config.tailer.state_dir / CHECKPOINT
    if not path.exists():
        raise NothingToCheck(f"there is no checkpoint at {path} (tailer.state_dir)")
    where = str(path)
    if (pid := StateFolder(config.tailer.state_dir, "tailer").holder()) is not None:
        yield Obstacle(
            where,
            f"a tailer is running (process {pid}), so its final state is not known yet",
            "stop it with SIGTERM and try again",
        )
    with open_read_only(path) as db:
        ((version,),) = db.execute("SELECT format FROM meta").fetchall()
        fields = Counter(
            name for (text,) in db.execute("SELECT range FROM ranges") for name in json.loads(text)
        )
    if version not in older.checkpoints:
        yield Obstacle(
            where,
            f"it has format {version}, because several ranges of a file are in flight, or bodies "
            f"are stored in separate files; {older.name} does not support this",
            _END_IN_ORDER,
        )
    for name in older.no_range_fields:
        if count := fields[name]:
            yield Obstacle(
                where,
                f"{count} ranges in flight contain {name}, which {older.name} cannot send",
                _END_IN_ORDER,
            )
    if not older.reads_unfinished_files:
        yield from _of_files(config, where, read_snapshot(path).files, older)


def _of_files(
    config: Config, where: str, files: list[CheckpointedFile], older: OlderVersion
) -> Iterator[Obstacle]:
    packed = [file.path for file in files if file.path.endswith(PACKED)]
    vanished = [
        file.seen_at
        for file in files
        if file.missing and file.high > file.offset and not file.path.endswith(PACKED)
    ]
    spool = config.tailer.state_dir / "spool"
    received = [
        file.path for file in files if Path(file.path).is_relative_to(spool) and _is_unsent(file)
    ]
    for paths, what in (
        (packed, "are compressed and are read directly"),
        (
            vanished,
            "vanished before they were read completely, and their remainders may be in compressed "
            "files or copies",
        ),
        (received, "contain received lines that are not acknowledged"),
    ):
        if paths:
            yield Obstacle(
                where,
                f"{len(paths)} files {what}, which {older.name} does not support: "
                f"{', '.join(sorted(paths)[:3])}",
                "let the tailer of this version read them completely; `hourmark tail status` shows its progress",
            )


def _is_unsent(file: CheckpointedFile) -> bool:
    return bool(file.spooled) or file.high > file.offset
