"""Runs all checks concurrently with a time limit, so that no server delays the other checks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from hourmark.commands.server_status import stopped_local_stack
from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError
from hourmark.process.parallel_calls import call_all
from hourmark_declare.doctor import (
    clocks_check,
    components_check,
    kafka_check,
    ledger_check,
    machine_check,
    registry_check,
    retention_check,
    services_check,
    storage_check,
)
from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    skipped_result,
)

CheckFunction = Callable[[Config], Iterator[DoctorCheckResult]]
ANSWER_SECONDS: Final = 60.0  # a request of the Kafka client takes up to 15 s
CHECKS: Final[Mapping[str, CheckFunction]] = {
    # in this order: what may cause the faults of those below
    "machine": machine_check.check_machine,
    "clocks": clocks_check.check_clocks,
    "kafka": kafka_check.check_kafka,
    "registry": registry_check.check_registry,
    "ledger": ledger_check.check_ledger,
    "storage": storage_check.check_storage,
    "services": services_check.check_services,
    "components": components_check.check_components,
    "retention": retention_check.check_retention,
}
_WITHOUT_SERVERS: Final = ("machine",)


def run_checks(
    config: Config,
    only: Sequence[str] = (),
    table: Mapping[str, CheckFunction] = CHECKS,
    seconds: float = ANSWER_SECONDS,
) -> list[DoctorCheckResult]:
    """Run the selected checks concurrently and return their results.

    A check that raises an exception or exceeds the time limit produces a finding; no exception is
    propagated. Secrets in the results are redacted.

    Args:
        config: Configuration with the addresses of the servers to check.
        only: Names of the checks to run; empty for all checks.
        table: Maps each check name to its function.
        seconds: Total time limit in seconds.

    Returns:
        The results of all selected checks, in the order of `table`. A check may have several
        results. If several checks find the same fault, only the first of them reports it. If
        `hourmark down` has stopped the local stack, the first result is a finding that says so, and
        checks of servers are skipped.
    """
    selected = {kind: ask for kind, ask in table.items() if not only or kind in only}
    stopped = None
    with suppress(HourmarkError):  # an unreadable state file of the stack must not end the checks
        stopped = stopped_local_stack(config)
    if stopped is None:
        return _run_selected(config, selected, seconds)
    asked = {kind: ask for kind, ask in selected.items() if kind in _WITHOUT_SERVERS}
    subject = f"{stopped.name} ({stopped.address})"
    return [
        finding_result("stack", subject, stopped.detail, stopped.do),
        *_run_selected(config, asked, seconds),
        *(
            skipped_result(kind, "all of it", "the local stack is stopped")
            for kind in selected
            if kind not in asked
        ),
    ]


def _run_selected(
    config: Config, selected: Mapping[str, CheckFunction], seconds: float
) -> list[DoctorCheckResult]:
    told = {
        kind: functools.partial(_run_check, kind, ask, config) for kind, ask in selected.items()
    }
    found = call_all(told, seconds)
    answers = [found.get(kind, [_timed_out(kind, seconds)]) for kind in selected]
    return list(_each_fault_once(answers))


def _each_fault_once(
    answers: Iterable[Sequence[DoctorCheckResult]],
) -> Iterator[DoctorCheckResult]:
    earlier: set[str] = set()
    for of_one_check in answers:
        kept = [answer for answer in of_one_check if answer.key not in earlier]
        yield from kept
        earlier |= {answer.key for answer in kept if answer.key}


def _run_check(kind: str, ask: CheckFunction, config: Config) -> list[DoctorCheckResult]:
    answers = []
    try:
        for answer in ask(config):
            answers.append(_redacted(answer))  # one by one, to keep the results before an error
    except HourmarkError as error:
        answers.append(
            finding_result(
                kind,
                "server",
                redact(str(error)),
                "check that it runs, and that the configuration names it",
            )
        )
    except Exception as error:  # noqa: BLE001  # the results of other checks must not be lost
        said = redact(f"{type(error).__name__}: {error}")
        answers.append(
            finding_result(
                kind,
                "doctor",
                f"the check failed: {said}",
                "check it manually, and report this error",
            )
        )
    return answers


def _redacted(answer: DoctorCheckResult) -> DoctorCheckResult:
    return dataclasses.replace(
        answer, subject=redact(answer.subject), seen=redact(answer.seen), to_do=redact(answer.to_do)
    )


def _timed_out(kind: str, seconds: float) -> DoctorCheckResult:
    return finding_result(
        kind,
        "server",
        f"no answer within {seconds:g} s",
        "check that it runs and is not overloaded, then try again",
    )
