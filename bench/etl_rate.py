"""Throughput of one type by number of tasks, compared with a bare consumer of the same records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bench.etl_compare import Say, data_set, past_hour
from bench.etl_scenarios import DEFAULTS, worked_off
from bench.etl_site import BenchSite
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import consumer_settings
from hourmark.kafka.topic_names import events_topic

PARTITIONS: Final = 8
_AT_ONCE: Final = 10_000
_ANSWER_S: Final = 10.0


def rate(site: BenchSite, say: Say, *, events: int, tasks: Sequence[int]) -> None:
    """Measure the throughput for each number of tasks, with new topics, driver and ledger for each.

    With more tasks than cores, correctness is checked, not speed.
    """
    for count in tasks:
        label = f"rate-{count}"
        waiting = data_set(
            site,
            label,
            types=1,
            hours=1,
            events=events,
            first_hour=past_hour(1),
            seed=1,
            partitions=PARTITIONS,
        )
        topic = events_topic(waiting.plan.types[0])
        bare_s, bare_cpu_s = bare(
            site.config.kafka.edge, topic, site.ends(waiting.plan.types)[topic], count
        )
        found = worked_off(
            site, label, waiting, {**DEFAULTS, "master": f"local[{count}]", "tasks": count}
        )
        records = int(waiting.records.sum())
        staged_per_s, bare_per_s = records / found.facts["staging_wall_s"], records / bare_s
        say(
            {
                "kind": "rate",
                "tasks": count,
                "events": records,
                "partitions": PARTITIONS,
                "staged_per_s": round(staged_per_s),
                "bare_consumer_per_s": round(bare_per_s),
                "of_the_bare_consumer": round(staged_per_s / bare_per_s, 2),
                "cpu_us_per_event": round(found.cpu_s / records * 1e6, 2),
                "bare_cpu_us_per_event": round(bare_cpu_s / records * 1e6, 2),
                **found.facts,
            }
        )


def bare(
    cluster: KafkaCluster, topic: str, ends: dict[str, int], processes: int
) -> tuple[float, float]:
    """Return elapsed and CPU seconds of `processes` processes that read all records and discard
    them.
    """
    parts = [{int(p): end for p, end in [*ends.items()][n::processes]} for n in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.1] * processes))  # each is there
        began = time.monotonic()
        cpu = sum(pool.map(_read, [cluster] * processes, [topic] * processes, parts))
        return time.monotonic() - began, cpu


def _read(cluster: KafkaCluster, topic: str, ends: dict[int, int]) -> float:
    """Read partitions up to their end offsets and return the CPU seconds."""
    cpu = time.process_time()
    consumer = Consumer(
        {**consumer_settings(cluster), "group.id": "bench-bare", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        left = sum(ends.values())
        while left:
            found = consumer.consume(min(left, _AT_ONCE), timeout=_ANSWER_S)
            assert found, f"{left} records of {topic} did not come within {_ANSWER_S} s"
            left -= len(found)
    finally:
        consumer.close()
    return time.process_time() - cpu
