"""The sender threads: each takes the next file, or several small ones, and steps it.

A step that failed is repeated after a delay.
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
from hourmark_producer.send.client import (
    EventTypeUnavailable,
    NoServiceAvailable,
    RequestRefused,
    RequestUnauthorized,
)
from hourmark_producer.send.file_shipper import FileShipper
from hourmark_producer.send.services import backoff_delay_s

# they wait for the service most of the time, and share fsyncs; memory: a range or a long line each
SENDERS: Final = 8
TOPIC_RETRY_MAX_S: Final = 5.0  # services reject such a range quickly, and the topic may be back
TOGETHER_MAX: Final = 32  # small files in one step; memory: a small range each


@dataclasses.dataclass(kw_only=True)
class SenderPool:
    """A fixed number of threads that send the unread bytes of queued files.

    Each thread takes a file from the queue and sends part of it, which is called a step. A failed
    step is repeated after a delay. Call `start`, then `allow_sending`, and finally `stop`.

    Attributes:
        shipper: Sends a file, one step at a time.
        schedule: Queue of files that have unread or unsent bytes.
        throttle: Logs each lasting problem once when it begins and once when it ends.
        backoff_max_s: Maximum delay before a step is repeated, in seconds.
        on_error: Called with an unexpected exception, which ends the thread that raised it.
    """

    shipper: FileShipper
    schedule: Schedule
    throttle: ConditionLog
    backoff_max_s: float
    on_error: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self._rng = random.Random()  # noqa: S311  # jitter is no secret
        self._may_send = threading.Event()
        self._blocked: dict[str, str] = {}  # by file id: the condition of its unavailable topic
        self._threads = [
            threading.Thread(target=self._run, name=f"sender-{n}", daemon=True)
            for n in range(SENDERS)
        ]

    def start(self) -> None:
        """Start the threads. They wait and send nothing until `allow_sending` is called."""
        for thread in self._threads:
            thread.start()

    def allow_sending(self) -> None:
        """Allow the threads to send byte ranges.

        Call this method after the first host report was delivered.
        """
        self._may_send.set()

    def stop(self, within_s: float) -> bool:
        """Stop the threads after their current steps, and wait for them.

        The queue is closed, so the pool cannot be started again.

        Args:
            within_s: Maximum time to wait for the threads, in seconds.

        Returns:
            True if all threads have ended, False if the time limit passed.
        """
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
                self._step([file, *self._take_small_files(file)])
        except Exception as error:  # noqa: BLE001  # handed to the main thread, which ends with it
            self.on_error(error)

    def _take_small_files(self, file: TrackedFile) -> list[TrackedFile]:
        is_small = self.shipper.is_small
        return (
            self.schedule.take_more(is_small, TOGETHER_MAX - 1, SENDERS) if is_small(file) else []
        )

    def _step(self, files: list[TrackedFile]) -> None:
        results: dict[TrackedFile, bool | Exception]
        if len(files) > 1:
            results = self.shipper.step_batch(files)
        else:
            try:
                results = {files[0]: self.shipper.step(files[0])}
            except (HourmarkError, OSError) as error:
                results = {files[0]: error}
        for file, result in results.items():
            self._finish_step(file, result)

    def _finish_step(self, file: TrackedFile, result: bool | Exception) -> None:
        if isinstance(result, Exception):
            file.sender.failures += 1
            pause = retry_delay_s(
                result, failures=file.sender.failures, max_s=self.backoff_max_s, rng=self._rng
            )
            self._log(file, result, pause)
            self.schedule.retry(file, pause)
            return
        file.sender.failures = 0
        self._unblock(file)
        # a file that was closed meanwhile is scheduled when it is opened again
        if file.sender.flush_at_s is not None and file.descriptor is not None:
            self.schedule.add_later(file, file.sender.flush_at_s)
        self.schedule.finish_step(file, more=result)

    def _unblock(self, file: TrackedFile) -> None:
        key = self._blocked.pop(file.file_id, None)
        if key is not None and key not in list(self._blocked.values()):
            self.throttle.resolve(key)

    def _log(self, file: TrackedFile, error: Exception, pause: float) -> None:
        sent = next((sent for sent in file.progress.in_flight if not sent.acknowledged), None)
        where = f"{file.place.seen_at}, generation {file.progress.position.generation}, "
        where += (
            f"bytes {sent.range.start} to {sent.range.end}"
            if sent
            else f"from byte {file.progress.position.offset}"
        )
        if isinstance(error, RequestUnauthorized):
            self.throttle.warn(
                # another reason is another condition, with another next step
                error.condition_key,
                f"{error}. Nothing is dropped. Waiting: {where} and possibly other files; "
                f"retrying every {pause:.0f} s",
                logging.ERROR,
            )
        elif isinstance(error, EventTypeUnavailable):
            if self._blocked.get(file.file_id, str(error)) != str(error):
                self._unblock(file)
            self._blocked[file.file_id] = str(error)
            self.throttle.warn(
                str(error),
                f"{error}. This blocks {where}, and possibly other files with this event type; "
                f"other files continue. Retrying every {pause:.0f} s",
                logging.ERROR,
            )
        elif isinstance(error, RequestRefused):
            self.throttle.warn(
                f"refused {file.file_id}",
                f"{error}. This blocks {where}; other files continue. Compare the limits and "
                f"types of service and tailer; retrying every {pause:.0f} s",
                logging.ERROR,
            )
        elif isinstance(error, OSError):
            is_expected = isinstance(error, RetryLater) and error.is_expected
            level = logging.INFO if is_expected else logging.WARNING
            self.throttle.warn(
                f"read {file.file_id}",
                f"cannot read {where}: {error}; retrying in {pause:.1f} s",
                level,
            )
        else:
            self.throttle.warn(
                f"{type(error).__name__}",
                f"{error}. Waiting: {where} and possibly other files; retrying in {pause:.1f} s",
            )


def retry_delay_s(error: Exception, *, failures: int, max_s: float, rng: random.Random) -> float:
    """Return the delay in seconds before a failed step of a file is repeated.

    The delay grows exponentially with the number of failures. After `RequestRefused`, it is always
    `max_s`. After `EventTypeUnavailable`, it is at most `TOPIC_RETRY_MAX_S`.

    Args:
        error: The error that the step raised.
        failures: Number of consecutive failures, including this one; at least 1.
        max_s: Maximum delay in seconds. Only the `Retry-After` header of a service can exceed it.
        rng: Source of the random jitter.
    """
    if isinstance(error, RequestRefused):
        return max_s  # asking again soon would not help
    if isinstance(error, EventTypeUnavailable):
        return backoff_delay_s(failures, min(max_s, TOPIC_RETRY_MAX_S), rng)
    pause = backoff_delay_s(failures, max_s, rng)
    return max(pause, error.retry_after_s) if isinstance(error, NoServiceAvailable) else pause
