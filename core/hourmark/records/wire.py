"""The HTTP protocol between the File Tailer and the delivery service: paths, headers and bodies.

    GET  /v1/hello            sent once by a tailer before its first range
    POST /v1/ranges           a byte range; the response is 200 when all in-sync replicas have it:
                              {"end", "events", "dead_letters", "blanks", …}
    POST /v1/reports          a host report, JSON
    POST /v1/events/{type}    events of one type, NDJSON or a JSON array
    POST /v1/events/{type}:validate
                              the same request and response, but nothing is stored

Every response, whatever its status, has the header `Hourmark-Clock` (the service's clock in Unix
milliseconds) and, once the service knows a rules revision, `Hourmark-Rules` (the revision to name
in the next range). Status 503 comes with `Retry-After`. Values that may contain characters other
than ASCII are percent-encoded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from pydantic import TypeAdapter

from hourmark.records.host_reports import HostReport
from hourmark.records.ranges import ByteRange, Part

HELLO_PATH: Final = "/v1/hello"
RANGES_PATH: Final = "/v1/ranges"
REPORTS_PATH: Final = "/v1/reports"
EVENTS_PATH: Final = "/v1/events/{type}"
VALIDATE_PATH: Final = EVENTS_PATH + ":validate"  # names of types contain no colon

CLOCK_HEADER: Final = "Hourmark-Clock"
RULES_HEADER: Final = "Hourmark-Rules"
OBSERVED_AT_HEADER: Final = "Hourmark-Observed-At"
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
CLIENT_HEADER: Final = "Hourmark-Client"
ATOMIC_HEADER: Final = "Hourmark-Atomic"

# `code` of a 503: Kafka cannot store an event type of the request, and others are accepted
TOPIC_UNAVAILABLE: Final = "topic_unavailable"

# header: (attribute of ByteRange, how to read it)
RANGE_HEADERS: Final = {
    "Hourmark-Host": "host_id",
    "Hourmark-Host-Name": "host_name",
    "Hourmark-File": "file_id",
    "Hourmark-Generation": "generation",
    "Hourmark-Offset": "start",
    "Hourmark-End": "end",
    OBSERVED_AT_HEADER: "observed_at_ms",
    RULES_HEADER: "rules",
    "Hourmark-Zone": "zone",
    "Hourmark-Source": "source",
    "Hourmark-Path": "path",
}
PART_HEADER: Final = "Hourmark-Part"
# Fields added after 0.2.0, sent only if they are not empty. The header of the part lists them as
# needed, so that a service that does not know one rejects the range instead of parsing it
# differently.
EXTRA_HEADERS: Final = {
    "Hourmark-Record-Start": "record_start",
    "Hourmark-Fields": "fields",
    "Hourmark-Format": "format",
    "Hourmark-Ending": "ending",
}
_NEEDS: Final = "; needs="
_KNOWN: Final = frozenset(
    header.lower() for header in (*RANGE_HEADERS, *EXTRA_HEADERS, PART_HEADER)
)
_INTEGERS: Final = frozenset({"generation", "start", "end", "observed_at_ms"})
_REPORT: Final = TypeAdapter(HostReport)


def range_headers(byte_range: ByteRange) -> dict[str, str]:
    """Return the HTTP headers of `POST /v1/ranges` that describe a byte range.

    Values are percent-encoded. Bytes that are not UTF-8, for example in file paths, are preserved.

    Args:
        byte_range: The range. Its strings may contain surrogate escapes for bytes that are not
            UTF-8.

    Returns:
        A dict that maps header names to values.
    """
    headers = {
        header: _escape(str(getattr(byte_range, name))) for header, name in RANGE_HEADERS.items()
    }
    extras = byte_range.extras
    headers |= {
        header: _escape(extras[name]) for header, name in EXTRA_HEADERS.items() if name in extras
    }
    headers[PART_HEADER] = byte_range.part.value + (_NEEDS + ",".join(extras) if extras else "")
    return headers


def parse_range_headers(headers: Mapping[str, str]) -> ByteRange:
    """Parse the HTTP headers of `POST /v1/ranges` that describe a byte range.

    Args:
        headers: A case-insensitive mapping of header names to values. Headers that do not begin
            with `Hourmark-` are ignored.

    Returns:
        The byte range, without its bytes.

    Raises:
        ValueError: A header is missing, invalid or unknown. The message names the header.
    """
    if unknown := sorted(
        name
        for name in headers
        if name.lower().startswith("hourmark-") and name.lower() not in _KNOWN
    ):
        raise ValueError(
            f"this version does not support the header {unknown[0]}; upgrade this service first"
        )
    values: dict[str, str | int] = {}
    part, needs = _part_of(headers.get(PART_HEADER, Part.LINES.value))
    for header, name in (
        *RANGE_HEADERS.items(),
        *((h, name) for h, name in EXTRA_HEADERS.items() if name in needs),
    ):
        text = headers.get(header)
        if text is None:
            raise ValueError(f"the header {header} is missing")
        if not text.isascii():
            raise ValueError(
                f"the header {header} must be percent-encoded: it has bytes that are not ASCII"
            )
        if name in _INTEGERS:
            if not (text.isdigit() and len(text) <= 19 and int(text) < 1 << 63):
                raise ValueError(
                    f"the header {header} must be a whole number below 2^63, not {text[:40]!r}"
                )
            values[name] = int(text)
        else:
            values[name] = unquote_to_bytes(text).decode(errors="surrogateescape")
    for header, name in EXTRA_HEADERS.items():
        if (name in needs) != (header in headers) or values.get(name) == "":
            raise ValueError(
                f"the header {header} is allowed if and only if {PART_HEADER} lists {name}, and "
                "must not be empty"
            )
    # names and kinds come from the tables above
    return ByteRange(part=part, **values)  # type: ignore[arg-type]


def _part_of(text: str) -> tuple[Part, list[str]]:
    kind, separator, rest = text.partition(_NEEDS)
    needs = rest.split(",") if separator else []
    try:
        part = Part(kind)
    except ValueError:
        raise ValueError(
            f"the header {PART_HEADER} must be one of {[p.value for p in Part]}"
        ) from None
    if unknown := [name for name in needs if name not in EXTRA_HEADERS.values()]:
        raise ValueError(
            f"the range requires {unknown[0]!r:.40}, which this version does not support; "
            "upgrade this service first"
        )
    return part, needs


@dataclasses.dataclass(frozen=True, slots=True)
class RangeResponse:
    """The body of a successful response to `POST /v1/ranges`.

    Attributes:
        end: Byte offset after the range: the offset of the next byte to send.
        events: Number of events in the range.
        dead_letters: Number of dead letters (lines that could not be converted to events).
        blanks: Number of blank lines; 0 if the service does not count them.
        dead_letter_reasons: Maps each reason to its number of dead letters.
    """

    end: int
    events: int
    dead_letters: int
    blanks: int = 0  # older services do not report blank lines
    dead_letter_reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)


def report_to_json(report: HostReport, *, with_unknown_losses: bool = True) -> bytes:
    """Serialize a host report as the JSON body of `POST /v1/reports`.

    Fields that were added later are omitted if they are empty, because older services reject
    unknown fields.

    Args:
        report: The report.
        with_unknown_losses: Whether to include the fields added after version 0.2.0. Pass False for
            a service of version 0.2.0.
    """
    row = dataclasses.asdict(report)
    for source in row["sources"]:
        for later in ("unknown_losses", "unrepeatable"):
            if not (with_unknown_losses and source[later]):
                del source[later]
    return json.dumps(row).encode()


def report_from_json(body: bytes) -> HostReport:
    """Parse the JSON body of `POST /v1/reports`.

    Args:
        body: The request body.

    Raises:
        ValueError: The body is not a host report, contains an unknown field, or reports a source
            twice.
    """
    report = _REPORT.validate_json(body)
    if len({s.source for s in report.sources}) < len(report.sources):
        raise ValueError("a source is reported twice")
    return report


def _escape(text: str) -> str:
    return quote_from_bytes(text.encode(errors="surrogateescape"), safe="/ :+,=@~")
