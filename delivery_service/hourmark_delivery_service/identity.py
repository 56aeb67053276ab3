"""Who this service instance is: a host id that survives restarts, and a lock so that no two processes share it."""

from __future__ import annotations

import dataclasses
import os
import socket
import uuid
from pathlib import Path
from typing import IO

from hourmark.ranges import new_host_id
from hourmark.state_folder import StateFolder


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """`incarnation` is new at every start; `lock` is held as long as the process lives."""

    host_id: str
    host_name: str
    incarnation: str
    lock: IO[bytes] | None = None


def take_identity(state_dir: Path) -> Identity:
    """The instance's identity, minted once per `state_dir`. ConfigError if another process has it, or it cannot be kept."""
    folder = StateFolder(state_dir, "service")
    lock = folder.lock()
    try:
        host_id = folder.host_id() or folder.keep_host_id(new_host_id())
    except BaseException:
        lock.close()
        raise
    return Identity(host_id, socket.gethostname() or f"pid-{os.getpid()}", uuid.uuid4().hex, lock)
