"""Timestamps at or near the beginning of lines: how they are written, and what stands before
them.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_WITHIN: Final = 120  # bytes of a line in which its time begins
_DATES: Final = (  # what is looked for, its pattern in a type, and as `strptime` has it
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
    (re.compile(f"(?P<date>{looked}){_REST}".encode()), of_date, fmt)
    for looked, of_date, fmt in _DATES
]


class TimeForm(NamedTuple):
    """How a time is written: a pattern without groups, and a format of `strptime`."""

    pattern: str
    format: str


class Stamped(NamedTuple):
    """The time that a line begins with, and where it stands."""

    form: TimeForm
    start: int
    end: int


def stamped(line: bytes) -> Stamped | None:
    """The first time in the beginning of the line."""
    found = [
        (match.start(), n, match)
        for n, (form, _, _) in enumerate(_TIMES)
        if (match := form.search(line[: 2 * _WITHIN]))
    ]
    if not found or min(found)[0] > _WITHIN:
        return None
    _, number, match = min(found)
    return Stamped(_form(match, *_TIMES[number][1:]), match.start(), match.end())


def _form(match: re.Match[bytes], date: str, date_format: str) -> TimeForm:
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
    return TimeForm(pattern, text)


class Prefixed(NamedTuple):
    """Lines that bear times: what stands before the time (None: not always the same), and the form
    of most of them.
    """

    before: bytes | None
    form: TimeForm
    share: float  # of the lines that are not blank


def prefixed(lines: Sequence[bytes]) -> Prefixed | None:
    """What most lines with a time have in common; None where none has one."""
    written = [line for line in lines if line.strip()]
    found = [(line, of) for line in written if (of := stamped(line)) is not None]
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
        return Prefixed(most, form, count / len(written))
    if (
        len(found) < len(written) and 2 * before[first] >= count
    ):  # the first line of each record, and times further down in it
        return Prefixed(first, form, before[first] / len(written))
    return Prefixed(None, form, before.total() / len(written))
