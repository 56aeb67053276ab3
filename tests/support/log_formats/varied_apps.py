"""Formats of applications, their loggers and games."""

from __future__ import annotations

from typing import Final

from tests.support.log_formats.model import (
    FIRST,
    LogFormat,
    corpus,
    day,
    epoch,
    iso,
    message,
    micros,
    ms,
    pick,
    when,
)

FORMATS: Final[list[LogFormat]] = corpus(
    jul_two_line={
        "record": lambda n: (
            f"{when(n):%b %d, %Y} {int(f'{when(n):%I}')}:{when(n):%M:%S %p} org.example.{pick(n, 'Main main', 'orders.Sync run', 'Cache evict')}\n{pick(n, 'INFO', 'WARNING', 'SEVERE')}: {message(n)}"
        ),
        "level": "INFO",
        "unparsed": 0,
        "multiline": True,
    },
    salt={
        "record": lambda n: (
            f"{day(n)},{ms(n)} [{pick(n, 'salt.master', 'salt.utils.event'):17}:{123 + n % 90:<4}][{pick(n, 'INFO', 'WARNING', 'ERROR'):8}][{4711 + n % 3}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "salt.master",
    },
    locust={
        "record": lambda n: (
            f"[{day(n)},{ms(n)}] web-1/{pick(n, 'INFO', 'WARNING')}/locust.{pick(n, 'main', 'runners')}: {message(n)}"
        ),
        "time": FIRST,
        "host": "web-1",
        "level": "INFO",
        "program": "locust.main",
    },
    dagster={
        "record": lambda n: (
            f"{day(n)} +0000 - dagster - {pick(n, 'INFO', 'DEBUG', 'ERROR')} - {pick(n, 'daily', 'hourly')} - {n * 7919:08x}-1111-4222-8333-0123456789ab - {4711 + n} - {pick(n, 'STEP_START', 'STEP_SUCCESS', 'ENGINE_EVENT')} - {message(n)}"
        ),
        "level": "INFO",
        "program": "dagster",
        "numbers": (4711,),
    },
    php_errors={
        "record": lambda n: (
            f"[{when(n):%d-%b-%Y %H:%M:%S} UTC] PHP {pick(n, 'Notice', 'Warning', 'Deprecated', 'Fatal error')}:  {message(n)} in /var/www/x.php on line {n + 1}"
        ),
        "level": "Notice",
    },
    node_debug={
        "record": lambda n: (
            f"{when(n):%a, %d %b %Y %H:%M:%S} GMT express:{pick(n, 'router', 'view')} {message(n)}"
        ),
        "program": "express:router",
    },
    nestjs={
        "record": lambda n: (
            f"[Nest] {4711}  - {when(n):%m/%d/%Y}, {int(f'{when(n):%I}')}:{when(n):%M:%S %p}     {pick(n, 'LOG', 'WARN', 'ERROR')} [{pick(n, 'RoutesResolver', 'InstanceLoader')}] {message(n)} +{n}ms"
        ),
        "level": "LOG",
        "program": "RoutesResolver",
        "numbers": (4711,),
    },
    cacti={
        "record": lambda n: (
            f"{day(n)} - SYSTEM STATS: Time:{1.2345 + n:.4f} Method:spine Processes:{n % 4 + 1} Threads:15 Hosts:{120 + n % 9} HostsPerProcess:120 DataSources:{2345 + n} RRDsProcessed:{1200 + n}"
        ),
        "numbers": (1.2345, 1, 15, 120, 2345, 1200),
    },
    sonarqube={
        "record": lambda n: (
            f"{when(n):%Y.%m.%d %H:%M:%S} {pick(n, 'INFO', 'WARN', 'ERROR'):5} {pick(n, 'web', 'ce', 'app')}[{pick(n, '', 'AYx1', '')}][{pick(n, 'o.s.s.a.EmbeddedTomcat', 'o.s.a.SchedulerImpl')}] {message(n)}"
        ),
        "level": "INFO",
        "program": "o.s.s.a.EmbeddedTomcat",
    },
    perforce={
        "record": lambda n: (
            f"Perforce server {pick(n, 'info', 'error')}:\n\t{when(n):%Y/%m/%d %H:%M:%S} pid {4711 + n} ann@ws-{n % 9} 10.0.0.1 [p4/v99] 'user-sync //...'"
        ),
        "unparsed": 0,
        "multiline": True,
    },
    mumble={
        "record": lambda n: (
            f"<{pick(n, 'W', 'C', 'F', 'X')}>{day(n)}.{ms(n)} {n % 4} => <{n + 1}:(-1)> {message(n)}"
        ),
        "time": FIRST,
    },
    teamspeak={
        "record": lambda n: (
            f"{day(n)}.{micros(n)}|{pick(n, 'INFO', 'WARNING', 'ERROR'):8}|{pick(n, 'ServerLibPriv', 'VirtualServer', 'Query'):14}|{pick(n, '   ', '1  ')}|{message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "ServerLibPriv",
    },
    asterisk_queue={
        "record": lambda n: (
            f"{epoch(n)}|{epoch(n)}.{n + 12}|queue{n % 3}|SIP/{100 + n % 20}|{pick(n, 'CONNECT', 'ENTERQUEUE', 'COMPLETECALLER')}|{n + 12}|{n % 7}|"
        ),
        "numbers": (12, 0),
    },
    kv_semicolon={
        "record": lambda n: (
            f"ts={iso(n)}Z;host=gw-1;sev={pick(n, 'info', 'warn')};msg={message(n)};n={n}".replace(
                "; session", ", session"
            )
        ),
        "host": "gw-1",
        "payload": ("pattern",),
    },
    ctrl_a={
        "record": lambda n: "\x01".join(
            (day(n), f"web-{n % 2 + 1}", pick(n, "INFO", "WARN"), str(120 + n), f"/a/{n}", "200")
        ),
        "host": "web-1",
        "level": "INFO",
        "numbers": (120, 200),
    },
    vertica_like_go={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S}.{micros(n)} {pick(n, 'main.go', 'server/http.go')}:{n + 12}: {message(n)}"
        ),
        "time": FIRST,
        "program": "main.go:12",
    },
    appdynamics={
        "record": lambda n: (
            f"[{pick(n, 'Thread-1', 'AD Thread Pool-Global0')}] {when(n):%d %b %Y %H:%M:%S},{ms(n)}  {pick(n, 'INFO', 'WARN')} {pick(n, 'JavaAgent', 'AgentKernel')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "JavaAgent",
    },
    bom_dotnet={
        "record": lambda n: (
            ("\ufeff" if n == 0 else "")
            + f"{day(n)}.{micros(n)[:4]}|{pick(n, 'INFO', 'WARN', 'ERROR')}|Shop.{pick(n, 'Orders', 'Cache')}|{message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "Shop.Orders",
    },
    quickfix={
        "record": lambda n: (
            f"{when(n):%Y%m%d-%H:%M:%S}.{ms(n)} : 8=FIX.4.4\x019={120 + n}\x0135={pick(n, 'D', '8', '0')}\x0134={n + 1}\x0149=SENDER\x0152={when(n):%Y%m%d-%H:%M:%S}.{ms(n)}\x0156=TARGET\x0138={100 * n}\x0144={12.5 + n}\x0110={n % 256:03}\x01"
        ),
        "time": FIRST,
    },
    passenger={
        "record": lambda n: (
            f"[ {pick(n, 'N', 'W', 'E')} {day(n)}.{micros(n)[:4]} {4711 + n % 3}/T{n % 9 + 1} age/{pick(n, 'Cor/CoreMain.cpp', 'Ust/UstRouterMain.cpp')}:{123 + n} ]: {message(n)}"
        ),
        "time": FIRST,
        "level": "N",
    },
    ms_teams={
        "record": lambda n: (
            f"{when(n):%a %b %d %Y %H:%M:%S} GMT+0000 (Coordinated Universal Time) <{4711 + n % 3}> -- {pick(n, 'info', 'warning', 'error')} -- {message(n)}"
        ),
        "level": "info",
        "numbers": (4711,),
    },
    glassfish={
        "record": lambda n: (
            f"[{iso(n)}.{ms(n)}+0000] [glassfish 5.0] [{pick(n, 'INFO', 'WARNING', 'SEVERE')}] [{pick(n, 'NCLS-CORE-00101', '')}] [{pick(n, 'javax.enterprise.system.core', 'org.glassfish.jersey')}] [tid: _ThreadID={n % 20 + 1} _ThreadName=Thread-{n % 4}] [timeMillis: {epoch(n) * 1000 + 123}] [levelValue: 800] [[\n  {message(n)}]]\n"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "javax.enterprise.system.core",
        "unparsed": 0,
        "multiline": True,
    },
    gc_jdk8={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}+0000: {12.345 + n * 3.7:.3f}: [GC (Allocation Failure) [PSYoungGen: {65536 + n}K->{1234 + n}K(76288K)] {65536 + n}K->{2234 + n}K(251392K), 0.0{123 + n} secs] [Times: user=0.0{n % 9} sys=0.00, real=0.0{n % 8} secs]"
        ),
        "time": FIRST,
        "numbers": (12.345,),
    },
    xmlish={
        "record": lambda n: (
            f'<event time="{iso(n)}.{ms(n)}Z" level="{pick(n, "info", "warning")}" source="{pick(n, "orders", "cache")}" pid="{4711 + n % 3}"><msg>{message(n)}</msg></event>'
        ),
        "time": FIRST,
        "level": "info",
        "numbers": (4711,),
    },
)
