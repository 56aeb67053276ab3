"""Parallel calls with a common time limit: a call that hangs does not affect the results of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Result = TypeVar("Result")


def call_all(functions: Mapping[str, Callable[[], Result]], seconds: float) -> dict[str, Result]:
    """Call functions in parallel threads, and return the results that are available in time.

    A function that exceeds the time limit continues in a daemon thread. Exceptions of functions are
    not propagated.

    Args:
        functions: Maps names to functions without arguments.
        seconds: Time limit for all functions together.

    Returns:
        A dict that maps names to results, in the order of `functions`. Functions that raised an
        exception or exceeded the time limit are omitted.
    """
    results: dict[str, Result] = {}

    def call(name: str) -> None:
        results[name] = functions[name]()

    threads = [
        threading.Thread(target=call, args=(name,), daemon=True, name=f"asking {name}")
        for name in functions
    ]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return {name: results[name] for name in functions if name in results}
