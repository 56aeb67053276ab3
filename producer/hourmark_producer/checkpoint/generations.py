"""Generations of files, kept next to the checkpoint and in an optional second folder.

Lines are identified by file, generation and offset. If the checkpoint is lost and everything is
read again, a generation must not be used for other bytes than before. So the beginning of each
generation is recorded before its first range is sent: a file whose head equals that of its latest
generation is that generation; any other head begins the next one.

The file `generations` holds a line of JSON with the host id, then one line per beginning: file id,
generation, length and digest of the head.

A generation after a truncation is synced to disk. The first generation of a file is written without
sync, because there are many: only a power loss together with a lost checkpoint and a truncation
would miss one.
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


class GenerationStart(NamedTuple):
    """The first bytes of one generation of a file, as length and digest.

    A generation is the content of a file between two truncations.

    Attributes:
        generation: Number of the generation, starting at 0.
        length: Number of bytes that the digest covers, at most `HEAD_BYTES`.
        digest: BLAKE2b digest of these bytes (8 bytes) in hexadecimal.
    """

    generation: int
    length: int
    digest: str

    @classmethod
    def of(cls, generation: int, content: bytes) -> GenerationStart:
        """Create the record of one generation from the content of the file.

        Args:
            generation: Number of times that the file was truncated before it had this content.
            content: Content of the file from its first byte. Only the first `HEAD_BYTES` bytes are
                used.
        """
        head = content[:HEAD_BYTES]
        return cls(generation, len(head), hashlib.blake2b(head, digest_size=8).hexdigest())


class Generations:
    """Records how often each log file was truncated, outside the tailer's database. Thread-safe.

    The content of a file between two truncations is called a generation. Generations are numbered
    from 0. If the database (checkpoint) is lost, the tailer uses these records to assign the same
    numbers again.
    """

    def __init__(self, folders: Sequence[Path], host_id: str) -> None:
        """Read the file `generations` in each folder, and write the merged records to all folders.

        Args:
            folders: Existing folders. The file is created in folders that do not have it.
            host_id: Id of this host.

        Raises:
            ConfigError: A folder cannot be read or written, or belongs to another host.
        """
        self._lock = threading.Lock()
        self._known: dict[str, GenerationStart] = {}
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
                    f"{path} cannot be written: {error.strerror}; use a folder that this user "
                    "can write to"
                ) from error

    def find_generation(self, file_id: str, head: bytes) -> int:
        """Return the generation number to use for a file that is not in the checkpoint.

        The generation number is the number of times that the file was truncated or replaced.

        Args:
            file_id: Id of the file.
            head: Its first bytes.

        Returns:
            The latest recorded generation if the file still begins with the recorded bytes,
            otherwise the next number; 0 if nothing is recorded for the file.
        """
        with self._lock:
            known = self._known.get(file_id)
        if known is None:
            return 0
        is_it = (
            len(head) >= known.length
            and GenerationStart.of(known.generation, head[: known.length]) == known
        )
        return known.generation + (not is_it)

    def record_generation(self, file_id: str, generation: int, content: bytes) -> None:
        """Record the first bytes of a generation.

        Call this method before you send the first range of the generation. Does nothing if the same
        record already exists.

        Args:
            file_id: Id of the file.
            generation: Number of times the file was truncated or replaced.
            content: Content of the file from its first byte.

        Raises:
            OSError: The record cannot be written. The caller must not send the range.
        """
        beginning = GenerationStart.of(generation, content)
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
                file_id, beginning = fields[0], GenerationStart(*fields[1:])
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


def read_owner(folder: Path) -> str | None:
    """Return the host id in the file `generations` of a folder.

    This file records for one host how often each log file was truncated.

    Args:
        folder: The state folder, or the folder with the second copy of the file.

    Returns:
        The host id; None if the file does not exist or names no host.

    Raises:
        ConfigError: The file cannot be read.
    """
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


def _line(file_id: str, beginning: GenerationStart) -> bytes:
    return (
        b"\n" + json.dumps([file_id, *beginning], separators=(",", ":")).encode()
    )  # a torn one does not spoil the next


def _lines(path: Path) -> Iterator[object]:
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
