"""Asks several at once, for a bounded time: one that hangs costs its own answer alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Answer = TypeVar("Answer")


def call_all(asks: Mapping[str, Callable[[], Answer]], seconds: float) -> dict[str, Answer]:
    """What those answered that did within `seconds`, by name, in the order of `asks`.

    A question must not raise.
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
