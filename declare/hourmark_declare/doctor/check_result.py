"""Result of one check of `hourmark doctor`."""

from __future__ import annotations

import dataclasses
from enum import StrEnum


class CheckStatus(StrEnum):
    """Outcome of one check.

    `SKIPPED` means that nothing depends on it here, or that a server it needs is down, which is a
    finding of its own.
    """

    PASSED = "well"
    FINDING = "finding"
    SKIPPED = "not asked"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckResult:
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


def passed_result(check: str, subject: str, seen: str) -> CheckResult:
    """Return a result for a check that found no problem.

    Args:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: What was observed.
    """
    return CheckResult(check, subject, CheckStatus.PASSED, seen)


def finding_result(check: str, subject: str, seen: str, to_do: str) -> CheckResult:
    """Return a result for a problem that violates a guarantee or soon will.

    Args:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: What was observed.
        to_do: Remedy.
    """
    return CheckResult(check, subject, CheckStatus.FINDING, seen, to_do)


def skipped_result(check: str, subject: str, why: str) -> CheckResult:
    """Return a result for something that was not checked.

    Args:
        check: Name of the check, as in `--only`.
        subject: Server, topic, folder or setting.
        why: Reason why it was not checked.
    """
    return CheckResult(check, subject, CheckStatus.SKIPPED, why)
