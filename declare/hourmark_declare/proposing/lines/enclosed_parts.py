"""Recognizes texts in quotes or brackets at the same position in all log records, and their structure.

The text may be a level, a thread or a logger, or have several parts, such as `orders:INFO` or
`pid 4711:tid 12`.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final

from hourmark_declare.proposing.lines.message_shape import infer_shape
from hourmark_declare.proposing.lines.part_names import bracket_name, quantity_name, split_ids
from hourmark_declare.proposing.lines.part_search import (
    QUANTITY,
    SPACE,
    LineCursor,
    LinePart,
    PartSearch,
    without_groups,
)
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import (
    REQUEST,
    are_level_codes,
    are_levels,
    is_level,
    quote_pattern,
)

_SOME: Final = 0.2  # share from which on a part in brackets is optional
_QUOTED: Final = (  # and the text of their patterns
    (re.compile(r'"(?P<x>(?:[^"\\]|\\.)*)"'), r'(?:[^"\\]|\\.)*', '"'),
    (re.compile(r"'(?P<x>[^'\n]*)'(?=[\s,;|>\])]|$)"), r"[^'\n]*", "'"),
)
_BRACKETED: Final = {
    "[": (re.compile(r"\[(?P<x>[^\[\]]*)\]"), r"\[", r"\]", r"[^\[\]]"),
    "(": (re.compile(r"\((?P<x>[^()]*)\)"), r"\(", r"\)", "[^()]"),
    "{": (re.compile(r"\{(?P<x>[^{}]*)\}"), r"\{{", r"\}}", "[^{{}}]"),
    "<": (re.compile(r"<(?P<x>[^<>]*)>"), "<", ">", "[^<>]"),
}
_LEVEL_BEHIND: Final = re.compile(r"(?P<name>[^/:|,]+?)(?P<mark>[/:|,.]| +)(?P<level>\w+)")
_LEVEL_AHEAD: Final = re.compile(r"(?P<level>\w+)(?P<mark>[/:|,-]| +)(?P<name>[A-Za-z_]\S*)")


class EnclosedSearch(PartSearch):
    """Searches for texts in quotes or brackets at the current positions of all log records."""

    def find_quoted(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a text in quotes, as one field or with the numbers in it."""
        for search, inside, quote in _QUOTED:
            found = self._matching(cursors, search)
            if not self._enough(found):
                continue
            ends = {n: match.end() for n, match in found.items()}
            values = [match["x"] for match in found.values()]
            name = "request" if all(REQUEST.fullmatch(value) for value in values) else "text"
            if name == "text" and quote == '"' and (inner := _counted(values)) is not None:
                pattern, groups = inner
                return LinePart(f'"(?P<{{0}}>{pattern})"', ends, {name: [*values], **groups})
            return LinePart(f"{quote}(?P<{{0}}>{inside}){quote}", ends, {name: [*values]})
        return None

    def find_bracketed(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a text in brackets, or the bracket that is open at a timestamp."""
        first = collections.Counter(of.rest[:1] for of in cursors).most_common(1)
        char = first[0][0] if first else ""
        if char not in _BRACKETED or first[0][1] < self._state.needed:
            return None
        search, opening, closing, inside = _BRACKETED[char]
        found = self._matching(cursors, search)
        before_time = {
            n: of.at + 1
            for n, of in enumerate(cursors)
            if of.time and of.rest[:1] == char and of.at < of.time[0] and n not in found
        }
        if self._enough(before_time):
            self._state.open_brackets.append(char)
            return LinePart(opening, before_time, {})
        if not self._enough(found):
            return None
        ends = {n: match.end() for n, match in found.items()}
        values = [match["x"] for match in found.values()]
        if char == "{" and sum('":' in value for value in values) >= self._state.needed:
            return None  # JSON
        if (inner := self._inside(values)) is not None:
            pattern, groups = inner
            return LinePart(
                f"{opening}{pattern}{closing}:?", self._past_colon(cursors, ends), groups
            )
        stripped = [value.strip() for value in values]
        pattern = f"{opening}{SPACE}*(?P<{{0}}>{inside}*?){SPACE}*{closing}"
        if "level" not in self._state.types and are_level_codes(stripped):
            code = f"{opening}{SPACE}*(?P<{{0}}>{inside}{{{{1,2}}}}?){SPACE}*{closing}:?"
            return LinePart(code, self._past_colon(cursors, ends), {"level": [*stripped]})
        name = bracket_name(stripped)
        quantities = [QUANTITY.fullmatch(value) for value in stripped]
        units = {of["unit"] if of is not None else None for of in quantities}
        if len(units) == 1 and (unit := next(iter(units))) is not None:
            name = quantity_name(unit)
            numbers: list[str | None] = [of["x"] for of in quantities if of is not None]
            quantity = f"(?P<{{0}}>\\d+(?:\\.\\d+)?){quote_pattern(unit)}"
            pattern = f"{opening}{SPACE}*{quantity}{SPACE}*{closing}:?"
            return LinePart(pattern, self._past_colon(cursors, ends), {name: numbers})
        if number := NUMBER_PATTERNS.get(infer_text_type(stripped)):
            pattern = f"{opening}{SPACE}*(?:(?P<{{0}}>{number})|-?){SPACE}*{closing}"
        return LinePart(pattern + ":?", self._past_colon(cursors, ends), {name: [*stripped]})

    @staticmethod
    def _past_colon(cursors: Sequence[LineCursor], ends: dict[int, int]) -> dict[int, int]:
        return {n: end + (cursors[n].text[end : end + 1] == ":") for n, end in ends.items()}

    def _inside(self, values: Sequence[str]) -> tuple[str, dict[str, list[str | None]]] | None:
        # Structure within brackets: `module:level`, or the same keys with numbers.
        bare = [value.strip() for value in values]
        padding = f"{SPACE}*" if bare != [*values] else ""
        behind = [_LEVEL_BEHIND.fullmatch(value) for value in bare]
        found = [match for match in behind if match is not None and is_level(match["level"])]
        marks = {match["mark"].strip() for match in found}
        if len(found) == len(values) and len(marks) == 1 and "level" not in self._state.types:
            sign = marks.pop()
            mark = quote_pattern(sign) if sign else f"{SPACE}+"
            return (
                rf"{padding}(?P<{{0}}>[^/:|,\[\]]+?){mark}(?P<{{1}}>\w+){padding}",
                {
                    _inner_name(sign): [match["name"] for match in found],
                    "level": [match["level"] for match in found],
                },
            )
        ahead = [_LEVEL_AHEAD.fullmatch(value) for value in bare]
        levels = [match for match in ahead if match is not None and is_level(match["level"])]
        marks = {match["mark"].strip() for match in levels}
        if len(levels) == len(values) and len(marks) == 1 and "level" not in self._state.types:
            sign = marks.pop()
            mark = quote_pattern(sign) if sign else f"{SPACE}+"
            return (
                rf"{padding}(?P<{{0}}>\w+){mark}(?P<{{1}}>[^\[\]<>]*?){padding}",
                {
                    "level": [match["level"] for match in levels],
                    _inner_name(sign): [match["name"] for match in levels],
                },
            )
        if (counted := _counted(values)) is not None:
            pattern, groups = counted
            return f"(?P<{{0}}>{pattern})", {"context": [*values], **groups}
        if (named := split_ids([value.strip() for value in values])) is not None:
            pattern = f"{SPACE}*{named.pattern}{SPACE}*"
            return pattern, {bracket_name(named.names): [*named.names], **named.others}
        pairs = [re.findall(r"([A-Za-z]+)[ =](\d+)(?=[:, ]|$)", value) for value in values]
        keys = {tuple(key for key, _ in of) for of in pairs}
        if len(keys) != 1 or not (names := keys.pop()) or len(set(names)) < len(names):
            return None
        rest = {re.sub(r"\d+(?=[:, ]|$)", "#", value) for value in values}
        if len(rest) != 1:
            return None
        pieces = rest.pop().split("#")
        if len(pieces) != len(names) + 1:
            return None
        pattern = quote_pattern(pieces[0])
        for number, piece in enumerate(pieces[1:]):
            pattern += f"(?P<{{{number}}}>\\d+)" + quote_pattern(piece)
        return pattern, {name: [of[number][1] for of in pairs] for number, name in enumerate(names)}

    def find_optional_bracket(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a text in square brackets that only some records have."""
        if not self._state.time_read:
            return None
        search, _, _, _ = _BRACKETED["["]
        found = self._matching(cursors, search)
        if len(found) < _SOME * len(cursors) or len(found) >= len(cursors):
            return None
        is_free = "level" not in self._state.types
        if is_free and are_levels([match["x"].strip() for match in found.values()]):
            return None
        ends = {}
        for n, match in found.items():
            behind = re.compile(r":?[ \t]*").match(cursors[n].text, match.end())
            ends[n] = behind.end() if behind is not None else match.end()
        values = [match["x"].strip() for match in found.values()]
        keys = {value.split(" ", 1)[0] for value in values if " " in value}
        if (
            len(keys) == 1
            and all(" " in value for value in values)
            and (key := keys.pop()).isascii()
            and key.isalpha()
        ):
            return LinePart(
                rf"(?:\[{key} (?P<{{0}}>[^\[\]]*)\]:?{SPACE}*)?",
                ends,
                {key: [value.split(" ", 1)[1] for value in values]},
                is_optional=True,
            )
        return LinePart(
            rf"(?:\[(?P<{{0}}>[^\[\]]*)\]:?{SPACE}*)?",
            ends,
            {bracket_name(values): [*values]},
            is_optional=True,
        )


def _counted(values: Sequence[str]) -> tuple[str, dict[str, list[str | None]]] | None:
    # Several numbers between the same words, as in `A IN www. udp 40 false 512`. The groups of the
    # pattern begin with number 1.
    shape = infer_shape(values, set())
    if shape is None or len(shape.types) < 2:
        return None
    search = re.compile(shape.pattern)
    found = [search.fullmatch(value) for value in values]
    groups: dict[str, list[str | None]] = {
        name: [match[name] if match is not None else None for match in found]
        for name in shape.types
    }
    if any(match is None for match in found):
        return None
    pattern = without_groups(shape.pattern)
    for number, name in enumerate(shape.types, 1):
        pattern = pattern.replace(f"(?P<{name}>", f"(?P<{{{number}}}>")
    return pattern, groups


def _inner_name(mark: str) -> str:
    # Of what precedes the level in brackets.
    return {"/": "thread", ":": "module", ".": "facility"}.get(mark, "component")
