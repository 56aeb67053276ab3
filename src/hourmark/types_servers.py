"""The servers that declarations are applied to: registry, both clusters, ledger."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence

from hourmark.config import Config, Kafka
from hourmark.event_types import EventType
from hourmark.kafka import Cluster
from hourmark.registry import SchemaRegistry
from hourmark.rules import Record, Rules, RulesBook
from hourmark.rules_topic import publish, read_rules
from hourmark.topic_setup import central_topics, edge_topics, ensure_topics
from hourmark.types_apply import Outside


class EdgeTopic:
    """The topic `hourmark.types` of the edge cluster."""

    def __init__(self, kafka: Kafka) -> None:
        self._cluster, self._bytes_max = kafka.edge, kafka.max_message_bytes

    def read(self) -> RulesBook:
        """All that it holds."""
        return read_rules(self._cluster)

    def publish(self, records: Sequence[Record]) -> None:
        """Return once all in-sync replicas have them."""
        publish(self._cluster, records, self._bytes_max)


@contextlib.contextmanager
def servers(config: Config, say: Callable[[str], None]) -> Iterator[Outside]:
    """Connections to all of them, as the configuration names them. The ledger is made where there is none."""
    database = importlib.import_module("etl.ledger.database").Database  # by name: this package imports no room
    ledger_rules = importlib.import_module("etl.ledger.rules").LedgerRules
    with contextlib.closing(SchemaRegistry(config.registry)) as registry, database(config.etl.ledger) as ledger:

        def make_topics(types: Sequence[EventType]) -> list[str]:
            created: list[str] = []
            if config.kafka.central is not None:  # before the edge's: the mirror would make a remote topic, with other settings
                created += ensure_topics(Cluster(config.kafka.central, "central"), central_topics(config, types))
            return created + ensure_topics(Cluster(config.kafka.edge, "edge"), edge_topics(config, types))

        yield Outside(ledger_rules(ledger), registry, EdgeTopic(config.kafka), make_topics, say, config.kafka.max_message_bytes)


def applied_rules(config: Config) -> Rules | None:
    """The revision that services use now, or None before the first `types apply`."""
    return read_rules(config.kafka.edge).latest
