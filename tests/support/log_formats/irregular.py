"""Formats with irregular parts: short dates, padded ids, times of several words, rare other lines."""

from __future__ import annotations

import datetime as dt
import json
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

_SPRING: Final = dt.timedelta(days=241)  # before the first record: 2026-03-25
_SPRING_FIRST: Final = "2026-03-25T10:00:00.123Z"
_AUTUMN: Final = dt.datetime(2026, 9, 28, 10, 0, 0, tzinfo=dt.UTC)
_TRACE: Final = "\njava.io.IOException: reset\n\tat shop.net.Peer.read(Peer.java:47)"


def _spring(n: int) -> dt.datetime:
    return when(n) - _SPRING


def _autumn(n: int) -> str:
    # From a day and month of one digit and two to one of two and one: 9/28/26 to 10/1/26.
    at = _AUTUMN + dt.timedelta(minutes=25 * n)
    return f"{at.month}/{at.day}/{at:%y %H:%M:%S}"


def _nested_time(n: int) -> str:
    work = {"workMs": 7 + n, "rows": 3 * n, "peer": f"10.0.0.{n % 200}"}
    return json.dumps(
        {
            "when": {"utc": f"{iso(n)}.{ms(n)}Z"},
            "severity": pick(n, "info", "error"),
            "component": pick(n, "query", "net"),
            "text": message(n),
            "details": pick(n, work, work, {"code": n}),  # type: ignore[arg-type]
        }
    )


def _rare_error(n: int) -> str:
    if n % 25 == 13:
        return f"[ERROR] plugin/cache: cannot reach 10.0.0.{n % 200}: timeout"
    return (
        f"[{pick(n, 'INFO', 'INFO', 'WARNING')}] 192.0.2.{n % 200 + 1}:{40000 + n} - {7 + n} "
        f'"{pick(n, "GET", "PUT")} /v1/{n} {40 + n}" {pick(n, "hit", "miss")} {120 + n} 0.0{n + 100}s'
    )


def _line_protocol(n: int) -> str:
    host, at = f"web-{n % 3 + 1}", f"{int(when(n).timestamp())}{micros(n)}000"
    return pick(
        n,
        f"cpu,cpu=cpu{n % 4},host={host} usage_idle={90.5 + n % 9},usage_user={n % 9 + 1.25} {at}",
        f"mem,host={host} used={10**9 + n}i,free={10**8 + n}i {at}",
        f'disk,device=sda{n % 2 + 1},host={host} used={10**9 + n}i,state="ok, as before" {at}',
    )


def _export(n: int) -> str:
    text = pick(
        n,
        "The service entered the running state.",
        'The user said ""no"".',
        f"Faulting module: a.dll, version {n}\n\nCode: 0xc0000005",
    )
    at = f"{when(n).month}/{when(n).day}/{when(n):%Y} {when(n).hour % 12 or 12}:{when(n):%M:%S %p}"
    return f'{pick(n, "Information", "Error", "Warning")},{at},{pick(n, "Service Control Manager", "Disk")},{7000 + n % 40},"{text}"'


def _audit_block(n: int) -> str:
    return (
        f"{when(n):%Y-%m-%d-%H.%M.%S}.{micros(n)}+060 E{1234 + n}H456           LEVEL: {pick(n, 'Warning', 'Event', 'Info', 'Error')}\n"
        f"PID     : {4711 + n:<21}TID : {140 + n:<13}PROC : shopsync.exe\n"
        f"INSTANCE: shop1                NODE : 000         HOSTNAME: db-{n % 2 + 1}\n"
        f"FUNCTION: Shop, base utilities, load, probe:{n}\nMESSAGE : {message(n)}\n"
    )


