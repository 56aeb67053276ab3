"""Applies declarations: schemas, then topics, then the frontier rows, then the rules revision; in this order, so that whoever
sees the new revision finds all it names. Each step can be repeated after a crash.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Sequence

from hourmark import audit, host_reports
from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from hourmark.kafka import Cluster
from hourmark.registry import SchemaRegistry
from hourmark.rules import Rules
from hourmark.rules_topic import check_change, next_rules, publish, read_rules
from hourmark.topic_setup import central_topics, edge_topics, ensure_topics
from hourmark.topics import AUDIT, HOSTS, events_topic


@dataclasses.dataclass(frozen=True)
class Applied:
    """What an application did."""

    revision: str
    new_revision: bool
    schema_ids: dict[str, int]
    topics_created: list[str]
    new_types: list[str]
    first_hour: str


def apply(
    config: Config,
    types: Sequence[EventType],
    sources: Sequence[Source],
    first_hour: Hour | None,
    clock: Clock,
    say: Callable[[str], None],
    *,
    may_remove: bool = False,
) -> Applied:
    """Make everything outside agree with the declarations. Raises what stops it; running it again goes on.

    `may_remove`: types and sources in force may be left out; their topics, buckets and older ranges stay as they are.
    """
    latest = applied_rules(config)
    check_change(latest, types, sources, config.parsing, may_remove=may_remove)
    edge = Cluster(config.kafka.edge, "edge")
    with contextlib.closing(SchemaRegistry(config.registry)) as registry:
        schema_ids = {t.name: registry.register(events_topic(t.name), t.schema()) for t in types}
        registry.register(AUDIT, audit.SCHEMA)
        registry.register(HOSTS, host_reports.SCHEMA)
    say(f"registered {len(types)} schemas at {config.registry.url}")
    created: list[str] = []
    if config.kafka.central is not None:  # before the edge's: the mirror would make a missing remote topic, with other settings
        created += ensure_topics(Cluster(config.kafka.central, "central"), central_topics(config, types))
    created += ensure_topics(edge, edge_topics(config, types))
    say(f"topics: {len(created)} created, the others checked")
    rules = next_rules(latest, types, sources, schema_ids, config.parsing)
    first = first_hour or Hour.of(clock.now_ms(), config.parsing.bucket_seconds)
    frontier_rows = importlib.import_module("etl.ledger.frontier_rows")  # by name: this package imports no room
    new_types: list[str] = frontier_rows.ensure_frontier_rows(config, types, sources, first)
    say(f"frontiers: {len(new_types)} new types begin at {first}")
    if rules is not latest:
        publish(config.kafka.edge, rules)
    say(f"rules revision {rules.id} " + ("published" if rules is not latest else "stands already"))
    return Applied(rules.id, rules is not latest, schema_ids, created, new_types, str(first))


def applied_rules(config: Config) -> Rules | None:
    """The revision that services use now, or None before the first `types apply`."""
    return read_rules(config.kafka.edge).latest
