"""CPU time of the whole path at several loads, from which `hourmark size` predicts other loads.

    python -m bench.size [--json] [--seconds N] [--keep]

A new stack (three brokers, a central one, MirrorMaker 2, HDFS) carries lines from a file to closed
buckets of one minute, at loads that differ in rate, line size and number of types. For each load,
the result has CPU seconds per second by component, over whole minutes without a growing backlog,
and the bytes on each way per byte of a line. The first loads are used for the fit, the last are
predicted. --keep stores the result where `hourmark size` finds it. It needs an otherwise idle
machine and takes half an hour.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import psutil
import zstandard

from bench.process_tree import ProcessTree
from hourmark.clock import SystemClock
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark_evaluate.sizing import measurements
from hourmark_evaluate.sizing.measurements import LoadMeasurement, SizingMeasurements
from hourmark_evaluate.sizing.model import COMPONENTS, Load
from hourmark_infra.components import Components, wait_for
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.process import find_by_mark_prefix
from hourmark_producer.send.range_spooler import ZSTD_LEVEL
from hourmark_verify.demo.bucket_progress import read_closing_states
from hourmark_verify.demo.log_lines import rfc5424_line
from hourmark_verify.judge.buckets import closed_buckets
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

BUCKET_SECONDS: Final = 60
FITTED: Final = (
    (500, 150, 4),
    (6000, 150, 4),
    (2000, 1500, 4),
    (6000, 600, 4),
    (500, 1500, 40),
    (2000, 150, 40),
)  # rate, bytes, types
CHECKED: Final = ((3500, 400, 40), (4000, 1000, 40))
FIRST_S: Final = 120.0  # until JVMs have compiled what they run
WARM_UP_S: Final = 30.0
KEEPS_UP_S: Final = 120.0
_WRITES_A_SECOND: Final = 10
_WORDS: Final = [
    f"{random.Random(n).getrandbits(48):x}"[: 3 + n % 9] for n in range(4000)
]  # text that packs about as logs do
_TEXTS: Final = 1000
_COMPONENTS: Final = {
    "namenode": "hdfs",
    "datanode": "hdfs",
    "mirror": "mirror",
    "service": "service",
    "tailer": "tailer",
}


class SizingRun:
    """The stack and the components of one run in a folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock, self.logs = home, SystemClock(), home / "logs"
        self.file = home / "hourmark.toml"
        self.types = 0
        self.seen = set[str]()  # buckets of loads before
        self.components = Components(home, self.file, self.logs, self.clock)

    def start(self, ending: ExitStack) -> Config:
        self.logs.mkdir()
        stack = LocalStack.load_or_create(self.home, clusters=2, bucket_seconds=BUCKET_SECONDS)
        ending.callback(stack.down)
        stack.up()
        settings = tomllib.loads(stack.layout.config_file.read_text())
        source = {"name": "app", "paths": [str(self.logs / "app.log")]}
        settings["types"] = {"dir": str(self.home / "types")}
        settings["tailer"]["sources"] = [source]
        self.file.write_text(render_toml(settings))
        config = load_config(self.file)
        self.grow_to(FITTED[0][2])
        ending.callback(self.components.stop_all)
        for name in ("etl", "service"):
            self.components.start(name)
        self.components.wait_ready(config.tailer.service_urls[0], 120.0)
        self.components.start("tailer")
        return config

    def grow_to(self, types: int) -> None:
        """Declare event types so that there are `types` in total."""
        folder = self.home / "types"
        folder.mkdir(exist_ok=True)
        for name in map(type_name, range(self.types, types)):
            fields = (
                '[{ name = "user", type = "string" }, { name = "number", type = "long" }, { '
                'name = "text", type = "string" }]'
            )
            (folder / f"{name}.toml").write_text(f'name = "{name}"\nfields = {fields}\n')
        named = ", ".join(f'"{type_name(n)}"' for n in range(types))
        (folder / "sources.toml").write_text(f'[[source]]\nname = "app"\ntypes = [{named}]\n')
        self.components.run_repeatable("types", "apply", seconds=300.0)
        self.types = types

    def cpu_s(self) -> dict[str, float]:
        """Return CPU seconds so far by component; the ETL is monitored separately."""
        used = dict[str, float]()
        for mark, processes in find_by_mark_prefix(f"{self.home}/").items():
            name = mark.rpartition("::")[2]
            component = _COMPONENTS.get(name, name.partition("-")[0])
            for process in processes if component in COMPONENTS and component != "etl" else ():
                times = psutil.Process(process.pid).cpu_times()
                used[component] = used.get(component, 0.0) + times.user + times.system
        return used

    def replica_bytes(self) -> int:
        """Return the size of all replicas of all topics at the edge in bytes."""
        folders = (self.home / "stack" / "data").glob("edge-*")
        return sum(file.stat().st_size for folder in folders for file in folder.rglob("*.log"))


