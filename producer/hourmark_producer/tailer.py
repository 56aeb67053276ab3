"""The File Tailer, running: scans in one thread, sends in several, reports in one.

How long one pass (`hourmark tail --once`) waits while nothing is acknowledged.

The File Tailer, running: scans in one thread, sends in several, reports in one.

A stop says no goodbye: the host will come back, and what is written meanwhile is waited for. A
drain reads all to the end, waits for ever for it to be acknowledged, and then says goodbye: nothing
will come, do not wait for this host. One pass is the same without a goodbye, and without waiting
for ever.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import Tailer as TailerConfig
from hourmark.errors import Finding, HourmarkError, Unavailable
from hourmark.records.host_reports import SourceReport
from hourmark_producer.checkpoint.books import SourceBalance, read_current_balances
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.checkpoint.generations import Generations
from hourmark_producer.conditions import QUIET_S, ConditionLog
from hourmark_producer.counters import Counters
from hourmark_producer.cut.lines import RangeLimits
from hourmark_producer.cut.range_sizes import RangeSizes
from hourmark_producer.files.identity import FileIdentity, identify
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import ScanResult, TrackedFiles
from hourmark_producer.history.beginnings import StartPositions
from hourmark_producer.history.lost_content import LostContentFinder
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.receive.spools import Spools, followed, recover_all
from hourmark_producer.reloading import Reloading
from hourmark_producer.report import metrics, standing
from hourmark_producer.report.probes import Health
from hourmark_producer.report.summary import Summary, summed_up
from hourmark_producer.send import clocks
from hourmark_producer.send.client import ServiceLink
from hourmark_producer.send.clocks import ClockFloor
from hourmark_producer.send.flight import Lanes
from hourmark_producer.send.follower import Follower, RefusedLines
from hourmark_producer.send.reports import CaughtUp, Reporter, Target
from hourmark_producer.send.senders import Senders
from hourmark_producer.watch.descriptors import DescriptorBudget
from hourmark_producer.watch.inotify import InotifyWatcher
from hourmark_producer.watch.pace import PartialScans, PendingBytes, ScanPace
from hourmark_producer.watch.retirement import Retirement
from hourmark_producer.watch.scanner import FileScanner


class Standstill:
    """Of a run. `limit_s`: None, it waits for ever."""

    def __init__(self, clock: Clock, limit_s: float | None) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._ranges, self._moved_s = -1, clock.monotonic_s()

    def check(self, ranges: int, pending_bytes: int) -> None:
        """Unavailable where it lasts too long. `ranges`: acknowledged so far."""
        now_s = self._clock.monotonic_s()
        if ranges != self._ranges:
            self._ranges, self._moved_s = ranges, now_s
        elif self._limit_s is not None and now_s - self._moved_s >= self._limit_s:
            raise Unavailable(
                f"for {self._limit_s:g} s nothing was acknowledged; {pending_bytes} bytes are "
                "pending or unreported. They are "
                "kept: look at the warnings above, at tailer.service_urls and at `hourmark "
                "tail status`, then run it again"
            )


STOP_WITHIN_S: Final = 5.0
PROGRESS_S: Final = 10.0
DRAIN_POLL_S: Final = 0.05
DRAIN_PROBLEM_SCANS: Final = (
    5  # so often a file could not be looked at before a drain gives up on it
)
_LOG = logging.getLogger(__name__)


class Tailer:
    """One tailer over one open checkpoint, for one run."""

    def __init__(
        self,
        config: TailerConfig,
        checkpoint: Checkpoint,
        clock: Clock,
        *,
        host_id: str,
        host_name: str,
        identify: Callable[[int], FileIdentity] = identify,
        open_files_max: int = 800,
        reloading: Reloading | None = None,
    ) -> None:
        self._config, self._clock, self._checkpoint = config, clock, checkpoint
        self._host_id, self._reloading = host_id, reloading
        recover_all(config, checkpoint, identify)
        self.files = TrackedFiles(checkpoint.files())
        self._counters = Counters(checkpoint.losses())
        self._refused = RefusedLines()
        self._client = ServiceLink(config, clock, ClockFloor(config.state_dir / clocks.FILE))
        self._schedule = Schedule(clock)
        throttle = self._throttle = ConditionLog(
            clock, max(QUIET_S, 3 * config.backoff_max_seconds)
        )
        self._started_at_ms, self._stood_s = clock.now_ms(), float("-inf")
        self._health = Health(clock, throttle, config.unwell_seconds)
        self.unwell = self._health.reasons
        generations = Generations(
            [config.state_dir, *filter(None, [config.second_state_dir])], host_id
        )
        limits = RangeLimits(min(config.range_bytes, config.line_bytes_max), config.line_bytes_max)
        sizes = RangeSizes(limits, config.range_bytes_min)
        sources = {source.name: source for source in followed(config)}
        self._rests = RemainderFinder(
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            clock=clock,
            sizes=sizes,
            sources=sources,
        )
        elsewhere = LostContentFinder(self.files, checkpoint)
        self._follower = Follower(
            client=self._client,
            checkpoint=checkpoint,
            files=self.files,
            sources=sources,
            sizes=sizes,
            rests=self._rests,
            elsewhere=elsewhere,
            generations=generations,
            counters=self._counters,
            refused=self._refused,
            clock=clock,
            host_id=host_id,
            host_name=host_name,
            lanes=Lanes(),
            window_max=config.ranges_in_flight,
        )
        self._senders = Senders(
            follower=self._follower,
            schedule=self._schedule,
            throttle=throttle,
            backoff_max_s=config.backoff_max_seconds,
            failed=self._fail,
        )
        retirement = Retirement(
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            counters=self._counters,
            elsewhere=elsewhere,
            clock=clock,
        )
        self._scanner = FileScanner(
            sources=list(sources.values()),
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            retirement=retirement,
            rests=self._rests,
            generations=generations,
            throttle=throttle,
            clock=clock,
            identify=identify,
            descriptors=DescriptorBudget(
                files=self.files, schedule=self._schedule, clock=clock, limit=open_files_max
            ),
            beginnings=StartPositions(list(sources.values()), checkpoint.begun(), clock),
        )
        self._spools = Spools(
            config=config,
            files=self.files,
            checkpoint=checkpoint,
            schedule=self._schedule,
            counters=self._counters,
            throttle=throttle,
            clock=clock,
            failed=self._fail,
        )
        self._caught_up = {source.name: CaughtUp() for source in config.sources}
        self._reporter = Reporter(
            client=self._client,
            describe=self._describe,
            throttle=throttle,
            host_id=host_id,
            host_name=host_name,
            arrived=self._report_arrived,
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
    ) -> Summary:
        """Work until `stop`, or, draining, until all is acknowledged.

        Finding where a drain cannot read something.

        `once_s`: drain without a goodbye; Unavailable where for so many seconds nothing was
        acknowledged, nor all of it reported.
        """
        drain = drain or once_s is not None
        self._standstill = Standstill(self._clock, once_s)
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
            self._keep_standing()
            self._hints.close()
            if self._end_threads():
                self._spools.release()
                self._client.close()
                for file in self.files:
                    file.close()
        if self._failure is not None:
            raise self._failure
        goodbye, reasons = finished and once_s is None, self._refused.counts()
        return summed_up(
            self._host_id, self.files, self._counters, reasons, finished=finished, goodbye=goodbye
        )

    def _work(self, stop: threading.Event, *, drain: bool) -> bool:
        """Scan until there is a reason to end; whether that is that all is drained."""
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
                    f"not everything could be read: {named}; grant access, or mount it, "
                    "and drain again"
                )
            self._standstill.check(self._counters.ranges, self._pending.by_source().total())
            self._log_progress()
            self._throttle.sweep()
            if self._clock.monotonic_s() - self._stood_s >= standing.EVERY_S:
                self._keep_standing()
            if self._wait(stop, drain=drain or self._spools.ended_s is not None):
                return True
        return False

    def _wait(self, stop: threading.Event, *, drain: bool) -> bool:
        """Until the next scan is due; whether all is drained."""
        until_s = self._clock.monotonic_s() + self._config.scan_seconds
        while (
            (left_s := until_s - self._clock.monotonic_s()) > 0
            and not stop.is_set()
            and self._failure is None
        ):
            if drain and not self._pending.is_in_flight() and self._is_all_read():
                return True
            stop.wait(min(left_s, DRAIN_POLL_S) if drain else left_s)
        return False

    def _is_all_read(self) -> bool:
        """Whether all sources were caught up; since standard input ended, where there is one."""
        return all(
            claim.is_made(since_s=self._spools.ended_s) for claim in self._caught_up.values()
        )

    def _scan(self, *, is_urgent: bool) -> ScanResult | None:
        """A full look; None where the checkpoint could not take what it found.

        `is_urgent`: so is the next.
        """
        self._scans += 1
        readings_ms = (
            self._client.clocks_ms()
        )  # received before the scan: what it claims cannot be too late
        at_s = self._clock.monotonic_s()
        self._pace.begin()
        behind = self._spools.behind()
        try:
            seen = self._scanner.scan(self._scans)
            seen.complete -= behind
        except CheckpointFailed as error:
            self._throttle.warn(
                "scan", f"{error} Nothing new is followed until it can", logging.ERROR
            )
            self._pace.end(is_urgent=True)
            return None
        self._throttle.resolve("scan")
        self._health.scanned(self._counters.ranges, waiting=self._pending.is_in_flight())
        for path, problem in seen.all_problems().items():
            self._throttle.warn(
                f"look {path}",
                f"cannot look at {path}: {problem.strerror}; its source is not caught up",
            )
        if readings_ms:
            targets: dict[str, list[Target]] = {source: [] for source in seen.complete}
            for file in seen.active_files:  # of all others all is acknowledged
                if file.place.source in targets:
                    targets[file.place.source].append(Target.of(file))
            for source, those in targets.items():
                self._caught_up[source].begin(readings_ms, those, at_s)
        self._glances.begin(self.files)
        self._spools.release()
        self._pending.count(seen.active_files)
        self._pace.end(is_urgent=is_urgent or seen.has_waiting or not readings_ms)
        folders = seen.folders | self._glances.folders() if self._pace.is_slow else set[str]()
        if self._hints.watch(folders) or len(seen.complete) < len(self._caught_up):
            self._pace.want()
        return seen

    def _glance(self) -> None:
        """Look at what changed a moment ago, and at what hints name."""
        self._scans += 1
        hinted = self._hints.take()
        try:
            unsettled = self._scanner.glance(self._scans, self._glances.next(hinted.written))
        except CheckpointFailed as error:
            self._throttle.warn(
                "scan", f"{error} Nothing new is followed until it can", logging.ERROR
            )
            unsettled = True
        else:
            self._throttle.resolve("scan")
            self._health.scanned(self._counters.ranges, waiting=self._pending.is_in_flight())
        if unsettled or hinted.moved:
            self._pace.want()

    def _report_arrived(self) -> None:
        self._health.reported()
        self._senders.allow()

    def _finish(self, stop: threading.Event, *, goodbye: bool) -> bool:
        """Deliver what is on its way, cut nothing new, and report it; perhaps that nothing will
        come.
        """
        if not self._end_threads():
            return False
        while not (self._deliver_rest() and self._reporter.send(goodbye=goodbye)):
            self._standstill.check(self._counters.ranges, self._pending.by_source().total())
            if stop.wait(self._config.scan_seconds):
                return False
        return True

    def _deliver_rest(self) -> bool:
        for file in self.files:
            try:
                if file.progress.in_flight:
                    self._follower.step(file)
            except HourmarkError as error:
                self._throttle.warn("rest", f"{error}. Waiting: {file.place.seen_at}")
        return not self._pending.is_in_flight()

    def _end_threads(self) -> bool:
        """Nothing new is cut or reported; whether all threads ended in time."""
        self._follower.finishing = True
        self._rests.stopping.set()
        self._stop_reports.set()
        ended = self._senders.stop(STOP_WITHIN_S)
        self._report_thread.join(STOP_WITHIN_S)
        return ended and not self._report_thread.is_alive()

    def _fail(self, error: Exception) -> None:
        self._failure = error

    def _describe(self, service: str) -> tuple[SourceReport, ...]:
        # the claims first: what is pending may only grow after them
        claims = {source: claim.at_ms(service) for source, claim in self._caught_up.items()}
        pending = self._pending.by_source()
        return tuple(
            SourceReport(
                source,
                at_ms,
                pending[source],
                losses.bytes,
                losses.unknown,
                self._spools.unrepeatable(source),
            )
            for source, at_ms in claims.items()
            for losses in (self._counters.losses(source),)
        )

    def balances(self) -> dict[str, SourceBalance]:
        """The books by source, now. Safe to use from any thread. CheckpointFailed."""
        return dict.fromkeys(self._caught_up, SourceBalance()) | read_current_balances(
            self._checkpoint.read_books, self.files
        )

    def exposition(self) -> bytes:
        """Its metrics. Safe to use from any thread. CheckpointFailed."""
        stand, counters = self.stand(), self._counters
        age_s = (stand.written_at_ms - stand.started_at_ms) / 1000  # where it was never caught up
        files = Counter(file.place.source for file in self.files if not file.is_gone)
        balances = self.balances()
        return metrics.exposition(
            metrics.Numbers(
                balances=balances,
                losses={source: counters.losses(source) for source in balances},
                files={source: files[source] for source in balances},
                lag_seconds={
                    source: age_s if lag_s is None else lag_s
                    for source, lag_s in stand.lag_seconds.items()
                },
                dead_letters=self._refused.counts(),
                ranges=counters.ranges,
                events=counters.events,
                services=stand.services,
                conditions=len(stand.troubles),
                well=not self.unwell(),
                started_at_s=stand.started_at_ms / 1000,
                delivered_at_s=(stand.delivered_at_ms or 0) / 1000,
                reported_at_s=(stand.reported_at_ms or 0) / 1000,
                reload_ok=self._reloading is None or self._reloading.ok,
            )
        )

    def stand(self) -> standing.Standing:
        """How it stands now. Safe to use from any thread."""
        now_s, latest = self._clock.monotonic_s(), self._throttle.latest()
        claims = {source: claim.at_s() for source, claim in self._caught_up.items()}
        return standing.Standing(
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            written_at_ms=self._clock.now_ms(),
            delivered_at_ms=self._counters.delivered_at_ms,
            reported_at_ms=self._reporter.arrived_at_ms,
            lag_seconds={
                source: None if at_s is None else max(0.0, now_s - at_s)
                for source, at_s in claims.items()
            },
            troubles=[standing.Trouble.of(condition) for condition in self._throttle.ongoing()],
            latest_trouble=standing.Trouble.of(latest) if latest else None,
            services=self._client.services.standings(),
        )

    def _keep_standing(self) -> None:
        self._stood_s = self._clock.monotonic_s()
        standing.keep(self._config.state_dir, self.stand())

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
            self._pending.by_source().total(),
            *self._counters.total_losses(),
        )
