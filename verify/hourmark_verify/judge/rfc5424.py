"""A minimal parser of RFC 5424 lines: timestamp, host, MSGID and MSG."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final, NamedTuple

_NAME: Final = rb"[!#-<>-\\^-~]{1,255}"  # PRINTUSASCII without = ] and "
_ELEMENT: Final = rb"\[" + _NAME + rb"(?: " + _NAME + rb'="(?:[^"\\\]]|\\.)*")*\]'
_HEADER: Final = re.compile(
    rb"<(?P<pri>0|[1-9]\d{0,2})>1 (?P<time>[!-~]{1,64}) (?P<host>[!-~]{1,255}) [!-~]{1,255} "
    rb"[!-~]{1,255} "
    rb"(?P<msgid>[!-~]{1,255}) (?:-|(?:" + _ELEMENT + rb")+)(?:\r| (?P<msg>.*))?",
    re.DOTALL,
)
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:(Z)|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EPOCH: Final = dt.datetime(1970, 1, 1)


class Rfc5424Parts(NamedTuple):
    """The parts of an RFC 5424 line from which events are derived.

    Attributes:
        time: TIMESTAMP as text, not validated; "-" if the line has none.
        host: HOSTNAME; "-" if the line has none.
        msgid: MSGID; "-" if the line has none.
        message: MSG, which follows the space that ends the header; may be empty.
    """

    time: str
    host: str
    msgid: str
    message: bytes

    @property
    def time_ms(self) -> int | None:
        """The timestamp in Unix milliseconds, rounded down; None if it is absent or invalid."""
        micros = rfc3339_us(self.time)
        return None if micros is None else micros // 1000


def split_rfc5424(line: bytes) -> Rfc5424Parts | None:
    """Split a line into the parts of RFC 5424.

    Args:
        line: Line without its line feed.

    Returns:
        The parts, or None if the line does not conform to RFC 5424 section 6.
    """
    match = _HEADER.fullmatch(line)
    if match is None or int(match["pri"]) > 191:
        return None
    time, host, msgid = (match[name].decode("ascii") for name in ("time", "host", "msgid"))
    return Rfc5424Parts(time, host, msgid, match["msg"] or b"")


def rfc3339_us(text: str) -> int | None:
    """Parse an RFC 3339 timestamp with at most six fractional digits.

    Args:
        text: Timestamp with a time zone, such as 2026-11-21T05:07:09.25Z.

    Returns:
        Unix microseconds, negative before 1970. None if the text is not such a timestamp.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    fraction, _, sign, ahead_h, ahead_m = match.groups()[6:]
    fraction, ahead_h, ahead_m = fraction or "0", int(ahead_h or 0), int(ahead_m or 0)
    if ahead_h > 23 or ahead_m > 59 or len(fraction) > 6:
        return None
    try:
        local = dt.datetime(*map(int, match.groups()[:6]))  # type: ignore[arg-type]  # six of them
    except ValueError:
        return None
    ahead_s = (ahead_h * 3600 + ahead_m * 60) * (-1 if sign == "-" else 1)
    return (
        (local - _EPOCH) // dt.timedelta(microseconds=1)
        - ahead_s * 1_000_000
        + int(fraction.ljust(6, "0"))
    )
