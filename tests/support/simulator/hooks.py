"""Something happens in the middle of a closer's step: it is killed, it is paused, or the world goes
on.

A step passes *points*: before and after each ledger transaction, before each call of storage and of
the engine. A point may be given one thing to happen. What happens at point n of a step is part of
the example, so that it shrinks and can be repeated.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar, cast

from sqlalchemy import Connection

from hourmark.config.loading import Config
from hourmark_etl.ledger.database import Database, Lease

T = TypeVar("T")


class Killed(BaseException):
    """SIGKILL, as far as Python can be told: nothing may catch it."""


class InlineExecutor(Executor):
    """Carries each call out when it is submitted, in the thread that submits it: in an order that
    can be repeated.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # raised where its result is asked for
            future.set_exception(error)
        return future


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


_COMPILED: dict[Any, Any] = {}


def open_ledger(config: Config) -> Database:
    """A ledger; statements are compiled once for all histories, not once for each of them."""
    return Database(config.etl.ledger, compiled_cache=_COMPILED)


class PointedDatabase(Database):
    """A ledger whose transactions are points; its connections are those of `ledger`, which has
    looked at its schema already.
    """

    def __init__(self, ledger: Database, points: FaultPoints) -> None:
        self._ledger, self._points = ledger, points

    def close(self) -> None:
        """`ledger` closes them."""

    def acquire(self, name: str) -> Lease:
        """See `Database`."""
        return self._ledger.acquire(name)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """See `Database`."""
        with self._ledger.reading() as connection:
            yield connection

    @contextlib.contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[Connection]:
        """See `Database`."""
        self._points.reach()
        with self._ledger.transaction(lease) as connection:
            yield connection
        self._points.reach()


def pointed(inner: T, points: FaultPoints, after: Collection[str] = ()) -> T:
    """The same with calls that are points: before each of them, and after those that are named
    here.
    """

    class Pointed:
        @property  # type: ignore[misc]
        def __class__(self) -> type:  # closing asks for the kind of a storage
            return type(inner)

        def __getattr__(self, name: str) -> Any:
            real = getattr(inner, name)
            if not callable(real) or name == "url":
                return real

            def call(*arguments: Any, **more: Any) -> Any:
                points.reach()
                answer = real(*arguments, **more)
                if name in after:
                    points.reach()
                return answer

            return call

    return cast(T, Pointed())
