"""Why a query ended: Spark hands on errors of its Python processes as text, and what a driver does next depends on their kind."""

from __future__ import annotations

import importlib
import re
from typing import Final

from etl.errors import EtlStop
from hourmark.errors import HourmarkError, Unavailable

_RAISED: Final = re.compile(r"^(?:.*: )?((?:etl|hourmark)\.[\w.]+): (.*)$", re.MULTILINE)
_LOST_WORKER: Final = ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure")
_NETWORK: Final = re.compile(
    r"^.*(?:Connection (?:refused|reset|timed out)|timed out|Broken pipe|No route to host|Network is unreachable"
    r"|(?:Connection\w*|Timeout)Error|gaierror|(?:Connect|SocketTimeout|UnknownHost|NoRouteToHost|EOF)Exception).*$",
    re.MULTILINE,
)
_LINES_OF_CAUSE: Final = 15


def cause_of(text: str) -> HourmarkError:
    """The error that the text tells of; Unavailable for a lost worker or a server that cannot be reached; else EtlStop with
    the text's last lines."""
    for name, message in reversed(_RAISED.findall(text)):
        if kind := _error_class(name):
            if issubclass(kind, Unavailable):
                return Unavailable(message)
            return kind(message) if kind.__init__ is HourmarkError.__init__ else EtlStop(message)
    if any(lost in text for lost in _LOST_WORKER):
        return Unavailable("a Python worker of the staging query was lost; was it out of memory, or killed?")
    if found := _NETWORK.search(text):
        return Unavailable(f"a server that staging needs could not be reached: {found[0].strip()}")
    lines = "\n".join(text.splitlines()[-_LINES_OF_CAUSE:])
    return EtlStop(f"staging has stopped; start the driver again, it goes on from the ledger. The cause:\n{lines}")


def _error_class(name: str) -> type[HourmarkError] | None:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, HourmarkError) else None
