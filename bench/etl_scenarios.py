"""The ETL in special situations: many types, delays, large events, a bucket larger than memory.

Each scenario starts its own driver, with default settings except for those that it names, and
checks the content of every bucket at the end.
"""

from __future__ import annotations

import bisect
import dataclasses
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from bench.etl_compare import Say, data_set, past_hour
from bench.etl_ours import PAUSE_S, OurEtl, Round
from bench.etl_site import BenchSite
from bench.etl_traffic import RANGE_EVENTS, Delivered, TrafficPlan, deliver, promise, stream
from bench.hdfs_bare import seconds_for, sizes_of
from hourmark.records.hours import Hour

DEFAULTS: Final = {
    "trigger_seconds": 2.0,
    "close_poll_seconds": 1.0,
}  # the tests' harness sets its own


def many_types(
    site: BenchSite, say: Say, *, counts: Sequence[int], per_second: int, seconds: int
) -> None:
    """Measure several numbers of types at the same total rate.

    Reports CPU time per event and the duration of batches and of closing.
    """
    for count in counts:
        _types_once(site, say, count, per_second, seconds)


def _types_once(site: BenchSite, say: Say, count: int, per_second: int, seconds: int) -> None:
    first = past_hour(4)
    names, schema_ids = site.new_types(
        f"n{count}", count, partitions=max(1, 2 // count), first_hour=first
    )
    with OurEtl(site, names, first, DEFAULTS, f"types-{count}") as etl:
        _warm_up(site, etl, names, schema_ids, first)
        measured = TrafficPlan(
            types=names,
            first_hour=Hour(first.start_s + 120, 60),
            hours=2,
            ranges=per_second * seconds // RANGE_EVENTS,
            seed=2,
        )
        began, cpu, logged, files = (
            time.monotonic(),
            etl.tree.cpu_seconds(),
            etl.log_size(),
            etl.staged_files(),
        )
        delays = Delays(etl, names)
        with delays:
            delivered = stream(
                site.config.kafka.edge,
                measured,
                schema_ids,
                per_second=per_second,
                sent=delays.sent,
            )
            sent_s = time.monotonic() - began
            etl.wait(delays.all_staged, "all events are staged")
        files = etl.staged_files() - files
        closing = _close(site, etl, delivered)
        records = int(delivered.records.sum())
        found = {
            "kind": "types",
            "types": count,
            "events_per_s": round(records / sent_s),
            "cpu_s_per_million": round((etl.tree.cpu_seconds() - cpu) / records * 1e6, 2),
            "staged_files_per_hour": round(files / sent_s * 3600),
            **etl.batches(logged),
            **delays.figures(),
            "hours_closed": len(names) * measured.hours,
            "closing_s": round(closing, 1),
            "memory_mb_peak": round(etl.tree.memory_mb_peak()),
        }
        etl.check(delivered)
        if site.config.storage.webhdfs:
            folders = [hour.bucket_path(name) for name in names for hour in measured.all_hours]
            bare_s = seconds_for(
                site.config.storage, f"{site.name}/bare-{count}", sizes_of(etl.run.storage, folders)
            )
            found |= {"bare_s": round(bare_s, 1), "closing_over_bare": round(closing / bare_s, 2)}
    say(found)
    site.remove_types(names)


def latency(
    site: BenchSite, say: Say, *, types: int, per_second: int, seconds: int, hours: int
) -> None:
    """Report how long a record waits until it is staged, and how long closing an hour takes.

    Closing is measured from its last condition, a report, to the last `_SUCCESS`.
    """
    first = past_hour(hours + 2)
    names, schema_ids = site.new_types("latency", types, partitions=1, first_hour=first)
    with OurEtl(site, names, first, DEFAULTS, "latency") as etl:
        _warm_up(site, etl, names, schema_ids, first)
        closings = []
        delays = Delays(etl, names)
        with delays:
            for number in range(hours):
                hour = Hour(first.start_s + 120 + 60 * number, 60)
                plan = TrafficPlan(
                    types=names,
                    first_hour=hour,
                    hours=1,
                    ranges=per_second * seconds // hours // RANGE_EVENTS,
                    seed=number,
                )
                delivered = stream(
                    site.config.kafka.edge,
                    plan,
                    schema_ids,
                    per_second=per_second,
                    sent=delays.sent,
                )
                etl.wait(delays.all_staged, "all events are staged")
                closings.append(_close(site, etl, delivered))
                etl.check(delivered)
        say(
            {
                "kind": "latency",
                "types": types,
                "events_per_s": per_second,
                **delays.figures(),
                "closings": len(closings),
                "closing_s_mean": round(statistics.mean(closings), 2),
                "closing_s_p99": round(_percentile([(c, 1) for c in closings], 0.99), 2),
                "closing_s_least": round(min(closings), 2),
            }
        )
    site.remove_types(names)


def sizes(site: BenchSite, say: Say, *, payloads: Sequence[int], megabytes: int) -> None:
    """Report CPU time per event and per megabyte by event size, with `megabytes` of events of each
    size.
    """
    for payload in payloads:
        events = min(500_000, megabytes * 1_000_000 // (payload + 100))
        label = f"sizes-{payload}"
        waiting = data_set(
            site,
            label,
            types=2,
            hours=1,
            events=events,
            first_hour=past_hour(1),
            seed=1,
            payload=payload,
        )
        found = worked_off(site, label, waiting, DEFAULTS)
        records = int(waiting.records.sum())
        say(
            {
                "kind": "sizes",
                "value_bytes": round(waiting.value_bytes / records),
                "events": records,
                "cpu_us_per_event": round(found.cpu_s / records * 1e6, 2),
                "cpu_ms_per_megabyte": round(found.cpu_s / waiting.value_bytes * 1e9, 2),
                **found.facts,
            }
        )


def beyond_memory(
    site: BenchSite, say: Say, *, events: int, worker_mb: int, driver_mb: int
) -> None:
    """Measure one large bucket with limited memory.

    `larger_than_memory` in the result states whether the bucket is larger than all limits together,
    as with --large.

    Args:
        site: Site of the benchmark.
        say: Function that receives result objects.
        events: Number of events.
        worker_mb: Address space of each of two Python workers in megabytes.
        driver_mb: Heap of the driver in megabytes.
    """
    waiting = data_set(
        site, "large", types=1, hours=1, events=events, first_hour=past_hour(1), seed=1
    )
    limits = {
        "spark.driver.memory": f"{driver_mb}m",
        "spark.executor.pyspark.memory": f"{2 * worker_mb}m",  # Spark divides it by the cores
    }
    found = worked_off(site, "memory", waiting, {**DEFAULTS, "spark_conf": limits})
    say(
        {
            "kind": "memory",
            "events": int(waiting.records.sum()),
            "bucket_mb": round(waiting.value_bytes / 1e6),
            "larger_than_memory": waiting.value_bytes > (driver_mb + 2 * worker_mb) << 20,
            "driver_mb_max": driver_mb,
            "worker_mb_max": worker_mb,
            "wall_s": round(found.wall_s, 1),
            "cpu_s_per_million": round(found.cpu_s / waiting.records.sum() * 1e6, 2),
            **found.facts,
        }
    )


def worked_off(
    site: BenchSite, label: str, waiting: Delivered, settings: Mapping[str, Any]
) -> Round:
    """Process waiting events with a new, warmed-up driver: stage, close, check and remove them."""
    first, types = waiting.plan.first_hour, waiting.plan.types
    warm = data_set(
        site, f"{label}-warm", types=len(types), hours=1, events=50_000, first_hour=first, seed=2
    )
    with OurEtl(site, warm.plan.types, first, settings, label) as etl:
        etl.round(lambda: warm)
        _, found = etl.round(lambda: waiting, declare=True)
        etl.check(waiting)
    site.remove_types([*types, *warm.plan.types])
    return found


class Delays:
    """Delays from a record's acknowledgement by the broker to the ledger's commit of its staging.

    The ledger is polled every tenth of a second.
    """

    def __init__(self, etl: OurEtl, types: Sequence[str]) -> None:
        self._etl, self._types = etl, types
        self._before = etl.staged(types)
        self._offset = 0
        self._sent: list[tuple[float, int]] = []
        self._staged: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def sent(self, records: int) -> None:
        """Record that `records` records of this stream are in Kafka; a smaller number begins a new
        stream.
        """
        if self._sent and records + self._offset < self._sent[-1][1]:
            self._offset = self._sent[-1][1]
        self._sent.append((time.monotonic(), records + self._offset))

    def all_staged(self) -> bool:
        """Return whether everything sent so far is staged."""
        return bool(self._staged) and self._staged[-1][1] >= self._sent[-1][1]

    def figures(self) -> dict[str, float]:
        """Return mean and 99th percentile over records, in seconds."""
        totals = [total for _, total in self._staged]
        delays, before = [], 0
        for at, total in self._sent:
            staged_at = self._staged[bisect.bisect_left(totals, total)][0]
            delays.append((staged_at - at, total - before))
            before = total
        mean = sum(d * n for d, n in delays) / before
        return {
            "staged_after_s_mean": round(mean, 2),
            "staged_after_s_p99": round(_percentile(delays, 0.99), 2),
        }

    def __enter__(self) -> Delays:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PAUSE_S):
            self._staged.append((time.monotonic(), self._etl.staged(self._types) - self._before))


def _percentile(weighted: Sequence[tuple[float, int]], share: float) -> float:
    """Return the smallest value with at least `share` of the total weight at or below it."""
    left = share * sum(weight for _, weight in weighted)
    for value, weight in sorted(weighted):
        left -= weight
        if left <= 0:
            return value
    return max(value for value, _ in weighted)


def _warm_up(
    site: BenchSite, etl: OurEtl, names: Sequence[str], schema_ids: dict[str, int], first: Hour
) -> None:
    # Close two hours with little traffic, so that each kind of work has been done once before measuring.
    # Close two hours with little traffic, so that all kinds of work have been done once.
    plan = TrafficPlan(
        types=tuple(names), first_hour=first, hours=2, ranges=max(100, len(names)), seed=1
    )
    etl.round(partial(deliver, site.config.kafka.edge, plan, schema_ids))


def _close(site: BenchSite, etl: OurEtl, delivered: Delivered) -> float:
    """Report that the plan's hours are over, the only missing condition, and return the seconds to
    close.
    """
    promise(site.config.kafka.edge, dataclasses.replace(delivered, audit=[]))
    began = time.monotonic()
    etl.wait(lambda: etl.closed(delivered.plan.types, delivered.plan.end), "all hours are closed")
    return time.monotonic() - began
