"""How long to wait before a failed step is tried again. Retries never end; only the pause is bounded. Pure."""

from __future__ import annotations

import random
from typing import Final

from hourmark_producer.service_client import Busy, Refused

FIRST_S: Final = 0.1
NEXT_ADDRESS_S: Final = 0.05  # another service may well be able to


def pause_s(error: Exception, *, failures: int, addresses: int, max_s: float, rng: random.Random) -> float:
    """`failures`: in a row, this one included. Exponential with jitter, so that many tailers do not come back together."""
    assert failures >= 1, "there is no pause without a failure"
    if isinstance(error, Refused):
        return max_s  # asking again soon would not help
    if failures % addresses != 0:
        return min(NEXT_ADDRESS_S, max_s)
    rounds = min(failures // addresses - 1, 30)
    pause: float = min(max_s, FIRST_S * (1 << rounds)) * rng.uniform(0.5, 1.0)
    return max(pause, error.retry_after_s) if isinstance(error, Busy) else pause