FORMATS: Final[list[LogFormat]] = corpus(
    short_date_trace={
        "record": lambda n: (
            f"[{_spring(n).month}/{_spring(n).day}/{_spring(n):%y} {_spring(n).hour}:{_spring(n):%M:%S}:{ms(n)} UTC] {7 + n:08x} {pick(n, 'Startup', 'HttpQueue'):13} {pick(n, 'I', 'W', 'A')}   {message(n)}"
        ),
        "time": _SPRING_FIRST,
        "level": "I",
        "program": "Startup",
    },
    short_date_months={
        "record": lambda n: f"{_autumn(n)} {pick(n, 'INFO', 'WARN')} billing: {message(n)}",
        "time": "2026-09-28T10:00:00.000Z",
        "level": "INFO",
        "program": "billing",
    },
    short_date_comma={
        "record": lambda n: (
            f"{_spring(n).month}/{_spring(n).day}/{_spring(n):%y}, {_spring(n).hour}:{_spring(n):%M:%S %p} - {pick(n, 'ERROR', 'INFO')} - {message(n)}"
        ),
        "time": "2026-03-25T10:00:00.000Z",
        "level": "ERROR",
    },
    short_date_dots={
        "record": lambda n: (
            f"{_spring(n).day}.{_spring(n).month}.{_spring(n):%Y %H:%M:%S}.{ms(n)} {pick(n, 'Fehler', 'Warnung')} {pick(n, 'Lager', 'Versand')}: {message(n)}"
        ),
        "time": _SPRING_FIRST,
        "level": "Fehler",
        "program": "Lager",
    },
    dotted_days={
        "header": ['"Tag";"Time";"Value";"Quality";"Comment"\r'],
        "record": lambda n: (
            f'"{pick(n, "Boiler", "Inlet", "Pump")}";"{when(n) - dt.timedelta(days=12):%d.%m.%Y %H:%M:%S}";{n % 97 - 9},{n * 7 % 1000 + 25};{n % 3};step {n}, {pick(n, "running", "idle")}\r'
        ),
        "time": "2026-11-09T10:00:00.000Z",
        "numbers": (0,),
        "texts": ("Boiler", "-9,25", "step 0, running"),
        "unparsed": 2,
    },
    logcat_long={
        "record": lambda n: (
            f"[ {when(n):%m-%d %H:%M:%S}.{ms(n)} {500 + 97 * n:5}:{8000 + 60 * n:5} {pick(n, 'D', 'I', 'W')}/{pick(n, 'Wifi', 'PackageManager', 'Zygote'):8} ]\n{message(n)}\n"
        ),
        "time": FIRST,
        "level": "D",
        "program": "Wifi",
        "numbers": (500, 8000),
        "texts": ("started\n",),
        "unparsed": 0,
        "multiline": True,
    },
    padded_ids={
        "record": lambda n: (
            f"{day(n)} ({980 + n:4}:{9970 + n:5}) {pick(n, 'INFO', 'WARN')} {message(n)}"
        ),
        "level": "INFO",
        "numbers": (980, 9970),
    },
    tight_parentheses={
        "record": lambda n: (
            f"{day(n)}.{micros(n)} [ {4711 + n % 40} ] <{pick(n, 'Debug', 'Information', 'Error')}> {pick(n, 'executeQuery', 'Access(local_directory)', 'ContextAccess (default)', f'query_log ({n:08x}-11aa)', 'MemoryTracker')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "Debug",
        "program": "executeQuery",
        "numbers": (4711,),
    },
    enclosed_message={
        "record": lambda n: (
            f"####<{when(n):%b %d, %Y %I:%M:%S},{ms(n)} AM UTC> <{pick(n, 'Notice', 'Info', 'Error')}> <{pick(n, 'Server', 'JDBC', 'HTTP')}> <app-{n % 2 + 1}.example.net> <{1795255200123 + n}> <BEA-{2613 + n % 5:06}> <{message(n)}{_TRACE * (n % 5 == 3)}> "
        ),
        "time": FIRST,
        "level": "Notice",
        "program": "Server",
        "host": "app-1.example.net",
        "texts": ("started",),
        "unparsed": 0,
        "multiline": True,
    },
    rare_error={"record": _rare_error, "time": None, "level": "INFO", "numbers": (40000, 7, 40)},
    nested_time_numbers={
        "record": _nested_time,
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "program": "query",
        "numbers": (7, 0),
    },
    transfer_table={
        "record": lambda n: (
            f"{_spring(n):%a %b} {_spring(n).day:2} {_spring(n):%H:%M:%S %Y} {n % 9 + 1} {pick(n, 'dial-7.example.net', '192.0.2.7')} {512 + n} /in/{pick(n, 'a', 'ü')}{n}.csv {pick(n, 'a', 'b')} _ {pick(n, 'i', 'o')} r {pick(n, 'ann', 'bob@example.net')} ftp 0 * c"
        ),
        "time": "2026-03-25T10:00:00.000Z",
        "numbers": (1, 512),
        "texts": ("dial-7.example.net", "/in/a0.csv", "ann"),
    },
    line_protocol={
        "record": _line_protocol,
        "time": FIRST,
        "host": "web-1",
        "numbers": (90.5, 1.25),
        "texts": ("cpu", "cpu0"),
    },
    export_table={
        "header": ["Level,Date and Time,Source,Event ID"],
        "record": _export,
        "level": "Information",
        "numbers": (7000,),
        "texts": ("Service Control Manager", "The service entered the running state."),
        "unparsed": 1,
        "multiline": True,
    },
    offset_minutes={
        "record": _audit_block,
        "time": FIRST,  # without the offset, which no time format reads: this is asked about
        "doubted": True,
        "level": "Warning",
        "host": "db-1",
        "numbers": (4711, 140),
        "texts": ("shopsync.exe", "shop1"),
        "unparsed": 0,
        "multiline": True,
    },
)
