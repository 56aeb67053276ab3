"""A real `hourmark tail` process, killed with SIGKILL at random moments under a writer that
rotates.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tailer.recorder import Received, Recorder, recording
from tests.support.waiting import wait_for

KILLS = 8
LINES = 24_000


def start(config: Path, log: Path, *more: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "hourmark", "tail", "--config", str(config), *more],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )


def configure(folder: Path, url: str, paths: str) -> Path:
    path = folder / "hourmark.toml"
    path.write_text(
        f"""
[tailer]
state_dir = "{folder}/state"
service_urls = ["{url}"]
range_bytes = 4096
scan_seconds = 0.01
report_seconds = 0.1
backoff_max_seconds = 0.1
[[tailer.sources]]
name = "app"
paths = ["{paths}"]
"""
    )
    return path


class Writer(threading.Thread):
    """Writes numbered lines, in pieces that do not end at line ends, and rotates by rename every
    3000 lines.
    """

    def __init__(self, logs: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.logs = logs
        self.rng = random.Random(seed)
        self.written: dict[int, bytes] = {}  # by inode
        self.hurry = threading.Event()
        self.pause_s = 0.02

    def run(self) -> None:
        number = 0
        for rotation in range(LINES // 3000):
            path = self.logs / "app.log"
            content = b"".join(
                b"%d %d %s\n" % (rotation, n, b"x" * self.rng.randrange(200))
                for n in range(number, number + 3000)
            )
            number += 3000
            with path.open("wb", buffering=0) as file:
                position = 0
                while position < len(content):
                    step = self.rng.randrange(1, 20_000)
                    file.write(content[position : position + step])
                    position += step
                    self.hurry.wait(self.pause_s)
                self.written[os.fstat(file.fileno()).st_ino] = content
                path.rename(self.logs / f"app.log.{rotation}")


@pytest.fixture
def seed() -> Iterator[int]:
    seed = int(os.environ.get("HOURMARK_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"HOURMARK_SEED={seed}")
    yield seed


@pytest.mark.slow
def test_killed_at_random_moments_under_rotation_each_byte_arrives_once_and_retries_are_identical(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    logs = tmp_path / "logs"
    logs.mkdir()
    recorder, faults = Recorder(), random.Random(seed + 1)

    def behaviour(one: Received) -> int | str:
        return faults.choices((200, "drop", 503), (8, 1, 1))[0]

    recorder.behaviour = behaviour
    with recording(recorder):
        config = configure(tmp_path, recorder.url, f"{logs}/app.log*")
        writer = Writer(logs, seed)
        writer.start()
        for _ in range(KILLS):
            process = start(config, tmp_path / "log")
            try:
                before = len(recorder.received)
                wanted = rng.randrange(0, 40)
                wait_for(
                    lambda: len(recorder.received) >= before + wanted or not writer.is_alive(),  # noqa: B023
                    "some ranges",
                )
                threading.Event().wait(rng.random() * 0.02)  # where within a range's way it is hit
            finally:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        writer.hurry.set()
        writer.join()
        process = start(config, tmp_path / "log", "--drain")
        assert process.wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
    contents = recorder.contents()  # asserts identical retries and no gap
    assert sorted(contents.values()) == sorted(writer.written.values())
    assert {generation for _, generation in contents} == {0}
    assert recorder.reports[-1].goodbye and recorder.last.lost_bytes == 0
    assert len({one.incarnation for one in recorder.reports}) <= KILLS + 1


@pytest.mark.slow
def test_killed_between_every_two_requests_a_range_is_the_same_or_never_again(
    tmp_path: Path, seed: int
) -> None:
    """The moment is chosen by the service: it kills the tailer before, or just after, it
    answers.
    """
    logs = tmp_path / "logs"
    logs.mkdir()
    content = b"".join(b"%d %s\n" % (n, b"y" * 90) for n in range(200))
    (logs / "app.log").write_bytes(content)
    recorder = Recorder()
    victim: list[subprocess.Popen[bytes]] = []

    def behaviour(one: Received) -> int | str:
        if one.number < 6:
            os.kill(victim[-1].pid, signal.SIGKILL)
        return "drop" if one.number % 2 else 200

    recorder.behaviour = behaviour
    with recording(recorder):
        config = configure(tmp_path, recorder.url, f"{logs}/app.log")
        for _ in range(6):
            victim.append(start(config, tmp_path / "log", "--drain"))
            assert victim[-1].wait(60) == -signal.SIGKILL
        recorder.behaviour = lambda _: 200
        victim.append(start(config, tmp_path / "log", "--drain"))
        assert victim[-1].wait(60) == 0
    assert recorder.text() == content
    assert len(recorder.received) > len({one.range.start for one in recorder.received}), (
        "no range was ever sent again"
    )


@pytest.mark.slow
def test_terminated_it_exits_0_and_says_no_goodbye(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_bytes(b"one\n")
    with recording() as recorder:
        process = start(configure(tmp_path, recorder.url, f"{logs}/app.log"), tmp_path / "log")
        try:
            recorder.wait_stored(1)
            second = start(tmp_path / "hourmark.toml", tmp_path / "log.second")
            assert second.wait(60) == 2
            assert f"process {process.pid}" in (tmp_path / "log.second").read_text()
        finally:
            process.terminate()
            assert process.wait(60) == 0
    assert recorder.reports and not any(one.goodbye for one in recorder.reports)
    assert "Traceback" not in (tmp_path / "log").read_text()
