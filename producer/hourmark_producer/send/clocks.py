"""Clocks of the delivery services: which readings are trusted, and the highest trusted reading.

Ranges are stamped with the clock of a service and never with the clock of this host. A service
whose clock is wrong by hours would make valid lines appear to lie in the future. Healthy clocks are
at most `CLOCKS_APART_MS_MAX` apart, so a service is trusted if at least half of all clocks,
including this host's, agree with it. If none reaches half, the services with the most agreement are
trusted; a single service is always trusted.

`ClockFloor` keeps the highest trusted reading across restarts, in the file `clock` next to the
checkpoint, as decimal digits. It is written before each host report, because ranges sent after a
claim must not have an earlier time than the claim. The file is not synced: it survives a kill of
the process, and after a power failure the clocks of the services are past it anyway.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.redaction import redact_setting
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX

# bounds how long the last reading of a service that is gone can contradict another service's clock
READING_MAX_AGE_S: Final = 600.0


class ClockReading(NamedTuple):
    """Time and parsing rules of a delivery service, from one of its responses.

    Attributes:
        clock_ms: Time of the service's clock in Unix milliseconds.
        rules: Revision of the parsing rules that the service uses; None if it has none.
        at_s: When the response was received, in seconds of this host's monotonic clock.
    """

    clock_ms: int
    rules: str | None
    at_s: float

    @property
    def offset_ms(self) -> float:
        """Return by how many milliseconds the service's clock is ahead of the monotonic clock.

        The monotonic clock is that of this host. The value is constant unless the service's clock
        is set or this machine is suspended.
        """
        return self.clock_ms - 1000 * self.at_s


class ServiceClocks:
    """Compares the clocks of delivery services, and decides which of them are trusted.

    A clock is trusted if at least half of all clocks, including the clock of this host, agree with
    it. If there is no such clock, those with the most agreement are trusted. Not thread-safe: the
    caller must hold a lock.

    Args:
        clock: Clock of this host, which is compared with the clocks of the services.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[str, ClockReading] = {}

    def record(self, service: str, reading: ClockReading) -> None:
        """Record the clock reading in a service's latest response.

        It replaces the previous reading of this service.

        Args:
            service: Name of the service.
            reading: Time in the response, and the time at which it was received.
        """
        self._readings[service] = reading

    def clocks_ms(self) -> dict[str, int]:
        """Return the time in the latest response of each delivery service.

        The times are not adjusted for the age of the responses.

        Returns:
            Maps each service name to its time in Unix milliseconds. Services that have not
            responded yet are omitted.
        """
        return {service: reading.clock_ms for service, reading in self._readings.items()}

    def recent_readings(self, services: Collection[str]) -> dict[str, ClockReading]:
        """Return the clock readings of given services that are at most `READING_MAX_AGE_S` old.

        Args:
            services: Names of the services.

        Returns:
            Maps each service name to its reading. Services without a recent reading are omitted.
        """
        since_s = self._clock.monotonic_s() - READING_MAX_AGE_S
        return {
            name: reading
            for name, reading in self._readings.items()
            if name in services and reading.at_s >= since_s
        }

    def lacks_agreement(self, services: Collection[str]) -> bool:
        """Return whether no two clocks agree, so that the clocks of more services must be read.

        The clocks of the given services and of this host are compared.

        Args:
            services: Names of the services to compare.

        Returns:
            True if no two clocks agree. False if two clocks agree, or if there are no recent
            readings.
        """
        return max(self._agreement_counts(self.recent_readings(services)).values(), default=0) == 1

    def trusted_readings(self, services: Collection[str]) -> Mapping[str, ClockReading]:
        """Return the recent readings of the given services whose clocks are trusted.

        Args:
            services: Names of the services.

        Returns:
            Maps each service name to its reading; empty if no service has responded recently.
        """
        heard = self.recent_readings(services)
        agreeing = self._agreement_counts(heard)
        half = (len(agreeing) + 2) // 2  # of all services that were heard, and this host
        least = min(half, max(agreeing.values(), default=0))
        return {name: reading for name, reading in heard.items() if agreeing[name] >= least}

    def _agreement_counts(self, heard: Mapping[str, ClockReading]) -> dict[str, int]:
        # how many clocks agree with each service's, including itself and this host's
        ahead_ms = {name: reading.offset_ms for name, reading in heard.items()}
        all_ms = sorted(
            [self._clock.now_ms() - 1000 * self._clock.monotonic_s(), *ahead_ms.values()]
        )
        return {name: _count_agreeing(ms, all_ms) for name, ms in ahead_ms.items()}

    def errors(self, services: Collection[str]) -> dict[str, str]:
        """Return the reasons why the clocks of given services are not trusted.

        Args:
            services: Names of the services.

        Returns:
            Maps the name of each such service to a message for operators; empty if all clocks are
            trusted.
        """
        believed, troubles = self.trusted_readings(services), {}
        for service, reading in self.recent_readings(services).items():
            if service not in believed:
                other, others = next(iter(believed.items()))
                ahead_s = (reading.offset_ms - others.offset_ms) / 1000
                apart = (
                    f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of "
                    f"{redact_setting(other)}"
                )
                troubles[service] = f"its clock is {apart}, and more clocks agree with the latter"
        return troubles


def _count_agreeing(offset_ms: float, all_offsets_ms: Sequence[float]) -> int:
    least, most = offset_ms - CLOCKS_APART_MS_MAX, offset_ms + CLOCKS_APART_MS_MAX
    return bisect_right(all_offsets_ms, most) - bisect_left(all_offsets_ms, least)


FILE: Final = "clock"
_DIGITS: Final = 19


class ClockFloor:
    """The latest time that a trusted service clock has reported, kept across restarts.

    Each byte range carries the time of a service clock. This lower bound prevents these times from
    going back when the clock of a service is corrected. It does not apply to a clock that is behind
    by more than `CLOCKS_APART_MS_MAX`, because then either the bound or the clock is wrong. Not
    thread-safe: the caller must hold a lock.

    Args:
        path: File that stores the value; None to keep it in memory only.

    Attributes:
        ms: The latest trusted time in Unix milliseconds; 0 before the first one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._saved_ms = self.ms = _read(path) if path is not None else 0

    def observe(self, clock_ms: int) -> None:
        """Raise `ms` to the time that a trusted clock has reported. An earlier time has no effect.

        Args:
            clock_ms: The reported time in Unix milliseconds.
        """
        self.ms = max(self.ms, clock_ms)

    def save(self) -> None:
        """Write the value to the file if it has increased.

        Call this method before you send a host report. Ranges that are sent after a restart then
        carry no earlier time than the report. If the file cannot be written, the error is ignored.
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
