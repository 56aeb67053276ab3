"""When and where a line was written: the rules for years, zones and hosts, in one place.

year    a time without one (or without a date) is the latest that is not ahead of observed_at by more than `future_seconds`
zone    a time without one is of the range's zone, which its tailer is configured with, under the revision's zone data
host    the line's own, in its header or its host field, where the source says host = "line"; else, and where it has none, the
        host that it was read on. Bytes of it that are no UTF-8 are `\\xHH`, so that hosts differ as
        their names do; under the parsers 1 and 2 each is U+FFFD
"""

from __future__ import annotations

from hourmark.records.dead_letters import Reason
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
    """What the times of a range are read against; see `time_formats`."""
    return TimeContext(
        observed_at_ms=byte_range.observed_at_ms,
        future_seconds=rules.parsing.future_seconds,
        zone=load_zone(byte_range.zone, rules.parser.zones),
    )


class HostEncoder:
    """Hosts of a range's lines, as the envelope has them."""

    def __init__(self, byte_range: ByteRange, source: Source, parser: ParserVersion) -> None:
        self._tailer = avro_string(byte_range.host_name)
        self._errors = "backslashreplace" if parser.reads_syslog_forms else "replace"
        self._by_line = source.host == "line"
        self._known: dict[bytes, bytes] = {}

    def encode(self, host: bytes | None, kind: CompiledType) -> bytes:
        """That of a line that says this one. Rejected if it is longer than a host can be."""
        if not self._by_line or not host or host == NIL:
            return self._tailer
        if len(host) > HOST_BYTES_MAX:
            raise Rejected(
                Reason.WRONG_FIELD, f"the host has more than {HOST_BYTES_MAX} bytes", kind.name
            )
        known = self._known.get(host)
        if known is None:
            known = self._known[host] = avro_string(host.decode(errors=self._errors))
        return known
