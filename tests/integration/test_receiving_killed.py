"""A real `hourmark tail` process that receives, killed with SIGKILL at random moments under senders
that go on.

The judge looks at the disk: what stood in a segment at a kill must be in the service once, and
nothing twice.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.ports import free_port
from tests.support.tailer.recorder import Received, Recorder, recording

KILLS = 5


class Sender(threading.Thread):
    """Numbered lines over connections, until it is stopped; one that breaks is made again, and goes
    on with the next line.
    """

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.port, self.rng, self.stopped = port, random.Random(seed), threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=1) as one,
            ):
                while not self.stopped.is_set():
                    lines = [
                        b"<13>tcp %d %s" % (n, b"x" * self.rng.randrange(200))
                        for n in range(number, number + 50)
                    ]
                    number += 50
                    one.sendall(b"".join(b"%d %s" % (len(line), line) for line in lines))
                    self.stopped.wait(0.002)
            self.stopped.wait(0.01)


class UdpSender(threading.Thread):
    """Numbered lines, a datagram each, until it is stopped, whether or not somebody listens."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.stopped = port, threading.Event()

    def run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            for number in itertools.count():
                if self.stopped.wait(0.001):
                    return
                with contextlib.suppress(OSError):
                    one.sendto(b"<13>udp %d" % number, ("127.0.0.1", self.port))


def start(config: Path, log: Path, *more: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "hourmark", "tail", "--config", str(config), *more],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )


def on_disk(spools: Path) -> set[bytes]:
    """Whole lines of all segments; some may be removed meanwhile."""
    found = set[bytes]()
    for path in spools.glob("*/*.log"):
        with contextlib.suppress(FileNotFoundError):
            found |= {
                line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
            }
    return found


@pytest.mark.slow
def test_lines_that_were_on_disk_at_a_kill_are_delivered_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("HOURMARK_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"HOURMARK_SEED={seed}")
    rng, faults = random.Random(seed), random.Random(seed + 1)
    recorder, port = Recorder(), free_port()

    def behaviour(one: Received) -> int | str:
        return faults.choices((200, "drop", 503), (8, 1, 1))[0]

    recorder.behaviour = behaviour
    spools, seen = tmp_path / "state" / "spool", set[bytes]()
    udp_port = free_port()
    senders: list[Sender | UdpSender] = [Sender(port, seed), UdpSender(udp_port)]
    with recording(recorder):
        config = tmp_path / "hourmark.toml"
        config.write_text(f"""
[tailer]
state_dir = "{tmp_path}/state"
service_urls = ["{recorder.url}"]
range_bytes = 4096
scan_seconds = 0.01
report_seconds = 0.1
backoff_max_seconds = 0.1
[tailer.spool]
bytes_max = 400000
[[tailer.sources]]
name = "net"
input = "syslog+tcp://127.0.0.1:{port}"
[[tailer.sources]]
name = "datagrams"
input = "syslog+udp://127.0.0.1:{udp_port}"
""")
        for sender in senders:
            sender.start()
        for _ in range(KILLS):
            process = start(config, tmp_path / "log")
            try:
                wanted, until_s = (
                    len(recorder.received) + rng.randrange(5, 40),
                    time.monotonic() + 30,
                )
                while len(recorder.received) < wanted:
                    assert time.monotonic() < until_s, (tmp_path / "log").read_text()[-3000:]
                    seen |= on_disk(spools)
            finally:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            seen |= on_disk(spools)
        for sender in senders:
            sender.stopped.set()
            sender.join()
        recorder.behaviour = lambda _: 200
        assert start(config, tmp_path / "log", "--drain").wait(120) == 0, (
            tmp_path / "log"
        ).read_text()[-3000:]
    text = recorder.text().splitlines(
        keepends=True
    )  # asserts that retries are identical, and that there is no gap
    assert len(text) == len(set(text)), "nothing twice"
    assert seen <= set(text) and len(seen) > 500, "what was on disk is there"
    assert all(re.fullmatch(rb"<13>(tcp \d+ x*|udp \d+)\n", line) for line in text)
    assert {line[4:7] for line in seen} == {b"tcp", b"udp"}
    said = {one.source: one for one in recorder.reports[-1].sources}
    assert said["net"].lost_bytes == 0 and KILLS - 1 <= said["net"].unknown_losses <= KILLS
    assert said["datagrams"].unknown_losses >= KILLS - 1 and all(
        one.unrepeatable for one in said.values()
    )
    assert not [path for path in spools.glob("*/*") if path.suffix], "all is removed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_what_is_given_as_standard_input_is_delivered_and_the_command_ends(
    tmp_path: Path, kind: str
) -> None:
    content = b"".join(b"line %d\n" % n for n in range(5000))
    with recording() as recorder:
        config = tmp_path / "hourmark.toml"
        config.write_text(f"""
[tailer]
state_dir = "{tmp_path}/state"
service_urls = ["{recorder.url}"]
[[tailer.sources]]
name = "program"
input = "stdin"
""")
        command = [sys.executable, "-m", "hourmark", "tail", "--config", str(config)]
        if kind == "pipe":
            done = subprocess.run(
                command, input=content, capture_output=True, timeout=60, check=False
            )
        else:
            (tmp_path / "given").write_bytes(content)
            with (tmp_path / "given").open("rb") as given:
                done = subprocess.run(
                    command, stdin=given, capture_output=True, timeout=60, check=False
                )
    assert done.returncode == 0, done.stderr
    assert recorder.text() == content and not recorder.reports[-1].goodbye
    assert not list((tmp_path / "state" / "spool" / "program").iterdir())
