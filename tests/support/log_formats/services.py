"""Logs of databases, message brokers, clusters and other servers."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, message, ms, pick, when


def _local(n: int, mark: str = ",") -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}{mark}{ms(n)}"


def _postgres(n: int) -> str:
    who = pick(n, "", "shop@orders ")
    return (
        f"{_local(n, '.')} UTC [{4711 + n}] {who}{pick(n, 'LOG', 'ERROR', 'FATAL')}:  {message(n)}"
    )


def _postgres_cet(n: int) -> str:
    at = when(n).replace(hour=(when(n).hour + 1) % 24)
    return (
        f"{at:%Y-%m-%d %H:%M:%S}.{ms(n)} CET [{4711 + n}] {pick(n, 'LOG', 'ERROR')}:  {message(n)}"
    )


def _mysql_error(n: int) -> str:
    return (
        f"{when(n):%Y-%m-%dT%H:%M:%S.%fZ} {n % 90} [{pick(n, 'System', 'Warning', 'ERROR')}] "
        f"[MY-{10116 + n:06}] [{pick(n, 'Server', 'InnoDB')}] {message(n)}"
    )


def _mysql_slow(n: int) -> str:
    return (
        f"# Time: {when(n):%Y-%m-%dT%H:%M:%S.%fZ}\n# User@Host: shop[shop] @ web-1 [10.0.0.7]  Id: {88 + n:5}\n"
        f"# Query_time: {2.5 + n:.6f}  Lock_time: 0.000123 Rows_sent: {n + 1}  Rows_examined: {1000 + n}\n"
        f"SET timestamp={int(when(n).timestamp())};\nSELECT * FROM orders WHERE id = {n};"
    )


def _redis(n: int) -> str:
    return f"1234:M {when(n):%d %b %Y %H:%M:%S}.{ms(n)} {pick(n, '*', '#', '-', '.')} {message(n)}"


def _mongodb(n: int) -> str:
    return json.dumps(
        {
            "t": {"$date": f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}+00:00"},
            "s": pick(n, "I", "W", "E"),
            "c": pick(n, "NETWORK", "STORAGE", "-"),
            "id": 22943 + n,
            "ctx": f"conn{n % 9}",
            "msg": message(n),
            "attr": {"remote": f"10.0.0.{n % 90}:50{n:03}", "connectionId": n},
        },
        separators=(",", ":"),
    )


def _elasticsearch(n: int) -> str:
    logger = pick(n, "o.e.n.Node", "o.e.c.m.MetadataIndexService", "o.e.x.s.a")
    return f"[{when(n):%Y-%m-%dT%H:%M:%S},{ms(n)}][{pick(n, 'INFO', 'WARN', 'ERROR'):5}][{logger:25}] [node-1] {message(n)}"


def _kafka(n: int) -> str:
    return f"[{_local(n)}] {pick(n, 'INFO', 'WARN')} {pick(n, '[GroupCoordinator 0]: ', '')}{message(n)} (kafka.server.KafkaServer)"


def _log4j(n: int) -> str:
    trace = "\njava.io.IOException: no space left\n\tat com.example.Store.write(Store.java:77)\n\tat com.example.Main.main(Main.java:9)"
    return (
        f"{_local(n)} {pick(n, 'INFO', 'ERROR', 'DEBUG'):5} [{pick(n, 'main', 'pool-1-thread-3')}] "
        f"{pick(n, 'com.example.shop.Orders', 'com.example.Store')}: {message(n)}{trace if n % 10 == 3 else ''}"
    )


def _logback(n: int) -> str:
    return (
        f"{_local(n, '.')} [{pick(n, 'main', 'http-nio-8080-exec-1')}] {pick(n, 'INFO', 'WARN'):5} "
        f"{pick(n, 'c.e.shop.Orders', 'o.s.boot.Application')} - {message(n)}"
    )


def _spring(n: int) -> str:
    return (
        f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z {pick(n, 'INFO', 'WARN', 'ERROR'):>5} 4711 --- "
        f"[{pick(n, 'main', 'nio-8080-exec-1'):>15}] {pick(n, 'c.example.shop.Orders', 'o.s.b.Application'):40} : {message(n)}"
    )


def _spark(n: int) -> str:
    return f"{when(n):%y/%m/%d %H:%M:%S} {pick(n, 'INFO', 'WARN')} {pick(n, 'executor.CoarseGrainedExecutorBackend', 'BlockManager')}: {message(n)}"


def _hdfs(n: int) -> str:
    return f"{when(n):%y%m%d %H%M%S} {148 + n} {pick(n, 'INFO', 'WARN')} {pick(n, 'dfs.DataNode$PacketResponder', 'dfs.FSNamesystem')}: {message(n)}"


def _zookeeper(n: int) -> str:
    return f"{_local(n)} - {pick(n, 'INFO', 'WARN'):5} [{pick(n, 'main:QuorumPeerConfig@103', 'ProcessThread:PrepRequestProcessor@476')}] - {message(n)}"


def _openstack(n: int) -> str:
    return (
        f"nova-api.log.1.2026-11-21_09:53:08 {_local(n, '.')} 25746 {pick(n, 'INFO', 'WARNING')} "
        f"{pick(n, 'nova.osapi_compute.wsgi.server', 'nova.compute.manager')} [{pick(n, f'req-38101a0b-{n:04x} 113d3a99 54fadb41 - - -', '-')}] {message(n)}"
    )


def _vault(n: int) -> str:
    return f"{when(n):%Y-%m-%dT%H:%M:%S}.{ms(n)}Z {pick(n, '[INFO] ', '[WARN] ', '[ERROR]')} {pick(n, 'core', 'storage.raft', 'core.cluster-listener')}: {message(n)}"


def _vault_audit(n: int) -> str:
    return json.dumps(
        {
            "time": f"{when(n):%Y-%m-%dT%H:%M:%S.%fZ}",
            "type": pick(n, "request", "response"),
            "auth": {"token_type": "service"},
            "request": {"id": f"{n:08x}", "operation": "read", "path": "secret/data/shop"},
        }
    )


def _cri(n: int) -> str:
    return f"{when(n):%Y-%m-%dT%H:%M:%S.%f}789Z {pick(n, 'stdout', 'stderr')} F {message(n)}"


def _docker(n: int) -> str:
    return json.dumps(
        {
            "log": message(n) + "\n",
            "stream": pick(n, "stdout", "stderr"),
            "time": f"{when(n):%Y-%m-%dT%H:%M:%S.%f}789Z",
        }
    )


def _klog(n: int) -> str:
    return f"{pick(n, 'I', 'W', 'E')}{when(n):%m%d %H:%M:%S.%f}   12345 {pick(n, 'controller.go:123', 'reflector.go:7')}] {message(n)}"


def _cloudtrail(n: int) -> str:
    return json.dumps(
        {
            "eventVersion": "1.08",
            "userIdentity": {"type": "IAMUser", "userName": "ann"},
            "eventTime": f"{when(n):%Y-%m-%dT%H:%M:%SZ}",
            "eventSource": pick(n, "s3.amazonaws.com", "ec2.amazonaws.com"),
            "eventName": pick(n, "GetObject", "RunInstances"),
            "sourceIPAddress": f"203.0.113.{n % 200}",
            "readOnly": n % 2 == 0,
        }
    )


def _vpc_flow(n: int) -> str:
    at = int(when(n).timestamp())
    return f"2 123456789010 eni-1235b8ca 10.0.1.{n % 90} 10.0.0.220 {40000 + n} 443 6 {n + 3} {4249 + n} {at} {at + 59} {pick(n, 'ACCEPT', 'REJECT')} OK"


FORMATS: Final[list[LogFormat]] = corpus(
    postgresql={"record": _postgres, "time": FIRST, "level": "LOG", "numbers": (4711,)},
    postgresql_zone={"record": _postgres_cet, "time": FIRST, "level": "LOG", "numbers": (4711,)},
    mysql8_error={
        "record": _mysql_error,
        "time": FIRST,
        "level": "System",
        "program": "Server",
        "numbers": (0,),
    },
    mysql_slow={
        "record": _mysql_slow,
        "time": FIRST,
        "numbers": (88, 2.5, 0.000123, 1, 1000),
        "unparsed": 0,
        "multiline": True,
    },
    redis={"record": _redis, "time": FIRST, "level": "*", "numbers": (1234,)},
    mongodb={
        "record": _mongodb,
        "time": FIRST,
        "level": "I",
        "program": "NETWORK",
        "numbers": (22943,),
        "payload": "json",
    },
    elasticsearch={
        "record": _elasticsearch,
        "time": FIRST,
        "level": "INFO",
        "program": "o.e.n.Node",
    },
    kafka={"record": _kafka, "time": FIRST, "level": "INFO"},
    log4j_traces={
        "record": _log4j,
        "time": FIRST,
        "level": "INFO",
        "program": "com.example.shop.Orders",
        "unparsed": 0,
        "multiline": True,
    },
    logback={"record": _logback, "time": FIRST, "level": "INFO", "program": "c.e.shop.Orders"},
    spring_boot={
        "record": _spring,
        "time": FIRST,
        "level": "INFO",
        "program": "c.example.shop.Orders",
        "numbers": (4711,),
    },
    spark={"record": _spark, "level": "INFO", "program": "executor.CoarseGrainedExecutorBackend"},
    hdfs={
        "record": _hdfs,
        "level": "INFO",
        "program": "dfs.DataNode$PacketResponder",
        "numbers": (148,),
    },
    zookeeper={
        "record": _zookeeper,
        "time": FIRST,
        "level": "INFO",
        "program": "main:QuorumPeerConfig@103",
    },
    openstack={
        "record": _openstack,
        "time": FIRST,
        "level": "INFO",
        "program": "nova.osapi_compute.wsgi.server",
        "numbers": (25746,),
    },
    vault={"record": _vault, "time": FIRST, "level": "INFO", "program": "core"},
    vault_audit={"record": _vault_audit, "payload": "json", "time": FIRST},
    kubernetes_cri={"record": _cri, "payload": "text", "time": FIRST, "cri": True},
    docker_json={"record": _docker, "payload": "json", "time": FIRST},
    klog={
        "record": _klog,
        "time": FIRST,
        "level": "I",
        "program": "controller.go:123",
        "numbers": (12345,),
    },
    cloudtrail={"record": _cloudtrail, "payload": "json"},
    vpc_flow={
        "record": _vpc_flow,
        "numbers": (2, 123456789010, 40000, 443, 6, 3, 4249),
    },
    vpc_flow_header={
        "header": (
            "version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action log-status",
        ),
        "record": _vpc_flow,
        "numbers": (2, 40000, 443, 6, 3, 4249),
        "unparsed": 2,
    },
)
