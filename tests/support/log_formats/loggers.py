"""Formats of loggers: names with blanks, levels of several words, pairs before the level."""

from __future__ import annotations

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


def _uuid(n: int) -> str:
    return f"{n * 2654435761 % 2**32:08x}-1a2b-4c3d-8e9f-{n * 40503 % 2**48:012x}"


def _clickhouse_logger(n: int) -> str:
    table = f"shop.orders ({_uuid(n)})"
    return pick(n, "Application", "executeQuery", "DiskLocal (default)", table, "Merge::Stage")


def _sidekiq_context(n: int) -> str:
    job = f" class={pick(n, 'InvoiceJob', 'Mailers::DigestJob')} jid={n:024x}"
    return pick(n, "", job, f"{job} elapsed={n % 4}.{n % 1000:03}", f"{job} tags=bulk")


def _php_entry(n: int) -> str:
    level = pick(n, "Warning", "Notice", "Fatal error", "Parse error", "Deprecated")
    text = f"PHP {level}:  {message(n)} in /srv/shop/cart.php on line {12 + n % 90}"
    return text if n % 9 else f"{text}\nStack trace:\n#0 {{main}}"


FORMATS: Final[list[LogFormat]] = corpus(
    clickhouse_loggers={
        "record": lambda n: (
            f"{when(n):%Y.%m.%d %H:%M:%S}.{micros(n)} [ {4711 + n % 9} ] {{{_uuid(n) if n % 3 else ''}}} "
            f"<{pick(n, 'Information', 'Debug', 'Trace', 'Warning')}> {_clickhouse_logger(n)}: {message(n)}"
        ),
        "time": FIRST,
        "level": "Information",
        "program": "Application",
        "numbers": (4711,),
    },
    sidekiq_pairs={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z pid=4711 tid={pick(n, '7qf', '8b3')}{_sidekiq_context(n)} "
            f"{pick(n, 'INFO', 'WARN', 'ERROR')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "numbers": (4711,),
    },
    php_zone={
        "record": lambda n: f"[{when(n):%d-%b-%Y %H:%M:%S} Europe/Berlin] {_php_entry(n)}",
        "time": "2026-11-21T09:00:00.000Z",
        "level": "Warning",
        "program": "PHP",
        "multiline": True,
        "unparsed": 0,
    },
    logbook={
        "record": lambda n: (
            f"[{day(n)}.{micros(n)}] {pick(n, 'INFO', 'WARNING', 'NOTICE')}: "
            f"{pick(n, 'Shop', 'Shop Mailer', 'Payment Gateway')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "Shop",
    },
    audit_words={
        "record": lambda n: (
            f"{day(n)} [{pick(n, 'Audit Success', 'Audit Failure', 'Information')}] "
            f"{pick(n, 'Logon Service', 'Policy Change')}: {message(n)}"
        ),
        "level": "Audit Success",
        "program": "Logon Service",
    },
    sanic_access={
        "record": lambda n: (
            f"[{day(n)} +0000] - (sanic.access)[INFO][10.0.0.{n % 200}:{40000 + n}]: "
            f"{pick(n, 'GET', 'POST')} http://shop.example.com/a/{n}  {pick(n, '200', '404')} {512 + n}"
        ),
        "level": "INFO",
        "program": "sanic.access",
        "numbers": (200, 512),
    },
    tslog={
        "record": lambda n: (
            f"{day(n)}.{ms(n)}\t{pick(n, 'INFO', 'WARN', 'ERROR', 'SILLY')}\t"
            f"/src/{pick(n, 'index', 'orders')}.ts:{12 + n % 90}\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "level": "INFO",
    },
    moz_log={
        "record": lambda n: (
            f"{day(n)}.{micros(n)} UTC - [{pick(n, 'Parent', 'Child')} {4711 + n % 3}: "
            f"{pick(n, 'Main Thread', 'Socket Thread', 'IMAP #1')}]: "
            f"{pick(n, 'D', 'I', 'E', 'W')}/{pick(n, 'nsHttp', 'IMAP', 'cookie')} {message(n)}"
        ),
        "time": FIRST,
        "level": "D",
        "program": "nsHttp",
    },
    nextcloud_desktop={
        "record": lambda n: (
            f"{day(n)}:{ms(n)} [ {pick(n, 'info', 'warning', 'debug', 'critical')} "
            f"{pick(n, 'nextcloud.sync.engine', 'nextcloud.gui.folder')} ]:\t{message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "program": "nextcloud.sync.engine",
    },
    anydesk={
        "record": lambda n: (
            f"{pick(n, '   info', 'warning', '  error')} {day(n)}.{ms(n)} "
            f"{pick(n, '      front', '        lsvc')} {4711 + n % 3:6} {5222 + n % 9:6} {'':20}"
            f"{pick(n, 'base.prot.packet_relay', 'app.service')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "program": "base.prot.packet_relay",
        "numbers": (4711, 5222),
    },
    go_logging={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}.{ms(n)} {pick(n, 'main', 'connect', 'ServeHTTP')} \u25b6 "
            f"{pick(n, 'INFO', 'WARN', 'ERRO', 'DEBU')} {n + 1:03x} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "main",
    },
    duplicati={
        "record": lambda n: (
            f"{day(n)} +00 - [{pick(n, 'Information', 'Warning', 'Error')}-"
            f"{pick(n, 'Duplicati.Library.Main.Controller', 'Duplicati.Server')}]: {message(n)}"
        ),
        "level": "Information",
        "program": "Duplicati.Library.Main.Controller",
    },
    npm_debug={
        "record": lambda n: (
            f"{n} {pick(n, 'verbose', 'silly', 'info', 'http')} {pick(n, 'cli', 'fetch')} {message(n)}"
        ),
        "time": None,
        "level": "verbose",
        "numbers": (0,),
    },
    winston_brackets={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z [{pick(n, 'info', 'http', 'warn', 'error')}] {message(n)} "
            f"{json.dumps({'n': n})}"
        ),
        "time": FIRST,
        "level": "info",
    },
    monero={
        "record": lambda n: (
            f"{day(n)}.{ms(n)}\t{pick(n, '    7f1a', '[P2P3]')}\t{pick(n, 'INFO ', 'WARN ', 'ERROR')}\t"
            f"{pick(n, 'global', 'net.p2p')}\tsrc/{pick(n, 'p2p/net', 'main')}.cpp:{100 + n}\t{message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    sharepoint_uls={
        "header": (
            "Timestamp              \tProcess        \tTID   \tArea         \tLevel     \tMessage",
        ),
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S}.{ms(n)[:2]} \t{pick(n, 'w3wp.exe (0x1A2B)', 'OWSTIMER.EXE (0x0C4C)'):40}"
            f"\t0x{4711 + n:04X}\t{pick(n, 'SharePoint Foundation', 'Search'):30}"
            f"\t{pick(n, 'Medium', 'Monitorable', 'High'):10}\t{message(n)}"
        ),
        "time": "2026-11-21T10:00:00.120Z",
        "level": "Medium",
        "unparsed": 2,
    },
    chia={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)} {pick(n, 'full_node', 'harvester')} "
            f"{pick(n, 'chia.full_node.full_node', 'chia.plotting.cache')}: "
            f"{pick(n, 'INFO    ', 'WARNING ', 'ERROR   ')} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "chia.full_node.full_node",
    },
    event_codes={
        "record": lambda n: (
            f"{day(n)} {pick(n, 'info', 'notif', 'warn', 'crit')}  {pick(n, 'system', 'auth')} "
            f"{515 + n % 9:05} {message(n)}"
        ),
        "level": "info",
        "program": "system",
    },
    mac_programs={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} mac-1 {pick(n, 'Google Chrome', 'Google Chrome Helper', 'Finder')}"
            f"[{4711 + n % 9}]: {message(n)}"
        ),
        "host": "mac-1",
        "program": "Google Chrome",
        "numbers": (4711,),
    },
    name_and_pid={
        "record": lambda n: (
            f"{day(n)}.{ms(n)} {pick(n, 'Order Service', 'Mail Queue Worker', 'Jobs')}[{4711 + n % 9}] "
            f"{pick(n, 'INFO', 'WARN', 'ERROR')} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "Order Service",
        "numbers": (4711,),
    },
)
