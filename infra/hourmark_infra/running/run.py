"""`hourmark run`: servers, types and components of one configuration in one supervised process.

`Run.run_until_stopped` runs everything until Ctrl-C or SIGTERM. `Run.run_once` (`--once`) delivers
the present content of the log files and returns when all resulting buckets are closed. An
interrupted run is continued by the next one.

`run_once` starts the ETL only when all lines are acknowledged. Lines may be older than the deadline
of their hour (`etl.deadline_seconds`); an ETL that runs before they are delivered would close these
hours without them.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hourmark.clock import Clock
from hourmark.commands.canary import CANARY
from hourmark.config.groups import TailedSource, find_log_files
from hourmark.config.loading import Config, build_config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import ConfigError, Unavailable, UsageError
from hourmark.printing import name_some
from hourmark.process.durable import write_durably
from hourmark.records.hours import Hour
from hourmark.records.named_files import NAMED_FILES
from hourmark.rules.event_types import read_declarations
from hourmark_infra.components import (
    CANARIES,
    Components,
    is_service_ready,
    wait_for,
)
from hourmark_infra.java.find import export_java_home
from hourmark_infra.running.closed_buckets import (
    buckets_closed_since,
    find_open_hour,
    format_reasons,
    next_hours,
    unclosed_types,
)
from hourmark_infra.running.exited_servers import ExitedServers
from hourmark_infra.running.merged_log import MergedLog
from hourmark_infra.running.progress import RunProgress
from hourmark_infra.running.stack_holder import describe_conflict, record_applied_configuration
from hourmark_infra.running.supervisor import POLL_S, Supervisor
from hourmark_infra.stack.config_file import tailer_settings
from hourmark_infra.stack.control import LocalStack
from hourmark_infra.stack.layout import WATCH
from hourmark_infra.stack.lifecycle import last_lines, server_error
from hourmark_infra.stack.options import SERVERS, Clusters
from hourmark_infra.stack.servers import MIRROR
from hourmark_infra.stack.state import load_state

_ATOMIC_GROUPS = ("storage",)  # groups whose settings cannot be mixed with those of the stack
_NEXT_STEP: Final = "the next step"  # a step that is never long has no text of its own
_READY_S: Final = 600.0  # as for servers
_APPLY_S: Final = 600.0
_REGISTER_S: Final = 600.0  # the patterns may match many files
_DRAIN_S: Final = 24 * 3600.0  # the files may be large
_CLOSE_S: Final = 3 * 3600.0  # after a bucket's end: an hour that waits for a host closes after 2 h
_LIST_S: Final = 3.0  # interval between bucket listings, each of which starts a process
_LIST_TIMEOUT_S: Final = 300.0
# A bucket that ends later is not awaited: it is an hour, not a minute.
_BUCKET_END_MAX_S: Final = 120.0


@dataclass(frozen=True)
class RunOutcome:
    """The result of `hourmark run --once`.

    Attributes:
        seconds: Duration of the run in seconds.
        tailed: Summary of the delivered lines, as printed by `hourmark tail --drain --json`.
        buckets: Rows of `hourmark bucket ls --json` for nonempty buckets that were closed during
            the run.
        config: Path of the configuration file of the components.
        open_hour: Label of the bucket that was still open at the end, such as `2026-11-21T05`. It
            contains events of this interval and late events, and is closed by a later run. None if
            every line is in a closed bucket.
    """

    seconds: float
    tailed: Mapping[str, Any]
    buckets: Sequence[Mapping[str, Any]]
    config: Path
    open_hour: str | None = None


def merge_settings(stack: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the user's settings into the settings of the local stack.

    User settings take precedence over those of the stack. The group `storage` is not merged: if the
    user sets it, it replaces the whole group of the stack.

    Args:
        stack: Settings for using the servers of the local stack, by group.
        own: Settings in the user's configuration file, by group.

    Returns:
        The merged settings, by group. The arguments are not changed.
    """
    groups = {
        name: {**stack.get(name, {}), **group}
        if isinstance(group, Mapping) and name not in _ATOMIC_GROUPS
        else group
        for name, group in own.items()
    }
    return {**stack, **groups}


