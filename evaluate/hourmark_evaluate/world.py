"""Where trials are played: the clusters, what may be done to them, and what the user wished for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from hourmark.clock import Clock
from hourmark_evaluate.brokers import Brokers
from hourmark_evaluate.hands import Hands
from hourmark_evaluate.jmx import Jmx
from hourmark_evaluate.records import Form

LOOK_S: Final = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for. `seconds`: the length of the load; other times follow from it."""

    seconds: float = 60.0
    rate: int = 10_000  # events a second at the day's peak
    event_bytes: int = 250
    partitions: int = 3
    burst: bool = True  # for a tenth of the time as much as one client can send
    prefix: str = "hourmark-evaluate."
    mirrored_prefix: str = "events.evaluate-"  # what the mirror copies

    @property
    def steady_rate(self) -> float:
        """Under faults: enough to see each gap, and little enough that a small machine has room for
        the servers' return.
        """
        return self.rate / 4

    @property
    def away_s(self) -> float:
        """How long a server stays away."""
        return max(2.0, self.seconds / 10)

    @property
    def delivery_s(self) -> float:
        """How long a record is tried: longer than any outage, with the time in which servers come
        back.
        """
        return max(180.0, 2 * self.away_s)

    @property
    def recovery_s(self) -> float:
        """Until who has not gone on is said to be stuck."""
        return max(120.0, 4 * self.seconds)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`run` names topics and groups of this run alone. `jmx` and `broker_cpu` None: not there to be
    asked.
    """

    edge: Brokers
    central: Brokers | None
    alias: str  # the mirror's name of the edge
    hands: Hands
    wish: Wish
    form: Form
    run: str
    clock: Clock
    say: Callable[[str], None]
    jmx: Jmx | None = None
    broker_cpu: Callable[[], dict[int, float]] | None = None

    def wait_while_it_moves(
        self,
        condition: Callable[[], bool],
        count: Callable[[], int],
        still_s: float,
        each: Callable[[], None] = lambda: None,
    ) -> bool:
        """As `wait`, for as long as `count` goes on growing: what is slow has time, what stands
        still so long has none.
        """
        before = -1
        while count() > before:
            before = count()
            if self.wait(condition, still_s, each):
                return True
        return False

    def wait(
        self, condition: Callable[[], bool], seconds: float, each: Callable[[], None] = lambda: None
    ) -> bool:
        """Whether the condition came to hold in so many seconds; `each` is called between looks."""
        until_s = self.clock.monotonic_s() + seconds
        while not condition():
            if self.clock.monotonic_s() >= until_s:
                return False
            each()
            self.clock.sleep(LOOK_S)
        return True
