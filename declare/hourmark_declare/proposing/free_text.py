"""Candidates for text formats: system logs, access logs, timestamped lines, plain text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from hourmark_declare.proposing.candidate import MESSAGE, Candidate
from hourmark_declare.proposing.file_sample import FileSample, allow_trailing_cr, text_type
from hourmark_declare.proposing.lines.line_template import Template, infer_template
from hourmark_declare.proposing.times.time_formats import TimeChoice, choose_order
from hourmark_declare.proposing.times.timestamps import CommonTimestamp, find_common_timestamp
from hourmark_declare.proposing.times.zone_names import zone_in_format, zone_of_abbreviation
from hourmark_declare.proposing.value_types import optional_field, parse_json_objects
from hourmark_declare.proposing.vocabulary import LEVELS, quote_pattern
from hourmark_delivery_service.parsing.syslog.forms import parse_syslog_forms

PLAIN_TEXT: Final = "lines of text without a time"
_QUOTED: Final = r'"(?P<{}>(?:[^"\\]|\\.)*)"'
_ACCESS: Final = (
    r"(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "
    + _QUOTED.format("request")
    + r" (?P<status>\d{3}) (?P<bytes>\d+|-)(?: "
    + _QUOTED.format("referrer")
    + " "
    + _QUOTED.format("agent")
    + rf")?(?P<{MESSAGE}>.*)"
)
_ACCESS_FIELDS: Final = {
    "client": "string",
    "user": "string",
    "request": "string",
    "status": "long",
    "bytes": "long",
    "referrer": "string",
    "agent": "string",
}
_CATCHING: Final = {"time": "observed", "field": MESSAGE}  # required for lines that do not match
_UNSTAMPED_MIN: Final = (
    0.02  # a smaller share of lines without a timestamp does not indicate multi-line records
)
_CONTINUATION: Final = re.compile(
    rb"[ \t]+\S|Traceback \(|Caused by: |\w+(?:\.\w+)*(?:Error|Exception)\b"
)
_OFFSET_MINUTES: Final = re.compile(rb"[+-][0-8]\d[05](?![\d:.-])")
_STAMPED_MIN: Final = 0.02  # a smaller share of lines with one does not begin records
_NO_HOST: Final = re.compile(
    rf"(?i:{LEVELS})|stdout|stderr|\d+(?:\.\d+)?[a-z]{{0,2}}|[A-Z]|[^A-Za-z0-9_].*|.*[=\])]"
)
_IS_LEVEL: Final = re.compile(r"(?i:trace|debug|info|notice|warn|warning|error|critical|fatal)")
_BSD_TIME: Final = re.compile(rb"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d")
_LEVEL_FIRST: Final = re.compile(
    rf"\s*[\[<(]?(?i:{LEVELS})(?:[\])>:|]|\s+-|\s+\S+\[\d+\]:)|\s*(?:{LEVELS})\s".encode()
)
_INDENTED_MIN: Final = 0.2  # share of lines that continue records without a time
_MOST: Final = 0.97  # share of the times that must have the same line before them
_SPACED_PROGRAM: Final = re.compile(rb"[A-Za-z][\w.-]*(?: [A-Za-z][\w.-]*){1,3}\[\d+\]:")
_DATE_LENGTH: Final = 10  # bytes, as in `2026-11-21`
_SPACED_MIN: Final = 0.1  # share of lines with such a program
_SYSLOG_MIN: Final = 0.8  # share of the lines that must have a header of syslog


def syslog_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format `syslog` if the lines of a log file begin with a syslog header.

    The built-in event type `syslog` parses such lines. Lines in other formats may also begin with a
    timestamp and words. Therefore, a line must have a priority, a BSD timestamp (`Nov 21
    05:07:11`), or a program name together with a host or process id.

    Args:
        sample: First and last lines of a log file.

    Yields:
        One candidate format if at least 80% of the lines meet this condition; otherwise nothing.
    """
    lines = [line for line in sample.lines if line.strip()][:1000]
    if sum(map(_is_syslog, lines)) >= _SYSLOG_MIN * len(lines) and not (
        _have_levels(lines)
        or _are_sentences(lines)
        or _have_no_origin(lines)
        or _have_spaces_in_programs(lines)
    ):
        yield Candidate(form="a system log", format="syslog")


def _is_syslog(line: bytes) -> bool:
    parts = parse_syslog_forms(line.rstrip(b"\r"))
    if parts is None:
        return False
    header = parts.header
    host = (header.host or b"").decode("latin-1")
    if host and host != "-" and _NO_HOST.fullmatch(host):
        return False
    program = (header.program or b"").decode("latin-1")
    if not line.startswith(b"<") and header.pid is None and _IS_LEVEL.fullmatch(program):
        return False
    if line.startswith(b"<") or _BSD_TIME.match(line):
        return True
    return header.time is not None and header.program is not None and bool(host or header.pid)


