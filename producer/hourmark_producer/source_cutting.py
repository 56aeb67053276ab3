"""Where a file is cut, as its source says: at line ends, or where records of more than one line begin."""

from __future__ import annotations

from hourmark.config_groups import TailedSource
from hourmark_producer.cutting import Cut, Limits, Pending, Read, cut
from hourmark_producer.files import Position
from hourmark_producer.record_cutting import cut_records


def cut_of(
    source: TailedSource, read: Read, limits: Limits, position: Position, *, searched: int = 0, flush: bool = False
) -> Cut | Pending:
    """The next cut. `searched`: so many bytes are known to hold no LF. `flush`: what is there has long been all."""
    if source.record_start is None:
        return cut(read, limits, in_line=position.in_line, searched=searched)
    from hourmark.record_start import record_start  # where such a source is: hosts without one need no RE2

    return cut_records(read, limits, record_start(source.record_start).starts, in_record=position.in_line, flush=flush)
