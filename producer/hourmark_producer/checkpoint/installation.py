"""The state folder of one tailer: its lock, its host id, and `checkpoint.sqlite`.

A tailer must not silently start from zero, because every line would be sent again. So a tailer with
a host id but without a usable checkpoint refuses to start unless `--reread` is given. The
checkpoint is created atomically and before the host id, so that a first start can be killed at any
moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from hourmark.errors import UsageError
from hourmark.process.durable import sync_folder
from hourmark.records.ranges import new_host_id
from hourmark.state_folder import StateFolder
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointBroken, add_loss
from hourmark_producer.checkpoint.generations import read_owner
from hourmark_producer.counters import Loss

REREAD_REPEATS: Final = (
    "every existing file is sent again from its start. Most lines keep their ids, so they are "
    "dropped as duplicates. The following may be duplicated: lines without a time of their own, "
    "and records that a flush ended early (record_start). If the file `generations` is lost too and "
    "tailer.second_state_dir has no copy of it, lines of files that were truncated before may also "
    "be duplicated. If files no longer exist, the loss of their unread or unacknowledged content is "
    "recorded as unknown"
)
CHECKPOINT: Final = "checkpoint.sqlite"
_LOG = logging.getLogger(__name__)


def lock_state_folder(state_dir: Path) -> IO[bytes]:
    """Lock the state folder, so that only one tailer uses its database.

    Args:
        state_dir: The state folder.

    Returns:
        The open lock file. Close it to release the lock.

    Raises:
        UsageError: Another process holds the lock. The message names the process.
    """
    return StateFolder(state_dir, "tailer").lock()


def open_installation(
    state_dir: Path, *, reread: bool, sources: Sequence[str] = (), second: Path | None = None
) -> tuple[Checkpoint, str]:
    """Open the checkpoint (the tailer's database) in a state folder, and read the host id.

    Both are created on the first start. If a lost or broken checkpoint is replaced, one loss of
    unknown size is recorded for each source.

    Args:
        state_dir: The state folder, which the caller has locked.
        reread: Whether to replace a missing or broken checkpoint with an empty one, so that all
            files are read again. The broken checkpoint is kept under another name.
        sources: Names of the configured sources.
        second: Folder with a second copy of the file `generations`, which records how often each
            log file was truncated. The host id is read from it if the state folder has none.

    Returns:
        The checkpoint and the host id.

    Raises:
        UsageError: The checkpoint is missing or broken and `reread` is False, or it belongs to
            another host.
        CheckpointFailed: The checkpoint cannot be read or written.
    """
    folder = StateFolder(state_dir, "tailer")
    host_id = folder.host_id() or (read_owner(second) if second is not None else None)
    path, is_new = state_dir / CHECKPOINT, False
    if not path.exists():
        if host_id is not None and not reread:
            raise UsageError(
                f"{state_dir} has a host id{'' if folder.host_id() else f' ({second} names it)'} "
                f"but no checkpoint, so it is unknown which data was sent. Restore {path.name}, "
                f"or start with --reread: {REREAD_REPEATS}"
            )
        _remove_journals(path)
        is_new = host_id is not None  # then all is read again, from its start
        Checkpoint.create(path, host_id or new_host_id(), scanned=sources if is_new else ())
    checkpoint, known_as, broken = _open(path, sources, reread=reread, host_id=host_id)
    if is_new or broken:
        _doubt(checkpoint, path, sources)
    if folder.host_id() is None and host_id in (None, known_as):
        folder.save_host_id(known_as)
    elif host_id != known_as:
        checkpoint.close()
        raise UsageError(
            f"{path} belongs to host id {known_as}, but {state_dir / 'host-id'} says {host_id}: "
            "one of them was copied from another host. Restore the correct one"
        )
    return checkpoint, known_as


def _doubt(checkpoint: Checkpoint, path: Path, sources: Sequence[str]) -> None:
    what = (
        "the checkpoint was lost: what was on its way, or unread, of files that are gone is unknown"
    )
    at_ms = time.time_ns() // 1_000_000
    losses = [
        Loss(source=source, path=str(path), at_ms=at_ms, bytes=0, unknown=1, what=what)
        for source in sources
    ]
    checkpoint.commit([change for loss in losses for change in add_loss(loss)])


def _open(
    path: Path, sources: Sequence[str], *, reread: bool, host_id: str | None
) -> tuple[Checkpoint, str, bool]:
    try:
        return *Checkpoint.open(path), False
    except CheckpointBroken as error:
        if not reread:
            raise UsageError(
                f"the checkpoint {path} cannot be used: {error}. Restore a valid copy, or start "
                f"with --reread: {REREAD_REPEATS}"
            ) from error
        aside = _aside(path)
        _LOG.warning(
            "the checkpoint %s cannot be used (%s); it was renamed to %s, and all files are "
            "read again",
            path,
            error,
            aside.name,
        )
    _remove_journals(path)
    Checkpoint.create(path, host_id or new_host_id(), scanned=sources)
    return *Checkpoint.open(path), True


def _aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in ("-wal", "-bodies"):
        if (beside := path.with_name(path.name + suffix)).exists():
            beside.rename(aside.with_name(aside.name + suffix))
    sync_folder(path.parent)
    return aside


def _remove_journals(path: Path) -> None:
    for suffix in ("-wal", "-shm", "-bodies"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
