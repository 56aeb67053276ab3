"""Which connections a client keeps open without need: those overdue, and the one that makes room for another. Pure.

A connection is in one phase at a time. In each but `ANSWER` the service waits for the client, which has until a deadline:

    HANDSHAKE for its part of TLS
    HEAD      for the rest of a request's headers, or for the first byte on a new connection
    BODY      for the rest of a request's body
    IDLE      for the next request
    READ      until it reads what was answered
    LINGER    until it has seen an answer that came before its body was whole, and ends the connection itself

So thousands of half-open connections take no place from a client that speaks: where all places are taken, the connection whose
deadline is the nearest goes. A flood can push out an idle client, which connects anew, and never a request that came whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

OTHER_FILES: Final = 256  # open beside connections: Kafka's, and the service's own

C = TypeVar("C")


class Phase(enum.Enum):
    """What a connection is at."""

    HANDSHAKE = "handshake"
    HEAD = "head"
    BODY = "body"
    IDLE = "idle"
    READ = "read"
    LINGER = "linger"
    ANSWER = "answer"


class Connections(Generic[C]):
    """Those that are open. `limits_s`: how long a client may take for each phase; times are of one monotonic clock."""

    def __init__(self, connections_max: int, limits_s: Mapping[Phase, float]) -> None:
        self._connections_max = connections_max
        self._limits_s = limits_s
        self._phases: dict[C, Phase] = {}
        self._since: dict[Phase, dict[C, float]] = {phase: {} for phase in Phase}  # in order of time: the first is the oldest

    def __len__(self) -> int:
        return len(self._phases)

    def enter(self, connection: C, phase: Phase, now_s: float) -> None:
        """From now on it is in this phase; if it was already, nothing changes."""
        before = self._phases.get(connection)
        if before is phase:
            return
        if before is not None:
            del self._since[before][connection]
        self._phases[connection] = phase
        self._since[phase][connection] = now_s

    def leave(self, connection: C) -> None:
        """It is closed."""
        phase = self._phases.pop(connection, None)
        if phase is not None:
            del self._since[phase][connection]

    def phase(self, connection: C) -> Phase | None:
        """Where it is; None once it left."""
        return self._phases.get(connection)

    def full(self) -> bool:
        """Whether there is no place for one more."""
        return len(self._phases) >= self._connections_max

    def nearest(self) -> C | None:
        """The one whose deadline is the nearest. None where the service owes all of them an answer."""
        oldest = [
            (since_s + self._limits_s[phase], connection)
            for phase, connections in self._since.items()
            if phase in self._limits_s
            for connection, since_s in _first(connections)
        ]
        return min(oldest, key=lambda pair: pair[0])[1] if oldest else None

    def overdue(self, now_s: float) -> list[tuple[C, Phase]]:
        """Those whose deadline is past, and what they were waited for."""
        late: list[tuple[C, Phase]] = []
        for phase, limit_s in self._limits_s.items():
            for connection, since_s in self._since[phase].items():
                if since_s + limit_s > now_s:
                    break
                late.append((connection, phase))
        return late


def _first(connections: dict[C, float]) -> Iterable[tuple[C, float]]:
    for pair in connections.items():
        return (pair,)
    return ()