class Writer(threading.Thread):
    """A thread that writes lines at a constant rate until it is stopped."""

    def __init__(self, path: Path, rate: int, size: int, types: int) -> None:
        super().__init__(daemon=True)
        self._path, self._rate, self.types = path, rate, types
        self._chance = random.Random(rate)
        head = len(_line(0, 0, 0, 10**7, ""))
        long = " ".join(self._chance.choices(_WORDS, k=20 * size))
        self._texts = [
            long[start : start + size - head]
            for start in (self._chance.randrange(60 * size) for _ in range(_TEXTS))
        ]
        self._over = threading.Event()
        self.bytes = self.packed = self.lines = 0

    def run(self) -> None:
        # Lines are written ten times a second.
        began_s, pack = time.monotonic(), zstandard.ZstdCompressor(ZSTD_LEVEL)
        with self._path.open("ab", buffering=0) as file:
            while not self._over.wait(1 / _WRITES_A_SECOND):
                due = int((time.monotonic() - began_s) * self._rate)
                now_ms, chance, texts = time.time_ns() // 1_000_000, self._chance, self._texts
                lines = (
                    _line(now_ms, n % self.types, chance.randrange(10**5), n, chance.choice(texts))
                    for n in range(self.lines, due)
                )
                text = b"".join(lines)
                file.write(text)
                self.lines, self.bytes, self.packed = (
                    due,
                    self.bytes + len(text),
                    self.packed + len(pack.compress(text)),
                )

    def stop(self) -> None:
        """Stop writing and wait for the thread."""
        self._over.set()
        self.join()


def _line(now_ms: int, kind: int, user: int, number: int, text: str) -> bytes:
    message = f'{{"user":"u-{user:05}","number":{number},"text":"{text}"}}'
    return rfc5424_line(now_ms, "bench", type_name(kind), message.encode()) + b"\n"


def type_name(number: int) -> str:
    """Return the name of the event type with this number."""
    return f"bench-{number:03d}"


def _carry(world: SizingRun, config: Config, point: tuple[int, int, int], seconds: float) -> None:
    # A load that is not measured.
    writer = Writer(world.logs / "app.log", *point)
    writer.start()
    time.sleep(seconds)
    writer.stop()
    _bucket_share(world, config, writer)


def measure(
    world: SizingRun, config: Config, point: tuple[int, int, int], seconds: float
) -> LoadMeasurement:
    """Measure one load over whole minutes."""
    rate, size, types = point
    if types > world.types:
        world.grow_to(types)
    writer = Writer(world.logs / "app.log", rate, size, types)
    writer.start()
    time.sleep(WARM_UP_S)
    tree = ProcessTree(world.components.running["etl"].pid)
    stored, lines, written = world.replica_bytes(), writer.lines, writer.bytes
    before, etl_before_s, began_s = world.cpu_s(), tree.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    lasted_s, after, etl_s = (
        time.monotonic() - began_s,
        world.cpu_s(),
        tree.cpu_seconds() - etl_before_s,
    )
    stored, lines, written = (
        world.replica_bytes() - stored,
        writer.lines - lines,
        writer.bytes - written,
    )
    tree.close()
    writer.stop()
    bucket = _bucket_share(world, config, writer)
    used = {name: (after[name] - before[name]) / lasted_s for name in after} | {
        "etl": etl_s / lasted_s
    }
    load = Load(
        events_per_second=lines / lasted_s,
        event_bytes=written / lines,
        types=types,
        hosts=1,
        bucket_seconds=BUCKET_SECONDS,
    )
    return LoadMeasurement(
        load=load,
        cores=used,
        sent=writer.packed / writer.bytes,
        topic=stored / 3 / written,
        bucket=bucket,
    )


def _bucket_share(world: SizingRun, config: Config, writer: Writer) -> float:
    """Return bytes in buckets per byte of lines, after all written lines are in closed buckets."""
    end_ms = (world.clock.now_ms() // 60_000 + 1) * 60_000
    wait_s = (end_ms - world.clock.now_ms()) / 1000 + KEEPS_UP_S
    with closing(WebHdfsReader(config.storage.webhdfs, config.storage.user)) as hdfs:
        root = hdfs_path(config.storage.root)

        def is_closed() -> bool:
            found = read_closing_states(hdfs, config.storage.root)
            return all(
                type_name(n) in found and found[type_name(n)].end_ms >= end_ms
                for n in range(writer.types)
            )

        wait_for(
            is_closed,
            "all that was written to be closed",
            wait_s,
            world.clock,
            world.components.check,
            pause_s=4.0,
        )
        buckets = {bucket.path: bucket for bucket in closed_buckets(hdfs, root)}
    held = sum(
        file.bytes
        for path, bucket in buckets.items()
        if path not in world.seen
        for file in bucket.marker.files
    )
    world.seen.update(buckets)
    return held / writer.bytes


def about() -> dict[str, Any]:
    """Return date, machine and commit of this measurement."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "commit": commit,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "brokers": 3,
        "central_brokers": 1,
        "load_before": os.getloadavg()[0],
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="hourmark bench size",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--seconds",
        type=int,
        default=120,
        help="of each load; whole minutes, as buckets close once in each",
    )
    parser.add_argument(
        "--keep", action="store_true", help="put the result where `hourmark size` finds it"
    )
    arguments = parser.parse_args()
    told, found = about(), list[LoadMeasurement]()
    with tempfile.TemporaryDirectory(prefix="hourmark-size-") as folder, ExitStack() as ending:
        world = SizingRun(Path(folder))
        config = world.start(ending)
        _carry(world, config, FITTED[1], FIRST_S)
        for point in (*FITTED, *CHECKED):
            found.append(measure(world, config, point, arguments.seconds))
            print(f"{point}: {json.dumps(found[-1].as_object())}", file=sys.stderr, flush=True)
    measured = SizingMeasurements(
        about=told, fitted=found[: len(FITTED)], checked=found[len(FITTED) :]
    )
    if arguments.keep:
        path = Path(measurements.__file__).with_name(measurements.MEASURED)
        path.write_text(json.dumps(measured.as_object(), indent=1) + "\n")
    if arguments.json:
        print(json.dumps(measured.as_object()))
    else:
        for point, off in zip(CHECKED, measured.model_errors(), strict=True):
            print(point, {name: f"{share:+.0%}" for name, share in off.items()})


if __name__ == "__main__":
    main()
