"""Asks the ledger for the oldest open hour of each type, and both clusters for how long its topics
keep what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.clock import SystemClock
from hourmark.commands.component_status import must_listen
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.records.hours import Hour
from hourmark_declare.doctor.finding import Answer, not_asked
from hourmark_declare.doctor.retention_judged import CHECK, retention_judged
from hourmark_etl.ledger.existing import open_existing_ledger
from hourmark_etl.ledger.overview import fixed_hours


def ask(config: Config) -> Iterator[Answer]:
    """Of each edge, and of the central cluster where there is one of its own.

    What is away is a finding of its own kind.
    """
    try:
        with open_existing_ledger(config) as ledger:
            length_s = config.parsing.bucket_seconds
            open_hours = {
                name: Hour(at.closed_to_s, length_s)
                for name, at in fixed_hours(ledger, length_s).items()
            }
    except HourmarkError:
        yield not_asked(CHECK, "open hours", "the ledger knows them, and cannot be asked")
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
            yield from retention_judged(
                name, open_hours, _retention_ms(settings, name, types), SystemClock().now_ms()
            )
        except HourmarkError as error:
            yield not_asked(CHECK, name, str(error))


def _retention_ms(settings: KafkaCluster, name: str, types: dict[str, str]) -> dict[str, int]:
    """By type; of topics that are there."""
    must_listen(settings, name)
    cluster = Cluster(settings, name)
    there = [topic for topic in cluster.names() if topic in types]
    return {
        types[topic]: int(told["retention.ms"])
        for topic, told in cluster.topic_configs(there).items()
    }
