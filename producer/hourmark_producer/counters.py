"""Losses, and the counters of a tailer run.

A loss is a number of bytes that are known to have been destroyed unread, or an occasion on which an
unknown number of bytes may have been. Losses come from the checkpoint and never decrease. The other
counters start at zero with the process.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import NamedTuple

from hourmark.records.wire import RangeResponse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss: bytes of one file that were destroyed before they were read.

    Attributes:
        source: Name of the source.
        path: Path of the file, or the setting `input` of a source that is not read from files.
        at_ms: When the loss was detected, in Unix milliseconds of this host's clock.
        bytes: Number of bytes that are known to be lost; 0 if only `unknown` is known.
        unknown: Number of occasions on which an unknown number of bytes may have been lost.
        what: Human-readable description of the cause.
    """

    source: str
    path: str
    at_ms: int
    bytes: int
    unknown: int
    what: str


class Losses(NamedTuple):
    """The total losses of one source. Neither number ever decreases.

    Attributes:
        bytes: Number of bytes that are known to be lost.
        unknown: Number of occasions on which an unknown number of bytes may have been lost.
    """

    bytes: int = 0
    unknown: int = 0


class Counters:
    """Counters of one tailer process, starting at zero, and the losses of all runs.

    Safe to use from several threads.

    Args:
        losses: Total losses of earlier runs by source name, from the checkpoint.

    Attributes:
        ranges: Number of acknowledged ranges.
        bytes: Total size of the acknowledged ranges in bytes.
        events: Number of events that the delivery service parsed from them.
        dead_letters: Number of lines in them that the delivery service could not parse.
        delivered_at_ms: When a range was last acknowledged, in Unix milliseconds; None before the
            first acknowledgement.
    """

    def __init__(self, losses: Mapping[str, Losses]) -> None:
        self._lock = threading.Lock()
        self._losses = dict(losses)
        self.ranges = 0
        self.bytes = 0
        self.events = 0
        self.dead_letters = 0
        self.delivered_at_ms: int | None = None

    def count_acknowledged(
        self, size: int, answer: RangeResponse, at_ms: int | None = None
    ) -> None:
        """Count a range that a delivery service acknowledged.

        Args:
            size: Size of the range in bytes.
            answer: Response of the service, with the numbers of events and unparsable lines.
            at_ms: When the range was acknowledged, in Unix milliseconds.
        """
        with self._lock:
            self.delivered_at_ms = at_ms
            self.ranges += 1
            self.bytes += size
            self.events += answer.events
            self.dead_letters += answer.dead_letters

    def add_loss(self, loss: Loss) -> None:
        """Add a loss of bytes to the totals of its source.

        Call this method after the checkpoint has stored the loss, so that the counters never exceed
        the checkpoint.

        Args:
            loss: The loss.
        """
        with self._lock:
            before = self._losses.get(loss.source, Losses())
            self._losses[loss.source] = Losses(
                before.bytes + loss.bytes, before.unknown + loss.unknown
            )

    def losses(self, source: str) -> Losses:
        """Return the total losses of one source in this run and all earlier runs.

        Args:
            source: Name of the source.

        Returns:
            The totals; both numbers are 0 if the source has no losses.
        """
        with self._lock:
            return self._losses.get(source, Losses())

    def total_losses(self) -> Losses:
        """Return the losses of all sources, added up.

        Returns:
            The totals; both numbers are 0 if nothing was lost.
        """
        with self._lock:
            every = self._losses.values()
            return Losses(
                sum(losses.bytes for losses in every), sum(losses.unknown for losses in every)
            )
