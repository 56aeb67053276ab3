"""Result of one check of `hourmark doctor`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

_ALIKE_MAX: Final = 3


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
        key: Identifies the fault of a finding that another check may find too, such as
            `service:` and a URL; the first check has it. Empty if no other check can find it.
    """

    check: str
    subject: str
    verdict: CheckStatus
    seen: str
    to_do: str = ""
    key: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the result as values that `json.dumps` accepts, without its key."""
        values = dataclasses.asdict(self)
        values.pop("key")
        return values

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


def finding_result(
    check: str, subject: str, seen: str, to_do: str, *, key: str = ""
) -> DoctorCheckResult:
    """Create the result of a `hourmark doctor` check that found a problem.

    A problem is a state that violates a guarantee of Hourmark, or will soon violate it.

    Args:
        check: Name of the check, as accepted by the option `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: Text that describes the problem.
        to_do: Text that describes the remedy.
        key: Identifies the fault if another check may find it too.

    Returns:
        A result with the status `FINDING`.
    """
    return DoctorCheckResult(check, subject, CheckStatus.FINDING, seen, to_do, key)


def merge_findings(results: Iterable[DoctorCheckResult]) -> list[DoctorCheckResult]:
    """Merge findings of one check that differ only in their subject, such as two hundred topics.

    Args:
        results: Results of any checks.

    Returns:
        The same results. Of more than three such findings only the first remains, at its place;
        its subject has the number of all.
    """
    found: dict[tuple[str, ...], list[DoctorCheckResult]] = {}
    for n, result in enumerate(results):
        is_finding = result.verdict is CheckStatus.FINDING
        found.setdefault(_likeness(result) if is_finding else (str(n),), []).append(result)
    merged = []
    for alike in found.values():
        if len(alike) <= _ALIKE_MAX:
            merged += alike
            continue
        subject = f"{alike[0].subject} and {len(alike) - 1} more (--json names all)"
        merged.append(dataclasses.replace(alike[0], subject=subject))
    return merged


def _likeness(result: DoctorCheckResult) -> tuple[str, ...]:
    # Texts without numbers and without the words of the subject.
    texts = []
    for text in (result.seen, result.to_do):
        for word in sorted(result.subject.split(), key=len, reverse=True):
            text = text.replace(word, "…")
        texts.append(re.sub(r"\d+(\.\d+)?", "#", text))
    return (result.check, *texts)


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
