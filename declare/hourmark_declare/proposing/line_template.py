"""Infers the template of log lines: a pattern with named fields, and a message at the end.

All records are read from left to right at the same time. At each position, the most specific part
is taken that nine in ten records have: the timestamp, a level, text in quotes or brackets, a
program with its process id, a number, punctuation, or a word that something specific follows.
Where there is none, the message begins. What stands behind the timestamp is optional as a whole,
so that a record without it is still read with its time and its text.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Final, NamedTuple

from hourmark_declare.proposing.timestamps import find_timestamps
from hourmark_declare.proposing.value_types import infer_text_type
from hourmark_declare.proposing.vocabulary import (
    COMMON_LEVELS,
    HOST_KEYS,
    LEVEL_FORMS,
    LEVEL_LETTERS,
    LEVELS,
    are_hosts,
    is_level,
    quote_pattern,
)

MESSAGE: Final = "message"
_MOST: Final = 0.9  # share of the records that must have a part
_SOME: Final = 0.2  # share from which on a part in brackets is optional
_PARTS_MAX: Final = 40
_WORDS_AHEAD: Final = 8
_PUNCTUATION: Final = frozenset("|,;:-#*/=@>~&+]})!")
_QUOTED: Final = re.compile(r'"(?P<x>(?:[^"\\]|\\.)*)"')
_BRACKETED: Final = {
    "[": (re.compile(r"\[(?P<x>[^\[\]]*)\]"), r"\[", r"\]", r"[^\[\]]"),
    "(": (re.compile(r"\((?P<x>[^()]*)\)"), r"\(", r"\)", "[^()]"),
    "{": (re.compile(r"\{(?P<x>[^{}]*)\}"), r"\{{", r"\}}", "[^{{}}]"),
    "<": (re.compile(r"<(?P<x>[^<>]*)>"), "<", ">", "[^<>]"),
}
_PROGRAM: Final = re.compile(
    r"(?P<program>[A-Za-z_][\w./()+-]*)(?:\[(?P<pid>\d+)\])?(?P<end>:?)(?=\s|$)"
)
_NUMBER: Final = re.compile(r"(?:(?P<x>[+-]?\d+(?:\.\d+)?)|-)(?=[\s,;|:#\])/]|$)")
_ADDRESS: Final = re.compile(
    r"(?P<x>\d{1,3}(?:\.\d{1,3}){3})(?::(?P<port>\d{1,5}))?(?=[\s,;|:#\])-]|$)"
)
_KEY: Final = re.compile(r"(?P<key>[A-Za-z_][\w.@-]*)(?P<mark>=|:[ \t]+)")
_LOGGER: Final = re.compile(r"(?P<x>[A-Za-z_$][\w$-]*(?:(?:\.|::|/|\$)[\w$<>-]+)+)(?=[ \t])")
_COLON_WORD: Final = re.compile(r"(?P<x>[^\s:|\[\]\"']\S*?)[ \t]*:(?:[ \t]+|$)")
_BEFORE_BRACKET: Final = re.compile(r"(?P<x>[^\s\[\]]+)\](?=[ \t]|$)")
_PADDED: Final = re.compile(r"(?P<x>[^\s|\[\]\"]+)(?=\t| {2,}\S)")
_DASHED: Final = re.compile(r"(?P<x>[^\s|\[\"](?:[^|\n]{0,60}?[^\s|])??)[ \t]+[-|:>]+[ \t]+")
_PIPED: Final = re.compile(r"(?P<x>[^|\n]{0,80}?)[ \t]*\|")
_WORD: Final = re.compile(r"(?P<x>[^\s|\[\]\"]+)")
_WORD_UP_TO: Final = {
    "]": re.compile(r"(?P<x>[^\s\[\]]+)(?=\])"),
    ")": re.compile(r"(?P<x>[^\s()]+)(?=\))"),
    ",": re.compile(r"(?P<x>[^\s,]+)(?=,)"),
}
_DATE_LIKE: Final = re.compile(r"\d{4}[-./]\d\d[-./]\d\d(?=\s)")
_THREADS: Final = re.compile(r"(?i)main|thread|exec|worker|pool|nio|executor|scheduler")
_REQUEST: Final = re.compile(r"[A-Z]{3,8} \S+( HTTP/[\d.]+)?|-")
_LEVEL_BEHIND: Final = re.compile(r"(?P<name>[^/:]+)(?P<mark>[/:])(?P<level>\w+)")
_CHANNEL_LEVEL: Final = re.compile(rf"(?P<channel>[A-Za-z][\w-]*)\.(?P<level>{LEVELS})(?=:|\s|$):?")
_IDENTIFIER: Final = re.compile(
    r"(?P<x>(?:0x)?(?=[0-9-]*[A-Fa-f])[0-9A-Fa-f]{6,}(?:-[0-9A-Fa-f]+)*|0x[0-9A-Fa-f]+|0\d{5,})(?=[\s\])]|$)"
)
_GROUP: Final = re.compile(r"\(\?P<\{(\d)\}>")  # where the name of a field is filled in
_SPACE: Final = "[ \\t]"


class Template(NamedTuple):
    """The common structure of log records.

    Attributes:
        pattern: Regular expression with named groups for a whole record.
        start: Regular expression without named groups for the start of a record, up to and
            including its timestamp; empty if the records have none.
        types: Avro type of each field by name, in order, without `host` and the time.
        has_host: Whether the group `host` contains the host.
        parts: Number of fields besides time and message.
    """

    pattern: str
    start: str
    types: dict[str, str]
    has_host: bool
    parts: int


class _Cursor(NamedTuple):
    text: str
    at: int
    time: tuple[int, int] | None

    @property
    def rest(self) -> str:
        return self.text[self.at :]


class _Part(NamedTuple):
    # A recognized part: pattern with `{0}` for the group's name, and its value by cursor.
    pattern: str
    ends: dict[int, int]  # position after the part by number of the cursor
    values: dict[str, list[str | None]]  # by proposed name of the group
    is_optional: bool = False


def infer_template(
    texts: Sequence[str],
    times: Sequence[tuple[int, int] | None],
    time_pattern: str,
    *,
    multiline: bool,
) -> Template | None:
    """Infer the common structure of log records.

    Args:
        texts: Records without their last line feed.
        times: Start and end of the timestamp in each record; None for records without one.
        time_pattern: Regular expression of the timestamps, without groups.
        multiline: Whether records consist of several lines.

    Returns:
        The template; None if there are no records.
    """
    return _Inference(texts, times, time_pattern, multiline=multiline).infer() if texts else None


class _Inference:
    def __init__(
        self,
        texts: Sequence[str],
        times: Sequence[tuple[int, int] | None],
        time_pattern: str,
        *,
        multiline: bool,
    ) -> None:
        self._all = [_Cursor(text, 0, time) for text, time in zip(texts, times, strict=True)]
        self._needed = _MOST * len(texts)
        self._time_pattern, self._multiline = time_pattern, multiline
        self._has_time = sum(time is not None for time in times) >= self._needed
        self._time_read = False
        self._types: dict[str, str] = {}
        self._names: dict[str, int] = {}
        self._open: list[str] = []
        self._pending_key: str | None = None
        self._start = ""
        self._fields = 0

    def infer(self) -> Template:
        cursors, before, behind = self._all, "", ""
        for _ in range(_PARTS_MAX):
            part = self._next(cursors)
            if part is None:
                if self._has_time and not self._time_read:
                    before, cursors = self._jump(before, cursors)
                    continue
                break
            text = self._rendered(part)
            if (self._has_time and not self._time_read) or part.values.keys() == {"time"}:
                before += text
            else:
                behind += text
            cursors = [
                cursor._replace(at=part.ends.get(number, cursor.at))
                for number, cursor in enumerate(cursors)
                if part.is_optional or number in part.ends
            ]
            if "level" in part.values:  # which half of the records may have
                self._needed = _MOST * len(cursors)
        return self._finished(before, behind, cursors)

    def _jump(self, before: str, cursors: list[_Cursor]) -> tuple[str, list[_Cursor]]:
        self._time_read = True
        self._start = f"{_unnamed(before)}.{{0,120}}?{self._time_pattern}"
        after = [of._replace(at=of.time[1]) for of in cursors if of.time is not None]
        return f"{before}.{{0,120}}?(?P<time>{self._time_pattern})", after

    def _next(self, cursors: Sequence[_Cursor]) -> _Part | None:
        for recognize in (
            self._time,
            self._space,
            self._level,
            self._channel_level,
            self._quoted,
            self._opening,
            self._program,
            self._key,
            self._address,
            self._identifier,
            self._number,
            self._symbol,
            self._punctuation,
            self._other_time,
            self._word,
            self._optional_bracket,
            self._optional_words,
        ):
            if (part := recognize(cursors)) is not None:
                return part
        return None

    def _enough(self, ends: Sized) -> bool:
        return len(ends) >= self._needed and len(ends) > 0

    def _matching(
        self, cursors: Sequence[_Cursor], search: re.Pattern[str]
    ) -> dict[int, re.Match[str]]:
        return {
            number: match
            for number, cursor in enumerate(cursors)
            if (match := search.match(cursor.text, cursor.at)) is not None
            and not (cursor.time and cursor.at <= cursor.time[0] < match.end())
        }

    def _part(
        self, cursors: Sequence[_Cursor], search: re.Pattern[str], name: str, pattern: str
    ) -> _Part | None:
        found = self._matching(cursors, search)
        if not self._enough(found):
            return None
        values = [match["x"] for match in found.values()]
        return _Part(pattern, {n: match.end() for n, match in found.items()}, {name: values})

    # What is recognized, in the order in which it is tried.

    def _time(self, cursors: Sequence[_Cursor]) -> _Part | None:
        ends = {n: of.time[1] for n, of in enumerate(cursors) if of.time and of.time[0] == of.at}
        return (
            _Part("(?P<time>" + self._time_pattern + ")", ends, {"time": []})
            if self._enough(ends)
            else None
        )

    def _space(self, cursors: Sequence[_Cursor]) -> _Part | None:
        search = re.compile(r"[ \t]+")
        ends = {n: match.end() for n, match in self._matching(cursors, search).items()}
        if not self._enough(ends) and not (self._time_read and 2 * len(ends) > len(cursors)):
            return None
        if self._enough(ends):
            return _Part(f"{_SPACE}+", ends, {})
        return _Part(f"{_SPACE}*", ends, {}, is_optional=True)

    def _level(self, cursors: Sequence[_Cursor]) -> _Part | None:
        if "level" in self._types:
            return None
        for pattern, share in LEVEL_FORMS:
            found = self._matching(cursors, re.compile(pattern))
            if len(found) > (share if self._time_read or not self._has_time else _MOST) * len(
                self._all
            ):
                values: list[str | None] = [match["level"] for match in found.values()]
                if all(str(value).upper() in COMMON_LEVELS.split("|") for value in values):
                    pattern = pattern.replace(LEVELS, COMMON_LEVELS)
                ends = {n: match.end() for n, match in found.items()}
                return _Part(pattern, ends, {"level": values})
        letters = {
            n: of.at + 1
            for n, of in enumerate(cursors)
            if of.rest[:1] in LEVEL_LETTERS
            and (re.match(r"[\s,/|\]]", of.rest[1:2]) or (of.time and of.time[0] == of.at + 1))
        }
        if self._enough(letters):
            found_letters = [cursors[n].text[end - 1] for n, end in letters.items()]
            if len(set(found_letters)) > 1 or len(found_letters) < 10:
                return _Part("(?P<{0}>[A-Z])", letters, {"level_letter": [*found_letters]})
        return None

    def _channel_level(self, cursors: Sequence[_Cursor]) -> _Part | None:
        if "level" in self._types:
            return None
        found = self._matching(cursors, _CHANNEL_LEVEL)
        if not self._enough(found):
            return None
        values: dict[str, list[str | None]] = {
            "component": [match["channel"] for match in found.values()],
            "level": [match["level"] for match in found.values()],
        }
        pattern = rf"(?P<{{0}}>[A-Za-z][\w-]*)\.(?P<{{1}}>{LEVELS.replace('{', '{{')}):?"
        return _Part(pattern, {n: match.end() for n, match in found.items()}, values)

    def _identifier(self, cursors: Sequence[_Cursor]) -> _Part | None:
        pattern = r"(?P<{0}>(?:0x)?[0-9A-Fa-f]{{6,}}(?:-[0-9A-Fa-f]+)*)"
        return self._part(cursors, _IDENTIFIER, "id", pattern)

    def _quoted(self, cursors: Sequence[_Cursor]) -> _Part | None:
        found = self._matching(cursors, _QUOTED)
        if not self._enough(found):
            return None
        values = [match["x"] for match in found.values()]
        name = "request" if all(_REQUEST.fullmatch(value) for value in values) else "text"
        return _Part(
            r'"(?P<{0}>(?:[^"\\]|\\.)*)"',
            {n: match.end() for n, match in found.items()},
            {name: values},
        )

    def _opening(self, cursors: Sequence[_Cursor]) -> _Part | None:
        first = collections.Counter(of.rest[:1] for of in cursors).most_common(1)
        char = first[0][0] if first else ""
        if char not in _BRACKETED or first[0][1] < self._needed:
            return None
        search, opening, closing, inside = _BRACKETED[char]
        found = self._matching(cursors, search)
        before_time = {
            n: of.at + 1
            for n, of in enumerate(cursors)
            if of.time and of.rest[:1] == char and of.at < of.time[0] and n not in found
        }
        if self._enough(before_time):
            self._open.append(char)
            return _Part(opening, before_time, {})
        if not self._enough(found):
            return None
        ends = {n: match.end() for n, match in found.items()}
        values = [match["x"] for match in found.values()]
        if (inner := self._inside(values)) is not None:
            pattern, groups = inner
            return _Part(f"{opening}{pattern}{closing}:?", self._past_colon(cursors, ends), groups)
        stripped = [value.strip() for value in values]
        pattern = f"{opening}{_SPACE}*(?P<{{0}}>{inside}*?){_SPACE}*{closing}"
        numeric = infer_text_type(stripped) == "long"
        if numeric:
            pattern = f"{opening}{_SPACE}*(?:(?P<{{0}}>-?\\d+)|-?){_SPACE}*{closing}"
        return _Part(
            pattern + ":?",
            self._past_colon(cursors, ends),
            {_bracket_name(stripped, numeric): [*stripped]},
        )

    @staticmethod
    def _past_colon(cursors: Sequence[_Cursor], ends: dict[int, int]) -> dict[int, int]:
        return {n: end + (cursors[n].text[end : end + 1] == ":") for n, end in ends.items()}

    def _inside(self, values: Sequence[str]) -> tuple[str, dict[str, list[str | None]]] | None:
        # Structure within brackets: `module:level`, or the same keys with numbers.
        behind = [_LEVEL_BEHIND.fullmatch(value) for value in values]
        found = [match for match in behind if match is not None and is_level(match["level"])]
        marks = {match["mark"] for match in found}
        if len(found) == len(values) and len(marks) == 1 and "level" not in self._types:
            mark = marks.pop()
            return (
                rf"(?P<{{0}}>[^/:\[\]]+){mark}(?P<{{1}}>\w+)",
                {
                    "module" if mark == ":" else "thread": [match["name"] for match in found],
                    "level": [match["level"] for match in found],
                },
            )
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

    def _program(self, cursors: Sequence[_Cursor]) -> _Part | None:
        found = {
            n: match
            for n, match in self._matching(cursors, _PROGRAM).items()
            if match["pid"] or match["end"]
        }
        with_pid = sum(match["pid"] is not None for match in found.values())
        if not self._enough(found) or 5 * with_pid < len(found):
            return None
        pid = r"\[(?P<{1}>\d+)\]" if with_pid == len(found) else r"(?:\[(?P<{1}>\d+)\])?"
        return _Part(
            r"(?P<{0}>[A-Za-z_][\w./()+-]*)" + pid + ":?",
            {n: match.end() for n, match in found.items()},
            {
                "program": [match["program"] for match in found.values()],
                "pid": [match["pid"] for match in found.values()],
            },
        )

    def _key(self, cursors: Sequence[_Cursor]) -> _Part | None:
        found = self._matching(cursors, _KEY)
        keys = collections.Counter(match["key"] for match in found.values()).most_common(1)
        if not keys or keys[0][1] < self._needed or len(cursors) < 3:
            return self._constant(cursors)
        key = keys[0][0]
        ends = {n: match.end() for n, match in found.items() if match["key"] == key}
        marks = {match["mark"].strip() for match in found.values() if match["key"] == key}
        mark = next(iter(marks))
        if len(marks) != 1 or (mark == ":" and self._time_read):
            return None
        self._pending_key = key
        spaces = {match["mark"][1:] for match in found.values() if match["key"] == key}
        space = (spaces.pop() if len(spaces) == 1 else None) if mark == ":" else ""
        literal = f"{quote_pattern(key)}{mark}" + (f"{_SPACE}+" if space is None else space)
        return _Part(literal, ends, {})

    def _constant(self, cursors: Sequence[_Cursor]) -> _Part | None:
        # Constant text that ends in an opening bracket, directly before the time: `audit(`.
        texts = collections.Counter(
            of.text[of.at : of.time[0]] for of in cursors if of.time and of.time[0] > of.at
        ).most_common(1)
        if not texts or texts[0][1] < self._needed or not re.fullmatch(r"\w+[(=\[]", texts[0][0]):
            return None
        literal = texts[0][0]
        ends = {
            n: of.at + len(literal) for n, of in enumerate(cursors) if of.rest.startswith(literal)
        }
        return _Part(quote_pattern(literal), ends, {})

    def _address(self, cursors: Sequence[_Cursor]) -> _Part | None:
        found = self._matching(cursors, _ADDRESS)
        if not self._enough(found):
            return None
        values: dict[str, list[str | None]] = {"address": [m["x"] for m in found.values()]}
        pattern = r"(?P<{0}>\d{{1,3}}(?:\.\d{{1,3}}){{3}})"
        if any(match["port"] for match in found.values()):
            values["port"] = [match["port"] for match in found.values()]
            pattern += r"(?::(?P<{1}>\d{{1,5}}))?"
        return _Part(pattern, {n: m.end() for n, m in found.items()}, values)

    def _number(self, cursors: Sequence[_Cursor]) -> _Part | None:
        found = self._matching(cursors, _NUMBER)
        values = [match["x"] for match in found.values()]
        present = [value for value in values if value is not None]
        if not self._enough(found) or 2 * len(present) < len(values):
            return None
        of_type = infer_text_type(present)
        digits = r"[+-]?\d+(?:\.\d+)?" if of_type == "double" else r"[+-]?\d+"
        if of_type == "long" and any("." in value for value in present):
            return None
        pattern = (
            f"(?P<{{0}}>{digits})" if len(present) == len(values) else f"(?:(?P<{{0}}>{digits})|-)"
        )
        name = "number"
        if (
            self._time_read
            or not self._has_time
            or all(
                of.rest[len(v or "-") : len(v or "-") + 1] == ":"
                for of, v in zip(cursors, values, strict=False)
            )
        ):
            name = "pid" if of_type == "long" else "number"
        if "request" in self._types:
            name = "bytes" if "status" in self._types else "status"
        return _Part(
            pattern.replace("{1,", "{{1,"), {n: m.end() for n, m in found.items()}, {name: values}
        )

    def _symbol(self, cursors: Sequence[_Cursor]) -> _Part | None:
        # One symbol that differs, such as the level of Redis.
        if not self._time_read or {"level", "level_letter"} & {*self._types}:
            return None
        search = re.compile(r"(?P<x>[.\-*#!+?])(?=[ \t])")
        found = self._matching(cursors, search)
        values = [match["x"] for match in found.values()]
        if not self._enough(found) or len(set(values)) < 2:
            return None
        return _Part(
            r"(?P<{0}>[.\-*#!+?])", {n: m.end() for n, m in found.items()}, {"level": [*values]}
        )

    def _punctuation(self, cursors: Sequence[_Cursor]) -> _Part | None:
        firsts = collections.Counter(of.rest[:1] for of in cursors).most_common(1)
        if not firsts or firsts[0][0] not in _PUNCTUATION or firsts[0][1] < self._needed:
            return None
        char = firsts[0][0]
        runs = collections.Counter(
            re.match(quote_pattern(char) + "+", of.rest)[0]  # type: ignore[index]
            for of in cursors
            if of.rest.startswith(char)
        )
        run, count = runs.most_common(1)[0]
        if count < self._needed or (char == "-" and any(of.rest[1:2].isalnum() for of in cursors)):
            return None
        if char in "])" and self._open:
            self._open.pop()
        ends = {n: of.at + len(run) for n, of in enumerate(cursors) if of.rest.startswith(run)}
        return _Part(quote_pattern(run).replace("{", "{{").replace("}", "}}"), ends, {})

    def _other_time(self, cursors: Sequence[_Cursor]) -> _Part | None:
        found: dict[int, tuple[int, str]] = {}
        for number, cursor in enumerate(cursors):
            if (match := _DATE_LIKE.match(cursor.text, cursor.at)) is not None:
                found[number] = match.end(), r"\S+"
            elif (at := _timestamp_at(cursor)) is not None:
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
        quoted = pattern.replace("{", "{{").replace("}", "}}")
        return _Part(f"(?P<{{0}}>{quoted})", ends, {"date": values})

    def _word(self, cursors: Sequence[_Cursor]) -> _Part | None:
        closing = (
            _WORD_UP_TO.get({"[": "]", "(": ")"}.get(self._open[-1], "")) if self._open else None
        )
        options: list[tuple[re.Pattern[str], str, Callable[[Sequence[str]], bool]]] = [
            (
                _DASHED,
                r"(?P<{0}>[^\s|\[\"](?:[^|\n]{{0,60}}?[^\s|])??)[ \t]+[-|:>]+[ \t]+",
                _are_short,
            ),
            (_COLON_WORD, r"(?P<{0}>[^\s:|\[\]\"']\S*?)[ \t]*:(?:[ \t]+|$)", _vary_little),
            (_PIPED, r"(?P<{0}>[^|\n]{{0,80}}?)[ \t]*\|", _are_short),
        ]
        if closing is not None:
            options.insert(0, (closing, r"(?P<{0}>[^\s\[\]()]+)", _are_short))
        if self._time_read or not self._has_time:
            options += [
                (_BEFORE_BRACKET, r"(?P<{0}>[^\s\[\]]+)\]", _vary_little),
                (_PADDED, r"(?P<{0}>[^\s|\[\]\"]+)", _vary_little),
                (_LOGGER, r"(?P<{0}>[^\s|\[\]\"]+)", _vary_little),
            ]
        for search, pattern, is_plausible in options:
            found = self._matching(cursors, search)
            values = [match["x"] for match in found.values()]
            if self._enough(found) and is_plausible(values):
                return _Part(
                    pattern,
                    {n: m.end() for n, m in found.items()},
                    {_word_name(values): [*values]},
                )
        if self._is_anchored(cursors):
            found = self._matching(cursors, _WORD)
            values = [match["x"] for match in found.values()]
            if self._enough(found):
                return _Part(
                    r"(?P<{0}>[^\s|\[\]\"]+)",
                    {n: m.end() for n, m in found.items()},
                    {_word_name(values): [*values]},
                )
        return None

    def _is_anchored(self, cursors: Sequence[_Cursor]) -> bool:
        # Whether something specific follows after the same number of words in nearly all records.
        for words in range(1, _WORDS_AHEAD + 1):
            search = re.compile(rf"(?:[^\s|\[\]\"]+[ \t]+){{{words}}}")
            kinds: collections.Counter[str] = collections.Counter()
            for cursor in cursors:
                if (match := search.match(cursor.text, cursor.at)) is not None:
                    kinds.update(_anchors(cursor, match.end(), words))
            if any(count >= self._needed for count in kinds.values()):
                return True
        return False

    def _optional_bracket(self, cursors: Sequence[_Cursor]) -> _Part | None:
        if not self._time_read:
            return None
        search, _, _, _ = _BRACKETED["["]
        found = self._matching(cursors, search)
        if len(found) < _SOME * len(cursors) or len(found) >= len(cursors):
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
            return _Part(
                rf"(?:\[{key} (?P<{{0}}>[^\[\]]*)\]:?{_SPACE}*)?",
                ends,
                {key: [value.split(" ", 1)[1] for value in values]},
                is_optional=True,
            )
        return _Part(
            rf"(?:\[(?P<{{0}}>[^\[\]]*)\]:?{_SPACE}*)?",
            ends,
            {_bracket_name(values, False): [*values]},
            is_optional=True,
        )

    def _optional_words(self, cursors: Sequence[_Cursor]) -> _Part | None:
        # Up to three words that only some records have before their level.
        if not self._time_read or "level" in self._types:
            return None
        search = re.compile(
            rf"(?P<x>\S+(?:[ \t]+\S+){{0,2}}?[ \t]+)??(?={LEVEL_FORMS[0][0]}[ \t]+)"
        )
        found = self._matching(cursors, search)
        values = [(match["x"] or "").strip() or None for match in found.values()]
        if not self._enough(found) or not any(values) or all(values):
            return None
        return _Part(
            rf"(?:(?P<{{0}}>\S+(?:{_SPACE}+\S+){{{{0,2}}}}?){_SPACE}+)??",
            {n: match.end() for n, match in found.items()},
            {"context": [*values]},
        )

    # From parts to a pattern.

    def _rendered(self, part: _Part) -> str:
        if "time" in part.values:
            self._pending_key = None
            self._time_read, self._start = True, self._start + self._time_pattern
            return part.pattern
        names = []
        for name, values in part.values.items():
            present = [value for value in values if value is not None]
            if self._pending_key is not None and name not in ("level", "program"):
                name = re.sub(r"\W", "_", self._pending_key, flags=re.ASCII)
            names.append(self._named(name, present))
        if part.values:
            self._pending_key = None
        pattern = part.pattern
        pattern = _GROUP.sub(lambda group: f"(?P<{names[int(group[1])]}>", pattern)
        pattern = pattern.replace("{{", "{").replace("}}", "}")
        if not self._time_read and self._has_time:
            self._start += _unnamed(pattern)
        return pattern

    def _named(self, name: str, values: Sequence[str]) -> str:
        hosts = not {"level", "program"} & {*self._types}  # a host stands before these
        if (
            name in ("word", "component", "logger")
            and hosts
            and "host" not in self._names
            and are_hosts(values)
        ):
            name = "host"
        elif name in ("component", "logger") and "host" in self._names and are_hosts(values):
            name = "node"
        elif name.lower() in HOST_KEYS:
            name = "host" if "host" not in self._names else "log_host"
        elif name == "pid" and "pid" in self._names:
            name = "tid"
        if name in ("source", "file", "position", "event_id", "event_time", "time", MESSAGE):
            name = f"log_{name}"
        self._names[name] = self._names.get(name, 0) + 1
        if self._names[name] > 1:
            name = f"{name}_{self._names[name]}"
        if name != "host":
            self._types[name] = (
                infer_text_type(values)
                if name.rsplit("_", 1)[0]
                not in ("level", "level_letter", "date", "text", "address", "id")
                else "string"
            )
            self._fields += 1
        return name

    def _finished(self, before: str, behind: str, cursors: Sequence[_Cursor]) -> Template:
        if "level_letter" in self._types and "level" not in self._types:
            self._types = {
                "level" if name == "level_letter" else name: of for name, of in self._types.items()
            }
            before, behind = (
                text.replace("(?P<level_letter>", "(?P<level>") for text in (before, behind)
            )
        rests = [cursor.rest for cursor in cursors]
        message, keyed = _message_pattern(rests, {*self._types, "time"}, multiline=self._multiline)
        for name, of_type in keyed.items():
            if name != "host":
                self._types[name] = of_type
        head, end = ("(?s)", r"\r?\n?") if self._multiline else ("", "")
        if self._has_time and behind:
            behind = behind.removesuffix(f"{_SPACE}+").removesuffix(f"{_SPACE}*")
            between = f"(?:{behind})?{_SPACE}*"
        elif self._has_time:
            between = rf"[\])]?:?{_SPACE}*"  # what may close a time
        else:
            between = behind
        pattern = f"{head}{before}{between}{end}{message}"
        return Template(
            pattern,
            self._start,
            self._types,
            "host" in self._names or "host" in keyed,
            self._fields + len(keyed),
        )


_KEYED_NUMBER: Final = re.compile(
    r"(?<![\w.-])(?P<key>[A-Za-z_]\w*)[=:][ \t]*(?P<x>-?\d+(?:\.\d+)?)(?=[\s,;)\]]|$)"
)
_KEYED_HOST: Final = re.compile(rf"(?<!\w)(?P<key>(?i:{'|'.join(HOST_KEYS[:7])}))=(?P<x>\S+)")


def _message_pattern(
    rests: Sequence[str], taken: set[str], *, multiline: bool
) -> tuple[str, dict[str, str]]:
    # The group `message`, with groups within it for numbers that the same key precedes in nearly
    # all records, in the same order.
    plain = (f"(?P<{MESSAGE}>.*)", dict[str, str]())
    least = 1 if multiline else 2
    if len(rests) < 5:
        return plain
    places: dict[str, list[tuple[int, str]]] = {}
    for rest in rests:
        own: dict[str, tuple[int, str]] = {}
        for search in (_KEYED_NUMBER, _KEYED_HOST):
            for match in search.finditer(rest):
                own.setdefault(match["key"], (match.start(), match["x"]))
        for key, place in own.items():
            places.setdefault(key, []).append(place)
    frequent = {
        key: found
        for key, found in places.items()
        if len(found) >= 0.97 * len(rests)
        and key.lower() not in ("time", "timestamp", "date")
        and key not in taken
    }
    if len(frequent) < least:
        return plain
    ordered = sorted(frequent, key=lambda key: sum(at for at, _ in frequent[key]))
    pattern, types = "", dict[str, str]()
    for key in ordered:
        values = [value for _, value in frequent[key]]
        is_host = key.lower() in HOST_KEYS
        of_type = "string" if is_host else infer_text_type(values)
        name = "host" if is_host else key
        value = {"long": r"-?\d+", "double": r"-?\d+(?:\.\d+)?"}.get(of_type, r"\S+")
        types[name] = of_type
        pattern += rf".*?\b{quote_pattern(key)}[=:][ \t]*(?P<{name}>{value})"
    return f"(?P<{MESSAGE}>{pattern}.*)", types


def _unnamed(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "?:", pattern)


def _timestamp_at(cursor: _Cursor) -> tuple[int, str] | None:
    found = find_timestamps(cursor.text[cursor.at : cursor.at + 60], 0)
    if not found or found[0].start != 0:
        return None
    return cursor.at + found[0].end, found[0].form.pattern


def _anchors(cursor: _Cursor, at: int, words: int) -> Iterator[str]:
    if cursor.time and cursor.time[0] == at:
        yield "time"
    rest = cursor.text[at : at + 80]
    if rest[:1] in ("[", '"') and words <= 2:
        yield "bracket"
    if re.match(LEVEL_FORMS[0][0], rest):
        yield "level"
    if (key := _KEY.match(rest)) and key["mark"] == "=":
        yield f"key {key['key']}"
    if words == 1 and re.match(r"\d+[ \t]+\d+[ \t]", rest):
        yield "numbers"
    if words <= 2 and (match := _PROGRAM.match(rest)) and (match["pid"] or match["end"]):
        yield "program"
    if cursor.time and at < cursor.time[0]:
        yield from () if not re.match(r"[\[(<]", rest) else ("bracket",)
    if words <= 4 and (_DATE_LIKE.match(rest) or _timestamp_at(cursor._replace(at=at))):
        yield "other_time"


def _bracket_name(values: Sequence[str], numeric: bool) -> str:
    if numeric:
        return "pid"
    if sum(bool(_THREADS.search(value)) for value in values) >= 0.3 * len(values):
        return "thread" if not all("." in value for value in values) else "logger"
    if len(set(values)) <= 10 and all(
        re.fullmatch(r"[A-Za-z][A-Za-z_-]*", value) for value in values
    ):
        return "component"
    return (
        "logger"
        if sum("." in value or "::" in value for value in values) >= 0.5 * len(values)
        else "context"
    )


def _word_name(values: Sequence[str]) -> str:
    if len(set(values)) == 1 and len(values) > 10:
        return "word"
    if "-" in values:
        return "label"
    dotted = sum(bool(re.search(r"\w[.:/$]+\w", value)) for value in values)
    if 2 * dotted > len(values):
        return "logger" if not all(value.endswith(".exe") for value in values) else "program"
    return "component"


def _are_short(values: Sequence[str]) -> bool:
    return sum(len(value.split()) <= 3 for value in values) >= _MOST * len(values)


def _vary_little(values: Sequence[str]) -> bool:
    return len(set(values)) <= max(0.5 * len(values), 3)
