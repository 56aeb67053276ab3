"""Candidates for tables: columns between commas, semicolons, tabs, bars or spaces, with their names.

Names come from a header row, or from a comment such as `#Fields: date time` (W3C, Zeek). Values in
quotes or brackets may contain the delimiter, and in quotes line feeds. A date and a clock in
adjacent columns are one time.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from hourmark_declare.proposing.candidate import MESSAGE, Candidate
from hourmark_declare.proposing.file_sample import FileSample, allow_trailing_cr, text_type
from hourmark_declare.proposing.hosts import choose_host_key
from hourmark_declare.proposing.tables.column_names import Column, guess_names, unique_names
from hourmark_declare.proposing.times.time_formats import TimeChoice, choose_time_format
from hourmark_declare.proposing.times.timestamps import CommonTimestamp, find_common_timestamp
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type, optional_field
from hourmark_declare.proposing.vocabulary import (
    is_level,
    quote_pattern,
    time_key_rank,
)

_MOST: Final = 0.9
_DELIMITERS: Final = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    "~": "tildes",
    "^": "carets",
    "\x01": "SOH",
    "\x1f": "US",
}
_FIELDS_COMMENT: Final = re.compile(r"#\s*[Ff]ields:?[ \t]+(?P<names>.+)")
_NAME: Final = re.compile(r"[A-Za-z_@#][\w .()/%#@:$\[\]-]{0,60}")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"(?=[ \t]|$)|\[[^\[\]]*\](?=[ \t]|$)|\S+')
_TIME_WORDS_MIN: Final = 3  # a date and a clock are in columns of their own
_SPACED_MIN: Final = 5  # fewer columns between spaces are a text rather than a table
_PLAIN_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*[.,:;!?]?")
_WITH_UNIT: Final = re.compile(
    r"-?\d+(?:\.\d+)?(?P<unit> ?(?:[A-Za-z\u00b5\u00b0]{1,3}|%)(?:/s|/min|/h)?)"
)
_PADDED_MIN: Final = 0.1  # share of cells with spaces around them, in a table with tabs
_SEVERAL_BRACKETS: Final = re.compile(r"[\[(<][^\s\[\]()<>]*[\])>][\[(<]")
_BRACKETS: Final = ("[]", "()", "{}")
_ABSENT: Final = frozenset(  # texts that stand for no number
    ("N/A", "n/a", "[N/A]", "NA", "NULL", "null", "(null)", "None", "nil")
)


def delimited_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the formats for reading a log file as a table with delimited columns.

    Commas, semicolons, tabs and vertical bars are tried as delimiters. At least 90% of the lines
    must have the same number of columns, and at least three columns. Unless a header names the
    columns, one of them must contain a timestamp.

    Args:
        sample: First and last lines of a log file.

    Yields:
        At most one candidate format for each delimiter.
    """
    lines = _written_lines(sample)
    has_open_quotes = sum(line.count('"') % 2 for line in lines) >= 2
    times = find_common_timestamp(sample.lines) if has_open_quotes else None
    for delimiter in _DELIMITERS:
        if times is not None:
            yield from _quoted_records(sample, lines, delimiter, times)
        if sum(delimiter in line for line in lines) < _MOST * len(lines) - 5:
            continue
        rows = [_split(line, delimiter) for line in lines if not line.startswith("#")]
        if is_padded := _are_padded(rows, delimiter):
            rows = [[cell.strip(" ") for cell in row] for row in rows]
        yield from _candidates(sample, lines, rows, delimiter, is_padded=is_padded)


def _quoted_records(
    sample: FileSample, lines: Sequence[str], delimiter: str, times: CommonTimestamp
) -> Iterator[Candidate]:
    # Rows of which some have line feeds between quotes, and that begin with a column of times, or
    # with columns of one line before it.
    texts = [*map(_text, sample.lines)]
    behind = [texts[n][end:].removeprefix('"')[:1] for n, (_, end) in times.spans.items()]
    if behind.count(delimiter) < _MOST * len(behind):
        return
    before = collections.Counter(
        texts[n][:start].count(delimiter) for n, (start, _) in times.spans.items()
    )
    mark = quote_pattern(delimiter)
    ahead = rf'(?:(?:"[^"\n]*"|[^"{_in_class(delimiter)}\n]*){mark})' * before.most_common(1)[0][0]
    start = f'^{ahead}"?{times.form.pattern}"?{mark}'
    starts = [n for n, text in enumerate(texts) if re.match(start, text)]
    if not starts:
        return
    records = ["\n".join(texts[at:to]) for at, to in itertools.pairwise([*starts, len(texts)])]
    rows = [_split(record, delimiter) for record in [*texts[: starts[0]], *records]]
    for candidate in _candidates(sample, lines, rows, delimiter):
        pattern = f"(?s){candidate.line['pattern']}" if "pattern" in candidate.line else ""
        if pattern:
            line = {**candidate.line, "pattern": pattern}
            yield dataclasses.replace(candidate, line=line, record_start=start)


