"""Further formats of platforms and security devices that the method was tried on after it was written."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when

FORMATS: Final[list[LogFormat]] = corpus(
    fluentd={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S} +0000 [{pick(n, 'info', 'warn')}]: #0 {message(n)}"
        ),
        "level": "info",
    },
    fluentbit={
        "record": lambda n: (
            f"[{when(n):%Y/%m/%d %H:%M:%S}] [{pick(n, ' info', ' warn', 'error')}] [{pick(n, 'engine', 'input:tail:tail.0')}] {message(n)}"
        ),
        "level": "info",
        "program": "engine",
    },
    grafana={
        "record": lambda n: (
            f'logger={pick(n, "http.server", "sqlstore")} t={iso(n)}.{when(n).microsecond:06}Z level={pick(n, "info", "eror")} msg="{message(n).replace(chr(34), "")}" status={200 + n % 3}'
        ),
        "payload": "logfmt",
        "time": FIRST,
        "level": "info",
        "program": "http.server",
        "numbers": (200,),
    },
    cockroach={
        "record": lambda n: (
            f"{pick(n, 'I', 'W', 'E')}{when(n):%y%m%d %H:%M:%S.%f} {n + 300} server/node.go:{n + 400} ⋮ [n1] {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
        "numbers": (300,),
    },
    activemq={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} | {pick(n, 'INFO', 'WARN'):5} | {message(n)} | org.apache.activemq.broker.{pick(n, 'BrokerService', 'TransportConnector')} | {pick(n, 'main', 'ActiveMQ Task-1')}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    sidekiq={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z pid=4711 tid=gx{n:02} class=Mailer jid=a{n:04} {pick(n, 'INFO', 'WARN')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "numbers": (4711,),
    },
    puma={
        "record": lambda n: f"[{4711}] {message(n)}",
        "payload": "text",
        "time": None,
        "unparsed": 0,
    },
    cef={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} fw-1 CEF:0|Vendor|Product|1.0|{100 + n % 4}|{message(n)}|{n % 9}|src=203.0.113.7 spt={40000 + n}"
        ),
        "payload": ("syslog", "pattern"),
        "host": "fw-1",
    },
    paloalto={
        "record": lambda n: (
            f"<14>{when(n):%b %d %H:%M:%S} fw-1 1,{when(n):%Y/%m/%d %H:%M:%S},0011,TRAFFIC,end,{n},203.0.113.7"
        ),
        "payload": ("syslog", "pattern"),
        "host": "fw-1",
    },
    pfsense={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} pf filterlog[{4711}]: 5,,,1000,em0,match,block,in,4,0x0,,{n},tcp"
        ),
        "payload": "syslog",
        "host": "pf",
        "program": "filterlog",
    },
    aws_lambda={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z\t5c3ad7a0-0000-4000-8000-{n:012x}\t{pick(n, 'INFO', 'ERROR')}\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "level": "INFO",
    },
    istio={
        "record": lambda n: (
            f"{iso(n)}.{when(n).microsecond:06}Z\t{pick(n, 'info', 'warning')}\t{pick(n, 'envoy main', 'xdsproxy', 'cache')}\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "level": "info",
    },
    kong={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S} [{pick(n, 'notice', 'error')}] {24 + n % 3}#0: *{n + 1} [kong] init.lua:{n + 300} {message(n)}"
        ),
        "level": "notice",
        "numbers": (24, 0),
    },
    minio_json={
        "record": lambda n: json.dumps(
            {
                "version": "1",
                "deploymentid": "x",
                "time": f"{iso(n)}.{when(n).microsecond:06}Z",
                "api": {"name": "GetObject", "statusCode": 200},
            }
        ),
        "payload": "json",
        "time": FIRST,
    },
    gitea={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S} ...{pick(n, 'rs/web/repo', 'es/setting')}.go:{n + 10}:Home() [{pick(n, 'I', 'E', 'W')}] {message(n)}"
        ),
        "level": "I",
    },
    hadoop_mr={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} INFO [main] org.apache.hadoop.mapreduce.v2.app.MRAppMaster: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.apache.hadoop.mapreduce.v2.app.MRAppMaster",
    },
    mac_wifi={
        "record": lambda n: (
            f"{when(n):%a %b %d %H:%M:%S}.{ms(n)} <{pick(n, 'kernel', 'airportd[72]')}> {message(n)}"
        ),
        "time": FIRST,
    },
    sysmon_xml={
        "record": lambda n: (
            f"<Event><System><EventID>{n % 5 + 1}</EventID><TimeCreated SystemTime='{iso(n)}.{when(n).microsecond:06}Z'/><Computer>WIN-1</Computer></System></Event>"
        ),
        "time": FIRST,
    },
    dbt={
        "record": lambda n: (
            f"{when(n):%H:%M:%S.%f} [{pick(n, 'info ', 'debug', 'error')}] [{pick(n, 'MainThread', 'Thread-1  ')}]: {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    windows_tsv={
        "record": lambda n: (
            f"Information\t{when(n):%m/%d/%Y %I:%M:%S %p}\tService Control Manager\t{7036 + n % 3}\tNone\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "level": "Information",
        "numbers": (7036,),
        "header": ("Level\tDate and Time\tSource\tEvent ID\tTask Category\tText",),
        "unparsed": 2,
    },
    windows_csv={
        "record": lambda n: (
            f'Information,{when(n):%m/%d/%Y %I:%M:%S %p},Service Control Manager,{7036 + n % 3},None,"{message(n).replace(chr(34), "")}"'
        ),
        "level": "Information",
        "numbers": (7036,),
        "header": ("Level,Date and Time,Source,Event ID,Task Category,Text",),
        "unparsed": 2,
    },
    teamcity={
        "record": lambda n: (
            f"[{when(n):%Y-%m-%d %H:%M:%S},{ms(n)}]   {pick(n, 'INFO', 'WARN')} [{pick(n, 'main', 'Normal executor 3')}] -   jetbrains.buildServer.{pick(n, 'AGENT', 'SERVER')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    solaris_iso_bracket={
        "record": lambda n: f"<{iso(n)}.{ms(n)}Z> <{pick(n, 'INFO', 'ERROR')}> <shop> {message(n)}",
        "time": FIRST,
        "level": "INFO",
    },
    keycloak={
        "record": lambda n: (
            f'{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} {pick(n, "INFO", "WARN"):5} [org.keycloak.events] (executor-thread-{n % 5}) type="LOGIN", realmId="a", userId="{n}"'
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.keycloak.events",
    },
    sql_dump_tsv={
        "record": lambda n: "\t".join(
            (str(n + 1), f"{when(n):%Y-%m-%d %H:%M:%S}", pick(n, "ann", "bob"), "\\N", f"{1.5 + n}")
        ),
        "payload": ("tsv", "pattern"),
        "numbers": (1, 1.5),
    },
)