def _have_levels(lines: Sequence[bytes]) -> bool:
    # Whether the lines have neither a priority nor a process id, and also no host, no program or not
    # the time of BSD, but a level in the message: the built-in type has no field for it.
    bare = [
        parts.message
        for line in lines
        if line[:1] != b"<"
        and (parts := parse_syslog_forms(line)) is not None
        and (None in (parts.header.host, parts.header.program) or not _BSD_TIME.match(line))
        and parts.header.pid is None
    ]
    levels = sum(_LEVEL_FIRST.match(message) is not None for message in bare)
    return len(bare) >= _SYSLOG_MIN * len(lines) and 2 * levels > len(bare)


def _are_sentences(lines: Sequence[bytes]) -> bool:
    # Whether what seems to be the host is the first word of a message: several words, no program.
    found = [parts for line in lines if (parts := parse_syslog_forms(line)) is not None]
    bare = [of.header.host for of in found if of.header.program is None and of.header.pri is None]
    hosts = {*bare}
    words = all(host is not None and host.isalpha() for host in hosts)
    return len(bare) >= _SYSLOG_MIN * len(found) and len(hosts) > 1 and words


def _have_no_origin(lines: Sequence[bytes]) -> bool:
    # Whether most lines have only a time: their text may begin with parts of another form.
    headers = [parts.header for line in lines if (parts := parse_syslog_forms(line)) is not None]
    bare = sum(of.pri is of.host is of.program is None for of in headers)
    return 2 * bare > len(headers)


def _have_spaces_in_programs(lines: Sequence[bytes]) -> bool:
    # Whether some lines have a program such as `Google Chrome[4711]:`, which no parser of syslog
    # accepts: it would remain in the message.
    found = [parts for line in lines if (parts := parse_syslog_forms(line)) is not None]
    spaced = sum(
        of.header.program is None and _SPACED_PROGRAM.match(of.message) is not None for of in found
    )
    return spaced >= _SPACED_MIN * len(found)


def access_log_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format of HTTP access logs: the common or combined log format of Apache and nginx.

    Args:
        sample: First and last lines of a log file.

    Yields:
        One candidate format. Nothing if no line matches, or if more than 10% of the matching lines
        have additional columns, because a table format is better for such a file.
    """
    access = re.compile(_ACCESS.encode())
    found = [match for line in sample.lines if (match := access.fullmatch(line)) is not None]
    longer = sum(bool(match[MESSAGE].strip()) for match in found)
    if not found or 10 * longer > len(found):
        return
    line = {
        "payload": "pattern",
        "pattern": _ACCESS,
        "time_format": "%d/%b/%Y:%H:%M:%S %z",
        "null_text": "-",
        **_CATCHING,
    }
    fields = (*(optional_field(name, of) for name, of in _ACCESS_FIELDS.items()), _message(sample))
    yield Candidate(form="an access log", line=line, fields=fields, catches_all=True)


def timestamped_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield formats for lines with a timestamp, other fields and a message.

    There are up to two formats. The first has multi-line records, and is only yielded if some lines
    seem to continue the previous record. In the second, every line is a record. If the timestamps
    end with time zone abbreviations, each format is yielded with the default zone and with each
    zone that the abbreviations may stand for.

    Args:
        sample: First and last lines of a log file.

    Yields:
        Candidate formats, multi-line records first. Nothing if no line has a timestamp, or most
        lines are JSON objects.
    """
    lines = sample.lines
    if (found := find_common_timestamp(lines)) is None or _are_objects(lines):
        return
    texts = [line.decode(errors="replace").removesuffix("\r") for line in lines]
    spans = _decoded_spans(lines, found)
    ahead, opening = _opening_line(texts, spans)
    stamps = [texts[index][start:end] for index, (start, end) in spans.items()]
    choice = choose_order(found.form, stamps, sample.written_ms)
    zones = ["", *zone_of_abbreviation(stamps)] if choice.format.endswith("%Z") else [""]
    if choice.format.endswith(("+00", "+000")) or '+000"' in choice.format:
        zones = ["UTC"]
    elif named := zone_in_format(choice.format):
        zones = [named]
    for zone in zones:
        if found.share >= _STAMPED_MIN and _has_records(lines, found):
            template = _records_template(texts, spans, choice, ahead, opening)
            if template is not None and not re.search(r"\.\{0,120\}\?", template.start):
                yield _timestamped(sample, found, choice, template, zone, records=True)
        if (template := _lines_template(texts, spans, choice)) is not None:
            yield _timestamped(sample, found, choice, template, zone, records=False)


