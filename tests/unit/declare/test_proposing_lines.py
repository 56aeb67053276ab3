"""`hourmark init` finds time, level and program wherever and however a line has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, message, pick
from tests.support.log_formats.scoring import PROGRAM_FIELDS

from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose

RECORDS: Final = 100
FIRST: Final = dt.datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=dt.UTC)


def proposal(folder: Path, lines: list[str]) -> Proposal:
    log = folder / "a.log"
    log.write_text("\n".join(lines) + "\n")
    sample = read_sample(log)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host="tailer-1")


def time_of(n: int) -> str:
    return f"2026-11-21 10:{n // 60:02}:{n % 60:02}"


def level_of(n: int) -> str:
    return pick(n, "INFO", "WARN", "ERROR")


def lower_of(n: int) -> str:
    return level_of(n).lower()


def logger_of(n: int) -> str:
    return pick(n, "shop.orders", "shop.jobs.Runner", "shop.net")


def component_of(n: int) -> str:
    return pick(n, "orders", "jobs", "net")


def thread_of(n: int) -> str:
    return pick(n, "main", "pool-1-thread-2", "worker-3")


# The line, its level and its program; None if any is right.
LINES: Final[dict[str, Callable[[int], tuple[str, str | None, str | None]]]] = {
    "t L lg: m": lambda n: (
        f"{time_of(n)} {level_of(n)} {logger_of(n)}: {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t lg L m": lambda n: (
        f"{time_of(n)} {logger_of(n)} {level_of(n)} {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t lg: L: m": lambda n: (
        f"{time_of(n)} {logger_of(n)}: {level_of(n)}: {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t [th] l lg - m": lambda n: (
        f"{time_of(n)} [{thread_of(n)}] {lower_of(n)} {logger_of(n)} - {message(n)}",
        lower_of(n),
        logger_of(n),
    ),
    "t l: m": lambda n: (f"{time_of(n)} {lower_of(n)}: {message(n)}", lower_of(n), None),
    "t (co) [l] m": lambda n: (
        f"{time_of(n)} ({component_of(n)}) [{lower_of(n)}] {message(n)}",
        lower_of(n),
        component_of(n),
    ),
    "t co[l]: m": lambda n: (
        f"{time_of(n)} {component_of(n)}[{lower_of(n)}]: {message(n)}",
        lower_of(n),
        component_of(n),
    ),
    "t co.l m": lambda n: (
        f"{time_of(n)} {component_of(n)}.{lower_of(n)} {message(n)}",
        lower_of(n),
        component_of(n),
    ),
    "t co/l: m": lambda n: (
        f"{time_of(n)} {component_of(n)}/{lower_of(n)}: {message(n)}",
        lower_of(n),
        component_of(n),
    ),
    "t [co/L] m": lambda n: (
        f"{time_of(n)} [{component_of(n)}/{level_of(n)}] {message(n)}",
        level_of(n),
        None,
    ),
    "t [L/co] m": lambda n: (
        f"{time_of(n)} [{level_of(n)}/{component_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t [L:co] m": lambda n: (
        f"{time_of(n)} [{level_of(n)}:{component_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t [L co] m": lambda n: (
        f"{time_of(n)} [{level_of(n)} {component_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t [co L] m": lambda n: (
        f"{time_of(n)} [{component_of(n)} {level_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t [co:L] m": lambda n: (
        f"{time_of(n)} [{component_of(n)}:{level_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t L/co: m": lambda n: (
        f"{time_of(n)} {level_of(n)}/{component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t L:lg:m": lambda n: (
        f"{time_of(n)}:{level_of(n)}:{logger_of(n)}:{message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t L [lg:12] m": lambda n: (
        f"{time_of(n)} {level_of(n)} [{logger_of(n)}:{n}] {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t L lg(12): m": lambda n: (
        f"{time_of(n)} {level_of(n)} {logger_of(n)}({n + 10}): {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t L lg:12 - m": lambda n: (
        f"{time_of(n)} {level_of(n)} {logger_of(n)}:{n + 10} - {message(n)}",
        level_of(n),
        None,
    ),
    "t|L|th|lg|m": lambda n: (
        f"{time_of(n)}|{level_of(n)}|{thread_of(n)}|{logger_of(n)}|{message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t | L | lg | m": lambda n: (
        f"{time_of(n)} | {level_of(n):5} | {logger_of(n):20} | {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t;L;co;m": lambda n: (
        f"{time_of(n)};{level_of(n)};{component_of(n)};{message(n).replace(';', ',')}",
        level_of(n),
        component_of(n),
    ),
    "t,L,co,m": lambda n: (
        f"{time_of(n)},{level_of(n)},{component_of(n)},{message(n).replace(',', '')}",
        level_of(n),
        component_of(n),
    ),
    "t\\tL\\tco\\tm": lambda n: (
        f"{time_of(n)}\t{level_of(n)}\t{component_of(n)}\t{message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t - lg - L - m": lambda n: (
        f"{time_of(n)} - {logger_of(n)} - {level_of(n)} - {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t - L - m": lambda n: (f"{time_of(n)} - {level_of(n)} - {message(n)}", level_of(n), None),
    "[t] [L] [co] m": lambda n: (
        f"[{time_of(n)}] [{level_of(n)}] [{component_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "[t][L][co] m": lambda n: (
        f"[{time_of(n)}][{level_of(n)}][{component_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "<t> <L> <co> m": lambda n: (
        f"<{time_of(n)}> <{level_of(n)}> <{component_of(n)}> {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "{t} {L} m": lambda n: (f"{{{time_of(n)}}} {{{level_of(n)}}} {message(n)}", level_of(n), None),
    "L t lg m": lambda n: (
        f"{level_of(n)} {time_of(n)} {logger_of(n)} {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "L: t: m": lambda n: (f"{level_of(n)}: {time_of(n)}: {message(n)}", level_of(n), None),
    "[L] t co: m": lambda n: (
        f"[{level_of(n)}] {time_of(n)} {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "[L t co] m": lambda n: (
        f"[{level_of(n)} {time_of(n)} {component_of(n)}] {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "co L t m": lambda n: (
        f"{component_of(n)} {level_of(n)} {time_of(n)} {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "co: t L m": lambda n: (
        f"{component_of(n)}: {time_of(n)} {level_of(n)} {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t *L* co m": lambda n: (
        f"{time_of(n)} *{level_of(n)}* {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t ***L*** m": lambda n: (
        f"{time_of(n)} *** {level_of(n)} *** {message(n)}",
        level_of(n),
        None,
    ),
    "t #L# m": lambda n: (f"{time_of(n)} #{level_of(n)}# {message(n)}", level_of(n), None),
    "t 'L' m": lambda n: (
        f'{time_of(n)} "{level_of(n)}" "{component_of(n)}" {message(n)}',
        level_of(n),
        component_of(n),
    ),
    "t level=L m": lambda n: (
        f"{time_of(n)} level={lower_of(n)} comp={component_of(n)} {message(n)}",
        lower_of(n),
        None,
    ),
    "t L: co: m": lambda n: (
        f"{time_of(n)} {level_of(n)}: {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t L> m": lambda n: (
        f"{time_of(n)} {level_of(n)}> {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t L] m": lambda n: (f"{time_of(n)} {level_of(n)}] {message(n)}", level_of(n), None),
    "t (L) co: m": lambda n: (
        f"{time_of(n)} ({level_of(n)}) {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t L,co: m": lambda n: (
        f"{time_of(n)} {level_of(n)},{component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t co,L m": lambda n: (
        f"{time_of(n)} {component_of(n)},{lower_of(n)} {message(n)}",
        lower_of(n),
        None,
    ),
    "t 4711 L m": lambda n: (
        f"{time_of(n)} {4711 + n} {level_of(n)} {message(n)}",
        level_of(n),
        None,
    ),
    "t 4711 4712 I Tag: m": lambda n: (
        f"{time_of(n)} {4711 + n} {4712} {level_of(n)[0]} {component_of(n)}: {message(n)}",
        level_of(n)[0],
        component_of(n),
    ),
    "t [4711] L m": lambda n: (
        f"{time_of(n)} [{4711 + n}] {level_of(n)} {message(n)}",
        level_of(n),
        None,
    ),
    "t [4711:4712] [L] m": lambda n: (
        f"{time_of(n)} [{4711 + n}:{4712}] [{level_of(n)}] {message(n)}",
        level_of(n),
        None,
    ),
    "t pid=4711 L m": lambda n: (
        f"{time_of(n)} pid={4711 + n} {level_of(n)} {message(n)}",
        level_of(n),
        None,
    ),
    "t co(4711) L: m": lambda n: (
        f"{time_of(n)} {component_of(n)}({4711 + n}) {level_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t co<4711> L m": lambda n: (
        f"{time_of(n)} {component_of(n)}<{4711 + n}> {level_of(n)} {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t co#4711 L m": lambda n: (
        f"{time_of(n)} {component_of(n)}#{4711 + n} {level_of(n)} {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t co[4711/4712]: m": lambda n: (
        f"{time_of(n)} {component_of(n)}[{4711 + n}/{4712}]: {message(n)}",
        None,
        component_of(n),
    ),
    "t web-1 co[4711] L m": lambda n: (
        f"{time_of(n)} web-1 {component_of(n)}[{4711 + n}] {level_of(n)} {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t web-1 L co: m": lambda n: (
        f"{time_of(n)} web-1 {level_of(n)} {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t web-1 [L] m": lambda n: (
        f"{time_of(n)} web-1 [{level_of(n)}] {message(n)}",
        level_of(n),
        None,
    ),
    "t 10.0.0.1 L m": lambda n: (
        f"{time_of(n)} 10.0.0.{n % 9} {level_of(n)} {message(n)}",
        level_of(n),
        None,
    ),
    "t L 12ms co m": lambda n: (
        f"{time_of(n)} {level_of(n)} {n + 10}ms {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t uuid L m": lambda n: (
        f"{time_of(n)} 8f0e1a2b-0000-4000-8000-{n:012x} {level_of(n)} {message(n)}",
        level_of(n),
        None,
    ),
    "t L uuid co: m": lambda n: (
        f"{time_of(n)} {level_of(n)} 8f0e1a2b-0000-4000-8000-{n:012x} {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "t L  padded": lambda n: (
        f"{time_of(n)} {level_of(n):<8}{logger_of(n):<25}{message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "t L (fn:12) m": lambda n: (
        f"{time_of(n)} {level_of(n)} ({component_of(n)}.py:{n + 10}) {message(n)}",
        level_of(n),
        None,
    ),
    "t Severity: L": lambda n: (
        f"{time_of(n)} Severity: {level_of(n).title()}, {message(n)}",
        level_of(n).title(),
        None,
    ),
    "t 3 co m": lambda n: (
        f"{time_of(n)} <{n % 5}> {component_of(n)}: {message(n)}",
        None,
        component_of(n),
    ),
    "t L1": lambda n: (
        f"{time_of(n)} {pick(n, 'LOG_INFO', 'LOG_ERR', 'LOG_WARNING')} {message(n)}",
        pick(n, "LOG_INFO", "LOG_ERR", "LOG_WARNING"),
        None,
    ),
    "t LVL 4": lambda n: (
        f"{time_of(n)} {pick(n, 'INFO ', 'DEBUG', 'WARN ')}|{component_of(n)}|{message(n)}",
        pick(n, "INFO", "DEBUG", "WARN"),
        component_of(n),
    ),
    "no time L co: m": lambda n: (
        f"{level_of(n)} {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
    "no time L:lg:m": lambda n: (
        f"{level_of(n)}:{logger_of(n)}:{message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "no time [L] lg - m": lambda n: (
        f"[{level_of(n)}] {logger_of(n)} - {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "no time lg L m": lambda n: (
        f"{logger_of(n)} {level_of(n)} {message(n)}",
        level_of(n),
        logger_of(n),
    ),
    "no time co: L: m": lambda n: (
        f"{component_of(n)}: {lower_of(n)}: {message(n)}",
        lower_of(n),
        component_of(n),
    ),
    "no time [12.3] L m": lambda n: (
        f"[{12.5 + n:.3f}] {level_of(n)} {component_of(n)}: {message(n)}",
        level_of(n),
        component_of(n),
    ),
}
TIMES: Final = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S.%f%z",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y/%m/%d-%H:%M:%S.%f",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p",
    "%B %d, %Y %H:%M:%S",
    "%d %B %Y %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
    "%a %b %d %H:%M:%S UTC %Y",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a, %d %b %Y %H:%M:%S +0000",
    "%Y%m%d %H%M%S",
    "%Y%m%dT%H%M%S",
    "%Y%m%dT%H%M%SZ",
    "%Y%m%d%H%M%S",
    "%Y%m%d-%H:%M:%S",
    "%y%m%d %H:%M:%S",
    "%Y.%m.%d %H:%M:%S",
    "%Y.%m.%d-%H.%M.%S",
    "%Y-%m-%d-%H.%M.%S.%f",
    "%Y-%m-%d_%H:%M:%S",
    "%Y-%m-%d_%H-%M-%S",
    "%Y-%m-%d %H-%M-%S",
    "%d-%b-%y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S.%f",
    "%d%b%y %H:%M:%S",
    "%Y-%b-%d %H:%M:%S",
    "%Y %b %d %H:%M:%S",
    "%b %d %Y %H:%M:%S",
    "%H:%M:%S %d-%m-%Y",
    "%H:%M:%S %d/%m/%Y",
    "%H:%M:%S %d %b %Y",
    "%d/%b/%Y:%H:%M:%S %z",
    "%d/%b/%Y %H:%M:%S",
    "%d-%m-%Y %H:%M:%S",
    "%m-%d-%Y %H:%M:%S",
    "%d/%m %H:%M:%S",
    "%m/%d %H:%M:%S",
    "%d %b %H:%M:%S",
    "%A, %B %d, %Y %H:%M:%S",
    "%A, %d %B %Y %H:%M:%S",
    "%A %d %B %Y %H:%M:%S",
    "%Y-%m-%d %H:%M:%S UTC",
    "%Y-%m-%d %H:%M:%S +00:00",
    "%Y-%m-%d %H:%M:%S (UTC)",
    "%Y-%m-%d %H:%M:%S [UTC]",
    "%Y-%m-%d %H:%M:%S UTC+00:00",
    "%Y-%m-%dT%H:%M:%S.%f+00:00[UTC]",
    "%Y-%m-%dT%H:%M:%S,%f",
    "%Y-%m-%d %H:%M:%S:%f",
    "%d/%m/%y %H:%M:%S",
    "%Y-%jT%H:%M:%S",
    "%Y-%m-%d, %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f UTC",
    "%y/%m/%d %H:%M:%S",
    "%Y/%m/%d|%H:%M:%S",
    "%d.%m.%Y, %H:%M",
    "%Y-%m-%dT%H:%MZ",
    "%d/%b/%Y-%H:%M:%S",
    "<%Y-%m-%d %H:%M:%S>",
    "(%Y-%m-%d %H:%M:%S)",
    "%Y-%m-%d at %H:%M:%S",
    "%b-%d-%Y %H:%M:%S",
    "%b/%d/%Y %H:%M:%S",
    "%b %d %H:%M:%S %Y",
    "%a %Y-%m-%d %H:%M:%S UTC",
    "%a %d %b %Y %H:%M:%S",
    "%a %d %b %H:%M:%S %Y",
    "%H:%M:%S.%f",
    "%I:%M:%S %p",
    "%Y-%m-%dT%H.%M.%S",
    "%d. %b %Y %H:%M:%S",
    "%Y%m%d.%H%M%S",
    "%Y-%m-%d/%H:%M:%S",
    "%Y-%m-%d  %H:%M:%S",
    "%d-%m-%y %H:%M:%S",
    "%d-%b %H:%M",
    "%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S.%f-0000",
    "date=%Y-%m-%d time=%H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f000Z",
    "%Y-%m-%d T %H:%M:%S",
    "%H:%M:%S, %d %b %Y",
    "%-m/%-d/%Y %-I:%M:%S %p",
    "%-d.%-m.%Y %H:%M:%S",
    "%-d/%-m/%Y, %H:%M:%S",
    "%Y-%m-%d %I:%M:%S %p",
    "%b %d %H:%M:%S.%f",
    "%b %d %Y %H:%M:%S.%f: ",
    "%m%d%Y %H:%M:%S",
    "%Y/%m/%d %H:%M:%S.%f %z",
)


@pytest.mark.parametrize("name", LINES)
def test_level_and_program_are_found_wherever_they_are(tmp_path: Path, name: str) -> None:
    rows = [LINES[name](n) for n in range(RECORDS)]
    found = proposal(tmp_path, [line for line, _, _ in rows])
    first = found.examples[0]
    _, level, program = rows[0]
    assert found.fitting == RECORDS
    assert (found.oldest is None) == name.startswith("no time")
    assert first.host == ("web-1" if "web-1" in name else "tailer-1")
    assert level is None or first.fields.get("level") == level
    assert program is None or program in [first.fields.get(field) for field in PROGRAM_FIELDS]


@pytest.mark.parametrize("form", TIMES)
def test_times_are_read_as_they_are_written(tmp_path: Path, form: str) -> None:
    times = [FIRST + dt.timedelta(milliseconds=3700 * n) for n in range(RECORDS)]
    lines = [
        f"{time.strftime(form)} {pick(n, 'INFO', 'WARN')} started worker {n}"
        for n, time in enumerate(times)
    ]
    found = proposal(tmp_path, lines)
    assert found.oldest is not None and found.oldest.startswith("2026-11-21T10:00")
    assert (found.fitting, found.safest) == (RECORDS, None)
    assert found.examples[0].fields["level"] == "INFO"
