"""Formats with padded hours, header parts that some records lack, short ids and absent numbers."""

from __future__ import annotations

import datetime as dt
from typing import Final

from tests.support.log_formats.model import (
    FIRST,
    LogFormat,
    corpus,
    day,
    iso,
    message,
    micros,
    ms,
    pick,
    when,
)

_EVENING: Final = dt.datetime(2026, 11, 20, 21, 40, 0, tzinfo=dt.UTC)


def _night(n: int) -> dt.datetime:
    # From one evening to the next morning: hours of one and of two digits.
    return _EVENING + dt.timedelta(minutes=4 * n)


def _padded_hour(n: int) -> str:
    # As `%2d` of C writes it.
    at = _night(n)
    level = pick(n, "Note", "Note", "Warning", "ERROR")
    more = "\n-- pages: 4\n-- locks: 1" if n % 17 == 5 else ""
    return f"{at:%Y-%m-%d} {at.hour:2}:{at:%M:%S} {n * 31 % 900} [{level}] {message(n)}{more}"


def _padded_compact(n: int) -> str:
    at = _night(n)
    return f"{at:%y%m%d} {at.hour:2}:{at:%M:%S} [{pick(n, 'Note', 'ERROR')}] {message(n)}"


def _padded_half(n: int) -> str:
    at = _night(n)
    clock = f"{at.hour % 12 or 12:2}:{at:%M %p}"
    return f"{at:%m/%d/%Y} {clock} {pick(n, 'INFO', 'WARN')} [worker-{n % 4}] {message(n)}"


def _job_pairs(n: int) -> str:
    # All pairs are absent in 9 % of the records, and the last one in many more.
    pairs = f" elapsed={n / 100 + 0.004:.3f}" if n % 3 == 0 else ""
    pairs = (
        f" class={pick(n, 'Mail', 'Price')}Job jid={n * 7919:024x}{pairs}" if n % 11 != 4 else ""
    )
    level = pick(n, "INFO", "INFO", "WARN")
    return f"{iso(n)}.{ms(n)}Z pid=4711 tid={pick(n, '2v8r', 'k0q1', 'ox3d')}{pairs} {level}: {message(n)}"


def _job_bracket(n: int) -> str:
    job = "" if n % 13 == 0 else f"[{pick(n, 'mail', 'price')}#{n % 9}]"
    return f"{day(n)} worker-{n % 4}[{800 + n % 5}]{job} {pick(n, 'INFO', 'WARN')} {message(n)}"


def _short_ids(n: int) -> str:
    activity = "0x0" if n % 5 else f"0x{9000 + 977 * n:x}"
    kind = pick(n, "Default", "Info", "Error", "Fault")
    return (
        f"{day(n)}.{micros(n)}+0000 0x{700 + 613 * n:<8x} {kind:<11} {activity:<20} "
        f"{300 + n % 40:<6} 0    {pick(n, 'orderd', 'kernel', 'printer')}: {message(n)}"
    )


def _absent_number(n: int) -> str:
    watts = pick(n % 41, f"{61.25 + n / 2:.2f}", *(f"{70 + n / 4:.2f}",) * 5)
    return (
        f"{when(n):%Y/%m/%d %H:%M:%S}.{ms(n)}, {n % 4}, 0000:{n % 4}7:00.0, {(45 + 7 * n) % 101}, "
        f"{'[N/A]' if n % 40 == 9 else 38 + n % 30}, {'N/A' if n % 50 == 3 else watts}"
    )


FORMATS: Final[list[LogFormat]] = corpus(
    padded_hour_records={
        "record": _padded_hour,
        "time": "2026-11-20T21:40:00.000Z",
        "level": "Note",
        "numbers": (0,),
        "texts": ("started",),
        "unparsed": 0,
        "multiline": True,
    },
    padded_hour_compact={
        "record": _padded_compact,
        "time": "2026-11-20T21:40:00.000Z",
        "level": "Note",
        "texts": ("started",),
    },
    padded_hour_half={
        "record": _padded_half,
        "time": "2026-11-20T21:40:00.000Z",
        "level": "INFO",
        "texts": ("worker-0", "started"),
    },
    sidekiq_jobs={
        "record": _job_pairs,
        "time": FIRST,
        "level": "INFO",
        "numbers": (4711, 0.004),
        "texts": ("2v8r", "MailJob", "started"),
    },
    worker_jobs={
        "record": _job_bracket,
        "level": "INFO",
        "program": "worker-0",
        "numbers": (800,),
        "texts": ("started",),
    },
    macos_log_show={
        "record": _short_ids,
        "header": (
            "Timestamp                       Thread     Type        Activity     PID    TTL",
        ),
        "time": FIRST,
        "numbers": (300, 0),
        "texts": ("0x2bc", "Default", "0x2328", "orderd", "started"),
        "unparsed": 2,
    },
    nvidia_smi_absent={
        "record": _absent_number,
        "header": (
            "timestamp, index, pci.bus_id, utilization.gpu [%], temperature.gpu, power.draw [W]",
        ),
        "time": FIRST,
        "numbers": (0, 45, 38, 61.25),
        "texts": ("0000:07:00.0",),
        "unparsed": 2,
    },
)
