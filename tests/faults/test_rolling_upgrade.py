"""0.2.0 and this version under one load: each component goes over to this one, one after the other, and back.

The demo's own story, with this trouble in its middle, on a stack of its own. Service and tailer are killed, so that what is on
its way is answered by the other version; mirror and ETL end as an operator would end them. The judge must be content.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.released import interpreter, why_not_there

from hourmark.clock import SystemClock
from hourmark.config import Config
from hourmark_infra.components import Components, environment
from hourmark_infra.demo.demo import Demo, Options
from hourmark_infra.demo.traffic import Traffic
from hourmark_infra.jars.cache import say_on_stderr
from hourmark_infra.stack import Stack
from hourmark_infra.stack.process import spawn
from hourmark_infra.stack.servers import MIRROR

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(2400)]

BEFORE = "0.2.0"
HERE = Path(sys.executable)
_COMMANDS = {"service": ("serve",), "tailer": ("tail",), "etl": ("etl", "run"), MIRROR: ("mirror", "run")}
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


class Rolling:
    """The trouble: all of 0.2.0 at first, each component over to this version, and back."""

    def __init__(self, before: Path) -> None:
        self.before = before

    def __call__(self, demo: Demo, traffic: Traffic, stack: Stack, config: Config) -> None:
        components = demo.components
        assert isinstance(components, Mixed)
        stack.stop(MIRROR)
        components.start(MIRROR)
        for python in (HERE, self.before):
            for name, end in (
                ("tailer", components.kill),
                ("service", components.kill),
                (MIRROR, components.stop),
                ("etl", components.stop),
            ):
                demo.pause(_APART_S)
                demo.tell(f"{name} goes over to {'this version' if python is HERE else BEFORE}; {traffic.written:,} lines written")
                end(name)
                components.python[name] = python
                components.start(name)


def test_a_rolling_upgrade_and_the_way_back_lose_and_double_nothing(tmp_path: Path) -> None:
    if why := why_not_there(BEFORE):
        pytest.skip(why)
    before = interpreter(BEFORE)
    demo = Demo(tmp_path / "home", Options(rate=100, buckets=5), SystemClock(), say_on_stderr, Rolling(before))
    demo.components = Mixed(**vars(demo.components), otherwise=before)
    result = demo.run()
    assert result.faults == [], result.report.as_text()
