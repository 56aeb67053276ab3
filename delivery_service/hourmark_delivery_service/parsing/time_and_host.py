r"""The rules for the year, the time zone and the host of a line.

year    a time without a year (or date) is the latest one that is not ahead of observed_at by more
        than `future_seconds`
zone    a time without a zone is in the range's time zone, which is a setting of the tailer,
        according to the zone data of the rules revision
host    the host in the line's header or host field, if the source declares host = "line";
        otherwise, or if there is none, the host that the line was read on. Bytes that are not UTF-8
        become `\xHH`, so that different names stay different; under parser versions 1 and 2 they
        become U+FFFD
"""

from __future__ import annotations

from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import Source
from hourmark.rules.revision import ParserVersion
from hourmark_delivery_service.parsing.compiled import CompiledRules, CompiledType
from hourmark_delivery_service.parsing.records import avro_string
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.rfc5424 import NIL
from hourmark_delivery_service.parsing.times.formats import TimeContext
from hourmark_delivery_service.parsing.zones import load_zone

HOST_BYTES_MAX = 255


def time_context(byte_range: ByteRange, rules: CompiledRules) -> TimeContext:
    """Return the context for incomplete timestamps in a byte range.

    The context completes timestamps that lack a year, date or time zone.

    Args:
        byte_range: Byte range of a file, with its observation time and the name of its time zone.
        rules: Rules revision, which determines the limit on future times and the version of the
            time zone data.

    Raises:
        ValueError: If this software does not contain the required time zone data.
    """
    return TimeContext(
        observed_at_ms=byte_range.observed_at_ms,
        future_seconds=rules.parsing.future_seconds,
        zone=load_zone(byte_range.zone, rules.parser.zones),
    )


class HostEncoder:
    """Encodes the field `host` of events as an Avro string.

    The host of an event is the host name in its line if the source trusts it, and otherwise the
    host on which the tailer read the file.

    Args:
        byte_range: Byte range that contains the lines, with the name of the tailer's host.
        source: Declaration of the source (kind of log file), which states whether host names in
            lines are trusted.
        parser: Parser version, which determines how bytes that are not UTF-8 are replaced.
    """

    def __init__(self, byte_range: ByteRange, source: Source, parser: ParserVersion) -> None:
        self._tailer = avro_string(byte_range.host_name)
        self._errors = "backslashreplace" if parser.reads_syslog_forms else "replace"
        self._by_line = source.host == "line"
        self._known: dict[bytes, bytes] = {}

    def encode(self, host: bytes | None, kind: CompiledType) -> bytes:
        """Return the host of an event as an encoded Avro string.

        Args:
            host: Host in the line, or None. It is used only if the source declares this.
            kind: Event type of the line, for the error.

        Returns:
            The host in the line. If there is none, or it is not used, the host that read the file.

        Raises:
            Rejected: If the host has more than 255 bytes.
        """
        if not self._by_line or not host or host == NIL:
            return self._tailer
        if len(host) > HOST_BYTES_MAX:
            raise Rejected(
                DeadLetterReason.WRONG_FIELD,
                f"the host has more than {HOST_BYTES_MAX} bytes",
                kind.name,
            )
        known = self._known.get(host)
        if known is None:
            known = self._known[host] = avro_string(host.decode(errors=self._errors))
        return known
