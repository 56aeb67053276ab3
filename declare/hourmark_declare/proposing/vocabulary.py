"""Words and patterns for recognizing parts of log lines: levels, hosts, programs and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

COMMON_LEVELS: Final = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|CRIT|FATAL|ALERT|EMERG|SEVERE|LOG|PANIC"
LEVELS: Final = (
    # of several words first, as the first of them may be a level, too
    "(?:SUCCESS|FAILURE) AUDIT|AUDIT[ _](?:SUCCESS|FAILURE)|STRICT STANDARDS|"
    "(?:(?:CATCHABLE |RECOVERABLE )?FATAL|PARSE|COMPILE|CORE|STARTUP|USER) ERROR|"
    "(?:COMPILE|CORE|USER) WARNING|USER NOTICE|USER DEPRECATED|"
    "TRACE|DEBUG|FINEST|FINER|FINE|CONFIG|VERBOSE|INFORMATION|INFORMATIONAL|INFO|NOTICE|NOTE|SUCCESS|"
    "WARNING|WARN|ERROR|ERR|CRITICAL|CRIT|FATAL|ALERT|EMERGENCY|EMERG|SEVERE|LOG|PANIC|SYSTEM|"
    "INF|WRN|DBG|FTL|VRB|TRC|NTC|DEBU|NOTI|FATA|PANI|TRAC|FAILURE|STATEMENT|DETAIL|HINT|CONTEXT|DEBUG[1-5]|"
    "DBUG|ERRO|CRT|FAIL|TRCE|LOG_[A-Z]+|NOTIFICATION|DISPLAY|VERYVERBOSE|FAULT|ASSERT|INFOS|MAJOR|MINOR|"
    "DEPRECATED|SILLY|WARNUNG|FEHLER|ERREUR|AVERTISSEMENT|ADVERTENCIA|SCHWERWIEGEND|GRAVE"
)
# Forms of a level, and the share of lines that must have it: a word that begins a sentence is no level.
LEVEL_FORMS: Final = (
    (rf"[\[<(]?[ \t]*(?P<level>{LEVELS})\b(?:[ \t]*[\]>):]+)?", 0.5),
    (rf"[\[<(][ \t]*(?P<level>(?i:{LEVELS}))[ \t]*[\]>)]:?", 0.5),
    (rf"(?P<level>(?i:{LEVELS})):", 0.5),
    (rf"(?P<level>(?i:{LEVELS}))\b", 0.9),
    (r"(?P<level>Pa|Cr|Er|Wa|No|In|Ve|Db|Tr)\(\d+\)", 0.9),  # VMware, with a priority
)
_ANY_LEVEL: Final = "|".join(form.replace("?P<level>", "?:") for form, _ in LEVEL_FORMS[:3])
LEVEL_PATTERN: Final = f"(?:{_ANY_LEVEL})"  # in capitals, in brackets, or with a colon
LEVEL_LETTERS: Final = frozenset("VDTIWEFCNAS")
_USUAL_LETTERS: Final = frozenset("IWEDiwed")
_LEVEL_CODES: Final = (  # each stands for a level in brackets
    LEVEL_LETTERS,
    frozenset(letter.lower() for letter in LEVEL_LETTERS),
    frozenset(("II", "WW", "EE", "--", "==", "**", "++", "!!", "NI", "??", "DB")),  # X.Org
    frozenset(("+", "-", "*", "!", "i", "x", "?", "~", ".", "#")),
)
LEVEL_KEYS: Final = (
    "level",
    "severity",
    "severitytext",
    "severity_text",
    "severitynumber",
    "loglevel",
    "log_level",
    "levelname",
    "lvl",
    "priority",
    "s",
)
PROGRAM_KEYS: Final = (
    "program",
    "logger",
    "logger_name",
    "component",
    "service",
    "service_name",
    "app",
    "application",
    "process",
    "c",
    "scope_name",
    "module",
)
TIME_KEYS: Final = (
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "datetime",
    "date",
    "event_time",
    "eventTime",
    "t",
    "asctime",
    "created_at",
)
TIME_UNITS: Final = frozenset(
    ("ns", "us", "\u00b5s", "ms", "msec", "msecs", "s", "sec", "secs", "m", "min", "h")
)
REQUEST: Final = re.compile(r"[A-Z]{3,8} \S+(?: HTTP/[\d.]+)?|-")  # line of an HTTP request
_TIME_NAME: Final = re.compile(r"(?i)time|date|(?:^|[_.@])ts$|_at$|created|when|start")
_OTHER_TIME_NAME: Final = re.compile(r"(?i)end|stop|expir|finish|modif|ingest|observed|received")


def is_level(text: str) -> bool:
    """Return whether a text is a log level, such as `INFO` or `warn`, in upper or lower case."""
    return re.fullmatch(f"(?i:{LEVELS})", text) is not None


def are_levels(values: Sequence[str]) -> bool:
    """Return whether the values are log levels.

    Values are log levels if at least 90% of them are known levels. They are also log levels if at
    least half are known, and the others look like additional levels, such as `http` in addition to
    `info` and `warn`: at most two different words in the same case.

    Args:
        values: Texts at the same position in all lines.

    Returns:
        False if the values are not log levels, or if there are no values.
    """
    known = [value for value in values if is_level(value)]
    if not known or len(known) >= 0.9 * len(values):
        return bool(known)
    others = {*values} - {*known}
    words = {*known} | others
    is_same_case = all(map(str.islower, words)) or all(map(str.isupper, words))
    return (
        2 * len(known) >= len(values)
        and len({*known}) >= 2 >= len(others)
        and is_same_case
        and all(of.isascii() and of.isalpha() and 3 <= len(of) <= 12 for of in others)
    )


def are_level_codes(values: Sequence[str]) -> bool:
    """Return whether texts in brackets are codes for log levels, such as `I` and `W`, or `II`.

    Args:
        values: Texts without the brackets.

    Returns:
        True if all values belong to the same set of codes, and at least two are different.
    """
    different = {*values}
    return len(different) > 1 and (
        any(different <= codes for codes in _LEVEL_CODES) or are_level_letters(different)
    )


def are_level_letters(values: Iterable[str]) -> bool:
    """Return whether single letters stand for log levels, such as `I`, `W` and `E`.

    Args:
        values: Texts at the same position in all lines.

    Returns:
        True if there are two to eight different letters of the same case, and at least one of them
        is I, W, E or D.
    """
    different = {*values}
    return (
        2 <= len(different) <= 8
        and all(len(of) == 1 and of.isascii() and of.isalpha() for of in different)
        and len({of.isupper() for of in different}) == 1
        and bool(different & _USUAL_LETTERS)
    )


def time_key_rank(name: str) -> int:
    """Rank the name of a key by how likely the key contains the event time.

    A lower rank is more likely. Well-known names such as `time` have the lowest ranks, followed by
    other names that indicate a time. Names that indicate another time, such as the end of a
    request, have a higher rank. Names that do not indicate a time have the highest rank.

    Args:
        name: Name of the key. Only the part after the last dot is considered.

    Returns:
        A non-negative number, to be compared with the ranks of other names.
    """
    plain = name.rsplit(".", 1)[-1]
    if plain in TIME_KEYS:
        return TIME_KEYS.index(plain)
    if not _TIME_NAME.search(plain):
        return len(TIME_KEYS) + 3
    if _OTHER_TIME_NAME.search(plain):
        return len(TIME_KEYS) + 2
    return len(TIME_KEYS) + (0 if plain.lower().startswith(("time", "ts", "start")) else 1)


def names_time(name: str) -> bool:
    """Return whether the name of a key, such as `created_at`, indicates a time.

    Args:
        name: Name of the key. Only the part after the last dot is considered.
    """
    return time_key_rank(name) < len(TIME_KEYS) + 3


def quote_pattern(text: str) -> str:
    r"""Return an RE2 regular expression that matches a text literally.

    Control characters are escaped, for example as `\t` or `\x01`.
    """
    quoted = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text).replace("\t", r"\t")
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", quoted)
