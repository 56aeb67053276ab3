"""Side by side on the same topics: Hourmark's ETL, Spark's deduplicating way, Spark's plain way.

Each contender is one process from the first round to the last, and its first round is not counted, so what is compared is steady
work. Rounds alternate. Counted are the CPU seconds of all processes of the job: driver, JVM, Python workers, ended ones included;
brokers, HDFS and registry are not, for nobody.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

from bench.etl_ours import OurEtl, Round
from bench.etl_site import BUCKET_SECONDS, Site
from bench.etl_spark import SparkWay
from bench.etl_traffic import RANGE_EVENTS, Delivered, Plan, check_sample, deliver
from hourmark.hours import Hour

Say = Callable[[dict[str, Any]], None]


class Contender(Protocol):
    """What is measured."""

    name: str

    def round(self, delivered: Delivered) -> Round:
        """Work off the data set; what that took."""
        ...

    def check(self, delivered: Delivered) -> None:
        """WrongOutput unless the round's output is right."""
        ...


def compare(site: Site, say: Say, *, events: int, types: int, rounds: int, batch_records: int) -> dict[str, Any]:
    """All rounds, each said as it ends; returns medians, spread and ratios."""
    first_hour = past_hour(2)
    plans = [
        data_set(site, f"r{n}", types=types, hours=2, events=events, first_hour=first_hour, seed=n) for n in range(rounds + 1)
    ]
    per_million: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        etl = {"batch_records_max": batch_records, "trigger_seconds": 1.0, "close_poll_seconds": 1.0}
        contenders: list[Contender] = [
            stack.enter_context(SparkWay(site, "plain", batch_records)),
            stack.enter_context(SparkWay(site, "dedup", batch_records)),
            stack.enter_context(OurEtl(site, plans[0].plan.types, first_hour, etl)),
        ]
        for number, delivered in enumerate(plans):
            for contender in contenders:
                found = contender.round(delivered)
                contender.check(delivered)
                cost = found.cpu_s / delivered.records.sum() * 1e6
                if number:
                    per_million.setdefault(contender.name, []).append(cost)
                say(line("round", contender.name, delivered, found) | {"round": number, "counted": bool(number)})
    return ratios(per_million)


def data_set(
    site: Site, label: str, *, types: int, hours: int, events: int, first_hour: Hour, seed: int, partitions: int = 0
) -> Delivered:
    """Make types and deliver their events; every topic has enough partitions for two tasks to be busy."""
    names, schema_ids = site.new_types(label, types, partitions=partitions or max(1, 2 // types), first_hour=first_hour)
    plan = Plan(names, first_hour, hours, max(1, events // RANGE_EVENTS), seed)
    check_sample(plan, schema_ids)
    return deliver(site.config.kafka.edge, plan, schema_ids)


def past_hour(hours: int) -> Hour:
    """The first of so many hours that are over."""
    now_ms = time.time_ns() // 1_000_000
    return Hour.of(now_ms - (hours + 2) * BUCKET_SECONDS * 1000, BUCKET_SECONDS)


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
    """Medians in CPU seconds per million events, least and most beside them, and the ratios of medians."""
    medians = {name: statistics.median(costs) for name, costs in per_million.items()}
    spread = {name: [round(min(costs), 2), round(max(costs), 2)] for name, costs in per_million.items()}
    return {
        "cpu_s_per_million": {name: round(cost, 2) for name, cost in medians.items()},
        "spread": spread,
        "ratio_to_spark_dedup": round(medians["hourmark"] / medians["spark_dedup"], 2),
        "ratio_to_spark_plain": round(medians["hourmark"] / medians["spark_plain"], 2),
    }
