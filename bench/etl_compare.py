"""Comparison on the same topics: Hourmark's ETL, Spark with deduplication, and plain Spark.

Each contender is one process from the first round to the last and takes its turn. The first round
is not counted, so steady work is compared. The result is the CPU time of all processes of the job:
driver, JVM and Python workers, including those that have exited. Brokers, HDFS and registry are not
counted for any contender.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.etl_ours import OurEtl, Round
from bench.etl_site import BUCKET_SECONDS, BenchSite
from bench.etl_spark import SparkWay
from bench.etl_traffic import RANGE_EVENTS, Delivered, TrafficPlan, check_sample, deliver
from hourmark.records.hours import Hour

Say = Callable[[dict[str, Any]], None]


def compare(
    site: BenchSite, say: Say, *, events: int, types: int, rounds: int, batch_records: int
) -> dict[str, Any]:
    """Run all rounds, report each, and return medians, spread and ratios.

    A round consists of two hours of new types, which are in Kafka before any contender reads them,
    so no other work runs meanwhile. Hourmark's driver receives the types and closes their hours;
    the Spark contenders read the same records. While others take their turn, the driver is idle,
    and Spark ends Python workers after a minute without work; an hour of little traffic, which is
    not counted, therefore precedes each of its rounds.
    """
    first = past_hour(3 * (rounds + 1))
    known, known_ids = site.new_types("little", types, partitions=1, first_hour=first)
    per_million: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        etl = {
            "batch_records_max": batch_records,
            "trigger_seconds": 2.0,
            "close_poll_seconds": 1.0,
        }
        ours = stack.enter_context(OurEtl(site, known, first, etl))
        ways = [
            stack.enter_context(SparkWay(site, kind, batch_records)) for kind in ("plain", "dedup")
        ]
        for number in range(rounds + 1):
            hour = Hour(first.start_s + 3 * number * BUCKET_SECONDS, BUCKET_SECONDS)
            waiting = data_set(
                site,
                f"compare{number}",
                types=types,
                hours=2,
                events=events,
                first_hour=hour.next(),
                seed=number,
            )
            little = TrafficPlan(
                types=known, first_hour=hour, hours=1, ranges=20, seed=1000 + number
            )
            ours.round(partial(deliver, site.config.kafka.edge, little, known_ids))
            for name, found in _turns(waiting, ours, ways).items():
                say(
                    line("round", name, waiting, found) | {"round": number, "counted": bool(number)}
                )
                if number:
                    per_million.setdefault(name, []).append(
                        found.cpu_s / int(waiting.records.sum()) * 1e6
                    )
    return ratios(per_million)


def _turns(waiting: Delivered, ours: OurEtl, ways: Sequence[SparkWay]) -> dict[str, Round]:
    # Each contender processes the data set in turn, and its output is checked.
    _, found = ours.round(lambda: waiting, declare=True)
    ours.check(waiting)
    taken = {ours.name: found}
    for way in ways:
        taken[way.name] = way.round(waiting)
        way.check(waiting)
    return taken


def data_set(
    site: BenchSite,
    label: str,
    *,
    types: int,
    hours: int,
    events: int,
    first_hour: Hour,
    seed: int,
    payload: int = 0,
    partitions: int | None = None,
) -> Delivered:
    """Create types and deliver their events.

    By default every topic has enough partitions for two tasks.
    """
    partitions = partitions or max(1, 2 // types)
    names, schema_ids = site.new_types(
        label, types, partitions=partitions, first_hour=first_hour, payload=payload
    )
    ranges = max(1, events // RANGE_EVENTS)
    plan = TrafficPlan(
        types=names, first_hour=first_hour, hours=hours, ranges=ranges, seed=seed, payload=payload
    )
    check_sample(plan, schema_ids)
    return deliver(site.config.kafka.edge, plan, schema_ids)


def past_hour(hours: int) -> Hour:
    """Return the first of the last `hours` complete hours."""
    now_ms = time.time_ns() // 1_000_000
    return Hour.containing(now_ms - (hours + 2) * BUCKET_SECONDS * 1000, BUCKET_SECONDS)


def line(kind: str, name: str, delivered: Delivered, found: Round) -> dict[str, Any]:
    """Return the result object of one round."""
    records = int(delivered.records.sum())
    return {
        "kind": kind,
        "contender": name,
        "types": len(delivered.plan.types),
        "events": records,
        "value_bytes": round(delivered.value_bytes / records, 1),
        "cpu_s_per_million": round(found.cpu_s / records * 1e6, 2),
        "wall_s": round(found.wall_s, 1),
        **found.facts,
    }


def ratios(per_million: dict[str, list[float]]) -> dict[str, Any]:
    """Return medians in CPU seconds per million events with their range, and their ratios."""
    medians = {name: statistics.median(costs) for name, costs in per_million.items()}
    spread = {
        name: [round(min(costs), 2), round(max(costs), 2)] for name, costs in per_million.items()
    }
    return {
        "cpu_s_per_million": {name: round(cost, 2) for name, cost in medians.items()},
        "spread": spread,
        "ratio_to_spark_dedup": round(medians["hourmark"] / medians["spark_dedup"], 2),
        "ratio_to_spark_plain": round(medians["hourmark"] / medians["spark_plain"], 2),
    }
