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
    """Check components, hosts and event types as `hourmark status` does.

    Args:
        config: The configuration.

    Yields:
        The results of `evaluate_components`.
    """
    statuses = component_statuses(config, SystemClock(), {**COMPONENTS, **ASPECTS})
    yield from evaluate_components(statuses)


def evaluate_components(statuses: Mapping[str, ComponentStatus]) -> Iterator[DoctorCheckResult]:
    """Turn statuses into results, causes before consequences.

    Args:
        statuses: Status of each component and aspect by name.

    Yields:
        A finding for each problem, except for those of servers; then a passed result for each
        component that runs without a problem, and a skipped one for each other component.
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
