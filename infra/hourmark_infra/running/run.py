"""`hourmark run`: servers, types and components of one configuration, together, until told to end;
or once, to closed buckets.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hourmark.clock import Clock
from hourmark.commands.canary import CANARY
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import ConfigError, Unavailable
from hourmark.process.durable import write_durably
from hourmark.records.hours import Hour
from hourmark.rules.event_types import read_declarations
from hourmark_infra.components import (
    CANARIES,
    Components,
    child_environment,
    is_service_ready,
    wait_for,
)
from hourmark_infra.running.closed_buckets import (
    buckets_closed_since,
    format_reasons,
    next_hours,
    unclosed_types,
)
from hourmark_infra.running.supervisor import POLL_S, Supervisor
from hourmark_infra.stack.control import LocalStack
from hourmark_infra.stack.layout import WATCH
from hourmark_infra.stack.options import SERVERS, Clusters
from hourmark_infra.stack.servers import MIRROR
from hourmark_infra.stack.state import load_state

_WHOLE = ("storage",)  # groups of which a part makes no sense with parts of the stack's


def merge_settings(stack: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of all components.

    Each setting of the user's is taken; of `storage` the whole group, or nothing.
    """
    groups = {
        name: {**stack.get(name, {}), **group}
        if isinstance(group, Mapping) and name not in _WHOLE
        else group
        for name, group in own.items()
    }
    return {**stack, **groups}


def first_hour_options(config: Config, now_ms: int) -> tuple[str, ...]:
    """Options of `types apply`: types that are new begin where the configuration says, so that
    lines that are there come into the hours of their own, while that is not too many buckets ago.
    What is no hour is for `types apply` to name.
    """
    first, length_s = config.types.first_hour, config.parsing.bucket_seconds
    if first is None:
        return ()
    try:
        begins = Hour.parse(first, length_s)
    except ValueError:
        return ()
    return (
        ("--first-hour", first)
        if begins >= Hour.containing(now_ms, length_s).earliest_chain_start()
        else ()
    )


def names_kafka(own: Mapping[str, Any]) -> bool:
    """Whether the file names servers of its own, so that no local stack is needed."""
    return "kafka" in own


_CHUNK_BYTES: Final = 1 << 16  # read of one at a time; a line that is longer comes in pieces


class MergedLog:
    """A merged view of lines appended to several log files after its creation."""

    def __init__(self, files: Mapping[str, Path], say: Callable[[str], None]) -> None:
        self._files, self._say = files, say
        self._at = {
            name: file.stat().st_size if file.exists() else 0 for name, file in files.items()
        }
        self._width = max(map(len, files), default=0)

    def follow(self) -> None:
        """Output all complete lines written since the last call, prefixed with the name of their file.

        An incomplete last line is kept for a later call. A missing file is skipped.
        """
        for name, file in self._files.items():
            while lines := self._next(name, file):
                for line in lines.splitlines():
                    self._say(f"{name:<{self._width}} | {line.decode(errors='replace')}")

    def _next(self, name: str, file: Path) -> bytes:
        try:
            with file.open("rb") as opened:
                opened.seek(self._at[name])
                piece = opened.read(_CHUNK_BYTES)
        except FileNotFoundError:  # it was not started yet
            return b""
        whole = piece[: piece.rfind(b"\n") + 1] or (piece if len(piece) == _CHUNK_BYTES else b"")
        self._at[name] += len(whole)
        return whole


_READY_S: Final = 600.0  # as servers
_APPLY_S: Final = 600.0
_DRAIN_S: Final = 24 * 3600.0  # as long as the files are large
_CLOSE_S: Final = 3 * 3600.0  # past a bucket's end: an hour that waits for a host closes after two
_AGAIN_S: Final = 15.0  # after which it is said again what is awaited, though it is the same
_ASK_S: Final = 3.0  # between questions whether buckets are closed: each costs a second of CPU


@dataclass(frozen=True)
class RunOutcome:
    """What `--once` came to. `buckets`: closed ones that hold events of this run, as `hourmark
    bucket ls --json` has them.
    """

    seconds: float
    tailed: Mapping[str, Any]
    buckets: Sequence[Mapping[str, Any]]
    config: Path


