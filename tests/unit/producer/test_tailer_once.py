"""One pass, `hourmark tail --once`: all that is there is delivered and reported, and the host is
awaited as always.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.support.clock import FakeClock
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.cli import root
from hourmark.errors import Unavailable, UsageError
from hourmark_producer.tailer import StallLimit


def test_one_pass_delivers_all_and_says_no_goodbye(host: Host, recorder: Recorder) -> None:
    host.settings["range_bytes"] = 1024
    summary = host.once(lines(1000) + b"no end")
    assert recorder.text() == lines(1000)
    assert (summary.finished, summary.goodbye) == (True, False)
    assert summary.unterminated == {str(host.app): 6}
    assert not any(report.goodbye for report in recorder.reports)
    assert recorder.last.caught_up_at_ms is not None, "the last report claims it"
    assert recorder.last.pending_bytes == 6
    host.once(b" now\n")
    assert recorder.text() == lines(1000) + b"no end now\n", "the next pass goes on"


def test_one_pass_gives_up_where_nobody_takes_it_and_the_next_delivers(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: 503
    with pytest.raises(Unavailable, match=r"nothing was acknowledged.*run the command again"):
        host.once(lines(10), give_up_s=0.2)
    recorder.behaviour = lambda _: 200
    assert host.once().finished
    assert recorder.text() == lines(10)


def test_what_moves_is_waited_for() -> None:
    clock = FakeClock()
    standstill = StallLimit(clock, 60)
    for ranges in range(5):
        clock.advance(50)
        standstill.check(ranges, lambda: 10)
    clock.advance(59)
    standstill.check(4, lambda: 10)
    clock.advance(1)
    with pytest.raises(Unavailable, match=r"for 60 s; 10 bytes"):
        standstill.check(4, lambda: 10)


def test_who_waits_for_ever_is_not_told() -> None:
    clock = FakeClock()
    standstill = StallLimit(clock, None)
    for _ in range(3):
        clock.advance(1e6)
        standstill.check(0, lambda: 10)


@pytest.mark.slow
def test_the_command_ends_with_exit_code_0_then_1(host: Host, recorder: Recorder) -> None:
    host.append(lines(10))
    config = host.configured(host.logs.parent)
    command = [
        sys.executable,
        "-P",
        "-m",
        "hourmark",
        "tail",
        "--config",
        str(config),
        "--once",
        "--give-up-after",
        "0.3",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) | {
        "finished": True,
        "goodbye": False,
        "bytes": len(lines(10)),
    } == json.loads(done.stdout)
    assert recorder.text() == lines(10)
    recorder.behaviour = lambda _: 503
    host.append(lines(10, 10))
    failed = subprocess.run(
        [*command, "--give-up-after", "0.3"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert failed.returncode == 1
    assert "run the command again" in failed.stderr


def test_it_is_this_or_a_drain() -> None:
    assert isinstance(CliRunner().invoke(root, ["tail", "--once", "--drain"]).exception, UsageError)
