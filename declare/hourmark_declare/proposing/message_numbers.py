"""Finds `key=value` pairs with numeric values that nearly all messages of a log file contain.

Examples are `Query_time: 2.5` in the slow query log of MySQL and `EventCode=4624` in Windows
events.
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
    """Return a regular expression for log messages that captures the values after common keys.

    The key must occur in at least 97% of the messages, followed by a number, as in
    `EventCode=4624`, or by a host name, as in `host=web-01`.

    Args:
        rests: Messages, each the text of a record after its other fields.
        taken: Names of the other fields. Values of keys with these names are not captured.
        multiline: Whether messages consist of several lines. If not, at least two keys are
            required, because a single key may be part of a sentence.

    Returns:
        A tuple of the regular expression and the Avro types of the captured values, with group
        names as keys. The group `message` contains all other groups. If there are fewer than five
        messages or no such keys, the expression matches any text, and the types are empty.
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
