"""Each room looks at what it wrote: found by name, asked at once, for a bounded time."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError
from hourmark.process.asking import ask_all
from hourmark.rollback.obstacle import NothingHere, Obstacle
from hourmark.rollback.version import Older

ANSWER_SECONDS: Final = (
    120.0  # markers are many, and a cluster that is away takes its time to say so
)
ROOMS: Final[Mapping[str, str]] = {
    # component: module:function
    "tailer": "hourmark_producer.rollback:obstacles",
    "service": "hourmark_delivery_service.rollback:obstacles",
    "mirror": "hourmark_mirror.rollback:obstacles",
    "etl": "hourmark_etl.operators.rollback:obstacles",
}

Look = Callable[[Config, Older], Iterable[Obstacle]]


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Of one component. `not_asked`: why it could not say, which is no yes; `absent`: what of it is
    not here.
    """

    obstacles: tuple[Obstacle, ...] = ()
    not_asked: str | None = None
    absent: str | None = None


def look(
    config: Config,
    older: Older,
    only: Iterable[str] = (),
    table: Mapping[str, str] = ROOMS,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, Answer]:
    """What each component of `only` (none: of all) says, in the order of the table."""
    kinds = {name: place for name, place in table.items() if not only or name in only}
    found = ask_all(
        {name: functools.partial(_answer, place, config, older) for name, place in kinds.items()},
        seconds,
    )
    late = Answer(not_asked=f"no answer within {seconds:g} s")
    return {name: found.get(name, late) for name in kinds}


def _answer(place: str, config: Config, older: Older) -> Answer:
    module, function = place.split(":")
    try:
        ask: Look = getattr(importlib.import_module(module), function)
    except ImportError:
        return Answer(absent="it is not installed here")
    try:
        return Answer(tuple(ask(config, older)))
    except NothingHere as error:
        return Answer(absent=str(error))
    except HourmarkError as error:
        return Answer(not_asked=redact(str(error)))
    except Exception as error:  # noqa: BLE001  # the others' answers must not be lost to it
        return Answer(not_asked=redact(f"{type(error).__name__}: {error}"))
