"""Cuts files as their source is configured, and adds fields of a container's path to ranges."""

from __future__ import annotations

import re
from typing import Final

from hourmark.config.groups import TailedSource
from hourmark.records.ranges import encode_range_fields
from hourmark_producer.cut.lines import (
    NoCompleteLine,
    RangeCut,
    RangeLimits,
    ReadBytes,
    ReadIntoBuffer,
    cut_lines,
)
from hourmark_producer.cut.records import cut_cri, cut_records
from hourmark_producer.files.tracked_file import FilePosition

_NAME: Final = r"[a-z0-9.-]{1,253}"  # of Kubernetes' objects
_CONTAINERS: Final = re.compile(
    rf".*/containers/(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<container_id>[0-9a-f]{{64}})\.log.*"
)
_PODS: Final = re.compile(
    rf".*/pods/(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<pod_uid>[0-9a-f-]{{1,64}})/(?P<container>{_NAME})/\d+\.log.*"
)
NAMES: Final = (
    "pod",
    "namespace",
    "container",
    "container_id",
    "pod_uid",
    "stream",
)  # the last is the service's


def container_fields(path: str) -> dict[str, str]:
    """Return the Kubernetes names that are encoded in the path of a container log.

    Paths below `/containers/` and `/pods/` are recognized.

    Args:
        path: Path of the log file.

    Returns:
        A dict with the keys `pod`, `namespace` and `container`, and either `container_id` or
        `pod_uid`. Empty if the path is not that of a container log.
    """
    match = _CONTAINERS.fullmatch(path) or _PODS.fullmatch(path)
    return {} if match is None else match.groupdict()


def cut_for_source(
    source: TailedSource,
    read: ReadBytes,
    limits: RangeLimits,
    position: FilePosition,
    *,
    searched: int = 0,
    read_buffered: ReadIntoBuffer | None = None,
    flush: bool = False,
) -> RangeCut | NoCompleteLine:
    """Cut the next range from a file in the format that its source configures.

    Args:
        source: Configuration of the source: single lines, records that span several lines, or CRI
            container logs.
        read: Function that reads bytes relative to the position.
        limits: Size limits of ranges, lines and records.
        position: Position of the next byte to cut.
        searched: Number of bytes after the position that are known to contain no LF. Used only for
            single lines.
        read_buffered: Function that reads into a reused buffer, which avoids a copy. Used only for
            single lines.
        flush: Whether to send an incomplete record. Set it if the file has not grown for some time.

    Returns:
        The range, or `NoCompleteLine` if no line or record is complete.
    """
    if source.format == "cri":
        after_line_end = position.anchor.endswith(b"\n")
        return cut_cri(
            read, limits, in_record=position.in_line, after_line_end=after_line_end, flush=flush
        )
    if source.record_start is None:
        return cut_lines(
            read, limits, in_line=position.in_line, searched=searched, read_buffered=read_buffered
        )
    from hourmark.records.record_start import (
        compile_record_start,  # where such a source is: hosts without one need no RE2
    )

    return cut_records(
        read,
        limits,
        compile_record_start(source.record_start).starts,
        in_record=position.in_line,
        flush=flush,
    )


def has_multiline_records(source: TailedSource) -> bool:
    """Return whether records of this source may span several lines.

    True if the source sets `record_start` or has the format `cri`.

    Args:
        source: Configuration of the source.
    """
    return source.record_start is not None or source.format == "cri"


def optional_range_fields(source: TailedSource, path: str) -> dict[str, str]:
    """Return the optional fields to send with each byte range of a file.

    Args:
        source: Configuration of the source.
        path: Path at which the file was first found.

    Returns:
        A dict with the keys `record_start` (pattern of a record's first line), `fields` (the
        source's static fields and the Kubernetes names, encoded as text) and `format`. Keys without
        a value are omitted.
    """
    cri = source.format == "cri"
    fields = source.fields | (container_fields(path) if cri else {})
    extras = {
        "record_start": source.record_start or "",
        "fields": encode_range_fields(fields),
        "format": "cri" if cri else "",
    }
    return {name: value for name, value in extras.items() if value}
