"""Checkers by name: each reads the evidence and counts what is wrong, by kind.

All of them read any run.

lost, doubled, phantom, altered, changed, misplaced, falsely proved, contradiction: by the judge,
which shares no code with what it judges. closed early, closed twice, stood still, not drained, not
healed, ended: by what was seen while it went on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.faults.chaos.evidence import Evidence, Injected
from tests.faults.chaos.flows import WINDOW_S, Flow, standing

from hourmark_verify.judge.buckets import DEAD_LETTERS, find_changes, group_by_bucket, read_tree
from hourmark_verify.judge.check import verify_delivery
from hourmark_verify.judge.report import FindingKind
from hourmark_verify.judge.webhdfs import hdfs_path

DRAINED_S: Final = 180.0  # after it healed, until all that was written before is in closed buckets
NAMED_MAX: Final = 5

# By what the judge calls it. What is lost though all its buckets are proved is falsely proved as
# well.
_KINDS: Final[Mapping[FindingKind, str]] = {
    FindingKind.LOST: "lost",
    FindingKind.DOUBLED: "doubled",
    FindingKind.ALTERED: "altered",
    FindingKind.UNEXPECTED: "phantom",
    FindingKind.MISPLACED: "misplaced",
    FindingKind.MANIFEST: "contradiction",
    FindingKind.UNLISTED: "contradiction",
    FindingKind.CHANGED: "changed",
    FindingKind.FALSE_PROOF: "falsely proved",
    FindingKind.SOURCE: "source",
}
VIOLATIONS: Final = (
    *dict.fromkeys(_KINDS.values()),
    "closed early",
    "closed twice",
    "stood still",
    "not drained",
    "not healed",
    "ended",
    "nothing compared",
)


class Findings(Counter[str]):
    """How many of each kind; `said` names the first few.

    `blamed`: how many of them are of one fault alone, by its name.

    `destroyed`: events that Kafka lost before anybody could copy them, and that are nowhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.compared = self.destroyed = 0
        self.blamed = Counter[str]()

    def object(self, kind: str, what: str, count: int = 1, fault: str | None = None) -> None:
        """Take a finding; of what happened in a run of many faults, only some are any one's."""
        assert kind in VIOLATIONS, kind
        if fault is not None:
            self.blamed[fault] += count
        self[kind] += count
        if self[kind] <= NAMED_MAX or count > 1:
            self.said.append(f"{kind}: {what}")


Checker = Callable[[Evidence, Findings], None]


def each_line_once(evidence: Evidence, findings: Findings) -> None:
    """The judge's own comparison; and no line that was written in time is in a file of late
    ones.
    """
    report = verify_delivery(evidence.told, evidence.hdfs)
    findings.compared, findings.destroyed = report.compared, report.destroyed
    named = Counter[str]()
    for finding in report.findings:
        named[_KINDS[finding.kind]] += 1
        if named[_KINDS[finding.kind]] <= NAMED_MAX:
            findings.said.append(str(finding))
    for kind, count in report.counts.items():
        if count:
            findings[_KINDS[kind]] += count
    # Buckets that stand are proved, as the judge objects to others, but for hours that an override
    # closed.
    forced = sum(of.lost for name, of in report.types.items() if name in evidence.told.forced)
    if lost := report.counts[FindingKind.LOST] - forced:
        findings.object(
            "falsely proved",
            f"{lost} that are lost, of types whose hours are all closed as proved",
            lost,
        )
    if not report.compared:
        findings.object("nothing compared", "the judge found nothing to compare")
    late = sum(
        of.late
        for name, of in report.types.items()
        if name not in (*evidence.api_types, DEAD_LETTERS)
    )
    if late > evidence.may_be_late:
        what = f"{late} lines are in files of late ones, {evidence.may_be_late} were written late"
        findings.object("closed early", what, late - evidence.may_be_late)


def closed_once_and_in_time(evidence: Evidence, findings: Findings) -> None:
    """No bucket stood before its end; what was seen in one is still what stands there."""
    for (name, end_ms), seen_ms in evidence.first_seen.items():
        if seen_ms < end_ms:
            findings.object(
                "closed early", f"{name}, whose bucket ends at {end_ms} ms, stood at {seen_ms} ms"
            )
    now = group_by_bucket(read_tree(evidence.hdfs, hdfs_path(evidence.told.root)))
    for path, change in find_changes(evidence.kept, now):
        findings.object("closed twice", f"{path}: {change}")
    if not evidence.kept:
        findings.object("nothing compared", "no bucket was looked into while it went on")


def goes_on(evidence: Evidence, findings: Findings) -> None:
    """What a fault says must go on was seen to move in every minute, unless another fault at that
    time stopped it.
    """
    for of in evidence.injected:
        beside = [
            other.goes_on for other in evidence.injected if other is not of and _overlap(of, other)
        ]
        for flow in sorted(of.goes_on.intersection(evidence.watched, *beside)):
            still = standing(evidence.moved.get(flow, ()), of.began_s, of.healed_s, WINDOW_S[flow])
            for start in still:
                what = (
                    f"{flow} for {WINDOW_S[flow]:.0f} s, {start - of.began_s:.0f} s into {of.fault}"
                )
                findings.object("stood still", what, fault=of.fault)


def drained(evidence: Evidence, findings: Findings) -> None:
    """Three minutes after a fault and those beside it healed, all that was written before is in
    closed buckets; at last, all.
    """
    for of in evidence.injected:
        if of.recovered_s is None or of.recovered_s - of.all_healed_s > DRAINED_S:
            findings.object(
                "not drained", f"{of.fault}, within {DRAINED_S:.0f} s of its end", fault=of.fault
            )
    if evidence.undrained is not None:
        findings.object("not drained", f"when all faults were over: {evidence.undrained}")


def healed(evidence: Evidence, findings: Findings) -> None:
    """What was hit refused what it must refuse, came to the step that it was awaited at, and came
    back.
    """
    for of in evidence.injected:
        if of.failed is not None:
            findings.object("not healed", f"{of.fault}: {of.failed}", fault=of.fault)


def nobody_ended(evidence: Evidence, findings: Findings) -> None:
    """No process that no fault had hit ended."""
    for who in evidence.ended:
        findings.object("ended", who)


CHECKERS: Final[Mapping[str, Checker]] = {
    check.__name__: check
    for check in (each_line_once, closed_once_and_in_time, goes_on, drained, healed, nobody_ended)
}


def check(evidence: Evidence) -> Findings:
    """All of them."""
    findings = Findings()
    for checker in CHECKERS.values():
        checker(evidence, findings)
    return findings


def _overlap(one: Injected, other: Injected) -> bool:
    """Whether one's minutes meet the other's, its recovery included."""
    end_s = max(one.healed_s, one.began_s + max(WINDOW_S[flow] for flow in Flow))
    return other.began_s < end_s and one.began_s < (other.recovered_s or other.healed_s + DRAINED_S)
