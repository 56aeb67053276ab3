"""The real logrotate in five configurations, a log written without a pause, and a real `hourmark
tail` killed with SIGKILL.

The tailer sends to the real delivery service, whose queue is in memory: each line must be in one
event, by its id. Truth is what was written; with copytruncate it is what stands in the copies and
the log, as logrotate itself loses what is written between copying and truncating.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.debian_programs import Program, program
from tests.support.service.examples import RAW, decoded
from tests.support.service.harness import Harness
from tests.support.service.threaded import served
from tests.support.tailer.rotated_log import CONFIGURATIONS, RotatedLog
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.kafka.topic_names import HOSTS, event_type_of_topic
from hourmark.records.host_reports import HostReport
from hourmark_delivery_service.parsing import ParsedRecord

pytestmark = pytest.mark.slow

# rotations, one of them in its first moment: with compress, files are made, rotated and packed
# within it
OUTAGE = 3
every_configuration = pytest.mark.parametrize("name", CONFIGURATIONS)


@pytest.fixture(scope="module")
def logrotate() -> Program:
    return program("logrotate", "logrotate", "libpopt0")


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("HOURMARK_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"HOURMARK_SEED={seed}")
    return seed


class TailedLog:
    """A log, and a tailer process that follows it and is killed."""

    def __init__(self, folder: Path, log: RotatedLog, url: str) -> None:
        self.log = log
        self._stderr = folder / "tailer.log"
        self._config = folder / "hourmark.toml"
        self._config.write_text(f"""
[tailer]
state_dir = "{folder}/state"
service_urls = ["{url}"]
range_bytes = 16384
scan_seconds = 0.05
report_seconds = 0.2
backoff_max_seconds = 0.2
[[tailer.sources]]
name = "anything"
paths = ["{log.logs}/app.log*"]
""")

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hourmark", "tail", "--config", str(self._config), *more]
        with self._stderr.open("ab") as stderr:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)

    @contextlib.contextmanager
    def killed_after(self) -> Iterator[None]:
        """A tailer runs meanwhile; at the end it is killed."""
        process = self.start()
        try:
            yield
            assert process.poll() is None, self.said()
        finally:
            process.kill()
            process.wait()

    def drain(self) -> None:
        process = self.start("--drain")
        try:
            assert process.wait(900) == 0, (
                self.said()
            )  # a busy machine has long left some 100 MB unread by then
        finally:
            process.kill()
            process.wait()

    def said(self) -> str:
        return self._stderr.read_text()[-5000:]


def delivered(harness: Harness) -> Counter[bytes]:
    """Lines by how many events, told apart by their ids, hold them; the same id never holds another
    line.
    """
    events: dict[bytes, bytes] = {}
    for record in list(harness.queue.records):
        event_type = event_type_of_topic(record.topic)
        if event_type is not None:
            row = decoded(ParsedRecord(event_type, record.key, record.value, 0))
            assert event_type == RAW.name, row
            assert events.setdefault(row["event_id"], row["line"]) == row["line"]
    return Counter(line + b"\n" for line in events.values())


def losses(harness: Harness) -> tuple[int, int]:
    """Bytes that are known to be lost, and occasions on which more may be, as last reported."""
    (source,) = HostReport.decode(harness.queue.of(HOSTS)[-1].value[5:]).sources
    return source.lost_bytes, source.unknown_losses


def judge(name: str, log: RotatedLog, harness: Harness) -> None:
    written, standing, found = Counter(log.written), log.standing(), delivered(harness)
    assert not [line for line, count in found.items() if count > 1], "doubled"
    assert not found - written, "altered"
    if name == "copytruncate":
        missing = written - found
        assert not missing & standing, (
            f"{len(missing & standing)} lines that stand in the log or a copy were not delivered"
        )
        assert not missing or any(losses(harness)), (
            "what logrotate lost is neither counted nor unknown"
        )
    else:
        assert not written - found, f"{len(written - found)} of {len(written)} lines were lost"
        assert losses(harness) == (0, 0)


def rotated(
    name: str, folder: Path, logrotate: Program, seed: int, rounds: int, outage: int
) -> None:
    """Rotations while a tailer runs, and while it is down; kills at random moments, also while
    logrotate works.
    """
    rng = random.Random(seed)
    with served(clock=SystemClock()) as (harness, port):
        log = RotatedLog(folder, logrotate, CONFIGURATIONS[name], seed)
        tailed = TailedLog(folder, log, f"http://127.0.0.1:{port}")
        for number in range(rounds):
            before = len(harness.queue.records)
            with tailed.killed_after():
                wait_for(lambda: len(harness.queue.records) > before, "the tailer delivers")  # noqa: B023
                threading.Event().wait(rng.random() * 0.5)
                rotating = threading.Thread(target=log.rotate)
                rotating.start()
                rotating.join(
                    rng.choice([0, 0.02, 0.1, 30])
                )  # then it is killed, perhaps in the middle
            rotating.join(30)
            threading.Event().wait(rng.random())
            for _ in range(
                rng.randrange(outage) if number else outage - 1
            ):  # unread, and even its next name gone
                log.rotate()
                threading.Event().wait(rng.random())
        log.end()
        tailed.drain()
        judge(name, log, harness)


# one of them: the long tier has all, with more kills
@pytest.mark.parametrize(
    "name",
    ["copytruncate", *(pytest.param(n, marks=pytest.mark.long) for n in ("create", "compress"))],
)
def test_under_logrotate_and_kills_each_line_is_one_event(
    name: str, logrotate: Program, tmp_path: Path, seed: int
) -> None:
    rotated(name, tmp_path, logrotate, seed, rounds=3, outage=OUTAGE)


@pytest.mark.long
@pytest.mark.timeout(1800)  # two to five minutes each, where the machine does nothing else
@every_configuration
def test_under_logrotate_and_many_kills_each_line_is_one_event(
    name: str, logrotate: Program, tmp_path: Path, seed: int
) -> None:
    rotated(name, tmp_path, logrotate, seed, rounds=40, outage=OUTAGE)
