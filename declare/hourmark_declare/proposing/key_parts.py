"""Recognizes keys at the same position in all log records, and values up to the next key."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final

from hourmark_declare.proposing.part_search import KEY, SPACE, LineCursor, LinePart, PartSearch
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import are_levels, quote_pattern

_COUNTS: Final = re.compile(r"(?P<key>[A-Za-z_]\w*):\d+(?:\.\d+)? [A-Za-z_]\w*:[\w.]")


class KeySearch(PartSearch):
    """Searches for keys and their values at the current positions of all log records."""

    def begin_counts(self, cursors: Sequence[LineCursor]) -> bool:
        """Return whether pairs such as `Time:1.25 Hosts:12` begin, which belong to the message."""
        found = self._matching(cursors, _COUNTS)
        return self._enough(found) and len({match["key"] for match in found.values()}) == 1

    def find_key(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a key and its sign, as in `key=value`, or constant text before the timestamp."""
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

    def find_delimited_value(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the text up to the sign that is before its key, too, as in `;host=gw-1;`."""
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
