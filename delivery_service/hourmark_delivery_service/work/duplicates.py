"""The same request twice at once is done once: a retry joins the work that is under way, and is
told what comes of it.

Who joins waits for the very work whose records and audit record go into the queue, and is
acknowledged only by its success. Work goes on while anyone waits for it, whoever came first, and
ends with the last of them: nobody works for a client that left.

But once its first record is given to the queue it goes on to its end, whoever left: the queue holds
what was given to it, so its memory must stay counted; a retry joins it instead of giving the same
again; and its records get their audit record.
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
    """What is done for all that wait for it. `body`: what a twin must have too, byte for byte; a
    key may be only a digest.
    """

    body: bytes
    must_finish: bool = False
    waiters: set[asyncio.Future[T]] = dataclasses.field(default_factory=set)


class RequestCoalescer(Generic[T]):
    """Work under way, by its key."""

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
        """What `start` returns or raises, or what it does that was started for the same key and
        body and is not done yet.

        ClientDisconnect once `peer` is gone. `start` sets its work's `lasting` from where it must
        not be ended any more.
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
                task.exception()  # nobody is left to be told
            for one in work.waiters:
                if not one.done():
                    _tell(one, task)

        task.add_done_callback(ended)
        return work

    def _end(self, key: Hashable, work: SharedWork[T]) -> None:
        self._forget(key, work)  # nobody must join what is being ended
        if (task := self._tasks.get(work)) is not None:
            task.cancel()

    def _forget(self, key: Hashable, work: SharedWork[T]) -> None:
        if self._works.get(key) is work:
            del self._works[key]


def _left(one: asyncio.Future[T]) -> None:
    if not one.done():
        one.set_exception(ClientDisconnect())


def _tell(one: asyncio.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        one.cancel()
    elif (error := task.exception()) is not None:
        one.set_exception(error)
    else:
        one.set_result(task.result())
