"""The time that an idempotency key holds, if it is a UUIDv7 (RFC 9562) or a ULID (github.com/ulid/spec): Unix milliseconds.

A key must tell the same time on every retry, so it alone decides whether it tells one: by fixed bounds, and by no clock.
"""

from __future__ import annotations

import re
from typing import Final

_TIMES_MS: Final = range(946_684_800_000, 4_102_444_800_000)  # 2000 to 2099; others are what looks like a time by chance
_UUID7: Final = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ULID: Final = re.compile(r"([0-7][0-9a-hjkmnp-tv-z]{9})[0-9a-hjkmnp-tv-z]{16}")
_CROCKFORD: Final = {digit: value for value, digit in enumerate("0123456789abcdefghjkmnpqrstvwxyz")}


def time_of_key(key: str) -> int | None:
    """Unix milliseconds, or None. Letters may be capitals, and some clients put a key between double quotes."""
    text = key.removeprefix('"').removesuffix('"').lower()
    if match := _UUID7.fullmatch(text):
        time_ms = int(match[1] + match[2], 16)
    elif match := _ULID.fullmatch(text):
        time_ms = 0
        for digit in match[1]:
            time_ms = time_ms << 5 | _CROCKFORD[digit]
    else:
        return None
    return time_ms if time_ms in _TIMES_MS else None
