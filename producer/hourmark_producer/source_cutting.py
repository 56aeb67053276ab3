"""Where a file is cut, and what its ranges say, as its source is configured."""

from __future__ import annotations

from hourmark.config_groups import TailedSource
from hourmark.range_fields import range_fields
from hourmark_producer.container_names import container_fields
from hourmark_producer.cri_cutting import cut_cri
from hourmark_producer.cutting import Cut, Limits, Pending, Read, Whole, cut
from hourmark_producer.files import Position
from hourmark_producer.record_cutting import cut_records


def cut_of(
    source: TailedSource, read: Read, limits: Limits, position: Position, *,
    searched: int = 0, whole: Whole | None = None, flush: bool = False,
) -> Cut | Pending:  # fmt: skip
    """The next cut. `searched`, `whole`: as of `cutting`. `flush`: what is there has long been all."""
    if source.format == "cri":
        at_line = position.anchor.endswith(b"\n")
        return cut_cri(read, limits, in_piece=position.in_line, at_line=at_line, flush=flush)
    if source.record_start is None:
        return cut(read, limits, in_line=position.in_line, searched=searched, whole=whole)
    from hourmark.record_start import record_start  # where such a source is: hosts without one need no RE2

    return cut_records(read, limits, record_start(source.record_start).starts, in_record=position.in_line, flush=flush)


def joins_lines(source: TailedSource) -> bool:
    """Whether a record may be more than one line."""
    return source.record_start is not None or source.format == "cri"


def extras_of(source: TailedSource, path: str) -> dict[str, str]:
    """What the ranges of a file say beyond where it is; `path`: where it was found first."""
    cri = source.format == "cri"
    fields = source.fields | (container_fields(path) if cri else {})
    extras = {"record_start": source.record_start or "", "fields": range_fields(fields), "format": "cri" if cri else ""}
    return {name: value for name, value in extras.items() if value}