def untimed_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format of lines with fields, such as a level, but without a timestamp.

    Args:
        sample: First and last lines of a log file.

    Yields:
        One candidate format if the lines have a level or at least two fields in common; otherwise
        nothing.
    """
    texts = [
        line.decode(errors="replace").removesuffix("\r") for line in sample.lines if line.strip()
    ]
    starts = [n for n, text in enumerate(texts) if not text[:1].isspace()]
    if 2 <= len(texts) - len(starts) >= _INDENTED_MIN * len(texts) and starts:
        records = [
            "\n".join(texts[first:behind])
            for first, behind in itertools.pairwise([*starts, len(texts)])
        ]
        yield from _untimed(sample, records, record_start=r"^\S")
    yield from _untimed(sample, texts, record_start="")


def _untimed(sample: FileSample, texts: Sequence[str], *, record_start: str) -> Iterator[Candidate]:
    template = infer_template(texts, [None] * len(texts), "", multiline=bool(record_start))
    if template is None or not ("level" in template.types or template.parts >= 2):
        return
    pattern = allow_trailing_cr(template.pattern, sample)
    line = {"payload": "pattern", "pattern": pattern, **_CATCHING}
    line |= {"host_field": "host"} if template.has_host else {}
    line |= {"null_text": ""} if template.has_empty else {}
    yield Candidate(
        form=f"{'records' if record_start else 'lines'} with fields, without a time",
        line=line,
        fields=(*_template_fields(template), _message(sample)),
        record_start=record_start,
        catches_all=True,
        shares=template.shares,
    )


def plain_text_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format for unstructured text, which matches every line.

    Each line becomes an event with the single field `message`. Its event time is the time at which
    the line is read.

    Args:
        sample: First and last lines of a log file.

    Yields:
        Exactly one candidate format.
    """
    line = {"payload": "text", "field": MESSAGE, "time": "observed"}
    field = {"name": MESSAGE, "type": text_type(sample)}
    yield Candidate(form=PLAIN_TEXT, line=line, fields=(field,))


def _message(sample: FileSample) -> dict[str, Any]:
    return optional_field(MESSAGE, text_type(sample))


def _has_records(lines: Sequence[bytes], found: CommonTimestamp) -> bool:
    # Whether lines without a timestamp belong to records: more than a few, or they look like it.
    # A line with a damaged timestamp, such as one in a 13th month, is a record of its own.
    shapes = {(start, _shape(lines[n][start:end])) for n, (start, end) in found.spans.items()}
    written = sum(bool(line.strip()) for line in lines)
    others = [
        line
        for n, line in enumerate(lines)
        if n not in found.spans and line.strip() and not _has_shape(line, shapes)
    ]
    indented = sum(_CONTINUATION.match(line) is not None for line in others)
    return len(others) > _UNSTAMPED_MIN * written or (indented >= 2 and 2 * indented >= len(others))


def _has_shape(line: bytes, shapes: Iterable[tuple[int, bytes]]) -> bool:
    # Whether there are digits and letters where the timestamps of other lines have them.
    shape = _shape(line)
    return any(shape[start : start + len(of)] == of for start, of in shapes)


def _shape(text: bytes) -> bytes:
    return re.sub(rb"[A-Za-z]", b"a", re.sub(rb"\d", b"0", text))


def _decoded_spans(lines: Sequence[bytes], found: CommonTimestamp) -> dict[int, tuple[int, int]]:
    # Positions in characters: timestamps are found in bytes.
    spans = {}
    for index, (start, end) in found.spans.items():
        before = len(lines[index][:start].decode(errors="replace"))
        spans[index] = before, before + end - start
    return spans


def _lines_template(
    texts: Sequence[str], spans: dict[int, tuple[int, int]], choice: TimeChoice
) -> Template | None:
    chosen = [texts[index] for index in spans]
    return infer_template(chosen, [*spans.values()], choice.pattern, multiline=False)


def _opening_line(texts: Sequence[str], spans: dict[int, tuple[int, int]]) -> tuple[int, str]:
    # How many lines before those with a time begin the records, and what only these begin with.
    ahead = min(spans)
    before = [texts[index - ahead] for index in spans if index >= ahead]
    if not 1 <= ahead <= 3 or len(before) < 3:
        return 0, ""
    same = itertools.takewhile(
        lambda pair: pair[0] == pair[1], zip(min(before), max(before), strict=False)
    )
    prefix = re.sub(r"\w+$", "", "".join(letter for letter, _ in same))
    others = sum(text.startswith(prefix) for text in texts) - len(before)
    is_usable = len(prefix) >= 3 and others <= 1 and not prefix.isspace()
    return (ahead, prefix) if is_usable else (0, "")


