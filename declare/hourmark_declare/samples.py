"""Lines that came, under new declarations: samples that were events before, and dead letters that
are at hand. Pure.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hourmark.avro.framing import unix_ms
from hourmark.errors import UsageError
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.rules.event_types import Declarations
from hourmark.rules.revision import Rules
from hourmark_declare.trying import Place, Trial

_TOLD: Final = 5
EVENT, BLANK, UNKNOWN = "event", "blank", "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Lines of a declared source, LFs taken off, and where they would have been read."""

    source: str
    lines: Sequence[bytes]
    place: Place


def check_samples(latest: Rules | None, declared: Declarations, samples: Samples) -> int:
    """How many of the lines are events under the declarations.

    UsageError, naming lines, where one that is an event under the rules in force would become a
    dead letter.
    """
    after = [*Trial.of(declared).of_lines(samples.source, samples.lines, samples.place)]
    if latest is not None:
        events = {
            t.line
            for t in Trial(latest).of_lines(samples.source, samples.lines, samples.place)
            if t.is_event
        }
        if refused := [t for t in after if t.reason is not None and t.line in events]:
            told = "; ".join(f"line {t.line}: {t.reason}: {t.detail}" for t in refused[:_TOLD])
            raise UsageError(
                f"{len(refused)} of {len(samples.lines)} sample lines of source "
                f"{samples.source} are events under revision "
                f"{latest.id} and would become dead letters: "
                f"{told}{'; ...' if len(refused) > _TOLD else ''}. Nothing was "
                "changed. Declare it so that they are accepted, or mean it with --refuse-lines"
            )
    return sum(t.is_event for t in after)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Again:
    """Dead letters of one kind, and what these declarations make of their lines.

    `now`: `event`, `blank`, a reason, or `unknown`: what cannot be parsed again here, as `detail`
    says.
    """

    source: str
    type: str | None
    reason: str
    now: str
    detail: str
    letters: int

    @property
    def stays(self) -> bool:
        """Whether such a line would be a dead letter again."""
        return self.now not in (EVENT, BLANK, UNKNOWN)

    def __str__(self) -> str:
        would = {
            EVENT: "would be events now",
            BLANK: "would make no record now",
            UNKNOWN: "cannot be parsed again here",
        }
        told = would.get(self.now, f"would be dead letters again, {self.now}")
        of = f"source {self.source}, type {self.type or '-'}"
        return (
            f"{of}: {self.letters:,} dead letters {self.reason} "
            f"{told}{f': {self.detail}' if self.detail else ''}"
        )


def parsed_again(declared: Declarations, letters: Iterable[Mapping[str, Any]]) -> list[Again]:
    """Dead letters by source, type, reason and what becomes of them now, most frequent first;
    `detail` is of the first.
    """
    trial, names = Trial.of(declared), [s.name for s in declared.sources]
    counts, details = (
        collections.Counter[tuple[str, str | None, str, str]](),
        dict[tuple[str, str | None, str, str], str](),
    )
    for letter in letters:
        now, detail = _now(trial, names, letter)
        kind = (letter["declared_source"], letter["claimed_type"], letter["reason"], now)
        counts[kind] += 1
        details.setdefault(kind, detail)
    return [
        Again(
            source=source,
            type=of,
            reason=reason,
            now=now,
            detail=details[source, of, reason, now],
            letters=count,
        )
        for (source, of, reason, now), count in counts.most_common()
    ]


def _now(trial: Trial, names: Sequence[str], letter: Mapping[str, Any]) -> tuple[str, str]:
    source, reason = letter["declared_source"], letter["reason"]
    if letter["file"] is None:
        return UNKNOWN, f"posted by a program, not read from a file: {letter['detail']}"
    if source not in names:
        near = difflib.get_close_matches(source, names, n=1)
        return DeadLetterReason.UNKNOWN_SOURCE.value, f"no source {source} is declared here" + (
            f"; is {near[0]} meant?" if near else ""
        )
    if reason == DeadLetterReason.LINE_TOO_LONG.value or not (
        letter["raw"] or reason == DeadLetterReason.EMPTY_LINE.value
    ):
        return UNKNOWN, f"the line is not at hand: {letter['detail']}"
    place = Place(observed_at_ms=unix_ms(letter["event_time"]), zone="UTC", host=letter["host"])
    (tried, *_) = trial.of_line(source, letter["raw"], place)
    if tried.reason is not None:
        return tried.reason, tried.detail or ""
    return (EVENT if tried.is_event else BLANK), ""
