"""Execution of parsing and decompression: short turns in the event loop, long work in one thread.

There is only one thread because Python executes one thread at a time: more threads would delay each
other without being faster. The event loop runs between any two turns, so probes and new requests
are answered under load.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Final, TypeVar

from hourmark_delivery_service.errors import ServiceUnavailable
from hourmark_delivery_service.work.peer import ClientPeer
from hourmark_delivery_service.work.turns import FairLock, Job

T = TypeVar("T")

LONG_BYTES: Final = (
    64 * 1024
)  # one piece of work over more bytes than that may take over ten milliseconds
LARGE_RECORDS: Final = (
    65_536  # of a request: lines of at most 16 bytes; parsing them takes a second and more
)
_LARGE_WAITING_MAX: Final = (
    4  # they hold memory, which others need; one of each client, lest one keeps all others out
)
CLIENT: Final = ContextVar(
    "CLIENT", default=""
)  # the client of the current request: its token's id, or else its address
LONG_RECORDS: Final = 4096  # and so may one over more records


class FairExecutor:
    """Runs CPU-bound work of requests in turns, in the event loop or in a background thread.

    Work in the event loop must take at most a few milliseconds per turn. Requests take turns in a
    fair order, so that no request has to wait until another one is finished. Not thread-safe: call
    all methods from one event loop.
    """

    def __init__(self) -> None:
        self._short = FairLock()
        self._long = FairLock()
        self._large = FairLock()
        self._waiting_large: set[str] = set()  # clients that wait for the large lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="long-work")

    def admit(self, records: int) -> AbstractAsyncContextManager[None]:
        """Return an async context manager that lets only one large task run at a time.

        A task is large if it may produce more than `LARGE_RECORDS` records. Other tasks are
        admitted immediately.

        Args:
            records: Maximum number of records that the task produces.

        Raises:
            ServiceUnavailable: If the task is large, and either four large tasks or another large
                task of the same client are already waiting. The client should retry after 10
                seconds.
        """
        if not is_large(records):
            return contextlib.nullcontext()
        waiting = self._large.waiting_count
        if waiting >= _LARGE_WAITING_MAX or CLIENT.get() in self._waiting_large:
            raise ServiceUnavailable(
                "overloaded",
                f"{waiting} requests of more than {LARGE_RECORDS} lines are waiting",
                retry_after_s=10,
            )
        return self._in_large_lane(CLIENT.get())

    @contextlib.asynccontextmanager
    async def _in_large_lane(self, client: str) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as turn:
            self._waiting_large.add(client)
            try:
                await turn.enter_async_context(self._large.hold(Job()))
            finally:
                self._waiting_large.discard(client)
            yield

    async def run_in_loop(self, job: Job, call: Callable[[], T]) -> T:
        """Wait for the job's turn, then run a short function in the event loop.

        Other tasks of the event loop get a chance to run before the next turn.

        Args:
            job: Job of the function. Its number of turns increases by one.
            call: Function that takes at most a few milliseconds.

        Returns:
            The result of the function. Its exceptions are propagated.
        """
        async with self._short.hold(job):
            result = call()
            await asyncio.sleep(0)
            return result

    async def run_in_thread(
        self, job: Job, call: Callable[[], T], peer: ClientPeer | None = None
    ) -> T:
        """Wait for the job's turn, then run a long function in the background thread.

        If the calling task is cancelled while the function runs, the call waits until the function
        has ended before it raises `CancelledError`, because the function still uses its memory.

        Args:
            job: Job of the function. Its number of turns increases by one.
            call: Function to run.
            peer: Client that waits for the result, or None.

        Returns:
            The result of the function. Its exceptions are propagated.

        Raises:
            ClientDisconnect: If the client disconnected before the function started.
        """
        async with self._long.hold(job):
            if peer is not None:
                peer.check_connected()
            working = asyncio.get_running_loop().run_in_executor(self._thread, call)
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.wait([working])
                raise


def is_large(records: int) -> bool:
    """Return whether a parsing task may produce more than `LARGE_RECORDS` records.

    A large task takes a second or more, so `FairExecutor.admit` lets only one run at a time.

    Args:
        records: Maximum number of records that the task produces.
    """
    return records > LARGE_RECORDS


def has_long_line(body: bytes) -> bool:
    """Return whether any line of a body is longer than `LONG_BYTES` bytes.

    Parsing such a line takes long, so the body is parsed in the background thread.

    Args:
        body: Request body. Each line ends with a line feed.
    """
    at = 0
    while at + LONG_BYTES < len(body):
        at = body.rfind(b"\n", at, at + LONG_BYTES + 1) + 1
        if at == 0:
            return True
    return False
