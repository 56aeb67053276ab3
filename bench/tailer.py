"""What the File Tailer costs on a log host, beside `zstd -1` alone of the same bytes.

    python -m bench.tailer [--json] [--only cpu|idle|memory|latency] [--megabytes N] [--rounds N] [--files N] [--backlog N]

- cpu: CPU of the tailer per byte, all its threads, without what its start and end cost, on lines of 300 bytes; beside it, in
  alternation, `zstd -1` of the same bytes in pieces as large as ranges, read from the same file. The ratio is of medians.
- idle: the share of a core that many files take to which nothing is written, and how long a line then takes that is
  appended to one of them, until it is acknowledged.
- memory: the most memory with a backlog, while the service refuses and while it is worked off. The backlog is on disk.
- latency: what one file comes to where the service takes 20 ms and 100 ms to answer, with one range on its way and with
  as many as the default allows.

The service is one that keeps nothing (`bench.tailer_sink`), so no server is needed. rsyslogd from a file to Kafka is beside the
tailer in `hourmark bench delivery`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import zstandard

from bench.tailer_sink import Sink
from hourmark.config_groups import Tailer
from hourmark_producer.compressing import ZSTD_LEVEL

LINE_BYTES: Final = 300
RANGE_BYTES: Final = Tailer().range_bytes
_WITHIN_S: Final = 600.0
_IDLE_S: Final = 60.0  # three full looks at this many
_APPENDS: Final = 10
Say = Callable[[dict[str, Any]], None]


class Bench:
    """A folder with logs, and a service."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self.sink = sink
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._folder = folder
        self._settings = folder / "hourmark.toml"
        self._text = (
            f'[tailer]\nstate_dir = "{folder}/state"\nservice_urls = ["{sink.url}"]\n'
            f'[[tailer.sources]]\nname = "app"\npaths = ["{self.logs}/*.log"]\n'
        )
        self._settings.write_text(self._text)

    def set(self, **settings: int) -> None:
        """Of the tailer, from its next start on."""
        told = "".join(f"{name} = {value}\n" for name, value in settings.items())
        self._settings.write_text(self._text.replace("[tailer]\n", f"[tailer]\n{told}", 1))

    def command(self, *more: str) -> list[str]:
        """A tailer over these logs, with the settings that a log host has."""
        return [sys.executable, "-m", "hourmark", "tail", "--config", str(self._settings), *more]

    def drain(self) -> float:
        """CPU seconds of a tailer that delivers all there is and ends."""
        process = subprocess.Popen(self.command("--drain"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"the tailer ended with {process.returncode}"
        return used.ru_utime + used.ru_stime

    @contextmanager
    def running(self) -> Iterator[psutil.Process]:
        """A tailer at work."""
        process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


def lines(count: int, seed: int = 7) -> bytes:
    """RFC 5424 lines of about LINE_BYTES with JSON, which shrink as such logs do."""
    rng = random.Random(seed)
    words = [f"{rng.getrandbits(32):x}" for _ in range(3000)]

    def line(n: int) -> str:
        fields = {"page": f"/{rng.choice(words)}/{rng.choice(words)}", "milliseconds": rng.randint(1, 5000)}
        fields |= {"user": rng.choice(words), "session": f"{rng.getrandbits(64):016x}", "agent": f"agent {rng.choice(words)}"}
        fields |= {"referrer": f"https://shop.example/{rng.choice(words)}/{rng.choice(words)}/{rng.choice(words)}"}
        text = f"<134>1 2026-11-21T21:{n // 60_000 % 60:02d}:{n // 1000 % 60:02d}.{n % 1000:03d}Z web-{n % 7} app {n % 9999} "
        text += f"page-viewed - {json.dumps(fields)}"
        return text[:-1] + "," + f'"pad": "{" ".join(rng.choices(words, k=9))}'[: LINE_BYTES - len(text) - 3] + '"}\n'

    return "".join(map(line, range(count))).encode()


def write(path: Path, megabytes: float, seed: int = 7) -> int:
    """A log of so much; its size."""
    blocks, rng, size = [lines(5000, seed + n) for n in range(8)], random.Random(seed), 0
    with path.open("wb") as file:
        while size < megabytes * 1e6:
            size += file.write(rng.choice(blocks))
    return size


def compressing_s(path: Path) -> float:
    """CPU seconds of `zstd -1` alone, reading included."""
    began, compressor = time.process_time(), zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    with path.open("rb", buffering=0) as file:
        while block := file.read(RANGE_BYTES):
            compressor.compress(block)
    return time.process_time() - began


def cpu(bench: Bench, say: Say, megabytes: float, rounds: int) -> None:
    """Per byte, beside zstd."""
    ours, alone = [], []
    bench.drain()  # the first one compiles and makes a checkpoint
    for number in range(rounds):
        nothing_s = bench.drain()
        log = bench.logs / f"app-{number}.log"
        size = write(log, megabytes, number)
        alone.append(compressing_s(log) / size * 1e9)
        ours.append((bench.drain() - nothing_s) / size * 1e9)
        log.unlink()
        say({"kind": "cpu round", "round": number, "tailer_ns_a_byte": ours[-1], "zstd_ns_a_byte": alone[-1]})
    ratio = statistics.median(ours) / statistics.median(alone)
    say({
        "kind": "cpu", "line_bytes": LINE_BYTES, "megabytes": megabytes, "tailer_mb_a_cpu_second": 1e3 / statistics.median(ours),
        "zstd_mb_a_cpu_second": 1e3 / statistics.median(alone), "ratio_to_zstd": ratio, "load": os.getloadavg()[0],
    })  # fmt: skip


def idle(bench: Bench, say: Say, files: int) -> None:
    """The share of a core, and how late an appended line is noticed."""
    text = lines(1)
    for number in range(files):
        (bench.logs / f"{number:06d}.log").write_bytes(text)
    before = bench.sink.told()["bytes"]
    with bench.running() as tailer:
        _until(lambda: bench.sink.told()["bytes"] - before == files * len(text), "all are read")
        time.sleep(10.0)  # until nothing of it is left to do
        share = _cpu_share(tailer, _IDLE_S)
        seconds, rng = [], random.Random(7)
        for _ in range(_APPENDS):
            seen, began = bench.sink.told()["bytes"], time.monotonic()
            with (bench.logs / f"{rng.randrange(files):06d}.log").open("ab") as file:
                file.write(text)
            _until(lambda seen=seen: bench.sink.told()["bytes"] > seen, "an appended line is sent")  # type: ignore[misc]
            seconds.append(time.monotonic() - began)
            time.sleep(rng.uniform(0.0, 2.0))
        memory_mib = tailer.memory_info().rss / 2**20
    say({
        "kind": "idle", "files": files, "percent_of_a_core": share * 100, "append_to_ack_s": statistics.median(seconds),
        "append_to_ack_s_max": max(seconds), "rss_mib": memory_mib, "load": os.getloadavg()[0],
    })  # fmt: skip


def memory(bench: Bench, say: Say, megabytes: float) -> None:
    """The most of it, in MiB, refused and then worked off; and the state folder's size."""
    count = 10
    size = sum(write(bench.logs / f"{number}.log", megabytes / count, number) for number in range(count))
    before = bench.sink.told()["bytes"]
    bench.sink.outage()
    with bench.running() as tailer:
        refused_mib = _most(tailer, lambda began: time.monotonic() - began > 10)
        spooled = sum(file.stat().st_size for file in (bench.logs.parent / "state").iterdir())
        bench.sink.outage(ended=True)
        worked_mib = _most(tailer, lambda _: bench.sink.told()["bytes"] - before >= size)
    say({
        "kind": "memory", "backlog_mb": size / 1e6, "rss_mib_refused": refused_mib, "rss_mib_worked_off": worked_mib,
        "state_mb_refused": spooled / 1e6,
    })  # fmt: skip


def latency(bench: Bench, say: Say, seconds: float) -> None:
    """MB a second of one file while each answer takes a while."""
    for most in (1, Tailer().ranges_in_flight):
        bench.set(ranges_in_flight=most)
        for answer_s in (0.02, 0.1):
            log = bench.logs / f"one-{most}-{answer_s}.log"
            write(log, 500)
            bench.sink.delay(answer_s)
            before = bench.sink.told()["bytes"]
            with bench.running():
                rate = _rate(bench, before + 10 * RANGE_BYTES, seconds)
            bench.sink.delay(0.0)
            log.unlink()
            say({"kind": "latency", "ranges_in_flight": most, "answer_s": answer_s, "megabytes_a_second": rate / 1e6})


def _rate(bench: Bench, begins_at: int, seconds: float) -> float:
    """Bytes a second, after so many."""
    _until(lambda: bench.sink.told()["bytes"] > begins_at, "it has begun")
    before, began = bench.sink.told()["bytes"], time.monotonic()
    time.sleep(seconds)
    return (bench.sink.told()["bytes"] - before) / (time.monotonic() - began)


def _cpu_share(process: psutil.Process, seconds: float) -> float:
    def used() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def _most(process: psutil.Process, is_over: Callable[[float], bool]) -> float:
    began, most = time.monotonic(), 0
    while not is_over(began):
        assert time.monotonic() - began < _WITHIN_S, "the backlog is not worked off"
        most = max(most, process.memory_info().rss)
        time.sleep(0.05)
    return most / 2**20


def _until(condition: Callable[[], bool], what: str) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < _WITHIN_S, f"not within {_WITHIN_S:g} s: {what}"
        time.sleep(0.02)


def main() -> None:
    """The command line."""
    arguments = argparse.ArgumentParser(
        prog="hourmark bench tailer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments.add_argument("--only", choices=("cpu", "idle", "memory", "latency"), help="leave all else out")
    arguments.add_argument("--megabytes", type=float, default=300, help="of a round of cpu")
    arguments.add_argument("--rounds", type=int, default=3, help="of cpu")
    arguments.add_argument("--files", type=int, default=10_000, help="that are idle")
    arguments.add_argument("--backlog", type=float, default=2000, help="megabytes on disk")
    asked = arguments.parse_args()

    def say(found: dict[str, Any]) -> None:
        rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}
        print(json.dumps(rounded) if asked.json else "  ".join(f"{k} {v}" for k, v in rounded.items()), flush=True)

    parts: dict[str, Callable[[Bench], None]] = {
        "cpu": lambda bench: cpu(bench, say, asked.megabytes, asked.rounds),
        "idle": lambda bench: idle(bench, say, asked.files),
        "memory": lambda bench: memory(bench, say, asked.backlog),
        "latency": lambda bench: latency(bench, say, 3.0),
    }
    sink = Sink()
    try:
        for name, part in parts.items():
            if asked.only in (None, name):
                with tempfile.TemporaryDirectory() as folder:
                    part(Bench(Path(folder), sink))
    finally:
        sink.close()


if __name__ == "__main__":
    main()
