"""The sender threads: each takes the next file, or several small ones, does the step, and says when
to try again.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from hourmark.errors import HourmarkError
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import TrackedFile
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.send.client import Busy, NotAllowed, Refused
from hourmark_producer.send.follower import Follower
from hourmark_producer.send.services import pause_after

# they wait for the service most of the time, and share fsyncs; memory: a range or a long line each
SENDERS: Final = 8
TOGETHER_MAX: Final = 32  # small files in one step; memory: a small range each


@dataclasses.dataclass(kw_only=True)
class Senders:
    """A fixed number of threads. `failed` is called with an error that is nobody's to retry:
    a bug.
    """

    follower: Follower
    schedule: Schedule
    throttle: ConditionLog
    backoff_max_s: float
    failed: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self._rng = random.Random()  # noqa: S311  # jitter is no secret
        self._may_send = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"sender-{n}", daemon=True)
            for n in range(SENDERS)
        ]

    def start(self) -> None:
        """Begin; nothing is sent before `allow`."""
        for thread in self._threads:
            thread.start()

    def allow(self) -> None:
        """A report has arrived, so the first one has."""
        self._may_send.set()

    def stop(self, within_s: float) -> bool:
        """End after the steps under way; whether all did in time."""
        self.schedule.close()
        self._may_send.set()
        until_s = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        self._may_send.wait()
        try:
            while (file := self.schedule.take()) is not None:
                self._step([file, *self._further(file)])
        except Exception as error:  # noqa: BLE001  # handed to the main thread, which ends with it
            self.failed(error)

    def _further(self, file: TrackedFile) -> list[TrackedFile]:
        """Return small files that share their transactions with this one."""
        is_small = self.follower.is_small
        return (
            self.schedule.take_more(is_small, TOGETHER_MAX - 1, SENDERS) if is_small(file) else []
        )

    def _step(self, files: list[TrackedFile]) -> None:
        results: dict[TrackedFile, bool | Exception]
        if len(files) > 1:
            results = self.follower.step_together(files)
        else:
            try:
                results = {files[0]: self.follower.step(files[0])}
            except (HourmarkError, OSError) as error:
                results = {files[0]: error}
        for file, result in results.items():
            self._ended(file, result)

    def _ended(self, file: TrackedFile, result: bool | Exception) -> None:
        """`result`: whether there may be more, or why the step failed."""
        if isinstance(result, Exception):
            file.failures += 1
            pause = pause_s(result, failures=file.failures, max_s=self.backoff_max_s, rng=self._rng)
            self._log(file, result, pause)
            self.schedule.retry(file, pause)
            return
        file.failures = 0
        if file.flush_at_s is not None:
            self.schedule.wake(file, file.flush_at_s)
        self.schedule.done(file, more=result)

    def _log(self, file: TrackedFile, error: Exception, pause: float) -> None:
        sent = next((sent for sent in file.progress.in_flight if not sent.acknowledged), None)
        where = f"{file.place.seen_at}, generation {file.progress.position.generation}, "
        where += (
            f"bytes {sent.range.start} to {sent.range.end}"
            if sent
            else f"from byte {file.progress.position.offset}"
        )
        if isinstance(error, NotAllowed):
            self.throttle.warn(
                # another reason is another condition, with another next step
                f"not allowed {error}",
                f"{error}. Nothing is dropped. Waiting: {where}, perhaps others; tried "
                f"again every {pause:.0f} s",
                logging.ERROR,
            )
        elif isinstance(error, Refused):
            self.throttle.warn(
                f"refused {file.file_id}",
                f"{error}. This holds up {where}; other files go on. Compare the limits and "
                "types of service and tailer; "
                f"tried again every {pause:.0f} s",
                logging.ERROR,
            )
        elif isinstance(error, OSError):
            is_expected = isinstance(error, RetryLater) and error.is_expected
            level = logging.INFO if is_expected else logging.WARNING
            self.throttle.warn(
                f"read {file.file_id}",
                f"cannot read {where}: {error}; tried again in {pause:.1f} s",
                level,
            )
        else:
            self.throttle.warn(
                f"{type(error).__name__}",
                f"{error}. Waiting: {where}, perhaps others; tried again in {pause:.1f} s",
            )


def pause_s(error: Exception, *, failures: int, max_s: float, rng: random.Random) -> float:
    """How long to wait before a failed step is tried again.

    Retries never end; only the pause is bounded.

    `failures`: in a row, this one included. Every service that may be asked was asked.
    """
    if isinstance(error, Refused):
        return max_s  # asking again soon would not help
    pause = pause_after(failures, max_s, rng)
    return max(pause, error.retry_after_s) if isinstance(error, Busy) else pause
