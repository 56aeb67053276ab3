"""An older version and this one under one load: each component goes over to this one, one after the
other, and perhaps back.

The demo's own story, with this trouble in its middle, on a stack of its own. Service and tailer are
killed on the way up, so that what is on its way is sent again by, and answered by, the other
version, and the driver has open hours and staged files. Then either `hourmark types apply` begins
what the older version does not read, such as checksums of values, and an hour closes that has
records of both; or all go back as docs/operate/upgrade.md has it: each ends in order, and `hourmark
rollback check` agrees. The judge must be content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.released import interpreter, why_not_there

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.records.manifest import Manifest
from hourmark_infra.components import Components, child_environment
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.process import spawn
from hourmark_infra.stack.servers import MIRROR
from hourmark_verify.demo.configuration import EVENTS_SOURCE
from hourmark_verify.demo.demo import Demo, DemoOptions
from hourmark_verify.demo.log_lines import structured_lines
from hourmark_verify.demo.traffic import LiveLog, Traffic

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]

RATE = 60  # lines a second
HERE = Path(sys.executable)
_COMMANDS = {
    "service": ("serve",),
    "tailer": ("tail",),
    "etl": ("etl", "run"),
    MIRROR: ("mirror", "run"),
}
_CLOSING_S = 900.0  # a driver takes a minute to begin where the machine is busy
_FURTHER_SPAN_S = 900.0
_APART_S = 12.0  # between two components: both versions are at work together


@dataclasses.dataclass
class Mixed(Components):
    """Components of two versions."""

    python: dict[str, Path] = dataclasses.field(
        default_factory=dict
    )  # by component; others: `otherwise`
    otherwise: Path = HERE

    def start(self, name: str) -> None:
        command = (
            str(self.python.get(name, self.otherwise)),
            "-m",
            "hourmark",
            *_COMMANDS[name],
            "--config",
            str(self.config),
        )
        self.running[name] = spawn(command, child_environment(), self._mark(name), self.log(name))

    def command(self, *arguments: str) -> Sequence[str]:
        return (str(self.otherwise), *super().command(*arguments)[1:])

    def stop_all(self) -> None:
        super().stop_all()
        self.stop(MIRROR)

    def run_here(self, *arguments: str) -> None:
        """A command of this version, which must say that all is well."""
        command = (str(HERE), "-m", "hourmark", *arguments, "--config", str(self.config))
        done = subprocess.run(
            command,
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


class Rolling:
    """The trouble: all of an older version at first, each component over to this version, and there
    to stay, or back.

    Attributes:
        version: The older version.
        python: Its interpreter.
        stays: Whether there is no way back.
    """

    def __init__(self, version: str, python: Path, *, stays: bool) -> None:
        self.version, self.python, self.stays = version, python, stays

    def __call__(self, demo: Demo, traffic: Traffic, stack: LocalStack, config: Config) -> None:
        components = demo.components
        assert isinstance(components, Mixed)
        stack.stop(MIRROR)
        components.start(MIRROR)
        self._wait_for_closed(demo, traffic, config, self.version)
        for name, end in ENDS.items():
            demo.report_progress(
                f"{name} goes over to this version; {traffic.written:,} lines written"
            )
            end(components, name)
            self._over(demo, name, HERE)
        self._wait_for_closed(demo, traffic, config, "this version")
        more = further_traffic(demo)
        try:
            if self.stays:
                components.run_here("types", "apply")
                demo.wait_until(
                    lambda: any(checked_only_in_part(config)),
                    "an hour with records of both versions",
                    _CLOSING_S,
                    pause_s=2.0,
                )
                demo.report_progress(
                    f"hours have checksums of values; {traffic.written:,} lines written"
                )
            else:
                self._back(demo, traffic, config)
        finally:
            more.stop()
        assert more.failure is None
        demo.wait_until(lambda: traffic.done, "the last line to be written", traffic.span_s)
        traffic.logs = [*traffic.logs, *more.logs]  # the judge is told of these too

    def _back(self, demo: Demo, traffic: Traffic, config: Config) -> None:
        components = demo.components
        assert isinstance(components, Mixed)
        for name in ENDS:
            demo.report_progress(
                f"{name} goes back to {self.version}; {traffic.written:,} lines written"
            )
            components.stop(name)
            if name == "etl":
                components.run_here("ledger", "downgrade", "--to", self.version)
            components.run_here("rollback", "check", "--to", self.version, "--only", name)
            self._over(demo, name, self.python)
        self._wait_for_closed(demo, traffic, config, self.version)

    def _over(self, demo: Demo, name: str, python: Path) -> None:
        components = demo.components
        assert isinstance(components, Mixed)
        components.python[name] = python
        components.start(name)
        demo.pause(_APART_S)

    def _wait_for_closed(self, demo: Demo, traffic: Traffic, config: Config, version: str) -> None:
        """Wait until the driver that runs now has closed another hour."""
        before = closed(config)
        demo.wait_until(
            lambda: closed(config) > before, f"an hour closed by {version}", _CLOSING_S, pause_s=2.0
        )
        demo.report_progress(f"{version} closes hours; {traffic.written:,} lines written")


def checked_only_in_part(config: Config) -> Iterator[bool]:
    """Of each closed bucket: whether some of its promised events have a checksum, and others
    none.
    """
    with contextlib.closing(
        sqlite3.connect(config.etl.ledger.removeprefix("sqlite:///"))
    ) as ledger:
        for (text,) in ledger.execute("SELECT manifest FROM buckets").fetchall():
            manifest = Manifest.decode(text.encode())
            yield 0 < manifest.checked < sum(book.promised for book in manifest.books.values())


def further_traffic(demo: Demo) -> Traffic:
    """Lines of their own: how long it takes until both versions have closed an hour, the machine
    decides.
    """
    written = structured_lines(int(RATE * _FURTHER_SPAN_S), seed=2, broken_at_least_each=RATE * 10)
    log = LiveLog(
        demo.work / "sources" / EVENTS_SOURCE / "further.log", None, written, SystemClock()
    )
    more = Traffic([log], _FURTHER_SPAN_S, SystemClock())
    more.start()
    return more


def closed(config: Config) -> int:
    """Hours of all types, in a ledger of either version."""
    with contextlib.closing(
        sqlite3.connect(config.etl.ledger.removeprefix("sqlite:///"))
    ) as ledger:
        ((count,),) = ledger.execute("SELECT count(*) FROM buckets").fetchall()
    return int(count)


ENDS = {"tailer": Mixed.kill, "service": Mixed.kill, MIRROR: Mixed.stop, "etl": Mixed.stop}


@pytest.mark.parametrize(
    ("version", "stays"), [("0.2.0", False), ("0.3.0", False), ("0.3.0", True)]
)
def test_a_rolling_upgrade_and_the_way_back_lose_and_double_nothing(
    tmp_path: Path, version: str, stays: bool
) -> None:
    if why := why_not_there(version):
        pytest.skip(why)
    python = interpreter(version)
    trouble = Rolling(version, python, stays=stays)
    demo = Demo(
        tmp_path / "home", DemoOptions(rate=RATE, buckets=5), SystemClock(), print_progress, trouble
    )
    demo.components = Mixed(**vars(demo.components), otherwise=python)
    result = demo.run()
    assert result.faults == [], result.report.as_text()
