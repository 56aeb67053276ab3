"""Host reports: up to when each source of a host has been read and acknowledged.

They are in the topic `hourmark.hosts`. A bucket closes when every live source has reported a
`caught_up_at` past the end of its hour; no end-of-file markers are needed. Tailers report through
the delivery service (`POST /v1/reports`). Services report too, which covers events sent to the API.
A host sends its first report before its first range, and a goodbye after its last one.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from pydantic import ConfigDict, Field

from hourmark.avro.framing import read_schema, unix_ms

if TYPE_CHECKING:
    from hourmark.avro.datum import Datum

CLOCKS_APART_MS_MAX: Final = (
    300_000  # more than any healthy clock, report, mirror and staging together
)
# Such a difference is reported to the operator, long before it stops closing.
CLOCKS_APART_MS_REPORTED: Final = CLOCKS_APART_MS_MAX // 5
API_SOURCE: Final = "api"  # the source name under which a delivery service reports its own requests

SCHEMA: Final = read_schema("host_report.avsc")
_FORMS: Final = tuple(  # each appends a field to the one before; the first is that of 0.2.0
    SCHEMA | {"fields": [field for field in SCHEMA["fields"] if field["name"] not in later]}
    for later in (("unknown_losses", "unrepeatable"), ("unrepeatable",), ())
)
SCHEMA_BEFORE_UNKNOWN: Final = _FORMS[0]
_AS_SENT: Final = ConfigDict(extra="forbid", strict=True)  # validation of reports received as JSON
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Amount = Annotated[
    int, Field(ge=0, lt=1 << 53)
]  # 9 PB: above what a host has, and sums of a thousand fit into 64 bits


@dataclasses.dataclass(frozen=True, slots=True)
class SourceReport:
    """Progress and losses of one log source of a host, as part of a host report.

    A source is a named set of log files, or an input such as syslog.

    Attributes:
        source: Name of the source.
        caught_up_at_ms: Time before which all lines of the source are acknowledged, in Unix
            milliseconds on the delivery service's clock; None if unknown.
        pending_bytes: Number of bytes that are not acknowledged yet.
        lost_bytes: Number of bytes that were lost before they were read, for example because their
            file was deleted.
        unknown_losses: Number of incidents that may have caused a loss of unknown size.
        unrepeatable: Whether the source receives data from senders that cannot resend it, such as
            syslog senders.
    """

    __pydantic_config__: ClassVar = _AS_SENT

    source: str
    caught_up_at_ms: _Count | None
    pending_bytes: _Amount
    lost_bytes: _Amount
    unknown_losses: _Amount = 0
    unrepeatable: bool = False  # its senders cannot send again


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """A progress report of a File Tailer or a delivery service.

    A File Tailer reads log sources and sends their lines to a delivery service. The delivery
    service writes the events to Kafka and acknowledges the lines.

    Attributes:
        host_id: Id of the host.
        host_name: Name of the host.
        kind: "tailer" or "service".
        incarnation: Id of the reporting process, new at each start.
        sequence: Sequence number of the report within the process.
        received_at_ms: Time of receipt, in Unix milliseconds on the service's clock.
        goodbye: Whether this is the final report before a clean shutdown.
        sources: Progress of each source.
    """

    __pydantic_config__: ClassVar = _AS_SENT

    host_id: str
    host_name: str
    kind: Annotated[str, Field(pattern="^(tailer|service)$")]
    incarnation: str
    sequence: _Count
    received_at_ms: _Count
    goodbye: bool
    sources: tuple[SourceReport, ...]

    def encode(self, *, with_unknown_losses: bool = True) -> bytes:
        """Return the report as an Avro datum without framing.

        Args:
            with_unknown_losses: Whether to include the fields added after version 0.2.0. Pass False
                if readers of version 0.2.0 must be able to decode the datum.
        """
        sources = [
            dataclasses.asdict(s) | {"caught_up_at": s.caught_up_at_ms} for s in self.sources
        ]
        unknown = {s.source: s.unknown_losses for s in self.sources if s.unknown_losses}
        unrepeatable = [s.source for s in self.sources if s.unrepeatable]
        row = {
            "received_at": self.received_at_ms,
            "sources": sources,
            "unknown_losses": unknown,
            "unrepeatable": unrepeatable,
        }
        return _datum(-1 if with_unknown_losses else 0).encode(dataclasses.asdict(self) | row)

    @classmethod
    def decode(cls, datum: bytes) -> HostReport:
        """Decode a host report that was written by this or an older version.

        Args:
            datum: The Avro datum without framing.

        Returns:
            The report. Fields that the older version did not write have their default values.

        Raises:
            ValueError: The datum is not a host report.
        """
        from hourmark.avro.datum import decode_any_version

        row = decode_any_version([_datum(form) for form in reversed(range(len(_FORMS)))], datum)
        unknown, unrepeatable = row.pop("unknown_losses", {}), row.pop("unrepeatable", [])
        sources = []
        for source in row.pop("sources"):
            at, name = source.pop("caught_up_at"), source["source"]
            sources.append(
                SourceReport(
                    caught_up_at_ms=None if at is None else unix_ms(at),
                    unknown_losses=unknown.get(name, 0),
                    unrepeatable=name in unrepeatable,
                    **source,
                )
            )
        return cls(received_at_ms=unix_ms(row.pop("received_at")), sources=tuple(sources), **row)

    def stamped(self, clock_ms: int) -> HostReport:
        """Return a copy of the report with `received_at_ms` set to the current time.

        Args:
            clock_ms: Current time on the service's clock, in Unix milliseconds. If
                `caught_up_at_ms` of a source is later, it is replaced with this time.
        """
        sources = tuple(
            dataclasses.replace(
                s,
                caught_up_at_ms=None
                if s.caught_up_at_ms is None
                else min(s.caught_up_at_ms, clock_ms),
            )
            for s in self.sources
        )
        return dataclasses.replace(self, received_at_ms=clock_ms, sources=sources)


@functools.cache
def _datum(form: int) -> Datum:
    from hourmark.avro.datum import Datum  # a log host uses reports but has no fastavro

    return Datum(_FORMS[form])
