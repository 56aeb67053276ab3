"""The demo: a stack, growing log files, one killed broker, closed buckets, and the judge.

Steps:

1. Start the stack, apply the event types, and start the components.
2. Write log files for the configured number of minutes. Meanwhile, kill and restart a broker.
3. Stop writing, deliver the remaining lines, and wait until the last minute is closed.
4. Run the judge, which compares every line with every bucket.
5. Stop everything.

All processes are also stopped after an error, Ctrl-C or SIGTERM. After a SIGKILL, the next demo
with the same home stops the remaining processes.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from hourmark.clock import Clock
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import Unavailable, UsageError
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import events_topic
from hourmark.rules.rules_topic import read_rules
from hourmark_infra.components import Components, wait_for
from hourmark_infra.jars.cache import Reporter
from hourmark_infra.locks import exclusive_lock
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.control import purge_stack
from hourmark_infra.stack.options import SERVERS, Clusters
from hourmark_verify.demo import outcome
from hourmark_verify.demo.bucket_progress import (
    ClosingStallDetector,
    TypeClosingState,
    are_buckets_closed,
    format_closing,
    read_closing_states,
)
from hourmark_verify.demo.configuration import (
    BUCKET_SECONDS,
    EVENTS_SOURCE,
    LINES_SOURCE,
    SERVER_LOG,
    SERVER_LOGS,
    TYPES,
    ZONE,
    demo_settings,
    write_declarations,
)
from hourmark_verify.demo.log_lines import (
    AD_SHOWN,
    TRACK_PLAYED,
    app_name,
    rfc5424_lines,
    structured_lines,
    write_sample_file,
)
from hourmark_verify.demo.log_lines import LINES_TYPE as LINES
from hourmark_verify.demo.outcome import count_acknowledged
from hourmark_verify.demo.traffic import LiveLog, Traffic
from hourmark_verify.demo.verdict import JudgeInputs, judge_until_settled, write_expectations
from hourmark_verify.judge.buckets import DEAD_LETTERS, find_changes
from hourmark_verify.judge.check import verify_delivery
from hourmark_verify.judge.expectations import ApiEvent
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.snapshot import take_snapshot
from hourmark_verify.judge.webhdfs import WebHdfsReader

KILL_AT: Final = 0.35  # fraction of the traffic's time span
AWAY_SECONDS: Final = 20.0  # between the kill of the broker and its restart


# Injects a fault while the files grow, and returns when the fault is over.
FaultAction: TypeAlias = Callable[["Demo", Traffic, LocalStack, Config], None]
DRAINING_SECONDS: Final = 180.0  # limit for the last delivery; it usually takes a few seconds
WRITING_SECONDS: Final = 3600.0  # limit for files of any size; writing usually takes three minutes
CLOSING_SECONDS: Final = 900.0  # limit after the last line; half a minute on an idle machine
STALLED_SECONDS: Final = 180.0  # without a closed bucket; then the demo fails
POLL_SECONDS: Final = 4.0  # between scans of HDFS, each of which adds lines to the NameNode's log
_FIRST_MINUTE_MIN_S: Final = 15  # a shorter first minute is not expected to make a bucket
_SPARE_S: Final = 10  # without traffic in the last minute, so that most lines arrive before its end
_MS: Final = 1000

ReadClosing = Callable[[], dict[str, TypeClosingState]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The command-line options of a demo run.

    Attributes:
        lines: Text files whose lines are sent. If empty, a sample file is written and sent.
        rate: Number of events per second to generate, in addition to `lines`.
        seed: Seed of the random generator for these events.
        buckets: Number of one-minute buckets to wait for, per event type. Only non-empty buckets
            that were verified to be complete count.
        keep: Whether the servers keep running after the demo.
        clusters: Number of Kafka clusters: 1, or 2 for an edge and a central cluster.
    """

    lines: tuple[Path, ...] = ()
    rate: int = 200
    seed: int = 1
    buckets: int = 3
    keep: bool = False
    clusters: Clusters = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result of a completed demo run.

    Attributes:
        outcome: Counts and addresses of the run, as returned by `as_json`.
        report: Report of the judge, which independently compares log files with buckets.
        faults: Reasons why the demo failed; empty if it succeeded.
        example_hour: Label of a non-empty bucket of type track-played.
        config_file: Configuration file of all components.
        expectations_file: Input file of the judge.
    """

    outcome: dict[str, Any]
    report: JudgeReport
    faults: list[str]
    example_hour: str
    config_file: Path
    expectations_file: Path


def kill_leader(demo: Demo, traffic: Traffic, stack: LocalStack, config: Config) -> None:
    """Kill the broker that leads the topic of `track-played`, and restart it after 20 seconds.

    The function waits until 35 percent of the time span of `traffic` have passed before it kills
    the broker. It returns when the restarted broker is ready.

    Args:
        demo: The running demo.
        traffic: Writer of the log files.
        stack: Local stack of the demo.
        config: Configuration of the demo's components.

    Raises:
        Unavailable: A component exited, or the broker did not become ready.
    """
    demo.wait_until(lambda: traffic.moment >= KILL_AT, "the middle of the traffic", traffic.span_s)
    broker = leading_broker(config, events_topic(TRACK_PLAYED))
    stack.kill(broker)
    demo.report_progress(
        f"{traffic.written:,} lines written; killed {broker}, which led "
        f"events.{TRACK_PLAYED}, with SIGKILL"
    )
    demo.pause(AWAY_SECONDS)
    stack.start(broker)
    stack.wait_ready(broker)
    demo.report_progress(f"{broker} is back; {traffic.written:,} lines written")


def leading_broker(config: Config, topic: str, cluster: str = "edge") -> str:
    """Return the name of the broker that leads the first partition of a topic.

    Args:
        config: Configuration with the Kafka clusters.
        topic: Name of the topic.
        cluster: "edge" or "central".

    Returns:
        Name of the server in the local stack, such as edge-2.

    Raises:
        Unavailable: The partition has no leader.
    """
    servers = config.kafka.edge if cluster == "edge" else config.kafka.central_cluster
    metadata = Cluster(servers, cluster).admin.list_topics(topic, timeout=15.0)
    leader = metadata.topics[topic].partitions[0].leader
    if leader < 0:
        raise Unavailable(f"partition {topic}-0 has no leader, so no broker can be killed")
    return f"{cluster}-{leader}"


class Demo:
    """One demo run, with its own local stack of servers and its own Hourmark components.

    Args:
        home: Folder for the stack and all files of the run; data of earlier runs is deleted.
        options: Command-line options.
        clock: Source of time.
        say: Function that is called with each line of progress.
        fault: Function that injects a fault while the log files grow. It returns when the fault is
            over. Its arguments are the demo, the writer of the log files, the stack and the
            configuration.

    Attributes:
        home: Folder of the run.
        work: Folder of the configuration, event types and source files.
        posted: Events that the fault function sent to the HTTP API. The function adds them here, so
            that the judge also expects them in the buckets.
        components: The Hourmark daemons of the run.
    """

    def __init__(
        self,
        home: Path,
        options: DemoOptions,
        clock: Clock,
        say: Reporter,
        fault: FaultAction = kill_leader,
    ) -> None:
        self.home = home
        self.work = home / "work"
        self._options = options
        self._clock = clock
        self._say = say
        self._inject_fault = fault
        self.posted: list[ApiEvent] = []
        self._began_s, self._began_ms = clock.monotonic_s(), clock.now_ms()
        self._config_file = self.work / "hourmark.toml"
        self.components = Components(home, self._config_file, home / "stack" / "logs", clock)

    def run(self) -> DemoResult:
        """Run the demo from start to end and return its result.

        The demo starts the stack, writes log files while it injects a fault, and waits until all
        lines are in closed buckets. The judge then compares the buckets with the log files.
        Finally, all processes are stopped, even after an error. The servers keep running if the
        option `keep` is set.

        Returns:
            The result, including all discrepancies that the judge found.

        Raises:
            UsageError: Another demo is running in the same folder.
            HourmarkError: The demo could not be completed, for example because a component exited.
        """
        with lock_home(self.home), ExitStack() as at_the_end:
            self.delete_previous_run()
            at_the_end.callback(self.stop_processes)
            stack = self.start_stack()
            config = self.start_components(stack)
            traffic = self.start_traffic()
            at_the_end.callback(traffic.stop)
            self._inject_fault(self, traffic, stack, config)
            self.wait_until(lambda: traffic.done, "the last line to be written", WRITING_SECONDS)
            return self._conclude(traffic, stack, config)

    def delete_previous_run(self) -> None:
        """Stop all processes of an earlier run in this folder and delete the data of that run."""
        self.components.stop_all()
        purge_stack(self.home, self.report_progress)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def start_stack(self) -> LocalStack:
        """Create and start the servers of the local stack, with UTC as their time zone.

        If the servers do not start, for example because a port is in use, the start is retried
        once.

        Returns:
            The running stack.

        Raises:
            Unavailable: The second attempt failed, too.
        """
        self.report_progress(f"starting the stack: {SERVERS[self._options.clusters]}")
        os.environ["TZ"] = ZONE
        stack = LocalStack.load_or_create(
            self.home, clusters=self._options.clusters, report=self.report_progress
        )
        try:
            stack.up()
        # usually another process took a port after it was chosen; `up` chooses another one
        except Unavailable as error:
            self.report_progress(f"{str(error).splitlines()[0]}\n          trying again")
            stack.down()
            stack.up()
        return stack

    def start_components(self, stack: LocalStack) -> Config:
        """Declare the event types, and start the delivery service, the tailer and the ETL.

        Args:
            stack: The running stack.

        Returns:
            The configuration of all components. The delivery service is ready for requests.

        Raises:
            Unavailable: The types could not be applied, or the service did not become ready.
        """
        write_declarations(self.work / "types")
        of_stack = tomllib.loads(stack.layout.config_file.read_text())
        settings = demo_settings(
            of_stack, stack.layout.logs, self.work / "sources", self.work / "types"
        )
        self._config_file.write_text(render_toml(settings))
        config = load_config(self._config_file)
        self.components.run_repeatable("types", "apply", seconds=180.0)
        self.report_progress("types are applied; starting service, tailer and ETL")
        self.components.start("etl")  # first, because Spark takes longest to start
        self.components.start("service")
        self.components.wait_ready(config.tailer.service_urls[0], 60.0)
        self.components.start("tailer")
        return config

    def start_traffic(self) -> Traffic:
        """Start writing the log files of the demo in a background thread.

        Lines are written during at least as many minutes as buckets were requested. The first and
        the last of these minutes are incomplete.

        Returns:
            The running writer. Call `Traffic.stop` to stop it.
        """
        span_s = traffic_seconds(self._clock.now_ms(), self._options.buckets)
        sources, options = self.work / "sources", self._options
        named = options.lines or (write_sample_file(self.work / "own.log"),)
        logs = [
            LiveLog(
                sources / LINES_SOURCE / f"{number}-{app_name(path.name)}.log",
                LINES,
                rfc5424_lines(path),
                self._clock,
            )
            for number, path in enumerate(named, 1)
        ]
        structured = structured_lines(
            int(options.rate * span_s), options.seed, broken_at_least_each=options.rate * 10
        )
        logs.append(LiveLog(sources / EVENTS_SOURCE / "player.log", None, structured, self._clock))
        traffic = Traffic(logs, span_s, self._clock)
        traffic.start()
        self.report_progress(
            f"writing for {span_s:.0f} s: {options.rate} events/s (seed {options.seed}), "
            f"{len(named)} named file(s), server logs"
        )
        return traffic

    def stop_processes(self) -> None:
        """Stop all components of Hourmark, and the servers unless the option `keep` was given."""
        self.components.stop_all()
        with suppress(UsageError):  # no stack exists yet
            if not self._options.keep:
                LocalStack.load(self.home, self.report_progress).down()

    def report_progress(self, line: str) -> None:
        """Report a line of progress, prefixed with the number of seconds since the demo started."""
        self._say(f"[{self._seconds():5.0f} s] {line}")

    def wait_until(
        self, condition: Callable[[], bool], what: str, seconds: float, pause_s: float = 0.25
    ) -> None:
        """Wait until a condition is true, and fail early if a component exits.

        Args:
            condition: Function that returns True when the wait is over.
            what: Description of the awaited event, for the error message.
            seconds: Timeout in seconds.
            pause_s: Seconds between two calls of `condition`.

        Raises:
            Unavailable: The timeout expired, or a component exited.
        """
        wait_for(condition, what, seconds, self._clock, self.components.check, pause_s=pause_s)

    def pause(self, seconds: float) -> None:
        """Wait for a fixed time, and fail early if a component of Hourmark exits.

        Args:
            seconds: Time to wait, in seconds.

        Raises:
            Unavailable: A component exited; the message names it.
        """
        end_s = self._clock.monotonic_s() + seconds
        self.wait_until(lambda: self._clock.monotonic_s() >= end_s, "time to pass", seconds + 5)

    def _conclude(self, traffic: Traffic, stack: LocalStack, config: Config) -> DemoResult:
        sizes = {
            path: path.stat().st_size
            for pattern in SERVER_LOGS
            for path in sorted(stack.layout.logs.glob(pattern))
        }
        self.report_progress(
            f"all {traffic.written:,} lines are written; the tailer delivers the rest and stops"
        )
        self.components.stop("tailer")
        self.components.run("tail", "--drain", seconds=DRAINING_SECONDS)
        drained_ms, until_s = self._clock.now_ms(), self._clock.monotonic_s() + CLOSING_SECONDS
        self.report_progress("all is acknowledged; waiting for the buckets to be closed as proved")
        with closing(WebHdfsReader(config.storage.webhdfs, config.storage.user)) as hdfs:
            early = take_snapshot(hdfs, config.storage.root)
            closed_now = partial(read_closing_states, hdfs, config.storage.root)
            found = self._wait_closed(
                closed_now,
                self._required_bucket_counts(traffic),
                next_minute_ms(drained_ms),
                until_s,
            )
            expectations = write_expectations(
                self.work / "expectations.json", config, self._judge_inputs(traffic, config, sizes)
            )
            self.report_progress("the judge compares every line with every bucket")
            judge_until_settled(
                expectations, hdfs, partial(self._wait_one_more_minute, closed_now, until_s)
            )
            snapshot = take_snapshot(hdfs, config.storage.root)
            self.components.stop("etl")
            report = verify_delivery(expectations, hdfs)  # no more buckets are closed after this
            for path, change in (
                *find_changes(early, snapshot),
                *find_changes(snapshot, take_snapshot(hdfs, config.storage.root)),
            ):
                report.add(FindingKind.CHANGED, path, change)
        promised = count_acknowledged(config)
        return DemoResult(
            outcome=outcome.as_json(report, promised, config, self._seconds()),
            report=report,
            faults=outcome.find_faults(report, promised),
            example_hour=found[TRACK_PLAYED].latest,
            config_file=self._config_file,
            expectations_file=self.work / "expectations.json",
        )

    def _judge_inputs(
        self, traffic: Traffic, config: Config, sizes: dict[Path, int]
    ) -> JudgeInputs:
        return JudgeInputs(
            logs=traffic.logs,
            server_sizes=sizes,
            host_id=(config.tailer.state_dir / "host-id").read_text().strip(),
            rules=[revision.id for revision in read_rules(config.kafka.edge).revisions],
            span_ms=(self._began_ms, self._clock.now_ms()),
            posted=self.posted,
        )

    def _required_bucket_counts(self, traffic: Traffic) -> dict[str, int]:
        # Log lines of a named file need at most one bucket for each minute in which they were
        # written.
        minutes = {
            minute for log in traffic.logs if log.event_type == LINES for minute in log.minutes
        }
        wanted = dict.fromkeys(
            (TRACK_PLAYED, AD_SHOWN, SERVER_LOG, DEAD_LETTERS), self._options.buckets
        )
        return {**wanted, LINES: min(self._options.buckets, len(minutes))}

    def _wait_closed(
        self, closed_now: ReadClosing, wanted: dict[str, int], end_ms: int, until_s: float
    ) -> dict[str, TypeClosingState]:
        progress = ClosingStallDetector(self._clock)
        found: dict[str, TypeClosingState] = {}

        def enough() -> bool:
            nonlocal found
            found = closed_now()
            if progress.update(found):
                self.report_progress(f"non-empty buckets proved: {format_closing(found)}")
            if progress.stalled_s > STALLED_SECONDS:
                raise Unavailable(
                    f"no bucket was closed for {STALLED_SECONDS:.0f} s; the log of the ETL is "
                    f"{self.components.log('etl')}"
                )
            return are_buckets_closed(found, wanted, end_ms)

        self.pause((end_ms - self._clock.now_ms()) / _MS)
        seconds = max(1.0, until_s - self._clock.monotonic_s())
        self.wait_until(
            enough,
            f"{self._options.buckets} non-empty buckets of every type, closed as proved",
            seconds,
            POLL_SECONDS,
        )
        return found

    def _wait_one_more_minute(
        self, closed_now: ReadClosing, until_s: float, report: JudgeReport
    ) -> bool:
        # Lines that are still missing may arrive late.
        end_ms = min(found.end_ms for found in closed_now().values()) + BUCKET_SECONDS * _MS
        self.report_progress(
            f"{sum(c.lost for c in report.types.values()):,} lines are in no closed "
            "bucket yet; waiting for the next minute"
        )
        seconds = until_s - self._clock.monotonic_s()
        if seconds <= 0:
            return False
        wanted = dict.fromkeys((*TYPES, DEAD_LETTERS), 0)
        with suppress(Unavailable):
            self.wait_until(
                lambda: are_buckets_closed(closed_now(), wanted, end_ms),
                "the next minute to close",
                seconds,
                POLL_SECONDS,
            )
            return True
        return False

    def _seconds(self) -> float:
        return self._clock.monotonic_s() - self._began_s


def next_minute_ms(now_ms: int) -> int:
    """Return the start of the next full minute after a given time.

    Args:
        now_ms: Time in Unix milliseconds.

    Returns:
        Unix milliseconds, always greater than `now_ms`.
    """
    length_ms = BUCKET_SECONDS * _MS
    return (now_ms // length_ms + 1) * length_ms


def traffic_seconds(now_ms: int, buckets: int) -> float:
    """Return how long to write log lines so that they span a given number of one-minute buckets.

    Writing ends ten seconds before the end of the last minute, so that the last lines can be
    delivered in time. The current minute counts only if at least 15 seconds of it are left.

    Args:
        now_ms: Start of writing, in Unix milliseconds.
        buckets: Number of minutes, at least 1.

    Returns:
        Seconds from `now_ms` until writing ends.
    """
    rest_s = (next_minute_ms(now_ms) - now_ms) / _MS
    more = buckets - 1 if rest_s >= _FIRST_MINUTE_MIN_S else buckets
    return rest_s + more * BUCKET_SECONDS - _SPARE_S


def lock_home(home: Path) -> AbstractContextManager[None]:
    """Return a context manager that holds an exclusive lock on the folder of a demo.

    Args:
        home: Folder of the demo.

    Raises:
        UsageError: On entry, if another demo holds the lock.
    """

    def refuse() -> None:
        raise UsageError(
            f"another demo runs in {home}; wait until it ends, or set HOURMARK_HOME to another folder"
        )

    return exclusive_lock(home / "demo.lock", refuse)
