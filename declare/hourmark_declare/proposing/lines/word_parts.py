"""Recognizes words at the same position in all log records that something specific follows.

Examples are a logger before a colon, a thread before a closing bracket, and a component before the
level.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hourmark_declare.proposing.hosts import are_full_names, are_hosts, is_constant_host
from hourmark_declare.proposing.lines.part_names import (
    are_positions,
    bracket_name,
    split_ids,
    word_name,
)
from hourmark_declare.proposing.lines.part_search import (
    DATE_LIKE,
    KEY,
    PROGRAM,
    SPACE,
    LineCursor,
    LinePart,
    PartSearch,
    are_short,
    are_short_names,
    escape_braces,
    timestamp_at,
    vary_little,
)
from hourmark_declare.proposing.vocabulary import (
    LEVEL_FORMS,
    LEVEL_PATTERN,
    LEVELS,
    are_level_letters,
    is_level,
    quote_pattern,
)

_WORDS_AHEAD: Final = 8
_FEW_NAMES: Final = 0.2  # share of different names of several words; more are sentences
_LOGGER: Final = re.compile(r"(?P<x>[A-Za-z_$][\w$-]*(?:(?:\.|::?|/|\$)[\w$<>-]+)+)(?=[\s\x1b]|$)")
_COLON_WORD: Final = re.compile(r"(?P<x>[^\s:|\[\](<{\"']\S*?)[ \t]*:(?:[ \t]+|$)")
_NAME_PATTERN: Final = (  # of several words, and with parentheses: `DiskLocal (default)`
    r"[A-Za-z_][^\s:|()\[\]\"']*(?:::?[^\s:|()\[\]\"']+)*"
    r"(?: [A-Za-z_][\w.-]*){0,3}(?: \([^()\n]*\)|\([A-Za-z_][^()\n]*\))?"
)
_PLAIN_NAME: Final = r"[A-Za-z_][\w.-]*(?: [A-Za-z_][\w.-]*){0,3}"
_NAMED_PID: Final = re.compile(rf"(?P<x>{_PLAIN_NAME})\[(?P<pid>\d+)\]:?(?=[ \t]|$)")
_COLON_NAME: Final = re.compile(rf"(?P<x>{_NAME_PATTERN})[ \t]*:(?:[ \t]+|$)")
_COLON_NAME_PATTERN: Final = f"(?P<{{0}}>{escape_braces(_NAME_PATTERN)})" + r"[ \t]*:(?:[ \t]+|$)"
_PARENTHESES: Final = re.compile(r" ?\([^()]*\)$")
_BEHIND_SLASH: Final = re.compile(r"(?P<x>[A-Za-z_][\w.$-]*)(?=[ \t:]|$)")
_TIGHT_COLON: Final = re.compile(r"(?P<x>[A-Za-z_][\w.-]*):")
_BEFORE_BRACKET: Final = re.compile(r"(?P<x>[^\s\[\]]+)\](?=[ \t]|$)")
_PADDED: Final = re.compile(r"(?P<x>[^\s|\[\]\"]+)(?=\t| {2,}\S)")
_DASHED: Final = re.compile(
    r"(?P<x>[^\s|\[\"](?:[^|\n\[\]]{0,60}?[^\s|\[\]])??)[ \t]+[-|:>]+[ \t]+"
)
_PIPED: Final = re.compile(r"(?P<x>[^|\n]{0,80}?)[ \t]*\|")
_WORD: Final = re.compile(r"(?P<x>[^\s|\[\]\"\x1b][^\s|\"\x1b]*)")
_COMPOUND: Final = re.compile(
    r"(?P<x>[^\s/|\[\]:]+(?P<mark>[/|])[^\s/|\[\]:]+(?:(?P=mark)[^\s/|\[\]:]+)*):?(?=\s|$)"
)
_BEFORE_PAREN: Final = re.compile(r"(?P<x>[A-Za-z][\w.-]*)(?=\()")
_BEFORE_OPEN: Final = re.compile(r"(?P<x>[A-Za-z][\w.-]*)(?=\[)")
_BEFORE_ARROW: Final = re.compile(r"(?P<x>[^\s\[\]\"<>]+?)->")
_WORD_UP_TO: Final = {
    "]": re.compile(r"(?P<x>[^\s\[\]]+)(?=\])"),
    ")": re.compile(r"(?P<x>[^\s()]+)(?=\))"),
    ",": re.compile(r"(?P<x>[^\s,;]+)(?=[,;])"),
}
_PAIR_OR_LEVEL: Final = re.compile(rf"[A-Za-z_][\w.@-]*=|{LEVEL_PATTERN}")
_THREAD_AND_LOGGER: Final = re.compile(r"\S+(?: \S+)?[ \t]+[A-Za-z_][\w$-]*(?:(?:\.|::)[\w$-]+)+")
_NAME_WORD: Final = r"[^\s\[\]{}|\"]*[^\s\[\]{}|\":]"
_NAME_WORDS: Final = rf"{_NAME_WORD}(?:[ \t]+{_NAME_WORD}){{0,2}}?"
_BEFORE_LEVEL: Final = re.compile(
    rf"(?P<x>{_NAME_WORDS}):?[ \t]+(?=(?:\[[^\[\]]*\][ \t]*|\|[ \t]*){{0,2}}"
    rf"(?:{LEVEL_PATTERN}[ \t:]|(?i:{LEVELS})[:\t]|(?P<plain>(?i:{LEVELS}))[ ]))"
)
_BEFORE_LETTER: Final = re.compile(  # in brackets, or before a sign
    rf"(?P<x>{_NAME_WORDS}):?[ \t]+(?=[\[<(][ \t]*(?P<letter>[A-Za-z])[ \t]*[\])>]"
    r"|(?P<bare>[A-Za-z])(?::|[ \t]+[-|])[ \t])"
)
_NAMED_LEVEL: Final = re.compile(
    rf"(?P<x>[A-Za-z_][\w.-]*)[ \t]+(?P<level>(?i:{LEVELS})):(?=[ \t])"
)
_NAMED_LEVELS_MIN: Final = 0.5  # share of records, as for a level without a name
_NAMED_LEVEL_NAMES: Final = 3  # different names; more are words of sentences
_SOURCE_LINE: Final = re.compile(r"(?P<x>[^\s:|\[\](\"']+:\d+)(?=[ \t])")
_ORIGIN: Final = re.compile(r"(?P<x>[A-Za-z_][\w.-]*)@(?P<host>[A-Za-z0-9][\w.-]*)(?=[ \t]|$)")
_ORIGINS_MAX: Final = 3  # different names; more are those of users
_PROCESS: Final = re.compile(r"[ \t]+<\d+\.\d+\.\d+>")  # of Erlang
_BEHIND_WORD: Final = {  # what is specific behind a single word
    "letter": re.compile(r"[A-Z][ \t]+\S"),
    "address": re.compile(r"\d{1,3}(?:\.\d{1,3}){3}[\s:]"),
    "numbers": re.compile(r"\d+[ \t]+\d+[ \t]"),
    "code": re.compile(r"\d{4,}[ \t]"),
    "named pid": _NAMED_PID,
}
_Option = tuple[re.Pattern[str], str, str, Callable[[Sequence[str]], bool]]


class WordSearch(PartSearch):
    """Recognizes names and other words in log records, to infer the format of a log file.

    All records are analyzed in parallel. Each method examines the text at the current position of
    each record and returns the words that nearly all records have there, or None.
    """

    def find_named_pid(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the program name and process id that nearly all records have at their positions.

        The name must have several words, as in `Order Service[4711]: done`. Returns None if there
        is no such name.
        """
        found = self._matching(cursors, _NAMED_PID)
        names = [match["x"] for match in found.values()]
        if not self._enough(found) or not _are_no_columns(names):
            return None
        pattern = rf"(?P<{{0}}>{escape_braces(_PLAIN_NAME)})\[(?P<{{1}}>\d+)\]:?"
        values: dict[str, list[str | None]] = {
            "program": [*names],
            "pid": [match["pid"] for match in found.values()],
        }
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, values)

    def find_position(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the position in source code that nearly all records have next, or None.

        An example is `main.go:12` in `main.go:12 started`. The message may follow directly.
        """
        part = self._part(cursors, _SOURCE_LINE, "caller", r"(?P<{0}>[^\s:|\[\](\"']+:\d+)")
        if part is None or not are_positions([str(value) for value in part.values["caller"]]):
            return None
        return part

    def find_origin(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a program and its host, as in `orders@app-1.example.net started`, or None.

        Mail addresses and texts such as `user@database` have the same form. Therefore, there must
        be at most three different programs, and the host names must contain a number or be followed
        by an Erlang process id, such as `<0.254.0>`.
        """
        found = self._matching(cursors, _ORIGIN)
        names, hosts = ([match[name] for match in found.values()] for name in ("x", "host"))
        if not self._enough(found) or len({*names}) > _ORIGINS_MAX or not vary_little(hosts):
            return None
        nodes = sum(
            _PROCESS.match(cursors[n].text, of.end()) is not None for n, of in found.items()
        )
        if not (are_full_names(hosts) or is_constant_host(hosts) or 2 * nodes >= len(hosts)):
            return None
        values: dict[str, list[str | None]] = {"program": [*names], "host": [*hosts]}
        pattern = r"(?P<{0}>[A-Za-z_][\w.-]*)@(?P<{1}>[A-Za-z0-9][\w.-]*)"
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, values)

    def find_word(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the word or short name that nearly all records have at their positions, or None.

        A delimiter, such as a colon, a bracket or a vertical bar, must follow it. Without one, a
        level, a timestamp or another typical element must follow after the same number of words in
        nearly all records. Otherwise, the word may be the start of the message.
        """
        closing = (
            _WORD_UP_TO.get({"[": "]", "(": ")"}.get(self._state.open_brackets[-1], ""))
            if self._state.open_brackets
            else None
        )
        for search, pattern, suffix, is_plausible in self._options(closing):
            found = self._matching(cursors, search)
            if not self._enough(found):
                continue
            values = [match["x"] for match in found.values()]
            ends = {n: m.end() for n, m in found.items()}
            is_constant = len({*values}) == 1 and len(values) > 10
            if search in (_BEFORE_PAREN, _BEFORE_OPEN) and is_constant:
                self._state.pending_key = values[0]  # as in `User(ann)` and `SERVER[web-1]`
                return LinePart(quote_pattern(values[0]), ends, {})
            if (named := split_ids(values)) is not None and vary_little(named.names):
                name = word_name(named.names, after_time=self._state.time_read)
                return LinePart(
                    named.pattern + suffix, ends, {name: [*named.names], **named.others}
                )
            if all(_THREAD_AND_LOGGER.fullmatch(value) for value in values):
                pairs = [value.rsplit(maxsplit=1) for value in values]
                inside = (
                    r"(?P<{0}>[^\s|\[\"](?:[^|\n\[\]]*?[^\s|\[\]])??)[ \t]+(?P<{1}>[^\s|\[\]]+)"
                )
                return LinePart(
                    inside + suffix,
                    ends,
                    {"thread": [of[0] for of in pairs], "logger": [of[1] for of in pairs]},
                )
            if is_plausible(values) or (
                search is _COLON_WORD
                and are_positions(values)
                and vary_little([re.sub(r":\d+$", "", value) for value in values])
            ):
                name = word_name(values, after_time=self._state.time_read)
                return LinePart(pattern + suffix, ends, {name: [*values]})
        if self._is_anchored(cursors):
            found = self._matching(cursors, _WORD)
            values = [match["x"] for match in found.values()]
            if self._enough(found):
                again = sum(cursors[n].text.count(match["x"]) > 1 for n, match in found.items())
                name = word_name(values, after_time=self._state.time_read)
                is_host = again >= self._state.needed and are_hosts(values, may_differ=True)
                name = "host" if is_host else name
                return LinePart(
                    r"(?P<{0}>[^\s|\[\]\"\x1b][^\s|\"\x1b]*)",
                    {n: m.end() for n, m in found.items()},
                    {name: [*values]},
                )
        return self._name_of_words(cursors)

    def _name_of_words(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        # Names of the same number of words before a colon, as in `Job Runner: done`.
        part = self._part(cursors, _COLON_NAME, "", _COLON_NAME_PATTERN)
        if part is None:
            return None
        values = [str(value) for value in part.values[""]]
        if len({*values}) == 1 or not _are_few_names(values):
            return None
        return part._replace(
            values={word_name(values, after_time=self._state.time_read): [*values]}
        )

    def _options(self, closing: re.Pattern[str] | None) -> list[_Option]:
        # What is searched, the pattern of the value, what is behind it, and a plausibility check.
        options: list[_Option] = [
            (
                _DASHED,
                r"(?P<{0}>[^\s|\[\"](?:[^|\n\[\]]{{0,60}}?[^\s|\[\]])??)",
                r"[ \t]+[-|:>]+[ \t]+",
                are_short_names,
            ),
            (_COLON_WORD, r"(?P<{0}>[^\s:|\[\](<{{\"']\S*?)", r"[ \t]*:(?:[ \t]+|$)", vary_little),
            (
                _COLON_NAME,
                _COLON_NAME_PATTERN,
                "",
                _are_no_columns,
            ),
            (_PIPED, r"(?P<{0}>[^|\n]{{0,80}}?)", r"[ \t]*\|", are_short),
        ]
        if closing is not None:
            inside = r"[^\s\[\]]" if closing is _WORD_UP_TO["]"] else r"[^\s()]"
            options.insert(0, (closing, f"(?P<{{0}}>{inside}+)", "", are_short))
        if self._state.time_read or not self._state.has_time:
            options += [
                (_BEFORE_BRACKET, r"(?P<{0}>[^\s\[\]]+)", r"\]", vary_little),
                (_BEFORE_PAREN, r"(?P<{0}>[A-Za-z][\w.-]*)", "", vary_little),
                (_BEFORE_OPEN, r"(?P<{0}>[A-Za-z][\w.-]*)", "", vary_little),
                (_BEFORE_ARROW, r"(?P<{0}>[^\s\[\]\"]+?)", "->", vary_little),
                (_PADDED, r"(?P<{0}>[^\s|\[\]\"\x1b]+)", "", vary_little),
                (_LOGGER, r"(?P<{0}>[^\s|\[\]\"\x1b]+)", "", vary_little),
            ]
        return options

    def find_around_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return a level and the words that slashes or vertical bars connect to it, or None.

        In `web-1/INFO/orders:`, for example, each of the three words becomes a field. Nearly all
        records must have the same number of words.
        """
        if "level" in self._state.types:
            return None
        found = self._matching(cursors, _COMPOUND)
        marks = {match["mark"] for match in found.values()}
        if not self._enough(found) or len(marks) > 1:
            return None
        mark = marks.pop()
        pieces = [match["x"].split(mark) for match in found.values()]
        columns = [*zip(*pieces, strict=False)]
        levels = [n for n, column in enumerate(columns) if all(map(is_level, column))]
        if len({*map(len, pieces)}) > 1 or not levels or len({*columns[levels[0]]}) < 2:
            return None
        values: dict[str, list[str | None]] = {}
        pattern = []
        for number, column in enumerate(columns):
            name = "level" if number == levels[0] else word_name(column, after_time=True)
            name = "host" if name in ("word", "component") and are_hosts(column) else name
            unique = name if name not in values else f"{name}_{number}"
            values[unique] = [*column]
            pattern.append(rf"(?P<{{{number}}}>[^\s/|\[\]:]+)")
        joined = quote_pattern(mark).join(pattern)
        return LinePart(f"{joined}:?", {n: match.end() for n, match in found.items()}, values)

    def find_between_colons(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the word that nearly all records have between two colons without spaces, or None.

        An example is `shop.orders` in `INFO:shop.orders:started`.
        """
        found = {
            n: match
            for n, match in self._matching(cursors, _TIGHT_COLON).items()
            if cursors[n].text[cursors[n].at - 1 : cursors[n].at] == ":"
        }
        values = [match["x"] for match in found.values()]
        if not self._enough(found) or not vary_little(values):
            return None
        name = "logger" if "logger" not in self._state.types else "component"
        ends = {n: match.end() for n, match in found.items()}
        return LinePart(r"(?P<{0}>[A-Za-z_][\w.-]*):", ends, {name: [*values]})

    def find_after_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the name that follows the level and a slash in nearly all records, or None.

        An example is `nsHttp` in `D/nsHttp read`.
        """
        if not {"level", "level_letter"} & {*self._state.types}:
            return None
        found = {
            n: match
            for n, match in self._matching(cursors, _BEHIND_SLASH).items()
            if re.search(r"\w/$", cursors[n].text[: cursors[n].at])
        }
        values = [match["x"] for match in found.values()]
        if not self._enough(found) or not vary_little(values):
            return None
        ends = {n: match.end() for n, match in found.items()}
        name = word_name(values, after_time=self._state.time_read)
        name = name if name not in self._state.types else "module"
        return LinePart(r"(?P<{0}>[A-Za-z_][\w.$-]*)", ends, {name: [*values]})

    def find_between_commas(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the word that nearly all records have between two commas or semicolons, or None.

        An example is `sw-1` in `INFO, sw-1, started`.
        """
        found = {
            n: match
            for n, match in self._matching(cursors, _WORD_UP_TO[","]).items()
            if cursors[n].text[: cursors[n].at].rstrip().endswith((",", ";"))
        }
        values = [match["x"] for match in found.values()]
        if not self._enough(found) or not vary_little(values):
            return None
        ends = {n: match.end() for n, match in found.items()}
        name = word_name(values, after_time=self._state.time_read)
        return LinePart(r"(?P<{0}>[^\s,;]+)", ends, {name: [*values]})

    def find_before_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the name that precedes the level in nearly all records, or None if there is none.

        The name may have up to three words, and bracketed text may follow it. If all names have the
        same number of words, only their first word is returned.
        """
        if not self._state.time_read or "level" in self._state.types:
            return None
        found = self._matching(cursors, _BEFORE_LEVEL)
        plain = [match["plain"].lower() for match in found.values() if match["plain"]]
        if not self._enough(found) or (len(plain) == len(found) and len({*plain}) == 1):
            found = self._matching(cursors, _BEFORE_LETTER)
            if not self._enough(found) or not are_level_letters(
                match["letter"] or match["bare"] for match in found.values()
            ):
                return None
        values = [match["x"] for match in found.values()]
        words = {len(value.split()) for value in values}
        if len(words) == 1:
            values = [value.split()[0] for value in values]
        ends = {
            n: match.start() + len(of) for (n, match), of in zip(found.items(), values, strict=True)
        }
        ends = {n: end + cursors[n].text.startswith(":", end) for n, end in ends.items()}
        named = split_ids(values)
        if named is not None and len(words) == 1 and vary_little(named.names):
            name = word_name(named.names, after_time=True)
            return LinePart(named.pattern + ":?", ends, {name: [*named.names], **named.others})
        if not vary_little(values):
            return self._context(found, values) if words == {1} else None
        if len(words) > 1:
            pattern = f"(?P<{{0}}>{escape_braces(_NAME_WORDS)}):?"
            names = [_PARENTHESES.sub("", value) for value in values]
            return LinePart(pattern, ends, {bracket_name(names): [*values]})
        pattern = r"(?P<{0}>[^\s\[\]{{}}|\"]*[^\s\[\]{{}}|\":]):?"
        return LinePart(pattern, ends, {word_name(values, after_time=True): [*values]})

    def find_named_level(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return the program name and level that most records have at their positions, or None.

        An example is `PHP Warning:`. More than half of the records must have both, with at most
        three different names.
        """
        is_early = self._state.has_time and not self._state.time_read
        if is_early or "level" in self._state.types:
            return None
        found = self._matching(cursors, _NAMED_LEVEL)
        names = [match["x"] for match in found.values()]
        if len(found) <= _NAMED_LEVELS_MIN * len(cursors) or len({*names}) > _NAMED_LEVEL_NAMES:
            return None
        values: dict[str, list[str | None]] = {
            word_name(names, after_time=self._state.time_read): [*names],
            "level": [match["level"] for match in found.values()],
        }
        pattern = rf"(?P<{{0}}>[A-Za-z_][\w.-]*)[ \t]+(?P<{{1}}>(?i:{LEVELS})):"
        return LinePart(pattern, {n: match.end() for n, match in found.items()}, values)

    @staticmethod
    def _context(found: Mapping[int, re.Match[str]], values: Sequence[str]) -> LinePart | None:
        # An id in front of the level, such as that of a session.
        if not all(any(map(str.isdigit, value)) for value in values):
            return None
        ends = {n: m.start() + len(of) for (n, m), of in zip(found.items(), values, strict=True)}
        return LinePart(r"(?P<{0}>[^\s\[\]{{}}|\"]+)", ends, {"context": [*values]})

    def _is_anchored(self, cursors: Sequence[LineCursor]) -> bool:
        # Whether something specific follows after the same number of words in nearly all records.
        for words in range(1, _WORDS_AHEAD + 1):
            search = re.compile(rf"(?:[^\s|\[\]\"][^\s|\"]*[ \t]+){{{words}}}")
            kinds: collections.Counter[str] = collections.Counter()
            for cursor in cursors:
                if (match := search.match(cursor.text, cursor.at)) is not None:
                    kinds.update(_anchors(cursor, match.end(), words))
                    is_value = self._state.pending_key is not None and words == 1
                    if is_value and _PAIR_OR_LEVEL.match(cursor.text, match.end()):
                        kinds["pair or level"] += 1
            if any(count >= self._state.needed for count in kinds.values()):
                return True
        return False

    def find_optional_words(self, cursors: Sequence[LineCursor]) -> LinePart | None:
        """Return up to three words that only some records have between the timestamp and the level.

        Returns None if there are no such words.
        """
        if not self._state.time_read or "level" in self._state.types:
            return None
        search = re.compile(
            rf"(?P<x>\S+(?:[ \t]+\S+){{0,2}}?[ \t]+)??(?={LEVEL_PATTERN}(?:[ \t]+|$))"
        )
        found = self._matching(cursors, search)
        values = [(match["x"] or "").strip() or None for match in found.values()]
        if not self._enough(found) or not any(values) or all(values):
            return None
        name = bracket_name([value for value in values if value is not None])
        return LinePart(
            rf"(?:(?P<{{0}}>\S+(?:{SPACE}+\S+){{{{0,2}}}}?){SPACE}+)??",
            {n: match.end() for n, match in found.items()},
            {name if name == "caller" else "context": [*values]},
        )


def _are_few_names(values: Sequence[str]) -> bool:
    # Whether few names occur, apart from what is in parentheses behind them, such as a table's id.
    names = [_PARENTHESES.sub("", value) for value in values]
    is_few = are_short(names) and len({*names}) <= max(_FEW_NAMES * len(names), 3)
    return is_few and not are_hosts([name.split()[0] for name in names])


def _are_no_columns(values: Sequence[str]) -> bool:
    # Whether the words before a colon are one name. Columns such as a host and a program have the
    # same number of words, and any of their words occur together.
    words = [value.split() for value in {*values}]
    if len({*map(len, words)}) == 1:
        together = math.prod(len({*column}) for column in zip(*words, strict=True))
        if 2 * len(words) > together or len(words[0]) == 1:
            return False
    return _are_few_names(values)


def _anchors(cursor: LineCursor, at: int, words: int) -> Iterator[str]:
    if cursor.time and cursor.time[0] == at:
        yield "time"
    rest = cursor.text[at : at + 80]
    if rest[:1] in ("[", '"') and words <= 2:
        yield "bracket"
    if re.match(LEVEL_FORMS[0][0], rest) or re.match(LEVEL_FORMS[1][0], rest):
        yield "level"
    if (key := KEY.match(rest)) and key["mark"] == "=":
        yield f"key {key['key']}"
    if words <= 2 and re.match(r"\d+:[ \t]", rest):
        yield "numbered"
    if words == 1:
        yield from (kind for kind, search in _BEHIND_WORD.items() if search.match(rest))
    if words <= 2 and (match := PROGRAM.match(rest)) and (match["pid"] or match["end"]):
        yield "program"
    if cursor.time and at < cursor.time[0]:
        yield from () if not re.match(r"[\[(<]", rest) else ("bracket",)
    if words <= 4 and (DATE_LIKE.match(rest) or timestamp_at(cursor._replace(at=at))):
        yield "other_time"
