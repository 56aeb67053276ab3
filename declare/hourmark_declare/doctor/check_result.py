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
    """The result of one `hourmark doctor` check of a server, topic, folder or setting.

    `str()` returns the text that the command prints for the result.

    Attributes:
        check: Name of the check, as used with the option `--only`; `stack` if the local stack was
            stopped.
        subject: Server, topic, folder or setting that was checked.
        verdict: Outcome of the check.
        seen: Text that describes what was observed.
        to_do: Text that describes the remedy; empty unless the outcome is a finding.
        key: Identifier of the fault, such as `service:` followed by a URL. If several checks report
            the same key, `run_checks` keeps only the results of the first one. Empty if no other
            check can find the fault.
    """

    check: str
    subject: str
    verdict: CheckStatus
    seen: str
    to_do: str = ""
    key: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the result as a JSON-serializable dict.

        Returns:
            A dict with the keys `check`, `subject`, `verdict`, `seen` and `to_do`.
        """
        values = dataclasses.asdict(self)
        values.pop("key")
        return values

    def __str__(self) -> str:
        mark = "FINDING" if self.verdict is CheckStatus.FINDING else str(self.verdict)
        do = f"\n{'':11}do: {self.to_do}" if self.to_do else ""
        return f"{mark:<10} {self.check}: {self.subject}: {self.seen}{do}"


def passed_result(check: str, subject: str, seen: str) -> DoctorCheckResult:
    """Create a result for a `hourmark doctor` check that found no problem.

    Args:
        check: Name of the check, as used with the option `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: Text that describes what was observed.

    Returns:
        A result with the status `PASSED` and no remedy.
    """
    return DoctorCheckResult(check, subject, CheckStatus.PASSED, seen)


def finding_result(
    check: str, subject: str, seen: str, to_do: str, *, key: str = ""
) -> DoctorCheckResult:
    """Create a result for a `hourmark doctor` check that found a problem.

    A problem is a state in which Hourmark cannot keep its guarantees, now or in the near future.

    Args:
        check: Name of the check, as used with the option `--only`.
        subject: Server, topic, folder or setting that was checked.
        seen: Text that describes the problem.
        to_do: Text that describes the remedy.
        key: Identifier of the fault, which allows `run_checks` to omit duplicates from other
            checks; empty if no other check can find the fault.

    Returns:
        A result with the status `FINDING`.
    """
    return DoctorCheckResult(check, subject, CheckStatus.FINDING, seen, to_do, key)


def merge_findings(results: Iterable[DoctorCheckResult]) -> list[DoctorCheckResult]:
    """Combine similar findings of one check, such as the same problem in two hundred topics.

    Findings are similar if they come from the same check, and their texts differ only in numbers
    and in the subject.

    Args:
        results: Results of any checks.

    Returns:
        The results in the given order, except that similar findings are adjacent. If there are more
        than three similar findings, only the first is kept, and its subject states the number of
        the others. Results that are not findings are never combined.
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
    """Create a result for a `hourmark doctor` check that was not run.

    Args:
        check: Name of the check, as used with the option `--only`.
        subject: Server, topic, folder or setting that was not checked.
        why: Reason why the check was not run.

    Returns:
        A result with the status `SKIPPED` and no remedy.
    """
    return DoctorCheckResult(check, subject, CheckStatus.SKIPPED, why)
