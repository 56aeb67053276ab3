"""The state folder of one tailer: its lock, its host id, its checkpoint.

    lock                 held while a tailer runs; holds its process id
    host-id              32 hex digits, minted once, never changed
    checkpoint.sqlite    see `producer.checkpoint`

What must not happen silently is a start from zero: every line would be sent again. So a tailer that has a host id but no
checkpoint in order refuses to start, unless it is told `--reread`. The checkpoint is made before the host id, whole or not
at all, so that a first start killed at any moment is no such case.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hourmark.durable import sync_folder, write_durably
from hourmark.errors import UsageError
from hourmark.ranges import new_host_id
from producer.checkpoint import Checkpoint, CheckpointBroken

REREAD_REPEATS: Final = (
    "every file that is still there is sent again from its start; lines keep their ids and are dropped as duplicates, except "
    "those whose time is not in the line itself: these may repeat"
)
_log = logging.getLogger(__name__)


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold the state folder; UsageError names the process that holds it already."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(
            f"tailer.state_dir = {str(state_dir)!r} cannot be used: {error.strerror}; name a folder that this user may write"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise UsageError(
                f"another tailer (process {holder}) works with {state_dir}; stop it, or give this one its own tailer.state_dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def open_installation(state_dir: Path, *, reread: bool) -> tuple[Checkpoint, str]:
    """The checkpoint and the host id; a first start makes both. UsageError where going on would repeat what was sent."""
    host_id = _read_host_id(state_dir / "host-id")
    path = state_dir / "checkpoint.sqlite"
    if not path.exists():
        if host_id is not None and not reread:
            raise UsageError(
                f"{state_dir} has a host id but no checkpoint, so it is not known what was sent. Put {path.name} back, or start "
                f"with --reread: {REREAD_REPEATS}"
            )
        _remove_journals(path)
        Checkpoint.create(path, host_id or new_host_id())
    checkpoint, known_as = _open(path, reread=reread, host_id=host_id)
    if host_id is None:
        write_durably(state_dir / "host-id", f"{known_as}\n".encode())
    elif host_id != known_as:
        checkpoint.close()
        raise UsageError(
            f"{path} belongs to host id {known_as}, but {state_dir / 'host-id'} says {host_id}: one of them was copied from "
            "another host. Put the right one back"
        )
    return checkpoint, known_as


def _open(path: Path, *, reread: bool, host_id: str | None) -> tuple[Checkpoint, str]:
    try:
        return Checkpoint.open(path)
    except CheckpointBroken as error:
        if not reread:
            raise UsageError(
                f"the checkpoint {path} cannot be used: {error}. Put a good one back, or start with --reread: {REREAD_REPEATS}"
            ) from error
        aside = _aside(path)
        _log.warning(
            "the checkpoint %s cannot be used (%s); it is kept as %s, and all files are read again", path, error, aside.name
        )
    _remove_journals(path)
    Checkpoint.create(path, host_id or new_host_id())
    return Checkpoint.open(path)


def _aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(aside)
    journal = path.with_name(f"{path.name}-wal")
    if journal.exists():
        journal.rename(aside.with_name(f"{aside.name}-wal"))
    sync_folder(path.parent)
    return aside


def _remove_journals(path: Path) -> None:
    """A write-ahead log belongs to the one database it was written for."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _read_host_id(path: Path) -> str | None:
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}; it holds this installation's identity, put it back") from error
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise UsageError(f"{path} holds {text[:40]!r} and not 32 hex digits; it is this installation's identity, put it back")
    return text
