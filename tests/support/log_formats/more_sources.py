"""Further formats of many sources that the method was tried on after it was written."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when

FORMATS: Final[list[LogFormat]] = corpus(
    ssh_journal_short_iso={
        "record": lambda n: f"{iso(n)}+0000 web-1 sshd[{4711 + n}]: {message(n)}",
        "payload": "syslog",
        "host": "web-1",
        "program": "sshd",
    },
    pgbouncer={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)} UTC [{4711}] {pick(n, 'LOG', 'WARNING')} C-0x55: shop/app@10.0.0.{n % 90}:5{n:04} {message(n)}"
        ),
        "time": FIRST,
        "level": "LOG",
        "numbers": (4711,),
    },
    mongodb_old={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}+0000 {pick(n, 'I', 'W')} {pick(n, 'NETWORK', 'STORAGE'):8} [{pick(n, 'listener', 'conn7')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
        "program": "NETWORK",
    },
    clickhouse={
        "record": lambda n: (
            f"{when(n):%Y.%m.%d %H:%M:%S.%f} [ {pick(n, '1', '27')} ] {{{pick(n, '', 'a1b2-c3')}}} <{pick(n, 'Information', 'Debug', 'Error')}> {pick(n, 'Application', 'MergeTreeBackgroundExecutor')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "Information",
        "program": "Application",
        "numbers": (1,),
    },
    influx={
        "record": lambda n: (
            f'ts={iso(n)}.{when(n).microsecond:06}Z lvl={pick(n, "info", "warn")} msg="{message(n).replace(chr(34), "")}" log_id=0x{n:04x} bytes={n}'
        ),
        "payload": "logfmt",
        "time": FIRST,
        "level": "info",
        "numbers": (0,),
    },
    solr={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)} {pick(n, 'INFO', 'WARN'):5} (qtp1-{n % 9}) [c:shop s:shard1] {pick(n, 'o.a.s.c.S.Request', 'o.a.s.u.Handler')} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "o.a.s.c.S.Request",
    },
    hadoop_yarn={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} {pick(n, 'INFO', 'WARN')} [{pick(n, 'main', 'IPC Server handler 3 on 8030')}] {pick(n, 'org.apache.hadoop.yarn.server.RM', 'org.apache.hadoop.ipc.Server')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.apache.hadoop.yarn.server.RM",
    },
    weblogic={
        "record": lambda n: (
            f"<{when(n):%b %d, %Y %I:%M:%S %p} UTC> <{pick(n, 'Notice', 'Error', 'Warning')}> <{pick(n, 'Server', 'Security')}> <BEA-{n:06}> <{message(n)}>"
        ),
        "level": "Notice",
        "program": "Server",
    },
    websphere={
        "record": lambda n: (
            f"[{when(n):%m/%d/%y %H:%M:%S}:{ms(n)} UTC] {n:08x} {pick(n, 'WsServerImpl', 'SystemOut'):13} {pick(n, 'A', 'O', 'E')}   {message(n)}"
        ),
        "time": FIRST,
        "program": "WsServerImpl",
    },
    apache_vhost={
        "record": lambda n: (
            f'www.example.com:443 203.0.113.{n % 200} - - [{when(n):%d/%b/%Y:%H:%M:%S} +0000] "GET / HTTP/1.1" 200 {512 + n} "-" "curl/8"'
        ),
        "numbers": (200, 512),
    },
    nginx_timed={
        "record": lambda n: (
            f'203.0.113.{n % 200} - - [{when(n):%d/%b/%Y:%H:%M:%S} +0000] "GET / HTTP/1.1" 200 {512 + n} "-" "curl/8" rt={0.25 + n / 100:.3f} uct="0.001" urt="0.2"'
        ),
        "numbers": (200, 512),
    },
    varnishncsa={
        "record": lambda n: (
            f'203.0.113.{n % 200} - - [{when(n):%d/%b/%Y:%H:%M:%S} +0000] "GET http://x.example/ HTTP/1.1" 200 {512 + n} "-" "curl/8" {pick(n, "hit", "miss")}'
        ),
        "numbers": (200, 512),
    },
    gcs_csv={
        "record": lambda n: (
            f'"{int(when(n).timestamp() * 1e6)}","203.0.113.7","1","GET","200","{512 + n}"'
        ),
        "time": FIRST,
        "header": ('"time_micros","c_ip","c_ip_type","cs_method","sc_status","sc_bytes"',),
        "numbers": (200, 512),
        "unparsed": 2,
    },
    azure_json={
        "record": lambda n: json.dumps(
            {
                "time": f"{iso(n)}.1234560Z",
                "resourceId": "/X",
                "category": "Audit",
                "level": pick(n, "Informational", "Error"),
                "durationMs": str(n + 7),
                "properties": {"a": 1},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "Informational",
        "numbers": (7,),
    },
    okta={
        "record": lambda n: json.dumps(
            {
                "actor": {"id": "x"},
                "published": f"{iso(n)}.{ms(n)}Z",
                "severity": pick(n, "INFO", "WARN"),
                "uuid": f"u{n}",
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
    },
    k8s_event={
        "record": lambda n: json.dumps(
            {
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": {"name": f"p.{n}", "creationTimestamp": f"{iso(n)}Z"},
                "reason": pick(n, "Pulled", "Failed"),
                "count": n + 1,
                "type": pick(n, "Normal", "Warning"),
            }
        ),
        "numbers": (1,),
        "payload": "json",
    },
    cri_json={
        "record": lambda n: (
            f"{iso(n)}.{when(n).microsecond:06}789Z stdout F "
            + json.dumps({"ts": f"{iso(n)}Z", "level": "info", "msg": message(n), "n": n})
        ),
        "payload": "json",
        "level": "info",
        "numbers": (0,),
        "cri": True,
    },
    asterisk={
        "record": lambda n: (
            f"[{when(n):%Y-%m-%d %H:%M:%S}] {pick(n, 'NOTICE', 'WARNING', 'VERBOSE')}[{2345 + n}] chan_sip.c: {message(n)}"
        ),
        "level": "NOTICE",
        "numbers": (2345,),
    },
    openvpn={
        "record": lambda n: f"{when(n):%a %b %d %H:%M:%S %Y} 203.0.113.{n % 200}:1194 {message(n)}",
    },
    openvpn_us={
        "record": lambda n: f"{when(n):%Y-%m-%d %H:%M:%S} us={n + 123456} {message(n)}",
        "numbers": (123456,),
    },
    samba={
        "record": lambda n: (
            f"[{when(n):%Y/%m/%d %H:%M:%S.%f},  {n % 4}] ../source3/smbd/server.c:{100 + n}(main)\n  {message(n)}"
        ),
        "time": FIRST,
        "unparsed": 0,
        "multiline": True,
    },
    cups={
        "record": lambda n: (
            f"{pick(n, 'I', 'E', 'W')} [{when(n):%d/%b/%Y:%H:%M:%S} +0000] [Job {n + 1}] {message(n)}"
        ),
        "level": "I",
    },
    gitlab_shell={
        "record": lambda n: (
            f'time="{iso(n)}Z" level=info msg="executing git command" pid={4711 + n} user="ann"'
        ),
        "payload": "logfmt",
        "level": "info",
        "numbers": (4711,),
    },
    slurm={
        "record": lambda n: f"[{iso(n)}.{ms(n)}] {pick(n, 'error: ', 'debug:  ', '')}{message(n)}",
        "time": FIRST,
    },
    rsyslog_tab_csv={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}\tweb-{n % 3 + 1}\t{pick(n, 'warn', 'info')}\t{message(n)}"
        ),
        "payload": ("tsv", "pattern"),
        "host": "web-1",
        "level": "warn",
    },
    sql_trace_semicolon={
        "record": lambda n: (
            f"{when(n):%d/%m/%Y %H:%M:%S};ann;{pick(n, 'SELECT', 'UPDATE')};{n + 3};{0.5 + n:.3f}".replace(
                ".", ","
            )
        ),
        "header": ("Zeit;Benutzer;Art;Zeilen;Dauer",),
        "numbers": (3,),
        "unparsed": 2,
    },
    loki_tracing={
        "record": lambda n: (
            f"{iso(n)}.{when(n).microsecond:06}Z  {pick(n, 'INFO', 'WARN', ' WARN'.strip())} {pick(n, 'shop::orders', 'hyper::server')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "shop::orders",
    },
    monolog={
        "record": lambda n: (
            f"[{iso(n)}.{when(n).microsecond:06}+00:00] {pick(n, 'app', 'security')}.{pick(n, 'INFO', 'ERROR')}: {message(n)} [] []"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "app",
    },
    laravel={
        "record": lambda n: (
            f"[{when(n):%Y-%m-%d %H:%M:%S}] {pick(n, 'production', 'local')}.{pick(n, 'ERROR', 'INFO')}: {message(n)}"
        ),
        "level": "ERROR",
    },
    perl_log4={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S} {4711} {pick(n, 'INFO', 'WARN')}> {pick(n, 'Shop.pm', 'Jobs.pm')}:{n + 5} main:: - {message(n)}"
        ),
        "level": "INFO",
        "numbers": (4711,),
    },
)
