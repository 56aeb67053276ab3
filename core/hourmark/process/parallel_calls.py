"""Parallel calls with a common time limit: a call that hangs does not affect the results of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Answer = TypeVar("Answer")


def call_all(asks: Mapping[str, Callable[[], Answer]], seconds: float) -> dict[str, Answer]:
    """Call functions in parallel threads and return the results that arrive in time.

    A function must not raise. One that exceeds the limit continues in a daemon thread.

    Args:
        asks: Functions by name.
        seconds: Time limit for all of them.

    Returns:
        Results by name, in the order of `asks`. Late ones are omitted.
    """
    found: dict[str, Answer] = {}

    def ask(name: str) -> None:
        found[name] = asks[name]()

    asking = [
        threading.Thread(target=ask, args=(name,), daemon=True, name=f"asking {name}")
        for name in asks
    ]
    for thread in asking:
        thread.start()
    until_s = time.monotonic() + seconds
    for thread in asking:
        thread.join(max(0.0, until_s - time.monotonic()))
    return {name: found[name] for name in asks if name in found}
