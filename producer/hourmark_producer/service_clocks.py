"""What the clock of each delivery service read last, and which of them are believed.

A range is given a service's clock, never this host's, and a service's may be wrong by hours: then good lines would seem to lie
in the future. Services whose clocks are further apart than healthy ones cannot all be right, so those are believed that most
clocks agree with, this host's among them. Where that decides nothing, as with a single service, all are believed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.hidden import shown
from hourmark.host_reports import CLOCKS_APART_MS_MAX


class Reading(NamedTuple):
    """What an answer said. `at_s`: monotonic, when it was received."""

    clock_ms: int
    rules: str | None
    at_s: float

    @property
    def ahead_ms(self) -> float:
        """Of the monotonic clock here: the same at any time, while nobody sets that service's clock."""
        return self.clock_ms - 1000 * self.at_s


class ServiceClocks:
    """The latest reading of each service, by its name. Its caller sees to threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[str, Reading] = {}

    def note(self, service: str, reading: Reading) -> None:
        """What it answered now."""
        self._readings[service] = reading

    def clocks_ms(self) -> dict[str, int]:
        """What each one's clock read when it answered last."""
        return {service: reading.clock_ms for service, reading in self._readings.items()}

    def heard(self, services: Collection[str]) -> dict[str, Reading]:
        """Those that have answered, of these."""
        return {service: reading for service, reading in self._readings.items() if service in services}

    def is_alone(self, service: str) -> bool:
        """Whether its clock and this host's are apart, so that others are worth asking."""
        return abs(self._readings[service].ahead_ms - self._ahead_here_ms()) > CLOCKS_APART_MS_MAX

    def believed(self, services: Collection[str]) -> Mapping[str, Reading]:
        """The latest readings of those of `services` that are believed."""
        heard = self.heard(services)
        ahead_ms = sorted([self._ahead_here_ms(), *(reading.ahead_ms for reading in heard.values())])
        agreeing = {service: _near(reading.ahead_ms, ahead_ms) for service, reading in heard.items()}
        most = max(agreeing.values(), default=0)
        return {service: reading for service, reading in heard.items() if agreeing[service] == most}

    def troubles(self, services: Collection[str]) -> dict[str, str]:
        """What is wrong with the clock of each that is not believed."""
        believed = self.believed(services)
        troubles = {}
        for service, reading in self.heard(services).items():
            if service not in believed:
                other, others = next(iter(believed.items()))
                ahead_s = (reading.ahead_ms - others.ahead_ms) / 1000
                where = "ahead of" if ahead_s > 0 else "behind"
                troubles[service] = f"its clock is {abs(ahead_s):.0f} s {where} that of {shown(other)}, which others agree with"
        return troubles

    def _ahead_here_ms(self) -> float:
        return self._clock.now_ms() - 1000 * self._clock.monotonic_s()


def _near(ahead_ms: float, of_all_ms: Sequence[float]) -> int:
    """How many of these, which ascend, agree with it."""
    least, most = ahead_ms - CLOCKS_APART_MS_MAX, ahead_ms + CLOCKS_APART_MS_MAX
    return bisect_right(of_all_ms, most) - bisect_left(of_all_ms, least)
