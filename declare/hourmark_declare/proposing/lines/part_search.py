"""State of the search for elements that log records have in common, and its basic operations."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence, Sized
from typing import Final, NamedTuple

from hourmark_declare.proposing.times.timestamps import find_timestamps

MOST: Final = 0.9  # share of the records that must have a part
SPACE: Final = "[ \\t]"
PROGRAM: Final = re.compile(
    r"(?P<program>[A-Za-z_/][\w./()+-]*)(?:\[(?P<pid>[0-9A-Fa-f]+)(?:(?P<between>[:.,/])(?P<tid>\d+))?\])?(?P<end>:?)(?=\s|$)"
)
KEY: Final = re.compile(r"(?P<key>[A-Za-z_][\w.@-]*)(?P<mark>=|:[ \t]+)")
IDENTIFIER: Final = (
    r"(?:0x)?(?=[0-9-]*[A-Fa-f])[0-9A-Fa-f]{6,}(?:-[0-9A-Fa-f]+)*|0x[0-9A-Fa-f]+|0\d{5,}"
)
DATE_LIKE: Final = re.compile(r"\d{4}[-./]\d\d[-./]\d\d(?=\s)")


QUANTITY: Final = re.compile(r"(?P<x>\d+(?:\.\d+)?)(?P<unit>[A-Za-z\u00b5%]{1,3})(?=[\s,;|\])]|$)")


class LineCursor(NamedTuple):
    """The current position in the analysis of one log record.

    A record is analyzed from left to right, element by element.

    Attributes:
        text: Text of the record.
        at: Index in `text` of the next character to analyze.
        time: Start and end index of the record's timestamp in `text`; None if it has none.
    """

    text: str
    at: int
    time: tuple[int, int] | None

    @property
    def rest(self) -> str:
        return self.text[self.at :]


class LinePart(NamedTuple):
    """The next element of nearly all log records, such as a level or a quoted text.

    For the records `[main] started` and `[pool-1] done`, the first element is the text in brackets:
    `ends` is `{0: 6, 1: 8}`, and `values` is `{"thread": ["main", "pool-1"]}`.

    Attributes:
        pattern: Regular expression for the element. Groups are written `(?P<{0}>…)`, `(?P<{1}>…)`;
            the caller replaces the numbers with field names. All other braces are doubled. A
            timestamp has the group `time`.
        ends: Maps the index of each record that has the element to the index of the character after
            it.
        values: Maps the proposed field name of each group to the captured texts, one for each item
            of `ends`; None if nothing was captured. The list is empty for a timestamp.
        is_optional: Whether the analysis continues in all records, or only in those that have the
            element.
    """

    pattern: str
    ends: dict[int, int]
    values: dict[str, list[str | None]]
    is_optional: bool = False


@dataclasses.dataclass(kw_only=True)
class ReadingState:
    """Mutable state of the search for elements that log records have in common.

    All records are analyzed in parallel from left to right, one element (such as a level, a number
    or a delimiter) at a time.

    Attributes:
        records: Number of records at the start of the analysis.
        needed: Minimum number of records that must have an element in common; may be a fraction.
        time_pattern: Regular expression that matches the timestamps of the records.
        has_time: Whether nearly all records have a timestamp.
        multiline: Whether records consist of several lines.
        time_read: Whether the current positions are after the timestamp.
        types: Maps the name of each field found so far to its Avro type.
        open_brackets: Brackets that were opened before the current positions and are not closed
            yet.
        pending_key: Key of a `key=value` pair whose value is the next element; None otherwise.
    """

    records: int
    needed: float
    time_pattern: str
    has_time: bool
    multiline: bool
    time_read: bool = False
    types: dict[str, str] = dataclasses.field(default_factory=dict)
    open_brackets: list[str] = dataclasses.field(default_factory=list)
    pending_key: str | None = None


class PartSearch:
    """Base class of searches for text elements that log records have in common.

    To infer the format of a log file, its records are split into elements, such as a timestamp, a
    level or a word. All records are analyzed in parallel from left to right. Each subclass
    recognizes some kinds of elements at the current positions.

    Args:
        state: State of the analysis, which all searches share.
    """

    def __init__(self, state: ReadingState) -> None:
        self._state = state

    def _enough(self, ends: Sized) -> bool:
        return len(ends) >= self._state.needed and len(ends) > 0

    def _matching(
        self, cursors: Sequence[LineCursor], search: re.Pattern[str]
    ) -> dict[int, re.Match[str]]:
        return {
            number: match
            for number, cursor in enumerate(cursors)
            if (match := search.match(cursor.text, cursor.at)) is not None
            and not (cursor.time and cursor.at <= cursor.time[0] < match.end())
        }

    def _part(
        self, cursors: Sequence[LineCursor], search: re.Pattern[str], name: str, pattern: str
    ) -> LinePart | None:
        found = self._matching(cursors, search)
        if not self._enough(found):
            return None
        values = [match["x"] for match in found.values()]
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, {name: values})


def escape_braces(pattern: str) -> str:
    """Double all braces in a regular expression, as required for `LinePart.pattern`.

    There, single braces enclose the number of a group whose name is not known yet.
    """
    return pattern.replace("{", "{{").replace("}", "}}")


def timestamp_at(cursor: LineCursor) -> tuple[int, str] | None:
    """Find a timestamp at the current position of a log record.

    Args:
        cursor: Position in the record.

    Returns:
        A tuple of the index after the timestamp and its regular expression; None if there is none.
    """
    found = find_timestamps(cursor.text[cursor.at : cursor.at + 60], 0)
    if not found or found[0].start != 0:
        return None
    return cursor.at + found[0].end, found[0].form.pattern


def are_short(values: Sequence[str]) -> bool:
    """Return whether texts are short enough to be names rather than sentences.

    At least 90% of the texts must have at most three words. Less than half of them may contain
    a tab or several spaces, which indicate table columns.
    """
    short = sum(len(value.split()) <= 3 for value in values)
    padded = sum("  " in value or "\t" in value for value in values)
    return short >= MOST * len(values) and 2 * padded < len(values)


def are_short_names(values: Sequence[str]) -> bool:
    """Return whether texts at the same position in all records may be names.

    They must be short (see `are_short`). If any has several words, they must also repeat (see
    `vary_little`).
    """
    return are_short(values) and (
        all(len(value.split()) <= 1 for value in values) or vary_little(values)
    )


def vary_little(values: Sequence[str]) -> bool:
    """Return whether texts repeat so often that they may be names rather than sentences.

    At most half of the texts, or at most three of them, may be different.
    """
    return len(set(values)) <= max(0.5 * len(values), 3)
