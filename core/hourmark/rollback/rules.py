"""Rules revisions that the delivery services of an older version cannot parse by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hourmark.kafka.topic_names import TYPES
from hourmark.rollback.obstacle import Obstacle
from hourmark.rollback.version import OlderVersion
from hourmark.rules.revision import Rules


def unusable_rules(revisions: Iterable[Rules], older: OlderVersion) -> Iterator[Obstacle]:
    """Yield an obstacle if a rules revision names a parser that the older version does not have.

    Tailers that know such a revision name it in their ranges. These ranges then wait for a service
    that can parse them, even if later revisions name an older parser.

    Args:
        revisions: Revisions in their order.
        older: The version to return to.
    """
    if later := [rules for rules in revisions if rules.parser.parser not in older.parsers]:
        yield Obstacle(
            f"topic {TYPES}",
            f"revision {later[0].id} names parser {later[0].parser.parser}, which {older.name} "
            "has not: ranges under it would "
            "wait there for ever",
            "nothing: from the first `hourmark types apply` by this version on there is "
            f"no way back to services of {older.name}",
        )
