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
    """The folder in which a component keeps its identity and its lock.

    All methods except `holder` raise ConfigError if the folder cannot be used.

    Args:
        path: The folder.
        group: Name of the settings group with `state_dir`, such as `tailer`, for error messages.
    """

    def __init__(self, path: Path, group: str) -> None:
        self.path = path
        self._group = group
        self._host_id_file = path / "host-id"

    def lock(self) -> IO[bytes]:
        """Create the folder if it does not exist, and lock it until the returned file is closed.

        Raises:
            ConfigError: Another process holds the lock. The message contains its process id.
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
                    f"another {self._group} uses {self.path} (process {holder}); stop it, or "
                    "give this one its own "
                    f"{self._group}.state_dir"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()).encode())
            lock.flush()
            return lock

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock.

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

    def host_id(self) -> str | None:
        """Return the stored host id, or None if none was saved yet.

        Returns:
            32 hex digits.

        Raises:
            ConfigError: The file does not contain a host id.
        """
        with self._usable():
            if not self._host_id_file.exists():
                return None
            text = self._host_id_file.read_text(errors="replace").strip()
        if not HEX_128.fullmatch(text):
            raise ConfigError(
                f"{self._host_id_file} holds {text[:40]!r} and not 32 hex digits. It is this "
                "installation's identity: put it "
                "back, or remove it (a tailer finds it in its checkpoint, a service becomes a "
                "new instance)"
            )
        return text

    def save_host_id(self, host_id: str) -> str:
        """Store the host id durably in the folder, and return it.

        Args:
            host_id: 32 hex digits.
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
                f"{self._group}.state_dir = {str(self.path)!r} cannot be used: "
                f"{error.strerror}; name a folder that this user "
                "may write"
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
