"""Parsing of RFC 5424 syslog lines on bytes.

    <PRI>1 SP TIMESTAMP SP HOSTNAME SP APP-NAME SP PROCID SP MSGID SP STRUCTURED-DATA [SP MSG]

The grammar is that of the RFC, with two extensions: fields may exceed its length limits (the name
of an event type may be longer than the 32 characters of a MSGID), and a line without MSG may end
with CR. It is one regular expression with possessive quantifiers, so the time is linear in the
line's length for any input.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NIL: Final = b"-"
BOM: Final = b"\xef\xbb\xbf"

_SD_NAME = rb"[!#-<>-\\^-~]{1,255}+"  # PRINTUSASCII without = ] and "
_SD_PARAM = rb" " + _SD_NAME + rb'="(?:[^"\\\]]|\\.)*+"'
# The repeated part is an atomic group as well: before Python 3.11.4 a possessive quantifier
# continues after the text of the last, failed repetition (gh-106052), which an atomic group
# restores. Debian 12 has Python 3.11.2.
SD_ELEMENTS: Final = rb"(?>\[" + _SD_NAME + rb"(?>" + _SD_PARAM + rb")*+\])++"
_LINE = re.compile(
    rb"<(?:0|[1-9]\d?|1[0-8]\d|19[01])>1 "
    rb"([!-~]{1,64}+) ([!-~]{1,255}+) [!-~]{1,255}+ [!-~]{1,255}+ ([!-~]{1,255}+) "
    rb"(?:-|" + SD_ELEMENTS + rb")"
    rb"(?: (.*)|\r)?",
    re.DOTALL,
)


class Rfc5424Line(NamedTuple):
    """The parts of an RFC 5424 syslog line that are used for an event.

    Attributes:
        timestamp: TIMESTAMP, not parsed, or `-`.
        host: HOSTNAME, or `-`.
        msgid: MSGID, which names the event type.
        msg: MSG; empty if absent.
    """

    timestamp: bytes
    host: bytes
    msgid: bytes
    msg: bytes  # empty where there is none


def parse_rfc5424_line(line: bytes) -> Rfc5424Line | None:
    """Parse an RFC 5424 syslog line and return the parts that are used for an event.

    Args:
        line: Line without its line feed.

    Returns:
        The parts, or None if the line is not in RFC 5424 format.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    timestamp, host, msgid, msg = match.groups()
    return Rfc5424Line(timestamp, host, msgid, msg or b"")
