"""A small site, all of it real: service, tailer and driver on the servers of a stack.

Tests of runbooks put it in trouble. Its service requires tokens, and its buckets last a minute.
"""

from __future__ import annotations

import datetime as dt
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.documents import ROOT
from tests.support.own_kafka import run_tool
from tests.support.servers import dfsadmin
from tests.support.shifted_clock import OFFSET_VARIABLE
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.toml_text import render_toml
from hourmark.records.hours import Hour
from hourmark_infra.components import COMMANDS, Components
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.layout import free_ports

TYPE: Final = "visit"
SOURCE: Final = "app"
COMPONENTS: Final = {  # by the name of the unit
    "hourmark-etl": "etl",
    "hourmark-service": "service",
    "hourmark-tailer": "tailer",
}
SHIFTED_CLOCK: Final = "tests.support.shifted_clock"
WITHIN_S: Final = 600.0  # a busy machine takes many times what an idle one does
_DECLARED: Final = {
    "visit.toml": """name = "visit"
fields = [{ name = "visits", type = "long" }]

[line]
payload = "pattern"
pattern = '(?P<time>\\S+) visits=(?P<visits>[0-9]+)'
time_format = "%Y-%m-%dT%H:%M:%S%z"
""",
    "sources.toml": '[[source]]\nname = "app"\nformat = "free"\ntypes = ["visit"]\n',
}


class _ShiftedClocks(Components):
    """The service takes its clock from a file, where there is one."""

    def command(self, *arguments: str) -> list[str]:
        """As the base class has it, by way of `tests.support.shifted_clock`."""
        _, _, _, *words = super().command(*arguments)
        if arguments != COMMANDS["service"]:
            return [sys.executable, "-m", "hourmark", *words]
        environment = [f"{OFFSET_VARIABLE}={self.home / 'clock'}", f"PYTHONPATH={ROOT}"]
        return ["/usr/bin/env", *environment, sys.executable, "-m", SHIFTED_CLOCK, *words]


