"""Two live incarnations of one host id: a machine was cloned with its tailer's identity, or two tailers share a state folder.

Reports replace each other in the ledger, so two that live show as a change to another incarnation and back. It is an alarm and no
more: what each delivers has its own ranges and ids, and hours wait for whichever reported last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from etl.ledger.rows import Reporter

WITHIN_MS: Final = 60_000


class TwinWatch:
    """Remembers the last incarnations of each host. Feed it every look."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}  # host id → incarnation, when it was last heard (service's clock)
        self._left: dict[str, tuple[str, int]] = {}  # host id → the incarnation before that, when it was last heard

    def look(self, reporters: Iterable[Reporter]) -> list[str]:
        """What is newly seen, for people: each time an incarnation that had been replaced within a minute reports again."""
        found = []
        for r in {r.host_id: r for r in reporters}.values():
            before = self._last.get(r.host_id)
            if before is not None and before[0] != r.incarnation:
                left = self._left.get(r.host_id)
                if left is not None and left[0] == r.incarnation and 0 <= r.received_at_ms - left[1] <= WITHIN_MS:
                    found.append(
                        f"host {r.host_name} ({r.host_id}) has two live incarnations, {before[0]} and {r.incarnation}, that "
                        "report in turn: was the machine cloned, or do two tailers share one state folder? Stop one of them"
                    )
                self._left[r.host_id] = before
            self._last[r.host_id] = (r.incarnation, r.received_at_ms)
        return found
