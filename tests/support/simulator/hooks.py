"""Something happens in the middle of a closer's step: it is killed, it is paused, or the world goes on.

A step passes *points*: before and after each ledger transaction, before each call of storage and of the engine. A point may
be given one thing to happen. What happens at point n of a step is part of the example, so that it shrinks and can be repeated.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO

from sqlalchemy import Connection

from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.closing.proof.readings import Compared
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.model import Frontier
from hourmark_etl.storage import Entry, Storage


class Killed(BaseException):
    """SIGKILL, as far as Python can be told: nothing may catch it."""


class FaultPoints:
    """Counts points; what is to happen at one of them happens once."""

    def __init__(self) -> None:
        self.passed = 0
        self._at: dict[int, Callable[[], None]] = {}
        self._closed = threading.local()

    def arm(self, point: int, happening: Callable[[], None]) -> None:
        """`happening` is called when `point` more points have been passed."""
        self._at[self.passed + point] = happening

    def disarm(self) -> None:
        """Nothing happens any more."""
        self._at.clear()

    def reach(self) -> None:
        """A point."""
        if getattr(self._closed, "inside", False):
            return  # what happens at a point passes none itself
        self.passed += 1
        happening = self._at.pop(self.passed, None)
        if happening is not None:
            self._closed.inside = True
            try:
                happening()
            finally:
                self._closed.inside = False


_COMPILED: dict[object, object] = {}


def share_compiled(database: Database) -> None:
    """Statements are compiled once for all histories, not once for each ledger."""
    database._changing = database._changing.execution_options(compiled_cache=_COMPILED)
    database._reading = database._reading.execution_options(compiled_cache=_COMPILED)


class PointedDatabase(Database):
    """A ledger whose transactions are points; its connections are those of `ledger`, which has looked at its schema already."""

    def __init__(self, ledger: Database, points: FaultPoints) -> None:
        self._name, self._changing, self._reading = ledger._name, ledger._changing, ledger._reading
        self._points = points

    def close(self) -> None:
        """`ledger` closes them."""

    @contextlib.contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[Connection]:
        """See `Database`."""
        self._points.reach()
        with super().transaction(lease) as connection:
            yield connection
        self._points.reach()


class PointedStorage:
    """A storage whose calls are points."""

    def __init__(self, inner: Storage, points: FaultPoints) -> None:
        self._inner, self._points = inner, points

    def write_new(self, path: str, content: bytes) -> None:
        self._points.reach()
        self._inner.write_new(path, content)

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._points.reach()
        return self._inner.create(path)

    def read(self, path: str) -> bytes:
        self._points.reach()
        return self._inner.read(path)

    def open(self, path: str) -> BinaryIO:
        self._points.reach()
        return self._inner.open(path)

    def size(self, path: str) -> int:
        self._points.reach()
        return self._inner.size(path)

    def exists(self, path: str) -> bool:
        self._points.reach()
        return self._inner.exists(path)

    def list(self, folder: str) -> list[Entry]:
        self._points.reach()
        return self._inner.list(folder)

    def make_folder(self, path: str) -> None:
        self._points.reach()
        self._inner.make_folder(path)

    def rename_new(self, source: str, target: str) -> None:
        self._points.reach()
        self._inner.rename_new(source, target)
        self._points.reach()  # it happened, and nobody heard of it

    def delete(self, path: str) -> None:
        self._points.reach()
        self._inner.delete(path)

    def url(self, path: str) -> str:
        return self._inner.url(path)


class PointedEngine(Engine):
    """An engine whose calls are points, before and after."""

    def __init__(self, inner: Engine, points: FaultPoints) -> None:
        super().__init__(inner.storage, inner.database, inner.config)
        self._inner, self._points = inner, points

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        self._points.reach()
        proofs = self._inner.prove(frozen, audit_next)
        self._points.reach()
        return proofs

    def compare(self, without: Collection[str]) -> Compared | None:
        self._points.reach()
        compared = self._inner.compare(without)
        self._points.reach()
        return compared

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        self._points.reach()
        written = self._inner.write(sealed, schemas, folder)
        self._points.reach()
        return written
