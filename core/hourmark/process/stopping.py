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
    """Block SIGHUP in the calling thread until `release_reloads` is called.

    Call this function first in a program that reloads its configuration on SIGHUP. Otherwise a
    SIGHUP that arrives before the handler is installed would terminate the process. Threads that
    are started afterwards inherit the signal mask.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def release_reloads() -> None:
    """Unblock SIGHUP in the calling thread, and deliver a pending SIGHUP.

    Install a handler first. Without a handler, the signal terminates the process.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def stop_on_signals(stop: Callable[[int], object]) -> Callable[[], bool]:
    """Install handlers for SIGTERM and SIGINT that call a function in a new thread.

    Call this function from the main thread.

    Args:
        stop: Function that starts a clean shutdown. It is called once for each signal received,
            with the signal number.

    Returns:
        A function that returns whether a signal has been received.
    """
    came: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        came.append(number)
        _thread.start_new_thread(stop, (number,))

    for number in SIGNALS:
        signal.signal(number, take)
    return lambda: bool(came)
