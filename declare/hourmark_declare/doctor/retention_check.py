"""Checks the oldest open hour of each type against the retention of its topics."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.clock import SystemClock
from hourmark.commands.component_status import check_listening
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.records.hours import Hour
from hourmark_declare.doctor.check_result import CheckResult, skipped_result
from hourmark_declare.doctor.retention_evaluation import CHECK, evaluate_retention
from hourmark_etl.ledger.existing import existing_ledger
from hourmark_etl.ledger.overview import fixed_hours


def check_retention(config: Config) -> Iterator[CheckResult]:
    """Check whether topics keep records long enough for the oldest open hour of each type.

    Args:
        config: Configuration that names ledger and clusters.

    Yields:
        Results for each cluster; skipped if ledger or cluster are down, which other checks report.
    """
    try:
        with existing_ledger(config) as ledger:
            length_s = config.parsing.bucket_seconds
            open_hours = {
                name: Hour(at.closed_to_s, length_s)
                for name, at in fixed_hours(ledger, length_s).items()
            }
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


def _retention_ms(settings: KafkaCluster, name: str, types: dict[str, str]) -> dict[str, int]:
    """Return `retention.ms` of each type whose topic exists."""
    check_listening(settings, name)
    cluster = Cluster(settings, name)
    there = [topic for topic in cluster.names() if topic in types]
    return {
        types[topic]: int(told["retention.ms"])
        for topic, told in cluster.topic_configs(there).items()
    }
