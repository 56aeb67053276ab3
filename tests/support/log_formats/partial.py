"""Formats with parts that only some records have, columns behind the message, and keys in brackets."""

from __future__ import annotations

from typing import Final

from tests.support.log_formats.model import (
    FIRST,
    RECORDS,
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

_TRACE: Final = "\njava.io.IOException: reset\n\tat shop.net.Peer.read(Peer.java:47)\nCaused by: x"


def _call(n: int) -> str:
    return f"[TX-{n * 7919 % 65536:06x}]" if n % 3 else ""


def _transaction(n: int) -> str:
    return f" (tx {n:04x})" if n % 7 == 3 else ""


def _spans(n: int) -> str:
    request = f'request{{method="GET" path=/orders/{n}}}: '
    return pick(n, "", "", request, request + "handler: ", f"job{{id={n} queue=mail}}: ")


def _target(n: int) -> str:
    return pick(n, "shop::api", "shop", "shop_store::pool::manager", "tower_http::trace")


def _thread(n: int) -> str:
    return pick(n, "main", f"pool-1-thread-{n % 30}", f"Shop Worker: 10.0.0.{n % 99}:4{n % 9}")


def _alert(n: int) -> str:
    name = pick(
        n, "POLICY Telnet login", "SCAN Port sweep of hosts", "DNS Answer without a question"
    )
    group = pick(n, "Misc activity", "Attempted Information Leak", "(none)")
    tail = f"{{{pick(n, 'TCP', 'UDP')}}} 203.0.113.{n % 200}:{40000 + n} => 10.0.0.5:{22 + n % 3}"
    return f"[!!] [3:{19187 + n % 4}:{n % 5}] {name} [!!] [Class: {group}] [Severity: {n % 3 + 1}] {tail}"


def _erlang_origin(n: int) -> str:
    return "supervisor" if n % 8 == 5 else f"<0.{254 + n}.{n % 2}>"


def _enclosed_values(n: int) -> str:
    user = pick(n, "", "<Shop Kernel>", "ann")
    text = "failed.\nshop.Failure: no <cart>\n\tat shop.Cart" if n % 9 == 4 else f"{message(n)}."
    values = (
        pick(n, "Notice", "Info", "Warning", "Error"),
        pick(n, "Security", "Deployer", "JDBC"),
        pick(n, "app-1.example.net", "app-2.example.net"),
        pick(n, "OrderServer", "AdminServer"),
        pick(n, "main", f"[ACTIVE] ExecuteThread: '{n % 40}' for queue: 'default'"),
        user,
        "",
        f"[code: {32 + n % 3}] [partition: 0] [domain: SHOP] ",
        f"SHP-{365 + n:06}",
        text,
    )
    return " ".join(f"<{value}>" for value in values) + " "


def _lease(n: int) -> str:
    client, address = f"laptop-{n * 7 % 97}.example.net", f"10.20.4.{n * 7 % 97}"
    hardware = f"02:00:00:00:{n * 7 % 97:02x}:01"
    return f"{11 + n % 2},{day(n)},{pick(n, 'Renew', 'Release')},{address},{client},{hardware},{n}"


FORMATS: Final[list[LogFormat]] = corpus(
    optional_call_id={
        "record": lambda n: (
            f"[{day(n)}] {pick(n, 'NOTICE', 'VERBOSE', 'ERROR')}[{4711 + n % 9}]{_call(n)} "
            f"{pick(n, 'store.c', 'net/peer.c', 'main.c', 'queue.c')}: {message(n)}"
        ),
        "level": "NOTICE",
        "program": "store.c",
        "numbers": (4711,),
    },
    optional_parentheses={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z {pick(n, 'INFO', 'WARN', 'ERROR')} [{4711 + n % 9}]"
            f"{_transaction(n)} {pick(n, 'orders', 'billing', 'mail')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "orders",
        "numbers": (4711,),
    },
    optional_spans={
        "record": lambda n: (
            f"{iso(n)}.{micros(n)}Z {pick(n, ' INFO', ' WARN', 'ERROR')} "
            f"{_spans(n)}{_target(n)}: {message(n)} attempt={n}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "shop::api",
    },
    bars_behind_message={
        "record": lambda n: (
            f"{day(n)},{ms(n)} | {pick(n, 'INFO ', 'WARN ', 'ERROR')} | {message(n)} | "
            f"{pick(n, 'shop.orders.Cart', 'shop.net.Peer')} | {_thread(n)}"
            f"{_TRACE if n % 11 == 5 else ''}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "shop.orders.Cart",
        "unparsed": 0,
        "multiline": True,
    },
    semicolons_behind_message={
        "record": lambda n: (
            f"{day(n)}.{ms(n)};{pick(n, 'INFO', 'WARN', 'ERROR')};{message(n)};"
            f"{pick(n, 'shop.orders.Cart', 'shop.net.Peer')};{12 + n}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "shop.orders.Cart",
        "numbers": (12,),
    },
    keys_in_brackets={
        "record": lambda n: f"{when(n):%m/%d/%Y-%H:%M:%S}.{micros(n)}  {_alert(n)}",
        "time": FIRST,
        "numbers": (1,),
    },
    erlang_node={
        "record": lambda n: (
            f"[{pick(n, 'info', 'notice', 'error')}] {iso(n)}.{micros(n)}Z orders@app-1.example.net "
            f"{_erlang_origin(n)} {'--------' if n % 3 < 2 else f'{n * 2654435761 % 2**32:08x}ab'} "
            f"{message(n)}"
        ),
        "time": FIRST,
        "host": "app-1.example.net",
        "level": "info",
        "program": "orders",
    },
    angle_brackets={
        "record": lambda n: (
            f"####<{when(n):%b %d, %Y, %I:%M:%S},{ms(n)} {when(n):%p} UTC> {_enclosed_values(n)}"
        ),
        "time": FIRST,
        "host": "app-1.example.net",
        "level": "Notice",
        "program": "Security",
        "unparsed": 0,
        "multiline": True,
    },
    leases_of_clients={
        "header": ("ID,Date,Description,IP Address,Host Name,MAC Address,TransactionID",),
        "record": _lease,
        "numbers": (11, 0),
        "unparsed": 2,
    },
    servers_of_clients={
        "header": ("Date,Server,Host Name,Host IP,Result Code",),
        "record": lambda n: (
            f"{day(n)},{pick(n, 'dhcp-1', 'dhcp-2')},laptop-{n % RECORDS},10.20.4.{n % 97},{n % 3}"
        ),
        "host": "dhcp-1",
        "unparsed": 2,
    },
)
