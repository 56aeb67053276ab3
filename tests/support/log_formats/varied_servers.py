"""Formats of databases, brokers, proxies and other servers."""

from __future__ import annotations

import json
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


def _pg(n: int) -> str:
    sev = pick(n, "LOG", "ERROR", "LOG", "FATAL")
    q = pick(n, "", '"select 1,\n  2 from t"', "", '"update ""t"" set a = 1"')
    msg = pick(
        n,
        '"connection authorized: user=ann database=shop"',
        '"relation ""x"" does not exist, sorry"',
        "checkpoint starting: time",
        '"too many connections"',
    )
    return f'{when(n):%Y-%m-%d %H:%M:%S}.{ms(n)} UTC,"ann","shop",{4711 + n},"10.0.0.1:{40000 + n}",6560a1b2.{n:x},{n + 1},"{pick(n, "authentication", "SELECT", "idle")}",2026-11-21 09:59:59 UTC,3/{n},0,{sev},00000,{msg},,,,,,{q},,,"psql","client backend",,0'


FORMATS: Final[list[LogFormat]] = corpus(
    coredns={
        "record": lambda n: (
            f'[INFO] 10.0.0.{n % 200 + 1}:{3456 + n} - {1234 + n} "{pick(n, "A", "AAAA", "PTR")} IN www{n}.example.org. {pick(n, "udp", "udp", "tcp")} {40 + n % 20} false {pick(n, "512", "1232", "4096")}" {pick(n, "NOERROR", "NXDOMAIN", "SERVFAIL")} {pick(n, "qr,rd,ra", "qr,aa,rd", "qr,rd")} {56 + n} 0.{123 + n:09}s'
        ),
        "time": None,
        "level": "INFO",
        "numbers": (3456, 1234, 40, 512, 56, 0.000000123),
    },
    pg_csvlog={
        "record": _pg,
        "time": FIRST,
        "level": "LOG",
        "multiline": True,
        "unparsed": 0,
        "numbers": (4711, 1),
    },
    greenplum_csv={
        "record": lambda n: (
            f'{day(n)}.{micros(n)} UTC,"gpadmin","shop",p{4711 + n},th{n * 7919},"10.0.0.1","{40000 + n}",{day(n)} UTC,{n},con{n + 1},cmd{n % 9},seg-1,,dx{n},x{n},sx1,"{pick(n, "LOG", "ERROR", "WARNING")}","00000","{message(n).replace(chr(34), chr(34) * 2)}",,,,,,,0,,"postgres.c",{1600 + n},'
        ),
        "time": FIRST,
        "level": "LOG",
    },
    couchbase_ns={
        "record": lambda n: (
            f"[{pick(n, 'ns_server', 'stats', 'user')}:{pick(n, 'info', 'debug', 'warn')},{iso(n)}.{ms(n)}Z,ns_1@10.0.0.1:<0.{123 + n}.0>:{pick(n, 'ns_log:log', 'menelaus:stop')}:{120 + n}]{message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "program": "ns_server",
    },
    db2diag={
        "record": lambda n: (
            f"{when(n):%Y-%m-%d-%H.%M.%S}.{micros(n)}+000 I{1234 + n}E456           LEVEL: {pick(n, 'Warning', 'Error', 'Info')}\nPID     : {4711 + n}                 TID : 1234           PROC : db2sysc 0\nINSTANCE: db2inst1             NODE : 000           DB   : SHOP\nHOSTNAME: db-1\nFUNCTION: DB2 UDB, base sys utilities, sqleMain, probe:{n}\nMESSAGE : {message(n)}\n"
        ),
        "time": FIRST,
        "level": "Warning",
        "host": "db-1",
        "unparsed": 0,
        "multiline": True,
    },
    solace={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}+00:00 <local3.{pick(n, 'info', 'warning', 'notice')}> solace-1 event: {pick(n, 'SYSTEM', 'CLIENT', 'VPN')}: {pick(n, 'SYSTEM_AUTHENTICATION', 'CLIENT_CONNECT', 'VPN_STATE')}: {message(n)}"
        ),
        "time": FIRST,
        "host": "solace-1",
        "level": "info",
    },
    rethinkdb={
        "record": lambda n: (
            f"{iso(n)}.{micros(n)}000 {12.345 + n * 3.7:.6f}s {pick(n, 'info', 'notice', 'warn')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "numbers": (12.345,),
    },
    uwsgi={
        "record": lambda n: (
            f"[pid: {4711 + n % 4}|app: 0|req: {n + 1}/{n + 2}] 10.0.0.{n % 200 + 1} () {{{42 + n % 7} vars in {675 + n} bytes}} [{when(n):%a %b %d %H:%M:%S %Y}] {pick(n, 'GET', 'POST')} /a/{n} => generated {1234 + n} bytes in {12 + n} msecs (HTTP/1.1 {pick(n, '200', '404')}) 2 headers in {78 + n % 9} bytes ({n % 3 + 1} switches on core {n % 4})"
        ),
        "numbers": (4711, 1234, 12, 200),
    },
    ds389={
        "record": lambda n: (
            f"[{when(n):%d/%b/%Y:%H:%M:%S}.{micros(n)}789 +0000] conn={12 + n} op={n % 9} {pick(n, 'RESULT err=0 tag=101 nentries=1', 'SRCH base=<dc=example> scope=2', 'BIND dn=<cn=x> method=128')} wtime=0.000{100 + n % 900} optime=0.00{100 + n % 900}"
        ),
        "time": FIRST,
        "numbers": (12, 0),
    },
    prosody={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} {pick(n, 'c2s', 's2sin')}{n * 7919:08x}\t{pick(n, 'info', 'warn', 'debug')}\t{message(n)}"
        ),
        "level": "info",
    },
    mattermost={
        "record": lambda n: json.dumps(
            {
                "timestamp": f"{day(n)}.{ms(n)} Z",
                "level": pick(n, "info", "warn"),
                "msg": message(n),
                "caller": f"app/server.go:{n + 1}",
                "status_code": 200 + n % 3,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "numbers": (200,),
    },
    oracle_listener={
        "record": lambda n: (
            f"{when(n):%d-%b-%Y %H:%M:%S}".upper()
            + f" * (CONNECT_DATA=(SID=X)(CID=(PROGRAM=sqlplus)(HOST=pc-{n % 4})(USER=ann))) * (ADDRESS=(PROTOCOL=tcp)(HOST=10.0.0.1)(PORT={40000 + n})) * establish * X * {pick(n, '0', '12514')}"
        ),
        "numbers": (40000,),
    },
    oracle_xml_alert={
        "record": lambda n: (
            f"<msg time='{iso(n)}.{ms(n)}+00:00' org_id='oracle' comp_id='rdbms' type='{pick(n, 'UNKNOWN', 'ERROR')}' level='16' host_id='db-1' host_addr='10.0.0.1' pid='{4711 + n}'>\n <txt>{message(n)}\n </txt>\n</msg>"
        ),
        "time": FIRST,
        "host": "db-1",
        "unparsed": 0,
        "multiline": True,
    },
    mongo_date={
        "record": lambda n: json.dumps(
            {
                "_id": {"$oid": f"{n:024x}"},
                "time": {"$date": f"{iso(n)}.{ms(n)}Z"},
                "severity": pick(n, "info", "error"),
                "host": "app-1",
                "n": n,
            }
        ),
        "payload": ("json", "pattern"),
        "time": FIRST,
        "level": "info",
        "host": "app-1",
        "numbers": (0,),
    },
    oozie={
        "record": lambda n: (
            f"{day(n)},{ms(n)} {pick(n, 'INFO', 'WARN')} {pick(n, 'ActionStartXCommand', 'CoordMaterializer')}:{520 + n % 9} - SERVER[oozie-1.example.com] USER[ann] GROUP[-] TOKEN[] APP[shop] JOB[0000{n:03}-oozie-W] ACTION[0000{n:03}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "ActionStartXCommand",
        "host": "oozie-1.example.com",
    },
    dnstap={
        "record": lambda n: (
            f"{when(n):%d-%b-%Y %H:%M:%S}.{ms(n)} {pick(n, 'CQ', 'CR', 'RQ')} 10.0.0.{n % 200 + 1}:{40000 + n} -> 10.0.0.2:53 {pick(n, 'UDP', 'TCP')} {40 + n}b www{n}.example.com/IN/{pick(n, 'A', 'AAAA')}"
        ),
        "time": FIRST,
        "numbers": (40000, 53, 40),
    },
    zeek_ascii_http={
        "record": lambda n: "\t".join(
            (
                f"{epoch(n)}.{micros(n)}",
                f"C{n:x}abc",
                "10.0.0.1",
                str(40000 + n),
                "10.0.0.2",
                "80",
                str(n % 3 + 1),
                "GET",
                "example.com",
                f"/a/{n}",
                "-",
                "1.1",
                "curl/8",
                str(n),
                str(512 + n),
                "200",
                "OK",
            )
        ),
        "header": (
            "#separator \\x09",
            "#set_separator\t,",
            "#empty_field\t(empty)",
            "#unset_field\t-",
            "#path\thttp",
            "#open\t2026-11-21-10-00-00",
            "#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\ttrans_depth\tmethod\thost\turi\treferrer\tversion\tuser_agent\trequest_body_len\tresponse_body_len\tstatus_code\tstatus_msg",
            "#types\ttime\tstring\taddr\tport\taddr\tport\tcount\tstring\tstring\tstring\tstring\tstring\tstring\tcount\tcount\tcount\tstring",
        ),
        "payload": "tsv",
        "time": FIRST,
        "numbers": (40000, 80, 1, 0, 512, 200),
        "unparsed": 9,
    },
    phpfpm_slow={
        "record": lambda n: (
            f"[{when(n):%d-%b-%Y %H:%M:%S}]  [pool www] pid {4711 + n}\nscript_filename = /var/www/x.php\n[0x00007f{n:08x}] mysqli_query() /var/www/x.php:{n + 1}\n"
        ),
        "numbers": (4711,),
        "unparsed": 0,
        "multiline": True,
    },
    mail_rspamd_like={
        "record": lambda n: (
            f"{day(n)} #{4711 + n % 3}(normal) <{n:06x}>; {pick(n, 'task', 'proxy', 'lua')}; rspamd_task_write_log: id: <{n}@x>, size: {512 + n}, time: {12.5 + n:.3f}ms"
        ),
        "numbers": (4711, 512, 12.5),
        "program": "task",
    },
    spamd={
        "record": lambda n: (
            f"{when(n):%a %b %d %H:%M:%S %Y} [{4711 + n % 3}] {pick(n, 'info', 'warn')}: spamd: {message(n)}"
        ),
        "level": "info",
        "numbers": (4711,),
        "program": "spamd",
    },
    squid_cache={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S} kid{n % 3 + 1}| {pick(n, '', 'WARNING: ', 'ERROR: ')}{message(n)}"
        )
    },
    gitlab_prod={
        "record": lambda n: json.dumps(
            {
                "method": "GET",
                "path": f"/a/{n}",
                "format": "html",
                "controller": "ProjectsController",
                "action": "show",
                "status": 200 + n % 2,
                "time": f"{iso(n)}.{ms(n)}Z",
                "params": [{"key": "id", "value": "1"}],
                "remote_ip": "10.0.0.1",
                "user_id": n + 1,
                "db_duration_s": 0.01,
                "duration_s": 0.25 + n,
                "host": "git.example.com",
            }
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (200, 1, 0.01, 0.25),
    },
    ibm_mq_err={
        "record": lambda n: (
            f"{when(n):%m/%d/%y %H:%M:%S} - Process({4711 + n % 3}.1) User(mqm) Program({pick(n, 'amqzxma0', 'runmqchl')})\n                    Host(mq-1) Installation(Installation1)\n                    VRMF(9.3.0.0) QMgr(QM1)\n\nAMQ{5051 + n}I: {message(n)}\n\nEXPLANATION:\nnone\n----- amqzxma0.c : {n + 1} -----"
        ),
        "host": "mq-1",
        "program": "amqzxma0",
        "unparsed": 0,
        "multiline": True,
    },
)
