"""Finds timestamps in lines with a grammar of dates, clocks and zones, and selects the event times.

A timestamp is a date, a separator and a clock with an optional fraction, half of the day, zone and
year; or a clock and a date; or Unix time in seconds, milliseconds, microseconds or nanoseconds.
Each has an RE2 regular expression for type files, and the format with which the delivery service
parses it.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.times.zone_names import ABBREVIATION_PATTERN, NAME_PATTERN
from hourmark_declare.proposing.vocabulary import quote_pattern

_RECORDS_BELOW: Final = 0.98  # share of lines with a timestamp: others belong to records
_WITHIN: Final = 120  # bytes of a line in which its timestamp must begin
_MONTH: Final = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ANY_MONTH: Final = f"(?i:{_MONTH[3:-1]})"  # in capitals, too
_LONG_MONTH: Final = (
    "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
)
_DAY_NAME: Final = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
# Pattern, and formats in order of preference: a date of numbers alone may be read in several orders.
_DATES: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    (r"\d{4}-\d\d-\d\d", ("%Y-%m-%d",)),
    (r"\d{4}-\d{1,2}-[ \d]?\d", ("%Y-%m-%d",)),
    (r"\d{4}-\d{3}", ("%Y-%j",)),
    (rf"\d{{4}}-{_MONTH}-[ \d]?\d", ("%Y-%b-%d",)),
    (rf"\d{{4}}/{_MONTH}/[ \d]?\d", ("%Y/%b/%d",)),
    (rf"\d{{4}} {_MONTH} [ \d]?\d", ("%Y %b %e",)),
    (r"\d{4}/\d{1,2}/[ \d]?\d", ("%Y/%m/%d",)),
    (r"\d{4}\.\d\d\.\d\d", ("%Y.%m.%d",)),
    (r"\d{4}(?:0\d|1[0-2])[0-3]\d", ("%Y%m%d",)),
    (rf"\d{{1,2}}/{_MONTH}/\d{{4}}", ("%d/%b/%Y",)),
    (rf"\d{{1,2}}-{_ANY_MONTH}-\d{{4}}", ("%d-%b-%Y",)),
    (rf"\d{{1,2}}-{_ANY_MONTH}-\d\d", ("%d-%b-%y",)),
    (rf"{_DAY_NAME}, [ \d]?\d {_MONTH} \d{{4}}", ("%a, %d %b %Y",)),
    (rf"\d{{1,2}} {_MONTH} \d{{4}}", ("%d %b %Y",)),
    (rf"{_DAY_NAME} {_MONTH} [ \d]\d,? \d{{4}}", ("%a %b %e %Y",)),
    (rf"{_MONTH} [ \d]?\d, \d{{4}}", ("%b %d, %Y",)),
    (rf"\d{{1,2}}{_ANY_MONTH}\d{{4}}", ("%d%b%Y",)),
    (rf"\d{{1,2}}\.{_MONTH}\.\d{{4}}", ("%d.%b.%Y",)),
    (rf"{_DAY_NAME} [ \d]?\d {_MONTH} \d{{4}}", ("%a %d %b %Y",)),
    (rf"{_LONG_MONTH} [ \d]?\d, \d{{4}}", ("%B %d, %Y",)),
    (rf"\d{{1,2}} {_LONG_MONTH} \d{{4}}", ("%d %B %Y",)),
    (r"\d\d\.\d\d\.\d\d", ("%d.%m.%y", "%y.%m.%d")),
    (r"\d{1,2}\.\d{1,2}\.\d{4}", ("%d.%m.%Y", "%m.%d.%Y")),
    (r"\d{1,2}/[ \d]?\d/\d{4}", ("%m/%d/%Y", "%d/%m/%Y")),
    (r"\d\d-\d\d-\d{4}", ("%d-%m-%Y", "%m-%d-%Y")),
    (r"\d\d/\d\d/\d\d", ("%y/%m/%d", "%m/%d/%y", "%d/%m/%y")),
    (r"\d{1,2}/\d{1,2}/\d\d", ("%m/%d/%y", "%d/%m/%y")),
    (r"\d{1,2}\.\d{1,2}\.\d\d", ("%d.%m.%y",)),
    (r"\d\d-\d\d-\d\d", ("%y-%m-%d", "%m-%d-%y", "%d-%m-%y")),
    (rf"{_DAY_NAME} {_MONTH} [ \d]\d", ("%a %b %e",)),
    (rf"{_MONTH} [ \d]\d", ("%b %e",)),
    (rf"{_MONTH} \d", ("%b %e",)),
    (rf"{_MONTH}\d\d", ("%b%d",)),
    (rf"\d{{1,2}} {_MONTH}", ("%d %b",)),
    (rf"\d{{1,2}}-{_MONTH}", ("%d-%b",)),
    (r"\d\d-\d\d", ("%m-%d", "%d-%m")),
    (r"\d\d\.\d\d", ("%m.%d", "%d.%m")),
    (r"\d\d/\d\d", ("%m/%d", "%d/%m")),
    (r"\d{6}", ("%y%m%d",)),
    (r"(?:0\d|1[0-2])[0-3]\d", ("%m%d",)),
)
_CLOCK: Final = r"(?:[01]?\d|2[0-3]):[0-5]?\d:(?:60|[0-5]?\d)"  # with leap seconds
_REST: Final = (
    r"(?P<between>T|::?|\||-|_|\t|,|;|, | at | - | @ |/(?=\d{6}\.|\d\d:\d\d:)|\.(?=\d{6}\b|\d\d:\d\d:)|(?<=\d{8})(?=\d{6}\b)| time=| {1,3})"
    r"(?:(?<= ) (?=\d[:.]))?"  # an hour that is padded with a space
    rf"(?P<clock>{_CLOCK}|\d\d\.\d\d\.\d\d|[0-2]\d-[0-5]\d-[0-5]\d(?![\d-])|[0-2]\d[0-5]\d[0-5]\d(?!\d)|\d\d:\d\d(?![:\d])"
    r"|(?<=  )\d\.\d\d\.\d\d|(?<=  )\d:\d\d(?![:\d])|\d:\d\d(?= ?[AaPp][Mm]\b))"
    r"(?P<fraction>[.,]\d{1,9}|:\d{3}(?!\d))?(?P<half> ?[AaPp][Mm]\b)?"
    r"(?P<zone> ?Z\b| ?[+-]\d\d:?\d\d\b| ?[+-]\d\d(?![\d:.-])|"
    rf" (?:{ABBREVIATION_PATTERN})\b|\+000(?!\d)| {NAME_PATTERN}\b)?"
    r"(?P<year> (?:19|20)\d\d\b)?"
)
_UNIX: Final = (  # digits before the fraction, and format
    (r"1\d{9}(?:\.\d{1,9})?", "unix"),
    (r"1\d{12}", "unix-ms"),
    (r"1\d{15}", "unix-us"),
    (r"1\d{18}", "unix-ns"),
)
_CLOCKS: Final = {  # pattern in a type file, and format
    r"\d\d:\d\d": "%H:%M",
    r"\d{1,2}:\d\d": "%H:%M",
    r"\d\d\.\d\d\.\d\d": "%H.%M.%S",
    r"\d{1,2}\.\d\d\.\d\d": "%H.%M.%S",
    r"\d\d-\d\d-\d\d": "%H-%M-%S",
    r"\d{6}": "%H%M%S",
}
_ENCLOSED: Final = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|\"[^\"]*\"")  # counts as one word
_RFC3339: Final = "%Y-%m-%dT%H:%M:%S%z"
RFC3339_PATTERN: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_BEFORE: Final = r"(?<![\d./-])(?<!\d:)"  # what precedes a date; a letter may


class TimestampFormat(NamedTuple):
    """The format of timestamps in a log file.

    Attributes:
        pattern: Regular expression that matches such timestamps, without groups.
        format: Format for `strptime`, such as `%Y-%m-%d %H:%M:%S`. For Unix time, `unix` (seconds),
            `unix-ms`, `unix-us` or `unix-ns`.
        others: Alternative formats that match the same text, such as `%m/%d/%Y` if `format` has
            `%d/%m/%Y`; empty if the format is unambiguous.
    """

    pattern: str
    format: str
    others: tuple[str, ...] = ()

    @property
    def is_dated(self) -> bool:
        """Return whether timestamps in this format contain a date, with or without a year.

        Unix times are also considered to contain a date.
        """
        return "unix" in self.format or any(f"%{of}" in self.format for of in "dej")

    @property
    def is_complete(self) -> bool:
        """Return whether timestamps in this format contain a year.

        Unix times are also considered to contain a year.
        """
        return self.format.startswith("unix") or "%y" in self.format.lower()


class TimestampMatch(NamedTuple):
    """A timestamp that was found in a line.

    Attributes:
        form: Format of the timestamp.
        start: Offset of the timestamp's first byte (or character) in the line.
        end: Offset after the timestamp's last byte (or character).
    """

    form: TimestampFormat
    start: int
    end: int


def _grammar() -> Iterator[tuple[re.Pattern[str], str, tuple[str, ...]]]:
    for date, formats in _DATES:
        compact = date.endswith(r"\d{6}") or formats in (("%m%d",), ("%Y%m%d",))
        before = r"(?<!\d)" if compact else _BEFORE
        yield re.compile(f"{before}(?P<date>{date}){_REST}"), date, formats


_DATED: Final = tuple(_grammar())
_CLOCK_FIRST: Final = re.compile(
    rf"(?<![\w.:/-])(?P<clock>{_CLOCK})(?P<fraction>[.,]\d{{1,9}})?"
    r"(?P<between> |(?:\+000)?\" date=\"| date=)"
    r"(?P<date>\d\d/\d\d/\d{4}|\d\d-\d\d-\d{4}|\d\d\.\d\d\.\d{4}|\d{4}-\d\d-\d\d)\b"
)
_CLOCK_ALONE: Final = re.compile(
    r"(?<![\w.:/-])(?P<clock>\d{1,2}:\d\d:\d\d)(?P<fraction>[.,]\d{1,9}|:\d{3})?(?!\w|:\d)"
)
_UNIX_TIMES: Final = [
    (re.compile(rf"(?<![\w.:/+-]){pattern}(?![\w./-])"), pattern, form) for pattern, form in _UNIX
]
_UNIX_SPAN_S: Final = (978_307_200, 2_100_000_000)  # 2001 to 2036
_UNITS: Final = {"unix": 1, "unix-ms": 10**3, "unix-us": 10**6, "unix-ns": 10**9}


def find_timestamp(line: bytes) -> TimestampMatch | None:
    """Find the first timestamp with a date in a line.

    Args:
        line: Line of a log file.

    Returns:
        The timestamp; None if none starts within the first 120 bytes of the line.
    """
    return next(
        (of for of in find_timestamps(line.decode("latin-1"), _WITHIN) if of.form.is_dated), None
    )


def find_timestamps(text: str, within: int = _WITHIN) -> list[TimestampMatch]:
    """Find all non-overlapping timestamps in a text, in the order of their position.

    Args:
        text: Line or record of a log file.
        within: Number of characters at the start of the text, within which a timestamp must begin.

    Returns:
        The timestamps; empty if there are none. If two overlap, only the one that begins first is
        included.
    """
    text = text[: within + 80]
    found = [
        (match.start(), number, _dated_match(match, date, formats))
        for number, (search, date, formats) in enumerate(_DATED)
        for match in search.finditer(text)
    ]
    found += [
        (match.start(), len(_DATED), _clock_first_match(match))
        for match in _CLOCK_FIRST.finditer(text)
    ]
    found += [
        (
            match.start(),
            len(_DATED) + 1,
            TimestampMatch(TimestampFormat(pattern, form), *match.span()),
        )
        for search, pattern, form in _UNIX_TIMES
        for match in search.finditer(text)
        if _UNIX_SPAN_S[0] <= float(match[0]) / _UNITS[form] < _UNIX_SPAN_S[1]
    ]
    found += [
        (match.start(), len(_DATED) + 2, TimestampMatch(_clock_form(match), *match.span()))
        for match in _CLOCK_ALONE.finditer(text)
    ]
    kept: list[TimestampMatch] = []
    for start, _, one in sorted(found, key=lambda item: item[:2]):
        if start <= within and (not kept or start >= kept[-1].end):
            kept.append(one)
    return kept


def match_timestamp(text: str) -> TimestampFormat | None:
    """Return the time format of a text that consists of a single timestamp.

    Args:
        text: The text to examine.

    Returns:
        The format; None if the text is not a timestamp, or contains anything else.
    """
    return next(
        (of.form for of in find_timestamps(text, 0) if (of.start, of.end) == (0, len(text))), None
    )


def join_short_dates(forms: Iterable[TimestampFormat]) -> dict[TimestampFormat, TimestampFormat]:
    """Return the format that dates have together with shorter ones in the same place.

    Dates such as 9/30/26 and 10/01/26 are of one format: the second is not 2010-01-26.

    Args:
        forms: Formats of the timestamps that all lines of a file have in the same place.

    Returns:
        Maps each format to itself, or to the format of the shorter dates if it may be this one.
    """
    different = dict.fromkeys(forms)
    return {
        form: next(
            (
                short._replace(pattern=form.pattern)
                for short in different
                if short.format in form.others and form.format not in (short.format, *short.others)
            ),
            form,
        )
        for form in different
    }


def _dated_match(match: re.Match[str], date: str, formats: tuple[str, ...]) -> TimestampMatch:
    between, clock = match["between"], match["clock"]
    clock_pattern, clock_format = _clock_of(clock)
    pattern, rest = date + quote_pattern(between), between
    if between.endswith(" "):  # the parser reads any number of spaces as one
        rest = between.rstrip(" ") + " "
        if clock[1:2] in ":.":
            pattern = date + quote_pattern(rest[:-1]) + " {1,3}"
    pattern, rest = pattern + clock_pattern, rest + clock_format
    if fraction := match["fraction"]:
        pattern += quote_pattern(fraction[0]) + r"\d{1,9}"
        rest += fraction[0] + "%f"
    if half := match["half"]:
        pattern, rest = pattern + " ?[AaPp][Mm]", rest + " " * half.startswith(" ") + "%p"
        rest = rest.replace("%H", "%I")
    if zone := match["zone"]:
        space = " " * zone.startswith(" ")
        if "/" in zone:  # all times of a file have one
            pattern, rest = pattern + quote_pattern(zone), rest + zone
        elif zone.strip()[0].isalpha() and zone.strip() != "Z":
            pattern, rest = pattern + space + "[A-Z]{3,4}", rest + space + "%Z"
        elif zone.strip() in ("+00", "+000"):  # no abbreviation of any zone
            pattern, rest = pattern + space + quote_pattern(zone.strip()), rest + zone
        elif len(zone.strip()) == 3:
            pattern, rest = pattern + space + r"[+-]\d\d", rest + space + "%Z"
        else:
            pattern, rest = pattern + space + r"(?:Z|[+-]\d\d:?\d\d)", rest + space + "%z"
    if match["year"]:
        pattern, rest = pattern + r" \d{4}", rest + " %Y"
    all_formats = [f"{of}{rest}" for of in formats]
    form = TimestampFormat(pattern, all_formats[0], tuple(all_formats[1:]))
    return TimestampMatch(form, match.start(), match.end())


def _clock_of(clock: str) -> tuple[str, str]:
    for pattern, form in _CLOCKS.items():
        if re.fullmatch(pattern, clock):
            return pattern, form
    padded = len(clock) == 8
    return (r"\d\d:\d\d:\d\d" if padded else r"\d{1,2}:\d{1,2}:\d{1,2}"), "%H:%M:%S"


def _clock_form(match: re.Match[str]) -> TimestampFormat:
    pattern, form = _clock_of(match["clock"])
    if fraction := match["fraction"]:
        return TimestampFormat(
            pattern + quote_pattern(fraction[0]) + r"\d{1,9}", f"{form}{fraction[0]}%f"
        )
    return TimestampFormat(pattern, form)


def _clock_first_match(match: re.Match[str]) -> TimestampMatch:
    clock = _clock_form(match)
    date, formats = next(
        (pattern, formats) for pattern, formats in _DATES if re.fullmatch(pattern, match["date"])
    )
    between = match["between"]
    first, *others = [f"{clock.format}{between}{of}" for of in formats]
    pattern = f"{clock.pattern}{quote_pattern(between)}{date}"
    form = TimestampFormat(pattern, first, tuple(others))
    return TimestampMatch(form, match.start(), match.end())


class CommonTimestamp(NamedTuple):
    """The timestamps that most likely contain the event times of the lines in a log file.

    Attributes:
        form: Format of the timestamps.
        share: Fraction of the nonblank lines that have such a timestamp, between 0 and 1.
        spans: Maps the index of each line to the start and end offsets of its timestamp. Lines
            without such a timestamp are absent.
    """

    form: TimestampFormat
    share: float
    spans: dict[int, tuple[int, int]]


def find_common_timestamp(lines: Sequence[bytes]) -> CommonTimestamp | None:
    """Find the timestamps that most likely contain the event times of the lines in a log file.

    Timestamps are grouped by their format and by the number of words before them. The function
    selects one of the groups that are at least 80% as large as the largest one. It prefers, in this
    order, timestamps that differ between lines, contain a year, contain a date, or are closer to
    the start of the line.

    Args:
        lines: Lines of the file; blank lines are ignored.

    Returns:
        The timestamps of the selected group; None if no line has a timestamp. If there seem to be
        multi-line records, only timestamps in the first lines of records are included.
    """
    written = sum(bool(line.strip()) for line in lines)
    places: dict[tuple[str, int], _Place] = {}
    texts = [line.decode("latin-1") for line in lines]
    found: dict[int, list[tuple[int, TimestampMatch]]] = {}
    for index, text in enumerate(texts):
        for one in find_timestamps(text):
            words = len(_ENCLOSED.sub("x", text[: one.start]).split())
            found.setdefault(words, []).append((index, one))
    for words, matches in found.items():
        forms = join_short_dates(one.form for _, one in matches)
        for index, one in matches:
            form = forms[one.form]
            place = places.setdefault((_without_fraction(form.format), words), _Place({}, {}))
            if index not in place.spans:
                place.spans[index] = one.start, one.end
                place.forms[form] = place.forms.get(form, 0) + 1
    places = {key: of for key, of in places.items() if not _are_durations(texts, of.spans)}
    if not places:
        return None
    places |= _merged(places, written)
    most = max(len(place.spans) for place in places.values())

    def rank(place: _Place) -> tuple[bool, bool, bool, float, int]:
        form = next(iter(place.forms))
        values = {texts[index][start:end] for index, (start, end) in place.spans.items()}
        begin = sum(start for start, _ in place.spans.values()) / len(place.spans)
        return (
            len(values) == 1 < len(place.spans),
            not form.is_complete,
            not form.is_dated,
            begin,
            -len(place.spans),
        )

    place = min((of for of in places.values() if len(of.spans) >= 0.8 * most), key=rank)
    spans = place.spans
    if len(spans) < _RECORDS_BELOW * written:
        spans = _record_starts(texts, spans)
    return CommonTimestamp(place.common_form(), len(spans) / max(written, 1), spans)


def _are_durations(texts: Sequence[str], spans: dict[int, tuple[int, int]]) -> bool:
    # Whether all are below an hour and without a second digit for it, as in `0:00:12.5`.
    return all(texts[index].startswith("0:", start) for index, (start, _) in spans.items())


def _merged(places: dict[tuple[str, int], _Place], written: int) -> dict[tuple[str, int], _Place]:
    # Places of one format behind a differing number of words, if only together all lines have one.
    merged: dict[tuple[str, int], _Place] = {}
    for form in {form for form, _ in places}:
        same = [place for (of, _), place in sorted(places.items()) if of == form]
        lines = {index for place in same for index in place.spans}
        if len(lines) < _RECORDS_BELOW * written or any(
            len(place.spans) >= _RECORDS_BELOW * len(lines) for place in same
        ):
            continue
        whole = merged[form, -1] = _Place({}, {})
        for place in same:
            for index, span in place.spans.items():
                whole.spans.setdefault(index, span)
            for one, count in place.forms.items():
                whole.forms[one] = whole.forms.get(one, 0) + count
    return {key: _Place(dict(sorted(of.spans.items())), of.forms) for key, of in merged.items()}


class _Place(NamedTuple):
    # The timestamps of one format behind one number of words: spans by line, and counts of forms.
    spans: dict[int, tuple[int, int]]
    forms: dict[TimestampFormat, int]

    def common_form(self) -> TimestampFormat:
        # Of several forms RFC 3339 covers some; otherwise the most frequent format is used, with
        # all of its patterns.
        most = max(self.forms, key=lambda form: self.forms[form])
        if len(self.forms) == 1:
            return most
        formats = {form.format for form in self.forms}
        if len(formats) > 1 and _without_fraction(most.format) == _RFC3339:
            return TimestampFormat(RFC3339_PATTERN, "rfc3339")
        patterns = dict.fromkeys(of.pattern for of in self.forms if of.format == most.format)
        pattern = f"(?:{'|'.join(patterns)})" if len(patterns) > 1 else most.pattern
        return most._replace(pattern=pattern)


def _without_fraction(form: str) -> str:
    return form.replace(".%f", "") if form.startswith(_RFC3339[:-2]) else form


def _record_starts(
    texts: Sequence[str], spans: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    # Of a record in which several lines contain a timestamp, the first line is the start.
    before = {index: texts[index][:start] for index, (start, _) in spans.items()}
    counts = collections.Counter(before.values())
    first = before[min(before)]
    if 1 < len(counts) <= 5 and re.search(r"[A-Za-z]\W*[:=]\s*$", first) and counts[first] > 1:
        return {index: span for index, span in spans.items() if before[index] == first}
    return spans
