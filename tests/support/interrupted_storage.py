"""Storage whose process dies before, or just after, one of its changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tests.support.memory_storage import MemoryStorage


class Killed(BaseException):
    """The process that used the storage died: nothing may catch it."""


class InterruptedStorage(MemoryStorage):
    """Dies at the change with the number `dies_at`, counted from 0.

    With `applied`, the change was made and only its response is lost. `changes` counts them all.
    """

    def __init__(self, dies_at: int | None = None, *, applied: bool = False) -> None:
        super().__init__()
        self.dies_at, self.applied, self.changes = dies_at, applied, 0

    def write_new(self, path: str, content: bytes, *, unpublished: bool = False) -> None:
        with self._change():
            super().write_new(path, content, unpublished=unpublished)

    @contextmanager
    def create(self, path: str, *, unpublished: bool = False) -> Iterator[BinaryIO]:
        # It ends with `write_new`, which is the change.
        with super().create(path, unpublished=unpublished) as file:
            yield file

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        with self._change():
            super().rename_new(source, target, unpublished=unpublished)

    def delete(self, path: str) -> None:
        with self._change():
            super().delete(path)

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._lock:
            number, self.changes = self.changes, self.changes + 1
            dead = self.dies_at is not None and number > self.dies_at
            if dead or (number == self.dies_at and not self.applied):
                raise Killed(f"change {number}")
            yield
            if number == self.dies_at:
                raise Killed(f"change {number}")
