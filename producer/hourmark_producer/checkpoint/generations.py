"""How often each file was truncated, kept beside the checkpoint, and in a second folder where one
is configured.

Lines are named by file, generation and offset. Where a checkpoint is lost and all is read again, a
generation must not begin anew with other bytes than it had. So each one's beginning is noted before
its first range is sent: a file whose head is that of its latest generation is that generation; one
whose head is not begins the next.

    generations  a line of JSON with the host id, then one for each beginning: file id, generation, head's length and digest

A generation after a truncation is noted durably. That of a file as it was found is written, and not
synced: there are many of them, and only a power cut together with a lost checkpoint and a
truncation would miss one.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.errors import ConfigError
from hourmark.process.durable import write_durably
from hourmark_producer.files.fingerprints import HEAD_BYTES

FILES_MAX: Final = 100_000  # the latest
_NAME: Final = "generations"


class Beginning(NamedTuple):
    """Of a file's latest generation."""

    generation: int
    length: int
    digest: str

    @classmethod
    def of(cls, generation: int, content: bytes) -> Beginning:
        """`content`: from its start on."""
        head = content[:HEAD_BYTES]
        return cls(generation, len(head), hashlib.blake2b(head, digest_size=8).hexdigest())


class Generations:
    """Those of one host. Safe to use from several threads."""

    def __init__(self, folders: Sequence[Path], host_id: str) -> None:
        """ConfigError where a folder cannot be used, or is another host's."""
        self._lock = threading.Lock()
        self._known: dict[str, Beginning] = {}
        self._host_id = host_id
        self._appended = 0  # lines, since the files were written as a whole
        self._paths = [folder / _NAME for folder in folders]
        for path in self._paths:
            self._read(path)
        for path in self._paths:
            try:
                write_durably(path, self._content())
            except OSError as error:
                raise ConfigError(
                    f"{path} cannot be written: {error.strerror}; name a folder that this "
                    "user may write"
                ) from error

    def of(self, file_id: str, head: bytes) -> int:
        """The generation of a file that the checkpoint does not know, and that begins so."""
        with self._lock:
            known = self._known.get(file_id)
        if known is None:
            return 0
        is_it = (
            len(head) >= known.length
            and Beginning.of(known.generation, head[: known.length]) == known
        )
        return known.generation + (not is_it)

    def note(self, file_id: str, generation: int, content: bytes) -> None:
        """A generation that begins so is about to be sent. OSError: it must not be."""
        beginning = Beginning.of(generation, content)
        with self._lock:
            if self._known.get(file_id) == beginning:
                return
            for path in self._paths:
                with path.open("ab") as file:
                    file.write(_line(file_id, beginning))
                    file.flush()
                    if generation:
                        os.fdatasync(file.fileno())
            self._known.pop(file_id, None)
            self._known[file_id] = beginning
            self._appended += 1
            if self._appended >= 2 * FILES_MAX:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Keep the latest FILES_MAX beginnings, here and in the files.

        Raises OSError as `write_durably`.
        """
        for file_id in list(self._known)[:-FILES_MAX]:
            del self._known[file_id]
        for path in self._paths:
            write_durably(path, self._content())
        self._appended = 0

    def _read(self, path: Path) -> None:
        for fields in _lines(path):
            if isinstance(fields, dict):
                _check_owner(path, fields, self._host_id)
            elif isinstance(fields, list) and len(fields) == 4:
                file_id, beginning = fields[0], Beginning(*fields[1:])
                if (
                    file_id not in self._known
                    or self._known[file_id].generation <= beginning.generation
                ):
                    self._known.pop(file_id, None)
                    self._known[file_id] = beginning

    def _content(self) -> bytes:
        latest = list(self._known.items())[-FILES_MAX:]
        first = json.dumps({"host_id": self._host_id}).encode()
        return first + b"".join(_line(file_id, beginning) for file_id, beginning in latest)


def owner(folder: Path) -> str | None:
    """The host id that this folder was used by; None where it is new."""
    for fields in _lines(folder / _NAME):
        if isinstance(fields, dict):
            return str(fields.get("host_id"))
    return None


def _check_owner(path: Path, fields: dict[str, object], host_id: str) -> None:
    if fields.get("host_id") != host_id:
        raise ConfigError(
            f"{path} belongs to host id {fields.get('host_id')}, this tailer has "
            f"{host_id}; give each its own folder"
        )


def _line(file_id: str, beginning: Beginning) -> bytes:
    return (
        b"\n" + json.dumps([file_id, *beginning], separators=(",", ":")).encode()
    )  # a torn one does not spoil the next


def _lines(path: Path) -> Iterator[object]:
    """What can be read: a kill may have torn the last, and nothing but a lost checkpoint depends on
    it.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    for line in content.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
