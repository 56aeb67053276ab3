"""A log format of the corpus: how its records are written, and the structure an engineer declares."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

RECORDS: Final = 200
BROKEN_AT: Final = 120  # index of the record that is followed by the broken line
START: Final = dt.datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=dt.UTC)
FIRST: Final = "2026-11-21T10:00:00.123Z"  # the first record's time, to the millisecond
FIRST_SECOND: Final = "2026-11-21T10:00:00.000Z"  # the same, in formats without a fraction
WRITTEN_MS: Final = 1_795_262_400_000  # modification time of the files: 2026-11-21T12:00:00Z

MESSAGES: Final = (
    "started",
    "connection from 203.0.113.{n} accepted",
    "cache refreshed in {n} ms",
    "cannot open /data/in/{n}.csv: no such file",
    "user ann{n} logged in, session {n} begins",
    "retrying",
    "queue depth is {n}; limit 500",
    'job "nightly-{n}" finished with status ok',
    "config reloaded by pid {n}, 3 values changed",
    "closing idle connection #{n} after 30 seconds",
)


def when(n: int) -> dt.datetime:
    """Return the time of a record: the records are 3.7 s apart.

    Args:
        n: Index of the record, starting at 0.
    """
    return START + dt.timedelta(milliseconds=3700 * n)


def ms(n: int) -> str:
    """Return the milliseconds of the time of a record, three digits."""
    return f"{when(n).microsecond // 1000:03}"


def iso(n: int) -> str:
    """Return the time of a record to the second, in ISO 8601 without a zone."""
    return f"{when(n):%Y-%m-%dT%H:%M:%S}"


def day(n: int) -> str:
    """Return the time of a record to the second, with a space between date and clock."""
    return f"{when(n):%Y-%m-%d %H:%M:%S}"


def micros(n: int) -> str:
    """Return the microseconds of the time of a record, six digits."""
    return f"{when(n).microsecond:06}"


def epoch(n: int) -> int:
    """Return the time of a record in Unix seconds."""
    return int(when(n).timestamp())


def message(n: int) -> str:
    """Return the text of a record, of differing length, without a time."""
    return MESSAGES[n % len(MESSAGES)].format(n=7 * n % 251)


def pick(n: int, *choices: str) -> str:
    """Return one of the choices; the first for record 0, each for some of the records."""
    return choices[(n * 7 + n // 5) % len(choices)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expected:
    """The structure that an engineer would declare for a log format.

    Attributes:
        payload: Parser of the type: `json`, `logfmt`, `tsv`, `pattern` or `text`; `syslog` for the
            built-in type. A tuple if several are right.
        time: Time of the first record in ISO 8601 (UTC); None if its lines have no time.
        host: Host of the first record; None if its lines name no host.
        level: Value of the first record's level; None if its lines have no level.
        program: Value of the first record's program, logger or component; None if there is none.
        numbers: Values of the first record that are declared as numbers.
        texts: Values of the first record that are the whole texts of fields.
        unparsed: Records that do not fit: the broken line and header rows.
        multiline: Whether records consist of several lines.
        cri: Whether the tailer reads the file as a container log.
        doubted: Whether the user is asked, because the time may be wrong.
    """

    payload: str | tuple[str, ...] = "pattern"
    time: str | None = FIRST_SECOND
    host: str | None = None
    level: str | None = None
    program: str | None = None
    numbers: Sequence[float] = ()
    texts: Sequence[str] = ()
    unparsed: int = 1
    multiline: bool = False
    cri: bool = False
    doubted: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogFormat:
    """One format of the corpus.

    Attributes:
        name: Name of the format, unique in the corpus.
        record: Returns the n-th record, which may contain line feeds.
        expected: Structure that `hourmark init` is expected to propose.
        header: Lines before the first record.
    """

    name: str
    record: Callable[[int], str]
    expected: Expected
    header: Sequence[str] = ()

    def text(self) -> str:
        """Return the content of a log file: 200 records, one broken line, no final line feed.

        The broken line is the second half of a record's last line.
        """
        records = [self.record(n) for n in range(RECORDS)]
        last = records[BROKEN_AT].rsplit("\n", 1)[-1]
        records.insert(BROKEN_AT + 1, last[len(last) // 2 :])
        return "\n".join([*self.header, *records])


def corpus(**formats: Mapping[str, Any]) -> list[LogFormat]:
    """Return formats from keyword arguments of `LogFormat` and `Expected` by name."""
    found = []
    for name, settings in formats.items():
        own = {key: settings[key] for key in ("record", "header") if key in settings}
        rest = {key: value for key, value in settings.items() if key not in own}
        found.append(LogFormat(name=name, **own, expected=Expected(**rest)))
    return found
