"""Reload on SIGHUP: the tailer restarts with the current configuration if a start would accept it.

Otherwise it continues with its present configuration. A changed configuration can concern sources,
folders, services and limits, so the tailer stops as on SIGTERM and the same process executes the
program again (execv), with the same arguments, process id and checkpoint. Signals are blocked until
the new program handles them, so no SIGTERM is lost in between.
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
    """Handles SIGHUP: checks the configuration and restarts the process if it is valid.

    Thread-safe.

    Args:
        read: Function that reads and checks the configuration. Raises HourmarkError if it is
            invalid.
        stop: Function that requests the running tailer to stop.

    Attributes:
        was_last_reload_accepted: Whether the latest reload found a valid configuration; True if
            there was none.
    """

    def __init__(self, read: Callable[[], object], stop: Callable[[], object]) -> None:
        self._read = read
        self._stop = stop
        self._lock = threading.Lock()
        self._restart_requested = False
        self.was_last_reload_accepted = True  # result of the latest reload

    def listen(self) -> None:
        """Install the handler of SIGHUP and unblock the signal.

        A signal that arrived while the process was restarting is handled now. Call it in the main
        thread.
        """
        signal.signal(
            signal.SIGHUP, lambda *_: _thread.start_new_thread(self.request_reload, ()) and None
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)

    @property
    def is_restart_requested(self) -> bool:
        """Return whether the process must restart with a new configuration after the tailer stops."""
        return self._restart_requested

    def restart_if_requested(self, is_over: Callable[[], bool]) -> None:
        """Replace the process with a new run of the program if a reload was requested.

        Otherwise, returns. Call this method in the main thread after everything is closed. SIGHUP
        and the stop signals stay blocked until the new program handles them.

        Args:
            is_over: Function that returns whether SIGTERM or Ctrl-C was received. If so, the method
                returns, so that the process ends.
        """
        signal.pthread_sigmask(
            signal.SIG_BLOCK, _HELD
        )  # when it returns, handlers of earlier signals have run
        if self.is_restart_requested and not is_over():
            for number in SIGNALS:
                signal.signal(
                    number, signal.SIG_DFL
                )  # a signal that another thread receives then ends the process
            if not is_over():
                sys.stdout.flush()
                sys.stderr.flush()
                os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # executes this program again

    def request_reload(self) -> None:
        """Check the configuration, and stop the tailer for a restart if it is valid.

        If it is invalid, an error is logged, and the tailer continues with its current
        configuration. The method does not wait until the tailer has stopped.
        """
        with self._lock:
            try:
                self._read()
            except HourmarkError as error:
                self.was_last_reload_accepted = False
                _LOG.error(
                    "SIGHUP: the configuration is rejected, and the tailer continues unchanged: %s",
                    error,
                )
                return
            self.was_last_reload_accepted, self._restart_requested = True, True
            _LOG.info("SIGHUP: restarting with the current configuration")
        self._stop()
