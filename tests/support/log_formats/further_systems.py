"""Formats of appliances, databases, brokers, mail, DNS and storage, tried after the method was done."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when


def _day(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}"


def _tidb(n: int) -> str:
    body = pick(
        n,
        f'["new connection"] [conn={n}] [remoteAddr=10.0.0.{n % 9}:4000]',
        f'["get slow query"] [txnStartTS={4_300 + n}] [duration={n % 90 + 1}ms]',
        f'["connection closed"] [conn={n}]',
    )
    level, place = pick(n, "INFO|server.go:123", "WARN|expensivequery.go:118").split("|")
    return f"[{when(n):%Y/%m/%d %H:%M:%S}.{ms(n)} +00:00] [{level}] [{place}] {body}"


def _oracle_alert(n: int) -> str:
    body = pick(
        n,
        f"Thread 1 advanced to log sequence {n} (LGWR switch)",
        f"Thread 1 advanced to log sequence {n}\n  Current log# 1 seq# {n} mem# 0: /u01/redo01.log",
        f"ORA-00060: Deadlock detected. See Note 60.1.\nErrors in file /u01/trace/orcl_ora_{n}.trc:",
    )
    return f"{iso(n)}.{when(n).microsecond:06}+00:00\n{body}"


FORMATS: Final[list[LogFormat]] = corpus(
    # Appliances
    paloalto_csv={
        "record": lambda n: (
            f"1,{when(n):%Y/%m/%d %H:%M:%S},001801000001,TRAFFIC,{pick(n, 'end', 'start', 'deny')},2049,{when(n):%Y/%m/%d %H:%M:%S},10.1.0.{n % 200},203.0.113.7,0.0.0.0,0.0.0.0,{pick(n, 'allow web', 'deny all')},,,{pick(n, 'web-browsing', 'dns')},vsys1,trust,untrust,ethernet1/1,ethernet1/2,fwd,{40000 + n},1,{50000 + n},443,0,0,0x400053,tcp,{pick(n, 'allow', 'deny')},{1200 + n},{600 + n},{600 + n},{n % 40 + 4}"
        ),
        "numbers": (40000, 50000, 443, 1200, 600, 4),
    },
    sophos_xg={
        "record": lambda n: (
            f'device="SFW" date={when(n):%Y-%m-%d} time={when(n):%H:%M:%S} timezone="UTC" device_name="XG-1" device_id=C01001 log_id=010101600001 log_type="Firewall" log_component="Firewall Rule" log_subtype="{pick(n, "Allowed", "Denied")}" priority={pick(n, "Information", "Notice")} duration={n % 60} fw_rule_id={n % 5 + 1} src_ip=10.0.0.{n % 200} src_port={40000 + n} sent_bytes={512 + n}'
        ),
        "payload": "logfmt",
        "host": "XG-1",
        "numbers": (0, 40000, 512),
    },
    sonicwall={
        "record": lambda n: (
            f'id=firewall sn=0017C5000001 time="{_day(n)} UTC" fw=203.0.113.1 pri={pick(n, "6", "5", "1")} c=1024 m=537 msg="{pick(n, "Connection Closed", "Connection Opened")}" n={199 + n} src=10.0.0.{n % 200}:{40000 + n}:X0 dst=203.0.113.7:443:X1 proto=tcp/https sent={1024 + n} rcvd={2048 + n}'
        ),
        "payload": "logfmt",
        "numbers": (6, 199, 1024, 2048),
    },
    f5_ltm={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} bigip-1 {pick(n, 'notice', 'warning', 'err')} {pick(n, 'mcpd', 'tmm')}[{4711 + n % 3}]: 0107{n % 999:04}:5: Pool /Common/web member 10.0.0.{n % 9}:80 monitor status down."
        ),
        "host": "bigip-1",
        "level": "notice",
        "program": "mcpd",
        "numbers": (4711,),
    },
    pfsense_filterlog={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} fw-1 filterlog[{4711}]: {n % 90},,,1000000103,igb0,match,{pick(n, 'block', 'pass')},in,4,0x0,,{n % 64},{n},0,none,17,udp,328,10.0.0.{n % 200},203.0.113.7,{40000 + n},53,308"
        ),
        "payload": "syslog",
        "host": "fw-1",
        "program": "filterlog",
    },
    apcupsd={
        "record": lambda n: (
            f"{_day(n)} +0000  {pick(n, 'Power failure.', 'Running on UPS batteries.', 'Mains returned. No longer on UPS batteries.', 'Communications with UPS restored.')}"
        ),
    },
    netapp_ems={
        "record": lambda n: (
            f"{when(n):%a %b %d %H:%M:%S} UTC [{pick(n, 'node-1', 'node-2')}: {pick(n, 'raid_mgr', 'wafl_exempt01')}: {pick(n, 'raid.disk.missing', 'wafl.vol.full')}:{pick(n, 'info', 'notice', 'error')}]: {message(n)}"
        ),
    },
    # Databases
    clickhouse_server={
        "record": lambda n: (
            f"{when(n):%Y.%m.%d %H:%M:%S.%f} [ {4711 + n % 40} ] {{{pick(n, f'8f0e-{n:04x}', '')}}} <{pick(n, 'Debug', 'Information', 'Error')}> {pick(n, 'executeQuery', 'MemoryTracker', 'HTTPHandler')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "Debug",
        "program": "executeQuery",
        "numbers": (4711,),
    },
    cockroachdb={
        "record": lambda n: (
            f"{pick(n, 'I', 'W', 'E')}{when(n):%y%m%d %H:%M:%S.%f} {n % 300 + 12} {pick(n, 'server/node.go:533', 'kv/kvserver/store.go:12')} ⋮ [n1,client=10.0.0.{n % 9}] {n + 5}  {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
        "program": "server/node.go:533",
        "numbers": (12,),
    },
    cassandra={
        "record": lambda n: (
            f"{pick(n, 'INFO', 'WARN', 'DEBUG'):5} [{pick(n, 'main', f'CompactionExecutor:{n}', 'GossipStage:1')}] {_day(n)},{ms(n)} {pick(n, 'StorageService.java:617', 'Gossiper.java:1052')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "StorageService.java:617",
    },
    oracle_alert={
        "record": _oracle_alert,
        "time": FIRST,
        "unparsed": 0,
        "multiline": True,
    },
    mssql_errorlog={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)[:2]} {pick(n, 'spid51', 'Server', 'Logon', 'Backup'):11} {message(n)}"
        ),
        "time": "2026-11-21T10:00:00.120Z",
        "program": "spid51",
    },
    couchdb={
        "record": lambda n: (
            f"[{pick(n, 'info', 'notice', 'error')}] {iso(n)}.{when(n).microsecond:06}Z couchdb@db-1.example.com <0.{200 + n}.0> {pick(n, '--------', f'{n:010x}')} {message(n)}"
        ),
        "time": FIRST,
        "host": "db-1.example.com",
        "level": "info",
        "program": "couchdb",
    },
    influxdb={
        "record": lambda n: (
            f'ts={iso(n)}.{when(n).microsecond:06}Z lvl={pick(n, "info", "warn")} msg="{pick(n, "Open store (start)", "Opened shard")}" log_id=0Q1aB~0000 service=store trace_id=t{n} op_name=tsdb_open op_elapsed={12 + n}.345ms shard-id={n}'
        ),
        "payload": "logfmt",
        "time": FIRST,
        "level": "info",
        "numbers": (0,),
    },
    etcd={
        "record": lambda n: json.dumps(
            {
                "level": pick(n, "info", "warn"),
                "ts": f"{iso(n)}.{ms(n)}Z",
                "caller": pick(n, "etcdmain/etcd.go:73", "wal/wal.go:785"),
                "msg": message(n),
                "took-ms": 12 + n,
                "expected-duration": "100ms",
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "program": "etcdmain/etcd.go:73",
        "numbers": (12,),
    },
    tidb={
        "record": _tidb,
        "time": FIRST,
        "level": "INFO",
        "program": "server.go:123",
    },
    neo4j={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)}+0000 {pick(n, 'INFO', 'WARN', 'ERROR'):5} [{pick(n, 'o.n.k.d.Database', 'c.n.s.e.EnterpriseManagementService')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "o.n.k.d.Database",
    },
    pgbouncer={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)} UTC [4711] {pick(n, 'LOG', 'WARNING')} {pick(n, f'C-0x55{n:04x}: shop/ann@10.0.0.{n % 9}:5432 login attempt: db=shop user=ann tls=no', f'S-0x55{n:04x}: shop/ann@10.0.0.5:5432 new connection to server', 'stats: 12 xacts/s, 12 queries/s')}"
        ),
        "time": FIRST,
        "level": "LOG",
        "numbers": (4711,),
    },
    # Message brokers
    rabbitmq={
        "record": lambda n: (
            f"{_day(n)}.{when(n).microsecond:06}+00:00 [{pick(n, 'info', 'warning', 'error')}] <0.{684 + n}.0> {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
    },
    activemq={
        "record": lambda n: (
            f"{_day(n)},{ms(n)} | {pick(n, 'INFO', 'WARN'):5} | {message(n)} | {pick(n, 'org.apache.activemq.broker.BrokerService', 'org.apache.activemq.broker.TransportConnector')} | {pick(n, 'main', f'ActiveMQ Transport: tcp:///10.0.0.1:{n}')}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    nats_server={
        "record": lambda n: (
            f"[{4711}] {when(n):%Y/%m/%d %H:%M:%S.%f} [{pick(n, 'INF', 'WRN', 'DBG', 'ERR')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INF",
        "numbers": (4711,),
    },
    emqx={
        "record": lambda n: (
            f"{iso(n)}.{when(n).microsecond:06}+00:00 [{pick(n, 'warning', 'info', 'error')}] clientid: c{n}, msg: {pick(n, 'socket_error', 'terminate')}, peername: 10.0.0.{n % 9}:{5000 + n}, reason: closed"
        ),
        "time": FIRST,
        "level": "warning",
    },
    pulsar={
        "record": lambda n: (
            f"{iso(n)},{ms(n)}+0000 [{pick(n, 'pulsar-io-4-1', 'main', f'bookkeeper-ml-{n}')}] {pick(n, 'INFO', 'WARN'):5} {pick(n, 'org.apache.pulsar.broker.service.ServerCnx', 'org.apache.bookkeeper.mledger.impl.MetaStoreImpl')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.apache.pulsar.broker.service.ServerCnx",
    },
    # Mail and DNS
    exim={
        "record": lambda n: (
            f"{_day(n)} 1Abcde-{n:06}-Cd {pick(n, '<=', '=>', 'Completed')} {pick(n, f'ann{n}@example.com H=mx.example.net [203.0.113.7] P=esmtps S={1024 + n}', 'bob@example.org R=dnslookup T=remote_smtp', '')}"
        ),
    },
    rspamd={
        "record": lambda n: (
            f"{_day(n)} #{4711 + n % 4}({pick(n, 'normal', 'controller', 'main')}) <{n * 7919 % 99991:06x}>; {pick(n, 'task', 'proxy', 'map')}; {pick(n, 'rspamd_task_write_log', 'rspamd_protocol_http_reply')}: {message(n)}"
        ),
    },
    coredns={
        "record": lambda n: (
            f'[{pick(n, "INFO", "WARNING")}] 10.0.0.{n % 200}:{40000 + n} - {1234 + n} "{pick(n, "A", "AAAA")} IN www{n}.example.com. udp 41 false 512" {pick(n, "NOERROR", "NXDOMAIN")} qr,rd,ra {120 + n} 0.0{n + 100}s'
        ),
        "time": None,
        "level": "INFO",
    },
    dnsmasq={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} dnsmasq[{4711}]: {pick(n, 'query[A]', 'forwarded', 'reply')} www{n}.example.com {pick(n, 'from 10.0.0.1', 'to 9.9.9.9', 'is 203.0.113.7')}"
        ),
        "payload": "syslog",
        "program": "dnsmasq",
    },
    knot_dns={
        "record": lambda n: (
            f"{iso(n)}+0000 {pick(n, 'info', 'notice', 'warning')}: [{pick(n, 'example.com.', 'example.org.')}] {message(n)}"
        ),
        "level": "info",
    },
    adguard_json={
        "record": lambda n: json.dumps(
            {
                "T": f"{iso(n)}.{ms(n)}Z",
                "QH": f"www{n}.example.com",
                "QT": pick(n, "A", "AAAA"),
                "IP": "10.0.0.1",
                "Elapsed": 123456 + n,
                "Result": {},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (123456,),
    },
    # Storage
    ceph_osd={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}+0000 7f12345677{n % 9}0 {pick(n, ' 0', ' 1', '-1', '10')} {pick(n, 'osd.1 12', 'bluestore(/var/lib/ceph/osd)', 'log_channel(cluster)')} {message(n)}"
        ),
        "time": FIRST,
    },
    gluster={
        "record": lambda n: (
            f"[{_day(n)}.{when(n).microsecond:06} +0000] {pick(n, 'I', 'W', 'E')} [MSGID: {106487 + n % 7}] [{pick(n, 'glusterd-handler.c:1474:__glusterd', 'server.c:512:server_rpc_notify')}] 0-management: {message(n)}"
        ),
        "time": FIRST,
        "level": "I",
    },
    minio_plain={
        "record": lambda n: json.dumps(
            {
                "deploymentid": "d1",
                "level": pick(n, "INFO", "ERROR"),
                "errKind": "ALL",
                "time": f"{iso(n)}.{when(n).microsecond:06}Z",
                "api": {"name": "PutObject", "args": {"bucket": "in", "object": f"{n}.csv"}},
                "remotehost": "10.0.0.1",
                "error": {"message": message(n), "source": ["a.go:1:f()"]},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
    },
)
