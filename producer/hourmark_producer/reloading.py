"""SIGHUP: the tailer goes on with the configuration as it stands now, if a start would accept it;
else with the one that it has.

A tailer whose configuration changed is another one: sources, folders, services, limits. So the
running one ends as on SIGTERM, and the same process begins anew (execv) on the same checkpoint,
with the same arguments and process id: there is no second way of starting. Signals that come
meanwhile are held back until the new one listens to them: else a SIGTERM would be forgotten with
the one that it came to.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from hourmark.errors import HourmarkError
from hourmark.process.stopping import SIGNALS

_HELD: Final = {signal.SIGHUP, *SIGNALS}
_LOG: Final = logging.getLogger(__name__)


class ReloadHandler:
    """`read` raises HourmarkError where the configuration is not in order; `stop` ends the tailer.

    Safe in threads.
    """

    def __init__(self, read: Callable[[], object], stop: Callable[[], object]) -> None:
        self._read = read
        self._stop = stop
        self._lock = threading.Lock()
        self._restart_requested = False
        self.was_last_reload_accepted = True  # the latest

    def listen(self) -> None:
        """From now on SIGHUP asks for it.

        All signals are taken, also such as came since `begin_anew`.
        """
        signal.signal(
            signal.SIGHUP, lambda *_: _thread.start_new_thread(self.request_reload, ()) and None
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)

    @property
    def is_restart_requested(self) -> bool:
        """Whether the tailer is to begin anew, once it has ended."""
        return self._restart_requested

    def restart_if_requested(self, is_over: Callable[[], bool]) -> None:
        """Where that is wanted, this process from its beginning; not where it `is_over`, as SIGTERM
        came.

        To be called by the main thread, once everything is closed.
        """
        signal.pthread_sigmask(
            signal.SIG_BLOCK, _HELD
        )  # handlers of those that came before have run when it returns
        if self.is_restart_requested and not is_over():
            for number in SIGNALS:
                signal.signal(
                    number, signal.SIG_DFL
                )  # another thread, if there is any, takes it at its word
            if not is_over():
                sys.stdout.flush()
                sys.stderr.flush()
                os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # this program again

    def request_reload(self) -> None:
        """Check the configuration, and begin to end if it is in order."""
        with self._lock:
            try:
                self._read()
            except HourmarkError as error:
                self.was_last_reload_accepted = False
                _LOG.error(
                    "SIGHUP: the configuration is not taken, and the tailer goes on as it was: %s",
                    error,
                )
                return
            self.was_last_reload_accepted, self._restart_requested = True, True
            _LOG.info("SIGHUP: going on with the configuration as it stands now")
        self._stop()
