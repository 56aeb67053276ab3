"""Side by side on the same topics: Hourmark's ETL, Spark's deduplicating way, Spark's plain way.

Each contender is one process from the first round to the last, and its first round is not counted:
what is compared is steady work. They take turns. Counted are the CPU seconds of all processes of
the job: driver, JVM, Python workers, ended ones included; brokers, HDFS and registry are not, for
nobody.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.etl_ours import OurEtl, Round
from bench.etl_site import BUCKET_SECONDS, Site
from bench.etl_spark import SparkWay
from bench.etl_traffic import RANGE_EVENTS, Delivered, Plan, check_sample, deliver
from hourmark.records.hours import Hour

Say = Callable[[dict[str, Any]], None]


def compare(
    site: Site, say: Say, *, events: int, types: int, rounds: int, batch_records: int
) -> dict[str, Any]:
    """All rounds, each said as it ends; returns medians, spread and ratios.

    A round is two hours of new types, which are in Kafka before anybody reads them: nothing else is
    at work on the machine while a contender has its turn. Hourmark's driver is told of the types
    and closes their hours; Spark's ways read the same records. While others have their turn, the
    driver is idle, and Spark ends Python workers that were idle for a minute; so an hour of little
    traffic, not counted, precedes its rounds.
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
            little = Plan(types=known, first_hour=hour, hours=1, ranges=20, seed=1000 + number)
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
    """What each contender used for the data set, one after the other, its output checked."""
    _, found = ours.round(lambda: waiting, declare=True)
    ours.check(waiting)
    taken = {ours.name: found}
    for way in ways:
        taken[way.name] = way.round(waiting)
        way.check(waiting)
    return taken


def data_set(
    site: Site,
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
    """Make types and deliver their events; every topic has enough partitions for two tasks to be
    busy, or those named.
    """
    partitions = partitions or max(1, 2 // types)
    names, schema_ids = site.new_types(
        label, types, partitions=partitions, first_hour=first_hour, payload=payload
    )
    ranges = max(1, events // RANGE_EVENTS)
    plan = Plan(
        types=names, first_hour=first_hour, hours=hours, ranges=ranges, seed=seed, payload=payload
    )
    check_sample(plan, schema_ids)
    return deliver(site.config.kafka.edge, plan, schema_ids)


def past_hour(hours: int) -> Hour:
    """The first of so many hours that are over."""
    now_ms = time.time_ns() // 1_000_000
    return Hour.containing(now_ms - (hours + 2) * BUCKET_SECONDS * 1000, BUCKET_SECONDS)


def line(kind: str, name: str, delivered: Delivered, found: Round) -> dict[str, Any]:
    """What is said of a round."""
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
    """Medians in CPU seconds per million events, least and most beside them, and the ratios of
    medians.
    """
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
