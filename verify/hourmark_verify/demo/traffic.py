"""The thread that writes all live logs at their pace."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hourmark.clock import Clock
from hourmark_verify.demo.live_log import LiveLog

_TICK_SECONDS: Final = 0.05


@dataclass
class Traffic:
    """A background thread that writes all live logs at their scheduled pace.

    Attributes:
        logs: logs to write; each is written to its end even if it falls behind schedule.
        span_s: duration of the traffic in seconds.
        clock: source of time.
        failure: exception that ended the thread early, or None.
    """

    logs: Sequence[LiveLog]
    span_s: float
    clock: Clock

    def __post_init__(self) -> None:
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._began_s = 0.0
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Start the thread; the time span begins now."""
        self._began_s = self.clock.monotonic_s()
        self._thread.start()

    def stop(self) -> None:
        """Stop writing and wait until the thread has ended."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def moment(self) -> float:
        """Elapsed fraction of the time span; greater than 1 after its end."""
        return (self.clock.monotonic_s() - self._began_s) / self.span_s

    @property
    def written(self) -> int:
        """Number of lines written so far, over all logs."""
        return sum(log.written for log in self.logs)

    @property
    def done(self) -> bool:
        """Whether the thread has ended. Raises the exception that ended it early, if any."""
        if self.failure is not None:
            raise self.failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and not all(log.done for log in self.logs):
                for log in self.logs:
                    log.write_due(self.moment)
                self._stop.wait(_TICK_SECONDS)
        except BaseException as error:  # noqa: BLE001  # handed to who waits for the thread
            self.failure = error
        finally:
            for log in self.logs:
                with contextlib.suppress(
                    OSError
                ):  # that a full disk refused what is buffered was said above
                    log.close()
