"""Finds numbers in messages that the same key precedes in nearly all of them.

Such as `Query_time: 2.5` in the slow log of MySQL, or `EventCode=4624` in a Windows event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.value_types import infer_text_type
from hourmark_declare.proposing.vocabulary import HOST_KEYS, quote_pattern

_FEW: Final = 5  # messages; so few have keys in common by chance
_KEYED_NUMBER: Final = re.compile(
    r"(?<![\w.-])(?P<key>[A-Za-z_]\w*)[=:][ \t]*(?P<x>-?\d+(?:\.\d+)?)(?=[\s,;)\]]|$)"
)
_KEYED_HOST: Final = re.compile(rf"(?<!\w)(?P<key>(?i:{'|'.join(HOST_KEYS[:7])}))=(?P<x>\S+)")


def message_pattern(
    rests: Sequence[str], taken: set[str], *, multiline: bool
) -> tuple[str, dict[str, str]]:
    """Return the pattern of messages, with a group for each number that has a key in common.

    Args:
        rests: Messages.
        taken: Names of fields that may not be used again.
        multiline: Whether messages consist of several lines. Single lines must have two such
            numbers, because one may be part of a sentence.

    Returns:
        The group `message`, with groups within it for numbers behind the same keys in the same
        order, and their Avro types by name. The group `host` is a host behind such a key.
    """
    plain = (f"(?P<{MESSAGE}>.*)", dict[str, str]())
    least = 1 if multiline else 2
    if len(rests) < _FEW:
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
