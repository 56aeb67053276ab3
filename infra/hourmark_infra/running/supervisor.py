"""Restarts components that have exited, after a pause that grows with each failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from hourmark.clock import Clock

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
STEADY_S: Final = 60.0  # a component that ran this long gets the shortest pause again
POLL_S: Final = 0.25


class ProcessGroup(Protocol):
    """Interface for starting, stopping and checking the processes of a `Supervisor` by name.

    `start` must do nothing if the process is already running. `log` must return the path of the
    process's log file. `Components` implements this protocol.
    """

    def start(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...
    def is_running(self, name: str) -> bool: ...
    def log(self, name: str) -> Path: ...


@dataclass
class _RestartSchedule:
    started_s: float
    pause_s: float = PAUSE_S
    restart_s: float | None = None


@dataclass
class Supervisor:
    """A supervisor that restarts components if they exit unexpectedly.

    Call `poll` regularly. The pause before a restart doubles with each failure, from 2 up to 60
    seconds. It is 1 second if the component ran for at least 60 seconds. Not thread-safe.

    Attributes:
        components: The processes to supervise.
        clock: Clock used for the pauses.
        report: Function that receives a message when a component has exited.
    """

    components: ProcessGroup
    clock: Clock
    report: Callable[[str], None]
    _schedules: dict[str, _RestartSchedule] = field(default_factory=dict)

    def start(self, names: Sequence[str]) -> None:
        """Start components and supervise them.

        The call does not wait until they are ready.

        Args:
            names: Names of the components.
        """
        for name in names:
            self.components.start(name)
            self._schedules[name] = _RestartSchedule(self.clock.monotonic_s())

    def stop(self, name: str) -> None:
        """Stop a component and end its supervision, so that `poll` does not restart it.

        Args:
            name: Name of the component.
        """
        self._schedules.pop(name, None)
        self.components.stop(name)

    def poll(self) -> None:
        """Check all supervised components once, and restart those that have exited.

        The first call after an exit reports it. A later call restarts the component, as soon as
        the pause described for this class has elapsed. The call does not block.
        """
        now_s = self.clock.monotonic_s()
        for name, schedule in self._schedules.items():
            if schedule.restart_s is None and not self.components.is_running(name):
                steady = now_s - schedule.started_s >= STEADY_S
                schedule.pause_s = PAUSE_S if steady else min(schedule.pause_s * 2, PAUSE_MAX_S)
                schedule.restart_s = now_s + schedule.pause_s
                self.report(
                    f"{name} exited; it is started again in {schedule.pause_s:.0f} s. "
                    f"Log: {self.components.log(name)}"
                )
            elif schedule.restart_s is not None and now_s >= schedule.restart_s:
                self.components.start(name)
                schedule.started_s, schedule.restart_s = now_s, None
