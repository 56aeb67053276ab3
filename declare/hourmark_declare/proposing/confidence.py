"""Confidence in a proposed format: high, medium or low, with reasons."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.candidate import Candidate

GOOD: Final = 0.9  # share of matching records below which a format is a guess
_SURE: Final = 0.97
_FEW: Final = 10  # records
_ALL_BUT_ONE: Final = 4  # records, of which one may not match


class Confidence(enum.StrEnum):
    """The confidence that a proposed log format describes the log file correctly.

    Attributes:
        HIGH: Nearly all lines of the sample match the format, and no other interpretation was
            found.
        MEDIUM: No content of the file is lost, but the user should review the reasons.
        LOW: The format is a guess, which the user should confirm.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Assessment(NamedTuple):
    """The confidence in a proposed log format, and the reasons for it.

    Attributes:
        confidence: Level of confidence.
        reasons: Reasons why the confidence is not high, as sentences for users; empty if it is
            high.
    """

    confidence: Confidence
    reasons: Sequence[str]


def match_nearly_all(records: int, fitting: int) -> bool:
    """Return whether enough records match a format to consider the others damaged.

    Args:
        records: Number of records, without a header row.
        fitting: Number of records that match the format.

    Returns:
        True if at least 90% match, or all but one of at least four.
    """
    return fitting >= GOOD * records or fitting == records - 1 >= _ALL_BUT_ONE - 1


def assess(
    candidate: Candidate,
    *,
    records: int,
    fitting: int,
    caught: int,
    has_time: bool,
    unfilled: Sequence[str] = (),
) -> Assessment:
    """Determine the confidence in a proposed log format from the share of a sample that it matches.

    A record is a line, or several lines if the format has multi-line records.

    Args:
        candidate: The proposed format.
        records: Number of records in the sample, without a header row.
        fitting: Number of records that match the format.
        caught: Number of records that do not match the format, but become events with the whole
            text as message.
        has_time: Whether the matching records contain an event time.
        unfilled: Names of fields without a value in most of the records that contain one.

    Returns:
        Low confidence if less than 90% of the records match, and not all but one, or if a time is
        ambiguous. Medium confidence if less than 97% match, the sample has fewer than ten records,
        the records contain no time, fields have no value in most of the records that contain one,
        or the format has notes for users. Otherwise, high confidence.
    """
    share = fitting / max(records, 1)
    guesses = [*candidate.doubts]
    if not (is_good := match_nearly_all(records, fitting)):
        others = "are kept whole" if caught else "would be dead letters"
        guesses.append(f"only {share:.0%} of the records have this form; the others {others}")
    notes = [*candidate.notes]
    if is_good and share < _SURE:
        notes.append(f"{1 - share:.0%} of the records do not have this form")
    if records < _FEW:
        notes.append(f"the sample has only {records} record{'s' if records != 1 else ''}")
    if unfilled:
        notes.append(f"most records have no value for {', '.join(unfilled)}: check the pattern")
    if not has_time:
        notes.append("no time was found: the time of an event is when its line is read")
    if guesses:
        return Assessment(Confidence.LOW, (*guesses, *notes))
    return Assessment(Confidence.MEDIUM if notes else Confidence.HIGH, tuple(notes))
