"""Log files as they were when a user named them, which recognize them after a rotation.

`hourmark init` writes them to the file `named-files.json` next to the configuration. Before the
first scan of a source, `hourmark tail register` adds them to the tailer's checkpoint, as if the
tailer had scanned the source at that time. A file that was rotated between is then found by its
identity, or by its content if it was compressed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hourmark.errors import ConfigError
from hourmark.process.durable import write_durably
from hourmark.process.file_identity import FileIdentity, identify, open_without_waiting

NAMED_FILES: Final = "named-files.json"
HEAD_BYTES: Final = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """The identity and first bytes of a log file when it was added to the configuration.

    If the file is renamed or compressed before the tailer first reads its source, the tailer finds
    the file again by these properties.

    Attributes:
        path: Absolute path of the file in the configuration.
        target: Path to which `path` resolved if it contained a symbolic link; otherwise empty.
        identity: Device, inode and birth time.
        size: Size of the content in bytes. A lower bound if the file ended with NUL bytes, because
            its writer may have preallocated them.
        head: First bytes of the content, at most `HEAD_BYTES`.
        at_ms: Time of this observation, in Unix milliseconds.
    """

    path: str
    target: str
    identity: FileIdentity
    size: int
    head: bytes
    at_ms: int


def observe_files(paths: Iterable[Path], now_ms: int) -> list[NamedFile]:
    """Record the identity, size and first bytes of log files.

    Args:
        paths: Absolute paths of the files.
        now_ms: Current time in Unix milliseconds.

    Returns:
        One object for each file. Files that are not regular or cannot be read are omitted.
    """
    found = []
    for path in paths:
        with suppress(OSError):
            if path.is_file():
                found.append(_observe(path, now_ms))
    return found


def _observe(path: Path, now_ms: int) -> NamedFile:
    descriptor = open_without_waiting(path)
    try:
        size, head = os.fstat(descriptor).st_size, os.pread(descriptor, HEAD_BYTES, 0)
        if os.pread(descriptor, 1, max(size - 1, 0)) == b"\0":
            head = head.rstrip(b"\0")
            size = len(head)
        identity = identify(descriptor)
    finally:
        os.close(descriptor)
    real = os.path.realpath(path)
    return NamedFile(
        path=str(path),
        target=real if real != str(path) else "",
        identity=identity,
        size=size,
        head=head,
        at_ms=now_ms,
    )


def save_named_files(file: Path, named: Iterable[NamedFile]) -> None:
    """Add log files to `named-files.json`, replacing existing entries with the same path.

    Args:
        file: Path of `named-files.json`, which is created if it does not exist.
        named: The log files, as returned by `observe_files`.

    Raises:
        ConfigError: The existing file is invalid.
        OSError: The file cannot be read or written.
    """
    by_path = {one.path: one for one in (*read_named_files(file), *named)}
    rows = [_to_json(one) for one in by_path.values()]
    write_durably(file, (json.dumps(rows, indent=1) + "\n").encode(), mode=0o644)


def read_named_files(file: Path) -> list[NamedFile]:
    """Read the log files that `save_named_files` has stored in `named-files.json`.

    Args:
        file: Path of `named-files.json`.

    Returns:
        The log files; empty if `named-files.json` does not exist.

    Raises:
        ConfigError: The file is invalid.
        OSError: The file cannot be read.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return []
    try:
        return [_from_json(row) for row in json.loads(content)]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{file} is not as `hourmark init` writes it ({error!r}): delete it, so that files "
            "which were rotated since `hourmark init` are not searched for"
        ) from error


def _to_json(named: NamedFile) -> dict[str, Any]:
    return dataclasses.asdict(named) | {"identity": [*named.identity], "head": named.head.hex()}


def _from_json(row: dict[str, Any]) -> NamedFile:
    return NamedFile(
        path=str(row["path"]),
        target=str(row["target"]),
        identity=FileIdentity(*map(int, row["identity"])),
        size=int(row["size"]),
        head=bytes.fromhex(row["head"]),
        at_ms=int(row["at_ms"]),
    )
