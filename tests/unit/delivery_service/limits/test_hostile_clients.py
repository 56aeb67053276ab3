"""Hostile clients against a running service: a good client's answers stay quick, and memory comes
back.

The attacks are those of `tests.support.service.attacks`, on a plain port and on one of TLS, each by
a process of its own while the good client is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.support.certificates import Authority
from tests.support.service.attacks import ATTACKS, TLS_ATTACKS
from tests.support.service.examples import range_of, syslog
from tests.support.waiting import wait_for

from hourmark.records.wire import range_headers

ROOT: Final = Path(__file__).parents[4]
SETTINGS: Final = ("connections_max=256", "header_seconds=2")
RATIO: Final = 2.0
FLOOR_S: Final = (
    0.05  # others' turns of a few milliseconds are no harm, though the usual be one millisecond
)
WINDOWS: Final = 5  # an attack lasts, the machine's other work does not: the best of so many
MEMORY_GROWTH: Final = 0.2
SLACK_BYTES: Final = (
    32 << 20
)  # where dozens of attacks take turns within seconds: what allocators keep of them differs


class GoodClient:
    """Posts ranges one by one on one connection, and connects anew when it is cut off."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self._connection = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            if tls is None
            else http.client.HTTPSConnection("localhost", port, timeout=20, context=tls)
        )
        self._starts = itertools.count(1 << 40, 1 << 20)

    def post(self, lines: int = 20) -> float:
        """How long until a range was acknowledged, however often it had to be sent."""
        return self.send(syslog("note") * lines)

    def send(self, body: bytes) -> float:
        """The same of this range."""
        byte_range = range_of(
            body, start=next(self._starts), observed_at_ms=time.time_ns() // 1_000_000
        )
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

    def __init__(
        self, good: GoodClient, service: subprocess.Popen[str], attacker: subprocess.Popen[str]
    ) -> None:
        self.good = good
        self._process = psutil.Process(service.pid)
        self._attacker = attacker
        wait_for(lambda: self.good.post() > 0, "the service answers")
        for _ in range(10):
            self.good.post(
                lines=5000
            )  # what a tailer sends: the service is warm, and holds what it usually does
        for _ in range(2):
            self.good.send(b"x\n" * (1 << 19))  # and the most that one may send
        self.usual_s = min(self.good.percentile_99_s(0.5) for _ in range(3))
        self.usual_bytes = self.memory_bytes()

    def memory_bytes(self) -> int:
        """What the service's process holds."""
        return int(self._process.memory_info().rss)

    def slowed(self, name: str, for_s: float) -> str:
        """What is to be told of an attack under which the good client waits longer than it may;
        else nothing.

        An attacker and the machine's other work take processors too. So where it waits for long,
        the same attack goes to a sink, and what the good client waits then is usual as well. The
        best of a few counts: an attack lasts, other noise does not.
        """
        took_s = usual_s = float("nan")
        for _ in range(WINDOWS):
            took_s = self._percentile_99_s(f"{name} service", for_s)
            if took_s <= max(RATIO * self.usual_s, FLOOR_S):
                return ""
            self._settle()
            usual_s = max(self.usual_s, self._percentile_99_s(f"{name} sink", for_s))
            if took_s <= RATIO * usual_s:
                return ""
        return f"{took_s:.3f} s, with a sink {usual_s:.3f} s"

    def _settle(self) -> None:
        """What an attack left for the service to do must not pass for usual."""
        for _ in range(WINDOWS):
            if self.good.percentile_99_s(0.3) <= RATIO * self.usual_s:
                break

    def _percentile_99_s(self, attack: str, for_s: float) -> float:
        self._attack(attack)
        try:
            return self.good.percentile_99_s(for_s)
        finally:
            self._attack("")

    def _attack(self, name: str) -> None:
        assert self._attacker.stdin is not None
        assert self._attacker.stdout is not None
        self._attacker.stdin.write(name + "\n")
        self._attacker.stdin.flush()
        assert self._attacker.stdout.readline() == "ready\n", (
            "the attack went on until it was told to end"
        )


@contextlib.contextmanager
def running(module: str, *given: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *given]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def listening(module: str, *given: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that prints its port."""
    with running(module, *given) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


@contextlib.contextmanager
def scene(authority: Authority | None) -> Iterator[Scene]:
    pair = authority.issue("service") if authority is not None else None
    of_tls = (
        (f"tls.certificate={pair.certificate}", f"tls.key={pair.key}") if pair is not None else ()
    )
    tls = ssl.create_default_context(cafile=authority.ca) if authority is not None else None
    with (
        listening("tests.support.service.in_memory", *SETTINGS, *of_tls) as (process, port),
        listening("tests.support.service.sink") as (_, sink_port),
        running("tests.support.service.attacks", str(port), str(sink_port)) as attacker,
        contextlib.closing(GoodClient(port, tls)) as good,
    ):
        yield Scene(good, process, attacker)


def withstands(
    attacks: Iterable[str],
    for_s: float,
    authority: Authority | None = None,
    *,
    slack_bytes: int = 0,
) -> None:
    """Each attack for so long; then memory is back within a minute, but for `slack_bytes`."""
    with scene(authority) as s:
        slow = {name: slowed for name in attacks if (slowed := s.slowed(name, for_s))}
        assert not slow, f"the 99th percentile was {s.usual_s:.3f} s before"
        most = s.usual_bytes + max(MEMORY_GROWTH * s.usual_bytes, slack_bytes)
        wait_for(
            lambda: s.memory_bytes() <= most,
            f"memory is at most {most:.0f} bytes, before {s.usual_bytes}",
            60,
        )


@pytest.mark.alone
def test_no_attack_slows_a_good_client_or_keeps_memory() -> None:
    withstands(ATTACKS, for_s=0.3, slack_bytes=SLACK_BYTES)


@pytest.mark.alone
def test_no_attack_on_tls_slows_a_good_client_or_keeps_memory(tmp_path: Path) -> None:
    withstands(TLS_ATTACKS, for_s=0.3, authority=Authority(tmp_path), slack_bytes=SLACK_BYTES)


@pytest.mark.long
@pytest.mark.timeout(
    1800
)  # some thirty attacks, a quarter of a minute each, and again where the machine was busy
def test_no_attack_slows_a_good_client_for_long_or_keeps_memory() -> None:
    withstands(ATTACKS, for_s=15)


@pytest.mark.long
@pytest.mark.timeout(
    1800
)  # some thirty attacks, a quarter of a minute each, and again where the machine was busy
def test_no_attack_on_tls_slows_a_good_client_for_long_or_keeps_memory(tmp_path: Path) -> None:
    withstands(TLS_ATTACKS, for_s=15, authority=Authority(tmp_path))
