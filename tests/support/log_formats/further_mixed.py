"""Formats of many kinds of software, written to measure the finished method on unseen ones."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when


def _day(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}"


def _ups_traps(n: int) -> str:
    body = pick(
        n,
        f"UPS-1 upsd[4711]: Data for UPS [ups{n % 3}] is stale - check driver",
        "UPS-1 upsmon[4712]: UPS ups0@localhost on battery",
    )
    return f"{when(n):%b %d %H:%M:%S} {body}"


def _jenkins_build(n: int) -> str:
    body = pick(
        n,
        "[Pipeline] sh",
        f"+ make test-{n}",
        f"ERROR: script returned exit code {n % 9 + 1}",
        "Finished: SUCCESS",
    )
    return f"[{iso(n)}.{ms(n)}Z] {body}"


def _security_json(n: int) -> str:
    entry: dict[str, Any] = {
        "timestamp": f"{iso(n)}.{ms(n)}456+0000",
        "flow_id": 4711 + n,
        "event_type": pick(n, "alert", "flow", "dns"),
        "src_ip": "10.0.0.1",
        "src_port": 40000 + n,
        "dest_port": 53,
        "proto": "UDP",
        "flow": {"pkts_toserver": n % 7 + 2, "bytes_toserver": 512 + n},
    }
    return json.dumps(entry)


FORMATS: Final[list[LogFormat]] = corpus(
    nut_upsd={"record": _ups_traps, "payload": "syslog", "host": "UPS-1"},
    jenkins_timestamper={"record": _jenkins_build, "time": FIRST},
    suricata_eve={
        "record": _security_json,
        "payload": "json",
        "time": FIRST,
        "numbers": (4711, 40000, 53, 2, 512),
    },
    tailscale={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S} {pick(n, 'magicsock', 'wgengine', 'netcheck')}: {message(n)}"
        ),
        "program": "magicsock",
    },
    home_assistant_addon={
        "record": lambda n: (
            f"[{when(n):%H:%M:%S}] {pick(n, 'INFO', 'NOTICE', 'WARNING')}: {message(n)}"
        ),
        "level": "INFO",
    },
    bacula={
        "record": lambda n: (
            f"{when(n):%d-%b %H:%M} bacula-dir JobId {12 + n}: {pick(n, 'Start Backup', 'Error: no volume', 'Bacula done')}"
        ),
        "numbers": (12,),
    },
    snowflake_csv={
        "record": lambda n: (
            f'"{_day(n)}.{ms(n)} +0000","01b{n:05}","ANN","WH_{pick(n, "S", "L")}","{pick(n, "SUCCESS", "FAIL")}",{120 + n},{4096 * n},"select {n}, 1"'
        ),
        "header": (
            '"START_TIME","QUERY_ID","USER_NAME","WAREHOUSE_NAME","EXECUTION_STATUS","TOTAL_ELAPSED_TIME","BYTES_SCANNED","QUERY_TEXT"',
        ),
        "time": FIRST,
        "numbers": (120, 0),
        "unparsed": 2,
    },
    palworld={
        "record": lambda n: f"[{_day(n)}] [{pick(n, 'LOG', 'CHAT', 'WARN')}] {message(n)}",
    },
    rust_game={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S} | {pick(n, 'Info', 'Warn')} | ann{n % 9}[{76561 + n}/ann] {pick(n, 'joined', 'was killed')}"
        ),
        "level": "Info",
    },
    zwave_js={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z {pick(n, 'CNTRLR', 'DRIVER', 'SERIAL'):8} [Node {n % 90 + 10:03}] {message(n)}"
        ),
        "time": FIRST,
        "program": "CNTRLR",
    },
    haproxy_json={
        "record": lambda n: json.dumps(
            {
                "time_local": f"{when(n):%d/%b/%Y:%H:%M:%S} +0000",
                "hostname": "lb-1",
                "client": {"ip": "10.0.0.1", "port": 40000 + n},
                "http": {"status": 200 + n % 3, "bytes": 512 + n},
                "timers-ms": {"total": 12 + n},
            }
        ),
        "payload": "json",
        "host": "lb-1",
        "numbers": (40000, 200, 512, 12),
    },
    iis_like_w3c={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d} {when(n):%H:%M:%S} web-1 GET /a/{n} - 443 - 10.0.0.1 curl/8 {pick(n, '200', '404')} 0 0 {n + 3}"
        ),
        "header": (
            "#Software: Microsoft Internet Information Services 10.0",
            "#Fields: date time s-computername cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status sc-substatus sc-win32-status time-taken",
        ),
        "host": "web-1",
        "numbers": (443, 200, 3),
        "unparsed": 3,
    },
    mlflow={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S} {pick(n, 'INFO', 'WARNING')} mlflow.{pick(n, 'tracking.fluent', 'store.db.utils')}: {message(n)}"
        ),
        "level": "INFO",
        "program": "mlflow.tracking.fluent",
    },
    pytorch_elastic={
        "record": lambda n: (
            f"[rank{n % 8}]:[{pick(n, 'I', 'W', 'E')} {when(n):%m-%d %H:%M:%S}.{ms(n)} 4711 torch/distributed/elastic.py:{n + 12}] {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
    },
    redpanda={
        "record": lambda n: (
            f"{pick(n, 'INFO', 'WARN', 'DEBUG'):5} {_day(n)},{ms(n)} [shard {n % 4}:main] {pick(n, 'kafka', 'raft', 'cluster')} - {pick(n, 'server.cc:12', 'vote.cc:47')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    ibm_mq={
        "record": lambda n: (
            f"{_day(n)} - Process({4711 + n % 3}.1) User(mqm) Program({pick(n, 'amqzxma0', 'runmqchl')}) {pick(n, 'AMQ9002I', 'AMQ9999E')}: {message(n)}"
        ),
        "program": "amqzxma0",
    },
    tp_link={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S} [{n % 8}] {pick(n, 'DHCPD', 'PPP', 'Firewall')}: {message(n)}"
        ),
        "program": "DHCPD",
    },
    synology={
        "record": lambda n: (
            f"{pick(n, 'info', 'warning', 'err')}\t{when(n):%Y/%m/%d %H:%M:%S}\tSYSTEM:\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "level": "info",
    },
    postfix_like_pflog={
        "record": lambda n: (
            f"{iso(n)}.{when(n).microsecond:06}+00:00 mx-1 postfix/{pick(n, 'smtpd', 'qmgr', 'cleanup')}[{4711 + n}]: {message(n)}"
        ),
        "payload": "syslog",
        "time": FIRST,
        "host": "mx-1",
        "program": "postfix/smtpd",
    },
    pdns_auth={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} {pick(n, 'Remote 10.0.0.1 wants x', 'AXFR of domain x initiated', 'Done launching threads')}"
        ),
    },
    hetzner_audit={
        "record": lambda n: json.dumps(
            {
                "id": n,
                "created_at": f"{iso(n)}Z",
                "actor": {"user": {"name": "ann", "id": 4711}},
                "event-type": pick(n, "server.create", "server.delete"),
                "result.code": n % 3 + 20,
            }
        ),
        "payload": "json",
        "numbers": (4711, 20),
    },
    lambda_text={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z\t8f0e1a2b-0000-4000-8000-{n:012x}\t{pick(n, 'INFO', 'ERROR', 'WARN')}\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "level": "INFO",
    },
    squid_like_timing={
        "record": lambda n: (
            f"{int(when(n).timestamp())}.{ms(n)} {n % 900 + 100:6} 10.0.0.{n % 200} TCP_{pick(n, 'MISS', 'HIT')}/200 {512 + n} GET http://x/{n} - HIER_DIRECT/203.0.113.7 text/html"
        ),
        "time": FIRST,
        "numbers": (100, 512),
    },
    thingsboard={
        "record": lambda n: (
            f"{_day(n)},{ms(n)} [{pick(n, 'main', 'tb-rule-engine-consumer-12-thread-3', 'sql-queue-1-ts-5')}] {pick(n, 'INFO', 'WARN', 'ERROR'):5} {pick(n, 'o.t.s.a.ActorSystem', 'o.t.s.dao.sql.TsDao')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "o.t.s.a.ActorSystem",
    },
    tasmota={
        "record": lambda n: (
            f'{when(n):%H:%M:%S}.{ms(n)} {pick(n, "MQT", "WIF", "APP")}: stat/plug/{pick(n, "RESULT", "STATUS")} = {{"POWER":"{pick(n, "ON", "OFF")}","n":{n}}}'
        ),
        "time": FIRST,
        "program": "MQT",
    },
    erlang_otp={
        "record": lambda n: (
            f"=NOTICE REPORT==== {when(n):%d-%b-%Y::%H:%M:%S}.{when(n).microsecond:06} ===\n    application: {pick(n, 'kernel', 'stdlib')}\n    exited: {n}"
        ),
        "time": FIRST,
        "unparsed": 0,
        "multiline": True,
    },
    jboss_gc={
        "record": lambda n: (
            f"[{iso(n)}.{ms(n)}+0000][{12.5 + n:.3f}s][{pick(n, 'info', 'debug')}][gc,{pick(n, 'start', 'heap')}] GC({n}) Pause Young {n % 90}M->3M(256M) {n % 9}.123ms"
        ),
        "time": FIRST,
        "level": "info",
        "numbers": (12.5,),
    },
    sap_audit_csv={
        "record": lambda n: (
            f"{when(n):%d.%m.%Y};{when(n):%H:%M:%S};sap-{n % 2 + 1};{pick(n, 'AU1', 'AU2')};{4711 + n};{pick(n, 'Logon ok', 'Logon failed')}"
        ),
        "header": ("Datum;Zeit;Server;Ereignis;Nummer;Text",),
        "host": "sap-1",
        "numbers": (4711,),
        "unparsed": 2,
    },
    litespeed={
        "record": lambda n: (
            f"{_day(n)}.{when(n).microsecond:06} [{pick(n, 'NOTICE', 'INFO', 'ERROR')}] [{4711}] [T0] [10.0.0.1:{40000 + n}:HTTP2-1#vh] {message(n)}"
        ),
        "time": FIRST,
        "level": "NOTICE",
        "numbers": (4711,),
    },
    keycloak_event={
        "record": lambda n: (
            f'{_day(n)},{ms(n)} {pick(n, "DEBUG", "WARN")} [org.keycloak.events] (executor-thread-{n % 9}) type="{pick(n, "LOGIN", "LOGIN_ERROR")}", realmId="r", userId="u{n}", ipAddress="10.0.0.1"'
        ),
        "time": FIRST,
        "level": "DEBUG",
        "program": "org.keycloak.events",
    },
)
