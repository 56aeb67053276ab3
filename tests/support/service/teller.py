"""What a supervisor's test starts for a worker: a process that does nothing but tell, and imports
little, to start soon.
"""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark_delivery_service.process.worker_status import WorkerStatus, WorkerStatusTable


def tell(config: Config, _: socket.socket, claims_file: Path, slot: int) -> None:
    """Tell until SIGTERM.

    By the level of its log: `debug` ends at once, `error` leaves two requests unanswered.
    """
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    claims, told = WorkerStatusTable(claims_file, SystemClock(), create=False), 0
    while not ends and config.log_level != "debug":
        told += 1
        claims.update(slot, WorkerStatus(1000 + told, 0, 0, told))
        time.sleep(0.01)
    if config.log_level == "error":
        claims.update(slot, WorkerStatus(1000 + told, 0, 2, told))
