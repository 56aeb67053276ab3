"""Formats of application servers, frameworks, schedulers and security tools, tried afterwards."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when


def _day(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}"


def _slash(n: int) -> str:
    return f"{when(n):%Y/%m/%d %H:%M:%S}"


def _dotnet_console(n: int) -> str:
    return f"{pick(n, 'info', 'warn', 'fail')}: Shop.{pick(n, 'Orders', 'Jobs')}[{n % 9}]\n      {message(n)}"


FORMATS: Final[list[LogFormat]] = corpus(
    splunkd={
        "record": lambda n: (
            f"{when(n):%m-%d-%Y %H:%M:%S}.{ms(n)} +0000 {pick(n, 'INFO', 'WARN', 'ERROR'):5} {pick(n, 'TailReader', 'TcpOutputProc', 'Metrics')} [{4711 + n % 3} {pick(n, 'tailreader0', 'MainThread')}] - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "TailReader",
    },
    sap_hana={
        "record": lambda n: (
            f"[{4711 + n % 40}]{{{300123 + n}}}[{n % 90}/-1] {_day(n)}.{when(n).microsecond:06} {pick(n, 'i', 'w', 'e')} {pick(n, 'TraceContext', 'Statement'):16} {pick(n, 'TraceContext.cpp(01111)', 'Statement.cc(04711)')} : {message(n)}"
        ),
        "time": FIRST,
        "level": "i",
        "numbers": (4711, 300123),
    },
    websphere_trace={
        "record": lambda n: (
            f"[{when(n):%m/%d/%y %H:%M:%S}:{ms(n)} UTC] {18 + n % 70:08x} {pick(n, 'WebContainer', 'ServletWrappe', 'SystemOut'):13} {pick(n, 'I', 'W', 'O', 'E')}   {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
        "program": "WebContainer",
    },
    weblogic_server={
        "record": lambda n: (
            f"<{when(n):%b %d, %Y, %I:%M:%S},{ms(n)} AM UTC> <{pick(n, 'Notice', 'Info', 'Error')}> <{pick(n, 'Server', 'JDBC')}> <BEA-{2613 + n:06}> <{message(n)}>"
        ),
        "time": FIRST,
        "level": "Notice",
        "program": "Server",
    },
    wildfly={
        "record": lambda n: (
            f"{_day(n)},{ms(n)} {pick(n, 'INFO', 'WARN', 'ERROR'):5} [{pick(n, 'org.jboss.as', 'org.wildfly.extension.undertow')}] ({pick(n, 'MSC service thread 1-2', 'ServerService Thread Pool -- 12')}) {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.jboss.as",
    },
    envoy_app={
        "record": lambda n: (
            f"[{_day(n)}.{ms(n)}][{4711}][{pick(n, 'info', 'warning', 'debug')}][{pick(n, 'upstream', 'main', 'config')}] [{pick(n, 'source/common/upstream/cds_api_helper.cc:32', 'source/server/server.cc:12')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "numbers": (4711,),
    },
    caddy_json={
        "record": lambda n: json.dumps(
            {
                "level": pick(n, "info", "error"),
                "ts": round(when(n).timestamp(), 3),
                "logger": "http.log.access",
                "msg": "handled request",
                "request": {"remote_ip": "10.0.0.1", "method": "GET", "host": "x", "uri": f"/{n}"},
                "duration": 0.001 + n,
                "size": 512 + n,
                "status": 200 + n % 4,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "program": "http.log.access",
        "numbers": (200, 512),
    },
    traefik_clf={
        "record": lambda n: (
            f'10.0.0.{n % 200} - - [{when(n):%d/%b/%Y:%H:%M:%S} +0000] "GET /{n} HTTP/1.1" {pick(n, "200", "404")} {512 + n} "-" "-" {n + 12} "web@docker" "http://10.0.0.2:80" {n % 90 + 3}ms'
        ),
        "numbers": (200, 512, 12),
    },
    elasticsearch_json={
        "record": lambda n: json.dumps(
            {
                "type": "server",
                "timestamp": f"{iso(n)},{ms(n)}Z",
                "level": pick(n, "INFO", "WARN"),
                "component": pick(n, "o.e.n.Node", "o.e.c.s.MasterService"),
                "cluster.name": "shop",
                "node.name": "node-1",
                "message": message(n),
            }
        ),
        "payload": "json",
        "time": FIRST,
        "host": "node-1",
        "level": "INFO",
        "program": "o.e.n.Node",
    },
    fluent_bit={
        "record": lambda n: (
            f"[{_slash(n)}] [{pick(n, ' info', ' warn', 'error')}] [{pick(n, 'engine', 'output:es:es.0', 'sp')}] {message(n)}"
        ),
        "level": "info",
        "program": "engine",
    },
    fluentd_out={
        "record": lambda n: (
            f'{_day(n)}.{when(n).microsecond:06}789 +0000 {pick(n, "app.web", "app.jobs")}: {{"a":{n},"m":"{pick(n, "x", "y")}"}}'
        ),
        "time": FIRST,
        "program": "app.web",
    },
    telegraf={
        "record": lambda n: (
            f"{iso(n)}Z {pick(n, 'I!', 'W!', 'E!', 'D!')} [{pick(n, 'outputs.influxdb', 'agent', 'inputs.cpu')}] {message(n)}"
        ),
        "level": "I",
    },
    graphite_plain={
        "record": lambda n: f"servers.web.cpu{n % 8} {12.5 + n} {int(when(n).timestamp())}",
        "numbers": (12.5,),
    },
    influx_lines={
        "record": lambda n: (
            f"cpu,host=web-{n % 3 + 1},cpu=cpu0 usage={12.5 + n},idle={n + 3}i {int(when(n).timestamp()) * 10**9 + 123456789}"
        ),
        "time": FIRST,
        "host": "web-1",
        "numbers": (12.5, 3),
    },
    airflow_task={
        "record": lambda n: (
            f"[{iso(n)}.{ms(n)}+0000] {{{pick(n, 'taskinstance.py:1157', 'local_task_job.py:12')}}} {pick(n, 'INFO', 'WARNING')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "taskinstance.py:1157",
    },
    celery={
        "record": lambda n: (
            f"[{_day(n)},{ms(n)}: {pick(n, 'INFO', 'WARNING', 'ERROR')}/{pick(n, 'MainProcess', 'ForkPoolWorker-2')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    django_runserver={
        "record": lambda n: (
            f'[{when(n):%d/%b/%Y %H:%M:%S}] "GET /shop/{n} HTTP/1.1" {pick(n, "200", "404")} {512 + n}'
        ),
        "numbers": (200, 512),
    },
    werkzeug={
        "record": lambda n: (
            f'10.0.0.{n % 200} - - [{when(n):%d/%b/%Y %H:%M:%S}] "{pick(n, "GET", "POST")} /{n} HTTP/1.1" {pick(n, "200", "404")} -'
        ),
        "numbers": (200,),
    },
    php_fpm={
        "record": lambda n: (
            f"[{when(n):%d-%b-%Y %H:%M:%S}] {pick(n, 'NOTICE', 'WARNING', 'ERROR')}: {pick(n, '[pool www] child 12 started', 'fpm is running, pid 4711')}"
        ),
        "level": "NOTICE",
    },
    monolog={
        "record": lambda n: (
            f"[{iso(n)}.{when(n).microsecond:06}+00:00] {pick(n, 'app', 'request', 'security')}.{pick(n, 'INFO', 'CRITICAL')}: {message(n)} [] []"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "app",
    },
    nlog={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)}4|{pick(n, 'INFO', 'WARN', 'ERROR')}|{pick(n, 'Shop.Orders', 'Shop.Jobs')}|{message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "Shop.Orders",
    },
    dotnet_console={
        "record": _dotnet_console,
        "time": None,
        "level": "info",
        "unparsed": 1,
        "multiline": True,
    },
    logback_short={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}.{ms(n)} [{pick(n, 'main', 'pool-1-thread-2')}] {pick(n, 'INFO', 'WARN'):5} {pick(n, 'c.s.Orders', 'c.s.jobs.Runner')} -- {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "c.s.Orders",
    },
    spring_boot_3={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z {pick(n, 'INFO', 'WARN', 'ERROR'):>5} {4711} --- [shop] [{pick(n, 'main', 'nio-8080-exec-1'):>15}] {pick(n, 'c.e.shop.Orders', 'o.s.b.w.TomcatWebServer'):40} : {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "c.e.shop.Orders",
        "numbers": (4711,),
    },
    akka={
        "record": lambda n: (
            f"[{pick(n, 'INFO', 'WARN', 'ERROR')}] [{when(n):%m/%d/%Y %H:%M:%S}.{ms(n)}] [shop-akka.actor.default-dispatcher-{n % 9}] [akka://shop/user/{pick(n, 'orders', 'jobs')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    go_std_log={
        "record": lambda n: f"{_slash(n)} {pick(n, 'main.go:12', 'jobs.go:7')}: {message(n)}",
        "program": "main.go:12",
    },
    env_logger={
        "record": lambda n: (
            f"[{iso(n)}Z {pick(n, 'INFO', 'WARN', 'ERROR'):5} {pick(n, 'shop::orders', 'shop::jobs')}] {message(n)}"
        ),
        "level": "INFO",
        "program": "shop::orders",
    },
    elixir={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}.{ms(n)} request_id=F{n * 7919:08x} [{pick(n, 'info', 'error')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    spdlog_named={
        "record": lambda n: (
            f"[{_day(n)}.{ms(n)}] [{pick(n, 'shop', 'net')}] [{pick(n, 'info', 'warning', 'error')}] [{pick(n, 'main.cpp:12', 'net.cpp:7')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "program": "shop",
    },
    macos_install={
        "record": lambda n: (
            f"{_day(n)}+00 mac-1 {pick(n, 'Installer', 'softwareupdated')}[{4711 + n % 3}]: {message(n)}"
        ),
        "payload": ("syslog", "pattern"),
        "host": "mac-1",
        "program": "Installer",
    },
    procurve={
        "record": lambda n: (
            f"{pick(n, 'I', 'W', 'M')} {when(n):%m/%d/%y %H:%M:%S} {76 + n % 9:05} {pick(n, 'ports', 'auth', 'mgr')}: {message(n)}"
        ),
        "level": "I",
        "program": "ports",
    },
    brocade_raslog={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d-%H:%M:%S}, [SEC-{1203 + n % 4}], {4711 + n}, FID 128, {pick(n, 'INFO', 'WARNING')}, sw-1, {message(n).replace(',', '')}"
        ),
        "host": "sw-1",
        "level": "INFO",
        "numbers": (4711,),
    },
    heroku_router={
        "record": lambda n: (
            f'{iso(n)}.{when(n).microsecond:06}+00:00 heroku[router]: at={pick(n, "info", "error")} method=GET path="/{n}" host=shop.example.com dyno=web.1 connect=1ms service={n + 12}ms status={pick(n, "200", "404")} bytes={512 + n}'
        ),
        "payload": "logfmt",
        "time": FIRST,
        "program": "heroku",
        "numbers": (200, 512),
    },
    jira={
        "record": lambda n: (
            f"{_day(n)},{ms(n)}+0000 {pick(n, 'http-nio-8080-exec-3', 'Caesium-1-2')} {pick(n, 'INFO', 'WARN', 'ERROR')} ann {600 + n}x12x1 abc{n} 10.0.0.1 /rest/api [{pick(n, 'c.a.j.Foo', 'c.a.j.index.Bar')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    node_red={
        "record": lambda n: (
            f"{when(n):%d %b %H:%M:%S} - [{pick(n, 'info', 'warn', 'error')}] [{pick(n, 'mqtt-broker:x', 'server')}] {message(n)}"
        ),
        "level": "info",
    },
    frigate={
        "record": lambda n: (
            f"[{_day(n)}] {pick(n, 'frigate.app', 'frigate.mqtt', 'ffmpeg.front.detect'):30} {pick(n, 'INFO', 'WARNING', 'ERROR'):8}: {message(n)}"
        ),
        "level": "INFO",
        "program": "frigate.app",
    },
    qbittorrent={
        "record": lambda n: f"({pick(n, 'N', 'I', 'W')}) {iso(n)} - {message(n)}",
        "level": "N",
    },
    sonarr={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)[:1]}|{pick(n, 'Info', 'Warn', 'Error')}|{pick(n, 'Bootstrap', 'RssSyncService')}|{message(n)}"
        ),
        "time": "2026-11-21T10:00:00.100Z",
        "level": "Info",
        "program": "Bootstrap",
    },
    octoprint={
        "record": lambda n: (
            f"{_day(n)},{ms(n)} - {pick(n, 'octoprint.server', 'octoprint.plugins.tracking')} - {pick(n, 'INFO', 'WARNING')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "octoprint.server",
    },
    mariadb_audit={
        "record": lambda n: (
            f"{when(n):%Y%m%d %H:%M:%S},db-1,root,localhost,{12 + n},{34 + n},QUERY,shop,'SELECT {n}',0"
        ),
        "host": "db-1",
        "numbers": (12, 34),
    },
    mysql_general={
        "record": lambda n: (
            f"{iso(n)}.{when(n).microsecond:06}Z\t{12 + n % 9:5} {pick(n, 'Query', 'Connect', 'Quit')}\t{pick(n, f'SELECT {n}', 'ann@localhost on shop', '')}"
        ),
        "time": FIRST,
        "numbers": (12,),
    },
    solr={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)} {pick(n, 'INFO', 'WARN', 'ERROR'):5} (qtp1234-{n % 30}) [c:shop s:shard1 r:core_node{n % 4} x:shop_r1] {pick(n, 'o.a.s.c.S.Request', 'o.a.s.u.UpdateHandler')} {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    vertica={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)} {pick(n, 'Init Session:0x7f1a', 'Timer Service:0x7f2b', 'Main:0x7f3c')} [{pick(n, 'Txn', 'Session', 'Comms')}] <{pick(n, 'INFO', 'WARNING')}> {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    veeam={
        "record": lambda n: (
            f"[{when(n):%d.%m.%Y %H:%M:%S}] <{n % 90 + 12:02}> {pick(n, 'Info', 'Warning', 'Error'):8} [{pick(n, 'Job', 'Proxy')}] {message(n)}"
        ),
        "level": "Info",
        "program": "Job",
        "numbers": (12,),
    },
    rsync_daemon={
        "record": lambda n: (
            f"{_slash(n)} [{4711 + n % 5}] {pick(n, '>f+++++++++ in/a.csv', 'sent 12 bytes  received 34 bytes', 'building file list')}"
        ),
        "numbers": (4711,),
    },
    vsftpd={
        "record": lambda n: (
            f'{when(n):%a %b %d %H:%M:%S %Y} [pid {4711 + n}] [ann] {pick(n, "OK UPLOAD", "OK LOGIN", "FAIL LOGIN")}: Client "10.0.0.{n % 200}"'
        ),
        "numbers": (4711,),
    },
    cups_error={
        "record": lambda n: (
            f"{pick(n, 'E', 'I', 'D', 'W')} [{when(n):%d/%b/%Y:%H:%M:%S} +0000] {pick(n, f'[Job {n}] stopped', '[Client 12] accepted', 'Listening to port 631')}"
        ),
        "level": "E",
    },
    openvpn={
        "record": lambda n: (
            f"{_day(n)} {pick(n, f'ann/203.0.113.7:{1194 + n} TLS: soft reset', f'MULTI: new connection by client {n}', 'Initialization Sequence Completed')}"
        ),
    },
    strongswan={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} {n % 16:02}[{pick(n, 'IKE', 'NET', 'CFG')}] {message(n)}"
        ),
        "payload": ("syslog", "pattern"),
    },
    fail2ban_log={
        "record": lambda n: (
            f"{_day(n)},{ms(n)} {pick(n, 'fail2ban.actions', 'fail2ban.filter'):24}[{4711}]: {pick(n, 'NOTICE', 'INFO', 'WARNING'):8}[{pick(n, 'sshd', 'nginx')}] {pick(n, 'Ban 203.0.113.7', 'Found 203.0.113.8')}"
        ),
        "time": FIRST,
        "level": "NOTICE",
        "program": "fail2ban.actions",
        "numbers": (4711,),
    },
    suricata_fast={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y-%H:%M:%S.%f}  [**] [1:{2010935 + n}:3] {pick(n, 'ET SCAN', 'GPL ICMP')} [**] [Classification: x] [Priority: {n % 3 + 1}] {{TCP}} 203.0.113.7:{40000 + n} -> 10.0.0.1:22"
        ),
        "time": FIRST,
    },
    clamd={
        "record": lambda n: f"{when(n):%a %b %d %H:%M:%S %Y} -> {message(n)}",
    },
    slurmctld={
        "record": lambda n: (
            f"[{iso(n)}.{ms(n)}] {pick(n, f'error: Node n{n} not responding', f'sched: Allocate JobId={n}', f'_job_complete: JobId={n} done', 'debug:  backfill: beginning')}"
        ),
        "time": FIRST,
    },
    pbs_server={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S};{pick(n, '0008', '0100')};{pick(n, 'PBS_Server', 'Server@n1')};{pick(n, 'Job', 'Req')};{n}.srv;{message(n).replace(';', ',')}"
        ),
    },
    sge={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S}|{pick(n, 'worker', 'timer')}|node-1|{pick(n, 'E', 'I', 'W')}|{message(n)}"
        ),
        "host": "node-1",
        "level": "E",
    },
    geth={
        "record": lambda n: (
            f"{pick(n, 'INFO', 'WARN', 'ERROR')} [{when(n):%m-%d|%H:%M:%S}.{ms(n)}] {pick(n, 'Imported new chain segment', 'Looking for peers'):40} number={n} txs={n % 7}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    ros={
        "record": lambda n: (
            f"[{pick(n, 'INFO', 'WARN', 'ERROR')}] [{int(when(n).timestamp())}.{when(n).microsecond:06}789] [{pick(n, 'nav', 'lidar_driver')}]: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "nav",
    },
    chromium={
        "record": lambda n: (
            f"[4711:{4712 + n % 3}:{when(n):%m%d/%H%M%S.%f}:{pick(n, 'ERROR', 'WARNING', 'INFO')}:{pick(n, 'gpu.cc(123)', 'net.cc(7)')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "ERROR",
        "numbers": (4711,),
    },
    ios_syslog={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} iphone-1 {pick(n, 'SpringBoard(UIKit)', 'kernel')}[{50 + n % 3}] <{pick(n, 'Notice', 'Error')}>: {message(n)}"
        ),
        "payload": ("syslog", "pattern"),
        "host": "iphone-1",
    },
    rtl_433={
        "record": lambda n: json.dumps(
            {"time": _day(n), "model": "X", "id": 12 + n % 4, "temperature_C": 21.5 + n}
        ),
        "payload": "json",
        "numbers": (12, 21.5),
    },
    xferlog={
        "record": lambda n: (
            f"{when(n):%a %b %d %H:%M:%S %Y} {n % 9 + 1} 10.0.0.{n % 200} {512 + n} /in/{n}.csv b _ {pick(n, 'i', 'o')} r ann ftp 0 * c"
        ),
        "numbers": (1, 512),
    },
)
