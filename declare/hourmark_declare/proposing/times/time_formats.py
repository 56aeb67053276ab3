"""Chooses the time format of texts: one format that reads all of them, in the likeliest order."""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from hourmark.config.groups import ParsingSettings
from hourmark_declare.proposing.times.timestamps import (
    RFC3339_PATTERN,
    TimestampFormat,
    join_short_dates,
    match_timestamp,
)
from hourmark_declare.proposing.vocabulary import names_time, time_key_rank
from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat

_MOST: Final = 0.97
_RFC3339: Final = re.compile(RFC3339_PATTERN)
_DAY_MS: Final = 86_400_000
_NEAR_MS: Final = 2 * _DAY_MS  # between the last time in a file and its last modification
_AHEAD_MS: Final = 10**15  # is added to the distance of times that are ahead
_FARTHER: Final = 10  # times as far from it as another order's: that order is wrong
FUTURE_S: Final = ParsingSettings().future_seconds
AFTER_ALL_TIMES_MS: Final = 1 << 42  # the year 2109


class TimeChoice(NamedTuple):
    """The time format that was chosen for the timestamps of a log file.

    Attributes:
        pattern: Regular expression that matches the timestamps, without groups.
        format: Value for the setting `time_format` of an event type: `rfc3339`, a `strptime`
            format, or `unix`, `unix-ms`, `unix-us` or `unix-ns` for Unix time in this unit.
        doubts: Other possible interpretations, such as another order of day and month, as sentences
            for users; empty if there are none.
    """

    pattern: str
    format: str
    doubts: tuple[str, ...] = ()


def choose_time_format(values: Sequence[str], written_ms: int) -> TimeChoice | None:
    """Choose the time format that matches the values of a table column or JSON key.

    Nearly all values must be timestamps with a date in this format: at least 97%, or all but one of
    at least three.

    Args:
        values: Texts of the column. Empty texts and `-` are ignored.
        written_ms: Time of the file's last modification in Unix milliseconds, which helps to
            determine the order of day and month.

    Returns:
        The format. None if there is none, or if at least half of the values are ignored.
    """
    texts = [value for value in values if value not in ("", "-", "None")]
    if 2 * len(texts) <= len(values) or not texts:
        return None
    if _are_nearly_all(sum(_RFC3339.fullmatch(text) is not None for text in texts), len(texts)):
        return TimeChoice(RFC3339_PATTERN, "rfc3339")
    found = [match_timestamp(text) for text in texts]
    dated = [form for form in found if form is not None and form.is_dated]
    joined = join_short_dates(dated)
    forms = [joined[form] for form in dated]
    counts = collections.Counter(form.format for form in forms).most_common(1)
    if not counts or not _are_nearly_all(counts[0][1], len(texts)):
        return None
    forms = [form for form in forms if form.format == counts[0][0]]
    patterns = dict.fromkeys(form.pattern for form in forms)
    pattern = f"(?:{'|'.join(patterns)})" if len(patterns) > 1 else next(iter(patterns))
    form = forms[0]._replace(pattern=pattern)
    return choose_order(form, texts, written_ms)


def choose_nested_time(
    values: Mapping[tuple[str, ...], Sequence[Any]], written_ms: int
) -> tuple[tuple[str, ...], TimeChoice] | None:
    """Return the values inside nested objects that are most likely the event time.

    One of their keys must indicate a time. A time that is the same in all rows is only selected if
    there is no other.

    Args:
        values: Maps the path of each value, which are the keys of nested objects, to the values in
            all rows that have it.
        written_ms: Time of the file's last modification in Unix milliseconds.

    Returns:
        The path and the format of the time; None if there is no time.
    """
    found = list[tuple[bool, int, int, tuple[str, ...], TimeChoice]]()
    for path, of in values.items():
        if not any(map(names_time, path)) or any(isinstance(value, bool) for value in of):
            continue
        texts = [str(value) for value in of]
        if (choice := choose_time_format(texts, written_ms)) is not None:
            is_constant = len({*texts}) == 1 < len(texts)
            found.append((is_constant, min(map(time_key_rank, path)), len(path), path, choice))
    return min(found)[3:] if found else None


def _are_nearly_all(times: int, texts: int) -> bool:
    # One time may be damaged, however few there are; but two alike are needed.
    return times >= _MOST * texts or (times == texts - 1 >= 2)


def choose_order(form: TimestampFormat, texts: Sequence[str], written_ms: int) -> TimeChoice:
    """Determine whether numeric dates, such as 03/04/2026, are in month-day or day-month order.

    Orders that do not match nearly all timestamps are excluded. Of the others, the function prefers
    the order in which the latest timestamp is closest to the file's last modification, and at most
    one day after it. An order in which timestamps of the same day would be months apart is not
    selected. Dates with dots, such as 03.04.2026, are in day-month order unless they are excluded.

    Args:
        form: Format of the timestamps, with the alternative orders in `others`.
        texts: Timestamps of the file.
        written_ms: Time of the file's last modification in Unix milliseconds; 0 if it is unknown.

    Returns:
        The selected format. If the choice is uncertain, `doubts` names another possible order.
    """
    if not form.others:
        return TimeChoice(form.pattern, form.format)
    read: dict[str, list[int]] = {}
    context = TimeContext(
        observed_at_ms=written_ms or AFTER_ALL_TIMES_MS,
        future_seconds=FUTURE_S,
        zone=ZoneInfo("UTC"),
    )
    for order in (form.format, *form.others):
        reader = TimeFormat(order)
        results = (reader.read_ms(text.encode(), context) for text in texts)
        read[order] = [time for time in results if time is not None]
    most = max(map(len, read.values()))  # a text that no order reads is damaged
    if most == 0:
        return TimeChoice(form.pattern, form.format)
    distances: dict[str, int] = {}
    spans: dict[str, int] = {}
    for order, times in read.items():
        if len(times) >= _MOST * most:
            ahead = max(times) - context.observed_at_ms
            distances[order] = abs(ahead) + (_AHEAD_MS if ahead > _DAY_MS else 0)
            spans[order] = max(times) - min(times)
    best = min(distances, key=lambda order: distances[order] if written_ms else 0)
    shortest = min(spans, key=lambda order: spans[order])
    if max(spans.values()) > 10 * spans[shortest] + _DAY_MS:  # days that seem to be months
        return TimeChoice(form.pattern, shortest)
    if "%d.%m.%Y" in form.format and distances.get(form.format, _AHEAD_MS) < _AHEAD_MS:
        return TimeChoice(form.pattern, form.format)
    if "%p" in best:  # written where the month comes first
        return TimeChoice(form.pattern, next(iter(distances)))
    if len(distances) == 1 or distances[best] <= _NEAR_MS:
        return TimeChoice(form.pattern, best)
    if written_ms and sorted(distances.values())[1] >= _FARTHER * distances[best]:
        return TimeChoice(form.pattern, best)
    if "%y" in form.format and form.format in distances:  # the year first, as Java writes it
        return TimeChoice(form.pattern, form.format)
    other = next(order for order in distances if order != best)
    return TimeChoice(
        form.pattern,
        best,
        (f"times such as {texts[0]} are read as {best}, and could also be {other}",),
    )
