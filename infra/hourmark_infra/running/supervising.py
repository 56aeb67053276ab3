"""Components that run together: one that ends by itself is started again, after a pause that grows
while it keeps ending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from hourmark.clock import Clock

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
STEADY_S: Final = 60.0  # who ran so long ended for a new reason: the pause is short again
LOOK_S: Final = 0.25


class Kept(Protocol):
    """What is kept running: `Components`, or a `Stack`. One that runs already is not started
    again.
    """

    def start(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...
    def runs(self, name: str) -> bool: ...
    def log(self, name: str) -> Path: ...


@dataclass
class _Standing:
    """Of one component."""

    began_s: float
    pause_s: float = PAUSE_S
    again_s: float | None = None  # when it is started again; None: it runs


@dataclass
class Supervisor:
    """Keeps components running. `look` is called again and again by whoever waits for something."""

    components: Kept
    clock: Clock
    say: Callable[[str], None]
    _of: dict[str, _Standing] = field(default_factory=dict)

    def start(self, names: Sequence[str]) -> None:
        """Start them; they are not ready yet."""
        for name in names:
            self.components.start(name)
            self._of[name] = _Standing(self.clock.monotonic_s())

    def stop(self, name: str) -> None:
        """End one for good, as an operator would."""
        self._of.pop(name, None)
        self.components.stop(name)

    def look(self) -> None:
        """Start again whoever has ended and has waited for long enough."""
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
