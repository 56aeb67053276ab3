"""Dead letters for operators: filtering, counting by group, and formatting. Pure.

A dead letter is an input line that could not be converted to an event. It contains the raw bytes
and the reason.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark.avro.framing import unix_ms
from hourmark_etl.buckets.reader import Event
from hourmark_etl.humanize import format_iso

STEPS_SHOWN: Final = 5
GROUPS_MAX: Final = 10_000  # further groups are counted together
_OTHER: Final = "(other)"
_RAW_CHARS_MAX: Final = 300
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class DeadLetterFilter(NamedTuple):
    """Filter for dead letters, which are input lines that could not be converted to events.

    An empty sequence accepts every value of its field.

    Attributes:
        reasons: Accepted reasons, for example `bad_json`.
        types: Accepted event types, as claimed by the lines.
        sources: Accepted names of log sources or API clients, as declared in the configuration.
        hosts: Accepted host names.
        since_ms: Start of the accepted time of observation, Unix milliseconds, inclusive.
        until_ms: End of the accepted time of observation, Unix milliseconds, exclusive.
    """

    reasons: Sequence[str] = ()
    types: Sequence[str] = ()
    sources: Sequence[str] = ()
    hosts: Sequence[str] = ()
    since_ms: int = 0
    until_ms: int = 1 << 62

    def matches(self, dead_letter: Event) -> bool:
        """Return whether a dead letter satisfies all conditions of the filter.

        Args:
            dead_letter: Decoded dead letter, by field name. A missing field only matches an empty
                condition.

        Returns:
            True if the reason, claimed type, source, host and time of observation are all accepted.
        """
        named = (self.reasons, self.types, self.sources, self.hosts)
        fields = ("reason", "claimed_type", "declared_source", "host")
        return self.since_ms <= unix_ms(dead_letter["event_time"]) < self.until_ms and all(
            not wanted or dead_letter.get(field) in wanted
            for wanted, field in zip(named, fields, strict=True)
        )


GROUPS: Final[Mapping[str, Callable[[Event], Any]]] = {
    "reason": lambda letter: letter["reason"],
    "type": lambda letter: letter["claimed_type"],
    "source": lambda letter: letter["declared_source"],
    "host": lambda letter: letter["host"],
    "hour": lambda letter: letter["event_time"].strftime("%Y-%m-%dT%H"),
}


@dataclasses.dataclass(slots=True)
class DeadLetterCount:
    """Number of dead letters in a group, and the time span in which they were observed.

    Attributes:
        letters: Number of dead letters.
        first: Earliest time of observation as ISO 8601 text. For an empty group, this is `~`, which
            sorts after every time.
        last: Latest time of observation as ISO 8601 text; "" for an empty group.
    """

    letters: int = 0
    first: str = "~"
    last: str = ""

    def add(self, time: str) -> None:
        """Add one dead letter to the group and extend its time span.

        Args:
            time: Time of observation as ISO 8601 text in UTC.
        """
        self.letters += 1
        self.first, self.last = min(self.first, time), max(self.last, time)


class FilteredDeadLetters:
    """Iterable over the dead letters that match a filter, with statistics about the input.

    Dead letters are input lines that could not be converted to events. The object can be iterated
    only once. The statistics are complete after the iteration.

    Attributes:
        is_complete: Whether the input contains all dead letters of the requested time span, not
            only the newest ones.
        read_count: Number of dead letters read so far.
        match_count: Number of dead letters read so far that match the filter.
        oldest: Earliest time of observation read so far, as ISO 8601 text; None before the first.
    """

    def __init__(
        self, letter_filter: DeadLetterFilter, dead_letters: Iterator[Event], *, is_complete: bool
    ) -> None:
        """Create the iterable. No dead letter is read before the iteration.

        Args:
            letter_filter: Filter that selects the dead letters to yield.
            dead_letters: Decoded dead letters to filter.
            is_complete: Whether `dead_letters` contains all dead letters of the requested time
                span, not only the newest ones.
        """
        self._filter, self._dead_letters, self.is_complete = (
            letter_filter,
            dead_letters,
            is_complete,
        )
        self.read_count = self.match_count = 0
        self.oldest: str | None = None

    def __iter__(self) -> Iterator[Event]:
        for letter in self._dead_letters:
            self.read_count += 1
            time = format_iso(unix_ms(letter["event_time"]))
            self.oldest = time if self.oldest is None else min(self.oldest, time)
            if self._filter.matches(letter):
                self.match_count += 1
                yield letter

    def __str__(self) -> str:
        if not self.read_count:
            return "no dead letter was found"
        return (
            f"{self.match_count:,} of {self.read_count:,} dead letters that were read match, back to "
            f"{self.oldest}"
        )


def count_by(
    fields: Sequence[str], dead_letters: Iterable[Event]
) -> dict[tuple[str, ...], DeadLetterCount]:
    """Group dead letters by the values of some fields, and count each group.

    Args:
        fields: Names of the fields to group by; each is a key of `GROUPS`, such as `reason` or
            `host`.
        dead_letters: Decoded dead letters (lines that could not be converted to events).

    Returns:
        Counts by tuple of values in the order of `fields`. A missing value is "-". After 10,000
        distinct tuples (`GROUPS_MAX`), all further tuples are counted together as "(other)".
    """
    counts: dict[tuple[str, ...], DeadLetterCount] = {}
    for letter in dead_letters:
        key = tuple(
            "-" if (value := GROUPS[group](letter)) is None else str(value) for group in fields
        )
        if key not in counts and len(counts) >= GROUPS_MAX:
            key = (_OTHER,) * len(fields)
        counts.setdefault(key, DeadLetterCount()).add(format_iso(unix_ms(letter["event_time"])))
    return counts


def observation_order(dead_letter: Event) -> tuple[Any, ...]:
    """Return a key that sorts dead letters by time of observation, then by source and position.

    Args:
        dead_letter: Decoded dead letter (line that could not be converted to an event).

    Returns:
        Tuple for the parameter `key` of `sorted`.
    """
    return dead_letter["event_time"], dead_letter["source"], dead_letter["position"]


def format_dead_letter(dead_letter: Event) -> Iterator[str]:
    """Yield a description of a dead letter as lines of text for the terminal.

    The lines contain the reason, the raw input line, its origin, and its position in the file.
    Non-printable characters are escaped, so that the input cannot control the terminal.

    Args:
        dead_letter: Decoded dead letter (line that could not be converted to an event).

    Yields:
        A headline with time and reason, then one line for each further part.
    """
    file = dead_letter["file"]
    yield f"{format_iso(unix_ms(dead_letter['event_time']))} {dead_letter['reason']}: {_printable(dead_letter['detail'])}"
    yield f"  line    {_shown(dead_letter['raw'])}"
    yield (
        f"  of      host {_printable(dead_letter['host'])}, source "
        f"{_printable(dead_letter['declared_source'])}, "
        f"type {_printable(dead_letter['claimed_type'] or '-')}, rules {dead_letter['rules']}"
    )
    yield f"  range   {dead_letter['range_id'].hex()} [{dead_letter['range_start']}, {dead_letter['range_end']})"
    if file is None:
        yield f"  place   line {dead_letter['position']} of a batch of {_printable(dead_letter['source'])}"
        return
    path = _printable(dead_letter["source"])
    yield (
        f"  place   {path} at byte {dead_letter['position']}, file {file['id']} generation "
        f"{file['generation']}"
    )
    size = len(dead_letter["raw"]) + 1
    if path == dead_letter["source"]:
        yield (
            f"  there   tail -c +{dead_letter['position'] + 1} {shlex.quote(path)} | head -c "
            f"{size}    (unless the file was renamed)"
        )


def format_next_steps(dead_letters: Iterable[Event]) -> Iterator[str]:
    """Yield the recommended next step for each source and reason of some dead letters, as text.

    Args:
        dead_letters: Decoded dead letters (lines that could not be converted to events).

    Yields:
        One line for each source and reason. If there are more than five (`STEPS_SHOWN`), one line
        states the number of the others. The last line names the runbook. Nothing is yielded if
        there are no dead letters.
    """
    groups: dict[tuple[str, str], list[Event]] = {}
    for letter in dead_letters:
        groups.setdefault((letter["declared_source"], letter["reason"]), []).append(letter)
    for (source, reason), letters in [*groups.items()][:STEPS_SHOWN]:
        yield f"next: source {_printable(source)}, {reason}: {_next_step(letters[0])}"
    if (more := len(groups) - STEPS_SHOWN) > 0:
        yield f"next: {more} more sources and reasons: `hourmark dead-letters ls` counts them"
    if groups:
        yield (
            "these lines are kept, and are not parsed again: "
            "docs/runbooks/dead-letters-rising.md describes how to send them again"
        )


def _next_step(letter: Event) -> str:
    source, host = (_printable(letter[name]) for name in ("declared_source", "host"))
    claimed = letter["claimed_type"]
    declaration = f"the declaration of {_printable(claimed)}" if claimed else "the declaration"
    match letter["reason"]:
        case "future" | "too_late":
            return (
                f"compare the clock of {host} (`hourmark doctor --only clocks`); if lines may "
                "have such timestamps, raise `lateness_seconds` or `future_seconds` in "
                "types/sources.toml, then run `hourmark types apply`"
            )
        case "unknown_source":
            return (
                f"correct the name in tailer.sources on {host}, or declare the source and run "
                "`hourmark types apply`"
            )
        case "line_too_long" | "event_too_large" | "empty_line":
            return f"correct the program on {host} that writes them; no declaration can accept them"
    if letter["file"] is None:
        return (
            f"correct the program that posts, or {declaration}; `POST /v1/events/TYPE:validate` "
            "checks events and stores nothing"
        )
    return (
        f"correct {declaration}, try it (`hourmark types try --lines FILE --source "
        f"{shlex.quote(source)}`), then run `hourmark types apply`"
    )


def parse_time_ms(text: str, now_ms: int) -> int:
    """Parse an absolute or relative time, and return it in Unix milliseconds.

    Args:
        text: Either a duration before now, such as `2h`, `30m`, `45s` or `3d`, or an ISO 8601 time.
            An ISO 8601 time without an offset is in UTC.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The time in Unix milliseconds. It may be in the future.

    Raises:
        ValueError: The text has neither of these forms.
    """
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        time = dt.datetime.fromisoformat(text.removesuffix("Z"))
        return unix_ms(time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r:.80} is not a valid time; write 2026-11-21T05, 2026-11-21T05:30, or 2h, "
            "30m, 3d ago"
        ) from None


def _shown(raw: bytes) -> str:
    text = _printable(raw[: 4 * _RAW_CHARS_MAX].decode(errors="backslashreplace"))[:_RAW_CHARS_MAX]
    return text if len(raw) <= _RAW_CHARS_MAX else f"{text}… ({len(raw)} bytes)"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
