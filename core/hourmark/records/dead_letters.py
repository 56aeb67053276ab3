"""Dead letters: input that could not become an event, stored with the reason and its raw bytes.

They are an event type of their own, which only the delivery service produces, in the hour of the
range's `observed_at`. They are staged, deduplicated and closed into buckets as any other type.
"""

from __future__ import annotations

import enum
from typing import Final

TYPE: Final = "dead-letters"


class DeadLetterReason(enum.Enum):
    """The reason why an input line could not be converted to an event.

    Such a line is stored as a dead letter, together with the reason. The values are part of stored
    data and never change.

    Attributes:
        UNKNOWN_TYPE: The line names an event type that is not declared for its source.
        NOT_RFC5424: The source declares RFC 5424, but the line is not in this format.
        NOT_SYSLOG: The source declares syslog, but the line is in no known syslog format.
        NOT_CRI: The line is from a container log, but is not in CRI format.
        NO_PATTERN: The line matches no event type of its source.
        BAD_JSON: The payload is not valid JSON.
        BAD_LOGFMT: The payload is not valid logfmt.
        BAD_COLUMNS: The number of columns differs from the declared number.
        MISSING_FIELD: A required field is missing.
        UNKNOWN_FIELD: A key of the payload is not a field of the event type.
        WRONG_FIELD: The value of a field does not have the declared type.
        NO_TIMESTAMP: The line has no timestamp.
        BAD_TIMESTAMP: The timestamp is not valid.
        FUTURE: The event time is too long after the line was read.
        TOO_LATE: The event time is too long before the line was read.
        NOT_UTF8: The text is not valid UTF-8.
        EMPTY_LINE: The line is blank.
        LINE_TOO_LONG: The line exceeds the size limit. The dead letter contains one piece of it.
        EVENT_TOO_LARGE: The encoded event exceeds Kafka's message size limit.
        UNKNOWN_SOURCE: The source is not declared in the rules revision (the version of the
            declared types and sources).
    """

    UNKNOWN_TYPE = "unknown_type"  # MSGID names no type, or one that the source does not declare
    NOT_RFC5424 = "not_rfc5424"  # the source declares RFC 5424, and the line has another form
    NOT_SYSLOG = "not_syslog"  # the source declares syslog, and the line has none of its forms
    NOT_CRI = "not_cri"  # the range is a container log, and the line is not in CRI format
    NO_PATTERN = "no_pattern"  # the line matches no type of the source
    BAD_JSON = "bad_json"
    BAD_LOGFMT = "bad_logfmt"
    BAD_COLUMNS = "bad_columns"  # the number of columns is not the declared one
    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    WRONG_FIELD = "wrong_field"  # a field's value is not of the declared type
    NO_TIMESTAMP = "no_timestamp"
    BAD_TIMESTAMP = "bad_timestamp"
    FUTURE = "future"  # event time too far after observed_at
    TOO_LATE = "too_late"  # event time older than the allowed lateness
    NOT_UTF8 = "not_utf8"
    EMPTY_LINE = "empty_line"
    LINE_TOO_LONG = (
        "line_too_long"  # longer than the limit; the raw bytes are one chunk of the line
    )
    EVENT_TOO_LARGE = "event_too_large"  # the Avro datum exceeds Kafka's message size limit
    UNKNOWN_SOURCE = "unknown_source"  # the rules revision declares no such source


# Avro fields of the type, after the envelope. `raw` is the line without its LF, byte for byte.
FIELDS: Final[list[dict[str, object]]] = [
    {"name": "reason", "type": "string", "doc": "one of the reasons in the documentation"},
    {"name": "detail", "type": "string", "doc": "human-readable: what exactly was wrong"},
    {
        "name": "claimed_type",
        "type": ["null", "string"],
        "default": None,
        "doc": "the type it was meant to be, if known",
    },
    {"name": "raw", "type": "bytes", "doc": "the line without its line feed, byte for byte"},
    {"name": "range_id", "type": "bytes", "doc": "8 bytes: the range or batch it came in"},
    {"name": "range_start", "type": "long"},
    {"name": "range_end", "type": "long"},
    {"name": "rules", "type": "string", "doc": "rules revision that it was parsed under"},
    {"name": "declared_source", "type": "string", "doc": "name of the declared source or client"},
]
