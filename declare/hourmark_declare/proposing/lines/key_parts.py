"""Recognizes keys at the same position in all log records, and values up to the next key."""

from __future__ import annotations

import collections
import graphlib
import itertools
import re
from collections.abc import Sequence
from typing import Final

from hourmark_declare.proposing.lines.part_search import (
    KEY,
    SPACE,
    LineCursor,
    LinePart,
    PartSearch,
    escape_braces,
)
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import (
    LEVEL_PATTERN,
    are_levels,
    is_level,
    quote_pattern,
)

_PAIR: Final = r"([A-Za-z_][\w.@-]*)=(\S*)[ \t]+"
_PAIRS: Final = re.compile(rf"(?P<x>(?:{_PAIR})*)(?={LEVEL_PATTERN}(?:[ \t]|$))")
_PAIRS_BEFORE_NAME: Final = re.compile(
    rf"(?P<x>(?:{_PAIR})*)(?=[A-Za-z_][\w.-]*(?:(?:::?|/)[\w.-]+)*:[ \t])"
)
_PAIRS_MAX: Final = 12  # different keys before the level or a name
_NAMED_LEVEL: Final = re.compile(
    r"(?P<key>LEVEL|Level|level|SEVERITY|Severity|severity)[ \t]*:[ \t]*(?P<x>[A-Za-z]+)\b"
)
_LEVELS_MAX: Final = 12  # different ones
_COUNTS: Final = re.compile(r"(?P<key>[A-Za-z_]\w*):\d+(?:\.\d+)? [A-Za-z_]\w*:[\w.]")


