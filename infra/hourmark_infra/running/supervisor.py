"""Supervision of components: one that exits is restarted after a pause that grows with each failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from hourmark.clock import Clock

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
STEADY_S: Final = 60.0  # who ran so long ended for a new reason: the pause is short again
POLL_S: Final = 0.25


class ProcessGroup(Protocol):
    """An interface to named processes that can be supervised.

    `start` does nothing for a process that is already running.
    """

    def start(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...
    def runs(self, name: str) -> bool: ...
    def log(self, name: str) -> Path: ...


@dataclass
class _RestartSchedule:
    """The restart schedule of one component."""

    began_s: float
    pause_s: float = PAUSE_S
    again_s: float | None = None  # when it is started again; None: it runs


@dataclass
class Supervisor:
    """A supervisor that restarts components that exit.

    The caller must call `look` regularly. Pauses between restarts grow up to 60 seconds.

    Attributes:
        components: Processes to supervise.
        clock: Clock used for the pauses.
        say: Function that receives a message when a component has exited.
    """

    components: ProcessGroup
    clock: Clock
    say: Callable[[str], None]
    _of: dict[str, _RestartSchedule] = field(default_factory=dict)

    def start(self, names: Sequence[str]) -> None:
        """Start the components `names` and supervise them, without waiting until they are ready."""
        for name in names:
            self.components.start(name)
            self._of[name] = _RestartSchedule(self.clock.monotonic_s())

    def stop(self, name: str) -> None:
        """Stop the component `name` and end its supervision."""
        self._of.pop(name, None)
        self.components.stop(name)

    def look(self) -> None:
        """Check all supervised components and restart those whose restart pause has elapsed."""
        now_s = self.clock.monotonic_s()
        for name, of in self._of.items():
            if of.again_s is None and not self.components.runs(name):
                of.pause_s = (
                    PAUSE_S if now_s - of.began_s >= STEADY_S else min(of.pause_s * 2, PAUSE_MAX_S)
                )
                of.again_s = now_s + of.pause_s
                self.say(
                    f"the {name} has ended; it is started again in {of.pause_s:.0f} s. "
                    f"Its log: {self.components.log(name)}"
                )
            elif of.again_s is not None and now_s >= of.again_s:
                self.components.start(name)
                of.began_s, of.again_s = now_s, None
