"""Whose turn it is, where many requests share one thread.

Work is cut into turns of about two milliseconds, bounded in records and bytes. Turns go alternately
to the request that has had the fewest, so that a small one never waits for large ones to end, and
to the one that has waited the longest, so that small ones without end never keep a large one out:
of n that wait, each gets a turn within 2 n.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """Work of one request. `turns`: how many it has had."""

    turns: int = 0


class JobQueue:
    """Those that wait, and which of them is next. Pure."""

    def __init__(self) -> None:
        self._waiting: dict[Job, None] = {}  # in the order in which they came
        self._fewest_next = True

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: Job) -> None:
        """It waits for a turn."""
        self._waiting[job] = None

    def remove(self, job: Job) -> None:
        """It does not wait any more."""
        self._waiting.pop(job, None)

    def pop_next(self) -> Job | None:
        """Whose turn it is; it waits no longer. None if nobody does."""
        if not self._waiting:
            return None
        first = next(iter(self._waiting))
        job = min(self._waiting, key=lambda job: job.turns) if self._fewest_next else first
        self._fewest_next = not self._fewest_next
        del self._waiting[job]
        return job


class FairLock:
    """One turn at a time."""

    def __init__(self) -> None:
        self._line = JobQueue()
        self._wakes: dict[Job, asyncio.Future[None]] = {}
        self._busy = False

    @contextlib.asynccontextmanager
    async def hold(self, job: Job) -> AsyncIterator[None]:
        """Wait for a turn of this job; it lasts as long as the block."""
        if self._busy:
            await self._wait(job)
        self._busy = True
        job.turns += 1
        try:
            yield
        finally:
            self._pass_on()

    @property
    def waiting_count(self) -> int:
        """How many wait for a turn."""
        return len(self._line)

    async def _wait(self, job: Job) -> None:
        wake = self._wakes[job] = asyncio.get_running_loop().create_future()
        self._line.add(job)
        try:
            await wake
        except asyncio.CancelledError:
            if wake.cancelled():
                self._line.remove(job)
            else:  # the turn came in the same moment
                self._pass_on()
            raise
        finally:
            self._wakes.pop(job, None)

    def _pass_on(self) -> None:
        self._busy = False
        while (job := self._line.pop_next()) is not None:
            wake = self._wakes[job]
            if not wake.done():
                self._busy = True
                wake.set_result(None)
                return