def first_hour_options(config: Config, now_ms: int) -> tuple[str, ...]:
    """Return the option `--first-hour` for `hourmark types apply`: the first bucket of new types.

    Without this option, the first bucket would be that of the current hour, for which
    `Run.run_once` does not wait. Events of hours before the first bucket are also stored, in
    buckets that are added later (back-fill).

    Args:
        config: Configuration with `types.first_hour` and the bucket length.
        now_ms: Current time in Unix milliseconds.

    Returns:
        `("--first-hour", HOUR)`, where HOUR is `types.first_hour`, or the hour before the current
        one if this setting is missing or more than 300 buckets in the past. Empty if the setting
        is not a valid hour.
    """
    first, length_s = config.types.first_hour, config.parsing.bucket_seconds
    current = Hour.containing(now_ms, length_s)
    if first is None:
        return ("--first-hour", str(current.previous()))
    try:
        begins = Hour.parse(first, length_s)
    except ValueError:
        return ()  # `types apply` reports the invalid setting
    is_recent = begins >= current.earliest_chain_start()
    return ("--first-hour", first if is_recent else str(current.previous()))


def describe_missing_files(sources: Iterable[TailedSource]) -> Iterator[str]:
    """Yield a message for each configured log source that currently has no file to read.

    Args:
        sources: The configured sources of the tailer, the component that reads log files.

    Yields:
        A message that states whether no file matches the patterns of the source, or all matching
        files are excluded. Sources without patterns are skipped.
    """
    for source in sources:
        if not source.paths or next(find_log_files(source.paths, source.exclude), None):
            continue
        patterns = name_some(source.paths)
        if next(find_log_files(source.paths, ()), None):
            reason = (
                f"exclude ({name_some(source.exclude)}) leaves out every file that matches "
                f"{patterns}"
            )
        else:
            reason = f"no file matches {patterns} now"
        yield f"source {source.name}: {reason}, so nothing of it is delivered"


