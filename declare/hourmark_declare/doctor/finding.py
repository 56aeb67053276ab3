"""What the doctor says of one thing that it looked at."""

from __future__ import annotations

import dataclasses
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands."""

    WELL = "well"
    FINDING = "finding"
    # nothing depends on it here, or what it is asked through is away, which is a finding of its own
    NOT_ASKED = "not asked"


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """`check`: the kind that `--only` names; `subject`: a server, a topic, a folder. `to_do`: of
    findings only.
    """

    check: str
    subject: str
    verdict: Verdict
    seen: str
    to_do: str = ""

    def __str__(self) -> str:
        mark = "FINDING" if self.verdict is Verdict.FINDING else str(self.verdict)
        do = f"\n{'':11}do: {self.to_do}" if self.to_do else ""
        return f"{mark:<10} {self.check}: {self.subject}: {self.seen}{do}"


def well(check: str, subject: str, seen: str) -> Answer:
    """As it is to be."""
    return Answer(check, subject, Verdict.WELL, seen)


def finding(check: str, subject: str, seen: str, to_do: str) -> Answer:
    """Something that breaks a promise, or will."""
    return Answer(check, subject, Verdict.FINDING, seen, to_do)


def not_asked(check: str, subject: str, why: str) -> Answer:
    """It was not looked at."""
    return Answer(check, subject, Verdict.NOT_ASKED, why)
