"""Checkers by name: each reads the evidence and counts what is wrong, by kind.

All of them read any run.

lost, doubled, phantom, altered, changed, misplaced, falsely proved, contradiction: by the judge,
which shares no code with what it judges. closed early, closed twice, stood still, not drained, not
healed, ended: by what was seen while it went on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
    """The number of violations by kind.

    Attributes:
        said: Descriptions of the first few violations of each kind.
        compared: Number of lines and events that the judge compared.
        destroyed: Number of events that Kafka lost before they were copied, and that are in no
            bucket.
        blamed: Number of violations during which exactly one fault was active, by its name.
        shared: Violations during which several faults were active, each as its kind and the names
            of these faults. Any of them may be the cause.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.compared = self.destroyed = 0
        self.blamed = Counter[str]()
        self.shared: list[tuple[str, list[str]]] = []

    def object(self, kind: str, what: str, count: int = 1, faults: Iterable[str] = ()) -> None:
        """Record a violation.

        Args:
            kind: One of `VIOLATIONS`.
            what: Description for people.
            count: Number of violations; 1 if `faults` has several names.
            faults: Names of the faults that were active. A violation is attributed to a fault only
                if it is the only one. Empty if any fault of the run may be the cause.
        """
        assert kind in VIOLATIONS, kind
        suspects = sorted(faults)
        if len(suspects) == 1:
            self.blamed[suspects[0]] += count
        elif suspects:
            assert count == 1, "each violation has its own list of faults"
            self.shared.append((kind, suspects))
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
    """Check that each flow that a fault must not stop moved in every minute of the fault.

    A flow is not checked while another active fault may stop it. One standstill during several
    faults is one violation.
    """
    seen: dict[Flow, list[float]] = {}
    for of in evidence.injected:
        beside = _beside(of, evidence)
        flows = of.goes_on.intersection(evidence.watched, *(other.goes_on for other in beside))
        for flow in sorted(flows):
            window_s = WINDOW_S[flow]
            for start in standing(evidence.moved.get(flow, ()), of.began_s, of.healed_s, window_s):
                if all(abs(start - other) >= window_s for other in seen.get(flow, ())):
                    seen.setdefault(flow, []).append(start)
                    what = (
                        f"{flow} for {window_s:.0f} s, {start - of.began_s:.0f} s into {of.fault}"
                    )
                    findings.object("stood still", what, faults=_names(of, *beside))


def drained(evidence: Evidence, findings: Findings) -> None:
    """Check that closed buckets contain everything that was written before the faults of a round
    ended, at most `DRAINED_S` after the last of them ended; and all events at the end of the run.

    All faults of a round share this condition, so a round that misses it is one violation.
    """
    rounds: dict[float, list[Injected]] = {}
    for of in evidence.injected:
        rounds.setdefault(of.all_healed_s, []).append(of)
    for all_healed_s, round_ in rounds.items():
        recovered_s = round_[0].recovered_s
        if recovered_s is None or recovered_s - all_healed_s > DRAINED_S:
            names = _names(*round_)
            findings.object(
                "not drained",
                f"{', '.join(names)}, within {DRAINED_S:.0f} s of their end",
                faults=names,
            )
    if evidence.undrained is not None:
        findings.object("not drained", f"when all faults were over: {evidence.undrained}")


def healed(evidence: Evidence, findings: Findings) -> None:
    """Check that each fault had the effect that it waits for, and that what it hit came back."""
    for of in evidence.injected:
        if of.failed is not None:
            names = _names(of, *_beside(of, evidence))
            findings.object("not healed", f"{of.fault}: {of.failed}", faults=names)


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


def _names(*injected: Injected) -> list[str]:
    return sorted({of.fault for of in injected})


def _beside(of: Injected, evidence: Evidence) -> list[Injected]:
    """The other faults that were active at the same time."""
    return [other for other in evidence.injected if other is not of and _overlap(of, other)]


def _overlap(one: Injected, other: Injected) -> bool:
    """Whether one's minutes meet the other's, its recovery included."""
    end_s = max(one.healed_s, one.began_s + max(WINDOW_S[flow] for flow in Flow))
    return other.began_s < end_s and one.began_s < (other.recovered_s or other.healed_s + DRAINED_S)
