"""Parses existing lines under new declarations: sample lines, and dead letters. No I/O."""

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
from hourmark_declare.line_trial import LineTrial, ReadContext

_REFUSED_SHOWN: Final = 5
EVENT, BLANK, UNKNOWN = "event", "blank", "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleLines:
    """Sample lines of one log source for testing new declarations.

    Attributes:
        source: Name of the source, as declared in `sources.toml`.
        lines: Lines without line feeds.
        context: Host, time and time zone of the lines.
    """

    source: str
    lines: Sequence[bytes]
    context: ReadContext


def check_samples(latest: Rules | None, declared: Declarations, samples: SampleLines) -> int:
    """Check that sample lines that currently become events still do so with new declarations.

    Args:
        latest: Active rules, with the applied types and sources; None if no types have been
            applied.
        declared: New declarations of event types and sources.
        samples: Lines to parse.

    Returns:
        The number of events that the lines produce with the new declarations.

    Raises:
        UsageError: A line that is an event under the active rules would become a dead letter (a
            line that cannot be parsed). The message shows up to five such lines.
    """
    after = [
        *LineTrial.from_declarations(declared).parse_lines(
            samples.source, samples.lines, samples.context
        )
    ]
    if latest is not None:
        events = {
            t.line
            for t in LineTrial(latest).parse_lines(samples.source, samples.lines, samples.context)
            if t.is_event
        }
        if refused := [t for t in after if t.reason is not None and t.line in events]:
            shown = "; ".join(
                f"line {t.line}: {t.reason}: {t.detail}" for t in refused[:_REFUSED_SHOWN]
            )
            raise UsageError(
                f"{len(refused)} of {len(samples.lines)} sample lines of source {samples.source} "
                f"are events under revision {latest.id} and would become dead letters: "
                f"{shown}{'; ...' if len(refused) > _REFUSED_SHOWN else ''}. Nothing was changed. Change "
                "the declarations so that they accept these lines, or confirm the change with "
                "--refuse-lines"
            )
    return sum(t.is_event for t in after)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReparsedDeadLetters:
    """A group of dead letters (lines that could not be parsed) with the same result of reparsing.

    Attributes:
        source: Name of the declared source of the lines.
        type: Name of the event type that the lines themselves specified, for example in their
            syslog header; None if there is none.
        reason: Code of the reason why the lines became dead letters.
        now: Result of parsing the lines again: `event`, `blank`, or a reason code if they would
            become dead letters again; `unknown` if they cannot be parsed again.
        detail: Explanation of `now` for the first dead letter of the group; may be empty.
        letters: Number of dead letters in the group.
    """

    source: str
    type: str | None
    reason: str
    now: str
    detail: str
    letters: int

    @property
    def stay_dead_letters(self) -> bool:
        """Return whether the lines of this group would become dead letters again.

        Returns:
            False if the lines would become events, are blank, or cannot be parsed again.
        """
        return self.now not in (EVENT, BLANK, UNKNOWN)

    def __str__(self) -> str:
        would = {
            EVENT: "would be events now",
            BLANK: "would produce no record now",
            UNKNOWN: "cannot be parsed again here",
        }
        result = would.get(self.now, f"would be dead letters again, {self.now}")
        of = f"source {self.source}, type {self.type or '-'}"
        return (
            f"{of}: {self.letters:,} dead letters {self.reason} "
            f"{result}{f': {self.detail}' if self.detail else ''}"
        )


def reparse_dead_letters(
    declared: Declarations, letters: Iterable[Mapping[str, Any]]
) -> list[ReparsedDeadLetters]:
    """Parse dead letters (lines that could not be parsed) again with new declarations.

    Nothing is written. Use the result to verify that corrected declarations parse the lines.

    Args:
        declared: New declarations of event types and sources.
        letters: Decoded Avro records of dead letters, with field names as keys.

    Returns:
        One group for each combination of source, type, reason and new result, the largest group
        first. Empty if there are no dead letters.
    """
    trial, names = LineTrial.from_declarations(declared), [s.name for s in declared.sources]
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
        ReparsedDeadLetters(
            source=source,
            type=of,
            reason=reason,
            now=now,
            detail=details[source, of, reason, now],
            letters=count,
        )
        for (source, of, reason, now), count in counts.most_common()
    ]


def _now(trial: LineTrial, names: Sequence[str], letter: Mapping[str, Any]) -> tuple[str, str]:
    source, reason = letter["declared_source"], letter["reason"]
    if letter["file"] is None:
        return UNKNOWN, f"it was posted by a program and not read from a file: {letter['detail']}"
    if source not in names:
        near = difflib.get_close_matches(source, names, n=1)
        return DeadLetterReason.UNKNOWN_SOURCE.value, f"no source {source} is declared here" + (
            f"; did you mean {near[0]}?" if near else ""
        )
    if reason == DeadLetterReason.LINE_TOO_LONG.value or not (
        letter["raw"] or reason == DeadLetterReason.EMPTY_LINE.value
    ):
        return UNKNOWN, f"the line is not available: {letter['detail']}"
    context = ReadContext(
        observed_at_ms=unix_ms(letter["event_time"]), zone="UTC", host=letter["host"]
    )
    (tried, *_) = trial.parse_line(source, letter["raw"], context)
    if tried.reason is not None:
        return tried.reason, tried.detail or ""
    return (EVENT if tried.is_event else BLANK), ""
