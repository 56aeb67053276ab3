"""Obstacles to a downgrade of the delivery service: rules revisions that an older version rejects."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.commands.component_status import check_listening
from hourmark.config.loading import Config
from hourmark.rollback.obstacle import Obstacle
from hourmark.rollback.settings import unusable_rules
from hourmark.rollback.version import OlderVersion
from hourmark.rules.rules_topic import read_rules


def obstacles(config: Config, older: OlderVersion) -> Iterator[Obstacle]:
    """Yield the rules revisions in Kafka that an older version of the service cannot use.

    Args:
        config: Configuration that names the edge Kafka cluster.
        older: The version to check against.

    Raises:
        Unavailable: If no Kafka broker can be reached.
    """
    check_listening(config.kafka.edge, "edge")
    yield from unusable_rules(read_rules(config.kafka.edge).revisions, older)
