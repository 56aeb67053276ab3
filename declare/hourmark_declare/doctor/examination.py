"""Asks all kinds at once, for a bounded time: a server that is away, or hangs, is a finding, and
keeps none from being asked.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError
from hourmark.process.parallel_calls import call_all
from hourmark_declare.doctor import (
    clocks_asked,
    kafka_asked,
    ledger_asked,
    machine_asked,
    registry_asked,
    retention_asked,
    services_asked,
    storage_asked,
)
from hourmark_declare.doctor.finding import Answer, finding

Ask = Callable[[Config], Iterator[Answer]]
ANSWER_SECONDS: Final = 60.0  # Kafka's own client takes 15 s for a question
CHECKS: Final[Mapping[str, Ask]] = {
    "machine": machine_asked.ask,
    "clocks": clocks_asked.ask,
    "kafka": kafka_asked.ask,
    "services": services_asked.ask,
    "registry": registry_asked.ask,
    "ledger": ledger_asked.ask,
    "storage": storage_asked.ask,
    "retention": retention_asked.ask,
}


def examine(
    config: Config,
    only: Sequence[str] = (),
    table: Mapping[str, Ask] = CHECKS,
    seconds: float = ANSWER_SECONDS,
) -> list[Answer]:
    """What there is to say of each kind of `only` (none: of all), in the order of the table.

    Takes no longer than `seconds`.
    """
    kinds = {kind: ask for kind, ask in table.items() if not only or kind in only}
    told = {kind: functools.partial(_told, kind, ask, config) for kind, ask in kinds.items()}
    found = call_all(told, seconds)
    return [answer for kind in kinds for answer in found.get(kind, [_late(kind, seconds)])]


def _told(kind: str, ask: Ask, config: Config) -> list[Answer]:
    """What was said until something kept it from going on, and that."""
    answers = []
    try:
        for answer in ask(config):
            answers.append(_redacted(answer))  # one by one: what came before an error counts
    except HourmarkError as error:
        answers.append(
            finding(
                kind,
                "server",
                redact(str(error)),
                "see that it runs, and that the configuration names it",
            )
        )
    except Exception as error:  # noqa: BLE001  # the others' answers must not be lost to it
        said = redact(f"{type(error).__name__}: {error}")
        answers.append(
            finding(
                kind,
                "doctor",
                f"it could not look at all: {said}",
                "look at it by hand, and report this",
            )
        )
    return answers


def _redacted(answer: Answer) -> Answer:
    """The answer without secrets: its subject may be an address, and what was seen an error of a
    library.
    """
    return dataclasses.replace(
        answer, subject=redact(answer.subject), seen=redact(answer.seen), to_do=redact(answer.to_do)
    )


def _late(kind: str, seconds: float) -> Answer:
    return finding(
        kind,
        "server",
        f"no answer within {seconds:g} s",
        "see that it runs and is not overloaded, then ask again",
    )
