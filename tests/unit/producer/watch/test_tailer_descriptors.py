"""More files than descriptors: each has its turn, and the network always has some left."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.process.file_identity import FileIdentity, identify
from hourmark.records.host_reports import HostReport
from hourmark_producer.files import waits


@pytest.mark.slow
def test_more_unread_files_than_descriptors_do_not_stop_delivery(
    host: Host, recorder: Recorder
) -> None:
    """Connections need some too: where files take them all, nothing is ever read, so none is ever
    given back.
    """
    for n in range(300):
        host.append(lines(3, 3 * n), host.logs / f"app.log.{n}")
    folder = host.logs.parent / "settings"
    folder.mkdir()
    command = [
        sys.executable,
        "-P",
        "-m",
        "hourmark",
        "tail",
        "--config",
        str(host.configured(folder)),
        "--drain",
        "--json",
    ]
    limited = ["sh", "-c", 'ulimit -n 140; exec "$@"', "tail", *command]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["bytes"] == len(lines(900))
    assert sorted(recorder.text().splitlines()) == lines(900).splitlines()


@pytest.mark.slow
def test_files_that_are_never_read_to_their_end_give_others_their_turn(
    host: Host, recorder: Recorder
) -> None:
    host.open_files_max = 16
    host.settings["range_bytes"] = 1024
    refused = {str(host.logs / f"app.log.{n:02}") for n in range(40)}
    recorder.behaviour = lambda one: 503 if one.range.path in refused else 200
    for n in range(40):
        host.append(lines(100), host.logs / f"app.log.{n:02}")
    with host.running() as tailer:
        wait_for(lambda: len(tailer.files) == 40 and len(recorder.received) > 16, "they are known")
        for n in range(40, 60):
            host.append(lines(1, n), host.logs / f"app.log.{n:02}")
        wait_for(lambda: len(recorder.stored) == 20, "the others are delivered")
        assert sum(file.descriptor is not None for file in tailer.files) <= 17
        refused.clear()
        recorder.wait_text(lines(100) * 40 + lines(20))


@pytest.mark.slow
def test_too_few_descriptors_for_any_file_stop_the_start(host: Host) -> None:
    folder = host.logs.parent / "settings"
    folder.mkdir()
    command = [
        sys.executable,
        "-P",
        "-m",
        "hourmark",
        "tail",
        "--config",
        str(host.configured(folder)),
        "--drain",
    ]
    limited = ["sh", "-c", 'ulimit -n 60; exec "$@"', "tail", *command]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "60 files" in done.stderr, done.stderr[-2000:]


@pytest.mark.slow
def test_a_file_that_left_the_pattern_is_not_claimed_before_there_was_room_to_read_it(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(1))
    host.app.rename(host.logs / "old.log")
    host.append(lines(4999, 1), host.logs / "old.log")
    for n in range(40):
        host.append(lines(5, 5000 + 5 * n), host.logs / f"app.log.{n}")
    host.open_files_max, host.settings["range_bytes"] = 2, 1024
    early = list[HostReport]()
    recorder.on_report = lambda one: (
        early.append(one)
        if one.sources[0].caught_up_at_ms is not None and len(recorder.text()) < len(lines(5200))
        else None
    )
    with host.running():
        recorder.wait_text(lines(5200))
    assert not early


def test_a_file_is_packed_before_there_was_room_to_read_it(host: Host, recorder: Recorder) -> None:
    """It was looked into when it was found, so that its content is known in the packed file."""
    host.open_files_max = 16
    recorder.behaviour = lambda _: 503
    files = [host.logs / f"app.log.{n:02}" for n in range(40)]
    for n, path in enumerate(files):
        host.append(lines(20, 20 * n), path)
    with host.running() as tailer:
        wait_for(lambda: len(tailer.files) == 40, "they are known")
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.pending_bytes > 0, "a look is over"
        )
        for path in files:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        recorder.behaviour = lambda _: 200
        recorder.wait_text(lines(800))
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is read")
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


def scan_without_room(host: Host, path: Path, grow: Callable[[], None]) -> None:
    """One scan that may keep no file open; `grow` runs while `path` is opened for the first time."""
    inode, is_due = path.stat().st_ino, [True]

    def identify_and_grow(descriptor: int) -> FileIdentity:
        if os.fstat(descriptor).st_ino == inode and is_due:
            is_due.clear()
            grow()
        return identify(descriptor)

    host.identify, host.open_files_max = identify_and_grow, 0
    with host.tailer() as (tailer, _):
        tailer.scanner.scan()
    host.identify, host.open_files_max = identify, 800


def test_growth_while_a_file_is_opened_without_room_is_no_truncation(
    host: Host, recorder: Recorder
) -> None:
    host.append(lines(5))
    scan_without_room(host, host.app, lambda: host.append(lines(5, 5)))
    assert host.drain().finished
    assert recorder.text() == lines(10)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


def test_a_copy_that_grows_while_it_is_opened_without_room_is_not_sent_again(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.drain(lines(100))
    copy = host.logs / "app.log.1"
    host.append(lines(50), copy)
    scan_without_room(host, copy, lambda: host.append(lines(50, 50), copy))
    monkeypatch.setattr(waits, "COPYING_S", 0.1)
    assert host.drain().finished
    assert recorder.text() == lines(100)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


def test_a_line_in_place_of_nuls_while_a_file_is_opened_without_room_is_no_truncation(
    host: Host, recorder: Recorder
) -> None:
    def replace_nuls() -> None:
        with host.app.open("r+b") as file:
            file.write(lines(10))
        os.utime(host.app, (time.time() + 1, time.time() + 1))

    host.append(b"\0" * (1 << 16))
    scan_without_room(host, host.app, replace_nuls)
    assert host.drain().finished
    assert recorder.text() == lines(10)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)
