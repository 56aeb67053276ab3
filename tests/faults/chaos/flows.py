"""What is seen to go on, from outside: clients' acknowledgements, Kafka's offsets, the driver's
metrics, closed buckets.

A flow moves when what is read of it is another than before. Each is read by a thread of its own, so
that a server that stands still hides no other. A fault declares which flows must go on meanwhile;
each must then have moved in every minute.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hourmark.clock import Clock

LOOK_S: Final = 2.0


class Flow(enum.StrEnum):
    """Each by whom it is seen."""

    TAILER_A = "tailer-a"  # ranges that were acknowledged, by the tailer's own count
    TAILER_B = "tailer-b"
    API = "api"  # answers of 200, by the program that posts
    MIRROR = "mirror"  # ends of the central cluster's topics, by the brokers
    STAGING = "staging"  # events committed, by the driver's metrics
    CLOSING = "closing"  # closed buckets, by the NameNode's listings


ALL: Final = frozenset(Flow)
# A minute; buckets have one of their own besides.
WINDOW_S: Final[Mapping[Flow, float]] = {**dict.fromkeys(Flow, 60.0), Flow.CLOSING: 120.0}


@dataclass
class Watch:
    """Reads one flow until it is stopped; `moved` holds when it was seen to move (monotonic
    seconds).
    """

    flow: Flow
    read: Callable[[], Hashable]
    clock: Clock
    moved: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.flow}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that is stuck at a dead server is not waited for."""
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        last: Hashable = None
        while not self._stop.is_set():
            try:
                found = self.read()
            # who is away does not move, whatever its client raises for it
            except Exception:  # noqa: BLE001
                found = last
            if found != last:
                last = found
                self.moved.append(self.clock.monotonic_s())
            self._stop.wait(LOOK_S)


def standing(moved: Sequence[float], begin_s: float, end_s: float, window_s: float) -> list[float]:
    """Begins of the windows from `begin_s` on, until `end_s` is covered, in which nothing moved."""
    starts = [begin_s]
    while starts[-1] + window_s < end_s:
        starts.append(starts[-1] + window_s)
    return [start for start in starts if not any(start <= at < start + window_s for at in moved)]
