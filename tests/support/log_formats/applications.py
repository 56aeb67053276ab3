"""Logs that applications write with the logging libraries of their languages, and exported tables."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, message, ms, pick, when


def _python(n: int) -> str:
    trace = '\nTraceback (most recent call last):\n  File "/app/jobs.py", line 12, in run\n    raise ValueError(n)\nValueError: 7'
    return (
        f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} - {pick(n, 'shop.orders', 'shop.jobs', 'root')} - "
        f"{pick(n, 'INFO', 'ERROR', 'WARNING')} - {message(n)}{trace if n % 9 == 4 else ''}"
    )


def _django(n: int) -> str:
    return f"{pick(n, 'WARNING', 'INFO', 'ERROR')} {when(n):%Y-%m-%d %H:%M:%S},{ms(n)} {pick(n, 'basehttp', 'log')} 4711 1402{n:03} {message(n)}"


def _gunicorn(n: int) -> str:
    return f"[{when(n):%Y-%m-%d %H:%M:%S} +0000] [{4711 + n % 5}] [{pick(n, 'INFO', 'ERROR', 'DEBUG')}] {message(n)}"


def _uvicorn(n: int) -> str:
    return f'{pick(n, "INFO", "ERROR", "INFO")}:     10.0.0.{n % 90 + 1}:50{n:03} - "GET {pick(n, "/", "/items")} HTTP/1.1" {pick(n, "200 OK", "404 Not Found")}'


def _loguru(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)} | {pick(n, 'INFO', 'SUCCESS', 'ERROR'):8} | {pick(n, 'shop.orders:create:12', '__main__:main:7')} - {message(n)}"


def _zap(n: int) -> str:
    return f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z\t{pick(n, 'INFO', 'WARN')}\t{pick(n, 'server/http.go:12', 'jobs/run.go:7')}\t{message(n)}"


def _zap_json(n: int) -> str:
    return json.dumps(
        {
            "level": pick(n, "info", "warn"),
            "ts": round(when(n).timestamp(), 3),
            "caller": "server/http.go:12",
            "msg": message(n),
            "elapsed": 0.25 + n,
        }
    )


def _logrus(n: int) -> str:
    return f'time="{when(n):%Y-%m-%dT%H:%M:%SZ}" level={pick(n, "info", "warning", "error")} msg="{message(n).replace(chr(34), chr(39))}" attempt={n + 1}'


def _env_logger(n: int) -> str:
    return f"[{when(n):%Y-%m-%dT%H:%M:%SZ} {pick(n, 'INFO', 'WARN', 'ERROR'):5} {pick(n, 'shop::orders', 'hyper::server::conn')}] {message(n)}"


def _rails(n: int) -> str:
    level = pick(n, "INFO", "WARN", "ERROR")
    return f"{level[0]}, [{when(n):%Y-%m-%dT%H:%M:%S.%f} #4711] {level:>5} -- : {message(n)}"


def _php_fpm(n: int) -> str:
    return f"[{when(n):%d-%b-%Y %H:%M:%S}] {pick(n, 'NOTICE', 'WARNING', 'ERROR')}: {message(n)}"


def _otel(n: int) -> str:
    record = {
        "timeUnixNano": str(int(when(n).timestamp() * 1e6) * 1000),
        "severityNumber": 9 + n % 3,
        "severityText": pick(n, "INFO", "WARN"),
        "body": {"stringValue": message(n)},
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return json.dumps(
        {
            "resourceLogs": [
                {
                    "resource": resource,
                    "scopeLogs": [{"scope": {"name": "orders"}, "logRecords": [record]}],
                }
            ]
        }
    )


def _github(n: int) -> str:
    return json.dumps(
        {
            "action": pick(n, "opened", "closed"),
            "number": n + 7,
            "pull_request": {
                "id": 1000 + n,
                "state": "open",
                "created_at": "2026-11-20T08:00:00Z",
                "updated_at": f"{when(n):%Y-%m-%dT%H:%M:%SZ}",
            },
            "repository": {
                "id": 77,
                "full_name": "example/shop",
                "pushed_at": "2026-11-19T08:00:00Z",
            },
            "sender": {"login": "ann"},
        }
    )


def _csv(n: int) -> str:
    note = pick(n, "fine", '"late, paid in cash"', "")
    return f"{n + 1},{when(n):%Y-%m-%d %H:%M:%S},{pick(n, 'web-1', 'web-2')},{pick(n, 'ann', 'bob')},{12.5 + n:.2f},{note}"


def _csv_semicolon(n: int) -> str:
    return f"{when(n):%d.%m.%Y};{when(n):%H:%M:%S};{pick(n, 'Wien', 'Graz')};{n + 20};{pick(n, 'ok', 'fehlt')}"


def _tsv(n: int) -> str:
    return "\t".join(
        (
            f"{when(n):%Y-%m-%dT%H:%M:%SZ}",
            f"{pick(n, 'GET', 'PUT')}",
            str(200 + n % 4),
            f"{0.25 + n:.2f}",
            message(n),
        )
    )


def _zeek(n: int) -> str:
    return "\t".join(
        (
            f"{when(n).timestamp():.6f}",
            f"CHhAvVGS1DHFjwGM{n}",
            f"10.0.0.{n % 90}",
            str(40000 + n),
            "192.0.2.9",
            "443",
            pick(n, "tcp", "udp"),
            pick(n, "1.25", "-"),
            str(n + 5),
        )
    )


FORMATS: Final[list[LogFormat]] = corpus(
    python_logging={
        "record": _python,
        "time": FIRST,
        "level": "INFO",
        "program": "shop.orders",
        "unparsed": 0,
        "multiline": True,
    },
    django={
        "record": _django,
        "time": FIRST,
        "level": "WARNING",
        "program": "basehttp",
        "numbers": (4711, 1402000),
    },
    gunicorn={"record": _gunicorn, "level": "INFO", "numbers": (4711,)},
    uvicorn={"record": _uvicorn, "time": None, "level": "INFO", "numbers": (200,)},
    loguru={"record": _loguru, "time": FIRST, "level": "INFO", "program": "shop.orders:create:12"},
    zap_console={
        "record": _zap,
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "level": "INFO",
        "program": "server/http.go:12",
    },
    zap_json={
        "record": _zap_json,
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "program": "server/http.go:12",
        "numbers": (0.25,),
    },
    logrus={"record": _logrus, "payload": "logfmt", "level": "info", "numbers": (1,)},
    rust_env_logger={"record": _env_logger, "level": "INFO", "program": "shop::orders"},
    rails={"record": _rails, "time": FIRST, "level": "INFO", "numbers": (4711,)},
    php_fpm={"record": _php_fpm, "level": "NOTICE"},
    opentelemetry_json={
        "record": _otel,
        "time": FIRST,
        "level": "INFO",
        "program": "orders",
        "numbers": (9,),
    },
    github_webhook={"record": _github, "payload": "json", "numbers": (7,)},
    csv_header={
        "header": ("id,created_at,server,user,amount,note",),
        "record": _csv,
        "host": "web-1",
        "numbers": (1, 12.5),
        "unparsed": 2,
    },
    csv_semicolon={
        "header": ("Datum;Uhrzeit;Ort;Anzahl;Status",),
        "record": _csv_semicolon,
        "numbers": (20,),
        "unparsed": 2,
    },
    tsv_header={
        "header": ("time\tmethod\tstatus\tduration\ttext",),
        "record": _tsv,
        "payload": ("tsv", "pattern"),
        "numbers": (200, 0.25),
        "unparsed": 2,
    },
    zeek={
        "header": (
            "#separator \\x09",
            "#path\tconn",
            "#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tduration\torig_bytes",
        ),
        "record": _zeek,
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "numbers": (40000, 443, 1.25, 5),
        "unparsed": 4,
    },
)
