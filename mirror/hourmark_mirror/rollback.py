"""Mirror state that an older version would lose, for `hourmark rollback` checks."""

from __future__ import annotations

from collections.abc import Iterator

from hourmark.config.loading import Config
from hourmark.rollback.obstacle import NothingToCheck, Obstacle
from hourmark.rollback.version import OlderVersion
from hourmark_mirror.verify.verification_state import CHECKS_FILE, VerificationState


def obstacles(config: Config, older: OlderVersion) -> Iterator[Obstacle]:
    """Yield the reasons why a downgrade to an older version of Hourmark would lose alarms.

    A version that does not support alarms rewrites the mirror's state file without them. Alarms
    that no operator has accepted yet would be lost.

    Args:
        config: Current configuration.
        older: Version of Hourmark to downgrade to.

    Yields:
        One obstacle with the operator's next step; nothing if the older version keeps alarms, or if
        there are no alarms.

    Raises:
        NothingToCheck: No central cluster is configured, or no state file exists.
    """
    if not config.kafka.mirrored:
        raise NothingToCheck("no mirror is configured (kafka.central)")
    if not (config.mirror.work_dir / CHECKS_FILE).exists():
        raise NothingToCheck(
            f"no mirror state exists at {config.mirror.work_dir / CHECKS_FILE} (mirror.work_dir)"
        )
    alarms = VerificationState(config.mirror.work_dir, "").alarms
    if alarms and not older.keeps_alarms:
        yield Obstacle(
            str(config.mirror.work_dir / CHECKS_FILE),
            f"{len(alarms)} alarms are active, such as: {alarms[0].seen}; {older.name} would "
            "drop them",
            "resolve each alarm and accept it (`hourmark mirror verify --accept`)",
        )
