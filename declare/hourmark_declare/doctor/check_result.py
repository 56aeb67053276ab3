"""Result of one check of `hourmark doctor`."""

from __future__ import annotations

import dataclasses
from enum import StrEnum


class CheckStatus(StrEnum):
    """The outcome of one check of `hourmark doctor`.

    Attributes:
        PASSED: The check found no problem.
        FINDING: The check found a problem that the operator must resolve.
        SKIPPED: The check does not apply to this configuration, or a server that it needs is down.
            Another check reports that server.
    """

    PASSED = "well"
    FINDING = "finding"
    SKIPPED = "not asked"


@dataclasses.dataclass(frozen=True, slots=True)
class DoctorCheckResult:
    """The result of one check of a server, topic, folder or setting by `hourmark doctor`.

    `str()` returns the lines that the command prints for the result.

    Attributes:
        check: Name of the check, as accepted by the option `--only`.
        subject: Server, topic, folder or setting that was checked.
        verdict: Outcome of the check.
        seen: Text that describes what was observed.
        to_do: Text that describes the remedy; empty unless the outcome is a finding.
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
    """Create the result of a `hourmark doctor` check that found no problem.

    Args:
        check: Name of the check, as accepted by the option `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: Text that describes what was observed.

    Returns:
        A result with the status `PASSED` and no remedy.
    """
    return DoctorCheckResult(check, subject, CheckStatus.PASSED, seen)


def finding_result(check: str, subject: str, seen: str, to_do: str) -> DoctorCheckResult:
    """Create the result of a `hourmark doctor` check that found a problem.

    A problem is a state that violates a guarantee of Hourmark, or will soon violate it.

    Args:
        check: Name of the check, as accepted by the option `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: Text that describes the problem.
        to_do: Text that describes the remedy.

    Returns:
        A result with the status `FINDING`.
    """
    return DoctorCheckResult(check, subject, CheckStatus.FINDING, seen, to_do)


def skipped_result(check: str, subject: str, why: str) -> DoctorCheckResult:
    """Create the result of a `hourmark doctor` check that was not run.

    Args:
        check: Name of the check, as accepted by the option `--only`.
        subject: Server, topic, folder or setting that was not checked.
        why: Text that describes why the check was not run.

    Returns:
        A result with the status `SKIPPED` and no remedy.
    """
    return DoctorCheckResult(check, subject, CheckStatus.SKIPPED, why)
