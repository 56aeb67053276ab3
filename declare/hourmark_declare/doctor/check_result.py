"""Result of one check of `hourmark doctor`."""

from __future__ import annotations

import dataclasses
from enum import StrEnum


class CheckStatus(StrEnum):
    """The outcome of one check of `hourmark doctor`.

    `SKIPPED` means that this configuration does not need the check, or that a server is down, which
    another check reports as a finding.
    """

    PASSED = "well"
    FINDING = "finding"
    SKIPPED = "not asked"


@dataclasses.dataclass(frozen=True, slots=True)
class DoctorCheckResult:
    """Result of one check of a server, topic, folder or setting.

    Attributes:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting that was checked.
        verdict: Outcome.
        seen: What was observed.
        to_do: Remedy; empty unless the outcome is a finding.
    """

    check: str
    subject: str
    verdict: CheckStatus
    seen: str
    to_do: str = ""

    def __str__(self) -> str:
        mark = "FINDING" if self.verdict is CheckStatus.FINDING else str(self.verdict)
        do = f"\n{'':11}do: {self.to_do}" if self.to_do else ""
        return f"{mark:<10} {self.check}: {self.subject}: {self.seen}{do}"


def passed_result(check: str, subject: str, seen: str) -> DoctorCheckResult:
    """Return a result for a check that found no problem.

    Args:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: What was observed.
    """
    return DoctorCheckResult(check, subject, CheckStatus.PASSED, seen)


def finding_result(check: str, subject: str, seen: str, to_do: str) -> DoctorCheckResult:
    """Return a result for a problem that violates a guarantee or soon will.

    Args:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: What was observed.
        to_do: Remedy.
    """
    return DoctorCheckResult(check, subject, CheckStatus.FINDING, seen, to_do)


def skipped_result(check: str, subject: str, why: str) -> DoctorCheckResult:
    """Return a result for a check that was skipped.

    Args:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting that was not checked.
        why: Reason why it was not checked.
    """
    return DoctorCheckResult(check, subject, CheckStatus.SKIPPED, why)
