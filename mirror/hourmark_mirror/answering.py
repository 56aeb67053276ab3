"""Sees a MirrorMaker 2 that runs and does nothing at all, as one that is paused or that waits for itself.

Where there are several workers nobody else notices: the group goes on without it, its tasks with another, and nothing fails. Its
REST listens from when it has found both clusters, and answers whatever becomes of them.
"""

from __future__ import annotations

import http.client
from typing import Final

from hourmark.clock import Clock
from hourmark.mirror_positions import CONNECTOR
from hourmark_mirror.task_status import Failure

LOOK_S: Final = 10.0
ANSWER_S: Final = 5.0  # for one answer
SILENT_S: Final = 60.0  # without one: a stop-the-world pause of a small heap, or a machine far too busy, is over by then
BLIND_S: Final = 30.0  # between looks: this process stood still itself, as on a host that was paused


class AnswerWatch:
    """A `supervisor.Watch`: no answer for SILENT_S is a failure, once there was one in this run."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host, self._port, self._clock = host, port, clock
        self.begin()

    def begin(self) -> None:
        """A new run has not answered yet."""
        self._looked_s = self._clock.monotonic_s()
        self._answered_s: float | None = None

    def failed(self) -> list[Failure]:
        """Asks every LOOK_S."""
        now_s = self._clock.monotonic_s()
        if (since_s := now_s - self._looked_s) >= LOOK_S:
            if self._answers():
                self._answered_s = now_s
            elif self._answered_s is not None and since_s >= BLIND_S:
                self._answered_s = now_s  # nobody looked: from now on
            self._looked_s = self._clock.monotonic_s()
        if self._answered_s is None or now_s - self._answered_s < SILENT_S:
            return []
        return [Failure(CONNECTOR, f"its worker has not answered at {self._host}:{self._port} for {SILENT_S:g} s")]

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True
