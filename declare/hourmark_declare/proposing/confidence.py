"""How far a proposal can be trusted, and what is proposed instead where it cannot."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.candidate import Candidate

GOOD: Final = 0.9  # share of matching records below which a format is a guess
_SURE: Final = 0.97
_FEW: Final = 10  # records


class Confidence(enum.StrEnum):
    """The confidence in a proposal.

    Attributes:
        HIGH: The sample has this structure, and nothing indicates another.
        MEDIUM: The proposal loses nothing, but a look at the reasons is worthwhile.
        LOW: The proposal is a guess, which the user must confirm.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Assessment(NamedTuple):
    """The confidence in a proposal with its reasons.

    Attributes:
        confidence: The confidence.
        reasons: Sentences for users; empty with high confidence.
    """

    confidence: Confidence
    reasons: Sequence[str]


def assess(
    candidate: Candidate, *, records: int, fitting: int, caught: int, has_time: bool
) -> Assessment:
    """Assess a proposed format by the records of the sample.

    Args:
        candidate: The proposed format.
        records: Number of records in the sample.
        fitting: Number of records that match the format.
        caught: Number of records that do not match it and are kept whole.
        has_time: Whether matching records contain the time of their event.

    Returns:
        Low confidence if less than nine in ten records match, or the time could be read in
        another way. Medium if less than 97 % match, there are fewer than ten records, the times
        have no date, or there is no time. Otherwise high.
    """
    share = fitting / max(records, 1)
    guesses = [*candidate.doubts]
    if share < GOOD:
        others = "are kept whole" if caught else "would be dead letters"
        guesses.append(f"only {share:.0%} of the records have this form; the others {others}")
    notes = [*candidate.notes]
    if GOOD <= share < _SURE:
        notes.append(f"{1 - share:.0%} of the records do not have this form")
    if records < _FEW:
        notes.append(f"the sample has only {records} record{'s' if records != 1 else ''}")
    if not has_time:
        notes.append("no time was found: the time of an event is when its line is read")
    if guesses:
        return Assessment(Confidence.LOW, (*guesses, *notes))
    return Assessment(Confidence.MEDIUM if notes else Confidence.HIGH, tuple(notes))