class KeySearch(PartSearch):
    """Recognizes keys and their values in log records, to infer the format of a log file.

    All records are analyzed in parallel. Each method examines the text at the current position of
    each record and returns the key or value that nearly all records have there, or None.
    """

    def starts_counters(self, cursors: Sequence[LineCursor]) -> bool:
        """Return whether nearly all records have a list of counters at their positions.

        An example is `Time:1.25 Hosts:12`. Such a list belongs to the message and is not split into
        elements.
        """
        found = self._matching(cursors, _COUNTS)
        return self._enough(found) and len({match["key"] for match in found.values()}) == 1

    def find_key(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the key that nearly all records have at their positions, such as `key=`, or None.

        The key becomes `pending_key` of the state, because its value is the next element. If there
        is no such key, constant text directly before the timestamp, such as `audit(`, is returned.
        """
        found = self._matching(cursors, KEY)
        keys = collections.Counter(match["key"] for match in found.values()).most_common(1)
        if not keys or keys[0][1] < self._state.needed or len(cursors) < 3:
            return self._constant(cursors)
        key = keys[0][0]
        ends = {n: match.end() for n, match in found.items() if match["key"] == key}
        marks = {match["mark"].strip() for match in found.values() if match["key"] == key}
        mark = next(iter(marks))
        if len(marks) != 1 or (mark == ":" and self._state.time_read):
            return None
        self._state.pending_key = key
        spaces = {match["mark"][1:] for match in found.values() if match["key"] == key}
        space = (spaces.pop() if len(spaces) == 1 else None) if mark == ":" else ""
        literal = f"{quote_pattern(key)}{mark}" + (f"{SPACE}+" if space is None else space)
        return LinePart(literal, ends, {})

    def find_named_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a level behind its key, as in `LEVEL: Event`, whatever the other levels are."""
        if not self._state.time_read or "level" in self._state.types:
            return None
        found = self._matching(cursors, _NAMED_LEVEL)
        values = [match["x"] for match in found.values()]
        known = sum(map(is_level, values))
        if not self._enough(found) or 2 * known < len(values) or len({*values}) > _LEVELS_MAX:
            return None
        key = collections.Counter(match["key"] for match in found.values()).most_common(1)[0][0]
        ends = {n: match.end() for n, match in found.items()}
        pattern = rf"{key}{SPACE}*:{SPACE}*(?P<{{0}}>[A-Za-z]+)\b"
        return LinePart(pattern, ends, {"level": [*values]})

    def find_pairs_or_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return `key=value` pairs if other records have the level in their place, otherwise None."""
        if "level" in self._state.types:
            return None
        part = self.find_optional_pairs(cursors)
        are_absent = part is not None and any(cursors[n].at == end for n, end in part.ends.items())
        return part if are_absent else None

    def find_optional_pairs(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return `key=value` pairs that may be absent in some records, or None if there are none.

        An example is `job=12` in `job=12 INFO: done`. The pairs must be between the timestamp and
        the level, or between the level and a name with a colon. Each of up to 12 keys becomes a
        field.
        """
        if not self._state.time_read:
            return None
        is_behind = "level" in self._state.types
        found = self._matching(cursors, _PAIRS_BEFORE_NAME if is_behind else _PAIRS)
        rows = [dict(re.findall(_PAIR, match["x"])) for match in found.values()]
        keys = keys_in_order([[*row] for row in rows])
        if not self._enough(found) or not 0 < len(keys) <= _PAIRS_MAX:
            return None
        pattern, values = "", dict[str, list[str | None]]()
        for number, key in enumerate(keys):
            column = [row.get(key) for row in rows]
            of_type = infer_text_type([value for value in column if value is not None])
            inside = escape_braces(NUMBER_PATTERNS.get(of_type, r"\S*"))
            literal = escape_braces(quote_pattern(key))
            pattern += f"(?:{literal}=(?P<{{{number}}}>{inside}){SPACE}+)?"
            values[re.sub(r"\W", "_", key, flags=re.ASCII)] = column
        ends = {n: match.end() for n, match in found.items()}
        return LinePart(pattern, ends, values) if len(values) == len(keys) else None

    def find_delimited_value(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the value that follows the pending key in nearly all records, up to a delimiter.

        The delimiter is the character before the key, such as the semicolon in `;host=gw-1;`.
        Returns None if there is no pending key or no delimiter.
        """
        key = self._state.pending_key
        signs = {of.text[: of.at - len(key) - 1][-1:] for of in cursors} if key else set()
        if len(signs) != 1 or (sign := signs.pop()) not in ";|&,":
            return None
        search = re.compile(rf"(?P<x>[^{sign}\n]*)(?={quote_pattern(sign)})")
        found = self._matching(cursors, search)
        values: list[str | None] = [match["x"] for match in found.values()]
        if sign == "" or not self._enough(found) or are_levels([str(of) for of in values]):
            return None
        of_type = infer_text_type([str(value) for value in values])
        inside = NUMBER_PATTERNS.get(of_type, rf"[^{sign}\n]*")
        inside = inside if "" not in values else rf"[^{sign}\n]*"
        ends = {n: match.end() for n, match in found.items()}
        return LinePart(f"(?P<{{0}}>{inside})", ends, {"text": values})

    def _constant(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # Constant text that ends in an opening bracket, directly before the time: `audit(`.
        texts = collections.Counter(
            of.text[of.at : of.time[0]] for of in cursors if of.time and of.time[0] > of.at
        ).most_common(1)
        if (
            not texts
            or texts[0][1] < self._state.needed
            or not re.fullmatch(r"\w+[(=\[]", texts[0][0])
        ):
            return None
        literal = texts[0][0]
        ends = {
            n: of.at + len(literal) for n, of in enumerate(cursors) if of.rest.startswith(literal)
        }
        return LinePart(quote_pattern(literal), ends, {})


def keys_in_order(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the keys of all rows in the order that each row has them.

    Args:
        rows: Keys of each row.

    Returns:
        The different keys; empty if rows differ in their order.
    """
    sorter = graphlib.TopologicalSorter[str]()
    for row in rows:
        for before, key in itertools.pairwise(("", *row)):
            sorter.add(key, *((before,) if before else ()))
    try:
        return [*sorter.static_order()]
    except graphlib.CycleError:
        return []
