"""Time in which the ETL processes a backlog while new events arrive."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from bench.etl_compare import Say, data_set, past_hour
from bench.etl_ours import OurEtl
from bench.etl_scenarios import DEFAULTS
from bench.etl_site import BenchSite
from bench.etl_traffic import RANGE_EVENTS, TrafficPlan, check_sample, deliver, promise, stream

BEHIND_S: Final = 10.0  # the backlog is over when no more waits than arrives in so long
_LIVE_S: Final = 3600  # at most


def backlog(site: BenchSite, say: Say, *, events: int, types: int, per_second: int) -> None:
    """Measure how long the ETL needs to process a backlog.

    Args:
        site: Site of the benchmark.
        say: Function that receives result objects.
        events: Number of events in the topics when the driver starts.
        types: Number of event types.
        per_second: Rate at which further events arrive, equal to the rate of the backlog.
    """
    first = past_hour(2)
    warm = data_set(site, "warm", types=types, hours=1, events=100_000, first_hour=first, seed=2)
    names, schema_ids = site.new_types(
        "backlog", types, partitions=max(1, 2 // types), first_hour=first
    )
    plan = TrafficPlan(
        types=names, first_hour=first, hours=1, ranges=events // RANGE_EVENTS, seed=1
    )
    check_sample(plan, schema_ids)
    waiting = deliver(site.config.kafka.edge, plan, schema_ids)
    records = int(waiting.records.sum())
    with OurEtl(site, warm.plan.types, first, DEFAULTS, "backlog") as etl:
        etl.round(lambda: warm)
        promise(site.config.kafka.edge, waiting)
        logged = etl.log_size()
        arriving = TrafficPlan(
            types=names,
            first_hour=plan.end,
            hours=1,
            ranges=per_second * _LIVE_S // RANGE_EVENTS,
            seed=3,
        )
        sent, over = [0], threading.Event()
        cpu, began, peaks = etl.tree.cpu_seconds(), time.monotonic(), list[float]()
        etl.tree.memory_mb_peak()
        with ThreadPoolExecutor(1) as pool, ExitStack() as at_the_end:
            at_the_end.callback(over.set)
            sending = pool.submit(
                stream,
                site.config.kafka.edge,
                arriving,
                schema_ids,
                per_second=per_second,
                sent=sent.append,
                until=over.is_set,
            )
            etl.declare(plan)
            etl.wait(lambda: etl.staged(names) >= records // 2, "half of the backlog is staged")
            peaks.append(etl.tree.memory_mb_peak())
            behind = round(BEHIND_S * per_second)
            etl.wait(
                lambda: records + sent[-1] - etl.staged(names) < behind,
                f"no more waits than arrives in {BEHIND_S} s",
            )
            caught_up_s, cpu_s = time.monotonic() - began, etl.tree.cpu_seconds() - cpu
            peaks.append(etl.tree.memory_mb_peak())
            arrived = sent[-1]
        live = sending.result()
        etl.wait(
            lambda: etl.staged(names) >= records + int(live.records.sum()), "all events are staged"
        )
        promise(site.config.kafka.edge, live)
        etl.wait(lambda: etl.closed(names, live.plan.end), "all hours are closed")
        etl.check(waiting)
        etl.check(live)
        found = etl.batches(logged)
    say(
        {
            "kind": "backlog",
            "events": records,
            "types": types,
            "piled_up_s": round(records / per_second),
            "arriving_per_s": round(arrived / caught_up_s),
            "caught_up_s": round(caught_up_s, 1),
            "of_the_time_it_piled_up": round(caught_up_s * per_second / records, 3),
            "staged_per_s": round((records + arrived) / caught_up_s),
            "cpu_us_per_event": round(cpu_s / (records + arrived) * 1e6, 2),
            "memory_mb_peak_by_half": [round(peak) for peak in peaks],
            **found,
        }
    )
    site.remove_types([*names, *warm.plan.types])
