"""Checks what `hourmark status` reports of components, hosts and event types while they run.

A dead driver, a mirror that copies nothing, clocks that are apart, blocked ranges and overdue hours
are found where `hourmark status` finds them, so both commands say the same. Servers have checks of
their own and are left out.
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

    The status is determined in the same way as by `hourmark status`. It includes the hosts that
    send log lines and the event types.

    Args:
        config: Configuration of the components.

    Yields:
        Findings and other results, as described for `evaluate_components`.
    """
    statuses = component_statuses(config, SystemClock(), {**COMPONENTS, **ASPECTS})
    yield from evaluate_components(statuses)


def evaluate_components(statuses: Mapping[str, ComponentStatus]) -> Iterator[DoctorCheckResult]:
    """Convert the statuses of components to results of `hourmark doctor`.

    Problems of servers, such as a Kafka cluster that does not answer, are omitted, because other
    checks report them.

    Args:
        statuses: Status of each component, such as the ETL, and of other subjects, such as hosts,
            by name.

    Yields:
        First a finding for each problem, causes before their consequences. Then, for each status
        without problems, a passed result if the component is running, otherwise a skipped result.
    """
    problems = [problem for status in statuses.values() for problem in status.problems]
    for problem in order_problems(problems):
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
