"""Recognizes the parts of log records at the same position in all of them.

A part is a timestamp, a level, text in quotes or brackets, a program with its process id, a number,
punctuation, or a word that something specific follows.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final

from hourmark_declare.proposing.lines.enclosed_parts import EnclosedSearch
from hourmark_declare.proposing.lines.key_parts import KeySearch
from hourmark_declare.proposing.lines.part_names import may_be_process_ids, quantity_name
from hourmark_declare.proposing.lines.part_search import (
    DATE_LIKE,
    IDENTIFIER,
    MOST,
    PROGRAM,
    QUANTITY,
    SPACE,
    LineCursor,
    LinePart,
    PartSearch,
    ReadingState,
    escape_braces,
    timestamp_at,
)
from hourmark_declare.proposing.lines.word_parts import WordSearch
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import (
    COMMON_LEVELS,
    LEVEL_FORMS,
    LEVEL_LETTERS,
    LEVELS,
    are_level_letters,
    are_levels,
    is_level,
    quote_pattern,
)

_PUNCTUATION: Final = frozenset("|,;:-#*/=@>~&+]})!")
_NUMBER: Final = re.compile(
    r"(?:(?P<x>[+-]?\d+(?:\.\d+(?:[eE][+-]?\d+)?)?)|-)(?=[\s,;|:#\[\]()/]|$)"
)
_ADDRESS: Final = re.compile(
    r"(?P<x>\d{1,3}(?:\.\d{1,3}){3})(?::(?P<port>\d{1,5}))?(?=[\s,;|:#\])-]|$)"
)
_CHANNEL_LEVEL: Final = re.compile(
    rf"(?P<channel>[A-Za-z][\w-]*(?:\.[\w-]+)*?)(?P<mark>[./:,\[(<])(?P<level>(?i:{LEVELS}))[\])>]?(?=[:,]|\s|$):?"
)
_LEVEL_WORD: Final = re.compile(r"(?P<x>[A-Za-z]{3,12})(?::|(?=[ \t|\[]))")
_IDENTIFIER: Final = re.compile(rf"(?:(?P<x>{IDENTIFIER})|-+)(?=[\s\])]|$)")
_ANY_BRACKET: Final = re.compile(r"^\[\\\[<\(\]\??")  # at the begin of a form of a level
_NEARLY_ALL: Final = 0.97  # levels in brackets: others are in the tails of broken lines
_PADDED_NUMBER: Final = re.compile(r"[ \t]*\d+(?=[\s,;|:\])])")  # behind a sign, as in `980: 9970`
_SOME: Final = 0.1  # share of records that have an id, or begin with white space to be aligned
_COLORED_SPACE: Final = r"(?:[ \t]|\x1b\[[\d;]*m)"  # with escape sequences of terminals


class PartRecognizer(PartSearch):
    """A recognizer for the next element that nearly all log records have in common.

    Examples of elements are a timestamp, a level, a quoted text, a number or a delimiter. Call
    `next_part` repeatedly to split the start of the records into elements.

    Args:
        state: State of the analysis. The recognizer updates `open_brackets` and sets `pending_key`.
            The caller updates the other attributes after each element.
    """

    def __init__(self, state: ReadingState) -> None:
        super().__init__(state)
        self._words, self._keys = WordSearch(state), KeySearch(state)
        self._enclosed = EnclosedSearch(state)

    def next_part(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the element that nearly all log records have at their current positions.

        If several kinds of elements match, such as a level and a word, the most specific one is
        returned.

        Args:
            cursors: Current position in each record. They are not changed; the caller advances them
                to `LinePart.ends`.

        Returns:
            The element, with its end in each record. None if the records have no element in common
            at these positions, so the free text of the message starts there.
        """
        if self._state.time_read and self._keys.starts_counters(cursors):
            return None
        for recognize in (
            self._time,
            self._space,
            self._quote_at_time,
            self._keys.find_delimited_value,
            self._keys.find_named_level,
            self._keys.find_pairs_or_level,
            self._level,
            self._channel_level,
            self._enclosed.find_quoted,
            self._enclosed.find_bracketed,
            self._program,
            self._keys.find_key,
            self._address,
            self._identifier,
            self._number,
            self._quantity,
            self._symbol,
            self._punctuation,
            self._other_time,
            self._words.find_origin,
            self._enclosed.find_enclosed_or_word,
            self._enclosed.find_optional_spans,
            self._enclosed.find_rare_bracket,
            self._words.find_around_level,
            self._words.find_after_level,
            self._words.find_between_colons,
            self._words.find_between_commas,
            self._keys.find_optional_pairs,
            self._words.find_before_level,
            self._words.find_named_level,
            self._words.find_named_pid,
            self._words.find_word,
            self._words.find_position,
            self._words.find_optional_words,
            self._enclosed.find_optional_bracket,
        ):
            if (part := recognize(cursors)) is not None:
                return part
        return None

    # What is recognized, in the order in which it is tried.

    def _time(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        ends = {n: of.time[1] for n, of in enumerate(cursors) if of.time and of.time[0] == of.at}
        if not self._enough(ends) or any(map(_is_before_time, cursors)):
            return None
        return LinePart("(?P<time>" + self._state.time_pattern + ")", ends, {"time": []})

    def _space(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        colored = 2 * sum("\x1b" in cursor.rest for cursor in cursors) > len(cursors)
        space = _COLORED_SPACE if colored else SPACE
        search = re.compile(f"{space}+")
        ends = {n: match.end() for n, match in self._matching(cursors, search).items()}
        if self._enough(ends):
            return LinePart(f"{space}+", ends, {})
        is_indented = all(cursor.at == 0 for cursor in cursors) and len(ends) >= _SOME * len(
            cursors
        )
        is_padded = any(map(_is_before_time, cursors)) or (
            ends and self._enough(self._matching(cursors, _PADDED_NUMBER))
        )
        if is_indented or is_padded or (self._state.time_read and 2 * len(ends) > len(cursors)):
            return LinePart(f"{space}*", ends, {}, is_optional=True)
        return None

    def _quote_at_time(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # A quote directly before the time, or behind it, which begins no other quoted text.
        for quote in ('"', "'"):
            ends = {
                n: of.at + 1
                for n, of in enumerate(cursors)
                if of.time
                and of.rest.startswith(quote)
                and of.text[of.time[0] - 1 : of.time[0]] == quote
                and of.at in (of.time[0] - 1, of.time[1])
            }
            if self._enough(ends):
                return LinePart(quote, ends, {})
        return None

    def _level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        if "level" in self._state.types:
            return None
        if (part := self._level_words(cursors)) is not None:
            return part
        for pattern, share in LEVEL_FORMS:
            found = self._matching(cursors, re.compile(pattern))
            if (
                len(found)
                > (share if self._state.time_read or not self._state.has_time else MOST)
                * self._state.records
            ):
                bracketed = {n: match for n, match in found.items() if match[0][0] == "["}
                if not self._state.has_time and len(bracketed) >= _NEARLY_ALL * len(found):
                    pattern, found = _ANY_BRACKET.sub(r"\\[", pattern), bracketed
                values: list[str | None] = [match["level"] for match in found.values()]
                if all(str(value).upper() in COMMON_LEVELS.split("|") for value in values):
                    pattern = pattern.replace(LEVELS, COMMON_LEVELS)
                ends = {n: match.end() for n, match in found.items()}
                return LinePart(pattern, ends, {"level": values})
        letters = {
            n: of.at + 1
            for n, of in enumerate(cursors)
            if of.rest[:1].isascii()
            and of.rest[:1].isalpha()
            and (re.match(r"[\s,/|:!\]]", of.rest[1:2]) or (of.time and of.time[0] == of.at + 1))
        }
        if self._enough(letters):
            found_letters = [cursors[n].text[end - 1] for n, end in letters.items()]
            if are_level_letters(found_letters) or (
                len(found_letters) < 10 and {*found_letters} <= LEVEL_LETTERS
            ):
                ends = {n: end + cursors[n].text.startswith("!", end) for n, end in letters.items()}
                pattern = "(?P<{0}>[A-Za-z])!?"
                return LinePart(pattern, ends, {"level_letter": [*found_letters]})
        return None

    def _level_words(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # Words of which some are no known levels, but the others are: `info`, `http`, `warn`.
        part = self._part(cursors, _LEVEL_WORD, "level", r"(?P<{0}>[A-Za-z]{{3,12}}):?")
        if part is None:
            return None
        values = [str(value) for value in part.values["level"]]
        is_known = sum(map(is_level, values)) >= MOST * len(values)
        return part if not is_known and are_levels(values) else None

    def _channel_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        if "level" in self._state.types:
            return None
        found = self._matching(cursors, _CHANNEL_LEVEL)
        marks = {match["mark"] for match in found.values()}
        if not self._enough(found) or len(marks) > 1:
            return None
        values: dict[str, list[str | None]] = {
            "component": [match["channel"] for match in found.values()],
            "level": [match["level"] for match in found.values()],
        }
        mark = quote_pattern(marks.pop())
        level = LEVELS.replace("{", "{{")
        pattern = rf"(?P<{{0}}>[A-Za-z][\w.-]*?){mark}(?P<{{1}}>(?i:{level}))[\])>]?:?"
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, values)

    def _identifier(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # Records without one may have dashes, as in `-------- started`.
        found = self._matching(cursors, _IDENTIFIER)
        values = [match["x"] for match in found.values()]
        absent = values.count(None)
        if not self._enough(found) or len(values) - absent < _SOME * len(values):
            return None
        pattern = r"(?P<{0}>(?:0x[0-9A-Fa-f]+|[0-9A-Fa-f]{{6,}})(?:-[0-9A-Fa-f]+)*)"
        pattern = f"(?:{pattern}|-+)" if absent else pattern
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, {"id": values})

    def _program(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        found = {
            n: match
            for n, match in self._matching(cursors, PROGRAM).items()
            if match["pid"] or match["end"]
        }
        with_pid = sum(match["pid"] is not None for match in found.values())
        if not self._enough(found) or 5 * with_pid < len(found):
            return None
        values: dict[str, list[str | None]] = {
            "program": [match["program"] for match in found.values()],
            "pid": [match["pid"] for match in found.values()],
        }
        pid = r"\[(?P<{1}>[0-9A-Fa-f]+)"
        if any(match["tid"] for match in found.values()):
            values["tid"] = [match["tid"] for match in found.values()]
            pid += r"(?:[:.,/](?P<{2}>\d+))?"
        pid += r"\]"
        pid = pid if with_pid == len(found) else f"(?:{pid})?"
        pattern = r"(?P<{0}>[A-Za-z_/][\w./()+-]*)" + pid + ":?"
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, values)

    def _address(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        found = self._matching(cursors, _ADDRESS)
        if not self._enough(found):
            return None
        values: dict[str, list[str | None]] = {"address": [m["x"] for m in found.values()]}
        pattern = r"(?P<{0}>\d{{1,3}}(?:\.\d{{1,3}}){{3}})"
        if any(match["port"] for match in found.values()):
            values["port"] = [match["port"] for match in found.values()]
            pattern += r"(?::(?P<{1}>\d{{1,5}}))?"
        return LinePart(pattern, {n: m.end() for n, m in found.items()}, values)

    def _number(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        found = self._matching(cursors, _NUMBER)
        values = [match["x"] for match in found.values()]
        present = [value for value in values if value is not None]
        if not self._enough(found) or 2 * len(present) < len(values):
            return None
        of_type = infer_text_type(present)
        digits = NUMBER_PATTERNS["double" if of_type == "double" else "long"]
        if of_type == "long" and any("." in value for value in present):
            return None
        pattern = (
            f"(?P<{{0}}>{digits})" if len(present) == len(values) else f"(?:(?P<{{0}}>{digits})|-)"
        )
        name = "number"
        if (
            self._state.time_read
            or not self._state.has_time
            or all(
                of.rest[len(v or "-") : len(v or "-") + 1] == ":"
                for of, v in zip(cursors, values, strict=False)
            )
        ):
            name = "pid" if of_type == "long" and may_be_process_ids(present) else "number"
        if "request" in self._state.types:
            name = "bytes" if "status" in self._state.types else "status"
        return LinePart(pattern, {n: m.end() for n, m in found.items()}, {name: values})

    def _quantity(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # A number with a unit, the same in all records: `12ms`.
        found = self._matching(cursors, QUANTITY)
        if not self._enough(found) or len(units := {of["unit"] for of in found.values()}) > 1:
            return None
        unit = units.pop()
        values: list[str | None] = [match["x"] for match in found.values()]
        name = quantity_name(unit)
        pattern = rf"(?P<{{0}}>\d+(?:\.\d+)?){quote_pattern(unit)}"
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, {name: values})

    def _symbol(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # One symbol that differs, such as the level of Redis.
        if not self._state.time_read or {"level", "level_letter"} & {*self._state.types}:
            return None
        search = re.compile(r"(?P<x>[.\-*#!+?])(?=[ \t])")
        found = self._matching(cursors, search)
        values = [match["x"] for match in found.values()]
        if not self._enough(found) or len(set(values)) < 2:
            return None
        return LinePart(
            r"(?P<{0}>[.\-*#!+?])", {n: m.end() for n, m in found.items()}, {"level": [*values]}
        )

    def _punctuation(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        firsts = collections.Counter(of.rest[:1] for of in cursors).most_common(1)
        if not firsts or firsts[0][0] not in _PUNCTUATION or firsts[0][1] < self._state.needed:
            return None
        char = firsts[0][0]
        runs = collections.Counter(
            re.match(quote_pattern(char) + "+", of.rest)[0]  # type: ignore[index]
            for of in cursors
            if of.rest.startswith(char)
        )
        run, count = runs.most_common(1)[0]
        if count < self._state.needed or (
            char == "-" and any(of.rest[1:2].isalnum() for of in cursors)
        ):
            return None
        if char in "])" and self._state.open_brackets:
            self._state.open_brackets.pop()
        ends = {n: of.at + len(run) for n, of in enumerate(cursors) if of.rest.startswith(run)}
        return LinePart(escape_braces(quote_pattern(run)), ends, {})

    def _other_time(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        found: dict[int, tuple[int, str]] = {}
        for number, cursor in enumerate(cursors):
            if (match := DATE_LIKE.match(cursor.text, cursor.at)) is not None:
                found[number] = match.end(), r"\S+"
            elif (at := timestamp_at(cursor)) is not None:
                found[number] = at
        if not self._enough(found):
            return None
        patterns = {pattern for _, pattern in found.values()}
        pattern = patterns.pop() if len(patterns) == 1 else r"\S+"
        ends = {n: end for n, (end, _) in found.items()}
        if (
            any(" " in cursors[n].text[cursors[n].at : end] for n, end in ends.items())
            and pattern == r"\S+"
        ):
            return None
        values: list[str | None] = [cursors[n].text[cursors[n].at : end] for n, end in ends.items()]
        return LinePart(f"(?P<{{0}}>{escape_braces(pattern)})", ends, {"date": values})


def _is_before_time(cursor: LineCursor) -> bool:
    # Whether there are only spaces and tabs between the position and the time, as in ` 9:02:11`.
    between = cursor.text[cursor.at : cursor.time[0]] if cursor.time is not None else ""
    return between != "" and not between.strip(" \t")
