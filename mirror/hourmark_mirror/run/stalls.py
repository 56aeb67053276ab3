"""A mirror that runs and copies nothing: no process ends and no task fails (strimzi#3375).

Sees a MirrorMaker 2 that runs and does nothing at all, as one that is paused or that waits for
itself.

Where there are several workers nobody else notices: the group goes on without it, its tasks with
another, and nothing fails. Its REST listens from when it has found both clusters, and answers
whatever becomes of them.

Sees a mirror that runs and copies nothing: no process ends, no task fails, nothing complains
(strimzi#3375).

Positions are those of all workers of the mirror, and nothing tells whose a partition is. So only a
mirror that stands still as a whole is a failure of this worker: one partition that stands still
while others move may be another's, and a new start of each worker would end what they copy well.
That one is an alarm of the watch.
"""

from __future__ import annotations

import http.client
import logging
from collections.abc import Mapping
from typing import Final

from hourmark.clock import Clock
from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import CONNECTOR, Behind, ahead, reached
from hourmark_mirror.run.task_status import TaskFailure
from hourmark_mirror.settings.mirror_sites import MirrorSites

LOOK_S: Final = 10.0
ANSWER_S: Final = 5.0  # for one answer
# without one: a stop-the-world pause of a small heap, or a machine far too busy, is over by then
SILENT_S: Final = 60.0
PAUSED_BLIND_S: Final = (
    30.0  # between looks: this process stood still itself, as on a host that was paused
)


class ResponseDetector:
    """A `supervisor.Watch`: no answer for SILENT_S is a failure, once there was one in this run."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host, self._port, self._clock = host, port, clock
        self.start_run()

    def start_run(self) -> None:
        """A new run has not answered yet."""
        self._looked_s = self._clock.monotonic_s()
        self._answered_s: float | None = None

    def failures(self) -> list[TaskFailure]:
        """Asks every LOOK_S."""
        now_s = self._clock.monotonic_s()
        if (since_s := now_s - self._looked_s) >= LOOK_S:
            if self._answers():
                self._answered_s = now_s
            elif self._answered_s is not None and since_s >= PAUSED_BLIND_S:
                self._answered_s = now_s  # nobody looked: from now on
            self._looked_s = self._clock.monotonic_s()
        if self._answered_s is None or now_s - self._answered_s < SILENT_S:
            return []
        return [
            TaskFailure(
                CONNECTOR,
                f"its worker has not answered at {self._host}:{self._port} for {SILENT_S:g} s",
            )
        ]

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True


_LOG = logging.getLogger(__name__)


BLIND_S: Final = (
    60.0  # between looks: in so long nobody knows what stood still, as a cluster was away
)
STALL_S: Final = 300.0  # longer than a slow start, a rebalance and an aborted transaction together


class StallTracker:
    """How long each partition that is behind has stood still, and all of them.

    Pure: fed with what was read.

    `stall_s`: so long a partition stands still before it is named. `last_progress_s`: when any position was
    seen to have moved last; the first look.
    """

    def __init__(self, stall_s: float = STALL_S) -> None:
        self._stall_s = stall_s
        self._still: dict[Partition, tuple[int | None, float]] = {}
        self._positions: Mapping[Partition, int] | None = None
        self._looked_s = self.last_progress_s = 0.0

    def stalled_partitions(
        self,
        now_s: float,
        ends: Mapping[Partition, int],
        starts: Mapping[Partition, int],
        positions: Mapping[Partition, int],
    ) -> list[Behind]:
        """Partitions behind their end whose position has not moved for so long, as far as somebody
        looked.
        """
        if positions != self._positions:
            self._positions, self.last_progress_s = dict(positions), now_s
        behind = reached(ends, starts, positions)
        before, self._still = self._still if now_s - self._looked_s < BLIND_S else {}, {}
        self._looked_s = now_s
        for entry in behind:
            position, since_s = before.get(entry.partition, (None, now_s))
            self._still[entry.partition] = (
                entry.position,
                since_s if position == entry.position else now_s,
            )
        return [
            entry for entry in behind if now_s - self._still[entry.partition][1] >= self._stall_s
        ]


class StallDetector:
    """A `supervisor.Watch`: a mirror that is behind and of which no partition moves is a
    failure.
    """

    def __init__(self, sites: MirrorSites, clock: Clock) -> None:
        self._clock = clock
        self._sites = sites
        self._positions = sites.positions()
        self._progress = StallTracker()
        self._ahead: set[Partition] = set()

    def start_run(self) -> None:
        """The patience starts anew with each run."""
        self._progress, self._looked_s = StallTracker(), self._clock.monotonic_s()
        self._found: list[Behind] = []

    def failures(self) -> list[TaskFailure]:
        """Asks the clusters every LOOK_S."""
        if self._clock.monotonic_s() - self._looked_s >= LOOK_S:
            self._looked_s, self._found = self._clock.monotonic_s(), []
            self._poll()
        return [
            TaskFailure(CONNECTOR, f"{entry}, and has not moved for {STALL_S:g} s")
            for entry in self._found
        ]

    def _poll(self) -> None:
        positions = self._positions.refresh()
        partitions = self._sites.partitions()
        ends, starts = self._sites.edge.ends(partitions), self._sites.edge.starts(partitions)
        now_s = self._clock.monotonic_s()
        stalled = self._progress.stalled_partitions(now_s, ends, starts, positions)
        self._found = stalled if now_s - self._progress.last_progress_s >= STALL_S else []
        before, self._ahead = self._ahead, {*ahead(ends, positions)}
        for partition in sorted(self._ahead - before):  # once; a new start would not help
            _LOG.error(
                "%s: the mirror stands at %d, past the edge's end %d: stale, or "
                "recreated; docs/runbooks/mirror-stale-offsets.md",
                partition,
                positions[partition],
                ends[partition],
            )
