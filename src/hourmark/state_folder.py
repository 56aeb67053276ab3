"""The state folder of a tailer or a service: what makes it the same one after a restart, and no two at once.

lock       held while the process runs; holds its process id
host-id    32 hex digits, minted once, never changed
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hourmark.durable import write_durably
from hourmark.errors import ConfigError
from hourmark.ranges import HEX_128


class StateFolder:
    """The folder that the setting `<group>.state_dir` names. ConfigError, naming it, where it cannot be used."""

    def __init__(self, path: Path, group: str) -> None:
        self.path = path
        self._group = group
        self._host_id_file = path / "host-id"

    def lock(self) -> IO[bytes]:
        """Hold the folder until this is closed; ConfigError names the process that holds it already."""
        with self._usable():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+b")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with lock:
                    lock.seek(0)
                    holder = lock.read(20).decode(errors="replace").strip() or "unknown"
                raise ConfigError(
                    f"another {self._group} uses {self.path} (process {holder}); stop it, or give this one its own "
                    f"{self._group}.state_dir"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()).encode())
            lock.flush()
            return lock

    def host_id(self) -> str | None:
        """The host id; None before the first start."""
        with self._usable():
            if not self._host_id_file.exists():
                return None
            text = self._host_id_file.read_text(errors="replace").strip()
        if not HEX_128.fullmatch(text):
            raise ConfigError(
                f"{self._host_id_file} holds {text[:40]!r} and not 32 hex digits. It is this installation's identity: put it "
                "back, or remove it (a tailer finds it in its checkpoint, a service becomes a new instance)"
            )
        return text

    def keep_host_id(self, host_id: str) -> str:
        """Write it down, durably; returns it."""
        with self._usable():
            write_durably(self._host_id_file, f"{host_id}\n".encode())
        return host_id

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self._group}.state_dir = {str(self.path)!r} cannot be used: {error.strerror}; name a folder that this user "
                "may write"
            ) from error
