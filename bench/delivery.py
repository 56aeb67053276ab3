"""CPU time, latency and memory of the delivery service, compared with a minimal Kafka producer.

    python -m bench.delivery [--json] [--events N] [--rounds N] [--lines BYTES …]

A bare confluent-kafka program (`bench.delivery_bare`) sends the same keys and values to three
brokers with the same settings. For each line length, the benchmark measures

- CPU time of the service per acknowledged event over all its threads, from HTTP to the last
  replica's acknowledgement, that of the bare program, and the ratio as medians of alternating
  rounds;
- latency to the acknowledgement at half the maximum load;
- memory while ten times as many connections as saturate it send without a pause.

It begins with the cost of parsing by the shape of a line (`bench.delivery_shapes`), which needs no
server, and ends with tailer and service together compared with rsyslogd (`bench.delivery_tailed`)
and the throughput of one and of two workers.

It uses the stack of $HOURMARK_HOME and starts it if necessary. All responses are checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from tests.support.service.live import Serving

from bench import delivery_shapes, delivery_tailed
from bench.delivery_bare import write
from bench.delivery_load import RANGE_BYTES, Posting, event_type, postings, send
from hourmark.config.loading import Config, load_config, stack_state_dir
from hourmark.kafka.topic_names import events_topic
from hourmark.records.hours import Hour
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, Source
from hourmark_declare.apply import apply_declarations
from hourmark_declare.servers import open_targets, read_applied_rules
from hourmark_delivery_service.parsing import CompiledRules, RangeParser, native
from hourmark_delivery_service.queue.kafka_queue import producer_settings
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.state import load_state

CONNECTIONS = 4  # what fills the service: more add no events a second
SMALL_RANGE_BYTES = 64 * 1024  # for latency: what a tailer has after a moment
Say = Callable[[dict[str, Any]], None]


class DeliveryBench:
    """A new event type on the stack's edge cluster, and a delivery service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stack = (
            LocalStack.load(stack_state_dir())
            if load_state(stack_state_dir())
            else LocalStack.load_or_create(stack_state_dir(), mirror=False)
        )
        stack.up()
        self.config: Config = load_config(stack.layout.config_file)
        self.name = f"bench-{uuid.uuid4().hex[:6]}"
        self.revision = self._apply()
        self._config_file = stack.layout.config_file
        self.serving = self.service()
        self._file = 0

    def service(self, workers: int = 1) -> Serving:
        """Return a delivery service that is not started yet."""
        settings = {"HOURMARK_SERVICE__WORKERS": str(workers)}
        return Serving(
            config_file=self._config_file,
            folder=self.folder,
            revision=self.revision,
            settings=settings,
        )

    def ranges(self, line_bytes: int, count: int, range_bytes: int = RANGE_BYTES) -> list[Posting]:
        """Return ranges of a new file with `count` lines of `line_bytes` bytes each."""
        self._file += 1
        return postings(
            self.name,
            self.name,
            self.revision,
            line_bytes=line_bytes,
            count=count,
            range_bytes=range_bytes,
            file=self._file,
        )

    def serve(self, ranges: list[Posting]) -> dict[str, float]:
        """Send ranges to the service and return the CPU time and elapsed time until all are
        acknowledged.
        """
        began, began_cpu = time.monotonic(), self.cpu_s()
        send(self.serving.url, ranges, CONNECTIONS)
        return {"cpu_seconds": self.cpu_s() - began_cpu, "seconds": time.monotonic() - began}

    def bare(self, ranges: list[Posting]) -> dict[str, float]:
        """Send the records of the ranges with the bare program and return its CPU time and elapsed
        time.
        """
        rules = read_applied_rules(self.config)
        assert rules is not None
        compiled = CompiledRules(rules)
        parsed = (
            RangeParser(posting.byte_range, posting.body, compiled).parse_all()
            for posting in ranges
        )
        records = [(record.key, record.value) for one in parsed for record in one.records]
        write(self.folder / "records", records)
        settings = {k: v for k, v in producer_settings(self.config).items() if not callable(v)}
        (self.folder / "settings.json").write_text(json.dumps(settings))
        command = [
            sys.executable,
            "-m",
            "bench.delivery_bare",
            "settings.json",
            "records",
            events_topic(self.name),
        ]
        arguments = [*command[:3], *(str(self.folder / name) for name in command[3:5]), command[5]]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True)
        found: dict[str, float] = json.loads(done.stdout)
        assert found["records"] == len(records) == sum(posting.events for posting in ranges)
        return found

    def process(self) -> psutil.Process:
        """Return the main process of the service."""
        assert self.serving.process is not None
        return psutil.Process(self.serving.process.pid)

    def cpu_s(self) -> float:
        """Return the CPU seconds that all processes of the service have used so far."""
        processes = [self.process(), *self.process().children(recursive=True)]
        return sum(
            used.user + used.system for used in (process.cpu_times() for process in processes)
        )

    def _apply(self) -> str:
        etl = self.config.etl.model_copy(
            update={"ledger": f"sqlite:///{self.folder}/ledger.sqlite"}
        )
        storage = self.config.storage.model_copy(update={"root": f"file://{self.folder}/root"})
        mine = self.config.model_copy(update={"etl": etl, "storage": storage})
        first = Hour.containing(time.time_ns() // 1_000_000, mine.parsing.bucket_seconds)
        declared = Declarations(
            [event_type(self.name), DEAD_LETTERS], [Source(name=self.name, types=[self.name])]
        )
        with open_targets(mine, lambda _: None) as outside:
            return apply_declarations(outside, declared, first, may_remove=True).revision


def compare(bench: DeliveryBench, say: Say, line_bytes: int, events: int, rounds: int) -> float:
    """Compare the CPU time per event of service and bare program, and report the ratio.

    Returns:
        Median throughput of the service in events per second.
    """
    ours, theirs, per_second = [], [], []
    bench.serve(
        bench.ranges(line_bytes, events // 4)
    )  # connections, caches, the brokers' own warming up
    for number in range(rounds):
        ranges = bench.ranges(line_bytes, events)
        served, bare = bench.serve(ranges), bench.bare(ranges)
        ours.append(served["cpu_seconds"] / events * 1e6)
        theirs.append(bare["cpu_seconds"] / events * 1e6)
        per_second.append(events / served["seconds"])
        say(
            {
                "kind": "round",
                "line_bytes": line_bytes,
                "round": number,
                "service_us": ours[-1],
                "bare_us": theirs[-1],
            }
        )
    say(
        {
            "kind": "compare",
            "line_bytes": line_bytes,
            "service_us": statistics.median(ours),
            "bare_us": statistics.median(theirs),
            "ratio": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
            "events_per_second": statistics.median(per_second),
            "native": native.MODULE is not None,
        }
    )
    return statistics.median(per_second)


def latency(
    bench: DeliveryBench, say: Say, line_bytes: int, full_per_second: float, seconds: float
) -> None:
    """Report the time from a request's first byte to its acknowledgement at half of the maximum
    load.
    """
    half = full_per_second / 2
    sent = send(
        bench.serving.url,
        bench.ranges(line_bytes, int(half * seconds), SMALL_RANGE_BYTES),
        16,
        per_second=half,
    )
    found = sorted(sent.latencies_s)
    say(
        {
            "kind": "latency",
            "line_bytes": line_bytes,
            "range_bytes": SMALL_RANGE_BYTES,
            "events_per_second": half,
            "p50_ms": found[len(found) // 2] * 1000,
            "p99_ms": found[len(found) * 99 // 100] * 1000,
        }
    )


def overload(bench: DeliveryBench, say: Say, line_bytes: int, events: int) -> None:
    """Report the peak memory of the service while ten times as many connections as usual send."""
    process, over = bench.process(), threading.Event()
    before_mb = peak_mb = process.memory_info().rss / 1e6

    def watch() -> None:
        nonlocal peak_mb
        while not over.wait(0.02):
            peak_mb = max(peak_mb, process.memory_info().rss / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    sent = send(bench.serving.url, bench.ranges(line_bytes, events), 10 * CONNECTIONS)
    over.set()
    watcher.join()
    say(
        {
            "kind": "overload",
            "line_bytes": line_bytes,
            "connections": 10 * CONNECTIONS,
            "before_mb": before_mb,
            "peak_mb": peak_mb,
            "refused": sent.waits,
            "acknowledged": len(sent.latencies_s),
        }
    )


def tailed(bench: DeliveryBench, say: Say, line_bytes: int, events: int) -> None:
    """Report the CPU time per event of tailer and service together, compared with rsyslogd."""
    lines = b"".join(posting.body for posting in bench.ranges(line_bytes, events))
    folder = bench.folder / f"tailed-{line_bytes}"
    folder.mkdir()
    found = delivery_tailed.compare(
        bench.config, bench.serving.url, bench.name, lines, folder, bench.cpu_s
    )
    say({"kind": "tailed", "line_bytes": line_bytes, **found})


def workers(bench: DeliveryBench, say: Say, line_bytes: int, events: int) -> None:
    """Report the throughput of one worker and of two, which share the machine with brokers and
    clients.
    """
    for count in (1, 2):
        bench.serving.end()
        bench.serving = bench.service(count)
        bench.serving.start()
        bench.serve(bench.ranges(line_bytes, events // 4))
        served = bench.serve(bench.ranges(line_bytes, events))
        say(
            {
                "kind": "workers",
                "line_bytes": line_bytes,
                "workers": count,
                "events_per_second": events / served["seconds"],
                "service_us": served["cpu_seconds"] / events * 1e6,
            }
        )


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(
        prog="hourmark bench delivery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments.add_argument("--events", type=int, default=300_000, help="of a round")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument(
        "--lines", type=int, nargs="*", default=[120, 240], help="lengths of lines in bytes"
    )
    arguments.add_argument("--only", choices=("compare", "shapes"), help="leave all else out")
    asked = arguments.parse_args()

    def say(found: dict[str, Any]) -> None:
        rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}
        print(
            json.dumps(rounded)
            if asked.json
            else "  ".join(f"{k} {v}" for k, v in rounded.items()),
            flush=True,
        )

    if asked.only != "compare":
        for found in delivery_shapes.measure():
            say(found)
    if asked.only == "shapes":
        return
    with tempfile.TemporaryDirectory() as folder:
        bench = DeliveryBench(Path(folder))
        bench.serving.start()
        try:
            for line_bytes in asked.lines:
                per_second = compare(bench, say, line_bytes, asked.events, asked.rounds)
                if asked.only is None:
                    latency(bench, say, line_bytes, per_second, 10)
                    overload(bench, say, line_bytes, asked.events)
                    tailed(bench, say, line_bytes, asked.events)
            if asked.only is None:
                workers(bench, say, asked.lines[0], asked.events)
        finally:
            bench.serving.end()


if __name__ == "__main__":
    main()