def _records_template(
    texts: Sequence[str],
    spans: dict[int, tuple[int, int]],
    choice: TimeChoice,
    ahead: int,
    opening: str,
) -> Template | None:
    if not opening:
        starts = [*spans, len(texts)]
        records = ["\n".join(texts[at:behind]) for at, behind in itertools.pairwise(starts)]
        return infer_template(records, [*spans.values()], choice.pattern, multiline=True)
    starts = [at for index in spans if texts[at := index - ahead].startswith(opening)]
    times = []
    for at in starts:
        moved = sum(len(text) + 1 for text in texts[at : at + ahead])
        start, end = spans[at + ahead]
        times.append((start + moved, end + moved))
    records = [
        "\n".join(texts[at:behind]) for at, behind in itertools.pairwise([*starts, len(texts)])
    ]
    found = infer_template(records, times, choice.pattern, multiline=True)
    return None if found is None else found._replace(start=quote_pattern(opening))


def _template_fields(template: Template) -> tuple[dict[str, Any], ...]:
    return tuple(optional_field(name, of) for name, of in template.types.items())


def _are_objects(lines: Sequence[bytes]) -> bool:
    written = [line for line in lines if line.strip()][:200]
    return 2 * len(parse_json_objects(written)) > len(written)


def _timestamped(
    sample: FileSample,
    found: CommonTimestamp,
    choice: TimeChoice,
    template: Template,
    zone: str,
    *,
    records: bool,
) -> Candidate:
    named = {"time_field": "time"} if choice.format.startswith(("unix", "rfc3339")) else {}
    line = {
        "payload": "pattern",
        "pattern": allow_trailing_cr(template.pattern, sample),
        **named,
        "time_format": choice.format,
        **_CATCHING,
    }
    line |= {"host_field": "host"} if template.has_host else {}
    line |= {"null_text": ""} if template.has_empty else {}
    no_date = "the times have no date: the latest day that is not ahead is assumed"
    first = min(found.spans.values(), default=(0, 0))[0]
    begin = "begin with" if first <= 40 else "have"
    return Candidate(
        form=f"{'records' if records else 'lines'} that {begin} a time",
        line=line,
        fields=(*_template_fields(template), _message(sample)),
        record_start=f"^{template.start}" if records else "",
        catches_all=True,
        zone=zone,
        doubts=(
            *choice.doubts,
            *(zone_doubts(zone) if zone else ()),
            *_offset_doubts(sample.lines, found),
            *(_joined_doubts(sample.lines, found) if records else ()),
        ),
        notes=() if found.form.is_dated else (no_date,),
        shares=template.shares,
    )


def _joined_doubts(lines: Sequence[bytes], found: CommonTimestamp) -> list[str]:
    # Lines with a date like that of the times, but no time in their format: records of their own,
    # which would be joined to the record before them.
    if not found.form.is_dated:
        return []
    shapes = {
        (start, _shape(lines[n][start : min(start + _DATE_LENGTH, end)]))
        for n, (start, end) in found.spans.items()
    }
    joined = [
        line for n, line in enumerate(lines) if n not in found.spans and _has_shape(line, shapes)
    ]
    if len(joined) <= max(_UNSTAMPED_MIN * len(found.spans), 1):
        return []
    start = min(start for start, _ in shapes)
    example = joined[0][start : start + 30].decode(errors="replace").strip()
    return [
        f"{len(joined)} lines have a date but no time in the format of the others, such as "
        f"{example}: they are part of the records before them"
    ]


def _offset_doubts(lines: Sequence[bytes], found: CommonTimestamp) -> list[str]:
    # Offsets in minutes, as in `10.00.00.123456-240` of Db2, are no part of any time format.
    offsets = [_OFFSET_MINUTES.match(lines[n], end) for n, (_, end) in found.spans.items()]
    if not found.spans or 2 * offsets.count(None) > len(offsets):
        return []
    first = next(match[0].decode() for match in offsets if match is not None)
    return [
        f"the offset in minutes behind the times, such as {first}, is not applied: they are read "
        "in the zone of the source"
    ]


def zone_doubts(zone: str) -> list[str]:
    """Return a warning if a time zone abbreviation in timestamps is ambiguous, such as CST or IST.

    Args:
        zone: IANA time zone chosen for the abbreviation.

    Returns:
        A list with one sentence for users; empty if the abbreviation has only one common meaning.
    """
    if zone in ("America/Chicago", "Asia/Kolkata", "Europe/London"):
        return [f"the abbreviation of the time zone is read as {zone}, and could be another"]
    return []
