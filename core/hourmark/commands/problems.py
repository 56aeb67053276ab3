"""Problems that `hourmark status` and `hourmark doctor` report: their order, and each only once.

Components, servers and event types find problems independently of each other, so one fault may be
found in several places. A problem therefore has a key that identifies the faulty object, and a
cause class by which problems are sorted: a dead server comes before the component that needs it,
and both come before the event types that wait. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

EXAMPLES_MAX: Final = 3


class CauseClass(IntEnum):
    """The kind of object that a problem concerns. Smaller values cause greater ones."""

    CLOCK = 1
    SERVER = 2
    COMPONENT = 3
    HOST = 4
    TYPES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A condition that an operator must resolve.

    Attributes:
        cause: Kind of the object that the problem concerns.
        key: Identifies the object, such as `host:` and a host id. Of problems with the same key,
            the first one is reported.
        subject: Name of the object for the operator, such as `etl driver`.
        what: Readable description of the problem.
        do: Readable next step.
        since_ms: Time at which the problem began, Unix milliseconds; None if unknown.
        count: Number of objects that the problem concerns.
        examples: Names of some of these objects; empty if `subject` is the only one.
        group: Plural name of objects that may have the same problem, such as `tailers without a
            report`. Problems of a group are merged if there are more than three; empty for a
            problem that always stands alone.
    """

    cause: CauseClass
    key: str
    subject: str
    what: str
    do: str
    since_ms: int | None = None
    count: int = 1
    examples: tuple[str, ...] = ()
    group: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the problem as values that `json.dumps` accepts, without its key."""
        return {
            "cause": self.cause.name.lower(),
            "subject": self.subject,
            "what": self.what,
            "do": self.do,
            "since_ms": self.since_ms,
            "count": self.count,
            "examples": list(self.examples),
        }


def silent_host_problem(kind: str, host_name: str, host_id: str, heard_at_ms: int) -> Problem:
    """Describe a tailer or delivery service that stopped to report without a goodbye.

    Args:
        kind: `tailer` or `service`.
        host_name: Name of the host.
        host_id: Id of the host.
        heard_at_ms: Time of its last report, Unix milliseconds.
    """
    if kind == "service":
        subject, group = f"delivery service {host_name}", "delivery services without a report"
        what = "it has stopped to report, without a goodbye"
        do = f"on {host_name}: see its log; `hourmark serve` starts it again"
    else:
        subject, group = f"tailer {host_name}", "tailers without a report"
        what = "it has stopped to report, without a goodbye; hours of its sources wait for it"
        do = (
            f"on {host_name}: see its log; `hourmark tail` starts it again. A host that is lost is "
            "waived at the deadline (etl.deadline_seconds)"
        )
    return Problem(
        cause=CauseClass.HOST,
        key=f"host:{host_id}",
        subject=subject,
        what=what,
        do=do,
        since_ms=heard_at_ms,
        group=group,
    )


def order_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return each problem once, causes before consequences.

    Args:
        problems: Problems from all sources, the most precise source of a key first.

    Returns:
        The first problem of each key, sorted by cause class, then by time with the oldest first;
        problems with an unknown beginning are last in their class. Large groups are merged.
    """
    by_key: dict[str, Problem] = {}
    for problem in problems:
        by_key.setdefault(problem.key, problem)
    found = sorted(by_key.values(), key=_order)
    groups: dict[str, list[Problem]] = {}
    for problem in found:
        groups.setdefault(problem.group or problem.key, []).append(problem)
    merged = [_merge(members) for members in groups.values() if len(members) > EXAMPLES_MAX]
    alone = [p for members in groups.values() if len(members) <= EXAMPLES_MAX for p in members]
    return sorted([*merged, *alone], key=_order)


def _order(problem: Problem) -> tuple[int, bool, int, str]:
    return (problem.cause, problem.since_ms is None, problem.since_ms or 0, problem.subject)


def _merge(members: Sequence[Problem]) -> Problem:
    first = members[0]
    return dataclasses.replace(
        first,
        key=first.group,
        subject=f"{len(members)} {first.group}",
        what=f"{first.subject}: {first.what}",
        count=len(members),
        examples=tuple(member.subject for member in members[:EXAMPLES_MAX]),
    )


def name_some(names: Sequence[str]) -> str:
    """Return a readable enumeration of at most three names and the number of the others.

    Args:
        names: At least one name.
    """
    more = len(names) - EXAMPLES_MAX
    shown = ", ".join(names[:EXAMPLES_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
