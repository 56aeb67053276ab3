"""Compares the retention of topics with the age of the oldest open hour of each type.

An open hour is an hourly bucket that is not closed yet. `evaluate_retention` performs no I/O;
`check_retention` reads the ledger and the topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hourmark.clock import SystemClock
from hourmark.commands.component_status import check_listening
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.records.hours import Hour
from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.model import HourState

CHECK: Final = "retention"
_PART: Final = 0.5  # share of the retention after which a finding leaves time to resolve it
_H_MS: Final = 3_600_000


def evaluate_retention(
    cluster: str, open_hours: Mapping[str, Hour], retention_ms: Mapping[str, int], now_ms: int
) -> Iterator[DoctorCheckResult]:
    """Check whether Kafka topics retain records long enough for hourly buckets that are not closed.

    The age of an open bucket must not exceed half of the topic's retention, because its records may
    have to be read again.

    Args:
        cluster: Name of the cluster, shown in the results.
        open_hours: Maps each event type name to the hour of its oldest open bucket.
        retention_ms: Maps each event type name to `retention.ms` of its topic. A negative value
            means unlimited retention. A missing type is not checked.
        now_ms: Current time in Unix milliseconds.

    Yields:
        A finding for each type whose oldest open bucket is too old, or one passed result if there
        are none. Nothing if `open_hours` is empty.
    """
    found = []
    for name, hour in sorted(open_hours.items()):
        kept_ms, age_ms = retention_ms.get(name, -1), now_ms - hour.start_s * 1000
        if kept_ms < 0 or age_ms <= kept_ms * _PART:
            continue
        what = (
            f"hour {hour} is open and {age_ms / _H_MS:.1f} h old, and {events_topic(name)} "
            f"keeps {kept_ms / _H_MS:.1f} h"
        )
        comes_of = (
            "what was not staged may be deleted already, and what is staged cannot be staged again"
            if age_ms > kept_ms
            else "unstaged records will be deleted soon"
        )
        found.append(
            finding_result(
                CHECK,
                f"{cluster} {name}",
                f"{what}: {comes_of}",
                f"`hourmark bucket why {name} {hour}` shows what it waits for; raise the "
                "topic's retention.ms until it is closed",
            )
        )
    yield from found
    if open_hours and not found:
        yield passed_result(
            CHECK,
            cluster,
            "the oldest open hour is "
            f"{min(open_hours.values(), key=lambda h: h.start_s)}; topics keep more",
        )


def check_retention(config: Config) -> Iterator[DoctorCheckResult]:
    """Check whether Kafka topics retain records long enough for hourly buckets that are not closed.

    Args:
        config: Configuration of the ledger (the ETL's database) and the Kafka clusters.

    Yields:
        The results of `evaluate_retention` for each cluster, or a skipped result if the cluster
        does not respond. A single skipped result if the ledger cannot be read.
    """
    try:
        with open_existing_ledger(config) as ledger:
            open_hours = read_open_hours(ledger, config.parsing.bucket_seconds)
    except HourmarkError:
        yield skipped_result(CHECK, "open hours", "they are in the ledger, which cannot be read")
        return
    clusters: list[tuple[str, KafkaCluster, dict[str, str]]] = []
    for n, site in enumerate(config.kafka.sites):
        name = "edge" if n == 0 else f"further_edges.{site.edge_alias}"
        clusters.append((name, site.edge, {events_topic(t): t for t in open_hours}))
        if site.central is not None:
            clusters.append(
                (
                    "central",
                    site.central,
                    {central_topic(events_topic(t), site.edge_alias): t for t in open_hours},
                )
            )
    for name, settings, types in clusters:
        try:
            yield from evaluate_retention(
                name, open_hours, _retention_ms(settings, name, types), SystemClock().now_ms()
            )
        except HourmarkError as error:
            yield skipped_result(CHECK, name, str(error))


def read_open_hours(ledger: Database, bucket_seconds: int) -> dict[str, Hour]:
    """Return the oldest open hour of each event type, whose records Kafka must still retain.

    An open hour is an hourly bucket that is not closed yet. While buckets before the first hour of
    a type are back-filled, the first hour is returned, because Kafka received their records only
    after the type was created.

    Args:
        ledger: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.

    Returns:
        Maps each event type to the hour. Types whose ledger row is damaged are omitted.
    """
    return {
        f.event_type: max(f.hour, f.first_hour)
        for f in frontiers(ledger, bucket_seconds)
        if f.state is not HourState.DAMAGED
    }


def _retention_ms(settings: KafkaCluster, name: str, types: dict[str, str]) -> dict[str, int]:
    # Return `retention.ms` of each type whose topic exists.
    check_listening(settings, name)
    cluster = Cluster(settings, name)
    there = [topic for topic in cluster.names() if topic in types]
    return {
        types[topic]: int(told["retention.ms"])
        for topic, told in cluster.topic_configs(there).items()
    }
