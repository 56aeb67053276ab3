"""What keeps delivery services from going back to an older version: rules revisions in their
topic.
"""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.commands.component_status import check_listening
from hourmark.config.loading import Config
from hourmark.rollback.obstacle import Obstacle
from hourmark.rollback.rules import unusable_rules
from hourmark.rollback.version import OlderVersion
from hourmark.rules.rules_topic import read_rules


def obstacles(config: Config, older: OlderVersion) -> Iterator[Obstacle]:
    """Unavailable where no broker answers."""
    check_listening(config.kafka.edge, "edge")
    yield from unusable_rules(read_rules(config.kafka.edge).revisions, older)
