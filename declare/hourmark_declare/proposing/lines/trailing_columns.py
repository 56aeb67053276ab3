"""Recognizes columns behind the message, as in `time | INFO | started | shop.orders | main`.

The message is the column that the others enclose, and may contain their delimiter. Lines after the
first one, such as a stack trace, are behind the last column.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.lines.part_names import bracket_name
from hourmark_declare.proposing.lines.part_search import MOST, SPACE, LineCursor, vary_little
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import are_levels, quote_pattern

_FEW: Final = 10  # messages; so few may contain the delimiter by chance
_COLUMNS_MAX: Final = 8
_WORDS_MAX: Final = 6  # of most values of a column; more are sentences
_SIGN: Final = re.compile(r"([|;~^\t])[ \t]*$")
_NAMED: Final = ("caller", "logger", "thread")  # these differ in nearly all records, too


class TrailingColumn(NamedTuple):
    """A column that follows the message in log records, such as the logger in `text | logger`.

    Attributes:
        name: Field name to propose for the column.
        values: The texts of the column, one for each record that contains the column, without
            leading and trailing white space.
    """

    name: str
    values: list[str]


def find_delimiter(cursors: Sequence[LineCursor]) -> str:
    """Return the delimiter that is directly before the message in nearly all log records.

    Columns after the message are expected to have the same delimiter.

    Args:
        cursors: Start of the message in each record.

    Returns:
        A vertical bar, semicolon, tilde, caret or tab. If there is no common delimiter, a vertical
        bar, because sentences contain no bars.
    """
    found = collections.Counter(
        match[1] for of in cursors if (match := _SIGN.search(of.text[: of.at])) is not None
    ).most_common(1)
    return found[0][0] if found and found[0][1] >= MOST * len(cursors) else "|"


def find_trailing_columns(rests: Sequence[str], delimiter: str) -> list[TrailingColumn]:
    """Return the columns that at least 90% of the messages have at the end of their first line.

    Args:
        rests: Messages, each the text of a record after its other fields.
        delimiter: Delimiter between the message and the columns.

    Returns:
        The columns from left to right; empty if there are none, or fewer than ten messages.
    """
    if len(rests) < _FEW:
        return []
    rows = [[cell.strip() for cell in rest.split("\n")[0].split(delimiter)] for rest in rests]
    columns: list[TrailingColumn] = []
    for number in range(1, _COLUMNS_MAX + 1):
        values = [row[-number] for row in rows if len(row) > number]
        if len(values) < MOST * len(rows) or (name := _column_name(values)) is None:
            break
        columns.insert(0, TrailingColumn(name, values))
    return columns


def message_with_columns(
    columns: Sequence[TrailingColumn], names: Sequence[str], delimiter: str, further: str
) -> str:
    """Return a regular expression for a message and the columns after it.

    A message without the columns also matches. No group includes a CR at the end of the record.

    Args:
        columns: Columns after the message.
        names: Name of the group for each column.
        delimiter: Delimiter between the message and the columns.
        further: Name of the group for the lines after the columns; empty if each line is a record.
    """
    sign = quote_pattern(delimiter)
    inside = rf"[^{sign}\n]*?"
    between = f"{SPACE}*{sign}{SPACE}*"
    tail = ""
    for name, column in zip(names, columns, strict=True):
        number = NUMBER_PATTERNS.get(infer_text_type(column.values))
        tail += between + (f"(?:(?P<{name}>{number})|-?)" if number else f"(?P<{name}>{inside})")
    lines = rf"(?:\r?\n(?P<{further}>.*?))?" if further else ""
    return rf"(?P<{MESSAGE}>.*?)(?:{tail}{SPACE}*{lines})?\r?"


def _column_name(values: Sequence[str]) -> str | None:
    # The name for what is in a column behind the message; None if it may be a part of the message.
    present = [value for value in values if value not in ("", "-")]
    if not present:
        return None
    if are_levels(present):
        return "level"
    if infer_text_type(present) in NUMBER_PATTERNS:
        return "number"
    short = sum(len(value.split()) <= _WORDS_MAX for value in present)
    name = bracket_name(present)
    if short < MOST * len(present) or not (name in _NAMED or vary_little(present)):
        return None
    return name
