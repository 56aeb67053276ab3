"""Finds the words and numbers that messages have in common, and captures the numbers.

Messages such as `generated 512 bytes in 12 msecs` consist of the same words; what differs are
numbers. A pattern with these words captures the numbers. Messages that have only the first or the
last words in common have a pattern for these, and any text in between.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark.avro.fields import FIELD_NAME
from hourmark.avro.framing import ENVELOPE_NAMES
from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import TIME_UNITS, quote_pattern

_MOST: Final = 0.9  # share of the messages that must have a word
_FEW: Final = 5  # messages; so few have words in common by chance
_NUMBERS_MAX: Final = 30
_WORD: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\S)+')
_WORD_PATTERN: Final = r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+'
_UNIT: Final = r"(?:ns|us|\u00b5s|ms|msecs?|s|secs?|min|m|h|bytes|[KMGTkmgt]?i?[Bb]|[KMGT]|%|C|F|V|W|A|Hz|dBm?)?"
_ATOM: Final = re.compile(
    r"(?P<address>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))"
    r"|(?<![\w.+/-])(?<!\d:)(?P<number>-?(?:0|[1-9]\d{0,17})(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    rf"(?={_UNIT}(?![\w\u00b5%]|[.:/-]\d))"
)
_ADDRESS: Final = r"\d{1,3}(?:\.\d{1,3}){3}"
_NAME: Final = re.compile(r"[A-Za-z][\w.-]{2,}")
_ANY_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")
_BEFORE: Final = re.compile(r"([A-Za-z_][\w.-]*)[=:\[(]\s*$")
_BEHIND: Final = re.compile(rf"{_UNIT}[ \t]([A-Za-z]+)")
_LAST_WORD: Final = re.compile(r"(?:^|[^,A-Za-z_])([A-Za-z_]+)\W*$")  # of no list, as `qr,rd,ra`
_NO_NAMES: Final = frozenset(("true", "false", "null", "none", "yes", "no"))


class MessageShape(NamedTuple):
    """A regular expression for messages that have the same words and different numbers.

    For messages such as `generated 512 bytes in 12 msecs`, it contains the words and captures the
    two numbers. Words that differ and are few are captured, too.

    Attributes:
        pattern: Regular expression for a whole message.
        types: Maps the name of each group to its Avro type, in order. At least one is a number.
    """

    pattern: str
    types: dict[str, str]

    @property
    def numbers(self) -> int:
        """Return how many numbers the expression captures."""
        return sum(of in NUMBER_PATTERNS for of in self.types.values())


class _Column(NamedTuple):
    # The words at one position: their text around numbers, and the numbers of each message.
    shape: str | None  # with \0 for a number and \1 for an address; None if it differs
    numbers: list[list[str]]
    names: Sequence[str] = ()  # the words, if they differ and are few


def infer_shape(texts: Sequence[str], taken: set[str]) -> MessageShape | None:
    """Infer a regular expression for messages that have the same words and different numbers.

    Args:
        texts: Messages of a log file, or parts of them.
        taken: Field names that are in use and must not become names of groups.

    Returns:
        The expression. If at least 90% of the messages have the same words only at the start or the
        end, it matches any text in between. None if there are fewer than five messages, or if there
        are no numbers between common words.
    """
    words = [_WORD.findall(text) for text in texts]
    space = r"\s" if any("\n" in text for text in texts) else r"[ \t]"
    if len(words) < _FEW:
        return None
    (length, count), *_ = collections.Counter(map(len, words)).most_common(1)
    if count >= _MOST * len(words) and length > 0:
        same = [of for of in words if len(of) == length]
        columns = [_column(column, _ANY_NAME) for column in zip(*same, strict=True)]
        return _rendered(columns, [], taken, space=space)
    first = _common(words)
    last = _common([of[len(first) :][::-1] for of in words])[::-1]
    return _rendered(first, last, taken, space=space, open_ended=True)


def _common(words: Sequence[Sequence[str]]) -> list[_Column]:
    # The first words that have the same shape in most messages, and names between them.
    columns: list[_Column] = []
    for number in range(min(map(len, words), default=0)):
        column = _column([of[number] for of in words])
        if column.shape is None and not column.names:
            break
        columns.append(column)
    while columns and columns[-1].shape is None:
        columns.pop()
    return columns


def _column(words: Sequence[str], name: re.Pattern[str] = _NAME) -> _Column:
    shapes = [_ATOM.sub(lambda match: "\1" if match["address"] else "\0", word) for word in words]
    (shape, count), *_ = collections.Counter(shapes).most_common(1)
    if count < _MOST * len(words):
        few = len({*words}) <= max(3, 0.1 * len(words)) and all(map(name.fullmatch, words))
        return _Column(None, [], [*words] if few else [])
    chosen = [word for word, of in zip(words, shapes, strict=True) if of == shape]
    found = [[of["number"] for of in _ATOM.finditer(word) if of["number"]] for word in chosen]
    return _Column(shape, [[*of] for of in zip(*found, strict=True)])


def _rendered(
    first: Sequence[_Column],
    last: Sequence[_Column],
    taken: set[str],
    *,
    space: str,
    open_ended: bool = False,
) -> MessageShape | None:
    names = _Names(taken)
    parts = _patterns(first, names)
    if open_ended:
        parts = [*parts, ".*"] if not last else [*parts, ".*", *_patterns(last, names)]
    if not {*names.types.values()} & {*NUMBER_PATTERNS}:
        return None
    text = f"{space}+".join(parts)
    text = text.replace(f"{space}+.*", ".*").replace(f".*{space}+", ".*")
    return MessageShape(f"{space}*{text}{space}*", names.types)


class _Names:
    """The names and types of the fields for the numbers of a message."""

    def __init__(self, taken: set[str]) -> None:
        self.types: dict[str, str] = {}
        self._taken = {*taken, *ENVELOPE_NAMES, MESSAGE, "time", "level"}

    def add_word(self, values: Sequence[str]) -> str:
        """Return `component` for the first names of at least three letters; otherwise `word`."""
        is_component = "component" not in self._taken and all(map(_NAME.fullmatch, values))
        return self._added("component" if is_component else "word", "string")

    def add(self, before: str, behind: str, values: Sequence[str]) -> str:
        unit = re.match(_UNIT, behind.lstrip())
        if (key := _BEFORE.search(before)) is not None:
            name = key[1]
        elif unit is not None and unit[0] in TIME_UNITS:
            name = "duration"
        elif (word := _BEHIND.match(behind) or _LAST_WORD.search(before)) is not None:
            name = "number" if word[1].lower() in _NO_NAMES else word[1]
        else:
            name = "number"
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
        plain = plain if FIELD_NAME.fullmatch(plain) else "number"
        plain = f"log_{plain}" if plain in ENVELOPE_NAMES or plain in (MESSAGE, "time") else plain
        return self._added(plain, infer_text_type(values))

    def _added(self, plain: str, of_type: str) -> str:
        number, unique = 1, plain
        while unique in self._taken:
            number += 1
            unique = f"{plain}_{number}"
        self._taken.add(unique)
        self.types[unique] = of_type
        return unique


def _patterns(columns: Sequence[_Column], names: _Names) -> list[str]:
    texts = [column.shape for column in columns]
    patterns = []
    for index, column in enumerate(columns):
        if column.shape is None:
            name = names.add_word(column.names) if column.names else ""
            patterns.append(rf"(?P<{name}>[A-Za-z][\w.-]*)" if name else _WORD_PATTERN)
            continue
        pattern, at = "", 0
        numbers = iter(column.numbers)
        for mark in re.finditer("[\0\1]", column.shape):
            pattern += quote_pattern(column.shape[at : mark.start()])
            at = mark.end()
            if mark[0] == "\1":
                pattern += _ADDRESS
                continue
            values = next(numbers)
            if infer_text_type(values) not in NUMBER_PATTERNS or len(names.types) >= _NUMBERS_MAX:
                pattern += r"\S+?"
                continue
            before = (
                " ".join(of or "" for of in texts[:index][-1:]) + " " + column.shape[: mark.start()]
            )
            behind = column.shape[at:] + " " + (" ".join(of or "" for of in texts[index + 1 :][:1]))
            name = names.add(before, behind, values)
            pattern += f"(?P<{name}>{NUMBER_PATTERNS[infer_text_type(values)]})"
        patterns.append(pattern + quote_pattern(column.shape[at:]))
    return patterns
