"""The story: a stack, three kinds of files, a killed leader, closed buckets, and a judge.

    the stack comes up → types are applied, the components start → files grow; a leader dies and
    returns → the last minute closes → the judge compares every line with every bucket → all is
    taken down

Whatever ends it, a fault, Ctrl-C, SIGTERM, takes all down; what a SIGKILL leaves is taken down by
the next demo of this home.
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
from typing import Any, Final

from hourmark.clock import Clock
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import Unavailable, UsageError
from hourmark.rules.rules_topic import read_rules
from hourmark_infra.components import Components, wait_for
from hourmark_infra.jars.cache import Reporter
from hourmark_infra.locks import exclusive_lock
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.control import purge_stack
from hourmark_infra.stack.options import SERVERS, Clusters
from hourmark_verify.demo import outcome
from hourmark_verify.demo.closing import Progress, TypeClosing, closed_enough, look, short
from hourmark_verify.demo.declarations import (
    EVENTS_SOURCE,
    LINES_SOURCE,
    SERVER_LOG,
    TYPES,
    write_declarations,
)
from hourmark_verify.demo.events import AD_SHOWN, TRACK_PLAYED, events
from hourmark_verify.demo.leader_kill import Fault, leader_dies
from hourmark_verify.demo.live_log import LiveLog
from hourmark_verify.demo.named_lines import TYPE as LINES
from hourmark_verify.demo.named_lines import named_lines, own_lines
from hourmark_verify.demo.promised import acknowledged
from hourmark_verify.demo.rendering import app_name
from hourmark_verify.demo.settings import BUCKET_SECONDS, SERVER_LOGS, ZONE, demo_settings
from hourmark_verify.demo.traffic import Traffic
from hourmark_verify.demo.verdict import Inputs, settled_verdict, write_expectations
from hourmark_verify.judge.buckets import DEAD_LETTERS, changes
from hourmark_verify.judge.check import judge
from hourmark_verify.judge.expectations import ApiEvent
from hourmark_verify.judge.report import Kind, Report
from hourmark_verify.judge.snapshot import take_snapshot
from hourmark_verify.judge.webhdfs import WebHdfs

DRAINING_SECONDS: Final = 180.0  # for the tailer's rest; a few seconds are usual
WRITING_SECONDS: Final = 3600.0  # for files of any size; three minutes are usual
CLOSING_SECONDS: Final = (
    900.0  # after the last line, for all to be closed; half a minute where the machine is free
)
STALLED_SECONDS: Final = 180.0  # without any bucket being closed: something is stuck
LOOK_SECONDS: Final = (
    4.0  # between looks at HDFS, each of which writes lines into the NameNode's log
)
_FIRST_MINUTE_MIN_S: Final = 15  # traffic in a shorter rest of a minute does not count as a bucket
_SPARE_S: Final = 10  # of the last minute, so that most is delivered when it ends
_MS: Final = 1000

Look = Callable[[], dict[str, TypeClosing]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for."""

    lines: tuple[Path, ...] = ()
    rate: int = 200  # structured events a second
    seed: int = 1
    buckets: int = 3  # non-empty and proved, of each type
    keep: bool = False
    clusters: Clusters = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`faults` empty: the promise was kept."""

    outcome: dict[str, Any]
    report: Report
    faults: list[str]
    example_hour: str  # a bucket of track-played that is not empty
    config_file: Path
    expectations_file: Path


class Demo:
    """One run.

    `home` holds its stack and its work; nothing of an earlier run is used. `trouble` happens while
    files grow.
    """

    def __init__(
        self, home: Path, wish: Options, clock: Clock, say: Reporter, trouble: Fault = leader_dies
    ) -> None:
        self.home = home
        self.work = home / "work"
        self._wish = wish
        self._clock = clock
        self._say = say
        self._trouble = trouble
        self.posted: list[ApiEvent] = []  # over HTTP, by the trouble, by its own record
        self._began_s, self._began_ms = clock.monotonic_s(), clock.now_ms()
        self._config_file = self.work / "hourmark.toml"
        self.components = Components(home, self._config_file, home / "stack" / "logs", clock)

    def run(self) -> Result:
        """The whole story. HourmarkError where it cannot be told to its end."""
        with alone(self.home), ExitStack() as at_the_end:
            self.begin_anew()
            at_the_end.callback(self.take_down)
            stack = self.start_stack()
            config = self.start_components(stack)
            traffic = self.start_traffic()
            at_the_end.callback(traffic.stop)
            self._trouble(self, traffic, stack, config)
            self.wait(lambda: traffic.done, "the last line to be written", WRITING_SECONDS)
            return self._conclude(traffic, stack, config)

    def begin_anew(self) -> None:
        """End what an earlier demo may have left running, and delete its data."""
        self.components.stop_all()
        purge_stack(self.home, self.tell)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def start_stack(self) -> LocalStack:
        """Start the servers, with clocks in their logs that need no guess."""
        self.tell(f"starting the stack: {SERVERS[self._wish.clusters]}")
        os.environ["TZ"] = ZONE
        stack = LocalStack.load_or_create(self.home, clusters=self._wish.clusters, report=self.tell)
        try:
            stack.up()
        # as a rule, somebody took a port between its choice and its use: `up` chooses it anew
        except Unavailable as error:
            self.tell(f"{str(error).splitlines()[0]}\n          trying once more")
            stack.down()
            stack.up()
        return stack

    def start_components(self, stack: LocalStack) -> Config:
        """Apply the types, and start service, tailer and ETL with settings of the demo's own."""
        write_declarations(self.work / "types")
        of_stack = tomllib.loads(stack.layout.config_file.read_text())
        settings = demo_settings(
            of_stack, stack.layout.logs, self.work / "sources", self.work / "types"
        )
        self._config_file.write_text(render_toml(settings))
        config = load_config(self._config_file)
        self.components.run_repeatable("types", "apply", seconds=180.0)
        self.tell("types are applied; starting service, tailer and ETL")
        self.components.start("etl")  # first, as Spark takes longest
        self.components.start("service")
        self.components.wait_ready(config.tailer.service_urls[0], 60.0)
        self.components.start("tailer")
        return config

    def start_traffic(self) -> Traffic:
        """Files begin to grow, for as many minutes as there shall be buckets, the first and the
        last of them not whole.
        """
        span_s = span_seconds(self._clock.now_ms(), self._wish.buckets)
        sources, wish = self.work / "sources", self._wish
        named = wish.lines or (own_lines(self.work / "own.log"),)
        logs = [
            LiveLog(
                sources / LINES_SOURCE / f"{number}-{app_name(path.name)}.log",
                LINES,
                named_lines(path),
                self._clock,
            )
            for number, path in enumerate(named, 1)
        ]
        structured = events(int(wish.rate * span_s), wish.seed, broken_at_least_each=wish.rate * 10)
        logs.append(LiveLog(sources / EVENTS_SOURCE / "player.log", None, structured, self._clock))
        traffic = Traffic(logs, span_s, self._clock)
        traffic.start()
        self.tell(
            f"writing for {span_s:.0f} s: {wish.rate} events/s (seed {wish.seed}), "
            f"{len(named)} named file(s), server logs"
        )
        return traffic

    def take_down(self) -> None:
        """End everything that was started here; with --keep, the servers stay."""
        self.components.stop_all()
        with suppress(UsageError):  # there may be no stack yet
            if not self._wish.keep:
                LocalStack.load(self.home, self.tell).down()

    def tell(self, line: str) -> None:
        """A line of progress."""
        self._say(f"[{self._seconds():5.0f} s] {line}")

    def wait(
        self, condition: Callable[[], bool], what: str, seconds: float, pause_s: float = 0.25
    ) -> None:
        """Wait for something, and see that no component dies meanwhile.

        Unavailable where one does, or it takes longer.
        """
        wait_for(condition, what, seconds, self._clock, self.components.check, pause_s=pause_s)

    def pause(self, seconds: float) -> None:
        """Let time pass, and see that no component dies meanwhile."""
        end_s = self._clock.monotonic_s() + seconds
        self.wait(lambda: self._clock.monotonic_s() >= end_s, "time to pass", seconds + 5)

    def _conclude(self, traffic: Traffic, stack: LocalStack, config: Config) -> Result:
        sizes = {
            path: path.stat().st_size
            for pattern in SERVER_LOGS
            for path in sorted(stack.layout.logs.glob(pattern))
        }
        self.tell(
            f"all {traffic.written:,} lines are written; the tailer delivers what is "
            "left, and says goodbye"
        )
        self.components.stop("tailer")
        self.components.run("tail", "--drain", seconds=DRAINING_SECONDS)
        drained_ms, until_s = self._clock.now_ms(), self._clock.monotonic_s() + CLOSING_SECONDS
        self.tell("all is acknowledged; waiting for the buckets to be closed as proved")
        with closing(WebHdfs(config.storage.webhdfs, config.storage.user)) as hdfs:
            early = take_snapshot(hdfs, config.storage.root)
            closed_now = partial(look, hdfs, config.storage.root)
            found = self._wait_closed(
                closed_now, self._wanted(traffic), next_minute_ms(drained_ms), until_s
            )
            told = write_expectations(
                self.work / "expectations.json", config, self._told(traffic, config, sizes)
            )
            self.tell("the judge compares every line with every bucket")
            settled_verdict(told, hdfs, partial(self._one_more_minute, closed_now, until_s))
            snapshot = take_snapshot(hdfs, config.storage.root)
            self.components.stop("etl")
            report = judge(told, hdfs)  # of all that will ever be closed
            for path, change in (
                *changes(early, snapshot),
                *changes(snapshot, take_snapshot(hdfs, config.storage.root)),
            ):
                report.add(Kind.CHANGED, path, change)
        promised = acknowledged(config)
        return Result(
            outcome=outcome.as_json(report, promised, config, self._seconds()),
            report=report,
            faults=outcome.faults(report, promised),
            example_hour=found[TRACK_PLAYED].latest,
            config_file=self._config_file,
            expectations_file=self.work / "expectations.json",
        )

    def _told(self, traffic: Traffic, config: Config, sizes: dict[Path, int]) -> Inputs:
        return Inputs(
            logs=traffic.logs,
            server_sizes=sizes,
            host_id=(config.tailer.state_dir / "host-id").read_text().strip(),
            rules=[revision.id for revision in read_rules(config.kafka.edge).revisions],
            span_ms=(self._began_ms, self._clock.now_ms()),
            posted=self.posted,
        )

    def _wanted(self, traffic: Traffic) -> dict[str, int]:
        """Non-empty buckets by type: of named lines no more than there are minutes in which some
        were written.
        """
        minutes = {
            minute for log in traffic.logs if log.event_type == LINES for minute in log.minutes
        }
        wanted = dict.fromkeys(
            (TRACK_PLAYED, AD_SHOWN, SERVER_LOG, DEAD_LETTERS), self._wish.buckets
        )
        return {**wanted, LINES: min(self._wish.buckets, len(minutes))}

    def _wait_closed(
        self, closed_now: Look, wanted: dict[str, int], end_ms: int, until_s: float
    ) -> dict[str, TypeClosing]:
        progress = Progress(self._clock)
        found: dict[str, TypeClosing] = {}

        def enough() -> bool:
            nonlocal found
            found = closed_now()
            if progress.note(found):
                self.tell(f"non-empty buckets proved: {short(found)}")
            if progress.stalled_s > STALLED_SECONDS:
                raise Unavailable(
                    f"no bucket was closed for {STALLED_SECONDS:.0f} s; see "
                    f"{self.components.log('etl')}"
                )
            return closed_enough(found, wanted, end_ms)

        self.pause((end_ms - self._clock.now_ms()) / _MS)
        seconds = max(1.0, until_s - self._clock.monotonic_s())
        self.wait(
            enough,
            f"{self._wish.buckets} non-empty buckets of every type, closed as proved",
            seconds,
            LOOK_SECONDS,
        )
        return found

    def _one_more_minute(self, closed_now: Look, until_s: float, report: Report) -> bool:
        """What was delivered after the last minute's end lies in the next one."""
        end_ms = min(found.end_ms for found in closed_now().values()) + BUCKET_SECONDS * _MS
        self.tell(
            f"{sum(c.lost for c in report.types.values()):,} lines are in no closed "
            "bucket yet; waiting for the next minute"
        )
        seconds = until_s - self._clock.monotonic_s()
        if seconds <= 0:
            return False
        wanted = dict.fromkeys((*TYPES, DEAD_LETTERS), 0)
        with suppress(Unavailable):
            self.wait(
                lambda: closed_enough(closed_now(), wanted, end_ms),
                "the next minute to close",
                seconds,
                LOOK_SECONDS,
            )
            return True
        return False

    def _seconds(self) -> float:
        return self._clock.monotonic_s() - self._began_s


def next_minute_ms(now_ms: int) -> int:
    """The end of the minute that holds this time."""
    length_ms = BUCKET_SECONDS * _MS
    return (now_ms // length_ms + 1) * length_ms


def span_seconds(now_ms: int, buckets: int) -> float:
    """How long to write from now, so that lines fall into so many minutes, and a rest of the last
    one is left to deliver them.
    """
    rest_s = (next_minute_ms(now_ms) - now_ms) / _MS
    more = buckets - 1 if rest_s >= _FIRST_MINUTE_MIN_S else buckets
    return rest_s + more * BUCKET_SECONDS - _SPARE_S


def alone(home: Path) -> AbstractContextManager[None]:
    """Hold the home's lock; UsageError if another demo holds it."""

    def refuse() -> None:
        raise UsageError(
            f"another demo runs in {home}; wait for it, or set HOURMARK_HOME to another folder"
        )

    return exclusive_lock(home / "demo.lock", refuse)
