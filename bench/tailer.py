"""CPU time, memory and latency of the File Tailer on a log host, compared with `zstd -1`.

    python -m bench.tailer [--json] [--only cpu|parts|rsyslogd|small|idle|memory|latency]
        [--megabytes N] [--rounds N] [--files N] [--backlog N]

- cpu: CPU time of the tailer per byte over all threads, without startup and shutdown, on lines of
  300 bytes; alternating with `zstd -1` on the same bytes in pieces as large as ranges, read from
  the
  same file. The ratio is of medians. If the program zstd is installed, its time for the whole file
  is reported too, because its library may be another version.
- parts: CPU time by kind of work, measured in the tailer itself (`bench.tailer_parts`).
- rsyslogd: CPU time per byte of rsyslogd from a file to Kafka (imfile, omkafka) on the same lines,
  until the brokers have them. Needs `rsyslogd` and a stack, which is started; without them, the
  result says so.
- small: files per second that are delivered after a start if each of many files has one line, with
  a service that answers at once and with one that takes 20 ms.
- idle: share of a core for many files without new lines, and the time until a line that is appended
  to one of them is acknowledged; then both without inotify.
- memory: peak memory with a backlog on disk, while the service refuses and while the backlog is
  processed.
- latency: throughput of one file if the service takes 20 ms and 100 ms to answer, with one range in
  flight and with the default maximum.

The service discards all data (`bench.tailer_sink`), so no server is needed except for rsyslogd.
`hourmark bench delivery` measures tailer and service together, compared with rsyslogd.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
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

from bench import delivery_tailed
from bench.tailer_sink import Sink
from hourmark.config.groups import TailerSettings
from hourmark_producer.send.range_spooler import ZSTD_LEVEL

LINE_BYTES: Final = 300
RANGE_BYTES: Final = TailerSettings().range_bytes
_WITHIN_S: Final = 600.0
_IDLE_S: Final = 60.0  # three full looks at this many
_APPENDS: Final = 10
# as where fs.inotify.max_user_instances is used up
_DEAF: Final = (
    "from hourmark_producer.watch.inotify import InotifyWatcher\nInotifyWatcher._opened = lambda self: "
    "None\nfrom hourmark.cli import main\nmain()"
)
_ZSTD: Final = shutil.which("zstd")
Say = Callable[[dict[str, Any]], None]


class TailerBench:
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
        """Change settings of the tailer for its next start."""
        told = "".join(f"{name} = {value}\n" for name, value in settings.items())
        self._settings.write_text(self._text.replace("[tailer]\n", f"[tailer]\n{told}", 1))

    def command(self, *more: str) -> list[str]:
        """Return the command line of a tailer for these logs with the settings of a log host."""
        return [sys.executable, "-m", "hourmark", "tail", "--config", str(self._settings), *more]

    def drain(self) -> float:
        """Deliver all lines with a tailer and return its CPU seconds."""
        return cpu_s(self.command("--drain"))

    def parts(self) -> dict[str, float]:
        """Deliver all lines and return CPU seconds by kind of work; `all` is the whole process."""
        result = self._folder / "parts.json"
        python, _, _, *tail = self.command("--drain")
        cpu_s([python, "-m", "bench.tailer_parts", str(result), *tail])
        found: dict[str, float] = json.loads(result.read_text())
        return found

    @contextmanager
    def running(self, *, deaf: bool = False) -> Iterator[psutil.Process]:
        """Run a tailer within a `with` block.

        Args:
            deaf: Whether the tailer runs without inotify.
        """
        command = self.command()
        command = [command[0], "-c", _DEAF, *command[3:]] if deaf else command
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


def lines(count: int, seed: int = 7) -> bytes:
    """Return RFC 5424 lines of about LINE_BYTES bytes with JSON that compress like real logs."""
    rng = random.Random(seed)
    words = [f"{rng.getrandbits(32):x}" for _ in range(3000)]

    def line(n: int) -> str:
        fields = {
            "page": f"/{rng.choice(words)}/{rng.choice(words)}",
            "milliseconds": rng.randint(1, 5000),
        }
        fields |= {
            "user": rng.choice(words),
            "session": f"{rng.getrandbits(64):016x}",
            "agent": f"agent {rng.choice(words)}",
        }
        fields |= {
            "referrer": f"https://shop.example/{rng.choice(words)}/{rng.choice(words)}/{rng.choice(words)}"
        }
        text = (
            "<134>1 "
            f"2026-11-21T21:{n // 60_000 % 60:02d}:{n // 1000 % 60:02d}.{n % 1000:03d}Z "
            f"web-{n % 7} app {n % 9999} "
        )
        text += f"page-viewed - {json.dumps(fields)}"
        return (
            text[:-1]
            + ","
            + f'"pad": "{" ".join(rng.choices(words, k=9))}'[: LINE_BYTES - len(text) - 3]
            + '"}\n'
        )

    return "".join(map(line, range(count))).encode()


def write(path: Path, megabytes: float, seed: int = 7) -> int:
    """Write a log of `megabytes` megabytes and return its size in bytes."""
    blocks, rng, size = [lines(5000, seed + n) for n in range(8)], random.Random(seed), 0
    with path.open("wb") as file:
        while size < megabytes * 1e6:
            size += file.write(rng.choice(blocks))
    return size


def cpu_s(command: list[str]) -> float:
    """Run a command, which must succeed, and return its CPU seconds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command[:4]} ended with {process.returncode}"
    return used.ru_utime + used.ru_stime


