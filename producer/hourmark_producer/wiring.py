"""Creates a tailer: makes its parts and connects them."""

from __future__ import annotations

from collections.abc import Callable

from hourmark.clock import Clock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.process.file_identity import FileIdentity, identify, may_be_copied_up
from hourmark.records.host_reports import SourceReport
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.checkpoint.delivered import DeliveredFiles, read_delivered
from hourmark_producer.checkpoint.generations import Generations
from hourmark_producer.conditions import QUIET_S, ConditionLog
from hourmark_producer.counters import Counters
from hourmark_producer.cut.lines import RangeLimits
from hourmark_producer.cut.range_cutter import RangeCutter
from hourmark_producer.cut.range_sizes import AdaptiveRangeLimits
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import TrackedFiles
from hourmark_producer.history.beginnings import StartPositions
from hourmark_producer.history.match import ContentMatcher
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.receive.spools import ReceiverGroup, recover_spools, sources_as_files
from hourmark_producer.reloading import ReloadHandler
from hourmark_producer.report.probes import TailerHealth
from hourmark_producer.send import clocks
from hourmark_producer.send.acknowledgments import Acknowledgments, DeadLetterCounts
from hourmark_producer.send.client import DeliveryServiceClient
from hourmark_producer.send.clocks import ClockFloor
from hourmark_producer.send.file_examiner import FileExaminer
from hourmark_producer.send.file_shipper import FileShipper
from hourmark_producer.send.flight import InFlightSlots
from hourmark_producer.send.range_spooler import RangeSpooler
from hourmark_producer.send.reports import CaughtUpTimes, HostReporter
from hourmark_producer.send.senders import SenderPool
from hourmark_producer.tailer import RunFailure, Tailer
from hourmark_producer.watch.descriptors import DescriptorBudget
from hourmark_producer.watch.inotify import InotifyWatcher
from hourmark_producer.watch.pace import PartialScans, PendingBytes, ScanPace
from hourmark_producer.watch.retirement import FileRetirement
from hourmark_producer.watch.scanner import FileScanner


def wire_tailer(
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
) -> Tailer:
    """Create a tailer that continues from its checkpoint.

    The checkpoint is the tailer's database. Lines that an earlier run received, for example by
    syslog, but did not deliver, are recovered. No file is scanned and nothing is sent before
    `Tailer.run`.

    Args:
        config: Validated settings.
        checkpoint: Open checkpoint. The caller closes it after the run.
        clock: Clock of this host.
        host_id: Host id of the tailer.
        host_name: Name of this host.
        identify: Function that returns the identity of an open file.
        may_be_copied_up: Function that returns whether the birth time of an open file may change,
            as on overlayfs.
        open_files_max: Maximum number of tracked files that are open at the same time.
        final_lines: Whether to send a last line without LF once its file has not grown for the
            source's `flush_seconds`. Use it for a run that ends when everything is delivered.
        reloading: Handler of SIGHUP; None if the tailer cannot be reloaded.

    Returns:
        The tailer. It can run once.

    Raises:
        CheckpointFailed: The checkpoint cannot be read or written.
    """
    recover_spools(config, checkpoint, identify)
    files = TrackedFiles(checkpoint.files())
    counters, dead_letters = Counters(checkpoint.losses()), DeadLetterCounts()
    client = DeliveryServiceClient(config, clock, ClockFloor(config.state_dir / clocks.FILE))
    schedule = Schedule(clock)
    conditions = ConditionLog(clock, max(QUIET_S, 3 * config.backoff_max_seconds))
    health = TailerHealth(clock, conditions, config.unwell_seconds)
    failure = RunFailure()
    generations = Generations([config.state_dir, *filter(None, [config.second_state_dir])], host_id)
    sizes = AdaptiveRangeLimits(
        RangeLimits(min(config.range_bytes, config.line_bytes_max), config.line_bytes_max),
        config.range_bytes_min,
    )
    sources = {source.name: source for source in sources_as_files(config)}
    matcher = ContentMatcher(files, checkpoint, clock)
    remainders = RemainderFinder(
        matcher=matcher,
        checkpoint=checkpoint,
        schedule=schedule,
        clock=clock,
        sizes=sizes,
        sources=sources,
    )
    shipper = FileShipper(
        client=client,
        checkpoint=checkpoint,
        sources=sources,
        sizes=sizes,
        examiner=FileExaminer(
            checkpoint=checkpoint,
            sources=sources,
            matcher=matcher,
            remainders=remainders,
            counters=counters,
            clock=clock,
        ),
        remainders=remainders,
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
            counters=counters,
            dead_letters=dead_letters,
            clock=clock,
            window_max=config.ranges_in_flight,
        ),
        clock=clock,
        slots=InFlightSlots(),
    )
    senders = SenderPool(
        shipper=shipper,
        schedule=schedule,
        throttle=conditions,
        backoff_max_s=config.backoff_max_seconds,
        on_error=failure.record,
    )
    scanner = FileScanner(
        sources=list(sources.values()),
        files=files,
        checkpoint=checkpoint,
        schedule=schedule,
        retirement=FileRetirement(
            files=files,
            checkpoint=checkpoint,
            schedule=schedule,
            counters=counters,
            matcher=matcher,
            clock=clock,
            delivered=DeliveredFiles(checkpoint.read(read_delivered)),
        ),
        matcher=matcher,
        remainders=remainders,
        generations=generations,
        throttle=conditions,
        clock=clock,
        identify=identify,
        may_be_copied_up=may_be_copied_up,
        descriptors=DescriptorBudget(
            files=files, schedule=schedule, clock=clock, limit=open_files_max
        ),
        start_positions=StartPositions(list(sources.values()), checkpoint.scanned_sources(), clock),
    )
    receivers = ReceiverGroup(
        config=config,
        files=files,
        checkpoint=checkpoint,
        schedule=schedule,
        counters=counters,
        throttle=conditions,
        clock=clock,
        on_error=failure.record,
    )
    claims = CaughtUpTimes(source.name for source in config.sources)
    pending = PendingBytes(files, schedule)

    def source_reports(service: str) -> tuple[SourceReport, ...]:
        clock_ms = client.clocks_ms().get(service)
        times_ms = claims.service_times_ms(service, clock_ms)
        # after the claims, because pending bytes may only grow after them
        pending_bytes = pending.by_source()
        return tuple(
            SourceReport(
                source,
                at_ms,
                pending_bytes[source],
                losses.bytes,
                losses.unknown,
                receivers.is_unrepeatable(source),
            )
            for source, at_ms in times_ms.items()
            for losses in (counters.losses(source),)
        )

    def on_report_delivered() -> None:
        health.record_report()
        senders.allow_sending()

    return Tailer(
        config=config,
        checkpoint=checkpoint,
        clock=clock,
        host_id=host_id,
        files=files,
        counters=counters,
        dead_letters=dead_letters,
        conditions=conditions,
        health=health,
        failure=failure,
        client=client,
        schedule=schedule,
        matcher=matcher,
        shipper=shipper,
        senders=senders,
        receivers=receivers,
        scanner=scanner,
        pace=ScanPace(clock, config.scan_seconds),
        partial_scans=PartialScans(clock),
        hints=InotifyWatcher(),
        pending=pending,
        claims=claims,
        reporter=HostReporter(
            client=client,
            source_reports=source_reports,
            throttle=conditions,
            host_id=host_id,
            host_name=host_name,
            on_delivered=on_report_delivered,
            clock=clock,
        ),
        reloading=reloading,
    )
