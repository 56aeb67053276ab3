"""Structured events of two types, 7 to 3, and a few that are broken in every way that becomes a dead letter. Seeded."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from infra.demo.live_log import Due
from infra.demo.rendering import rfc5424

TRACK_PLAYED: Final = "track-played"
AD_SHOWN: Final = "ad-shown"
_TRACK_SHARE: Final = 0.7
_BROKEN_SHARE: Final = 0.03
_APP: Final = "player"
_YEARS_MS: Final = 3 * 365 * 86_400_000

Render = Callable[[int], bytes]


def events(count: int, seed: int, *, broken_at_least_each: int) -> Iterator[Due]:
    """`count` lines, evenly spread, every so many of them broken for sure; equal seeds give equal lines but for their times."""
    chance = random.Random(seed)  # noqa: S311  # traffic, not secrets
    for number in range(count):
        broken = chance.random() < _BROKEN_SHARE or number % broken_at_least_each == 0
        yield Due(number / count, _line(chance, number, broken=broken), broken)


def _line(chance: random.Random, number: int, *, broken: bool) -> Render:
    event_type, fields = _event(chance, number)
    if broken:
        return chance.choice(_BROKEN)(event_type, fields)
    return _rendered(event_type, _json(fields))


def _event(chance: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    user = f"user-{chance.randrange(50_000):05d}"
    if chance.random() < _TRACK_SHARE:
        played = {
            "track": f"track-{chance.randrange(1_000_000):06d}",
            "user": user,
            "played_ms": chance.randrange(30_000, 300_000),
        }
        country = chance.choice(["SE", "DE", "BR", "ÅX", None])
        return TRACK_PLAYED, {**played, "number": number, "shuffle": chance.random() < 0.3, "country": country}
    shown = {"ad": f"ad-{chance.randrange(2_000):04d}", "user": user, "price": round(chance.random() * 5, 4)}
    return AD_SHOWN, {**shown, "number": number, "slot": chance.choice(["top", "between", "end"])}


def _rendered(event_type: str, message: bytes, shift_ms: int = 0) -> Render:
    return functools.partial(_render, event_type, message, shift_ms)


def _render(event_type: str, message: bytes, shift_ms: int, time_ms: int) -> bytes:
    return rfc5424(time_ms + shift_ms, _APP, event_type, message)


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def _cut_short(event_type: str, fields: dict[str, Any]) -> Render:
    return _rendered(event_type, _json(fields)[:-9])


def _without_user(event_type: str, fields: dict[str, Any]) -> Render:
    return _rendered(event_type, _json({name: value for name, value in fields.items() if name != "user"}))


def _with_unknown_field(event_type: str, fields: dict[str, Any]) -> Render:
    return _rendered(event_type, _json({**fields, "surprise": 1}))


def _of_unknown_type(_: str, fields: dict[str, Any]) -> Render:
    return _rendered("no-such-type", _json(fields))


def _years_ahead(event_type: str, fields: dict[str, Any]) -> Render:
    return _rendered(event_type, _json(fields), _YEARS_MS)


def _years_back(event_type: str, fields: dict[str, Any]) -> Render:
    return _rendered(event_type, _json(fields), -_YEARS_MS)


def _not_utf8(event_type: str, fields: dict[str, Any]) -> Render:
    return _rendered(event_type, _json(fields).replace(b"user-", b"user\xff"))


def _not_rfc5424(_: str, fields: dict[str, Any]) -> Render:
    return lambda _time_ms: _json(fields)


_BROKEN: Final = (
    _cut_short,
    _without_user,
    _with_unknown_field,
    _of_unknown_type,
    _years_ahead,
    _years_back,
    _not_utf8,
    _not_rfc5424,
)
