"""What a run came to."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`unterminated`: files whose last line has no end yet, and its bytes so far."""

    host_id: str
    files: int
    ranges: int
    bytes: int
    events: int
    dead_letters: int
    dead_letter_reasons: dict[str, dict[str, int]]  # by source
    pending_bytes: int
    lost_bytes: int
    unknown_losses: int  # occasions on which more may have been lost
    finished: bool  # all that was there is acknowledged and reported
    goodbye: bool
    unterminated: dict[str, int]
