"""Fair scheduling of requests that share one thread.

Work is divided into turns of about two milliseconds, limited in records and bytes. Turns alternate
between the request that had the fewest turns and the one that waits longest. So a small request
never waits for large ones to finish, and a stream of small requests cannot starve a large one: of n
waiting requests, each gets a turn within 2 n turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """The work of one request, scheduled in short turns by `JobQueue` and `FairLock`.

    Turns of different requests alternate, so that a small request does not wait until a large one
    is finished.

    Attributes:
        turns: Number of turns so far.
    """

    turns: int = 0


class JobQueue:
    """A queue of jobs that is fair to small and large jobs. A job is the work of one request.

    `pop_next` alternates between the job with the fewest turns so far and the job that has waited
    longest. If n jobs are waiting, each gets a turn within 2 n turns. Small jobs therefore do not
    wait until large jobs are finished, and many small jobs cannot starve a large one.
    """

    def __init__(self) -> None:
        self._waiting: dict[Job, None] = {}  # in the order in which they came
        self._fewest_next = True

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: Job) -> None:
        """Add a job to the end of the queue.

        Args:
            job: Job to add. If it is already in the queue, nothing changes.
        """
        self._waiting[job] = None

    def remove(self, job: Job) -> None:
        """Remove a job from the queue, for example because its client has disconnected.

        Does nothing if the job is not in the queue.

        Args:
            job: Job to remove.
        """
        self._waiting.pop(job, None)

    def pop_next(self) -> Job | None:
        """Remove and return the next job.

        Calls alternate between the job with the fewest turns and the job that has waited longest.
        Returns None if the queue is empty.
        """
        if not self._waiting:
            return None
        first = next(iter(self._waiting))
        job = min(self._waiting, key=lambda job: job.turns) if self._fewest_next else first
        self._fewest_next = not self._fewest_next
        del self._waiting[job]
        return job


class FairLock:
    """A fair asyncio lock that a job acquires for each of its turns.

    The lock alternates between the job with the fewest turns so far and the job that has waited
    longest. Neither small nor large jobs starve. Not thread-safe: use it in one event loop.
    """

    def __init__(self) -> None:
        self._line = JobQueue()
        self._wakes: dict[Job, asyncio.Future[None]] = {}
        self._busy = False

    @contextlib.asynccontextmanager
    async def hold(self, job: Job) -> AsyncIterator[None]:
        """Return an async context manager that waits for the lock and holds it during its block.

        Args:
            job: Job that acquires the lock. Its number of turns increases by one.
        """
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
        """Return the number of jobs that are waiting for the lock.

        The job that holds the lock is not counted.
        """
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
