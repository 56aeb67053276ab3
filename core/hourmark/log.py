"""Logging of every daemon: one plain line an occurrence, on stderr. A logger has its module's name."""

from __future__ import annotations

import logging
import time

from hourmark.cli import ROOMS
from hourmark.config.redaction import RedactingFormatter, install_redaction
from hourmark.printing import printable

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


class _OneLine(RedactingFormatter):
    """Messages without control characters: a newline in the name of a file begins no line of the
    log. Tracebacks stay.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


def set_up_logging(level: str) -> None:
    """Send everything of `level` and above to stderr, times in UTC; libraries only from WARNING on.

    Neither log lines nor tracebacks on stderr show a secret of the settings from then on
    (`redaction`).
    """
    install_redaction()
    handler = logging.StreamHandler()
    formatter = _OneLine(FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("hourmark", *ROOMS):
        logging.getLogger(name).setLevel(level.upper())
