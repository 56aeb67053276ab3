"""Runs the rollback checks of all components in parallel, within a time limit."""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError
from hourmark.process.parallel_calls import call_all
from hourmark.rollback.obstacle import NothingToCheck, Obstacle
from hourmark.rollback.version import OlderVersion

ANSWER_SECONDS: Final = 120.0  # there are many markers, and an unavailable cluster answers late
ROOMS: Final[Mapping[str, str]] = {
    # component: module:function
    "tailer": "hourmark_producer.rollback:obstacles",
    "service": "hourmark_delivery_service.rollback:obstacles",
    "mirror": "hourmark_mirror.rollback:obstacles",
    "etl": "hourmark_etl.operators.rollback:obstacles",
}

ObstacleFinder = Callable[[Config, OlderVersion], Iterable[Obstacle]]


@dataclasses.dataclass(frozen=True, slots=True)
class RollbackReport:
    """The result of checking whether one component can be rolled back to an older version.

    The rollback is possible only if `obstacles` is empty and `not_asked` is None.

    Attributes:
        obstacles: Conditions that prevent the rollback; empty if none was found. If the check
            failed, further ones may exist.
        not_asked: Reason why the check failed or timed out; None if it was completed.
        absent: Reason why the component has no data to check on this machine; None if it has data.
    """

    obstacles: tuple[Obstacle, ...] = ()
    not_asked: str | None = None
    absent: str | None = None


def find_obstacles(
    config: Config,
    older: OlderVersion,
    only: Iterable[str] = (),
    table: Mapping[str, str] = ROOMS,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, RollbackReport]:
    """Check in parallel whether components can be rolled back to an older version of Hourmark.

    Nothing is changed. A failed check does not raise an exception.

    Args:
        config: The configuration.
        older: The version to roll back to.
        only: Names of the components to check; empty for all.
        table: Maps each component name to its check function, as `module:function`.
        seconds: Time limit for all checks together.

    Returns:
        A dict that maps each component name to its report, in the order of `table`. If a check
        fails or times out, `not_asked` of its report contains the reason.
    """
    kinds = {name: place for name, place in table.items() if not only or name in only}
    found = call_all(
        {name: functools.partial(_answer, place, config, older) for name, place in kinds.items()},
        seconds,
    )
    late = RollbackReport(not_asked=f"no response within {seconds:g} s")
    return {name: found.get(name, late) for name in kinds}


def _answer(place: str, config: Config, older: OlderVersion) -> RollbackReport:
    try:
        ask: ObstacleFinder = pkgutil.resolve_name(place)
    except ImportError:
        return RollbackReport(absent="it is not installed here")
    found: list[Obstacle] = []
    try:
        for obstacle in ask(config, older):
            found.append(obstacle)  # those before an error are kept
        return RollbackReport(tuple(found))
    except NothingToCheck as error:
        return RollbackReport(absent=str(error))
    except HourmarkError as error:
        return RollbackReport(tuple(found), not_asked=redact(str(error)))
    except Exception as error:  # noqa: BLE001  # the others' answers must not be lost to it
        return RollbackReport(tuple(found), not_asked=redact(f"{type(error).__name__}: {error}"))
