"""Benchmarks of the ETL, alone and compared with Spark's own ways on the same topics.

    compare   CPU seconds per million events of staging and closing, compared with Spark
    types     1, 10, 100 (large: and 1,000) types at the same total rate
    latency   from arrival to staged; from the last condition to _SUCCESS
    backlog   an hour's events wait while new ones arrive at the same rate: time until the
              backlog is below ten seconds
    rate      one type with 1, 2 and 4 tasks, compared with a bare consumer of the same records
    sizes     events of 100 bytes to 100 KB: CPU time per event and per megabyte
    memory    a large bucket with little memory (large: more bytes than all processes may use)

With --json the output is one JSON object per line, the last one a summary with the ratios of
`compare`; otherwise it is text for people. Uses the stack of $HOURMARK_HOME and starts it if
necessary. All outputs are checked; a wrong one ends the benchmark with an error.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from typing import Any

from bench.etl_backlog import backlog
from bench.etl_compare import Say, compare
from bench.etl_rate import rate
from bench.etl_scenarios import beyond_memory, latency, many_types, sizes
from bench.etl_site import BenchSite

SCENARIOS = ("compare", "types", "latency", "backlog", "rate", "sizes", "memory")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="hourmark bench etl",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenarios",
        nargs="*",
        default=["compare"],
        metavar="SCENARIO",
        help="of the above; default: compare",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--large", action="store_true", help="sizes that take half an hour instead of minutes"
    )
    parser.add_argument(
        "--local", action="store_true", help="buckets and files on the local disk instead of HDFS"
    )
    parser.add_argument(
        "--events", type=int, default=1_000_000, help="compare: distinct events of a round"
    )
    parser.add_argument("--types", type=int, default=10, help="compare: types they are of")
    parser.add_argument(
        "--counts", type=int, nargs="+", help="types: these, instead of 1, 10, 100 (and 1,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="compare: that count; one more is run before them"
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=250_000,
        help="compare: records of a micro-batch, for all contenders",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.scenarios) - set(SCENARIOS):
        parser.error(
            f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # contenders end with the benchmark
    said: list[dict[str, Any]] = []

    def say(found: dict[str, Any]) -> None:
        said.append(found)
        print(
            json.dumps(found)
            if arguments.json
            else "  ".join(f"{k} {v}" for k, v in found.items()),
            flush=True,
        )

    with BenchSite(local=arguments.local) as site:
        ratios: dict[str, Any] = {}
        for name in arguments.scenarios:
            ratios |= _run(name, site, say, arguments)
    say({"kind": "summary", "scenarios": arguments.scenarios, "lines": len(said), **ratios})


def _run(name: str, site: BenchSite, say: Say, arguments: argparse.Namespace) -> dict[str, Any]:
    large: bool = arguments.large
    scenarios: dict[str, Callable[[], dict[str, Any] | None]] = {
        "compare": lambda: compare(
            site,
            say,
            events=arguments.events,
            types=arguments.types,
            rounds=arguments.rounds,
            batch_records=arguments.batch,
        ),
        "types": lambda: many_types(
            site,
            say,
            counts=arguments.counts or ((1, 10, 100, 1000) if large else (1, 10, 100)),
            per_second=10_000,
            seconds=60 if large else 20,
        ),
        "latency": lambda: latency(
            site,
            say,
            types=10,
            per_second=5000,
            seconds=120 if large else 30,
            hours=12 if large else 5,
        ),
        "backlog": lambda: backlog(
            site, say, events=36_000_000 if large else 2_000_000, types=10, per_second=10_000
        ),
        "rate": lambda: rate(site, say, events=5_000_000 if large else 1_000_000, tasks=(1, 2, 4)),
        "sizes": lambda: sizes(
            site, say, payloads=(0, 900, 9_900, 99_900), megabytes=1000 if large else 200
        ),
        "memory": lambda: beyond_memory(
            site, say, events=30_000_000 if large else 3_000_000, worker_mb=1024, driver_mb=640
        ),
    }
    print(f"{name} …", file=sys.stderr)
    return scenarios[name]() or {}


if __name__ == "__main__":
    main()
