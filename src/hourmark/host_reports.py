"""Host reports: how far each source of a host has been read and acknowledged (topic `hourmark.hosts`).

They replace end-of-file markers: a bucket waits until every live source says that it had caught up at some time past the
hour's end. Tailers report through the delivery service (`POST /v1/reports`); services report likewise, which covers
API traffic. A first report precedes a host's first range; a goodbye follows its drain.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any, Final

import fastavro

from hourmark.avro import Schema

CLOCKS_APART_MS_MAX: Final = 300_000  # more than any healthy clock, report, mirror and staging together
API_SOURCE: Final = "api"  # the source name under which a delivery service reports its own requests

SCHEMA: Final[Schema] = {
    "type": "record",
    "name": "HostReport",
    "namespace": "hourmark",
    "fields": [
        {"name": "host_id", "type": "string"},
        {"name": "host_name", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "ReporterKind", "symbols": ["tailer", "service"]}},
        {"name": "incarnation", "type": "string", "doc": "new at each start; two alive at once are an alarm"},
        {"name": "sequence", "type": "long", "doc": "counts this incarnation's reports from 0"},
        {
            "name": "received_at",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
            "doc": "the service's clock",
        },
        {
            "name": "goodbye",
            "type": "boolean",
            "doc": "nothing is pending and nothing will come: do not wait for this host",
        },
        {
            "name": "sources",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "SourceReport",
                    "fields": [
                        {"name": "source", "type": "string"},
                        {
                            "name": "caught_up_at",
                            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
                            "doc": "start of the last full scan after which all was read and acknowledged; null: never yet",
                        },
                        {"name": "pending_bytes", "type": "long"},
                        {
                            "name": "lost_bytes",
                            "type": "long",
                            "doc": "truncated or deleted before they were read; never falls",
                        },
                    ],
                },
            },
        },
    ],
}
_PARSED = fastavro.parse_schema(SCHEMA)


@dataclasses.dataclass(frozen=True, slots=True)
class SourceReport:
    """One source of one host. Times are Unix milliseconds of the service's clock."""

    source: str
    caught_up_at_ms: int | None
    pending_bytes: int
    lost_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """One report of one host."""

    host_id: str
    host_name: str
    kind: str  # "tailer" or "service"
    incarnation: str
    sequence: int
    received_at_ms: int
    goodbye: bool
    sources: tuple[SourceReport, ...]

    def encode(self) -> bytes:
        """The Avro datum, without framing."""
        row = {name: getattr(self, name) for name in _SAME}
        row["received_at"] = self.received_at_ms
        row["sources"] = [
            {
                "source": s.source,
                "caught_up_at": s.caught_up_at_ms,
                "pending_bytes": s.pending_bytes,
                "lost_bytes": s.lost_bytes,
            }
            for s in self.sources
        ]
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, _PARSED, row)
        return buffer.getvalue()

    @classmethod
    def decode(cls, datum: bytes) -> HostReport:
        """The inverse of `encode`."""
        row: Any = fastavro.schemaless_reader(io.BytesIO(datum), _PARSED, None)
        sources = tuple(
            SourceReport(s["source"], _ms(s["caught_up_at"]), s["pending_bytes"], s["lost_bytes"]) for s in row["sources"]
        )
        received = _ms(row["received_at"])
        assert received is not None
        return cls(received_at_ms=received, sources=sources, **{name: row[name] for name in _SAME})

    def received(self, clock_ms: int) -> HostReport:
        """As the service stores it: stamped with its clock, no `caught_up_at` later than that."""
        sources = tuple(
            dataclasses.replace(s, caught_up_at_ms=None if s.caught_up_at_ms is None else min(s.caught_up_at_ms, clock_ms))
            for s in self.sources
        )
        return dataclasses.replace(self, received_at_ms=clock_ms, sources=sources)


_SAME: Final = ("host_id", "host_name", "kind", "incarnation", "sequence", "goodbye")


def _ms(value: Any) -> int | None:
    return None if value is None else round(value.timestamp() * 1000)
