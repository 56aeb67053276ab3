"""Detects a mirror that runs but copies nothing: no process ends and no task fails (strimzi#3375).

`ResponseDetector` finds a MirrorMaker 2 process that hangs, such as one that is paused or
deadlocked. If there are several workers, none of the others reports it: the group continues without
it and moves its tasks. The process listens on its REST port once it has connected to both clusters,
and keeps responding if they become unavailable.

`StallDetector` finds a mirror that is behind while no position advances. Positions do not show
which worker copies a partition, so only a stall of all partitions is a failure of this worker. A
single stalled partition may belong to another worker, and restarting every worker would interrupt
the others; that case is an alarm of the watch.
"""

from __future__ import annotations

import http.client
import logging
from collections.abc import Mapping
from typing import Final

from hourmark.clock import Clock
from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import CONNECTOR, PartitionBehind, partitions_ahead, partitions_behind
from hourmark_mirror.run.task_status import ConnectorTaskFailure
from hourmark_mirror.settings.mirror_sites import MirrorSites

POLL_INTERVAL_S: Final = 10.0
ANSWER_S: Final = 5.0  # timeout of one request
# longer than a stop-the-world pause of a small heap, or an overloaded machine, takes
SILENT_S: Final = 60.0
PAUSED_BLIND_S: Final = (
    30.0  # between polls: this process itself was suspended, as on a paused host
)


class ResponseDetector:
    """Failure detector for a MirrorMaker 2 process that no longer responds on its REST port.

    A failure is reported after 60 seconds without a response. It is not reported before the first
    response of a new process.

    Args:
        host: Host name or address of the REST port.
        port: REST port of the process.
        clock: Source of monotonic time.
    """

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host, self._port, self._clock = host, port, clock
        self.start_run()

    def start_run(self) -> None:
        """Reset the detector for a new run of the process.

        Responses and failures of the previous run are discarded. No failure is reported until the
        new process responds for the first time.
        """
        self._polled_s = self._clock.monotonic_s()
        self._answered_s: float | None = None

    def failures(self) -> list[ConnectorTaskFailure]:
        """Return a failure if the MirrorMaker 2 process has not responded for 60 seconds.

        Sends a request to the REST port at most once every 10 seconds.

        Returns:
            One failure; empty if the process responded within the last 60 seconds, or has not
            responded in this run yet.
        """
        now_s = self._clock.monotonic_s()
        if (since_s := now_s - self._polled_s) >= POLL_INTERVAL_S:
            if self._answers():
                self._answered_s = now_s
            elif self._answered_s is not None and since_s >= PAUSED_BLIND_S:
                self._answered_s = now_s  # no request was sent in between: restart the timeout
            self._polled_s = self._clock.monotonic_s()
        if self._answered_s is None or now_s - self._answered_s < SILENT_S:
            return []
        return [
            ConnectorTaskFailure(
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
    60.0  # between polls: longer gaps do not show what stalled, because a cluster was away
)
STALL_S: Final = 300.0  # longer than a slow start, a rebalance and an aborted transaction together


class StallTracker:
    """Tracks topic-partitions in which the mirror is behind and makes no progress.

    Args:
        stall_s: Seconds without progress after which a partition counts as stalled.

    Attributes:
        last_progress_s: Monotonic time in seconds of the last call in which any position had
            changed.
    """

    def __init__(self, stall_s: float = STALL_S) -> None:
        self._stall_s = stall_s
        self._still: dict[Partition, tuple[int | None, float]] = {}
        self._positions: Mapping[Partition, int] | None = None
        self._polled_s = self.last_progress_s = 0.0

    def stalled_partitions(
        self,
        now_s: float,
        ends: Mapping[Partition, int],
        starts: Mapping[Partition, int],
        positions: Mapping[Partition, int],
    ) -> list[PartitionBehind]:
        """Record the current offsets, and return the topic-partitions that have stalled.

        Call this method at regular intervals. If the previous call was 60 or more seconds ago, the
        result is empty, and the time without progress is measured from this call.

        Args:
            now_s: Current monotonic time in seconds.
            ends: Log end offsets at the edge.
            starts: Log start offsets at the edge.
            positions: Maps each topic-partition to the offset of the next record to copy.

        Returns:
            Topic-partitions that are not fully copied and whose position has not changed for
            `stall_s` seconds; empty if there are none.
        """
        if positions != self._positions:
            self._positions, self.last_progress_s = dict(positions), now_s
        behind = partitions_behind(ends, starts, positions)
        before, self._still = self._still if now_s - self._polled_s < BLIND_S else {}, {}
        self._polled_s = now_s
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
    """Failure detector for a mirror that is behind and makes no progress.

    The detector compares the mirror's positions with the log end offsets of the edge cluster. A
    failure is reported after 5 minutes without progress. Call `start_run` before `failures`.

    Args:
        sites: Clients of both clusters.
        clock: Source of monotonic time.
    """

    def __init__(self, sites: MirrorSites, clock: Clock) -> None:
        self._clock = clock
        self._sites = sites
        self._positions = sites.positions()
        self._progress = StallTracker()
        self._ahead: set[Partition] = set()

    def start_run(self) -> None:
        """Reset the detector for a new run of MirrorMaker 2.

        Failures of the previous run are discarded, and the time without progress starts at zero.
        """
        self._progress, self._polled_s = StallTracker(), self._clock.monotonic_s()
        self._found: list[PartitionBehind] = []

    def failures(self) -> list[ConnectorTaskFailure]:
        """Return a failure for each stalled topic-partition if no position advanced for 5 minutes.

        Reads the clusters at most once every 10 seconds. Calls in between return the previous
        result. Each position past the edge's log end is logged once.

        Returns:
            One failure for each stalled topic-partition; empty if any position advanced within the
            last 5 minutes, or if all records are copied.

        Raises:
            Unavailable: A cluster cannot be read.
        """
        if self._clock.monotonic_s() - self._polled_s >= POLL_INTERVAL_S:
            self._polled_s, self._found = self._clock.monotonic_s(), []
            self._poll()
        return [
            ConnectorTaskFailure(CONNECTOR, f"{entry}, and has not moved for {STALL_S:g} s")
            for entry in self._found
        ]

    def _poll(self) -> None:
        positions = self._positions.refresh()
        partitions = self._sites.partitions()
        ends, starts = self._sites.edge.ends(partitions), self._sites.edge.starts(partitions)
        now_s = self._clock.monotonic_s()
        stalled = self._progress.stalled_partitions(now_s, ends, starts, positions)
        self._found = stalled if now_s - self._progress.last_progress_s >= STALL_S else []
        before, self._ahead = self._ahead, {*partitions_ahead(ends, positions)}
        for partition in sorted(self._ahead - before):  # once; a restart would not help
            _LOG.error(
                "%s: the mirror's position %d is past the edge's log end %d: the position is stale "
                "or the topic was recreated; see docs/runbooks/mirror-stale-offsets.md",
                partition,
                positions[partition],
                ends[partition],
            )
