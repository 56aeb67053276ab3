"""Hostile clients against a running service: a good client's answers stay quick, and memory comes back.

The attacks are those of `tests.support.service.attacks.ATTACKS`, each by a process of its own while the good client is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.support.service.attacks import ATTACKS
from tests.support.service.examples import range_of, syslog
from tests.support.waiting import wait_for

from hourmark.wire import range_headers

ROOT: Final = Path(__file__).parents[3]
SETTINGS: Final = ("connections_max=256", "header_seconds=2")
FLOOR_S: Final = 0.25  # below it a busy machine of two cores, which the attacker shares, says nothing of the service
WINDOWS: Final = 5  # an attack lasts, the machine's other work does not: the best of so many
MEMORY_GROWTH: Final = 0.2
MEMORY_FLOOR: Final = (
    32 << 20
)  # what allocators keep of a process as small as this one, without Kafka's client; it does not add up


class GoodClient:
    """Posts ranges one by one on one connection, and connects anew when it is cut off."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self._starts = itertools.count(1 << 40, 1 << 20)

    def post(self, lines: int = 20) -> float:
        """How long until a range was acknowledged, however often it had to be sent."""
        body = syslog("note") * lines
        byte_range = range_of(body, start=next(self._starts), observed_at_ms=time.time_ns() // 1_000_000)
        began_s = time.monotonic()
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._connection.request("POST", "/v1/ranges", body, range_headers(byte_range))
                answer = self._connection.getresponse()
                answer.read()
                if answer.status == 200:
                    return time.monotonic() - began_s
            self._connection.close()
            assert time.monotonic() - began_s < 30, "it is acknowledged in the end"
            time.sleep(0.002)

    def percentile_99_s(self, for_s: float) -> float:
        """Of its answers within this time, and of fifty at least."""
        until_s = time.monotonic() + for_s
        took: list[float] = []
        while time.monotonic() < until_s or len(took) < 50:
            took.append(self.post())
            time.sleep(0.001)
        return sorted(took)[len(took) * 99 // 100]

    def close(self) -> None:
        self._connection.close()


class Scene:
    """A service, its good client, and what was usual before any attack."""

    def __init__(self, port: int, service: subprocess.Popen[str], attacker: subprocess.Popen[str]) -> None:
        self.good = GoodClient(port)
        self._process = psutil.Process(service.pid)
        self._attacker = attacker
        wait_for(lambda: self.good.post() > 0, "the service answers")
        for _ in range(10):
            self.good.post(lines=5000)  # what a tailer sends: the service is warm, and holds what it usually does
        self.usual_s = self.good.percentile_99_s(1)
        self.usual_bytes = self.memory_bytes()

    def memory_bytes(self) -> int:
        """What the service's process holds."""
        return int(self._process.memory_info().rss)

    def attacked(self, name: str, for_s: float) -> float:
        """The good client's 99th percentile while this attack lasts: the best of a few, so that no other noise counts."""
        best_s = float("inf")
        self._attack(name)
        for _ in range(WINDOWS):
            best_s = min(best_s, self.good.percentile_99_s(for_s))
            if best_s <= self.limit_s():
                break
        self._attack("")
        return best_s

    def _attack(self, name: str) -> None:
        assert self._attacker.stdin is not None
        assert self._attacker.stdout is not None
        self._attacker.stdin.write(name + "\n")
        self._attacker.stdin.flush()
        assert self._attacker.stdout.readline() == "ready\n", "the attack went on until it was told to end"

    def limit_s(self) -> float:
        """Twice the usual."""
        return max(2 * self.usual_s, FLOOR_S)


@contextlib.contextmanager
def running(module: str, *given: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *given]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    with running("tests.support.service.in_memory", *SETTINGS) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with running("tests.support.service.attacks", port) as attacker:
            made = Scene(int(port), process, attacker)
            with contextlib.closing(made.good):
                yield made


def withstands(for_s: float, memory_within_s: float) -> None:
    """Every attack for so long; then memory is back within so long."""
    with scene() as s:
        slow = {name: f"{took_s:.3f} s" for name in ATTACKS if (took_s := s.attacked(name, for_s)) > s.limit_s()}
        assert not slow, f"the 99th percentile was {s.usual_s:.3f} s before"
        most = s.usual_bytes + max(MEMORY_GROWTH * s.usual_bytes, MEMORY_FLOOR)
        wait_for(lambda: s.memory_bytes() <= most, f"memory is at most {most:.0f} bytes, before {s.usual_bytes}", memory_within_s)


def test_no_attack_slows_a_good_client_or_keeps_memory() -> None:
    withstands(for_s=0.3, memory_within_s=10)


@pytest.mark.long
def test_no_attack_slows_a_good_client_for_long_or_keeps_memory() -> None:
    withstands(for_s=15, memory_within_s=60)
