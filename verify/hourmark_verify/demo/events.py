"""Structured events of two types, 7 to 3, and a few that are broken in every way that becomes a
dead letter. Seeded.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from hourmark_verify.demo.live_log import Due
from hourmark_verify.demo.rendering import rendered

TRACK_PLAYED: Final = "track-played"
AD_SHOWN: Final = "ad-shown"
_TRACK_SHARE: Final = 0.7
_BROKEN_SHARE: Final = 0.03
_APP: Final = "player"
_YEARS_MS: Final = 3 * 365 * 86_400_000

Render = Callable[[int], bytes]
Fields = dict[str, Any]


def events(count: int, seed: int, *, broken_at_least_each: int) -> Iterator[Due]:
    """Yield `count` evenly spaced log lines, some of them broken.

    Equal seeds give equal lines except for their timestamps.

    Args:
        count: number of lines.
        seed: seed of the random generator.
        broken_at_least_each: interval in lines at which a line is always broken, from the first.
    """
    chance = random.Random(seed)  # noqa: S311  # traffic, not secrets
    for number in range(count):
        broken = chance.random() < _BROKEN_SHARE or number % broken_at_least_each == 0
        event_type, fields = _event(chance, number)
        render = chance.choice(_BROKEN) if broken else _of
        yield Due(number / count, render(event_type, fields), broken)


def _event(chance: random.Random, number: int) -> tuple[str, Fields]:
    user = f"user-{chance.randrange(50_000):05d}"
    if chance.random() < _TRACK_SHARE:
        return TRACK_PLAYED, {
            "track": f"track-{chance.randrange(1_000_000):06d}",
            "user": user,
            "played_ms": chance.randrange(30_000, 300_000),
            "number": number,
            "shuffle": chance.random() < 0.3,
            "country": chance.choice(["SE", "DE", "BR", "ÅX", None]),
        }
    return AD_SHOWN, {
        "ad": f"ad-{chance.randrange(2_000):04d}",
        "user": user,
        "price": round(chance.random() * 5, 4),
        "number": number,
        "slot": chance.choice(["top", "between", "end"]),
    }


def _of(event_type: str, fields: Fields, shift_ms: int = 0) -> Render:
    return rendered(_APP, event_type, _json(fields), shift_ms)


def _json(fields: Fields) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


_BROKEN: Final[tuple[Callable[[str, Fields], Render], ...]] = (
    lambda event_type, fields: rendered(_APP, event_type, _json(fields)[:-9]),  # cut short
    lambda event_type, fields: _of(
        event_type, {name: value for name, value in fields.items() if name != "user"}
    ),
    lambda event_type, fields: _of(event_type, {**fields, "surprise": 1}),
    lambda _, fields: _of("no-such-type", fields),
    lambda event_type, fields: _of(event_type, fields, _YEARS_MS),
    lambda event_type, fields: _of(event_type, fields, -_YEARS_MS),
    lambda event_type, fields: rendered(
        _APP, event_type, _json(fields).replace(b"user-", b"user\xff")
    ),  # no UTF-8
    lambda _, fields: lambda _time_ms: _json(fields),  # no RFC 5424
)
