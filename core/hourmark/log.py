"""Logging of every daemon: one plain line an occurrence, on stderr. A logger has its module's name."""

from __future__ import annotations

import logging
import time

from hourmark.cli import ROOMS

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


def set_up_logging(level: str) -> None:
    """Send everything of `level` and above to stderr, times in UTC; libraries only from WARNING on."""
    handler = logging.StreamHandler()
    formatter = logging.Formatter(FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("hourmark", *ROOMS):
        logging.getLogger(name).setLevel(level.upper())
