"""RFC 5424 lines around any bytes. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Final

HOST: Final = "demo-host"
_APP_NAME_MAX: Final = 48


def rfc5424(time_ms: int, app: str, event_type: str, message: bytes) -> bytes:
    """Return an RFC 5424 line without its line feed.

    Args:
        time_ms: timestamp in Unix milliseconds.
        app: APP-NAME.
        event_type: MSGID.
        message: MSG, copied byte for byte; it must not contain a line feed.
    """
    assert b"\n" not in message, "a line feed would end the line"
    moment = dt.datetime.fromtimestamp(time_ms // 1000, dt.UTC)
    return (
        f"<134>1 {moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z {HOST} {app} - {event_type} - "
    ).encode() + message


def rendered(
    app: str, event_type: str, message: bytes, shift_ms: int = 0
) -> Callable[[int], bytes]:
    """The same as what is still to be told the time of its writing, from which its own differs by
    `shift_ms`.
    """
    return lambda time_ms: rfc5424(time_ms + shift_ms, app, event_type, message)


def app_name(file_name: str) -> str:
    """Return a valid RFC 5424 APP-NAME derived from a file name; "-" if it is empty."""
    return re.sub(r"[^!-~]+", "_", file_name)[:_APP_NAME_MAX] or "-"
