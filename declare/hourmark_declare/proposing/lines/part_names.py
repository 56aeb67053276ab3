"""Names and inner structure of the values that log records have at the same position.

A value is, for example, the text between brackets, or a word before a colon. Its name is guessed
from all of its values: a thread, a component, a logger, or a position in source code. A name may be
followed by ids, as in `unbound[4711:0]` or `kea-dhcp4.leases/4711.1398300`.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.hosts import are_hosts
from hourmark_declare.proposing.lines.part_search import MOST
from hourmark_declare.proposing.value_types import infer_text_type
from hourmark_declare.proposing.vocabulary import TIME_UNITS, quote_pattern

_DOTTED: Final = re.compile(
    r"(?:[A-Za-z_$][\w$<>-]*|__\w+)(?:(?:[.:/$]|::)+[A-Za-z_$<*][\w$<>*-]*)+(?:[/#:(]\S*)?"
)
_THREADS: Final = re.compile(
    r"(?i)main|thread|exec|worker|pool|nio|executor|scheduler|dispatcher|^qtp|^Timer-\d"
)
_SUFFIXES: Final = (
    "c|cc|cpp|cxx|h|hh|hpp|m|go|rs|py|rb|php|js|ts|java|kt|scala|cs|lua|pl|pm|ex|exs|erl|swift|sql"
)
_POSITION: Final = re.compile(rf"\S*\.(?:{_SUFFIXES})(?:[:(.]\d+\)?)?(?:[:@]\S*)?:?")
_NAME: Final = r"[A-Za-z_][\w.$@+-]*(?:[/:]{1,2}[A-Za-z_][\w.$@+-]*)*?"
_WITH_IDS: Final = re.compile(
    rf"(?P<name>{_NAME})(?:(?P<open>[/:#\[(<@,])(?P<pid>\d+)(?:(?P<between>[.:/,])(?P<tid>\d+))?(?P<close>[\])>]?))?"
)
_WITH_CONTEXT: Final = re.compile(r"(?P<name>[A-Za-z_][\w./+-]*)(?P<context>[(<\[]\S*[)>\]])?")
_PADDED_LINE: Final = re.compile(r"[ \t]+(?=:\d+$)")  # as in `salt.master      :123`
_COMPONENT: Final = re.compile(r"[A-Za-z][A-Za-z_-]*(?: [A-Za-z][\w-]*){0,2}(?::[\w:.]+)?")
_UNIX_TIME: Final = re.compile(r"1[0-9]{9}|1[0-9]{12}")
_FEW: Final = 10  # numbers; so few may be ids, whatever they are
CLOSING_BRACKETS: Final = {"[": "]", "(": ")", "<": ">"}


class NameParts(NamedTuple):
    """The result of `split_ids`: the names and ids in values such as `unbound[4711:0]`.

    Attributes:
        pattern: Regular expression for a value. Groups are written `(?P<{0}>…)`, `(?P<{1}>…)`, and
            the caller replaces the numbers with field names. All other braces are doubled.
        names: The name in each value, without the ids. It is the first group.
        others: Maps the proposed field name of each further group to the captured texts; None for a
            value without this part.
    """

    pattern: str
    names: list[str]
    others: dict[str, list[str | None]]


def split_ids(values: Sequence[str]) -> NameParts | None:
    """Separate the names in values such as `unbound[4711:0]` or `leases/4711.139830` from the ids.

    The first id is proposed as `pid`, the second as `tid`. A name may also be followed by other
    text in brackets, as in `imap(ann)<4711>`, which is proposed as `context`.

    Args:
        values: Texts at the same position in all records.

    Returns:
        The structure; None if less than 20% of the values have such a part, or any value has
        another structure, such as a position in source code or a host with a port.
    """
    padded = [_PADDED_LINE.sub("", value) for value in values]
    is_padded = padded != [*values]
    values = padded
    found = [match for value in values if (match := _WITH_IDS.fullmatch(value)) is not None]
    forms = {(match["open"], match["close"]) for match in found if match["open"] is not None}
    if not values or are_positions(values):
        return None
    if len(found) == len(values) and len(forms) == 1:
        return _of_ids(found, *forms.pop(), is_padded=is_padded)
    others = [match for value in values if (match := _WITH_CONTEXT.fullmatch(value)) is not None]
    if len(others) < len(values) or 5 * sum(bool(of["context"]) for of in others) < len(values):
        return None
    if len({of["name"] for of in others}) > max(0.2 * len(values), 3):
        return None
    return NameParts(
        r"(?P<{0}>[A-Za-z_][\w./+-]*)(?P<{1}>[(<\[]\S*?[)>\]])?",
        [of["name"] for of in others],
        {"context": [of["context"] for of in others]},
    )


def _of_ids(
    found: Sequence[re.Match[str]], opening: str, closing: str, *, is_padded: bool
) -> NameParts | None:
    names = [match["name"] for match in found]
    if closing != CLOSING_BRACKETS.get(opening, "") or 5 * sum(
        bool(of["pid"]) for of in found
    ) < len(found):
        return None
    if opening == ":" and any(":" in of for of in names):
        return None  # as `module:function:line`
    if opening == ":" and are_hosts(names, may_differ=True) and not all(of["tid"] for of in found):
        return None  # hosts with ports
    if opening == ":" and {of["between"] for of in found} == {"."}:
        return None  # keys with numbers, such as `Time:1.25`
    if infer_text_type([of["pid"] for of in found if of["pid"]]) != "long":
        return None  # with leading zeros, such as the number of a line
    betweens = collections.Counter(match["between"] for match in found if match["pid"])
    if len(betweens) > 1:
        return None
    ids = r"(?P<{1}>\d+)"
    is_line = opening == ":" and any("." in name for name in names)
    others = {"line" if is_line else "pid": [match["pid"] for match in found]}
    if (between := next(iter(betweens))) is not None:
        ids += quote_pattern(between) + r"(?P<{2}>\d+)"
        others["tid"] = [match["tid"] for match in found]
    space = "[ \\t]*" if is_padded else ""
    ids = f"{space}{quote_pattern(opening)}{ids}{quote_pattern(closing)}"
    ids = ids if all(match["pid"] for match in found) else f"(?:{ids})?"
    return NameParts(rf"(?P<{{0}}>[A-Za-z_][\w.$@+:/-]*?){ids}", names, others)


def bracket_name(values: Sequence[str]) -> str:
    """Propose a field name for texts in brackets, based on their form.

    Args:
        values: Texts without the brackets and without white space around them.

    Returns:
        `pid` or `number` for numbers, `caller` for positions in source code, `thread`, `logger` or
        `component` for texts that look like one, and otherwise `context`.
    """
    of_type = infer_text_type(values)
    if of_type in ("long", "double"):
        return "pid" if of_type == "long" and may_be_process_ids(values) else "number"
    if are_positions(values):
        return "caller"
    if sum(bool(_THREADS.search(value)) for value in values) >= 0.3 * len(values):
        is_logger = all("." in value and "dispatcher" not in value for value in values)
        return "logger" if is_logger else "thread"
    if len(set(values)) <= 10 and all(_COMPONENT.fullmatch(value) for value in values):
        return "component"
    dotted = sum(_DOTTED.fullmatch(value) is not None for value in values) >= 0.5 * len(values)
    return "logger" if dotted else "context"


def may_be_process_ids(values: Sequence[str]) -> bool:
    """Return whether integers may be process ids, rather than levels from 0 to 9 or times.

    Args:
        values: Texts that consist of digits, with an optional sign.

    Returns:
        False if all values have a sign. Also False if there are at least ten values, and all are
        less than 10, or all are Unix time in seconds or milliseconds.
    """
    if all(value.startswith(("+", "-")) for value in values):
        return False
    if len(values) < _FEW:
        return True
    is_time = all(map(_UNIX_TIME.fullmatch, values))
    return not is_time and any(len(value) > 1 for value in values)


def word_name(values: Sequence[str], *, after_time: bool) -> str:
    """Propose a field name for words at the same position in all records.

    Args:
        values: The words.
        after_time: Whether the words follow the timestamp.

    Returns:
        `word` if all words are the same, `label` if some are `-`, `caller` for positions in source
        code, `thread`, `program` or `logger` for words that look like one, and otherwise
        `component`.
    """
    is_constant = len(set(values)) == 1 and len(values) > 10
    dotted = 2 * sum(_DOTTED.fullmatch(value) is not None for value in values) > len(values)
    if is_constant and not (dotted and after_time):
        return "word"
    if "-" in values:
        return "label"
    if are_positions(values):
        return "caller"
    if after_time and 2 * sum(bool(_THREADS.match(value)) for value in values) > len(values):
        return "thread"
    if dotted:
        return "program" if all(value.endswith(".exe") for value in values) else "logger"
    return "component"


def are_positions(values: Sequence[str]) -> bool:
    """Return whether values are positions in source code, such as `main.go:12`.

    At least 90% of the values must be positions. Returns False if there are no values.
    """
    return sum(_POSITION.fullmatch(of) is not None for of in values) >= MOST * max(len(values), 1)


def quantity_name(unit: str) -> str:
    """Propose a field name for numbers with a unit.

    Args:
        unit: Unit of the numbers, such as `ms` or `MB`.

    Returns:
        `duration` if the unit is one of time, and otherwise `number`.
    """
    return "duration" if unit in TIME_UNITS else "number"