def describe_rotations(registered: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each log file that was rotated or deleted since `hourmark init`.

    Args:
        registered: Output of `hourmark tail register --json`, decoded.

    Yields:
        A message that names the file to which the log was rotated, if it was found.
    """
    for path, now in registered["rotated"].items():
        yield f"{path} was rotated after `hourmark init` read it: its lines are delivered from {now}"
    for path in registered["missing"]:
        yield (
            f"{path} was rotated or deleted after `hourmark init` read it: compressed files are "
            "searched for its lines; if none has them, the end of the run reports them as lost"
        )


def names_kafka(own: Mapping[str, Any]) -> bool:
    """Return whether a configuration contains Kafka clusters and needs no local servers.

    Args:
        own: Settings in the user's configuration file, by group.

    Returns:
        True if the settings contain the group `kafka`.
    """
    return "kafka" in own


class Run:
    """One execution of `hourmark run`: delivery service, tailer, ETL and, if needed, a local stack.

    The local stack is a set of servers on this machine, which is used if the configuration names no
    Kafka cluster. Call either `run_until_stopped` or `run_once`. Always call `stop` afterwards,
    even after an exception.
    """

    def __init__(
        self,
        home: Path,
        file: Path,
        clock: Clock,
        report: Callable[[str], None],
        clusters: Clusters | None = None,
    ) -> None:
        """Initialize a run. Nothing is started.

        Args:
            home: The `HOURMARK_HOME` folder. Generated files are written to its folder `run`.
            file: Path of the user's configuration file.
            clock: Clock used for waiting.
            report: Function that receives progress messages and the lines of the merged log.
            clusters: Number of Kafka clusters of the local stack. None keeps the number of an
                existing stack; a new stack has 1.
        """
        self._home, self._file, self._clock, self._print = home, file, clock, report
        self._clusters = clusters
        self._progress = RunProgress(report, clock)
        self._report = self._progress.report
        # names the configuration whose lines are all in closed buckets
        self._complete = home / "run" / "complete"
        self.config_file = home / "run" / "hourmark.toml"
        self.components = Components(home / "run", self.config_file, home / "run" / "logs", clock)
        self._supervisor = Supervisor(self.components, clock, self._report)
        self._local: LocalStack | None = None
        self._exited: ExitedServers | None = None
        self._once = False
        self._watch: Supervisor | None = None
        self._log: MergedLog | None = None

    def run_until_stopped(self) -> None:
        """Start all components and supervise them until the user presses Ctrl-C.

        Never returns normally. If the types declare the canary (a test event for monitoring the
        pipeline), its components are also started.

        Raises:
            ConfigError: The configuration file is missing or invalid.
            Unavailable: The local stack or a component cannot be started.
            KeyboardInterrupt: The user pressed Ctrl-C.
        """
        with self._progress.awaiting(_NEXT_STEP):
            config = self._prepare()
            self._complete.unlink(missing_ok=True)
            declared = {event_type.name for event_type in read_declarations(config.types.dir).types}
            canaries = CANARIES if CANARY in declared else ()
            # the ETL first, because Spark takes longest to start
            self._start_components(config, ["etl", "service"], canaries)
            self._supervisor.start(["tailer", *canaries])
        self._report(
            f"all components run; settings: {self.config_file}. Ctrl-C stops them; "
            "`hourmark down` then stops the servers"
        )
        while True:
            self._poll()
            self._clock.sleep(POLL_S)

    def run_once(self) -> RunOutcome:
        """Deliver the current content of the log files once, and wait until buckets contain it.

        A last line without a line feed is also delivered. If the current bucket ends in more than
        two minutes, the call only waits for earlier buckets, and a later run closes the current
        one. If there is nothing new, and the previous run was complete, the call does not wait.

        Returns:
            The result of the run. Every line has become an event in a closed bucket or in the
            bucket `open_hour` of the result, or a dead letter (a line that cannot be parsed).

        Raises:
            ConfigError: The configuration file is missing or invalid.
            Unavailable: A component or command failed, a server of the local stack exited, or a
                bucket was not closed within three hours after the end of the bucket in which
                delivery finished.
        """
        self._once = True
        with self._progress.awaiting(_NEXT_STEP):
            return self._deliver_once()

    def _deliver_once(self) -> RunOutcome:
        config = self._prepare()
        was_complete = self._is_complete()
        self._complete.unlink(missing_ok=True)
        self._start_components(config, ["service"])
        with self._progress.awaiting("the ledger to be read"):
            before = self._query_json("bucket", "ls", "--summary")
        since = next_hours(before)
        for missing in describe_missing_files(config.tailer.sources):
            self._report(missing)
        tailed = self._drain_tailer()
        if was_complete and not tailed["ranges"]:
            self._mark_complete()
            self._report("there is nothing new: earlier runs delivered what the files contain")
            return self._outcome(tailed, [])
        self._supervisor.start(["etl"])
        drained = Hour.containing(self._clock.now_ms(), config.parsing.bucket_seconds)
        wait_s = drained.next().start_s - self._clock.now_ms() / 1000
        open_hour = str(drained) if wait_s > _BUCKET_END_MAX_S else None
        if open_hour is not None:
            self._report(
                f"all lines are acknowledged; the bucket {drained} ends in {wait_s / 60:.0f} "
                "minutes and is not awaited: the next run closes it"
            )
            self._wait_for_closed_buckets(drained.previous(), 0.0)
        else:
            self._report(
                f"all lines are acknowledged; the bucket {drained} ends in "
                f"{max(wait_s, 0):.0f} s and is closed soon after that"
            )
            self._wait_for_closed_buckets(drained, wait_s)
            self._mark_complete()
        with self._progress.awaiting("the closed buckets to be listed"):
            closed = self._list_closed_buckets(since)
            if open_hour is not None:
                open_hour = find_open_hour(open_hour, before, closed, self._list_open_buckets())
                if open_hour is None:
                    self._mark_complete()
        return self._outcome(
            tailed,
            buckets_closed_since(closed, since),
            open_hour=open_hour,
        )

    def _is_complete(self) -> bool:
        return self._complete.exists() and self._complete.read_bytes() == self._file_mark()

    def _mark_complete(self) -> None:
        write_durably(self._complete, self._file_mark())

    def _file_mark(self) -> bytes:
        return f"{self._file}\n".encode(errors="surrogateescape")

    def _outcome(
        self,
        tailed: Mapping[str, Any],
        buckets: Sequence[Mapping[str, Any]],
        open_hour: str | None = None,
    ) -> RunOutcome:
        return RunOutcome(
            self._progress.elapsed_s, tailed, buckets, self.config_file, open_hour=open_hour
        )

    def stop(self) -> None:
        """Stop all components and report the remaining lines of their logs.

        Call this method at the end of the run, even after an exception. The servers of the local
        stack keep running.
        """
        with self._progress.awaiting("the components to stop"):
            self.components.stop_all()
        if self._log is not None:
            self._log.close()

    def _prepare(self) -> Config:
        own = _read_toml(self._file)
        # before servers start, which takes a minute
        read_declarations(build_config(self._file, own).types.dir)
        with self._progress.awaiting("Java to be found or installed"):
            export_java_home()
        with self._progress.awaiting("the components of an earlier run to stop"):
            self.components.stop_all()  # left by a run that was killed
        if names_kafka(own):
            settings = own
            self._register_files(settings)
        else:
            settings = merge_settings(self._start_stack(own), own)
        write_durably(self.config_file, render_toml(settings).encode())
        config = load_config(self.config_file)
        self.components.logs.mkdir(parents=True, exist_ok=True)
        self._apply_types(config)
        return config

    def _register_files(self, settings: Mapping[str, Any]) -> None:
        # Before servers start: a file that is rotated meanwhile would not match the patterns any
        # more when the tailer first scans them.
        write_durably(self.config_file, render_toml(settings).encode())
        named = self._file.parent / NAMED_FILES
        command = ("tail", "register", "--named", str(named))
        with self._progress.awaiting("the log files to be registered"):
            found = self.components.query_json(*command, seconds=_REGISTER_S)
        for message in describe_rotations(found):
            self._report(message)
        with suppress(OSError):  # no harm: sources that were scanned are not registered again
            named.unlink(missing_ok=True)

    def _apply_types(self, config: Config) -> None:
        self._report(f"applying the types in {config.types.dir}")
        options = first_hour_options(config, self._clock.now_ms())
        try:
            with self._progress.awaiting("topics and schemas of the types to be created"):
                self.components.run_repeatable("types", "apply", *options, seconds=_APPLY_S)
        except UsageError as error:
            if self._local is None or not (said := describe_conflict(self._home, self._file)):
                raise
            raise UsageError(f"{error}\n{said}") from error
        if self._local is not None:
            record_applied_configuration(self._home, self._file)

    def _start_components(
        self, config: Config, first: Sequence[str], canaries: Sequence[str] = ()
    ) -> None:
        # Starts the components `first`, and waits for the service. The caller starts others later;
        # the logs of all are merged.
        names = ("service", "tailer", "etl", *canaries)
        files = {name: self.components.log(name) for name in names}
        if self._local is not None and WATCH in self._local.names:
            files[WATCH] = self._local.log(WATCH)
            self._watch = Supervisor(self._local, self._clock, self._report)
            self._watch.start([WATCH])
        self._log = MergedLog(files, self._print)
        self._supervisor.start(first)
        address = config.tailer.service_urls[0]
        awaited = f"the service to be ready at {address}"
        with self._progress.awaiting(awaited):
            wait_for(lambda: is_service_ready(address), awaited, _READY_S, self._clock, self._poll)

    def _start_stack(self, own: Mapping[str, Any]) -> dict[str, Any]:
        exists = load_state(self._home) is not None
        with self._progress.awaiting("another command to finish changing the local stack"):
            stack = LocalStack.load_or_create(
                self._home,
                clusters=self._clusters if exists else self._clusters or 1,
                bucket_seconds=own.get("parsing", {}).get("bucket_seconds"),
                report=self._report,
            )
        if describe_conflict(self._home, self._file) is None:  # else `types apply` ends the run
            self._register_files(merge_settings({"tailer": tailer_settings(stack.layout)}, own))
        self._report(
            "the configuration names no Kafka: starting the local stack "
            f"({SERVERS[stack.clusters]})"
        )
        with self._progress.awaiting("the servers to start", stack.describe_waits):
            stack.up()
        self._local = stack
        servers = [name for name in stack.names if name != WATCH]  # which is supervised
        self._exited = ExitedServers(stack, servers, self._clock)
        return tomllib.loads(stack.layout.config_file.read_text())

    def _drain_tailer(self) -> Mapping[str, Any]:
        self._report("delivering the content of the log files")
        command = self.components.command("tail", "--drain", "--final-lines", "--json")
        with self._progress.awaiting("all lines to be acknowledged"):
            status, output = run_and_wait(
                command,
                self.components.environment("tailer"),
                self.components.log("tailer"),
                self._wait_for_tailer,
            )
        if status != 0:
            raise Unavailable(
                f"the tailer did not deliver all lines (exit code {status}); its log "
                f"{self.components.log('tailer')} ends with:\n"
                f"{last_lines(self.components.log('tailer'))}\n"
                "After fixing the problem, repeat the command: it continues where this run stopped."
            )
        summary: dict[str, Any] = json.loads(output)
        return summary

    def _wait_for_tailer(self, tailer: subprocess.Popen[bytes]) -> None:
        wait_for(
            lambda: tailer.poll() is not None,
            "all lines to be acknowledged",
            _DRAIN_S,
            self._clock,
            self._poll,
        )

    def _wait_for_closed_buckets(self, last: Hour, wait_s: float) -> None:
        # `wait_s` is the time until the bucket `last` ends.
        with self._progress.awaiting(f"buckets up to {last} to be closed") as replace:
            types: list[str] = self._query_json("types", "check")["types"]

            def all_closed() -> bool:
                unclosed = unclosed_types(self._list_open_buckets(), types, str(last))
                if unclosed:
                    replace(f"buckets to be closed: {format_reasons(unclosed)}")
                return not unclosed

            wait_for(
                all_closed,
                f"the bucket {last} to be closed",
                wait_s + _CLOSE_S,
                self._clock,
                self._poll,
                pause_s=_LIST_S,
            )
        self._report(f"all buckets up to {last} are closed")

    def _list_open_buckets(self) -> list[dict[str, Any]]:
        # a row for each type, however many buckets are closed
        rows: list[dict[str, Any]] = self._query_json("bucket", "ls", "--state", "open")
        return rows

    def _list_closed_buckets(self, since: Mapping[str, str]) -> list[dict[str, Any]]:
        oldest = min(since.values(), default="")
        first = ("--from", oldest) if oldest else ()
        rows: list[dict[str, Any]] = self._query_json("bucket", "ls", "--state", "closed", *first)
        return rows

    def _query_json(self, *arguments: str) -> Any:
        return self.components.query_json(*arguments, seconds=_LIST_TIMEOUT_S)

    def _poll(self) -> None:
        self._supervisor.poll()
        # `hourmark down` stops mirror and monitor together, and the monitor must stay down then.
        if self._watch is not None and self._local is not None and self._local.is_running(MIRROR):
            self._watch.poll()
        if self._log is not None:
            self._log.report_new_lines()
        self._check_servers()

    def _check_servers(self) -> None:
        if self._local is None or self._exited is None:
            return
        for name in self._exited.find_new():
            error = server_error(self._local.server(name), "exited unexpectedly")
            if self._once:
                raise error
            self._report(str(error))


def run_and_wait(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    wait: Callable[[subprocess.Popen[bytes]], None],
) -> tuple[int, bytes]:
    """Run a command, and return its exit code and standard output.

    The output is buffered in a temporary file, so the command never blocks on a full pipe.

    Args:
        command: Program and arguments.
        environment: Environment variables of the command.
        log: File to which the standard error output is appended.
        wait: Function that returns when the process has exited. If it raises an exception, the
            process is terminated, and the exception is propagated.

    Returns:
        The exit code (negative if a signal killed the process) and the standard output.
    """
    with log.open("ab") as errors, tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        ) as process:
            try:
                wait(process)
            finally:
                process.terminate()
        output.seek(0)
        return process.returncode, output.read()


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}; `hourmark init FILE…` creates one, or "
            "name another one with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} is not valid TOML: {error}; docs/configuration.md lists all settings"
        ) from error
