"""SIGHUP: the tailer goes on with the configuration as it stands now, if that is in order; else with the one that it has.

A tailer whose configuration changed is another one: sources, folders, services, limits. So the running one ends as on SIGTERM,
and the same process begins anew (execv) on the same checkpoint, with the same arguments and process id: there is no second way of
starting. A SIGHUP that comes meanwhile is held back until the new one listens to it.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

from hourmark.errors import HourmarkError

_LOG: Final = logging.getLogger(__name__)


class Reloading:
    """`read` raises HourmarkError where the configuration is not in order; `stop` ends the tailer. Safe in threads."""

    def __init__(self, read: Callable[[], object], stop: Callable[[], object]) -> None:
        self._read = read
        self._stop = stop
        self._lock = threading.Lock()
        self._begins_anew = False
        self._is_over = False
        self.ok = True  # the latest

    def listen(self) -> None:
        """From now on SIGHUP asks for it, also one that came since `begin_anew`."""
        signal.signal(signal.SIGHUP, lambda *_: _thread.start_new_thread(self.ask, ()) and None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    @property
    def wanted(self) -> bool:
        """Whether the tailer is to begin anew, once it has ended."""
        return self._begins_anew and not self._is_over

    def end(self) -> None:
        """As on SIGTERM: also where it was about to begin anew."""
        self._is_over = True
        self._stop()

    def ask(self) -> None:
        """Check the configuration, and begin to end if it is in order."""
        with self._lock:
            try:
                self._read()
            except HourmarkError as error:
                self.ok = False
                _LOG.error("SIGHUP: the configuration is not taken, and the tailer goes on as it was: %s", error)
                return
            self.ok, self._begins_anew = True, True
            _LOG.info("SIGHUP: going on with the configuration as it stands now")
        self._stop()


def begin_anew() -> NoReturn:
    """This process, from its beginning. To be called by the main thread, once everything is closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # this program again
