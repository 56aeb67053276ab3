"""Finds keys that nearly all messages of a log file contain, and captures their values.

Captured are numbers, such as `Query_time: 2.5` in the slow query log of MySQL, and the texts of keys
that name a host, a level or a program, such as `component="CcmExec"`. Keys in brackets of their own
have any value: `[Priority: 2]`. So have keys in columns of a record of several lines. If the messages have more numbers between the same words, those are
captured instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hourmark.avro.framing import ENVELOPE_NAMES
from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.hosts import first_host_key, host_rank
from hourmark_declare.proposing.lines.message_shape import infer_shape
from hourmark_declare.proposing.lines.part_search import SPACE
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import (
    LEVEL_KEYS,
    LEVELS,
    PROGRAM_KEYS,
    are_levels,
    quote_pattern,
)

_FEW: Final = 5  # messages; so few have keys in common by chance
_MOST: Final = 0.97  # share of the messages that must have a key
_KEYED: Final = re.compile(
    r"(?<![\w.-])(?P<key>[A-Za-z_]\w*)(?P<mark>[ \t]*[=:][ \t]*|\()(?P<quote>\"?)"
    r"(?:(?P<number>-?\d+(?:\.\d+)?)(?=[\"\s,;)\]]|$)|(?P<text>[A-Za-z0-9][^\s,;()\"<>]*))"
)
_CELL_TEXT: Final = r"\S+(?: [^\s:]+){0,3}"  # no further key
_CELL: Final = re.compile(  # as in `PID     : 4711         TID : 12`, over several lines
    rf"(?m)(?:^|(?<=[ \t]{{2}}))(?P<key>[A-Za-z_]\w*)[ \t]*:[ \t]+(?P<value>{_CELL_TEXT})(?=[ \t]{{2}}|[ \t]*$)"
)
_CELL_MARK: Final = "cell"
_IN_BRACKETS: Final = re.compile(
    r"\[(?P<key>[A-Za-z][\w.-]*(?: [A-Za-z][\w.-]*)?)(?P<mark>[:=]|[ ](?=\"))"
    r"[ \t]*(?P<quote>\"?)(?P<value>[^\[\]\"\n]+)(?P=quote)\]"
)
_OPEN_END: Final = f".*{SPACE}*"
_IN_BRACKETS_TEXT: Final = r"[^\[\]\"]*"
_SECOND_LINE_PATTERN: Final = rf"[^\n]*\n[ \t]*(?P<level>(?i:{LEVELS}))\b"
_SECOND_LINE: Final = re.compile(_SECOND_LINE_PATTERN)
_TEXT: Final = r"[^\s,;()\"<>]+"
_WHOLE: Final = frozenset(("time", "timestamp", "date"))


class _Place(NamedTuple):
    # Where a key is in a message, and its value.
    at: int
    mark: str  # with the bracket before the key, if it has one of its own
    quote: str
    value: str

    @property
    def is_in_brackets(self) -> bool:
        return self.mark.startswith("[")


def message_pattern(
    rests: Sequence[str], taken: set[str], *, multiline: bool
) -> tuple[str, dict[str, str]]:
    """Return a regular expression for log messages that captures the values after common keys.

    The key must occur in at least 97% of the messages, followed by a number, as in
    `EventCode=4624`, or its name must indicate a host, level or program, as in `host=web-01`.
    Numbers without a key are captured if the words around them are the same in most messages.

    Args:
        rests: Messages, each the text of a record after its other fields.
        taken: Names of the other fields. Values of keys with these names are not captured.
        multiline: Whether messages consist of several lines. If not, at least two keys are
            required, because a single key may be part of a sentence.

    Returns:
        A tuple of the regular expression and the Avro types of the captured values, with group
        names as keys. The group `message` contains all other groups. A message without a key in
        brackets or columns matches without the values, too. If there are fewer than five
        messages or no such keys, the expression matches any text, and the types are empty.
    """
    shape = None if multiline else infer_shape(rests, taken)
    if multiline and "level" not in taken and (level := _level_line(rests)) is not None:
        pattern, types = message_pattern(rests, {*taken, "level"}, multiline=True)
        return pattern.replace(f"(?P<{MESSAGE}>", f"(?P<{MESSAGE}>{level}", 1), {
            "level": "string",
            **types,
        }
    keyed = _keyed_pattern(rests, taken, multiline=multiline)
    if multiline and not keyed[1]:
        shape = infer_shape([rest.partition("\n")[0] for rest in rests], taken)
    if shape is not None and shape.numbers > len(keyed[1]):
        further = r"(?:\n.*?)?" if multiline else ""
        return f"(?P<{MESSAGE}>{_lazy(shape.pattern)}{further}|.*)", shape.types
    return keyed


def _lazy(pattern: str) -> str:
    # The pattern of a message whose end is any text, so that a CR behind the message is not in it.
    return f"{pattern.removesuffix(_OPEN_END)}.*?" if pattern.endswith(_OPEN_END) else pattern


def _level_line(rests: Sequence[str]) -> str | None:
    # The pattern up to a level at the begin of the second line, as `java.util.logging` writes it.
    found = sum(_SECOND_LINE.match(rest) is not None for rest in rests)
    return _SECOND_LINE_PATTERN if found >= _MOST * len(rests) and len(rests) >= _FEW else None


def _keyed_pattern(
    rests: Sequence[str], taken: set[str], *, multiline: bool
) -> tuple[str, dict[str, str]]:
    plain = (f"(?P<{MESSAGE}>.*)", dict[str, str]())
    if len(rests) < _FEW:
        return plain
    places: dict[str, list[_Place]] = {}
    for rest in rests:
        own: dict[str, _Place] = {}
        for key, place in _keys(rest, multiline=multiline):
            if own.setdefault(key, place).value != place.value and host_rank(key) is not None:
                own[key] = place._replace(mark="")  # several hosts: none of them wrote the line
        for key, place in own.items():
            places.setdefault(key, []).append(place)
    frequent = {
        key: found
        for key, found in places.items()
        if len(found) >= _MOST * len(rests) and key.lower() not in _WHOLE and key not in taken
    }
    host = first_host_key(
        key for key, found in frequent.items() if not all(of.value.isdigit() for of in found)
    )
    others = {*taken} if host is None else {*taken, "host"}
    named = {
        key: name
        for key, found in frequent.items()
        if (name := _name(key, found, taken if key == host else others))
    }
    has_brackets = any(frequent[key][0].is_in_brackets for key in named)
    if len(named) < (1 if multiline or has_brackets else 2):
        return plain
    pattern, types = "", dict[str, str]()
    for key in sorted(named, key=lambda key: sum(place.at for place in frequent[key])):
        name, found = named[key], frequent[key]
        if name in types:
            continue
        of_type = infer_text_type([place.value for place in found])
        types[name] = "string" if name in ("host", "level") else of_type
        if found[0].mark == _CELL_MARK:
            value = NUMBER_PATTERNS.get(types[name], _CELL_TEXT)
            pattern += rf".*?\b{quote_pattern(key)}{SPACE}*:{SPACE}+(?P<{name}>{value})"
            continue
        if found[0].is_in_brackets:
            value = NUMBER_PATTERNS.get(types[name], _IN_BRACKETS_TEXT)
            pattern += rf".*?\[{quote_pattern(key)}{_between(found)}(?P<{name}>{value})\"?\]"
            continue
        value = NUMBER_PATTERNS.get(types[name], _TEXT)
        pattern += rf".*?\b{quote_pattern(key)}{_between(found)}(?P<{name}>{value})"
    has_cells = any(frequent[key][0].mark == _CELL_MARK for key in named)
    otherwise = "?|.*" if has_brackets or has_cells else ""  # few records may lack one
    return f"(?P<{MESSAGE}>{pattern}.*{otherwise})", types


def _keys(text: str, *, multiline: bool) -> Iterator[tuple[str, _Place]]:
    for match in _IN_BRACKETS.finditer(text):
        yield (
            match["key"],
            _Place(match.start(), f"[{match['mark']}", match["quote"], match["value"]),
        )
    for match in _CELL.finditer(text) if multiline else ():
        yield match["key"], _Place(match.start(), _CELL_MARK, "", match["value"])
    for match in _KEYED.finditer(text):
        mark, key = match["mark"], match["key"]
        if match["number"] is not None:
            if mark.strip() in ("=", ":") and not mark[:1].isspace():
                yield key, _Place(match.start(), mark.strip(), match["quote"], match["number"])
            continue
        if ":" in mark and not (multiline and text[: match.start()].rpartition("\n")[2] == ""):
            continue  # a word of a sentence
        yield key, _Place(match.start(), mark.strip(), match["quote"], match["text"])


def _name(key: str, found: Sequence[_Place], taken: set[str]) -> str | None:
    # The name of the field for a key; None if its values are no numbers, hosts, levels or programs.
    values = [place.value for place in found]
    if len({place.mark for place in found}) > 1 or not found[0].mark:
        return None
    is_text = infer_text_type(values) not in NUMBER_PATTERNS
    if host_rank(key) is not None and is_text:
        return "host" if "host" not in taken else None
    plain = key.lower()
    if len(plain) > 1 and plain in LEVEL_KEYS and are_levels(values) and "level" not in taken:
        return "level"
    if len(plain) > 1 and plain in PROGRAM_KEYS and is_text and found[0].mark == "=":
        few = len(set(values)) <= max(0.2 * len(values), 3)
        return plain if few else None
    if found[0].mark == _CELL_MARK and is_text:
        return key if plain not in {*taken, *ENVELOPE_NAMES, MESSAGE} else None
    if found[0].is_in_brackets:
        plain = re.sub(r"\W+", "_", plain, flags=re.ASCII)
        return plain if plain not in {*taken, *ENVELOPE_NAMES, MESSAGE} else None
    return None if is_text else key


def _between(found: Sequence[_Place]) -> str:
    quotes = {place.quote for place in found}
    quote = quotes.pop() if len(quotes) == 1 else '"?'
    mark = found[0].mark.removeprefix("[")
    mark = mark if mark.strip() else f"{mark}+"
    return rf"\({quote}" if mark == "(" else rf"[ \t]*{mark}[ \t]*{quote}"