class Run:
    """One run of the configuration in `file`; what it writes itself is below `home`."""

    def __init__(
        self,
        home: Path,
        file: Path,
        clock: Clock,
        say: Callable[[str], None],
        clusters: Clusters | None = None,
    ) -> None:
        self._home, self._file, self._clock, self._say = home, file, clock, say
        self._clusters = clusters
        self._began_s = clock.monotonic_s()
        self.config_file = home / "run" / "hourmark.toml"
        self.components = Components(home / "run", self.config_file, home / "run" / "logs", clock)
        self._supervisor = Supervisor(self.components, clock, self._tell)
        self._local: LocalStack | None = None
        self._watch: Supervisor | None = None
        self._log: MergedLog | None = None

    def for_ever(self) -> None:
        """Until Ctrl-C or SIGTERM; with the site's canary, where its type is declared."""
        config = self._prepared()
        canaries = (
            CANARIES
            if CANARY in {declared.name for declared in read_declarations(config.types.dir).types}
            else ()
        )
        self._start(config, *canaries)
        self._supervisor.start(["tailer", *canaries])
        self._tell(
            f"all components run; settings: {self.config_file}. Ctrl-C ends them; "
            "`hourmark down` then stops the servers"
        )
        while True:
            self._each()
            self._clock.sleep(POLL_S)

    def once(self) -> RunOutcome:
        """Deliver what the files hold now, and wait until each line is in a closed bucket or a dead
        letter.
        """
        config = self._prepared()
        self._start(config)
        since = next_hours(self._asked("bucket", "ls", "--json"))
        tailed = self._drained()
        drained = Hour.containing(self._clock.now_ms(), config.parsing.bucket_seconds)
        wait_s = drained.next().start_s - self._clock.now_ms() / 1000
        self._tell(
            f"every line is acknowledged; the bucket {drained} ends in "
            f"{max(wait_s, 0):.0f} s, and is closed soon after"
        )
        buckets = buckets_closed_since(self._closed(drained, wait_s), since)
        return RunOutcome(
            self._clock.monotonic_s() - self._began_s, tailed, buckets, self.config_file
        )

    def stop(self) -> None:
        """End all components; servers stay."""
        self.components.stop_all()
        if self._log is not None:
            self._log.follow()

    def _prepared(self) -> Config:
        """Servers are up and types applied."""
        self.components.stop_all()  # those of a run that was killed
        own = _read_toml(self._file)
        settings = own if names_kafka(own) else merge_settings(self._stack(own), own)
        write_durably(self.config_file, render_toml(settings).encode())
        config = load_config(self.config_file)
        self.components.logs.mkdir(parents=True, exist_ok=True)
        self._tell(f"applying the types of {config.types.dir}")
        self.components.run_repeatable(
            "types", "apply", *first_hour_options(config, self._clock.now_ms()), seconds=_APPLY_S
        )
        return config

    def _start(self, config: Config, *more: str) -> None:
        """ETL and service, until that is ready.

        `more`: what will be started beside the tailer, for the one log.
        """
        files = {name: self.components.log(name) for name in ("service", "tailer", "etl", *more)}
        if self._local is not None and WATCH in self._local.names:
            files[WATCH] = self._local.log(WATCH)
            self._watch = Supervisor(self._local, self._clock, self._tell)
            self._watch.start([WATCH])
        self._log = MergedLog(files, self._say)
        self._supervisor.start(["etl", "service"])  # Spark takes longest
        address = config.tailer.service_urls[0]
        wait_for(
            lambda: is_service_ready(address),
            f"the service to be ready at {address}",
            _READY_S,
            self._clock,
            self._each,
        )

    def _stack(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the local stack, which is up."""
        made = load_state(self._home) is not None
        stack = LocalStack.load_or_make(
            self._home,
            clusters=self._clusters if made else self._clusters or 1,
            bucket_seconds=own.get("parsing", {}).get("bucket_seconds"),
            say=self._tell,
        )
        self._tell(f"no Kafka is named: starting the local stack ({SERVERS[stack.clusters]})")
        stack.up()
        self._local = stack
        return tomllib.loads(stack.layout.config_file.read_text())

    def _drained(self) -> Mapping[str, Any]:
        """What the tailer says that it came to."""
        self._tell("delivering what the files hold")
        command = self.components.command("tail", "--drain", "--json")
        status, said = run_and_wait(command, self.components.log("tailer"), self._await_drained)
        if status != 0:
            raise Unavailable(
                f"the tailer did not deliver all (exit {status}); its log is "
                f"{self.components.log('tailer')}"
            )
        told: dict[str, Any] = json.loads(said)
        return told

    def _await_drained(self, tailer: subprocess.Popen[bytes]) -> None:
        wait_for(
            lambda: tailer.poll() is not None,
            "all lines to be acknowledged",
            _DRAIN_S,
            self._clock,
            self._each,
        )

    def _closed(self, drained: Hour, wait_s: float) -> list[dict[str, Any]]:
        """Rows of `bucket ls`, once no type has this bucket open."""
        types: list[str] = self._asked("types", "check", "--json")["types"]
        rows: list[dict[str, Any]] = []
        told, told_s = "", self._clock.monotonic_s()

        def closed() -> bool:
            nonlocal rows, told, told_s
            rows, before = self._asked("bucket", "ls", "--json"), told
            awaited = unclosed_types(rows, types, str(drained))
            told = format_reasons(awaited)
            if told != before or self._clock.monotonic_s() - told_s >= _AGAIN_S:
                told_s = self._clock.monotonic_s()
                self._tell(told)
            return not awaited

        wait_for(
            closed,
            f"the bucket {drained} to be closed",
            wait_s + _CLOSE_S,
            self._clock,
            self._each,
            pause_s=_ASK_S,
        )
        return rows

    def _asked(self, *arguments: str) -> Any:
        """What a command says as JSON."""
        command = self.components.command(*arguments)
        done = subprocess.run(
            command,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"hourmark {shlex.join(arguments)} failed:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout)

    def _each(self) -> None:
        self._supervisor.look()
        if (
            self._watch is not None and self._local is not None and self._local.runs(MIRROR)
        ):  # `hourmark down` ends both for good
            self._watch.look()
        if self._log is not None:
            self._log.follow()

    def _tell(self, line: str) -> None:
        self._say(f"[{self._clock.monotonic_s() - self._began_s:5.0f} s] {line}")


def run_and_wait(
    command: Sequence[str], log: Path, await_end: Callable[[subprocess.Popen[bytes]], None]
) -> tuple[int, bytes]:
    """Run a command and return its exit code and all of its standard output.

    The output goes to a temporary file: a pipe that is not read holds 64 KiB only, and the command
    would wait for ever.

    Args:
        command: The program and its arguments.
        log: Where its standard error is appended.
        await_end: Returns when the process has ended. The process is terminated where this raises.
    """
    with log.open("ab") as errors, tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            command, env=child_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        ) as process:
            try:
                await_end(process)
            finally:
                process.terminate()
        output.seek(0)
        return process.returncode, output.read()


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}; `hourmark init FILE…` writes one, or "
            "name yours with --config"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{file} is no valid TOML: {error}; docs/configuration.md lists all settings"
        ) from error
