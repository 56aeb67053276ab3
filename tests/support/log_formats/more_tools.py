"""Further formats of tools, exports and devices that the method was tried on after it was written."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when

FORMATS: Final[list[LogFormat]] = corpus(
    aws_waf={
        "record": lambda n: json.dumps(
            {
                "timestamp": int(when(n).timestamp() * 1000),
                "formatVersion": 1,
                "action": pick(n, "ALLOW", "BLOCK"),
                "httpRequest": {"clientIp": "203.0.113.7", "uri": "/"},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (1,),
    },
    route53={
        "record": lambda n: (
            f"1.0 {iso(n)}Z Z123412341234 example.com {pick(n, 'A', 'AAAA')} NOERROR UDP FRA6 192.168.1.1 {pick(n, '-', '203.0.113.0/24')}"
        ),
    },
    gelf={
        "record": lambda n: json.dumps(
            {
                "version": "1.1",
                "host": "web-1",
                "short_message": message(n),
                "timestamp": round(when(n).timestamp(), 3),
                "level": 6 - n % 3,
                "_pid": 4711,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "host": "web-1",
        "level": "6",
        "numbers": (4711, 6),
    },
    ecs_json={
        "record": lambda n: json.dumps(
            {
                "@timestamp": f"{iso(n)}.{ms(n)}Z",
                "log.level": pick(n, "INFO", "WARN"),
                "message": message(n),
                "ecs.version": "1.2.0",
                "process.thread.name": "main",
                "host": {"name": "web-1"},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "host": "web-1",
        "level": "INFO",
    },
    log4net={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} [{n % 9 + 1}] {pick(n, 'INFO', 'ERROR'):5} Shop.{pick(n, 'Orders', 'Jobs')} [(null)] - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "Shop.Orders",
    },
    android_brief={
        "record": lambda n: (
            f"{pick(n, 'D', 'I', 'W')}/{pick(n, 'Zygote', 'ActivityManager')}( {700 + n}): {message(n)}"
        ),
        "time": None,
        "level": "D",
        "program": "Zygote",
        "numbers": (700,),
    },
    cisco_asa={
        "record": lambda n: (
            f"<166>{when(n):%b %d %Y %H:%M:%S} fw-1 : %ASA-6-302013: Built outbound TCP connection {n}"
        ),
        "payload": "syslog",
        "host": "fw-1",
    },
    apache_us={
        "record": lambda n: (
            f'203.0.113.{n % 200} - - [{when(n):%d/%b/%Y:%H:%M:%S} +0200] "GET / HTTP/1.1" 200 {512 + n}'
        ),
        "time": "2026-11-21T08:00:00.000Z",
        "numbers": (200, 512),
    },
    tomcat_access={
        "record": lambda n: (
            f'203.0.113.{n % 200} - - [{when(n):%d/%b/%Y:%H:%M:%S} +0000] "GET /shop HTTP/1.1" 200 {512 + n} {n + 3}'
        ),
        "numbers": (200, 512, 3),
    },
    jenkins={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)}+0000 [id={n + 20}]\t{pick(n, 'INFO', 'WARNING')}\thudson.{pick(n, 'WebAppMain$3', 'model.Run')}#run: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    terraform={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z [{pick(n, 'INFO', 'DEBUG')}]  {pick(n, 'Terraform version', 'CLI args')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    ansible={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} p={4711} u=ann n=ansible | {message(n)}"
        ),
        "time": FIRST,
        "numbers": (4711,),
    },
    puppet={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S} +0000 {pick(n, 'Puppet', '/Stage[main]/Main')} ({pick(n, 'info', 'notice', 'err')}): {message(n)}"
        ),
        "level": "info",
        "program": "Puppet",
    },
    nagios={
        "record": lambda n: (
            f"[{int(when(n).timestamp())}] {pick(n, 'SERVICE ALERT', 'HOST ALERT', 'LOG ROTATION')}: web-1;{message(n)}"
        ),
    },
    zabbix={
        "record": lambda n: f"  {4711 + n % 3}:{when(n):%Y%m%d:%H%M%S}.{ms(n)} {message(n)}",
        "time": FIRST,
        "numbers": (4711,),
    },
    mosquitto={
        "record": lambda n: f"{int(when(n).timestamp())}: {message(n)}",
    },
    freeswitch={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S.%f} [{pick(n, 'NOTICE', 'INFO', 'ERR')}] switch_core.c:{n + 40} {message(n)}"
        ),
        "time": FIRST,
        "level": "NOTICE",
    },
    yum={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} {pick(n, 'Installed', 'Updated')}: {pick(n, 'libc', 'bash')}-{n}.x86_64"
        ),
        "payload": "syslog",
    },
    sysdig_falco={
        "record": lambda n: (
            f"{when(n):%H:%M:%S.%f}789: {pick(n, 'Warning', 'Error', 'Notice')} {message(n)}"
        ),
        "time": FIRST,
        "level": "Warning",
    },
    csv_us_dates={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %I:%M %p},{n},{pick(n, 'buy', 'sell')},{1.5 + n:.2f}"
        ),
        "header": ("Date,Order ID,Side,Price (USD)",),
        "numbers": (0, 1.5),
        "unparsed": 2,
    },
    csv_noheader={
        "record": lambda n: f"{iso(n)}Z,web-{n % 3 + 1},{20 + n},{pick(n, 'ok', 'late')}",
        "numbers": (20,),
        "host": "web-1",
    },
    influx_json_ns={
        "record": lambda n: json.dumps(
            {"time": int(when(n).timestamp() * 1e6) * 1000, "v": 1.5 + n}
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (1.5,),
    },
    stackdriver_glog_trace={
        "record": lambda n: (
            f"{pick(n, 'E', 'I')}{when(n):%m%d %H:%M:%S.%f} {n % 4 + 1:7} main.go:{n + 9}] {message(n)}"
            + ("\ngoroutine 1 [running]:\n\tmain.main()" if n % 6 == 2 else "")
        ),
        "time": FIRST,
        "level": "E",
        "unparsed": 0,
        "multiline": True,
    },
    two_stamps={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S} [{pick(n, 'INFO', 'WARN')}] order placed at {when(n):%d.%m.%Y %H:%M} by ann"
        ),
        "level": "INFO",
    },
    vmkernel={
        "record": lambda n: f"{iso(n)}.{ms(n)}Z cpu{n % 8}:{33000 + n})ScsiDeviceIO: {message(n)}",
        "time": FIRST,
    },
    hostd={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z {pick(n, 'info', 'verbose')} hostd[2FD81B70] [Originator@6876 sub=Vimsvc] {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "program": "hostd",
    },
    nextcloud={
        "record": lambda n: json.dumps(
            {
                "reqId": f"r{n}",
                "level": n % 4,
                "time": f"{iso(n)}+00:00",
                "remoteAddr": "203.0.113.7",
                "user": "ann",
                "app": pick(n, "core", "files"),
                "message": message(n),
            }
        ),
        "payload": "json",
        "level": "0",
        "numbers": (0,),
    },
    graylog_semicol={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}+01:00;{pick(n, 'INFO', 'WARN')};{4711};{pick(n, 'Auth', 'Billing')};{message(n).replace(';', ',')}"
        ),
        "time": "2026-11-21T09:00:00.123Z",
        "level": "INFO",
        "numbers": (4711,),
    },
    ansi={
        "record": lambda n: (
            f"\x1b[2m{iso(n)}.{when(n).microsecond:06}Z\x1b[0m \x1b[32m{pick(n, ' INFO', ' WARN')}\x1b[0m \x1b[2mshop::{pick(n, 'orders', 'jobs')}\x1b[0m\x1b[2m:\x1b[0m {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
)
