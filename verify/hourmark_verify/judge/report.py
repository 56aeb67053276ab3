"""What was found: counts of all, and the first of each kind by name."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Final

STORED_FINDINGS_MAX: Final = 20  # findings of a kind that are named; all are counted


class FindingKind(enum.StrEnum):
    """The kinds of findings that a verification can report."""

    LOST = "lost"  # a terminated line, not blank, that is in no bucket and no dead letter
    DOUBLED = "doubled"  # a line, or an id, that is there again
    ALTERED = "altered"  # an event that says other than its line
    UNEXPECTED = (
        "unexpected"  # an event of no line: unterminated, between lines, of a file not listed
    )
    MISPLACED = "misplaced"  # an event in a bucket of another time
    # a marker that says other than its bucket, than itself, or than the markers before it
    MANIFEST = "manifest"
    UNLISTED = "unlisted"  # a file or folder that no marker speaks of
    CHANGED = "changed"  # a bucket that is not as it was when closed
    FALSE_PROOF = "falsely proved"  # a bucket that is proved, and had an event that is nowhere
    SOURCE = "source"  # a source file that is not what its writer wrote


@dataclasses.dataclass(frozen=True, slots=True)
class JudgeFinding:
    """One discrepancy in a source file or a bucket.

    Attributes:
        kind: kind of the discrepancy.
        path: path of the source file or bucket.
        position: byte offset in the source file; None for a bucket.
        detail: description for the user.
    """

    kind: FindingKind
    path: str
    position: int | None
    detail: str

    def __str__(self) -> str:
        at = "" if self.position is None else f" at byte {self.position}"
        return f"{self.kind}: {self.path}{at}: {self.detail}"


@dataclasses.dataclass(slots=True, kw_only=True)
class TypeCount:
    """Event counts of one event type.

    Attributes:
        expected: source lines that claim this type.
        in_buckets: events in closed buckets, including late events.
        late: events in closed buckets that arrived after their hour was closed.
        dead_letters: lines that claim this type and became dead letters.
        lost: lines that claim this type and were not found.
        duplicates_removed: duplicates removed when buckets were closed.
        buckets: closed buckets.
        buckets_with_events: closed buckets that contain at least one file.
        grades: number of buckets by grade.
    """

    expected: int = 0
    in_buckets: int = 0
    late: int = 0
    dead_letters: int = 0
    lost: int = 0
    duplicates_removed: int = 0
    buckets: int = 0
    buckets_with_events: int = 0
    grades: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True, kw_only=True)
class FileCount:
    """Line counts of one source file."""

    path: str
    lines: int
    in_buckets: int = 0
    dead_letters: int = 0
    blanks: int = 0
    destroyed: int = 0
    lost: int = 0


@dataclasses.dataclass(slots=True, kw_only=True)
class JudgeReport:
    """The result of a verification: counts, and the first findings of each kind."""

    digests_checked: bool = False
    types: dict[str, TypeCount] = dataclasses.field(default_factory=dict)
    files: list[FileCount] = dataclasses.field(default_factory=list)
    counts: dict[FindingKind, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(FindingKind, 0)
    )
    findings: list[JudgeFinding] = dataclasses.field(
        default_factory=list
    )  # the first of each kind, by kind
    destroyed: int = 0  # events that Kafka lost, and that are nowhere
    beyond: int = (
        0  # events of lines after the recorded size of their file: right, but not demanded
    )
    posted: int = 0  # events of the API, found as their senders say
    others: int = 0  # events of files that were not to be judged

    def add(self, kind: FindingKind, path: str, detail: str, position: int | None = None) -> None:
        """Count a finding, and store it unless 20 of its kind are already stored.

        Args:
            kind: kind of the finding.
            path: path of the source file or bucket.
            detail: description for the user.
            position: byte offset in the source file; None for a bucket.
        """
        self.counts[kind] += 1
        if self.counts[kind] <= STORED_FINDINGS_MAX:
            self.findings.append(JudgeFinding(kind, path, position, detail))
            self.findings.sort(key=lambda finding: [*FindingKind].index(finding.kind))

    def of_type(self, event_type: str) -> TypeCount:
        """Return the mutable counts of an event type, created with zeros on first use."""
        return self.types.setdefault(event_type, TypeCount())

    @property
    def compared(self) -> int:
        """Number of events and dead letters that were compared with their expected values."""
        return self.posted + sum(file.in_buckets + file.dead_letters for file in self.files)

    @property
    def content(self) -> bool:
        """Whether at least one event was compared and there are no findings."""
        return self.compared > 0 and not any(self.counts.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dictionary."""
        told = dataclasses.asdict(self)
        return {"content": self.content, "compared": self.compared, **told.pop("counts"), **told}

    def as_text(self) -> str:
        """Return the report as a text table, followed by the findings and the totals."""
        header = ("type", "expected", "in buckets", "late", "dead letters", "lost", "buckets")
        rows = [
            (name, c.expected, c.in_buckets, c.late, c.dead_letters, c.lost, c.buckets)
            for name, c in sorted(self.types.items())
        ]
        lines = [
            f"{row[0]:<20}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in (header, *rows)
        ]
        lines += [str(finding) for finding in self.findings]
        if not self.digests_checked:
            lines.append("(no host id was given, so the digests in event ids were not checked)")
        lines.append(
            f"compared: {self.compared:,}, of which {self.posted:,} of the API; {self.beyond:,} "
            "past the recorded size of their "
            f"file, {self.others:,} of other files; {self.destroyed:,} destroyed; "
            f"{sum(file.blanks for file in self.files):,} blank lines"
        )
        total = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        return "\n".join([*lines, f"{'content' if self.content else 'NOT content'}: {total}"])
