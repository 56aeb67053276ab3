"""Formats by another author, on which the method was measured before it was adapted to them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _vary(n: int, *choices: str) -> str:
    """Return one of the choices; the first for record 0, in an order that `pick` has not for seven."""
    return choices[(n + n // 9) % len(choices)]


def _space(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}"


def _dovecot(n: int) -> str:
    session = f"k{n * 7919 % 99991:05}Jx4QLLABxk"
    body = pick(
        n,
        f"imap-login: Info: Login: user=<ann{n % 17}>, method=PLAIN, rip=203.0.113.{n % 200}, lip=192.0.2.1, mpid={4711 + n}, TLS, session=<{session}>",
        f"imap(ann{n % 17})<{4700 + n}><{session}>: Info: Disconnected: Logged out in={120 + n} out={4567 + 3 * n} deleted=0 expunged=0 trashed=0 hdr_count=1 hdr_bytes=312 body_count=0 body_bytes=0",
        f"lmtp(ann{n % 17})<{4700 + n}><{session}>: Info: msgid=<{n}.4711@mail.example.com>: saved mail to INBOX",
        f"auth: Warning: auth client {n} disconnected with {n % 3 + 1} pending requests: Connection reset by peer",
        f"pop3-login: Info: Disconnected: Connection closed (auth failed, 1 attempts in {n % 9 + 2} secs): user=<bob>, method=PLAIN, rip=203.0.113.{n % 200}, lip=192.0.2.1, session=<{session}>",
        f"master: Error: service(imap-login): child {4700 + n} killed with signal 9",
    )
    return f"{when(n):%b %d %H:%M:%S} {body}"


def _nexus(n: int) -> str:
    request = pick(
        n,
        f"GET /repository/maven-public/org/example/shop/1.{n}/shop-1.{n}.pom HTTP/1.1",
        "GET /service/rest/v1/status HTTP/1.1",
        f"PUT /repository/npm-hosted/shop-{n}.tgz HTTP/1.1",
        "HEAD /repository/docker/v2/shop/manifests/latest HTTP/1.1",
    )
    sent = str(2048 + n) if request.startswith("PUT") else "-"
    return (
        f"192.0.2.{n % 50 + 1} - {pick(n, '-', 'jenkins', 'admin')} [{when(n):%d/%b/%Y:%H:%M:%S} +0000] "
        f'"{request}" {pick(n, "200", "404", "304", "200", "201")} {sent} {512 + n} {n % 40 + 3} '
        f'"{pick(n, "Apache-Maven/3.9.6 (Java 17.0.9; Linux 5.15.0)", "npm/10.2.4 node/v20.11.0 linux x64", "curl/8.5.0")}" [qtp1789550256-{n % 30 + 42}]'
    )


def _xorg(n: int) -> str:
    body = _vary(
        n,
        '(II) LoadModule: "glx"',
        f"(--) PCI:*(0@0:2:0) 8086:3e92:1028:0869 rev {n % 4}, Mem @ 0xee000000/16777216, 0xd0000000/268435456",
        '(WW) The directory "/usr/share/fonts/X11/cyrillic" does not exist.',
        f'(==) Using config directory: "/etc/X11/xorg.conf.d/{n}"',
        f'(**) Option "config_info" "udev:/sys/devices/platform/i8042/serio{n % 3}/input/input{n}/event{n}"',
        f'(II) modeset(0): Modeline "1920x1080"x{60 - n % 10}.0  148.50  1920 2008 2052 2200  1080 1084 1089 1125 +hsync +vsync (67.5 kHz eP)',
        f"(EE) modeset(0): failed to set mode: {pick(n, 'Permission denied', 'No space left on device')}",
    )
    return f"[{21.102 + 3.7 * n:10.3f}] {body}"


def _kea(n: int) -> str:
    client = f"[hwtype=1 08:00:2b:02:3f:{n % 256:02x}], cid=[no info], tid=0x{0x8CC + n:x}"
    level, logger, body = (
        (
            "INFO",
            "kea-dhcp4.leases",
            f"DHCP4_LEASE_ALLOC {client}: lease 192.0.2.{n % 200 + 10} has been allocated for 4000 seconds",
        ),
        (
            "DEBUG",
            "kea-dhcp4.packets",
            f"DHCP4_PACKET_RECEIVED {client}: DHCPREQUEST (type 3) received from 0.0.0.0 to 255.255.255.255 on interface eth{n % 2}",
        ),
        (
            "WARN",
            "kea-dhcp4.alloc-engine",
            f"ALLOC_ENGINE_V4_ALLOC_FAIL {client}: failed to allocate an IPv4 address after {n % 7 + 1} attempt(s)",
        ),
        ("INFO", "kea-dhcp4.dhcpsrv", "DHCPSRV_MEMFILE_LFC_EXECUTE executing Lease File Cleanup"),
        (
            "ERROR",
            "kea-dhcp4.commands",
            f"COMMAND_SOCKET_READ_FAIL Encountered error {n % 30} while reading from command socket {n}: End of file",
        ),
    )[(n + n // 7) % 5]
    return f"{_space(n)}.{ms(n)} {level:5} [{logger}/4711.139830{n % 3}] {body}"


def _unbound(n: int) -> str:
    body = pick(
        n,
        f"info: 192.0.2.{n % 200} www{n}.example.com. A IN",
        f"info: resolving www{n}.example.org. AAAA IN",
        f"notice: init module {n % 2}: {pick(n, 'validator', 'iterator')}",
        f"error: SERVFAIL <host{n}.example.net. A IN>: all the configured stub or forward servers failed, at zone .",
        "debug: cache memory msg=66072 rrset=66072 infra=7808 val=66288",
        f"warning: unwanted reply threshold reached, {n} replies cleared",
    )
    return f"[{int(when(n).timestamp())}] unbound[4711:{n % 4}] {body}"


def _proxysql(n: int) -> str:
    body = pick(
        n,
        "[INFO] Received LOAD MYSQL SERVERS TO RUNTIME command",
        f"MySQL_Monitor.cpp:1254:monitor_ping_thread(): [ERROR] Server 10.0.0.{n % 9 + 1}:3306 missed {n % 3 + 3} heartbeats, shunning it and killing all the connections. Disabling other checks until the node comes back online.",
        f"[INFO] Received SAVE MYSQL {pick(n, 'VARIABLES', 'USERS')} TO DISK command",
        f"MySQL_HostGroups_Manager.cpp:1168:commit(): [INFO] Checksum for table mysql_servers is 0x{0xA1B2C3 + 977 * n:X}",
        f"mysql_connection.cpp:1078:handler(): [WARNING] Retrying query on connection {n} after {n % 50 + 1} ms",
        f"MySQL_Session.cpp:5012:handler_again(): [ERROR] Access denied for user 'ann{n}'@'10.0.0.{n % 200}' (using password: YES)",
    )
    return f"{_space(n)} {body}"


def _certbot(n: int) -> str:
    body = _vary(
        n,
        "DEBUG:certbot._internal.main:certbot version: 2.9.0",
        f'DEBUG:urllib3.connectionpool:https://acme-v02.api.letsencrypt.org:443 "GET /directory HTTP/1.1" 200 {747 + n}',
        f"INFO:certbot._internal.auth_handler:http-01 challenge for www{n}.example.com",
        f"DEBUG:acme.client:Storing nonce: h3Xk{n * 7919:08}aQ",
        f"WARNING:certbot.ocsp:OCSP check failed for /etc/letsencrypt/live/www{n}.example.com/cert.pem (are we offline?)",
        f"INFO:certbot._internal.renewal:Cert not yet due for renewal, {n % 60 + 30} days left",
        "ERROR:certbot._internal.log:All renewals failed. The following certificates could not be renewed:",
    )
    return f"{_space(n)},{ms(n)}:{body}"


def _vllm(n: int) -> str:
    level, source, body = (
        ("INFO", "async_llm.py:261", f"Added request chatcmpl-{n * 7919:08x}b7e1."),
        (
            "INFO",
            "loggers.py:116",
            f"Engine 000: Avg prompt throughput: {12.5 + n:.1f} tokens/s, Avg generation throughput: {80.1 + n:.1f} tokens/s, Running: {n % 9} reqs, Waiting: 0 reqs, GPU KV cache usage: {n % 90}.3%, Prefix cache hit rate: 41.0%",
        ),
        (
            "WARNING",
            "scheduler.py:1771",
            f"Sequence group {n} is preempted by PreemptionMode.RECOMPUTE mode",
        ),
        ("INFO", "launcher.py:36", "Route: /v1/chat/completions, Methods: POST"),
        (
            "ERROR",
            "serving_chat.py:197",
            f"Error in preprocessing prompt inputs: request {n} is too long",
        ),
    )[(n + n // 6) % 5]
    return f"{level} {when(n):%m-%d %H:%M:%S} [{source}] {body}"


def _mikrotik(n: int) -> str:
    body = pick(
        n,
        f"system,info,account user ann{n % 7} logged in from 192.0.2.{n % 200} via winbox",
        f"dhcp,info dhcp1 assigned 192.0.2.{n % 200} to 02:00:5E:10:00:{n % 256:02X}",
        f"firewall,info input: in:ether1 out:(unknown 0), src-mac 02:00:5e:00:53:01, proto TCP (SYN), 203.0.113.{n % 200}:{40000 + n}->192.0.2.1:22, len 60",
        f"interface,info ether{n % 5 + 1} link {pick(n, 'up (speed 1G, full duplex)', 'down')}",
        f"system,error,critical login failure for user root from 203.0.113.{n % 200} via ssh",
        f"wireless,info 02:00:5E:10:00:{n % 256:02X}@wlan1: connected, signal strength -{n % 30 + 50}",
    )
    return f"{when(n):%b/%d/%Y %H:%M:%S} ".lower() + body


def _splunk_metrics(n: int) -> str:
    body = pick(
        n,
        f"Metrics - group=thruput, name=index_thruput, instantaneous_kbps={0.258 + n:.3f}, instantaneous_eps={1.5 + n:.3f}, average_kbps=0.312, total_k_processed={1024 + n}.000, kb={8 + n}.000, ev={46 + n}",
        f"Metrics - group=queue, name={pick(n, 'parsingqueue', 'indexqueue', 'typingqueue')}, max_size_kb=512, current_size_kb={n % 512}, current_size={n % 40}, largest_size={n % 90}, smallest_size=0",
        f"StatusMgr - destHost=idx-1, destIp=10.0.0.5, destPort=9997, eventType=connect_done, publisher=tcpout, sourcePort={8000 + n}, statusee=TcpOutputProcessor",
        f'Metrics - group=per_sourcetype_thruput, series="access_combined", kbps={0.5 + n:.3f}, eps=0.645, kb={15 + n}.123, ev={20 + n}, avg_age=1.2, max_age=3',
    )
    return f"{when(n):%m-%d-%Y %H:%M:%S}.{ms(n)} +0000 INFO  {body}"


def _flink(n: int) -> str:
    level, logger, body = (
        (
            "INFO",
            "org.apache.flink.runtime.executiongraph.ExecutionGraph",
            f"Source: orders -> Map ({n % 4 + 1}/4) (5d3a{n:04x}_0) switched from DEPLOYING to RUNNING.",
        ),
        (
            "INFO",
            "org.apache.flink.runtime.checkpoint.CheckpointCoordinator",
            f"Completed checkpoint {n} for job 7c9e6679f1c04b6fa2d1 ({4096 + n} bytes, checkpointDuration={n % 90 + 20} ms, finalizationTime=3 ms).",
        ),
        (
            "WARN",
            "org.apache.flink.runtime.taskmanager.Task",
            f"Map ({n % 4 + 1}/4)#0 (5d3a{n:04x}_0) switched from RUNNING to FAILED with failure cause:\n"
            "java.lang.IllegalStateException: buffer is closed\n"
            f"\tat com.example.shop.OrderMap.map(OrderMap.java:{n + 12})\n"
            "\tat org.apache.flink.streaming.api.operators.StreamMap.processElement(StreamMap.java:38)\n"
            "\tat java.base/java.lang.Thread.run(Thread.java:829)\n"
            "Caused by: java.io.IOException: Stream is corrupted\n"
            "\t... 2 more",
        ),
        ("INFO", "org.apache.flink.runtime.resourcemanager.StandaloneResourceManager", message(n)),
        (
            "ERROR",
            "org.apache.flink.runtime.rest.handler.job.JobDetailsHandler",
            f"Exception occurred in REST handler: Job {n:08x} not found",
        ),
    )[(n + n // 7) % 5]
    return f"{_space(n)},{ms(n)} {level:5} {logger:60} [] - {body}"


def _home_assistant(n: int) -> str:
    level, thread, logger, body = (
        (
            "WARNING",
            f"SyncWorker_{n % 6}",
            "homeassistant.loader",
            "We found a custom integration hacs which has not been tested by Home Assistant. This component might cause stability problems",
        ),
        ("INFO", "MainThread", "homeassistant.components.recorder", message(n)),
        (
            "ERROR",
            "MainThread",
            "homeassistant.helpers.entity",
            f"Update for sensor.boiler_{n} fails\n"
            "Traceback (most recent call last):\n"
            '  File "/usr/src/homeassistant/homeassistant/helpers/entity.py", line 942, in async_update_ha_state\n'
            "    await self.async_device_update()\n"
            '  File "/usr/src/homeassistant/homeassistant/components/rest/sensor.py", line 190, in async_update\n'
            "    value = float(text)\n"
            f"ValueError: could not convert string to float: 'n/a {n}'",
        ),
        (
            "INFO",
            "MainThread",
            "homeassistant.setup",
            f"Setup of domain mqtt took {0.1 + n / 100:.2f} seconds",
        ),
    )[(n + n // 5) % 4]
    return f"{_space(n)}.{ms(n)} {level} ({thread}) [{logger}] {body}"


def _apt_history(n: int) -> str:
    command, change = (
        (
            "apt-get install -y jq",
            f"Install: jq:amd64 (1.6-2.{n}), libjq1:amd64 (1.6-2.{n}, automatic)",
        ),
        (
            "/usr/bin/unattended-upgrade",
            f"Upgrade: openssl:amd64 (3.0.{n}, 3.0.{n + 1}), libssl3:amd64 (3.0.{n}, 3.0.{n + 1})",
        ),
        ("apt autoremove", f"Remove: linux-image-5.15.0-{n}-generic:amd64 (5.15.0-{n}.{n + 10})"),
    )[n % 3]
    lines = [f"Start-Date: {when(n):%Y-%m-%d  %H:%M:%S}", f"Commandline: {command}"]
    if n % 3 != 1:
        lines.append(f"Requested-By: ann{n % 4} ({1000 + n % 4})")
    end = when(n) + dt.timedelta(seconds=2)
    lines += [change, f"End-Date: {end:%Y-%m-%d  %H:%M:%S}"]
    return ("\n" if n else "") + "\n".join(lines)  # an empty line between the transactions


def _juniper(n: int) -> str:
    kind, text = (
        ("RT_FLOW_SESSION_CREATE", ""),
        ("RT_FLOW_SESSION_CLOSE", f'reason="TCP FIN" elapsed-time="{n % 90 + 1}" '),
        ("RT_FLOW_SESSION_DENY", 'reason="Denied by policy" '),
    )[n % 3]
    return (
        f"<14>1 {iso(n)}.{ms(n)}Z srx-1 RT_FLOW - {kind} [junos@2636.1.1.1.2.129 {text}"
        f'source-address="192.0.2.{n % 200}" source-port="{40000 + n}" destination-address="203.0.113.5" destination-port="443" '
        f'service-name="junos-https" protocol-id="6" policy-name="{pick(n, "allow-web", "default-deny")}" source-zone-name="trust" '
        f'destination-zone-name="untrust" session-id-32="{22000 + n}"]'
    )


def _restic(n: int) -> str:
    if n % 4 == 3:
        return _compact(
            {
                "message_type": "verbose_status",
                "action": pick(n, "new", "unchanged", "modified"),
                "item": f"/data/in/{n}.csv",
                "duration": round(0.011 + n / 1000, 3),
                "data_size": 4096 + n,
                "data_size_in_repo": 2048 + n,
                "metadata_size": 0,
                "metadata_size_in_repo": 0,
                "total_files": 0,
            }
        )
    return _compact(
        {
            "message_type": "status",
            "seconds_elapsed": 4 * n + 2,
            "seconds_remaining": 900 - 4 * n,
            "percent_done": round((n + 1) / 256, 6),
            "total_files": 1200,
            "files_done": 5 * n + 3,
            "total_bytes": 734003200,
            "bytes_done": 2867200 * (n + 1),
            "current_files": [f"/data/in/{n}.csv", f"/data/in/{n + 1}.csv"],
        }
    )


def _temporal(n: int) -> str:
    level, component, text, at = (
        ("info", "shard-controller", "Created shard context", "controller_impl.go:283"),
        (
            "debug",
            "matching-engine",
            f"Task list manager state changed, {n} pollers",
            "task_queue_manager.go:151",
        ),
        ("warn", "history-cache", "Workflow execution cache is locked", "cache.go:204"),
        ("error", "transfer-queue-processor", f"Fail to process task {n}", "lazy_logger.go:68"),
    )[(n + n // 7) % 4]
    entry: dict[str, Any] = {
        "level": level,
        "ts": f"{iso(n)}.{ms(n)}Z",
        "msg": text,
        "service": "history",
        "shard-id": n % 512 + 17,
        "address": "10.0.0.5:7234",
        "component": component,
    }
    if level == "error":
        entry |= {
            "error": "context deadline exceeded",
            "wf-namespace-id": f"32049b68-7872-4094-8e63-{n:012x}",
        }
    return _compact(entry | {"logging-call-at": at})


def _vector(n: int) -> str:
    entry: dict[str, Any] = {"timestamp": f"{when(n):%Y-%m-%dT%H:%M:%S.%f}Z"}
    entry |= (
        {
            "level": "INFO",
            "message": "Vector has started.",
            "debug": "false",
            "version": "0.34.1",
            "arch": "x86_64",
            "target": "vector",
        },
        {
            "level": "WARN",
            "message": "Retrying after error.",
            "error": f"Failed to make HTTP(S) request: connection refused ({n})",
            "internal_log_rate_limit": True,
            "target": "vector::sinks::util::retries",
            "span": {
                "component_id": "out",
                "component_kind": "sink",
                "component_type": "http",
                "name": "sink",
            },
        },
        {
            "level": "INFO",
            "message": "Found new file to watch.",
            "file": f"/var/log/app/{n}.log",
            "target": "vector::internal_events::file::source",
        },
        {
            "level": "ERROR",
            "message": "Events dropped",
            "intentional": False,
            "count": n,
            "target": "vector_common::internal_event::component_events_dropped",
        },
    )[(n + n // 7) % 4]
    return _compact(entry)


def _fortigate(n: int) -> str:
    return (
        f'date={when(n):%Y-%m-%d} time={when(n):%H:%M:%S} devname="FGT-BR1" devid="FGT60E0000000001" logid="{pick(n, "0000000013", "0000000020")}" '
        f'type="traffic" subtype="{pick(n, "forward", "local")}" level="{pick(n, "notice", "warning")}" vd="root" eventtime={int(when(n).timestamp())} '
        f'srcip=10.1.100.{n % 200} srcport={58012 + n} srcintf="port12" srcintfrole="lan" dstip=203.0.113.44 dstport=443 dstintf="port11" dstintfrole="wan" '
        f'sessionid={105048 + n} proto=6 action="{pick(n, "close", "timeout", "deny")}" policyid={n % 5 + 1} policytype="policy" service="HTTPS" '
        f'dstcountry="Reserved" srccountry="Reserved" trandisp="snat" duration={116 + n} sentbyte={1188 + n} rcvdbyte={1224 + 2 * n} '
        f'sentpkt={17 + n} rcvdpkt={16 + n} appcat="unscanned"'
    )


def _powerdns(n: int) -> str:
    stamp = f'tid="{n % 4}" ts="{int(when(n).timestamp())}.{ms(n)}"'
    return (
        f'msg="Question" subsystem="syncres" level="0" prio="Info" {stamp} ecs="" mtid="{n}" proto="udp" qname="www{n}.example.com" qtype="{pick(n, "A", "AAAA", "HTTPS")}" remote="192.0.2.{n % 200}:{40000 + n}"',
        f'msg="Answer" subsystem="syncres" level="0" prio="Info" {stamp} additional="1" answer-is-variable="0" answers="{n % 5}" dotout="0" ecs="" mtid="{n}" outqueries="{n % 7}" proto="udp" qname="www{n}.example.com" qtype="A" rcode="0" rd="1" remote="192.0.2.{n % 200}:{40000 + n}" tcpout="0" throttled="0" timeouts="0" totUsec="{1500 + n}" validationState="Insecure"',
        f'msg="Unable to send UDP packet" error="Network is unreachable" subsystem="housekeeping" level="1" prio="Error" {stamp} exception="std::runtime_error" address="198.51.100.{n % 200}:53" count="{n}" nameserver="ns{n % 4}.example.net" retrying="1"',
    )[(n + n // 5) % 3]


FORMATS: Final[list[LogFormat]] = corpus(
    dovecot={
        "record": _dovecot,
        "level": "Info",
        "program": "imap-login",
    },
    nexus_request={
        "record": _nexus,
        "numbers": (200, 512, 3),
    },
    xorg={
        "record": _xorg,
        "time": None,
        "level": "II",
        "numbers": (21.102,),
    },
    kea_dhcp4={
        "record": _kea,
        "time": FIRST,
        "level": "INFO",
        "program": "kea-dhcp4.leases",
    },
    unbound={
        "record": _unbound,
        "level": "info",
        "program": "unbound",
    },
    proxysql={
        "record": _proxysql,
        "level": "INFO",
    },
    certbot={
        "record": _certbot,
        "time": FIRST,
        "level": "DEBUG",
        "program": "certbot._internal.main",
    },
    vllm={
        "record": _vllm,
        "level": "INFO",
    },
    mikrotik={
        "record": _mikrotik,
    },
    splunk_metrics={
        "record": _splunk_metrics,
        "time": FIRST,
        "level": "INFO",
        "program": "Metrics",
    },
    flink={
        "record": _flink,
        "time": FIRST,
        "level": "INFO",
        "program": "org.apache.flink.runtime.executiongraph.ExecutionGraph",
        "unparsed": 0,
        "multiline": True,
    },
    home_assistant={
        "record": _home_assistant,
        "time": FIRST,
        "level": "WARNING",
        "program": "homeassistant.loader",
        "unparsed": 0,
        "multiline": True,
    },
    apt_history={
        "record": _apt_history,
        "payload": ("pattern", "text"),
        "unparsed": 0,
        "multiline": True,
    },
    juniper_srx={
        "record": _juniper,
        "payload": "syslog",
        "time": FIRST,
        "host": "srx-1",
        "program": "RT_FLOW",
    },
    artifactory_request={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z|{(n + 5) * 11400714819323198485 % 2**64:016x}|203.0.113.{n % 200}|{pick(n, 'jenkins', 'anonymous', 'ann')}|"
            f"{pick(n, 'GET', 'HEAD', 'PUT')}|/api/{pick(n, 'repositories', f'storage/libs-release/shop-{n}.jar', 'system/ping')}|"
            f"{pick(n, '200', '404', '201')}|{pick(n, '-1', '0', '5120')}|{1234 + n}|{15 + n % 80}|{pick(n, 'JFrog-Client/2.52.0', 'Apache-Maven/3.9.6', 'curl/8.5.0')}"
        ),
        "time": FIRST,
        "numbers": (200, -1, 1234, 15),
    },
    trino={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z\t{pick(n, 'INFO', 'WARN', 'INFO', 'ERROR')}\t{pick(n, 'main', f'dispatcher-query-{n}', f'http-worker-{n % 40}', 'node-state-poller-0')}\t"
            f"{pick(n, 'io.airlift.bootstrap.LifeCycleManager', 'io.trino.event.QueryMonitor', 'io.trino.metadata.DiscoveryNodeManager')}\t"
            f"{pick(n, 'Life cycle startup complete. System ready.', f'TIMELINE: Query 20261121_100000_{n:05}_abcde :: FINISHED :: elapsed {n + 40}ms :: planning 12ms', message(n))}"
        ),
        "payload": ("tsv", "pattern"),
        "time": FIRST,
        "level": "INFO",
        "program": "io.airlift.bootstrap.LifeCycleManager",
    },
    nvidia_smi_csv={
        "record": lambda n: (
            f"{when(n):%Y/%m/%d %H:%M:%S}.{ms(n)}, {n % 4}, {pick(n, 'NVIDIA A100-SXM4-40GB', 'NVIDIA A100-SXM4-80GB')}, P{n % 3}, "
            f"{(45 + 7 * n) % 101}, {1024 + 16 * n}, {38 + n % 30}, {61.25 + n / 2:.2f}"
        ),
        "header": (
            "timestamp, index, name, pstate, utilization.gpu [%], memory.used [MiB], temperature.gpu, power.draw [W]",
        ),
        "time": FIRST,
        "numbers": (45, 1024, 38, 61.25),
        "unparsed": 2,
    },
    jmeter_jtl={
        "record": lambda n: (
            f"{int(when(n).timestamp() * 1000)},{42 + n},{pick(n, 'Login', 'Search', 'Checkout')},{pick(n, '200,OK', '200,OK', '500,Internal Server Error')},"
            f"Thread Group 1-{n % 10 + 1},text,{pick(n, 'true', 'true', 'false')},,{512 + n},{118 + n % 9},10,10,https://shop.example.com/{pick(n, 'login', 'search', 'checkout')},{40 + n},0,{7 + n % 5}"
        ),
        "header": (
            "timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,failureMessage,bytes,sentBytes,grpThreads,allThreads,URL,Latency,IdleTime,Connect",
        ),
        "time": FIRST,
        "numbers": (42, 512, 118, 40, 7),
        "unparsed": 2,
    },
    kibana_json={
        "record": lambda n: _compact(
            {
                "type": "log",
                "@timestamp": f"{iso(n)}Z",
                "tags": [
                    pick(n, "info", "warning", "error"),
                    pick(n, "plugins-service", "savedobjects-service", "http"),
                ],
                "pid": 4711,
                "message": message(n),
            }
        ),
        "payload": "json",
        "numbers": (4711,),
    },
    restic_json={
        "record": _restic,
        "payload": "json",
        "time": None,
        "numbers": (2, 900, 0.003906, 1200, 3, 734003200, 2867200),
    },
    temporal_json={
        "record": _temporal,
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "program": "shard-controller",
        "numbers": (17,),
    },
    vector_json={
        "record": _vector,
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
    },
    fortigate={
        "record": _fortigate,
        "payload": "logfmt",
        "host": "FGT-BR1",
        "level": "notice",
        "numbers": (116, 1188, 1224, 17, 16),
    },
    powerdns_recursor={
        "record": _powerdns,
        "payload": "logfmt",
        "time": FIRST,
    },
)
