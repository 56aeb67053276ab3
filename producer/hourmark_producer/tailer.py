"""The running file tailer: one thread scans files, several send ranges, one sends host reports.

A stop reports no goodbye, because the host is expected to come back, and hours wait for what is
written meanwhile. A drain reads all files to their end, waits without limit until everything is
acknowledged, and then reports a goodbye, so no hour waits for this host. A single pass (`hourmark
tail --once`) is a drain without a goodbye and with a time limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import Finding, HourmarkError, Unavailable
from hourmark_producer.checkpoint.books import SourceBalance, read_current_balances
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.checkpoint.delivered import CLEAR, save_delivered
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.counters import Counters
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import ScanResult, TrackedFiles
from hourmark_producer.history.match import ContentMatcher
from hourmark_producer.receive.spools import ReceiverGroup
from hourmark_producer.reloading import ReloadHandler
from hourmark_producer.report import metrics, snapshot
from hourmark_producer.report.probes import TailerHealth
from hourmark_producer.report.summary import RunSummary, summarize_run
from hourmark_producer.send.acknowledgments import DeadLetterCounts
from hourmark_producer.send.client import DeliveryServiceClient
from hourmark_producer.send.file_shipper import FileShipper
from hourmark_producer.send.reports import CaughtUpTimes, HostReporter
from hourmark_producer.send.senders import SenderPool
from hourmark_producer.watch.inotify import InotifyWatcher
from hourmark_producer.watch.pace import PartialScans, PendingBytes, ScanPace
from hourmark_producer.watch.scanner import FileScanner


class StallLimit:
    """Detects that a single pass of the tailer (`--once`) makes no progress.

    Call `check` regularly. It raises an error if no byte range was acknowledged within the limit.

    Args:
        clock: Clock of this host.
        limit_s: Maximum time without an acknowledgement, in seconds; None for no limit.
    """

    def __init__(self, clock: Clock, limit_s: float | None) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._ranges, self._moved_s = -1, clock.monotonic_s()

    def check(self, ranges: int, pending_bytes: Callable[[], int]) -> None:
        """Raise an error if no range was acknowledged within the limit. Call it regularly.

        Args:
            ranges: Number of ranges acknowledged since the start.
            pending_bytes: Function that returns the number of undelivered bytes, which is included
                in the error message.

        Raises:
            Unavailable: The number of acknowledged ranges did not change within the limit.
        """
        now_s = self._clock.monotonic_s()
        if ranges != self._ranges:
            self._ranges, self._moved_s = ranges, now_s
        elif self._limit_s is not None and now_s - self._moved_s >= self._limit_s:
            raise Unavailable(
                f"nothing was acknowledged for {self._limit_s:g} s; {pending_bytes()} bytes are "
                "pending or unreported. They are kept. Check the warnings above, "
                "tailer.service_urls and `hourmark tail status`, then run the command again"
            )


STOP_WITHIN_S: Final = 5.0
PROGRESS_S: Final = 10.0
DRAIN_POLL_S: Final = 0.05
DRAIN_PROBLEM_SCANS: Final = 5  # scans with an unreadable file before a drain gives up
_LOG = logging.getLogger(__name__)


class RunFailure:
    """Stores the exception of a thread that ends the run of the tailer. Thread-safe.

    Attributes:
        error: The latest recorded exception; None if there is none.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def record(self, error: Exception) -> None:
        """Store an exception of a thread. The run of the tailer then ends and raises it.

        Args:
            error: The exception. It replaces a previously recorded one.
        """
        self.error = error


