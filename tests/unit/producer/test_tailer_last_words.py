"""What a tailer says when it is stopped: that hours now wait for its host, and the command that
lets them close.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.cli import root


def configured(host: Host) -> Path:
    """In a folder with a space, as the command is to be copied."""
    folder = host.logs.parent / "log host"
    folder.mkdir()
    return host.configured(folder)


def stopped(config: Path, recorder: Recorder) -> subprocess.CompletedProcess[str]:
    """A tailer that has reported, and is ended as a supervisor ends it."""
    command = [sys.executable, "-P", "-m", "hourmark", "tail", "--config", str(config), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tailer:
        try:
            wait_for(lambda: bool(recorder.reports), "a report", 30)
            tailer.send_signal(signal.SIGTERM)
            out, err = tailer.communicate(timeout=30)
        finally:
            tailer.kill()
    return subprocess.CompletedProcess(command, tailer.returncode, out, err)


@pytest.mark.slow
def test_a_stopped_tailer_says_what_waits_for_it_and_how_to_take_the_host_away(
    host: Host, recorder: Recorder
) -> None:
    host.append(lines(10))
    config = configured(host)
    done = stopped(config, recorder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["goodbye"] is False
    last = done.stderr.splitlines()[-1]
    assert (
        "without a goodbye" in last
        and "app" in last
        and "etl.deadline_seconds" in last
        and "two hours" in last
    )
    (command,) = re.findall(r"`(hourmark tail --drain [^`]*)`", last)
    program = f'hourmark() {{ {sys.executable} -P -m hourmark "$@"; }}\n{command} --json'
    drained = subprocess.run(
        ["sh", "-c", program], env=os.environ, capture_output=True, text=True, check=False
    )
    assert json.loads(drained.stdout)["goodbye"] is True, drained.stderr
    assert "without a goodbye" not in drained.stderr


def test_help_says_what_a_stop_leaves_waiting() -> None:
    text = " ".join(CliRunner().invoke(root, ["tail", "--help"]).output.split())
    assert "reports no goodbye" in text and "wait for this host" in text and "--drain" in text
