"""What older versions cannot read of the data that this version writes.

A commit that changes a format incompatibly adds it here. `tests/faults/test_older_version.py` runs
the older versions' own code to verify these entries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OlderVersion:
    """A released version of Hourmark, described by the data that it can and cannot read.

    Rollback checks compare the existing data with this description.

    Attributes:
        name: Version number.
        ledger: Newest schema revision of the ledger (the database of the ETL) that the version
            supports.
        checkpoints: Formats of the tailer's checkpoint that the version supports.
        parsers: Numbers of the parser versions that its delivery services contain.
        no_marker_fields: Fields of bucket markers (`_SUCCESS` files) that the version rejects.
        no_range_fields: Fields of byte ranges that its tailers cannot send.
        no_settings: Settings that the version rejects at startup. `group.*` means a whole group.
        references: Whether settings may refer to files and environment variables.
        reads_unfinished_files: Whether its tailers can finish reading compressed log files, log
            files that were moved, and stored input of receivers, such as the syslog receiver.
        keeps_alarms: Whether its mirrors keep the alarms of an earlier run.
        several_namenodes: Whether `storage.webhdfs` may contain several addresses.
        object_stores: Whether `storage.root` may be an s3:// URL.
        knows_tombstones: Whether it knows that buckets can be removed by retention.
    """

    name: str
    ledger: int
    checkpoints: tuple[int, ...]
    parsers: tuple[int, ...]
    no_marker_fields: tuple[str, ...]
    no_range_fields: tuple[str, ...]
    no_settings: frozenset[str]
    references: bool
    reads_unfinished_files: bool
    keeps_alarms: bool
    several_namenodes: bool = False
    object_stores: bool = False
    knows_tombstones: bool = False


# What came after 0.3.0, and which no released version knows. A new field or setting belongs here.
_LATER_MARKER_FIELDS: Final = (
    "checked",
    "set_aside",
    "set_aside_records",
    "left_out",
    "lacks",
    "codec",
    "parquet",
)
_LATER_SETTINGS: Final = (
    "service.create_missing_topics",
    "service.range_ahead_seconds",
    "etl.avro_codec",
    "etl.bucket_format",
    "etl.retention_days.*",
    "storage.ca",
    "storage.s3_endpoint",
    "storage.s3_region",
    "storage.principal",
    "storage.keytab",
)

VERSIONS: Final[Mapping[str, OlderVersion]] = MappingProxyType(
    {
        "0.2.0": OlderVersion(
            name="0.2.0",
            ledger=2,
            checkpoints=(1,),
            parsers=(1,),
            no_marker_fields=("lost", "unknown", "unrepeatable", *_LATER_MARKER_FIELDS),
            no_range_fields=("record_start", "fields", "format", "ending"),
            no_settings=frozenset(
                (
                    "registry.ca",
                    "registry.certificate",
                    "registry.key",
                    "service.workers",
                    "service.connections_max",
                    "service.header_bytes_max",
                    "service.headers_max",
                    "service.header_seconds",
                    "service.body_seconds",
                    "service.idle_seconds",
                    "service.tokens_required",
                    "service.tls.*",
                    "tailer.second_state_dir",
                    "tailer.token_file",
                    "tailer.tls.*",
                    "tailer.range_bytes_min",
                    "tailer.ranges_in_flight",
                    "tailer.metrics_port",
                    "tailer.metrics_host",
                    "tailer.unwell_seconds",
                    "tailer.spool.*",
                    "tailer.syslog.*",
                    "tailer.sources.exclude",
                    "tailer.sources.read_from",
                    "tailer.sources.ignore_older_seconds",
                    "tailer.sources.input",
                    "tailer.sources.format",
                    "tailer.sources.record_start",
                    "tailer.sources.flush_seconds",
                    "tailer.sources.fields.*",
                    "mirror.rest_host",
                    "mirror.workers",
                    "mirror.retention_alarm_hours",
                    "mirror.traffic_seconds.*",
                    "mirror.metrics_port",
                    "mirror.metrics_host",
                    "kafka.further_edges.*",
                    "types.first_hour",
                    *_LATER_SETTINGS,
                )
            ),
            references=False,
            reads_unfinished_files=False,
            keeps_alarms=False,
        ),
        "0.3.0": OlderVersion(
            name="0.3.0",
            ledger=5,
            checkpoints=(1, 2, 3),
            parsers=(1, 2),  # 3 parses more forms of syslog
            no_marker_fields=_LATER_MARKER_FIELDS,
            no_range_fields=("ending",),
            no_settings=frozenset(_LATER_SETTINGS),
            references=True,
            reads_unfinished_files=True,
            keeps_alarms=True,
        ),
    }
)
