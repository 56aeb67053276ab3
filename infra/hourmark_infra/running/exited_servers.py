"""Detects servers of the local stack that exit while `hourmark run` uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from hourmark.clock import Clock

_CHECK_S: Final = 5.0  # each check reads the state file of the stack for each server


class ServerGroup(Protocol):
    """Interface for checking by name whether a server is running. `LocalStack` implements it."""

    def is_running(self, name: str) -> bool: ...


class ExitedServers:
    """A monitor that detects servers that have exited. Not thread-safe.

    Args:
        servers: Object that reports whether a server is running.
        names: Names of the servers to monitor. They must be running.
        clock: Clock that measures the time between two checks.
    """

    def __init__(self, servers: ServerGroup, names: Sequence[str], clock: Clock) -> None:
        self._servers, self._clock = servers, clock
        self._running = dict.fromkeys(names, True)
        self._checked_s = clock.monotonic_s()

    def find_new(self) -> list[str]:
        """Return the names of the servers that have exited since the last call.

        Each exit is returned once. A server that has been restarted is monitored again.

        Returns:
            Names in the order in which they were passed to the constructor. Empty if the last check
            was less than five seconds ago; the servers are then not checked.
        """
        if self._clock.monotonic_s() - self._checked_s < _CHECK_S:
            return []
        self._checked_s = self._clock.monotonic_s()
        before = self._running
        self._running = {name: self._servers.is_running(name) for name in before}
        return [name for name, runs in self._running.items() if before[name] and not runs]