@dataclasses.dataclass(kw_only=True, eq=False)
class Tailer:
    """One run of the tailer, which sends the lines of log files to the delivery services.

    Create it with `wire_tailer`.

    Attributes:
        config: Validated settings.
        checkpoint: Open checkpoint. The caller closes it after the run.
        clock: Clock of this host.
        host_id: Host id of the tailer.
        files: All tracked files.
        counters: Counts acknowledged ranges and losses.
        dead_letters: Counts dead letters by reason.
        conditions: Logs each lasting problem once when it begins and once when it ends.
        health: Determines whether the tailer makes progress.
        failure: The exception of a thread that ended the run.
        client: Client for the delivery services.
        schedule: Queue of files that have unread or unsent bytes.
        matcher: Decides whether content was read before.
        shipper: Sends the next range of a file.
        senders: The threads that call `shipper`.
        receivers: Inputs that are not files, such as syslog.
        scanner: Scans the sources for files.
        pace: Decides when the next full scan is due.
        partial_scans: Selects the files to check between two full scans.
        hints: Reports changes of watched folders.
        pending: Counts the bytes that no service has acknowledged.
        claims: Times up to which the sources are acknowledged.
        reporter: Sends host reports.
        reloading: Handler of SIGHUP; None if the tailer cannot be reloaded.
    """

    config: TailerConfig
    checkpoint: Checkpoint
    clock: Clock
    host_id: str
    files: TrackedFiles
    counters: Counters
    dead_letters: DeadLetterCounts
    conditions: ConditionLog
    health: TailerHealth
    failure: RunFailure
    client: DeliveryServiceClient
    schedule: Schedule
    matcher: ContentMatcher
    shipper: FileShipper
    senders: SenderPool
    receivers: ReceiverGroup
    scanner: FileScanner
    pace: ScanPace
    partial_scans: PartialScans
    hints: InotifyWatcher
    pending: PendingBytes
    claims: CaughtUpTimes
    reporter: HostReporter
    reloading: ReloadHandler | None = None

    def __post_init__(self) -> None:
        self._started_at_ms, self._snapshot_saved_s = self.clock.now_ms(), float("-inf")
        self._stop_reports = threading.Event()
        self._report_thread = threading.Thread(
            target=self.reporter.run,
            args=(self.config.report_seconds, self._stop_reports),
            name="reports",
            daemon=True,
        )
        self._progress = (self.clock.monotonic_s(), 0)

    def run(
        self, stop: threading.Event, *, drain: bool = False, once_s: float | None = None
    ) -> RunSummary:
        """Run until `stop` is set or, for a drain or single pass, until everything is delivered.

        Args:
            stop: Event that ends the run.
            drain: Whether to read all files to their end, wait for all acknowledgements and report
                a goodbye, which states that this host sends nothing more.
            once_s: If not None, make a single pass: a drain without a goodbye, which fails if
                nothing is acknowledged for this number of seconds.

        Returns:
            The summary of the run. `finished` is True if a drain or single pass was completed.

        Raises:
            Finding: A file could not be read during a drain or single pass.
            Unavailable: A single pass exceeded its time limit without an acknowledgement.
            ConfigError: An input is not available.
        """
        drain = drain or once_s is not None
        self._stall_limit = StallLimit(self.clock, once_s)
        if len(self.scanner.retirement.delivered):
            self.checkpoint.commit([CLEAR])  # this run may be killed
        for file in self.files:
            if file.progress.in_flight:
                self.schedule.add(file)
        self.receivers.start(to_end=drain)
        self._scan(is_urgent=True)
        self.senders.start()
        self._report_thread.start()
        try:
            drained = self._work(stop, drain=drain)
            finished = drain and drained and self._finish(stop, goodbye=once_s is None)
        finally:
            self.receivers.stop()
            self._save_snapshot()
            self.hints.close()
            if self._end_threads():
                self.receivers.remove_acknowledged()
                self.client.close()
                for file in self.files:
                    file.close()
        if self.failure.error is not None:
            raise self.failure.error
        goodbye, reasons = finished and once_s is None, self.dead_letters.counts()
        delivered = save_delivered(self.files, self.clock.now_ms(), goodbye=goodbye)
        if delivered:
            with contextlib.suppress(CheckpointFailed):  # then more is called unknown than need be
                self.checkpoint.commit(delivered)
        return summarize_run(
            self.host_id,
            self.files,
            self.counters,
            reasons,
            self.checkpoint.recent_losses(),
            finished=finished,
            goodbye=goodbye,
        )

    def scan_once(self) -> ScanResult:
        """Scan all sources once, save what was found in the checkpoint, and close all files.

        Nothing is sent. Call it instead of `run`.

        Raises:
            CheckpointFailed: The result cannot be saved.
        """
        try:
            return self.scanner.scan()
        finally:
            self.hints.close()
            self.client.close()
            for file in self.files:
                file.close()

    def _work(self, stop: threading.Event, *, drain: bool) -> bool:
        troubled, problems = 0, dict[str, OSError]()
        while not stop.is_set() and self.failure.error is None:
            if self.pace.is_due():
                seen = self._scan(is_urgent=drain)
                problems = seen.all_problems() if seen else {}
                troubled = troubled + 1 if problems else 0
            else:
                self._glance()
            if drain and troubled >= DRAIN_PROBLEM_SCANS and not self.pending.is_in_flight():
                named = ", ".join(
                    f"{path}: {problems[path].strerror}" for path in sorted(problems)[:5]
                )
                raise Finding(
                    f"some files could not be read: {named}; grant access or mount them, "
                    "then drain again"
                )
            self._stall_limit.check(self.counters.ranges, self.pending.total)
            self._log_progress()
            self.conditions.sweep()
            if self.clock.monotonic_s() - self._snapshot_saved_s >= snapshot.SAVE_INTERVAL_S:
                self._save_snapshot()
            if self._wait(stop, drain=drain or self.receivers.ended_s is not None):
                return True
        return False

    def _wait(self, stop: threading.Event, *, drain: bool) -> bool:
        until_s = self.clock.monotonic_s() + self.config.scan_seconds
        while (
            (left_s := until_s - self.clock.monotonic_s()) > 0
            and not stop.is_set()
            and self.failure.error is None
        ):
            if (
                drain
                and self.claims.are_caught_up(since_s=self.receivers.ended_s)
                and not self.pending.is_in_flight()
            ):
                return True
            stop.wait(min(left_s, DRAIN_POLL_S) if drain else left_s)
        return False

    def _scan(self, *, is_urgent: bool) -> ScanResult | None:
        readings_ms = (
            self.client.clocks_ms()
        )  # received before the scan, so no claim can be too late
        at_s = self.clock.monotonic_s()
        self.pace.begin()
        behind = self.receivers.sources_with_unsynced_data()
        try:
            seen = self.scanner.scan()
            seen.complete -= behind
        except CheckpointFailed as error:
            self.conditions.warn(
                "scan", f"{error}. No new files are tailed until this is resolved", logging.ERROR
            )
            self.pace.end(is_urgent=True)
            return None
        self.conditions.resolve("scan")
        self.health.record_scan(self.counters.ranges, waiting=self.pending.is_in_flight())
        for path, problem in seen.all_problems().items():
            self.conditions.warn(
                f"look {path}",
                f"cannot scan {path}: {problem.strerror}; its source is not caught up",
            )
        self.claims.start_attempts(readings_ms, seen.complete, seen.active_files, at_s)
        self.partial_scans.begin(self.files)
        self.receivers.remove_acknowledged()
        self.pending.update(seen.active_files)
        self.pace.end(is_urgent=is_urgent or not readings_ms)
        folders = seen.folders | self.partial_scans.folders() if self.pace.is_slow else set[str]()
        if self.hints.watch(folders) or len(seen.complete) < len(self.claims.sources):
            self.pace.request_scan()
        return seen

    def _glance(self) -> None:
        hinted = self.hints.take_events()
        try:
            unsettled = self.scanner.check_files(self.partial_scans.select_files(hinted.written))
        except CheckpointFailed as error:
            self.conditions.warn(
                "scan", f"{error}. No new files are tailed until this is resolved", logging.ERROR
            )
            unsettled = True
        else:
            self.conditions.resolve("scan")
            self.health.record_scan(self.counters.ranges, waiting=self.pending.is_in_flight())
        if unsettled or hinted.moved:
            self.pace.request_scan()

    def _finish(self, stop: threading.Event, *, goodbye: bool) -> bool:
        if not self._end_threads():
            return False
        while not (self._deliver_rest() and self.reporter.send(goodbye=goodbye)):
            self._stall_limit.check(self.counters.ranges, self.pending.total)
            if stop.wait(self.config.scan_seconds):
                return False
        return True

    def _deliver_rest(self) -> bool:
        for file in self.files:
            try:
                if file.progress.in_flight:
                    self.shipper.step(file)
            except HourmarkError as error:
                self.conditions.warn("rest", f"{error}. Waiting: {file.place.seen_at}")
        return not self.pending.is_in_flight()

    def _end_threads(self) -> bool:
        self.shipper.finishing = True
        self.matcher.stopping.set()
        self._stop_reports.set()
        ended = self.senders.stop(STOP_WITHIN_S)
        self._report_thread.join(STOP_WITHIN_S)
        return ended and not self._report_thread.is_alive()

    def unhealthy_reasons(self) -> list[str]:
        """Return the reasons why the tailer is unhealthy. Thread-safe.

        Returns:
            One message per reason; an empty list if the tailer is healthy.
        """
        return self.health.unhealthy_reasons()

    def balances(self) -> dict[str, SourceBalance]:
        """Return the current byte counts of each source: seen, acknowledged, pending and lost.

        Thread-safe.

        Returns:
            Byte counts by source name.

        Raises:
            CheckpointFailed: The checkpoint cannot be read.
        """
        return dict.fromkeys(self.claims.sources, SourceBalance()) | read_current_balances(
            self.checkpoint.read_accounting, self.files
        )

    def render_metrics(self) -> bytes:
        """Return the metrics of the tailer in the Prometheus text format, version 0.0.4.

        Thread-safe.

        Raises:
            CheckpointFailed: The checkpoint cannot be read.
        """
        stand, counters = self.take_snapshot(), self.counters
        age_s = (
            stand.written_at_ms - stand.started_at_ms
        ) / 1000  # for sources that were never caught up
        files = Counter(file.place.source for file in self.files if not file.is_gone)
        balances = self.balances()
        return metrics.render_tailer_metrics(
            metrics.TailerMetrics(
                balances=balances,
                losses={source: counters.losses(source) for source in balances},
                files={source: files[source] for source in balances},
                lag_seconds={
                    source: age_s if lag_s is None else lag_s
                    for source, lag_s in stand.lag_seconds.items()
                },
                dead_letters=self.dead_letters.counts(),
                ranges=counters.ranges,
                events=counters.events,
                services=stand.services,
                conditions=len(stand.troubles),
                is_healthy=not self.unhealthy_reasons(),
                started_at_s=stand.started_at_ms / 1000,
                delivered_at_s=(stand.delivered_at_ms or 0) / 1000,
                reported_at_s=(stand.reported_at_ms or 0) / 1000,
                reload_ok=self.reloading is None or self.reloading.was_last_reload_accepted,
            )
        )

    def take_snapshot(self) -> snapshot.TailerSnapshot:
        """Return the current state of the tailer, in the form that `save_snapshot` writes.

        Commands such as `hourmark tail status` read the saved snapshot. Thread-safe.
        """
        now_s, latest = self.clock.monotonic_s(), self.conditions.latest()
        return snapshot.TailerSnapshot(
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            written_at_ms=self.clock.now_ms(),
            delivered_at_ms=self.counters.delivered_at_ms,
            reported_at_ms=self.reporter.delivered_at_ms,
            lag_seconds={
                source: None if at_s is None else max(0.0, now_s - at_s)
                for source, at_s in self.claims.monotonic_times_s().items()
            },
            troubles=[
                snapshot.ConditionSnapshot.from_condition(condition)
                for condition in self.conditions.ongoing()
            ],
            latest_trouble=snapshot.ConditionSnapshot.from_condition(latest) if latest else None,
            services=self.client.services.statuses(),
        )

    def _save_snapshot(self) -> None:
        self._snapshot_saved_s = self.clock.monotonic_s()
        snapshot.save_snapshot(self.config.state_dir, self.take_snapshot())

    def _log_progress(self) -> None:
        now_s = self.clock.monotonic_s()
        before_s, before_bytes = self._progress
        if now_s - before_s < PROGRESS_S:
            return
        self._progress = (now_s, self.counters.bytes)
        rate = (self.counters.bytes - before_bytes) / (now_s - before_s) / 1e6
        _LOG.info(
            "%d files, %.2f MB/s acknowledged, %d bytes pending, %d bytes lost so far, "
            "unknown losses: %d",
            len(self.files),
            rate,
            self.pending.total(),
            *self.counters.total_losses(),
        )
