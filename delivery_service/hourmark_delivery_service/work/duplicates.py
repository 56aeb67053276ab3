"""Coalescing of identical concurrent requests: a retry joins the delivery in progress.

All callers of one delivery get its result, and are acknowledged only if its records and its audit
record are in the queue. The delivery continues while at least one caller waits, and is cancelled
when the last caller disconnects.

Once the first record is passed to the queue, the delivery always runs to its end. The queue holds
these records, so their memory must stay accounted for, a retry must not append them again, and they
need their audit record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from starlette.requests import ClientDisconnect

from hourmark_delivery_service.work.peer import ClientPeer

T = TypeVar("T")


@dataclasses.dataclass(slots=True, eq=False)
class SharedWork(Generic[T]):
    """The work in progress for one request. All identical requests share its result.

    Requests are identical if they have the same key and the same body.

    Attributes:
        body: Request body. It is compared because different bodies may have the same key.
        must_finish: Whether the work must not be cancelled, even if all waiting clients disconnect.
        waiters: One future for each waiting request. It receives the result or the exception of the
            work.
    """

    body: bytes
    must_finish: bool = False
    waiters: set[asyncio.Future[T]] = dataclasses.field(default_factory=set)


class RequestCoalescer(Generic[T]):
    """Coalesces identical concurrent requests: their work runs once, and all get its result.

    For example, a retry that arrives while the first attempt is in progress waits for the first
    attempt. Not thread-safe: use it in one event loop.
    """

    def __init__(self) -> None:
        self._works: dict[Hashable, SharedWork[T]] = {}
        self._tasks: dict[
            SharedWork[T], asyncio.Task[T]
        ] = {}  # those forgotten among them, until they have ended

    def __len__(self) -> int:
        return len(self._works)

    async def join(
        self,
        key: Hashable,
        body: bytes,
        start: Callable[[SharedWork[T]], Coroutine[Any, Any, T]],
        peer: ClientPeer,
    ) -> T:
        """Perform the work of a request, or wait for an identical request in progress.

        Requests are identical if they have the same key and the same body.

        Args:
            key: Key of the request.
            body: Request body.
            start: Function that returns the coroutine for the work. It is called only if no
                identical request is in progress. The coroutine sets `must_finish` of the function's
                argument once it must not be cancelled any more.
            peer: Client that waits for the result.

        Returns:
            The result of the coroutine. Its exceptions are raised in all waiting callers.

        Raises:
            ClientDisconnect: If the client disconnects. The work is cancelled if no other client
                waits for it, unless `must_finish` is set.
        """
        work = self._works.get(key)
        if work is None or work.body != body:
            work = self._begin(key, SharedWork(body), start)
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        work.waiters.add(mine)
        left = functools.partial(_left, mine)
        peer.add_disconnect_callback(left)
        try:
            return await mine
        finally:
            peer.remove_disconnect_callback(left)
            work.waiters.discard(mine)
            if not work.waiters and not work.must_finish:
                self._end(key, work)
            del (
                mine,
                left,
                # its error's traceback holds this frame: a circle would keep the body until the
                # collector comes
            )

    def _begin(
        self,
        key: Hashable,
        work: SharedWork[T],
        start: Callable[[SharedWork[T]], Coroutine[Any, Any, T]],
    ) -> SharedWork[T]:
        task = asyncio.create_task(start(work))
        self._works[key] = work
        self._tasks[work] = task

        def ended(task: asyncio.Task[T]) -> None:
            self._forget(key, work)
            del self._tasks[work]
            if not work.waiters and not task.cancelled():
                task.exception()  # retrieved: no client waits for it any longer
            for one in work.waiters:
                if not one.done():
                    _copy_result(one, task)

        task.add_done_callback(ended)
        return work

    def _end(self, key: Hashable, work: SharedWork[T]) -> None:
        self._forget(key, work)  # no request may join work that is being cancelled
        if (task := self._tasks.get(work)) is not None:
            task.cancel()

    def _forget(self, key: Hashable, work: SharedWork[T]) -> None:
        if self._works.get(key) is work:
            del self._works[key]


def _left(one: asyncio.Future[T]) -> None:
    if not one.done():
        one.set_exception(ClientDisconnect())


def _copy_result(one: asyncio.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        one.cancel()
    elif (error := task.exception()) is not None:
        one.set_exception(error)
    else:
        one.set_result(task.result())
