"""The state folder of a tailer, a service or a mirror.

The folder preserves the identity of the component over restarts. A lock prevents two processes from
using the folder at the same time.

| file      | content                                                     |
|-----------|-------------------------------------------------------------|
| `lock`    | locked while the process runs; contains the process id      |
| `host-id` | 32 hex digits that are created once and never change        |
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hourmark.errors import ConfigError
from hourmark.process.durable import write_durably
from hourmark.records.ranges import HEX_128


class StateFolder:
    """The folder that contains a component's host id and lock file.

    `lock`, `host_id` and `save_host_id` raise `ConfigError` if the folder cannot be accessed.

    Args:
        path: The folder.
        group: Name of the settings group with `state_dir`, such as `tailer`, for error messages.
    """

    def __init__(self, path: Path, group: str) -> None:
        self.path = path
        self._group = group
        self._host_id_file = path / "host-id"

    def lock(self) -> IO[bytes]:
        """Lock the folder for exclusive use by this process.

        The folder is created if it does not exist.

        Returns:
            The open lock file. Closing it releases the lock.

        Raises:
            ConfigError: Another process holds the lock, or the folder cannot be created or written.
                In the first case, the message contains the id of the other process.
        """
        with self._usable():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+b")
            try:
                _take(lock)
            except BlockingIOError:
                with lock:
                    holder = _written_in(lock) or "unknown"
                raise ConfigError(
                    f"another {self._group} is already running with {self.path} (process "
                    f"{holder}); stop it, or give this one its own {self._group}.state_dir"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()).encode())
            lock.flush()
            return lock

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock of the folder.

        The result may be outdated as soon as it is returned.

        Returns:
            The process id. None if no process holds the lock, the id is unknown, or this user may
            not read the folder.
        """
        with (
            contextlib.suppress(FileNotFoundError, PermissionError),
            (self.path / "lock").open("rb") as lock,
        ):
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _written_in(lock)
        return None

    def locked_at_ms(self) -> int | None:
        """Return the time at which the folder was last locked.

        The lock may have been released since then.

        Returns:
            Unix milliseconds. None if the folder was never locked, or if this user may not read it.
        """
        try:
            return (self.path / "lock").stat().st_mtime_ns // 1_000_000
        except (FileNotFoundError, PermissionError):
            return None

    def host_id(self) -> str | None:
        """Return the host id that is stored in the folder.

        Returns:
            32 hex digits. None if no host id has been saved yet.

        Raises:
            ConfigError: The file with the host id is invalid or cannot be read.
        """
        with self._usable():
            if not self._host_id_file.exists():
                return None
            text = self._host_id_file.read_text(errors="replace").strip()
        if not HEX_128.fullmatch(text):
            raise ConfigError(
                f"{self._host_id_file} contains {text[:40]!r} instead of 32 hex digits. The file "
                "identifies this installation: restore it, or remove it (a tailer then reads "
                "its ID from its checkpoint, and a service becomes a new instance)"
            )
        return text

    def save_host_id(self, host_id: str) -> str:
        """Store the host id durably in the folder, replacing an earlier one.

        Args:
            host_id: 32 hex digits.

        Returns:
            The same host id.

        Raises:
            ConfigError: The file cannot be written.
        """
        with self._usable():
            write_durably(self._host_id_file, f"{host_id}\n".encode())
        return host_id

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self._group}.state_dir = {str(self.path)!r} cannot be used: {error.strerror}; "
                "specify a folder that this user can write to"
            ) from error


def _take(lock: IO[bytes]) -> None:
    # `StateFolder.holder` locks the file for a moment, so a failed attempt is repeated.
    for pause_s in (0.01, 0.05):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(pause_s)
    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _written_in(lock: IO[bytes]) -> int | None:
    lock.seek(0)
    text = lock.read(20).strip()
    return int(text) if text.isdigit() else None
