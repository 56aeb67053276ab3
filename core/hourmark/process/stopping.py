"""SIGTERM and SIGINT end a daemon in order.

Python runs a signal's handler between two instructions of the main thread, wherever that is: also
within `Event.wait`, which holds the lock that `Event.set` takes. A handler that sets the event then
waits for its own thread, for ever. So a thread of its own does it; one of `_thread`, as to start
one of `threading` takes locks, too.
"""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def hold_reloads() -> None:
    """Hold SIGHUP back from now on: a program that reloads on it must not end by one that comes
    before it listens.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def release_reloads() -> None:
    """Take SIGHUP again, also one that was held back; without a handler it ends the process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def stop_on_signals(stop: Callable[[int], object]) -> Callable[[], bool]:
    """From now on each of the two calls this, with its number, in another thread.

    What it gives says whether one came.
    """
    came: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        came.append(number)
        _thread.start_new_thread(stop, (number,))

    for number in SIGNALS:
        signal.signal(number, take)
    return lambda: bool(came)
