"""Logging of all processes: one line for each message, on stderr. Loggers are named after modules."""

from __future__ import annotations

import logging
import time

from hourmark.cli import ROOMS
from hourmark.config.redaction import RedactingFormatter, install_redaction
from hourmark.printing import printable

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


class _OneLine(RedactingFormatter):
    """A log formatter that escapes control characters, so that each message occupies one line.

    Tracebacks keep their line breaks.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


def set_up_logging(level: str) -> None:
    """Configure logging to stderr for this process, with UTC timestamps and secrets redacted.

    Existing handlers of the root logger are replaced. Third-party libraries log only warnings and
    errors.

    Args:
        level: Lowest level that Hourmark logs: `debug`, `info`, `warning` or `error`.
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
