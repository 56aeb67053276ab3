"""The clocks of the delivery services, which of them are believed, and the highest that was
believed.

What the clock of each delivery service read last, and which of them are believed.

A range is given a service's clock, never this host's, and a service's may be wrong by hours: then
good lines would seem to lie in the future. Services whose clocks are further apart than healthy
ones cannot all be right, so those are believed that half of the clocks agree with, this host's
among them. Where none is, those are that most agree with: a single service always.

The highest clock of a service that was believed: what may be claimed by it is over for all ranges
that follow a restart, too.

It is in the file `clock` beside the checkpoint, in decimal digits, put there before each report and
not synced: it outlives a kill; and after a power cut every clock that is near has gone on beyond
it.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.redaction import shown
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX

# nobody waits longer for a service that is gone, though another's clock is contradicted by its last
READING_MAX_AGE_S: Final = 600.0


class ClockReading(NamedTuple):
    """What an answer said. `at_s`: monotonic, when it was received."""

    clock_ms: int
    rules: str | None
    at_s: float

    @property
    def offset_ms(self) -> float:
        """Of the monotonic clock here: the same while nobody sets that service's clock, and this
        machine is not paused.
        """
        return self.clock_ms - 1000 * self.at_s


class ServiceClocks:
    """The latest reading of each service, by its name. Its caller sees to threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[str, ClockReading] = {}

    def record(self, service: str, reading: ClockReading) -> None:
        """What it answered now."""
        self._readings[service] = reading

    def clocks_ms(self) -> dict[str, int]:
        """What each one's clock read when it answered last."""
        return {service: reading.clock_ms for service, reading in self._readings.items()}

    def recent_readings(self, services: Collection[str]) -> dict[str, ClockReading]:
        """Those of `services` that have answered within `HEARD_S`: what is older has no say any
        longer.
        """
        since_s = self._clock.monotonic_s() - READING_MAX_AGE_S
        return {
            name: reading
            for name, reading in self._readings.items()
            if name in services and reading.at_s >= since_s
        }

    def lacks_agreement(self, services: Collection[str]) -> bool:
        """Whether no two clocks agree, so that others are worth asking."""
        return max(self._agreement_counts(self.recent_readings(services)).values(), default=0) == 1

    def trusted_readings(self, services: Collection[str]) -> Mapping[str, ClockReading]:
        """The latest readings of those of `services` that are believed."""
        heard = self.recent_readings(services)
        agreeing = self._agreement_counts(heard)
        half = (len(agreeing) + 2) // 2  # of all services that were heard, and this host
        least = min(half, max(agreeing.values(), default=0))
        return {name: reading for name, reading in heard.items() if agreeing[name] >= least}

    def _agreement_counts(self, heard: Mapping[str, ClockReading]) -> dict[str, int]:
        """How many clocks agree with each service's, itself among them."""
        ahead_ms = {name: reading.offset_ms for name, reading in heard.items()}
        all_ms = sorted(
            [self._clock.now_ms() - 1000 * self._clock.monotonic_s(), *ahead_ms.values()]
        )
        return {name: _count_agreeing(ms, all_ms) for name, ms in ahead_ms.items()}

    def errors(self, services: Collection[str]) -> dict[str, str]:
        """What is wrong with the clock of each that is not believed."""
        believed, troubles = self.trusted_readings(services), {}
        for service, reading in self.recent_readings(services).items():
            if service not in believed:
                other, others = next(iter(believed.items()))
                ahead_s = (reading.offset_ms - others.offset_ms) / 1000
                apart = (
                    f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of "
                    f"{shown(other)}"
                )
                troubles[service] = f"its clock is {apart}, which more clocks agree with"
        return troubles


def _count_agreeing(ahead_ms: float, of_all_ms: Sequence[float]) -> int:
    """How many of these, which ascend, agree with it."""
    least, most = ahead_ms - CLOCKS_APART_MS_MAX, ahead_ms + CLOCKS_APART_MS_MAX
    return bisect_right(of_all_ms, most) - bisect_left(of_all_ms, least)


FILE: Final = "clock"
_DIGITS: Final = 19


class ClockFloor:
    """Of one tailer; its caller sees to threads. `path`: None: nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._saved_ms = self.ms = _read(path) if path is not None else 0

    def observe(self, clock_ms: int) -> None:
        """A service's clock."""
        self.ms = max(self.ms, clock_ms)

    def save(self) -> None:
        """Before something is claimed by it.

        What cannot be written is not: then a restart may forget it.
        """
        if self._path is None or self.ms == self._saved_ms:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, b"%0*d" % (_DIGITS, self.ms), 0)
                self._saved_ms = self.ms
            finally:
                os.close(descriptor)


def _read(path: Path) -> int:
    with contextlib.suppress(OSError):
        text = path.read_bytes()
        return int(text) if len(text) == _DIGITS and text.isdigit() else 0
    return 0
