"""`hourmark tail status`: beside a tailer that runs, after one that was killed, and without
changing anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.cli import root
from hourmark.errors import UsageError
from hourmark_producer.checkpoint.read_only import read_snapshot
from hourmark_producer.report import snapshot


def status(host: Host, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(
        root, ["tail", "status", "--json", "--config", str(host.configured(tmp_path))]
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


@contextlib.contextmanager
def process(host: Host, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command itself."""
    command = [sys.executable, "-m", "hourmark", "tail", "--config", str(host.configured(tmp_path))]
    with (
        (tmp_path / "log").open("ab") as log,
        subprocess.Popen(command, stderr=log, stdout=log) as running,
    ):
        try:
            yield running
        finally:
            running.kill()


def test_it_tells_of_a_tailer_that_runs(host: Host, recorder: Recorder, tmp_path: Path) -> None:
    host.append(lines(100) + b"no end")
    with process(host, tmp_path) as running:
        wait_for(
            lambda: bool(recorder.reports and recorder.last.caught_up_at_ms), "it is caught up"
        )
        wait_for(
            lambda: snapshot.load_snapshot(host.state) is not None, "it has said how it stands"
        )
        code, told = status(host, tmp_path)
    assert (code, told["attention"], told["pid"], told["host_id"]) == (
        0,
        [],
        running.pid,
        recorder.reports[0].host_id,
    )
    (file,) = told["files"]
    assert (file["path"], file["offset"], file["size"], file["pending_bytes"]) == (
        str(host.app),
        2300,
        2306,
        6,
    )
    assert (file["file_id"], file["generation"]) == (recorder.stored[0].range.file_id, 0)
    (source,) = told["sources"]
    assert source["bytes"] == {
        "seen": 2306,
        "acknowledged": 2300,
        "in_flight": 0,
        "pending": 6,
        "skipped": 0,
        "lost": 0,
    }


@pytest.mark.slow
def test_lag_grows_while_no_service_answers_and_what_ails_it_is_told(
    host: Host, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.behaviour = lambda _: 503
    with process(host, tmp_path):
        wait_for(
            lambda: bool(recorder.reports and recorder.last.caught_up_at_ms), "it is caught up"
        )
        host.append(lines(10))
        recorder.wait_received(2)
        wait_for(
            lambda: status(host, tmp_path)[1]["standing"]["troubles"],
            "it has said what ails it",
            20,
        )
        code, told = status(host, tmp_path)
    assert code == 1 and "responded with status 503" in told["attention"][0]
    assert told["sources"][0]["lag_seconds"] > 0 and told["files"][0]["in_flight_bytes"] == 230
    assert "responded with status 503" in told["standing"]["latest_trouble"]["message"]


@pytest.mark.slow
def test_it_tells_of_one_that_was_killed_and_leaves_its_state_as_it_is(
    host: Host, recorder: Recorder, tmp_path: Path
) -> None:
    host.append(lines(100))
    with process(host, tmp_path) as running:
        recorder.wait_stored(1)
        running.kill()
        running.wait()
    host.append(lines(10, 100))
    before = {
        path.name: path.read_bytes()
        for path in host.state.iterdir()
        if not path.name.endswith("-shm")
    }
    assert "checkpoint.sqlite-wal" in before
    code, told = status(host, tmp_path)
    assert (code, told["pid"]) == (1, None) and "no tailer is running, and" in told["attention"][0]
    assert told["files"][0]["size"] == 2530
    assert before == {
        path.name: path.read_bytes()
        for path in host.state.iterdir()
        if not path.name.endswith("-shm")
    }
    host.drain()
    assert recorder.files() == [lines(110)]


def test_a_lost_log_is_noticed_although_somebody_has_asked(
    host: Host, recorder: Recorder, tmp_path: Path
) -> None:
    host.append(lines(100))
    with process(host, tmp_path) as running:
        recorder.wait_stored(1)
        running.kill()
        running.wait()
    (host.state / "checkpoint.sqlite-wal").unlink()
    status(host, tmp_path)
    with pytest.raises(UsageError, match="write-ahead log"):
        host.drain()


def test_it_tells_losses_with_file_and_time(host: Host, recorder: Recorder, tmp_path: Path) -> None:
    recorder.behaviour = lambda _: 503
    with host.running(lines(10)):
        recorder.wait_received(1)
    host.append(lines(10, 10))
    with host.running():
        wait_for(lambda: status(host, tmp_path)[1]["files"][0]["size"] == 460, "it has grown")
        host.app.write_bytes(b"")
        recorder.behaviour = lambda _: 200
        wait_for(lambda: status(host, tmp_path)[1]["losses"], "the loss is written down")
    code, told = status(host, tmp_path)
    (loss,) = told["losses"]
    assert (loss["source"], loss["path"], loss["unknown"]) == ("app", str(host.app), 1)
    assert (
        told["sources"][0]["lost_bytes"] == loss["bytes"]
        and told["sources"][0]["unknown_losses"] == 1
    )
    assert code == 0, "a loss is told for ever, and nothing can be done about it"
    text = (
        CliRunner()
        .invoke(root, ["tail", "status", "--config", str(host.configured(tmp_path))])
        .stdout
    )
    assert f"app {host.app}: {loss['bytes']} bytes, and possibly more; truncated" in text


def test_without_a_checkpoint_it_says_what_to_do(host: Host, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        root, ["tail", "status", "--config", str(host.configured(tmp_path))]
    )
    assert isinstance(result.exception, UsageError) and "start one with `hourmark tail`" in str(
        result.exception
    )
    assert not host.state.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_one_that_may_not_be_read_is_told(host: Host) -> None:
    host.drain(lines(1))
    path = host.state / "checkpoint.sqlite"
    path.chmod(0)
    with pytest.raises(UsageError, match="cannot be read by this user"):
        read_snapshot(path)


def test_options_of_following_are_refused_with_it(host: Host, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        root, ["tail", "--drain", "status", "--config", str(host.configured(tmp_path))]
    )
    assert isinstance(result.exception, UsageError) and "--drain" in str(result.exception)


def test_the_configuration_may_be_named_before_it(host: Host, tmp_path: Path) -> None:
    host.drain(lines(1))
    result = CliRunner().invoke(
        root, ["tail", "--config", str(host.configured(tmp_path)), "status"]
    )
    assert result.exit_code == 0 and "1 files, 0 bytes pending" in result.stdout
