"""Who this service instance is: a host id that survives restarts, and a lock so that no two processes share it."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import socket
import uuid
from pathlib import Path
from typing import IO

from hourmark.durable import write_durably
from hourmark.errors import ConfigError
from hourmark.ranges import new_host_id

_HOST_ID = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """`incarnation` is new at every start; `lock` is held as long as the process lives."""

    host_id: str
    host_name: str
    incarnation: str
    lock: IO[bytes] | None = None


def take_identity(state_dir: Path) -> Identity:
    """The instance's identity, minted once per `state_dir`. ConfigError if another process has it, or it cannot be kept."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = (state_dir / "lock").open("ab")
        try:
            host_id = _host_id(state_dir, lock)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise ConfigError(f"service.state_dir = {state_dir} cannot be used: {error.strerror}; name a writable folder") from error
    return Identity(host_id, socket.gethostname() or f"pid-{os.getpid()}", uuid.uuid4().hex, lock)


def _host_id(state_dir: Path, lock: IO[bytes]) -> str:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another service uses {state_dir}; give each its own service.state_dir") from None
    file = state_dir / "host-id"
    if not file.exists():
        write_durably(file, new_host_id().encode() + b"\n")
    host_id = file.read_text().strip()
    if not _HOST_ID.fullmatch(host_id):
        raise ConfigError(f"{file} must hold 32 hex digits; restore it, or remove it to become a new instance")
    return host_id
