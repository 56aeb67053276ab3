"""Sent against read back. Pure: arrays in, counts and times out.

Numbers are those of `records.Form`, from 0 in the order of sending. `sent_s` and `answered_s` hold,
by number, when a record was handed to the producer and when it was acknowledged or refused (NaN:
neither yet).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hourmark_evaluate.records import Plan
from hourmark_evaluate.results import Counts, Point

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass
class Readings:
    """What a consumer read: numbers by topic and partition, in the order of reading; `foreign`:
    what is no record of this run.
    """

    numbers: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    foreign: int = 0

    def add(self, topic: str, partition: int, numbers: Iterable[int | None]) -> None:
        """Some more of a partition; None for each that is foreign."""
        known = self.numbers.setdefault((topic, partition), [])
        for number in numbers:
            if number is None:
                self.foreign += 1
            else:
                known.append(number)

    def __len__(self) -> int:
        return sum(map(len, self.numbers.values())) + self.foreign


def account(place: str, plan: Plan, acknowledged: Flags, readings: Readings) -> Counts:
    """`acknowledged`: by number, one for each that was sent.

    What is read where it was not sent to is a phantom.
    """
    sent = len(acknowledged)
    placed = {
        at: _placed(plan, at, np.array(numbers, dtype=np.int64), sent)
        for at, numbers in readings.numbers.items()
    }
    everything = np.concatenate([*placed.values(), np.empty(0, dtype=np.int64)])
    times = np.bincount(everything, minlength=sent)
    return Counts(
        place=place,
        sent=sent,
        acknowledged=int(acknowledged.sum()),
        read=len(readings),
        lost=int((acknowledged & (times == 0)).sum()),
        doubled=int((times[times > 1] - 1).sum()),
        phantom=len(readings) - len(everything),
        disordered=sum(map(disordered, placed.values())),
        unacknowledged=int((~acknowledged & (times > 0)).sum()),
    )


def _placed(plan: Plan, at: tuple[str, int], numbers: Numbers, sent: int) -> Numbers:
    """Those that were sent, and sent to there."""
    inside = numbers[(numbers >= 0) & (numbers < sent)]
    topics, partitions = plan.places(inside)
    where = plan.topics.index(at[0]) if at[0] in plan.topics else -1
    faithful: Numbers = inside[(topics == where) & (partitions == at[1])]
    return faithful


def disordered(numbers: Numbers) -> int:
    """How many of a partition's first readings come after one of a higher number."""
    _, first = np.unique(numbers, return_index=True)
    in_order = numbers[np.sort(first)]
    return int((in_order < np.maximum.accumulate(in_order)).sum()) if len(in_order) else 0


def longest_wait(sent_s: Floats, answered_s: Floats, began_s: float, healed_s: float) -> float:
    """Of the records under way between these times: how long the slowest that was answered took."""
    under_way = (sent_s <= healed_s) & (answered_s >= began_s)
    waits = (answered_s - sent_s)[under_way]
    return float(waits.max()) if len(waits) else 0.0


def recovered(
    sent_s: Floats, answered_s: Floats, acknowledged: Flags, healed_s: float, gave_up_s: float
) -> float | None:
    """How long after `healed_s` all that was sent before it was answered.

    None where a record sent before was not answered at all by `gave_up_s`, or none that was sent
    later was acknowledged by then.
    """
    before = answered_s[sent_s < healed_s]
    answered = answered_s <= gave_up_s
    if (
        not (before <= gave_up_s).all()
        or not (acknowledged & answered & (sent_s >= healed_s)).any()
    ):
        return None
    return max(0.0, float(before.max(initial=healed_s)) - healed_s)


def timeline(sent_s: Floats, answered_s: Floats, acknowledged: Flags) -> tuple[Point, ...]:
    """Second by second."""
    answered_s = answered_s[acknowledged]
    if not len(sent_s):
        return ()
    seconds = int(max(sent_s.max(), answered_s.max(initial=0.0))) + 1
    edges = np.arange(seconds + 1)
    sent, answered = (np.histogram(times, edges)[0] for times in (sent_s, answered_s))
    return tuple(
        Point(at_s=n, sent=int(sent[n]), acknowledged=int(answered[n])) for n in range(seconds)
    )
