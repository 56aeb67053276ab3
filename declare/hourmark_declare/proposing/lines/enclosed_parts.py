"""Recognizes texts in quotes or brackets at the same position in all log records, and their structure.

The text may be a level, a thread or a logger, or have several parts, such as `orders:INFO` or
`pid 4711:tid 12`.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final

from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.lines.message_shape import infer_shape
from hourmark_declare.proposing.lines.part_names import (
    CLOSING_BRACKETS,
    bracket_name,
    quantity_name,
    split_ids,
)
from hourmark_declare.proposing.lines.part_search import (
    IDENTIFIER,
    MOST,
    QUANTITY,
    SPACE,
    LineCursor,
    LinePart,
    PartSearch,
    are_short,
    escape_braces,
)
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import (
    REQUEST,
    are_level_codes,
    are_levels,
    is_level,
    quote_pattern,
)

_SOME: Final = 0.1  # share from which on a part is optional; what fewer have is no common part
_QUOTED: Final = (  # and the text of their patterns
    (re.compile(r'"(?P<x>(?:[^"\\]|\\.)*)"'), r'(?:[^"\\]|\\.)*', '"'),
    (re.compile(r"'(?P<x>[^'\n]*)'(?=[\s,;|>\])]|$)"), r"[^'\n]*", "'"),
)
_BRACKETED: Final = {
    "[": (re.compile(r"\[(?P<x>[^\[\]]*)\]"), r"\[", r"\]", r"[^\[\]]"),
    "(": (re.compile(r"\((?P<x>[^()]*)\)"), r"\(", r"\)", "[^()]"),
    "{": (re.compile(r"\{(?P<x>[^{}]*)\}"), r"\{{", r"\}}", "[^{{}}]"),
    "<": (re.compile(r"<(?P<x>(?:[^<>]|<[^<>]*>)*)>"), "<", ">", "[^<>]"),
}
_LEVEL_BEHIND: Final = re.compile(r"(?P<name>[^/:|,]+?)(?P<mark>[/:|,.]| +)(?P<level>\w+)")
_LEVEL_AHEAD: Final = re.compile(r"(?P<level>\w+)(?P<mark>[/:|,-]| +)(?P<name>[A-Za-z_]\S*)")
_LEVEL_FORMS: Final = (  # with the patterns of both texts in their order
    (_LEVEL_BEHIND, r"[^/:|,\[\]]+?", r"\w+"),
    (_LEVEL_AHEAD, r"\w+", r"[^\[\]<>]*?"),
)
_ID_PAIR: Final = re.compile(r"(?P<pid>\d+)(?P<mark>[:/,])[ \t]*(?P<tid>\d+)")
_MESSAGES_MIN: Final = 5
_MARKS_MIN: Final = 10  # records; the same sign in fewer may be a value
_KEYED: Final = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9_]*)(?P<mark> |[:=] ?)(?P<value>\S.*)")
_RARE_MIN: Final = 3  # records; fewer may be damaged
_NAME_BEHIND: Final = re.compile(r"[^\s:|\[\](<{\"']\S*?[ \t]*:(?=[ \t])")
_PAST_BRACKET: Final = re.compile(r":?[ \t]*")
_AHEAD: Final = re.compile(rf"[ \t]+(?:[\[(<\"]|(?:{IDENTIFIER}|-+|\d+)(?=[ \t]))")
_SPAN: Final = r"[A-Za-z_][\w.-]*\{[^{}\n]*\}"
_SPANS_PATTERN: Final = rf"{_SPAN}(?::[ \t]+(?:{_SPAN}|[a-z_][\w-]*))*"
_SPANS: Final = re.compile(
    rf"(?P<x>{_SPANS_PATTERN}):[ \t]+(?=[A-Za-z_][\w.-]*(?:::[\w-]+)*:[ \t])"
)


class EnclosedSearch(PartSearch):
    """Recognizes quoted and bracketed text in log records, to infer the format of a log file.

    All records are analyzed in parallel. Each method examines the text at the current position of
    each record and returns the text that nearly all records have there, or None.
    """

    def find_quoted(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the quoted text that nearly all records have at their positions, or None.

        If the quoted texts consist of the same words and different numbers, the numbers become
        fields, too.
        """
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
        """Return the bracketed text that nearly all records have at their positions, or None.

        If the brackets enclose the timestamp, only the opening bracket is returned. JSON objects
        and whole sentences are not returned, because they belong to the message.
        """
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
        if any("<" in value for value in values) and char == "<":
            inside = "(?:[^<>]|<[^<>]*>)"
        stripped = [value.strip() for value in values]
        if _are_marks(stripped):
            mark = f"{opening}{SPACE}*{escape_braces(quote_pattern(stripped[0]))}{SPACE}*{closing}"
            return LinePart(mark, ends, {})
        if self._are_messages(cursors, ends, stripped):
            return None
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

    def _are_messages(
        self, cursors: Sequence[LineCursor], ends: dict[int, int], values: Sequence[str]
    ) -> bool:
        # Whether the brackets are around sentences up to the end of the records.
        last = sum(not cursors[n].text[end:].strip() for n, end in ends.items())
        return self._state.time_read and self._enough(range(last)) and not are_short(values)

    @staticmethod
    def _past_colon(cursors: Sequence[LineCursor], ends: dict[int, int]) -> dict[int, int]:
        return {n: end + (cursors[n].text[end : end + 1] == ":") for n, end in ends.items()}

    def _inside(self, values: Sequence[str]) -> tuple[str, dict[str, list[str | None]]] | None:
        # Structure within brackets: `module:level`, or the same keys with numbers.
        bare = [value.strip() for value in values]
        padding = f"{SPACE}*" if bare != [*values] else ""
        for form, first, second in _LEVEL_FORMS:
            if (found := self._level_and_name(bare, form)) is not None:
                mark, groups = found
                return rf"{padding}(?P<{{0}}>{first}){mark}(?P<{{1}}>{second}){padding}", groups
        if (counted := _counted(values)) is not None:
            pattern, groups = counted
            return f"(?P<{{0}}>{pattern})", {"context": [*values], **groups}
        if (ids := _id_pair(bare)) is not None:
            pattern, groups = ids
            return f"{padding}{pattern}{padding}", groups
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

    def _level_and_name(
        self, texts: Sequence[str], form: re.Pattern[str]
    ) -> tuple[str, dict[str, list[str | None]]] | None:
        # The pattern of the sign between a level and a name, and both in their order.
        matches = [form.fullmatch(text) for text in texts]
        found = [match for match in matches if match is not None and is_level(match["level"])]
        signs = {match["mark"].strip() for match in found}
        if len(found) != len(texts) or len(signs) != 1 or "level" in self._state.types:
            return None
        sign = signs.pop()
        names = {"level": "level", "name": _inner_name(sign)}
        groups: dict[str, list[str | None]] = {
            names[group]: [match[group] for match in found]
            for group in form.groupindex
            if group in names
        }
        return quote_pattern(sign) if sign else f"{SPACE}+", groups

    def find_enclosed_or_word(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a value that only some records enclose in brackets, or None if there is none.

        An example is a process that is written as `<0.254.0>` or `init`. At least half of the
        records must have the brackets. A bracket, a quote or an id must follow the value, because a
        plain word could otherwise be the start of the message.
        """
        kinds = collections.Counter(of.rest[:1] for of in cursors if of.rest[:1] in "[(<")
        char, count = kinds.most_common(1)[0] if kinds else ("", 0)
        if not self._state.time_read or not char or 2 * count < len(cursors):
            return None
        _, opening, closing, inside = _BRACKETED[char]
        value = f"(?:{inside[:-1]}\\s])+"
        search = re.compile(
            rf"(?:{opening}(?P<in>{value}){closing}|(?P<bare>[A-Za-z_][\w.-]*))(?=[ \t])"
        )
        found = self._matching(cursors, search)
        ends = {n: match.end() for n, match in found.items()}
        if not self._enough([n for n, of in ends.items() if _AHEAD.match(cursors[n].text, of)]):
            return None
        values = [match["in"] or match["bare"] for match in found.values()]
        pattern = f"{opening}?(?P<{{0}}>{value}){closing}?"
        return LinePart(pattern, ends, {bracket_name(values): [*values]})

    def find_rare_bracket(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a bracketed text that only a few records have, or None if there is none.

        An example is `[C-000000ee]` in `NOTICE[4711][C-000000ee] loader.c: text`. The text must be
        at the current position, and a name followed by a colon must come after it.

        Args:
            cursors: The current position in each sample record. They are not changed.

        Returns:
            The element. Its values are None for records without the text.
        """
        part = self._optional_bracket(cursors, _RARE_MIN)
        if part is None:
            return None
        named = [n for n, end in part.ends.items() if _NAME_BEHIND.match(cursors[n].text, end)]
        column = next(iter(part.values.values()))
        present = [n for n, value in zip(part.ends, column, strict=True) if value is not None]
        is_sure = self._enough(named) and {*present} <= {*named}
        return part if is_sure else None

    def find_optional_bracket(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a bracketed text that at least 10% but not all of the records have, or None.

        The element includes the white space after the brackets. It is recognized only after the
        timestamp.
        """
        return self._optional_bracket(cursors, _SOME * len(cursors))

    def _optional_bracket(self, cursors: Sequence[LineCursor], least: float) -> LinePart | None:
        if not self._state.time_read:
            return None
        char, found = self._some_bracketed(cursors)
        if not least <= len(found) < len(cursors):
            return None
        values = [match["x"].strip() for match in found.values()]
        if "level" not in self._state.types and are_levels(values):
            return None
        ends = {}
        for n, cursor in enumerate(cursors):
            behind = _PAST_BRACKET.match(cursor.text, found[n].end() if n in found else cursor.at)
            ends[n] = cursor.at if behind is None else behind.end()
        _, opening, closing, inside = _BRACKETED[char]
        keyed = [match for value in values if (match := _KEYED.fullmatch(value)) is not None]
        literals = {match["key"] + match["mark"] for match in keyed}
        literal, name = "", bracket_name(values)
        if len(keyed) == len(values) and len(literals) == 1:
            literal, name = literals.pop(), keyed[0]["key"]
            values = [match["value"] for match in keyed]
        column: list[str | None] = [None] * len(cursors)
        for n, value in zip(found, values, strict=True):
            column[n] = value
        value = NUMBER_PATTERNS.get(infer_text_type(values), f"{inside}*")
        pattern = f"(?:{opening}{literal}(?P<{{0}}>{value}){closing}:?)?{SPACE}*"
        return LinePart(pattern, ends, {name: column}, is_optional=True)

    def _some_bracketed(
        self, cursors: Sequence[LineCursor]
    ) -> tuple[str, dict[int, re.Match[str]]]:
        # A kind of bracket that some records have, and its texts that something follows. Of several,
        # the one behind which most records continue in the same way.
        best: tuple[int, str, dict[int, re.Match[str]]] = (0, "", {})
        for char, (search, *_) in _BRACKETED.items():
            found = {
                n: match
                for n, match in self._matching(cursors, search).items()
                if cursors[n].text[match.end() :].strip(" \t:")
            }
            nexts = collections.Counter(
                _kind(of.text[found[n].end() if n in found else of.at :])
                for n, of in enumerate(cursors)
            )
            if found and (count := max(nexts.values())) > best[0]:
                best = count, char, found
        return best[1:]

    def find_optional_spans(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the tracing spans that at least 10% of the records have, or None.

        An example is `job{id=7}` in `job{id=7}: shop: done`. Spans must be between the timestamp
        and a name with a colon.
        """
        found = self._matching(cursors, _SPANS) if self._state.time_read else {}
        if not found or len(found) < _SOME * len(cursors):
            return None
        ends = {n: of.at for n, of in enumerate(cursors)}
        ends |= {n: match.end() for n, match in found.items()}
        column = [found[n]["x"] if n in found else None for n in ends]
        pattern = f"(?:(?P<{{0}}>{escape_braces(_SPANS_PATTERN)}):{SPACE}+)?"
        return LinePart(pattern, ends, {"spans": column}, is_optional=True)


def enclosed_message(rests: Sequence[str]) -> str | None:
    """Return a regular expression for messages in brackets, as in `<BEA-000365> <started>`.

    The brackets are no part of the message. A message without them matches, too.

    Args:
        rests: Messages, each the text of a record after its other fields.

    Returns:
        The expression, with the group `message`; None unless at least 90% of the messages, and at
        least five, are in brackets of the same kind.
    """
    chars = collections.Counter(rest[:1] for rest in rests).most_common(1)
    opening = chars[0][0] if chars else ""
    if opening not in CLOSING_BRACKETS or len(rests) < _MESSAGES_MIN:
        return None
    closing = CLOSING_BRACKETS[opening]
    inside = sum(_is_enclosed(rest.rstrip(), opening, closing) for rest in rests)
    if inside < MOST * len(rests):
        return None
    begin, end = quote_pattern(opening), quote_pattern(closing)
    return rf"{begin}?(?P<{MESSAGE}>.*?)(?:{end}\s*)?"


def _is_enclosed(text: str, opening: str, closing: str) -> bool:
    # Whether the bracket at the begin is closed at the end, and not before.
    depth = 0
    for at, char in enumerate(text):
        depth += (char == opening) - (char == closing)
        if depth == 0:
            return at == len(text) - 1 > 0
    return False


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
    pattern = escape_braces(shape.pattern)
    for number, name in enumerate(shape.types, 1):
        pattern = pattern.replace(f"(?P<{name}>", f"(?P<{{{number}}}>")
    return pattern, groups


def _are_marks(values: Sequence[str]) -> bool:
    # Whether texts in brackets are the same sign in all records, as `[**]`; `[-]` is no value.
    return (
        len(values) >= _MARKS_MIN
        and len({*values}) == 1
        and values[0] not in ("", "-")
        and not any(map(str.isalnum, values[0]))
    )


def _kind(text: str) -> str:
    # What a text begins with, apart from white space: a bracket, a word or something else.
    begin = text.lstrip(" \t:")[:1]
    return begin if begin in _BRACKETED else "word" if begin.isalnum() else "other"


def _id_pair(values: Sequence[str]) -> tuple[str, dict[str, list[str | None]]] | None:
    # The ids of a process and its thread, as in `980: 9970`; a clock has no more than two digits.
    found = [match for value in values if (match := _ID_PAIR.fullmatch(value)) is not None]
    marks = {match["mark"] for match in found}
    if len(found) < len(values) or len(marks) != 1:
        return None
    groups: dict[str, list[str | None]] = {
        name: [match[name] for match in found] for name in ("pid", "tid")
    }
    texts = [match[name] for match in found for name in ("pid", "tid")]
    if infer_text_type(texts) != "long" or max(map(len, texts)) <= 2:
        return None
    return rf"(?P<{{0}}>\d+){marks.pop()}{SPACE}*(?P<{{1}}>\d+)", groups


def _inner_name(mark: str) -> str:
    # Of what precedes the level in brackets.
    return {"/": "thread", ":": "module", ".": "facility"}.get(mark, "component")
