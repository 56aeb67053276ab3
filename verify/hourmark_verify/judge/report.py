"""The result of a verification: counts of all findings, and details of the first of each kind."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Final

STORED_FINDINGS_MAX: Final = 20  # of each kind, with details; all findings are counted


class FindingKind(enum.StrEnum):
    """The kinds of findings that a verification can report.

    A dead letter is the record of a line that cannot be converted to an event. A marker is the
    `_SUCCESS` file of a bucket.

    Attributes:
        LOST: A terminated, non-blank source line without an event or a dead letter.
        DOUBLED: A second event with the same source line or the same id.
        ALTERED: An event that differs from the one expected for its source line.
        UNEXPECTED: An event without a source line, such as an event of an unlisted file.
        MISPLACED: An event in the bucket of another time interval.
        MANIFEST: A marker that contradicts its bucket, itself or an earlier marker.
        UNLISTED: A file or folder that no marker lists.
        CHANGED: A bucket that was modified after it was closed.
        FALSE_PROOF: A bucket with the grade `proved` (verified to be complete) that lacks an event
            known to be destroyed.
        SOURCE: A source file that is missing or differs from what its writer recorded.
    """

    LOST = "lost"
    DOUBLED = "doubled"
    ALTERED = "altered"
    UNEXPECTED = "unexpected"
    MISPLACED = "misplaced"
    MANIFEST = "manifest"
    UNLISTED = "unlisted"
    CHANGED = "changed"
    FALSE_PROOF = "falsely proved"
    SOURCE = "source"


@dataclasses.dataclass(frozen=True, slots=True)
class JudgeFinding:
    """One discrepancy in a source file or a bucket.

    Attributes:
        kind: Kind of the discrepancy.
        path: Path of the source file or the bucket.
        position: Byte offset in the source file; None for a bucket.
        detail: Description for the user.
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
    """The counts of source lines, events and buckets of one event type.

    Attributes:
        expected: Source lines of this type.
        in_buckets: Events in closed buckets, including late events.
        late: Events that arrived after their hour was closed. They are in the bucket of a later
            hour.
        dead_letters: Source lines of this type that could not be converted to events and became
            dead letters.
        lost: Source lines of this type without an event or a dead letter.
        duplicates_removed: Duplicates that were removed when buckets were closed.
        buckets: Closed buckets.
        buckets_with_events: Closed buckets that contain at least one file.
        grades: Number of buckets by grade.
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
    """The line counts of one source file, by what was found in HDFS for each line.

    Attributes:
        path: Path of the file.
        lines: Lines that must be in HDFS, including blank ones.
        in_buckets: Lines whose event is in a closed bucket.
        dead_letters: Lines that could not be converted to events and became dead letters.
        blanks: Blank lines, for which no event is expected.
        destroyed: Lines whose event Kafka lost, as listed in the expectations.
        removed: Lines without an event, which may have been in a removed bucket.
        lost: Other lines without an event or a dead letter.
    """

    path: str
    lines: int
    in_buckets: int = 0
    dead_letters: int = 0
    blanks: int = 0
    destroyed: int = 0
    removed: int = 0
    lost: int = 0


@dataclasses.dataclass(slots=True, kw_only=True)
class JudgeReport:
    """The result of comparing source files with buckets: counts, and the discrepancies found.

    A discrepancy is called a finding.

    Attributes:
        digests_checked: Whether the digests in event ids were verified, which requires that all
            host ids are known.
        types: Counts by event type.
        files: Counts of each source file.
        counts: Number of findings by kind, 0 for kinds without findings.
        findings: At most 20 findings of each kind, sorted by kind.
        destroyed: Number of events that Kafka lost and that are in no bucket.
        beyond: Number of events of optional lines, which follow the size that the expectations
            state for their file.
        posted: Number of events sent to the HTTP API that were found in buckets or dead letters.
        others: Number of events of files that the expectations do not list.
        removed: Number of lines and API records without an event that may have been in buckets that
            were removed by retention. It is at most the number of events in these buckets.
    """

    digests_checked: bool = False
    types: dict[str, TypeCount] = dataclasses.field(default_factory=dict)
    files: list[FileCount] = dataclasses.field(default_factory=list)
    counts: dict[FindingKind, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(FindingKind, 0)
    )
    findings: list[JudgeFinding] = dataclasses.field(default_factory=list)
    destroyed: int = 0
    beyond: int = 0
    posted: int = 0
    others: int = 0
    removed: int = 0

    def add(self, kind: FindingKind, path: str, detail: str, position: int | None = None) -> None:
        """Count a finding, and store it unless 20 findings of its kind are already stored.

        Args:
            kind: Kind of the finding.
            path: Path of the source file or the bucket.
            detail: Description for the user.
            position: Byte offset in the source file; None for a bucket.
        """
        self.counts[kind] += 1
        if self.counts[kind] <= STORED_FINDINGS_MAX:
            self.findings.append(JudgeFinding(kind, path, position, detail))
            self.findings.sort(key=lambda finding: [*FindingKind].index(finding.kind))

    def type_count(self, event_type: str) -> TypeCount:
        """Return the counts of an event type. The caller may modify them.

        Args:
            event_type: Name of the event type.

        Returns:
            The stored counts, not a copy. All counts are 0 on the first call for a type.
        """
        return self.types.setdefault(event_type, TypeCount())

    @property
    def compared(self) -> int:
        """Number of events and dead letters that were compared with their source line or API record."""
        return self.posted + sum(file.in_buckets + file.dead_letters for file in self.files)

    @property
    def passed(self) -> bool:
        """True if there are no findings and at least one event was compared."""
        return self.compared > 0 and not any(self.counts.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dictionary.

        Returns:
            A dictionary with these keys: `content`, the value of `passed`; `compared`; each kind of
            finding, with its count; the other attributes under their names.
        """
        fields = dataclasses.asdict(self)
        return {
            "content": self.passed,
            "compared": self.compared,
            **fields.pop("counts"),
            **fields,
        }

    def as_text(self) -> str:
        """Render the report as text for the terminal.

        Returns:
            A table of event types, the findings, and the totals.
        """
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
            f"{self.removed:,} removed; "
            f"{sum(file.blanks for file in self.files):,} blank lines"
        )
        total = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        return "\n".join([*lines, f"{'content' if self.passed else 'NOT content'}: {total}"])
