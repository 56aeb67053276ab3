"""A signal ends a daemon wherever its main thread is."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# The main thread holds the lock that Event.wait holds for a moment, and the signal comes right
# then.
PROGRAM = """
import os, threading
from hourmark.process.stopping import stop_on_signals
stop = threading.Event()
told = []
stop_on_signals(lambda number: (told.append(number), stop.set()))
with stop._cond:
    os.kill(os.getpid(), {number})
    sum(range(10_000))
assert stop.wait(10) and told == [{number}]
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_within_a_wait_ends_it(number: signal.Signals) -> None:
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(number=int(number))], check=True, timeout=20
    )