class RunbookSite:
    """The site in a folder; a later object with the same folder goes on with it."""

    def __init__(self, stack: LocalStack, folder: Path, **groups: Mapping[str, Any]) -> None:
        """`groups`: settings that differ, by group, such as `storage`."""
        self.stack, self.folder = stack, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self.types = folder / "app.log", folder / "types"
        self.state = folder / "tailer"
        self.token, self.clock = folder / "token", folder / "clock"
        self.config = folder / "hourmark.toml"
        if not self.config.exists():
            self.config.write_text(render_toml(self._settings(groups)))
        self.components = _ShiftedClocks(folder, self.config, folder, SystemClock())

    def _settings(self, groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        ports = free_ports(("service", "metrics"))
        settings: dict[str, Any] = tomllib.loads(self.stack.layout.config_file.read_text())
        own: dict[str, dict[str, Any]] = {
            "types": {"dir": str(self.types)},
            "storage": {"root": f"{settings['storage']['root']}-{self.folder.name}"},
            "etl": {
                "ledger": f"sqlite:///{self.folder}/ledger.sqlite",
                "scratch_dir": str(self.folder / "scratch"),
                "metrics_port": ports["metrics"],
                "trigger_seconds": 1.0,
            },
            "service": {
                "port": ports["service"],
                "state_dir": str(self.folder / "service"),
                "tokens_required": True,
                "report_seconds": 1.0,
            },
            "tailer": {
                "state_dir": str(self.state),
                "service_urls": [f"http://127.0.0.1:{ports['service']}"],
                "token_file": str(self.token),
                "host_name": "web-1",
                "report_seconds": 1.0,
                "backoff_max_seconds": 2.0,
                "sources": [{"name": SOURCE, "paths": [str(self.log)]}],
            },
        }
        for name, group in (*own.items(), *groups.items()):
            settings[name] = {**settings.get(name, {}), **group}
        return settings

    @property
    def url(self) -> str:
        """Of the service."""
        (url,) = tomllib.loads(self.config.read_text())["tailer"]["service_urls"]
        return str(url)

    def declare(self, **texts: str) -> None:
        """The declarations of the site, as files; `visit="…"` replaces one."""
        self.types.mkdir(exist_ok=True)
        for name, text in {**_DECLARED, **{f"{n}.toml": text for n, text in texts.items()}}.items():
            (self.types / name).write_text(text)

    def execute(self, line: str) -> str:
        """What a command line of a runbook prints, on stdout and stderr.

        Commands for servers are carried out on those of the stack.
        """
        program, *words = shlex.split(line.replace("http://127.0.0.1:8780", self.url))
        if line.startswith("sudo systemctl restart hourmark-"):
            return self._restart(COMPONENTS[words[-1]])
        if line == "sudo systemctl restart registry":
            return self._start_server("registry")
        if line == "sudo chronyc makestep":
            self.clock.unlink()
            return ""
        if line.startswith("hdfs --daemon start "):
            return self._start_server(words[-1])
        if program == "hdfs":
            return dfsadmin(self.stack, *words[1:])
        if program == "kafka-configs.sh":
            return run_tool(self.stack.programs, "kafka.admin.ConfigCommand", *words)
        done = self.hourmark(*words) if program == "hourmark" else self.run(program, *words)
        if words[:2] == ["token", "create"]:
            self.token.write_text(done.stdout)
        return done.stdout + done.stderr

    def _restart(self, component: str) -> str:
        self.components.kill(component)
        self.start(component)
        return ""

    def _start_server(self, name: str) -> str:
        self.stack.start(name)
        self.stack.wait_ready(name)
        return ""

    def hourmark(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of Hourmark with this site's configuration, run to its end."""
        return self.run(sys.executable, "-m", "hourmark", *words)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Any program, whose Hourmark has this site's configuration."""
        environment = {n: v for n, v in os.environ.items() if not n.startswith("HOURMARK_")}
        environment |= {
            "HOURMARK_CONFIG": str(self.config),
            "HOURMARK_HOME": str(self.stack.home),
        }
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            cwd=self.folder,
            env=environment,
        )

    def well(self, *words: str) -> str:
        """What a command prints; it must end well."""
        done = self.hourmark(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def new_token(self) -> str:
        """A token that covers the tailer, in its file; the token's id."""
        self.execute("hourmark token create web --host 'web-*' --reports 'web-*'")
        return self.token_id()

    def token_id(self) -> str:
        """The id of the tailer's token."""
        return self.token.read_text().split("_")[1]

    def start(self, *names: str) -> None:
        """These daemons, unless they run; the service is ready afterwards."""
        for name in names:
            if not self.components.is_running(name):
                self.components.start(name)
            if name == "service":
                self.components.wait_ready(self.url, WITHIN_S)

    def write(self, *lines: str) -> Hour:
        """Append lines of now, as the program does (or `lines`); the bucket of now."""
        now = dt.datetime.now(dt.UTC)
        with self.log.open("a") as log:
            for line in lines or ("visits=1",):
                log.write(f"{now:%Y-%m-%dT%H:%M:%S+0000} {line}\n")
        return Hour.containing(int(now.timestamp() * 1000), 60)

    def closes(self, hour: Hour, grade: str = "proved") -> None:
        """Wait until the bucket is closed, with this grade."""
        done = self.hourmark("bucket", "wait", TYPE, str(hour), "--timeout", str(WITHIN_S - 60))
        assert f"closed as {grade}" in done.stdout, done.stdout + done.stderr

    def logged(self, component: str, text: str) -> bool:
        """Whether it said so."""
        return text in self.components.log(component).read_text(errors="replace")

    def says(self, component: str, text: str, within_s: float = WITHIN_S) -> None:
        """Wait until it says so."""
        log = self.components.log(component)
        wait_for(lambda: self.logged(component, text), f"{text!r} in {log}", within_s, 0.2)

    @contextmanager
    def log_host(self, folder: Path, state: Path) -> Iterator[RunbookSite]:
        """Another log host of the site, with its tailer's state in this folder; nothing of it runs
        at first or at the end.
        """
        settings = tomllib.loads(self.config.read_text())
        settings["tailer"] |= {
            "state_dir": str(state),
            "host_name": "web-2",
            "sources": [{"name": SOURCE, "paths": [str(folder / "app.log")]}],
        }
        (folder / "hourmark.toml").write_text(render_toml(settings))
        host = RunbookSite(self.stack, folder)
        try:
            yield host
        finally:
            host.components.stop_all()


@contextmanager
def running_site(
    stack: LocalStack, folder: Path, **groups: Mapping[str, Any]
) -> Iterator[RunbookSite]:
    """All three components run, and the first bucket is closed as proved."""
    site = RunbookSite(stack, folder, **groups)
    try:
        if not site.token.exists():
            site.declare()
            site.well("types", "apply")
            site.new_token()
        site.start("service", "tailer", "etl")
        site.closes(site.write())
        yield site
    finally:
        site.components.stop_all()
