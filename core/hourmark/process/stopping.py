"""Orderly shutdown on SIGTERM and SIGINT.

Python runs a signal handler between two instructions of the main thread, possibly within
`Event.wait`, which holds the lock that `Event.set` needs. A handler that sets the event would then
wait for its own thread forever. The handler therefore starts another thread to do it, with
`_thread`, because starting a thread with `threading` takes locks too.
"""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def hold_reloads() -> None:
    """Block the signal SIGHUP in the calling thread until `release_reloads` is called.

    Call it first in a program that reloads its configuration on SIGHUP, because a signal that
    arrives before the handler is installed would end the process. Threads started afterwards
    inherit the block.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def release_reloads() -> None:
    """Unblock the signal SIGHUP in the calling thread.

    A SIGHUP that arrived while it was blocked is delivered now. Install a handler first, because
    without one the signal ends the process.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def stop_on_signals(stop: Callable[[int], object]) -> Callable[[], bool]:
    """Install handlers for SIGTERM and SIGINT that call a function in a new thread.

    Call it from the main thread.

    Args:
        stop: Function that begins an orderly shutdown. It is called with the signal number, once
            for each signal that arrives.

    Returns:
        A function that returns whether a signal has arrived.
    """
    came: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        came.append(number)
        _thread.start_new_thread(stop, (number,))

    for number in SIGNALS:
        signal.signal(number, take)
    return lambda: bool(came)
