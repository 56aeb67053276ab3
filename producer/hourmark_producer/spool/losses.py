"""What was received, or came in vain, and is on no disk: gathered, and put into the checkpoint before a claim is made past it."""

from __future__ import annotations

import logging
from typing import Final

from hourmark.clock import Clock
from hourmark_producer import checkpoint as changes
from hourmark_producer.checkpoint import Checkpoint, CheckpointFailed
from hourmark_producer.counters import Counters
from hourmark_producer.losses import Loss

TOLD_EVERY_S: Final = 1.0  # a flood is one occasion a second
_LOG = logging.getLogger(__name__)


class ReceivingLosses:
    """Those of one source, from one thread."""

    def __init__(self, source: str, address: str, checkpoint: Checkpoint, counters: Counters, clock: Clock) -> None:
        self._source, self._address = source, address
        self._checkpoint, self._counters, self._clock = checkpoint, counters, clock
        self._pending: dict[str, tuple[int, int]] = {}  # by what happened: bytes, and occasions of more
        self._told_s = float("-inf")

    def add(self, what: str, *, lost_bytes: int = 0, unknown: int = 0) -> None:
        """Bytes that are known to be lost; or on so many occasions nobody knows how many."""
        before, occasions = self._pending.get(what, (0, 0))
        self._pending[what] = (before + lost_bytes, occasions + unknown)

    def tell(self, *, at_once: bool = False) -> bool:
        """Write down what there is; whether nothing is left to be written."""
        now_s = self._clock.monotonic_s()
        if not self._pending:
            return True
        if not at_once and now_s - self._told_s < TOLD_EVERY_S:
            return False
        losses = [
            Loss(
                source=self._source, path=self._address, at_ms=self._clock.now_ms(), bytes=count, unknown=unknown, what=what
            )
            for what, (count, unknown) in self._pending.items()
        ]  # fmt: skip
        try:
            self._checkpoint.commit([change for loss in losses for change in changes.lose(loss)])
        except CheckpointFailed:
            return False
        self._pending, self._told_s = {}, now_s
        for loss in losses:
            self._counters.lost(loss)
            _LOG.warning(
                "source %s, %s: %s; %d bytes are known to be lost%s", loss.source, loss.path, loss.what, loss.bytes,
                f", and on {loss.unknown} occasions it is unknown how many" if loss.unknown else "",
            )  # fmt: skip
        return True
