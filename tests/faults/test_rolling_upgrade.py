"""0.2.0 and this version under one load: each component goes over to this one, one after the other, and back.

The demo's own story, with this trouble in its middle, on a stack of its own. Service and tailer are killed on the way up, so that
what is on its way is sent again by, and answered by, the other version. Back they go as docs/upgrading.md has it: each ends in
order, and `hourmark rollback check` agrees. The judge must be content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.released import interpreter, why_not_there

from hourmark.clock import SystemClock
from hourmark.config import Config
from hourmark_infra.components import Components, environment
from hourmark_infra.demo.declarations import EVENTS_SOURCE
from hourmark_infra.demo.demo import Demo, Options
from hourmark_infra.demo.events import events
from hourmark_infra.demo.live_log import LiveLog
from hourmark_infra.demo.traffic import Traffic
from hourmark_infra.jars.cache import say_on_stderr
from hourmark_infra.stack import Stack
from hourmark_infra.stack.process import spawn
from hourmark_infra.stack.servers import MIRROR

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]

BEFORE = "0.2.0"
RATE = 60  # lines a second
HERE = Path(sys.executable)
_COMMANDS = {"service": ("serve",), "tailer": ("tail",), "etl": ("etl", "run"), MIRROR: ("mirror", "run")}
_CLOSING_S = 900.0  # a driver takes a minute to begin where the machine is busy
_BACK_SPAN_S = 900.0
_APART_S = 12.0  # between two components: both versions are at work together


@dataclasses.dataclass
class Mixed(Components):
    """Components of two versions."""

    python: dict[str, Path] = dataclasses.field(default_factory=dict)  # by component; others: `otherwise`
    otherwise: Path = HERE

    def start(self, name: str) -> None:
        command = (str(self.python.get(name, self.otherwise)), "-m", "hourmark", *_COMMANDS[name], "--config", str(self.config))
        self.running[name] = spawn(command, environment(), self._mark(name), self.log(name))

    def command(self, *arguments: str) -> Sequence[str]:
        return (str(self.otherwise), *super().command(*arguments)[1:])

    def stop_all(self) -> None:
        super().stop_all()
        self.stop(MIRROR)

    def run_here(self, *arguments: str) -> None:
        """A command of this version, which must say that all is well."""
        command = (str(HERE), "-m", "hourmark", *arguments, "--config", str(self.config))
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


class Rolling:
    """The trouble: all of 0.2.0 at first, each component over to this version, and back."""

    def __init__(self, before: Path) -> None:
        self.before = before

    def __call__(self, demo: Demo, traffic: Traffic, stack: Stack, config: Config) -> None:
        components = demo.components
        assert isinstance(components, Mixed)
        stack.stop(MIRROR)
        components.start(MIRROR)

        def over(name: str, python: Path) -> None:
            components.python[name] = python
            components.start(name)

        def closes(version: str) -> None:
            """Wait until the driver that runs now has closed another hour."""
            before = closed(config)
            demo.wait(lambda: closed(config) > before, f"an hour closed by {version}", _CLOSING_S, pause_s=2.0)
            demo.tell(f"{version} closes hours; {traffic.written:,} lines written")

        closes(BEFORE)
        for name, end in ENDS.items():
            demo.tell(f"{name} goes over to this version; {traffic.written:,} lines written")
            end(components, name)
            over(name, HERE)
            demo.pause(_APART_S)
        closes("this version")
        more = way_back_traffic(demo)
        try:
            for name in ENDS:
                demo.tell(f"{name} goes back to {BEFORE}; {traffic.written:,} lines written")
                components.stop(name)
                if name == "etl":
                    components.run_here("ledger", "downgrade", "--to", BEFORE)
                components.run_here("rollback", "check", "--to", BEFORE, "--only", name)
                over(name, self.before)
                demo.pause(_APART_S)
            closes(BEFORE)
        finally:
            more.stop()
        assert more.failure is None
        demo.wait(lambda: traffic.done, "the last line to be written", traffic.span_s)
        traffic.logs = [*traffic.logs, *more.logs]  # the judge is told of these too


def way_back_traffic(demo: Demo) -> Traffic:
    """Lines of their own: how long it takes until both versions have closed an hour, the machine decides."""
    written = events(int(RATE * _BACK_SPAN_S), seed=2, broken_at_least_each=RATE * 10)
    log = LiveLog(demo.work / "sources" / EVENTS_SOURCE / "way-back.log", None, written, SystemClock())
    more = Traffic([log], _BACK_SPAN_S, SystemClock())
    more.start()
    return more


def closed(config: Config) -> int:
    """Hours of all types, in a ledger of either version."""
    with contextlib.closing(sqlite3.connect(config.etl.ledger.removeprefix("sqlite:///"))) as ledger:
        ((count,),) = ledger.execute("SELECT count(*) FROM buckets").fetchall()
    return int(count)


ENDS = {"tailer": Mixed.kill, "service": Mixed.kill, MIRROR: Mixed.stop, "etl": Mixed.stop}


def test_a_rolling_upgrade_and_the_way_back_lose_and_double_nothing(tmp_path: Path) -> None:
    if why := why_not_there(BEFORE):
        pytest.skip(why)
    before = interpreter(BEFORE)
    demo = Demo(tmp_path / "home", Options(rate=RATE, buckets=5), SystemClock(), say_on_stderr, Rolling(before))
    demo.components = Mixed(**vars(demo.components), otherwise=before)
    result = demo.run()
    assert result.faults == [], result.report.as_text()
