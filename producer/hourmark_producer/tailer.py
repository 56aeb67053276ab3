"""The running file tailer: one thread scans files, several send ranges, one sends host reports.

A stop reports no goodbye, because the host is expected to come back, and hours wait for what is
written meanwhile. A drain reads all files to their end, waits without limit until everything is
acknowledged, and then reports a goodbye, so no hour waits for this host. A single pass (`hourmark
tail --once`) is a drain without a goodbye and with a time limit.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import Finding, HourmarkError, Unavailable
from hourmark.records.host_reports import SourceReport
from hourmark_producer.checkpoint.books import SourceBalance, read_current_balances
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.checkpoint.generations import Generations
from hourmark_producer.conditions import QUIET_S, ConditionLog
from hourmark_producer.counters import Counters
from hourmark_producer.cut.lines import RangeLimits
from hourmark_producer.cut.range_cutter import RangeCutter
from hourmark_producer.cut.range_sizes import AdaptiveRangeLimits
from hourmark_producer.files.identity import FileIdentity, identify, may_be_copied_up
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import ScanResult, TrackedFiles
from hourmark_producer.history.beginnings import StartPositions
from hourmark_producer.history.match import ContentMatcher
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.receive.spools import ReceiverGroup, recover_spools, sources_as_files
from hourmark_producer.reloading import ReloadHandler
from hourmark_producer.report import metrics, snapshot
from hourmark_producer.report.probes import TailerHealth
from hourmark_producer.report.summary import RunSummary, summarize_run
from hourmark_producer.send import clocks
from hourmark_producer.send.acknowledgments import Acknowledgments, DeadLetterCounts
from hourmark_producer.send.client import DeliveryServiceClient
from hourmark_producer.send.clocks import ClockFloor
from hourmark_producer.send.file_examiner import FileExaminer
from hourmark_producer.send.file_shipper import FileShipper
from hourmark_producer.send.flight import InFlightSlots
from hourmark_producer.send.range_spooler import RangeSpooler
from hourmark_producer.send.reports import AcknowledgmentTarget, CaughtUpClaim, HostReporter
from hourmark_producer.send.senders import SenderPool
from hourmark_producer.watch.descriptors import DescriptorBudget
from hourmark_producer.watch.inotify import InotifyWatcher
from hourmark_producer.watch.pace import PartialScans, PendingBytes, ScanPace
from hourmark_producer.watch.retirement import FileRetirement
from hourmark_producer.watch.scanner import FileScanner


class StallLimit:
    """Limits how long a single pass (`--once`) continues without any acknowledgement.

    Args:
        clock: Clock of this host.
        limit_s: The limit in seconds; None for no limit.
    """

    def __init__(self, clock: Clock, limit_s: float | None) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._ranges, self._moved_s = -1, clock.monotonic_s()

    def check(self, ranges: int, pending_bytes: Callable[[], int]) -> None:
        """Raise an error if no range was acknowledged within the limit. Call it regularly.

        Args:
            ranges: Number of ranges acknowledged since the start.
            pending_bytes: Function that counts the bytes that are not delivered yet, for the error
                message.

        Raises:
            Unavailable: The number of acknowledged ranges did not change within the limit.
        """
        now_s = self._clock.monotonic_s()
        if ranges != self._ranges:
            self._ranges, self._moved_s = ranges, now_s
        elif self._limit_s is not None and now_s - self._moved_s >= self._limit_s:
            raise Unavailable(
                f"nothing was acknowledged for {self._limit_s:g} s; {pending_bytes()} bytes "
                "are pending or unreported. They are kept: check the warnings above, "
                "tailer.service_urls and `hourmark tail status`, then run it again"
            )


STOP_WITHIN_S: Final = 5.0
PROGRESS_S: Final = 10.0
DRAIN_POLL_S: Final = 0.05
DRAIN_PROBLEM_SCANS: Final = 5  # scans with an unreadable file before a drain gives up
_LOG = logging.getLogger(__name__)


class Tailer:
    """One run of the file tailer on an open checkpoint.

    Args:
        config: Validated settings.
        checkpoint: Open checkpoint. The caller closes it after the run.
        clock: Clock of this host.
        host_id: Host id of the tailer.
        host_name: Name of this host.
        identify: Function that returns the identity of an open file.
        may_be_copied_up: Function that returns whether the birth time of an open file may change
            although it stays the same file.
        open_files_max: Maximum number of tracked files that are open at the same time.
        final_lines: Whether a last line without LF is sent too, once its file has not grown for the
            source's `flush_seconds`. Meant for a run that ends when everything is delivered.
        reloading: Handler of SIGHUP; None if the tailer cannot be reloaded.

    Attributes:
        files: All tracked files.
    """

    def __init__(
        self,
        config: TailerConfig,
        checkpoint: Checkpoint,
        clock: Clock,
        *,
        host_id: str,
        host_name: str,
        identify: Callable[[int], FileIdentity] = identify,
        may_be_copied_up: Callable[[int], bool] = may_be_copied_up,
        open_files_max: int = 800,
        final_lines: bool = False,
        reloading: ReloadHandler | None = None,
    ) -> None:
        self._config, self._clock, self._checkpoint = config, clock, checkpoint
        self._host_id, self._reloading = host_id, reloading
        recover_spools(config, checkpoint, identify)
        self.files = TrackedFiles(checkpoint.files())
        self._counters = Counters(checkpoint.losses())
        self._dead_letters = DeadLetterCounts()
        self._client = DeliveryServiceClient(
            config, clock, ClockFloor(config.state_dir / clocks.FILE)
        )
        self._schedule = Schedule(clock)
        throttle = self._throttle = ConditionLog(
            clock, max(QUIET_S, 3 * config.backoff_max_seconds)
        )
        self._started_at_ms, self._snapshot_saved_s = clock.now_ms(), float("-inf")
        self._health = TailerHealth(clock, throttle, config.unwell_seconds)
        self.unhealthy_reasons = self._health.unhealthy_reasons
        generations = Generations(
            [config.state_dir, *filter(None, [config.second_state_dir])], host_id
        )
        limits = RangeLimits(min(config.range_bytes, config.line_bytes_max), config.line_bytes_max)
        sizes = AdaptiveRangeLimits(limits, config.range_bytes_min)
        sources = {source.name: source for source in sources_as_files(config)}
        self._matcher = ContentMatcher(self.files, checkpoint, clock)
        rests = RemainderFinder(
            matcher=self._matcher,
            checkpoint=checkpoint,
            schedule=self._schedule,
            clock=clock,
            sizes=sizes,
            sources=sources,
        )
        self._shipper = FileShipper(
            client=self._client,
            checkpoint=checkpoint,
            sources=sources,
            sizes=sizes,
            examiner=FileExaminer(
                checkpoint=checkpoint,
                sources=sources,
                matcher=self._matcher,
                rests=rests,
                counters=self._counters,
                clock=clock,
            ),
            rests=rests,
            cutter=RangeCutter(sources=sources, sizes=sizes, clock=clock, final_lines=final_lines),
            spooler=RangeSpooler(
                sources,
                generations,
                host_id=host_id,
                host_name=host_name,
                last_sequence=checkpoint.last_sequence(),
            ),
            acknowledgments=Acknowledgments(
                checkpoint=checkpoint,
                counters=self._counters,
                dead_letters=self._dead_letters,
                clock=clock,
                window_max=config.ranges_in_flight,
            ),
            clock=clock,
            slots=InFlightSlots(),
        )
        self._senders = SenderPool(
            shipper=self._shipper,
            schedule=self._schedule,
            throttle=throttle,
            backoff_max_s=config.backoff_max_seconds,
            on_error=self._on_error,
        )
        retirement = FileRetirement(
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            counters=self._counters,
            matcher=self._matcher,
            clock=clock,
        )
        self._scanner = FileScanner(
            sources=list(sources.values()),
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            retirement=retirement,
            matcher=self._matcher,
            rests=rests,
            generations=generations,
            throttle=throttle,
            clock=clock,
            identify=identify,
            may_be_copied_up=may_be_copied_up,
            descriptors=DescriptorBudget(
                files=self.files, schedule=self._schedule, clock=clock, limit=open_files_max
            ),
            beginnings=StartPositions(list(sources.values()), checkpoint.begun(), clock),
        )
        self._spools = ReceiverGroup(
            config=config,
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            counters=self._counters,
            throttle=throttle,
            clock=clock,
            on_error=self._on_error,
        )
        self._caught_up = {source.name: CaughtUpClaim() for source in config.sources}
        self._reporter = HostReporter(
            client=self._client,
            source_reports=self._source_reports,
            throttle=throttle,
            host_id=host_id,
            host_name=host_name,
            on_delivered=self._on_report_delivered,
            clock=clock,
        )
        self._stop_reports = threading.Event()
        self._report_thread = threading.Thread(
            target=self._reporter.run,
            args=(config.report_seconds, self._stop_reports),
            name="reports",
            daemon=True,
        )
        self._pace, self._glances, self._hints = (
            ScanPace(clock, config.scan_seconds),
            PartialScans(clock),
            InotifyWatcher(),
        )
        self._pending = PendingBytes(self.files, self._schedule)
        self._scans = 0
        self._failure: Exception | None = None
        self._progress = (clock.monotonic_s(), 0)

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
        self._stall_limit = StallLimit(self._clock, once_s)
        for file in self.files:
            if file.progress.in_flight:
                self._schedule.add(file)
        self._spools.start(to_end=drain)
        self._scan(is_urgent=True)
        self._senders.start()
        self._report_thread.start()
        try:
            drained = self._work(stop, drain=drain)
            finished = drain and drained and self._finish(stop, goodbye=once_s is None)
        finally:
            self._spools.stop()
            self._save_snapshot()
            self._hints.close()
            if self._end_threads():
                self._spools.remove_acknowledged()
                self._client.close()
                for file in self.files:
                    file.close()
        if self._failure is not None:
            raise self._failure
        goodbye, reasons = finished and once_s is None, self._dead_letters.counts()
        return summarize_run(
            self._host_id, self.files, self._counters, reasons, finished=finished, goodbye=goodbye
        )

    def _work(self, stop: threading.Event, *, drain: bool) -> bool:
        troubled, problems = 0, dict[str, OSError]()
        while not stop.is_set() and self._failure is None:
            if self._pace.is_due():
                seen = self._scan(is_urgent=drain)
                problems = seen.all_problems() if seen else {}
                troubled = troubled + 1 if problems else 0
            else:
                self._glance()
            if drain and troubled >= DRAIN_PROBLEM_SCANS and not self._pending.is_in_flight():
                named = ", ".join(
                    f"{path}: {problems[path].strerror}" for path in sorted(problems)[:5]
                )
                raise Finding(
                    f"some files could not be read: {named}; grant access or mount them, "
                    "then drain again"
                )
            self._stall_limit.check(self._counters.ranges, self._pending.total)
            self._log_progress()
            self._throttle.sweep()
            if self._clock.monotonic_s() - self._snapshot_saved_s >= snapshot.SAVE_INTERVAL_S:
                self._save_snapshot()
            if self._wait(stop, drain=drain or self._spools.ended_s is not None):
                return True
        return False

    def _wait(self, stop: threading.Event, *, drain: bool) -> bool:
        until_s = self._clock.monotonic_s() + self._config.scan_seconds
        while (
            (left_s := until_s - self._clock.monotonic_s()) > 0
            and not stop.is_set()
            and self._failure is None
        ):
            if drain and self._is_all_read() and not self._pending.is_in_flight():
                return True
            stop.wait(min(left_s, DRAIN_POLL_S) if drain else left_s)
        return False

    def _is_all_read(self) -> bool:
        return all(
            claim.is_caught_up(since_s=self._spools.ended_s) for claim in self._caught_up.values()
        )

    def _scan(self, *, is_urgent: bool) -> ScanResult | None:
        self._scans += 1
        readings_ms = (
            self._client.clocks_ms()
        )  # received before the scan, so no claim can be too late
        at_s = self._clock.monotonic_s()
        self._pace.begin()
        behind = self._spools.sources_with_unsynced_data()
        try:
            seen = self._scanner.scan(self._scans)
            seen.complete -= behind
        except CheckpointFailed as error:
            self._throttle.warn(
                "scan", f"{error} No new files are tailed until it can", logging.ERROR
            )
            self._pace.end(is_urgent=True)
            return None
        self._throttle.resolve("scan")
        self._health.record_scan(self._counters.ranges, waiting=self._pending.is_in_flight())
        for path, problem in seen.all_problems().items():
            self._throttle.warn(
                f"look {path}",
                f"cannot scan {path}: {problem.strerror}; its source is not caught up",
            )
        if readings_ms:
            targets: dict[str, list[AcknowledgmentTarget]] = {
                source: [] for source in seen.complete
            }
            for file in seen.active_files:  # all other files are fully acknowledged
                if file.place.source in targets:
                    targets[file.place.source].append(AcknowledgmentTarget.from_file(file))
            for source, those in targets.items():
                self._caught_up[source].start_attempt(readings_ms, those, at_s)
        self._glances.begin(self.files)
        self._spools.remove_acknowledged()
        self._pending.update(seen.active_files)
        self._pace.end(is_urgent=is_urgent or not readings_ms)
        folders = seen.folders | self._glances.folders() if self._pace.is_slow else set[str]()
        if self._hints.watch(folders) or len(seen.complete) < len(self._caught_up):
            self._pace.request_scan()
        return seen

    def _glance(self) -> None:
        self._scans += 1
        hinted = self._hints.take_events()
        try:
            unsettled = self._scanner.check_files(
                self._scans, self._glances.select_files(hinted.written)
            )
        except CheckpointFailed as error:
            self._throttle.warn(
                "scan", f"{error} No new files are tailed until it can", logging.ERROR
            )
            unsettled = True
        else:
            self._throttle.resolve("scan")
            self._health.record_scan(self._counters.ranges, waiting=self._pending.is_in_flight())
        if unsettled or hinted.moved:
            self._pace.request_scan()

    def _on_report_delivered(self) -> None:
        self._health.record_report()
        self._senders.allow_sending()

    def _finish(self, stop: threading.Event, *, goodbye: bool) -> bool:
        if not self._end_threads():
            return False
        while not (self._deliver_rest() and self._reporter.send(goodbye=goodbye)):
            self._stall_limit.check(self._counters.ranges, self._pending.total)
            if stop.wait(self._config.scan_seconds):
                return False
        return True

    def _deliver_rest(self) -> bool:
        for file in self.files:
            try:
                if file.progress.in_flight:
                    self._shipper.step(file)
            except HourmarkError as error:
                self._throttle.warn("rest", f"{error}. Waiting: {file.place.seen_at}")
        return not self._pending.is_in_flight()

    def _end_threads(self) -> bool:
        self._shipper.finishing = True
        self._matcher.stopping.set()
        self._stop_reports.set()
        ended = self._senders.stop(STOP_WITHIN_S)
        self._report_thread.join(STOP_WITHIN_S)
        return ended and not self._report_thread.is_alive()

    def _on_error(self, error: Exception) -> None:
        self._failure = error

    def _source_reports(self, service: str) -> tuple[SourceReport, ...]:
        # claims first: pending bytes may only grow after them
        clock_ms = self._client.clocks_ms().get(service)
        claims = {
            source: claim.service_time_ms(service, clock_ms)
            for source, claim in self._caught_up.items()
        }
        pending = self._pending.by_source()
        return tuple(
            SourceReport(
                source,
                at_ms,
                pending[source],
                losses.bytes,
                losses.unknown,
                self._spools.is_unrepeatable(source),
            )
            for source, at_ms in claims.items()
            for losses in (self._counters.losses(source),)
        )

    def balances(self) -> dict[str, SourceBalance]:
        """Return the current byte counts of each source: seen, acknowledged, pending and lost.

        Thread-safe.

        Returns:
            Byte counts by source name.

        Raises:
            CheckpointFailed: The checkpoint cannot be read.
        """
        return dict.fromkeys(self._caught_up, SourceBalance()) | read_current_balances(
            self._checkpoint.read_books, self.files
        )

    def render_metrics(self) -> bytes:
        """Return the metrics of the tailer in the Prometheus text format, version 0.0.4.

        Thread-safe.

        Raises:
            CheckpointFailed: The checkpoint cannot be read.
        """
        stand, counters = self.take_snapshot(), self._counters
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
                dead_letters=self._dead_letters.counts(),
                ranges=counters.ranges,
                events=counters.events,
                services=stand.services,
                conditions=len(stand.troubles),
                is_healthy=not self.unhealthy_reasons(),
                started_at_s=stand.started_at_ms / 1000,
                delivered_at_s=(stand.delivered_at_ms or 0) / 1000,
                reported_at_s=(stand.reported_at_ms or 0) / 1000,
                reload_ok=self._reloading is None or self._reloading.was_last_reload_accepted,
            )
        )

    def take_snapshot(self) -> snapshot.TailerSnapshot:
        """Return the current state of the tailer, in the form that `save_snapshot` writes.

        Commands such as `hourmark tail status` read the saved snapshot. Thread-safe.
        """
        now_s, latest = self._clock.monotonic_s(), self._throttle.latest()
        claims = {source: claim.monotonic_time_s() for source, claim in self._caught_up.items()}
        return snapshot.TailerSnapshot(
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            written_at_ms=self._clock.now_ms(),
            delivered_at_ms=self._counters.delivered_at_ms,
            reported_at_ms=self._reporter.delivered_at_ms,
            lag_seconds={
                source: None if at_s is None else max(0.0, now_s - at_s)
                for source, at_s in claims.items()
            },
            troubles=[
                snapshot.ConditionSnapshot.from_condition(condition)
                for condition in self._throttle.ongoing()
            ],
            latest_trouble=snapshot.ConditionSnapshot.from_condition(latest) if latest else None,
            services=self._client.services.statuses(),
        )

    def _save_snapshot(self) -> None:
        self._snapshot_saved_s = self._clock.monotonic_s()
        snapshot.save_snapshot(self._config.state_dir, self.take_snapshot())

    def _log_progress(self) -> None:
        now_s = self._clock.monotonic_s()
        before_s, before_bytes = self._progress
        if now_s - before_s < PROGRESS_S:
            return
        self._progress = (now_s, self._counters.bytes)
        rate = (self._counters.bytes - before_bytes) / (now_s - before_s) / 1e6
        _LOG.info(
            "%d files, %.2f MB/s acknowledged, %d bytes pending, %d bytes lost so far, "
            "unknown losses: %d",
            len(self.files),
            rate,
            self._pending.total(),
            *self._counters.total_losses(),
        )
