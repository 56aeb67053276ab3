"""Supervision of components: one that exits is restarted after a pause that grows with each failure."""

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
    """Interface to a set of named processes that can be supervised.

    `start` does nothing for a process that is already running.
    """

    def start(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...
    def is_running(self, name: str) -> bool: ...
    def log(self, name: str) -> Path: ...


@dataclass
class _RestartSchedule:
    """The restart schedule of one component.

    Attributes:
        started_s: Monotonic time of the last start in seconds.
        pause_s: Pause before the last restart in seconds.
        restart_s: Monotonic time of the next start in seconds, or None while the component runs.
    """

    started_s: float
    pause_s: float = PAUSE_S
    restart_s: float | None = None


@dataclass
class Supervisor:
    """A supervisor that restarts components that exit.

    The caller must call `poll` regularly. Pauses between restarts grow up to 60 seconds.

    Attributes:
        components: Processes to supervise.
        clock: Clock used for the pauses.
        report: Function that receives a message when a component has exited.
    """

    components: ProcessGroup
    clock: Clock
    report: Callable[[str], None]
    _schedules: dict[str, _RestartSchedule] = field(default_factory=dict)

    def start(self, names: Sequence[str]) -> None:
        """Start the components `names` and supervise them, without waiting until they are ready."""
        for name in names:
            self.components.start(name)
            self._schedules[name] = _RestartSchedule(self.clock.monotonic_s())

    def stop(self, name: str) -> None:
        """Stop the component `name` and end its supervision."""
        self._schedules.pop(name, None)
        self.components.stop(name)

    def poll(self) -> None:
        """Check all supervised components and restart those whose restart pause has elapsed."""
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
