"""What of a copy was sent already, or will be, is passed over: written down, counted and said."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from hourmark_producer import checkpoint as changes
from hourmark_producer.books import skip
from hourmark_producer.checkpoint import Checkpoint
from hourmark_producer.copies import Origin
from hourmark_producer.files import Position, TrackedFile
from hourmark_producer.truncation import ANCHOR_BYTES, HEAD_BYTES

_LOG = logging.getLogger(__name__)


def pass_over(checkpoint: Checkpoint, file: TrackedFile, origin: Origin, end: int, read: Callable[[int, int], bytes]) -> Position:
    """The position behind it, durably. `read`: offset, count. CheckpointFailed."""
    start = max(0, end - ANCHOR_BYTES)
    position = dataclasses.replace(
        file.progress.position, offset=end, in_line=origin.known.in_line and not origin.reads_on,
        head=read(0, HEAD_BYTES), anchor=read(start, end - start), size_seen=end,
    )  # fmt: skip
    moved = [changes.save_position(file.file_id, position), changes.save_account(file.file_id, position)]
    checkpoint.commit([*moved, skip(file.place.source, end)])
    _LOG.warning(
        "%s is a copy of %s: its %d bytes are passed over; rotate by rename, or let the pattern match no copies",
        file.place.seen_at, origin.file.place.seen_at, end,
    )  # fmt: skip
    return position
