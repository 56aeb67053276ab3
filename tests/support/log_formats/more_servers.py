"""Further formats, mostly of servers and libraries, that the method was tried on after it was written."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, message, ms, pick, when

FORMATS: Final[list[LogFormat]] = corpus(
    tomcat_catalina={
        "record": lambda n: (
            f"{when(n):%d-%b-%Y %H:%M:%S}.{ms(n)} {pick(n, 'INFO', 'WARNING', 'SEVERE')} [{pick(n, 'main', 'http-nio-8080-exec-3')}] {pick(n, 'org.apache.catalina.core.StandardService.startInternal', 'org.apache.coyote.AbstractProtocol.start')} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.apache.catalina.core.StandardService.startInternal",
    },
    jboss={
        "record": lambda n: (
            f"{when(n):%H:%M:%S},{ms(n)} {pick(n, 'INFO', 'WARN'):5} [{pick(n, 'org.jboss.as', 'org.jboss.modules')}] ({pick(n, 'main', 'MSC service thread 1-2')}) WFLYSRV{n:04}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.jboss.as",
    },
    oracle_alert={
        "record": lambda n: (
            f"{when(n):%a %b %d %H:%M:%S %Y}\n{message(n)}\nThread 1 advanced to log sequence {n + 100}"
        ),
        "unparsed": 0,
        "multiline": True,
    },
    mssql={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)[:2]} {pick(n, 'spid7s', 'Server', 'Logon'):12}{message(n)}"
        ),
        "time": "2026-11-21T10:00:00.120Z",
        "program": "spid7s",
    },
    cassandra={
        "record": lambda n: (
            f"{pick(n, 'INFO', 'WARN', 'DEBUG'):5} [{pick(n, 'main', 'CompactionExecutor:3')}] {when(n):%Y-%m-%d %H:%M:%S},{ms(n)} {pick(n, 'StorageService.java:622', 'CompactionTask.java:155')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "StorageService.java:622",
    },
    rabbitmq={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S.%f}+00:00 [{pick(n, 'info', 'warning', 'error')}] <0.{n + 200}.0> {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    nats={
        "record": lambda n: (
            f"[{4711}] {when(n):%Y/%m/%d %H:%M:%S.%f} [{pick(n, 'INF', 'WRN', 'ERR')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INF",
        "numbers": (4711,),
    },
    consul={
        "record": lambda n: (
            f"    {when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z [{pick(n, 'INFO', 'WARN')}]  agent.{pick(n, 'server', 'client')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "agent.server",
    },
    etcd_json={
        "record": lambda n: json.dumps(
            {
                "level": pick(n, "info", "warn"),
                "ts": f"{when(n):%Y-%m-%dT%H:%M:%S.%fZ}",
                "caller": "etcdserver/server.go:12",
                "msg": message(n),
                "took-ms": n,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "info",
    },
    prometheus={
        "record": lambda n: (
            f'ts={when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z caller=main.go:{n + 3} level={pick(n, "info", "warn")} component=tsdb msg="{message(n).replace(chr(34), "")}" took={n}'
        ),
        "payload": "logfmt",
        "time": FIRST,
        "level": "info",
        "program": "tsdb",
        "numbers": (0,),
    },
    exim={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S} 1k{n:04}-0006Ab-{n:02} {pick(n, '<=', '=>', 'Completed')} {message(n)}"
        ),
    },
    proftpd={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} ftp-1 proftpd[{4711 + n}] 10.0.0.1 (203.0.113.{n % 200}[203.0.113.{n % 200}]): {message(n)}"
        ),
        "time": FIRST,
        "host": "ftp-1",
        "program": "proftpd",
        "numbers": (4711,),
    },
    vsftpd={
        "record": lambda n: (
            f'{when(n):%a %b %d %H:%M:%S %Y} [pid {4711 + n}] [ann] OK LOGIN: Client "203.0.113.{n % 200}"'
        ),
        "numbers": (4711,),
    },
    fail2ban={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S},{ms(n)} fail2ban.{pick(n, 'filter', 'actions'):15} [{4711}]: {pick(n, 'INFO', 'NOTICE', 'WARNING'):7} [sshd] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "fail2ban.filter",
        "numbers": (4711,),
    },
    dpkg={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S} {pick(n, 'status installed', 'configure', 'upgrade')} libc6:amd64 2.36-9 {pick(n, '<none>', '2.36-10')}"
        ),
    },
    snort={
        "record": lambda n: (
            f"{when(n):%m/%d-%H:%M:%S.%f}  [**] [1:{2000 + n}:3] ET SCAN {message(n)} [**] [Priority: {n % 3 + 1}] {{TCP}} 203.0.113.{n % 200}:4{n:03} -> 10.0.0.1:22"
        ),
        "time": FIRST,
    },
    suricata_eve={
        "record": lambda n: json.dumps(
            {
                "timestamp": f"{when(n):%Y-%m-%dT%H:%M:%S.%f}+0000",
                "flow_id": n + 10**12,
                "event_type": "alert",
                "src_ip": "203.0.113.7",
                "src_port": 40000 + n,
                "alert": {"severity": 2},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (10**12, 40000),
    },
    aws_elb={
        "record": lambda n: (
            f'{when(n):%Y-%m-%dT%H:%M:%S.%fZ} my-elb 203.0.113.{n % 200}:28{n % 100:02} 10.0.0.1:80 0.000073 0.001{n % 90:02} 0.000057 200 200 0 {29 + n} "GET http://example.com:80/ HTTP/1.1" "curl/7.38.0" - -'
        ),
        "time": FIRST,
        "numbers": (0.000073, 200, 0, 29),
    },
    gcp_json={
        "record": lambda n: json.dumps(
            {
                "insertId": f"x{n}",
                "severity": pick(n, "INFO", "ERROR"),
                "timestamp": f"{when(n):%Y-%m-%dT%H:%M:%S.%f}Z",
                "resource": {"type": "gce"},
                "textPayload": message(n),
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
    },
    bunyan={
        "record": lambda n: json.dumps(
            {
                "name": "shop",
                "hostname": "web-1",
                "pid": 4711,
                "level": 30 + 10 * (n % 2),
                "msg": message(n),
                "time": f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z",
                "v": 0,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "host": "web-1",
        "level": "30",
        "program": "shop",
        "numbers": (4711, 30, 0),
    },
    pino={
        "record": lambda n: json.dumps(
            {
                "level": 30 + 10 * (n % 2),
                "time": int(when(n).timestamp() * 1000),
                "pid": 4711,
                "hostname": "web-1",
                "msg": message(n),
            }
        ),
        "payload": "json",
        "time": FIRST,
        "host": "web-1",
        "level": "30",
        "numbers": (4711,),
    },
    winston={
        "record": lambda n: (
            f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z {pick(n, 'info', 'error', 'warn')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    serilog={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)} +00:00 [{pick(n, 'INF', 'WRN', 'ERR')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INF",
    },
    nlog={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)}0|{pick(n, 'INFO', 'ERROR')}|Shop.{pick(n, 'Orders', 'Jobs')}|{message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "Shop.Orders",
    },
    dotnet_multi={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S} : {pick(n, 'Information', 'Error')} : {message(n)}"
        ),
        "level": "Information",
    },
    glog={
        "record": lambda n: (
            f"{pick(n, 'I', 'W', 'E')}{when(n):%Y%m%d %H:%M:%S.%f} {4711 + n % 3} server.cc:{n + 10}] {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
        "numbers": (4711,),
    },
    erlang_lager={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}.{ms(n)} [{pick(n, 'info', 'error')}] <0.{n + 90}.0>@riak_core:init:{n + 9} {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    elixir={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}.{ms(n)} [{pick(n, 'info', 'error', 'debug')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    haproxy_file={
        "record": lambda n: (
            f'203.0.113.{n % 200}:33{n:03} [{when(n):%d/%b/%Y:%H:%M:%S}.{ms(n)}] web~ shop/srv1 0/0/1/{n % 50}/{n % 50 + 1} 200 {500 + n} - - ---- 2/2/0/0/0 0/0 "GET / HTTP/1.1"'
        ),
        "time": FIRST,
        "numbers": (200, 500),
    },
    netscreen_kv={
        "record": lambda n: (
            f'date={when(n):%Y-%m-%d} time={when(n):%H:%M:%S} devname="FG-1" level="{pick(n, "notice", "warning")}" srcport={40000 + n} action="accept"'
        ),
        "payload": ("logfmt", "syslog", "pattern"),
        "host": "FG-1",
        "level": "notice",
        "numbers": (40000,),
    },
    csv_epoch={
        "record": lambda n: (
            f"{int(when(n).timestamp() * 1000)},sensor-{n % 4},{20.5 + n:.1f},{n % 100}"
        ),
        "time": FIRST,
        "numbers": (20.5, 0),
        "header": ("ts,device,temperature,battery",),
        "unparsed": 2,
    },
    csv_quoted={
        "record": lambda n: (
            f'"{n + 1}","{when(n):%Y-%m-%dT%H:%M:%SZ}","ann","{pick(n, "Login, ok", "Logout")}"'
        ),
        "numbers": (1,),
        "header": ('"Id","When","Who","What"',),
        "unparsed": 2,
    },
    pipe_header={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}|{pick(n, 'ann', 'bob')}|{n * 3}|{pick(n, 'buy', 'sell')}"
        ),
        "numbers": (0,),
        "header": ("time|user|qty|side",),
        "unparsed": 2,
    },
    sar_clock={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}        all      {1.5 + n:.2f}      0.00      {0.25 + n:.2f}      0.00      0.00     {90.5:.2f}"
        ),
        "numbers": (1.5, 0.25),
    },
    ceph={
        "record": lambda n: (
            f"{when(n):%Y-%m-%dT%H:%M:%S.%f}+0000 7f{n:010x} {pick(n, ' 0', '-1', ' 1')} {message(n)}"
        ),
        "time": FIRST,
    },
    ovs={
        "record": lambda n: (
            f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z|{n + 1:05}|{pick(n, 'bridge', 'vlog')}|{pick(n, 'INFO', 'WARN')}|{message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "bridge",
    },
    libvirt={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)}+0000: {4711}: {pick(n, 'info', 'error')} : {pick(n, 'virNetSocketReadWire:1806', 'qemuMonitorIO:618')} : {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "numbers": (4711,),
    },
    docker_compose={
        "record": lambda n: (
            f"web_1  | {when(n):%Y-%m-%dT%H:%M:%S.%f}Z {pick(n, 'INFO', 'ERROR')} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    mac_system={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} mac-1 com.apple.xpc.launchd[1] (com.apple.x[{400 + n}]): {message(n)}"
        ),
        "payload": "syslog",
        "host": "mac-1",
        "program": "com.apple.xpc.launchd",
    },
    gitlab_json={
        "record": lambda n: json.dumps(
            {
                "severity": "INFO",
                "time": f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z",
                "method": "GET",
                "path": "/x",
                "status": 200,
                "duration_s": 0.25 + n,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
        "numbers": (200, 0.25),
    },
    airflow={
        "record": lambda n: (
            f"[{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}+0000] {{{pick(n, 'taskinstance.py:1270', 'local_task_job.py:154')}}} {pick(n, 'INFO', 'ERROR')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    celery={
        "record": lambda n: (
            f"[{when(n):%Y-%m-%d %H:%M:%S},{ms(n)}: {pick(n, 'INFO', 'WARNING', 'ERROR')}/MainProcess] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    minecraft={
        "record": lambda n: (
            f"[{when(n):%H:%M:%S}] [Server thread/{pick(n, 'INFO', 'WARN')}]: {message(n)}"
        ),
        "level": "INFO",
    },
    steam_us={
        "record": lambda n: f"{when(n):%m/%d/%y %H:%M:%S} {pick(n, 'INFO', 'ERROR')} {message(n)}",
        "level": "INFO",
    },
    german={
        "record": lambda n: f"{when(n):%d.%m.%Y %H:%M:%S} {pick(n, 'FEHLER', 'INFO')} {message(n)}",
    },
    pretty_json={
        "record": lambda n: json.dumps(
            {"time": f"{when(n):%Y-%m-%dT%H:%M:%SZ}", "n": n, "msg": message(n)}, indent=2
        ),
        "payload": "json",
        "numbers": (0,),
        "unparsed": 1,
        "multiline": True,
    },
)
