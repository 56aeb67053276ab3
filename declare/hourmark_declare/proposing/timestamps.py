"""Detects timestamps at or near the beginning of lines, and the text before them."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_WITHIN: Final = 120  # bytes of a line in which its timestamp must begin
_DATES: Final = (  # search pattern, pattern in a type file, and `strptime` format
    (r"\d{4}-\d\d-\d\d", r"\d{4}-\d\d-\d\d", "%Y-%m-%d"),
    (r"\d{4}/\d\d/\d\d", r"\d{4}/\d\d/\d\d", "%Y/%m/%d"),
    (r"\d{1,2}/[A-Z][a-z]{2}/\d{4}", r"\d{1,2}/[A-Z][a-z]{2}/\d{4}", "%d/%b/%Y"),
    (r"\d{1,2} [A-Z][a-z]{2} \d{4}", r"\d{1,2} [A-Z][a-z]{2} \d{4}", "%d %b %Y"),
    (r"\d\d\.\d\d\.\d{4}", r"\d\d\.\d\d\.\d{4}", "%d.%m.%Y"),
    (r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d", r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d", "%a %b %e"),
    (r"[A-Z][a-z]{2} [ \d]\d", r"[A-Z][a-z]{2} [ \d]\d", "%b %e"),
    (r"(?<!\d)\d{6}(?= \d{6}(?!\d))", r"\d{6}", "%y%m%d"),
)
_REST: Final = (
    r"(?P<between>T|:| {1,3})(?P<clock>\d\d:\d\d:\d\d|\d{6})(?P<fraction>[.,]\d{1,9})?"
    r"(?P<zone>Z\b| ?[+-]\d\d:?\d\d\b| (?:UTC|GMT|CES?T|BST|[ECMP][SD]T)\b)?(?P<year> "
    r"(?:19|20)\d\d\b)?"
)
_TIMES: Final = [
    (re.compile(f"(?P<date>{search}){_REST}".encode()), of_date, fmt)
    for search, of_date, fmt in _DATES
]


class TimestampFormat(NamedTuple):
    """The format of timestamps in a log file.

    Attributes:
        pattern: Regular expression without groups that matches such timestamps.
        format: Format of such timestamps for `strptime`.
    """

    pattern: str
    format: str


class TimestampMatch(NamedTuple):
    """A timestamp that was found in a line.

    Attributes:
        form: Format of the timestamp.
        start: Byte offset of the timestamp's first byte in the line.
        end: Byte offset after the timestamp's last byte.
    """

    form: TimestampFormat
    start: int
    end: int


def find_timestamp(line: bytes) -> TimestampMatch | None:
    """Find the first timestamp in a line.

    Args:
        line: Line of a log file.

    Returns:
        The timestamp; None if none starts within the first 120 bytes of the line.
    """
    found = [
        (match.start(), n, match)
        for n, (form, _, _) in enumerate(_TIMES)
        if (match := form.search(line[: 2 * _WITHIN]))
    ]
    if not found or min(found)[0] > _WITHIN:
        return None
    _, number, match = min(found)
    return TimestampMatch(_form(match, *_TIMES[number][1:]), match.start(), match.end())


def _form(match: re.Match[bytes], date: str, date_format: str) -> TimestampFormat:
    between, clock = match["between"].decode(), match["clock"]
    pattern = date + between + (r"\d\d:\d\d:\d\d" if b":" in clock else r"\d{6}")
    text = date_format + between + ("%H:%M:%S" if b":" in clock else "%H%M%S")
    if fraction := match["fraction"]:
        mark = fraction[:1].decode()
        pattern, text = pattern + re.escape(mark) + r"\d{1,9}", text + mark + "%f"
    if zone := match["zone"]:
        space, named = " " * zone.startswith(b" "), zone.strip()[:1].isalpha() and zone != b"Z"
        pattern += space + ("[A-Z]{3,4}" if named else r"(?:Z|[+-]\d\d:?\d\d)")
        text += space + ("%Z" if named else "%z")
    if match["year"]:
        pattern, text = pattern + r" \d{4}", text + " %Y"
    return TimestampFormat(pattern, text)


class CommonTimestamp(NamedTuple):
    """The timestamp format that occurs most often in the lines of a log file.

    Attributes:
        before: Text between the start of a line and the timestamp; None if it differs from line to
            line.
        form: Format of the timestamp.
        share: Share of the non-blank lines that have this timestamp, between 0 and 1.
    """

    before: bytes | None
    form: TimestampFormat
    share: float


def find_common_timestamp(lines: Sequence[bytes]) -> CommonTimestamp | None:
    """Find the most frequent timestamp format in the lines of a log file.

    Args:
        lines: Lines of the file; blank lines are ignored.

    Returns:
        The format, the text before the timestamp and the share of the lines that have it. None if
        no line has a timestamp.
    """
    written = [line for line in lines if line.strip()]
    found = [(line, of) for line in written if (of := find_timestamp(line)) is not None]
    if not found:
        return None
    forms = collections.Counter(of.form for _, of in found)
    form, _ = forms.most_common(1)[0]
    before = collections.Counter(line[: of.start] for line, of in found if of.form == form)
    (most, count), first = (
        before.most_common(1)[0],
        next(line[: of.start] for line, of in found if of.form == form),
    )
    if count >= 0.9 * before.total() or (len(found) == len(written) and len(before) == 1):
        return CommonTimestamp(most, form, count / len(written))
    if (
        len(found) < len(written) and 2 * before[first] >= count
    ):  # records whose later lines also contain timestamps
        return CommonTimestamp(first, form, before[first] / len(written))
    return CommonTimestamp(None, form, before.total() / len(written))
