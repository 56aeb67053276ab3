"""What of a tailer an older version could not go on with: its checkpoint, and what it received."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hourmark.config.loading import Config
from hourmark.rollback.obstacle import NothingHere, Obstacle
from hourmark.rollback.version import Older
from hourmark.state_folder import StateFolder
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.read_only import CheckpointedFile, open_read_only, read_snapshot
from hourmark_producer.files.patterns import PACKED

_END_IN_ORDER = (
    "start the tailer, wait until `hourmark tail status` has nothing in flight, and end it "
    "by SIGTERM"
)


def obstacles(config: Config, older: Older) -> Iterator[Obstacle]:
    """Of the checkpoint of `tailer.state_dir`.

    NothingHere; UsageError, Unavailable where it cannot be read.
    """
    path = config.tailer.state_dir / CHECKPOINT
    if not path.exists():
        raise NothingHere(f"there is no checkpoint at {path} (tailer.state_dir)")
    where = str(path)
    if (pid := StateFolder(config.tailer.state_dir, "tailer").holder()) is not None:
        yield Obstacle(
            where,
            f"a tailer runs (process {pid}): what it leaves behind cannot be told yet",
            "end it by SIGTERM, and ask again",
        )
    with open_read_only(path) as db:
        ((version,),) = db.execute("SELECT format FROM meta").fetchall()
        fields = Counter(
            name for (text,) in db.execute("SELECT range FROM ranges") for name in json.loads(text)
        )
    if version not in older.checkpoints:
        yield Obstacle(
            where,
            f"it has format {version}: several ranges of a file are on their way, or "
            "bodies lie beside it, of which "
            f"{older.name} knows nothing",
            _END_IN_ORDER,
        )
    for name in older.no_range_fields:
        if count := fields[name]:
            yield Obstacle(
                where,
                f"{count} ranges on their way say {name}, which {older.name} cannot send",
                _END_IN_ORDER,
            )
    if not older.finds_the_rest:
        yield from _of_files(config, where, read_snapshot(path).files, older)


def _of_files(
    config: Config, where: str, files: list[CheckpointedFile], older: Older
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
        (packed, "are read as they were packed, which"),
        (
            vanished,
            (
                "vanished before they were read to their end; their rest may be in packed "
                "files or copies, where"
            ),
        ),
        (received, "hold lines that were received and are not acknowledged, of which"),
    ):
        if paths:
            yield Obstacle(
                where,
                f"{len(paths)} files {what} {older.name} knows nothing: "
                f"{', '.join(sorted(paths)[:3])}",
                "let this version's tailer read them to their end: `hourmark tail status`",
            )


def _is_unsent(file: CheckpointedFile) -> bool:
    return bool(file.spooled) or file.high > file.offset