def compressing_s(path: Path) -> float:
    """Return the CPU seconds of `zstd -1` on a file, including reading."""
    began, compressor = time.process_time(), zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    with path.open("rb", buffering=0) as file:
        while block := file.read(RANGE_BYTES):
            compressor.compress(block)
    return time.process_time() - began


def cpu(bench: TailerBench, say: Say, megabytes: float, rounds: int) -> None:
    """Report CPU time per byte, compared with zstd."""
    ours, alone, program, nothing_s = [], [], list[float](), list[float]()
    bench.drain()  # the first one compiles and makes a checkpoint
    for number in range(rounds):
        nothing_s.append(bench.drain())
        log = bench.logs / f"app-{number}.log"
        size = write(log, megabytes, number)
        alone.append(compressing_s(log) / size * 1e9)
        ours.append((bench.drain() - statistics.median(nothing_s)) / size * 1e9)
        if _ZSTD is not None:
            program.append(
                cpu_s([_ZSTD, f"-{ZSTD_LEVEL}", "--single-thread", "-q", "-c", str(log)])
                / size
                * 1e9
            )
        log.unlink()
        say(
            {
                "kind": "cpu round",
                "round": number,
                "tailer_ns_a_byte": ours[-1],
                "zstd_ns_a_byte": alone[-1],
            }
        )
    ratio = statistics.median(ours) / statistics.median(alone)
    say(
        {
            "kind": "cpu",
            "line_bytes": LINE_BYTES,
            "megabytes": megabytes,
            "tailer_mb_a_cpu_second": 1e3 / statistics.median(ours),
            "zstd_mb_a_cpu_second": 1e3 / statistics.median(alone),
            "ratio_to_zstd": ratio,
            "load": os.getloadavg()[0],
            "zstd_program": 1e3 / statistics.median(program)
            if program
            else "zstd is not installed",
        }
    )


def parts(bench: TailerBench, say: Say, megabytes: float, rounds: int) -> None:
    """Report nanoseconds per byte by kind of work, as medians."""
    found: list[dict[str, float]] = []
    for number in range(rounds):
        nothing = bench.parts()
        log = bench.logs / f"app-{number}.log"
        size = write(log, megabytes, number)
        took = bench.parts()
        log.unlink()
        by_part = {
            part: (seconds - nothing.get(part, 0.0)) / size * 1e9 for part, seconds in took.items()
        }
        found.append(by_part | {"other threads": 2 * by_part["all"] - sum(by_part.values())})
    say(
        {
            "kind": "parts",
            "ns_a_byte": {
                part: round(statistics.median(one[part] for one in found), 3) for part in found[0]
            },
        }
    )


def rsyslogd(folder: Path, say: Say, megabytes: float) -> None:
    """Report nanoseconds per byte of rsyslogd until the brokers have all lines, or why there is
    none.
    """
    if delivery_tailed.RSYSLOGD is None:
        say({"kind": "rsyslogd", "rsyslogd": "rsyslogd is not installed"})
        return
    from bench.delivery import DeliveryBench  # imported late: it imports the stack's programs

    site = DeliveryBench(folder)
    text = lines(int(megabytes * 1e6 / LINE_BYTES))
    found = delivery_tailed.rsyslogd(site.config, site.name, text, folder / "rsyslogd")
    took = (
        {"rsyslogd": found}
        if isinstance(found, str)
        else {"rsyslogd_ns_a_byte": found["rsyslogd"] / len(text) * 1e9}
    )
    say({"kind": "rsyslogd", "megabytes": len(text) / 1e6, **took})


