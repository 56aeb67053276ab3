"""Obstacles to a rollback of the delivery service: rules revisions with a newer parser."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.commands.component_status import check_listening
from hourmark.config.loading import Config
from hourmark.rollback.obstacle import Obstacle
from hourmark.rollback.settings import unusable_rules
from hourmark.rollback.version import OlderVersion
from hourmark.rules.rules_topic import read_rules


def obstacles(config: Config, older: OlderVersion) -> Iterator[Obstacle]:
    """Yield the obstacles to a rollback of the delivery service to an older version.

    An obstacle is a rules revision in Kafka (one version of the declared event types and sources)
    that the older version cannot use.

    Args:
        config: Configuration with the edge Kafka cluster.
        older: Version to roll back to.

    Raises:
        Unavailable: If no Kafka broker can be reached.
    """
    check_listening(config.kafka.edge, "edge")
    yield from unusable_rules(read_rules(config.kafka.edge).revisions, older)
