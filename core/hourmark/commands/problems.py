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
# Hours do not wait for a service that was silent for so long, while another one reports.
SERVICE_REPLACED_MS: Final = 600_000


class CauseClass(IntEnum):
    """The kind of object that has a problem, ordered from causes to consequences.

    A problem with a lower value can cause problems with higher values, so it is listed first. For
    example, a broker that is down (`SERVER`) stops the ETL (`COMPONENT`).

    Attributes:
        CLOCK: The clock of a machine.
        SERVER: A server that Hourmark uses, such as a Kafka broker.
        COMPONENT: A component of Hourmark, such as the ETL.
        HOST: The tailer (log shipper) or the delivery service of one host.
        TYPES: Event types, such as those whose buckets are not closed in time.
    """

    CLOCK = 1
    SERVER = 2
    COMPONENT = 3
    HOST = 4
    TYPES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem that an operator must resolve, as shown by `hourmark status`.

    Attributes:
        cause: Kind of the faulty object. Problems are sorted by it.
        key: Id of the faulty object, such as `host:<host id>`. If several problems have the same
            key, only the first one is reported.
        subject: Human-readable name of the faulty object, such as `etl driver`.
        what: Description of the problem.
        do: What the operator should do next.
        since_ms: Start of the problem, in Unix milliseconds; None if unknown.
        count: Number of objects that have the problem.
        examples: Names of some of these objects; empty if `subject` is the only one.
        group: Plural name of objects with this problem, such as `tailers without a report`. If a
            group has more than three problems, they are merged into one. Empty if the problem is
            never merged.
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
        """Return the problem as a JSON-serializable dict, without `key` and `group`.

        The value of `cause` is the name of the class in lower case, such as `server`.
        """
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
    """Create a `Problem` for a tailer or delivery service that stopped sending reports.

    Both components send a final report before a clean shutdown. Call this function if the latest
    report is old and not final, which means that the process has probably crashed.

    Args:
        kind: Component: `tailer` or `service`.
        host_name: Name of the host.
        host_id: Id of the host, part of the problem's key.
        heard_at_ms: Time of the latest report, in Unix milliseconds.

    Returns:
        A problem of the class `HOST`, with the next step for the operator.
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
    """Sort problems so that causes come before their consequences, and remove duplicates.

    Args:
        problems: Problems from all checks. If several problems have the same key, only the first
            one is kept.

    Returns:
        The problems, sorted by `cause`, then by `since_ms`. Problems with an unknown start come
        last among those with the same cause. If a group has more than three problems, they are
        merged into one.
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
