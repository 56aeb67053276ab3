"""Checks what `hourmark status` reports of components, hosts and event types while they run.

This check finds a dead driver, a mirror that copies nothing, clock differences, blocked ranges and
overdue hours. It uses the code of `hourmark status`, so both commands report the same. Servers are
omitted, because they have separate checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hourmark.clock import SystemClock
from hourmark.commands.component_status import (
    ASPECTS,
    COMPONENTS,
    ComponentState,
    ComponentStatus,
    component_statuses,
    list_problems,
)
from hourmark.commands.problems import CauseClass, Problem, order_problems
from hourmark.config.loading import Config
from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)

CHECK: Final = "components"


def check_components(config: Config) -> Iterator[DoctorCheckResult]:
    """Check the status of Hourmark's components, such as the delivery service and the ETL.

    As in `hourmark status`, the event types and the hosts that send log lines are checked, too.

    Args:
        config: Configuration of the components.

    Yields:
        The results of `evaluate_components`.
    """
    statuses = component_statuses(config, SystemClock(), {**COMPONENTS, **ASPECTS})
    yield from evaluate_components(statuses)


def evaluate_components(statuses: Mapping[str, ComponentStatus]) -> Iterator[DoctorCheckResult]:
    """Convert the status of each component to results of `hourmark doctor`.

    Server problems, such as a Kafka cluster that does not respond, are omitted, because other
    checks report them.

    Args:
        statuses: Maps the names of components (such as the ETL) and other subjects (such as hosts)
            to their status.

    Yields:
        First, a finding for each problem, causes before consequences. Then, for each status without
        problems, a passed result if the component is running, and a skipped result otherwise.
    """
    for problem in order_problems(list_problems(statuses)):
        if problem.cause is not CauseClass.SERVER:
            yield finding_result(
                CHECK, problem.subject, _seen(problem), problem.do, key=_key(problem)
            )
    for name, status in statuses.items():
        if status.problems:
            continue
        result = passed_result if status.state is ComponentState.RUNNING else skipped_result
        yield result(CHECK, name, status.detail)


def _seen(problem: Problem) -> str:
    examples = f"such as {', '.join(problem.examples)}: " if problem.examples else ""
    return f"{examples}{problem.what}"


def _key(problem: Problem) -> str:
    # All clocks are compared by the check of clocks; here only if that check saw nothing.
    return "clock" if problem.cause is CauseClass.CLOCK else problem.key