def small(bench: TailerBench, say: Say, files: int) -> None:
    """Report files per second from the start of the process to its end."""
    for seed, answer_s in enumerate((0.0, 0.02)):
        # A new file with the inode and the content of a deleted one counts as that file, restored.
        text = lines(1, seed)
        names = [bench.logs / f"{answer_s}-{number:06d}.log" for number in range(files)]
        for name in names:
            name.write_bytes(text)
        bench.sink.delay(answer_s)
        began, used_s = time.monotonic(), bench.drain()
        took_s = time.monotonic() - began
        bench.sink.delay(0.0)
        for name in names:
            name.unlink()
        say(
            {
                "kind": "small",
                "files": files,
                "answer_s": answer_s,
                "files_a_second": files / took_s,
                "cpu_ms_a_file": used_s / files * 1e3,
                "load": os.getloadavg()[0],
            }
        )


def idle(bench: TailerBench, say: Say, files: int, *, deaf: bool = False) -> None:
    """Report the share of a core, and the delay after which an appended line is noticed."""
    text = lines(1)
    for number in range(files):
        (bench.logs / f"{number:06d}.log").write_bytes(text)
    before = bench.sink.told()["bytes"]
    with bench.running(deaf=deaf) as tailer:
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
    say(
        {
            "kind": "idle",
            "files": files,
            "inotify": not deaf,
            "percent_of_a_core": share * 100,
            "append_to_ack_s": statistics.median(seconds),
            "append_to_ack_s_max": max(seconds),
            "rss_mib": memory_mib,
            "load": os.getloadavg()[0],
        }
    )


def memory(bench: TailerBench, say: Say, megabytes: float) -> None:
    """Report the peak memory in MiB with a backlog, and the size of the state folder."""
    count = 10
    size = sum(
        write(bench.logs / f"{number}.log", megabytes / count, number) for number in range(count)
    )
    before = bench.sink.told()["bytes"]
    bench.sink.outage()
    with bench.running() as tailer:
        refused_mib = _most(tailer, lambda began: time.monotonic() - began > 10)
        spooled = sum(file.stat().st_size for file in (bench.logs.parent / "state").iterdir())
        bench.sink.outage(ended=True)
        worked_mib = _most(tailer, lambda _: bench.sink.told()["bytes"] - before >= size)
    say(
        {
            "kind": "memory",
            "backlog_mb": size / 1e6,
            "rss_mib_refused": refused_mib,
            "rss_mib_worked_off": worked_mib,
            "state_mb_refused": spooled / 1e6,
        }
    )


def latency(bench: TailerBench, say: Say, seconds: float) -> None:
    """Report megabytes per second of one file with slow answers."""
    for most in (1, TailerSettings().ranges_in_flight):
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
            say(
                {
                    "kind": "latency",
                    "ranges_in_flight": most,
                    "answer_s": answer_s,
                    "megabytes_a_second": rate / 1e6,
                }
            )


def _rate(bench: TailerBench, begins_at: int, seconds: float) -> float:
    # Bytes per second after the first `begins_at` bytes.
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
    """Run the command line."""
    arguments = argparse.ArgumentParser(
        prog="hourmark bench tailer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments.add_argument(
        "--only",
        choices=("cpu", "parts", "rsyslogd", "small", "idle", "memory", "latency"),
        help="leave all else out",
    )
    arguments.add_argument(
        "--megabytes",
        type=float,
        default=1000,
        help="of a round of cpu: a start is not much beside it",
    )
    arguments.add_argument("--rounds", type=int, default=3, help="of cpu")
    arguments.add_argument("--files", type=int, default=10_000, help="that are small, or idle")
    arguments.add_argument("--backlog", type=float, default=2000, help="megabytes on disk")
    asked = arguments.parse_args()

    def say(found: dict[str, Any]) -> None:
        rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}
        print(
            json.dumps(rounded)
            if asked.json
            else "  ".join(f"{k} {v}" for k, v in rounded.items()),
            flush=True,
        )

    wanted: dict[str, Callable[[TailerBench], None]] = {
        "cpu": lambda bench: cpu(bench, say, asked.megabytes, asked.rounds),
        "parts": lambda bench: parts(bench, say, asked.megabytes, asked.rounds),
        "rsyslogd": lambda bench: rsyslogd(bench.logs.parent, say, asked.megabytes),
        "small": lambda bench: small(bench, say, asked.files),
        "idle": lambda bench: idle(bench, say, asked.files),
        "idle without inotify": lambda bench: idle(bench, say, asked.files, deaf=True),
        "memory": lambda bench: memory(bench, say, asked.backlog),
        "latency": lambda bench: latency(bench, say, 3.0),
    }
    sink = Sink()
    try:
        for name, part in wanted.items():
            if asked.only in (None, name.split()[0]):
                with tempfile.TemporaryDirectory() as folder:
                    part(TailerBench(Path(folder), sink))
    finally:
        sink.close()


if __name__ == "__main__":
    main()
