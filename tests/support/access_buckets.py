"""The buckets that the pages about reading show."""

from __future__ import annotations

from pathlib import Path

from tests.support.readable_buckets import File, ReadableSite, Row, row

FIELDS = [
    {"name": "status", "type": "int"},
    {"name": "bytes", "type": "long"},
    {"name": "path", "type": "string"},
]
H5, H6 = "2026-11-30T05", "2026-11-30T06"


def _event(hour: str, number: int, status: int, size: int, path: str) -> Row:
    return row(hour, number, status=status, bytes=size, path=path)


def write_access_buckets(root: Path) -> ReadableSite:
    """Two closed hours; the second bucket has a late event of the first hour."""
    site = ReadableSite(root)
    first = [
        _event(H5, 0, 200, 300, "/a"),
        _event(H5, 1, 200, 100, "/b"),
        _event(H5, 2, 404, 7, "/a"),
    ]
    second = [_event(H6, 0, 200, 300, "/a"), _event(H6, 1, 200, 100, "/b")]
    late = [_event(H5, 3, 200, 100, "/a")]
    site.close(H5, {"part-00000.avro": File(1, FIELDS, first)})
    site.close(
        H6,
        {"part-00000.avro": File(1, FIELDS, second), "late-00000.avro": File(1, FIELDS, late)},
    )
    return site
