"""Spark's Python processes below a driver: the daemon of workers, the workers of tasks, the one
that plans.
"""

from __future__ import annotations

from contextlib import suppress

import psutil


def kill_pythons(driver: int) -> int:
    """SIGKILL for all of them, not for the driver itself; how many there were."""
    killed = 0
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() != "java":
                process.kill()
                killed += 1
    return killed