def spaced_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format for reading a log file as a table with columns separated by spaces.

    At least 90% of the lines must have the same number of columns, and at least five columns.
    Unless a header names the columns, one of them must contain a timestamp, two must contain other
    numbers, and less than half may contain words. Otherwise, the lines are considered sentences.

    Args:
        sample: First and last lines of a log file.

    Yields:
        At most one candidate format.
    """
    found = find_common_timestamp(sample.lines)
    spans = {} if found is None else found.spans
    rows = [
        _spaced_cells(line, spans.get(number))
        for number, line in enumerate(sample.lines)
        if line.strip() and not line.startswith(b"#")
    ]
    yield from _candidates(sample, _written_lines(sample), rows, " ")


def _spaced_cells(line: bytes, time: tuple[int, int] | None) -> list[str]:
    # A time of several words, such as that of `ctime`, is one cell.
    start, end = time or (0, 0)
    stamp = line[start:end].decode(errors="replace")
    is_bare = all(of in b" \t" for of in (line[max(start - 1, 0) : start], line[end : end + 1]))
    if len(stamp.split()) < _TIME_WORDS_MIN or not is_bare:
        return _TOKEN.findall(_text(line))
    before, behind = (_TOKEN.findall(_text(part)) for part in (line[:start], line[end:]))
    return [*before, stamp, *behind]


def _written_lines(sample: FileSample) -> list[str]:
    return [_text(line) for line in sample.lines if line.strip()]


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")


def _split(line: str, delimiter: str) -> list[str]:
    if delimiter == "\t" or '"' not in line:
        return line.split(delimiter)
    cell = rf'[ ]?"(?:[^"]|"")*"|[^{re.escape(delimiter)}]*'
    return list(re.findall(rf"(?:^|{re.escape(delimiter)})({cell})", line))


def _candidates(
    sample: FileSample,
    lines: Sequence[str],
    rows: Sequence[list[str]],
    delimiter: str,
    *,
    is_padded: bool = False,
) -> Iterator[Candidate]:
    widths = collections.Counter(map(len, rows))
    if not widths:
        return
    width, count = widths.most_common(1)[0]
    if width < (_SPACED_MIN if delimiter == " " else 3) or count < _MOST * len(rows) or count < 2:
        return
    table = [row for row in rows if len(row) == width]
    if len(rows[0]) == width - 1 and _end_in_quotes(table):
        table.insert(0, [*rows[0], MESSAGE])  # a header that does not name the text
    has_header = _is_header(table[0], table[1:])
    names = _names(lines, table[0], delimiter, has_header=has_header)
    if has_header:
        table = table[1:]
    if names is None and not (_is_table(table) if delimiter == " " else _are_cells(table)):
        return
    columns = _columns(table, names)
    time = _time(sample, columns, delimiter)
    may_be_cells = delimiter == "\t" and not _have_words(table)
    may_be_text = is_padded and not may_be_cells and not _is_table(table)
    if names is None and (time is None or may_be_text):
        return  # no table, or a text with structure that `line_template` infers
    yield _candidate(
        sample,
        _joined(columns, time),
        time,
        delimiter,
        is_named=names is not None,
        is_padded=is_padded,
    )


def _end_in_quotes(table: Sequence[list[str]]) -> bool:
    return all(row[-1][:1] == row[-1][-1:] == '"' for row in table)


def _are_padded(rows: Sequence[list[str]], delimiter: str) -> bool:
    # Whether spaces separate most cells from their delimiters, as in `a, b` and `a | b`. With tabs,
    # a column that is padded is enough, as no sentence has these.
    inner = [cell for row in rows for cell in row[1:]]
    if delimiter == "\t":
        return _PADDED_MIN * len(inner) < sum(cell != cell.strip(" ") for cell in inner)
    return 2 * sum(cell.startswith(" ") for cell in inner) > len(inner)


def _names(
    lines: Sequence[str], first: Sequence[str], delimiter: str, *, has_header: bool
) -> list[str] | None:
    for line in lines[:20]:
        if (match := _FIELDS_COMMENT.fullmatch(line.rstrip())) is not None:
            for separator in ("\t", delimiter, None):
                names = match["names"].split(separator)
                if len(names) == len(first):
                    return unique_names(names)
    return unique_names([name.strip().strip('"') for name in first]) if has_header else None


def _is_header(first: Sequence[str], rows: Sequence[list[str]]) -> bool:
    # A row of names: each looks like one, and is no value of its column.
    cells = [cell.strip().strip('"') for cell in first]
    if not rows or not all(_NAME.fullmatch(cell) for cell in cells) or len(set(cells)) < len(cells):
        return False
    columns = [[value.strip().strip('"') for value in column] for column in zip(*rows, strict=True)]
    typed = any(infer_text_type(column) in ("long", "double") for column in columns)
    dated = any(choose_time_format(column[:20], 0) is not None for column in columns)
    again = any(cell in column for cell, column in zip(cells, columns, strict=True))
    return (typed or dated) and not again


def _is_table(table: Sequence[list[str]]) -> bool:
    # At least two columns of numbers besides the time, and less than half of words: no sentences.
    columns = list(zip(*table, strict=True))
    words = sum(
        2 * sum(bool(_PLAIN_WORD.fullmatch(value)) for value in column) > len(table)
        for column in columns
    )
    numbers = sum(
        infer_text_type(column) in ("long", "double") and choose_time_format(column, 0) is None
        for column in columns
    )
    open_cells = sum(
        2 * sum(any(cell.count(a) != cell.count(b) for a, b in _BRACKETS) for cell in column)
        > len(table)
        for column in columns
    )
    glued = any(all(map(_SEVERAL_BRACKETS.match, column)) for column in columns)
    if open_cells >= 2 or glued:  # a text with brackets around several words, or without spaces
        return False
    has_level = any(all(is_level(value.strip("[]<>(): ")) for value in of) for of in columns)
    return 2 * words < len(columns) and numbers >= 2 and not (has_level and words >= 2)


def _have_words(table: Sequence[list[str]]) -> bool:
    # Whether a column between the first and the last consists of several parts, as in `12 Query`.
    inner = [*zip(*table, strict=True)][1:-1]
    return any(2 * sum(" " in cell for cell in column) > len(table) for column in inner)


def _are_cells(table: Sequence[list[str]]) -> bool:
    # No sentences that happen to contain the delimiter: only the last column may have some.
    columns = [*zip(*table, strict=True)][:-1]
    return not any(
        10
        * sum(
            value[:1] not in ('"', "[") and (len(value.split()) > 3 or value.startswith("  "))
            for value in column
        )
        > len(table)
        for column in columns
    )


def _columns(table: Sequence[list[str]], names: Sequence[str] | None) -> list[Column]:
    columns = []
    for number, values in enumerate(zip(*table, strict=True)):
        wrap = next(
            (
                opening
                for opening, closing in (('"', '"'), ("[", "]"))
                if all(v[:1] == opening and v[-1:] == closing and len(v) > 1 for v in values)
            ),
            "",
        )
        bare = [value[1:-1] for value in values] if wrap else [*values]
        bare, absent = _without_absent(bare)
        bare, unit = (bare, "") if wrap else _without_unit(bare)
        name = names[number] if names else ""
        columns.append(Column(name, bare, wrap, unit=unit, absent=absent))
    return columns if names else guess_names(columns)


def _without_absent(values: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    # The numbers of a column, empty where a text such as `[N/A]` stands for none, and these texts.
    found = tuple(sorted({*values} & _ABSENT))
    numbers = ["" if value in found else value for value in values]
    is_rare = 2 * sum(value in found for value in values) < len(values)
    if (
        not found
        or not is_rare
        or infer_text_type(_without_unit(numbers)[0]) not in NUMBER_PATTERNS
    ):
        return [*values], ()
    return numbers, found


def _without_unit(values: Sequence[str]) -> tuple[list[str], str]:
    # The numbers in `45 %` or `12ms`, if all values of the column have the same unit.
    found = [_WITH_UNIT.fullmatch(value) for value in values if value not in ("", "-")]
    units = {match["unit"] if match is not None else "" for match in found}
    if len(units) != 1 or not (unit := units.pop()):
        return [*values], ""
    return [value.removesuffix(unit) for value in values], unit


class _Time(NamedTuple):
    first: int  # number of the column
    width: int  # 2: a date, and a clock in the next column
    choice: TimeChoice


def _time(sample: FileSample, columns: Sequence[Column], delimiter: str) -> _Time | None:
    found: list[tuple[int, int, _Time]] = []
    for number, column in enumerate(columns):
        if number + 1 < len(columns) and not column.wrap and not columns[number + 1].wrap:
            both = [
                f"{date}{delimiter}{clock}"
                for date, clock in zip(column.values, columns[number + 1].values, strict=True)
            ]
            if (choice := choose_time_format(both, sample.written_ms)) is not None:
                found.append((time_key_rank(column.name), number, _Time(number, 2, choice)))
        if (choice := choose_time_format(column.values, sample.written_ms)) is not None:
            found.append((time_key_rank(column.name), number, _Time(number, 1, choice)))
    return min(found, key=lambda item: item[:2], default=(0, 0, None))[2]


def _joined(columns: Sequence[Column], time: _Time | None) -> list[Column]:
    if time is None:
        return [*columns]
    first, last = time.first, time.first + time.width
    wrap = columns[first].wrap
    return [*columns[:first], Column("time", [], wrap, time.width), *columns[last:]]


def _candidate(
    sample: FileSample,
    columns: Sequence[Column],
    time: _Time | None,
    delimiter: str,
    *,
    is_named: bool,
    is_padded: bool,
) -> Candidate:
    written = {of.name: [value for value in of.values if value] for of in columns}
    host = choose_host_key(written, max(len(column.values) for column in columns))
    if host != "host":  # that of a request, for which the event has no field of this name
        columns = [of._replace(name="log_host") if of.name == "host" else of for of in columns]
    names = [column.name for column in columns]
    fields = [
        optional_field(column.name, infer_text_type(column.values))
        for column in columns
        if column.name not in (host, "time") or (column.name == "time" and time is None)
    ]
    settings: dict[str, Any] = (
        {"time_field": "time", "time_format": time.choice.format} if time else {}
    )
    settings |= {"host_field": host} if host else {}
    total = sum(column.width for column in columns)
    kind = {" ": "spaces", **_DELIMITERS}[delimiter]
    form = f"{total} columns with {kind} between{', named by a header' if is_named else ''}"
    doubts = time.choice.doubts if time else ()
    plain = not is_padded and not any(column.unit or column.absent for column in columns)
    if delimiter == "\t" and plain and (time is None or time.width == 1):
        is_empty = any("" in column.values for column in columns)
        line = {
            "payload": "tsv",
            "columns": names,
            **settings,
            "null_text": "" if is_empty else "-",
        }
        line |= {} if time else {"time": "observed"}
        return Candidate(
            form=form, line=line, fields=tuple(fields), has_header=is_named, doubts=doubts
        )
    between = r"[ \t]+" if delimiter == " " else quote_pattern(delimiter)
    between = f"[ ]*{between}[ ]*" if is_padded else between
    cells = [_cell(column, time, delimiter, is_padded=is_padded) for column in columns]
    if columns[-1].name == MESSAGE and columns[-1].wrap == '"':
        cells[-1] = f'"(?P<{MESSAGE}>.*?)"?'  # with what is behind it, if it is damaged
    pattern = between.join(cells)
    lead = r"[ \t]*" if delimiter == " " else "[ ]*" if is_padded else ""
    has_message = MESSAGE in names
    rest = "" if has_message else f"(?P<{MESSAGE}>.*)"  # more columns, or a line that is no row
    whole = allow_trailing_cr(f"{lead}{pattern}{lead}{rest}", sample)
    line = {"payload": "pattern", "pattern": whole, **settings}
    line |= {"null_text": "-" if delimiter == " " else "", "time": "observed", "field": MESSAGE}
    text = optional_field(MESSAGE, text_type(sample))
    return Candidate(
        form=form,
        line=line,
        fields=(*(field for field in fields if field["name"] != MESSAGE), text),
        catches_all=True,
        has_header=is_named,
        doubts=doubts,
    )


def _cell(column: Column, time: _Time | None, delimiter: str, *, is_padded: bool) -> str:
    if column.name == "time" and time is not None:
        group = f"(?P<time>{time.choice.pattern})"
        return {"": group, '"': f'"{group}"', "[": rf"\[{group}\]"}[column.wrap]
    if column.wrap == "[":
        return rf"\[(?P<{column.name}>[^\[\]]*)\]"
    of_type = infer_text_type(column.values)
    number = NUMBER_PATTERNS.get(of_type)
    absent = "".join(f"|{quote_pattern(text)}" for text in column.absent)
    inside = r'(?:[^"\\]|\\.)*' if delimiter == " " else r'(?:[^"\\]|\\.|"")*'
    if column.wrap == '"':
        if number is not None:
            return f'"(?:(?P<{column.name}>{number}){absent}|-?)"'
        return f'"(?P<{column.name}>{inside})"'
    if column.name == MESSAGE and not column.wrap:
        return f"(?P<{MESSAGE}>.*)"
    if number is not None:
        unit = quote_pattern(column.unit)
        return f"(?:(?P<{column.name}>{number}){unit}{absent}|-{'?' if delimiter != ' ' else ''})"
    if delimiter == " ":
        return rf"(?P<{column.name}>\S+)"
    plain = (
        rf'[^" {_in_class(delimiter)}](?:[^{_in_class(delimiter)}]*[^ {_in_class(delimiter)}])?'
        if is_padded
        else rf'[^"{_in_class(delimiter)}][^{_in_class(delimiter)}]*'
    )
    return f'(?P<{column.name}>"(?:[^"]|"")*"|(?:{plain})?)'


def _in_class(delimiter: str) -> str:
    # No value includes a CR at the end of the line.
    return (quote_pattern(delimiter) if delimiter in "\t\x01\x1f^" else delimiter) + r"\r"
