"""Logs of operating systems, network services, supercomputers, phones and desktop programs."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, message, pick, when


def _bsd(n: int, tag: str) -> str:
    return f"{when(n):%b %d %H:%M:%S} web-1 {tag}"


def _rfc5424(n: int) -> str:
    return f'<34>1 {when(n):%Y-%m-%dT%H:%M:%S.%fZ} web-1 shop {4711 + n} ID47 [auth@32473 user="ann"] {message(n)}'


def _sshd(n: int) -> str:
    text = pick(
        n,
        f"Accepted publickey for ann from 203.0.113.{n % 200} port 50{n:03} ssh2",
        f"Failed password for root from 203.0.113.{n % 200} port 51{n:03} ssh2",
        "Connection closed by authenticating user root 203.0.113.9 port 50022 [preauth]",
    )
    return _bsd(n, f"sshd[{4711 + n}]: {text}")


def _postfix(n: int) -> str:
    return _bsd(
        n, f"postfix/{pick(n, 'smtpd', 'qmgr', 'cleanup')}[{900 + n}]: 4B1F{n:04X}: {message(n)}"
    )


def _iptables(n: int) -> str:
    return _bsd(
        n,
        f"kernel: [{12345 + n}.678901] IN=eth0 OUT= MAC=52:54:00:12:34:56 SRC=203.0.113.{n % 200} DST=192.0.2.1 "
        f"LEN={40 + n % 20} TTL=54 ID={n + 100} PROTO=TCP SPT={40000 + n} DPT=22 WINDOW=1024 SYN",
    )


def _dnsmasq(n: int) -> str:
    text = pick(
        n,
        "query[A] example.com from 10.0.0.7",
        "forwarded example.com to 9.9.9.9",
        "cached example.org is NXDOMAIN",
    )
    return f"{when(n):%b %d %H:%M:%S} dnsmasq[812]: {text}"


def _journal(n: int) -> str:
    return json.dumps(
        {
            "__REALTIME_TIMESTAMP": str(int(when(n).timestamp() * 1e6)),
            "_HOSTNAME": "web-1",
            "SYSLOG_IDENTIFIER": pick(n, "sshd", "cron"),
            "PRIORITY": pick(n, "6", "4", "3"),
            "_PID": str(900 + n),
            "MESSAGE": message(n),
        }
    )


def _auditd(n: int) -> str:
    serial = f"audit({when(n).timestamp():.3f}:{456 + n})"
    rest = pick(
        n,
        f'arch=c000003e syscall=59 success=yes exit=0 ppid=1 pid={4711 + n} comm="ls" exe="/usr/bin/ls"',
        f"pid={4711 + n} uid=0 auid=1000 ses=3 msg='op=login acct=\"ann\" res=success'",
    )
    return f"type={pick(n, 'SYSCALL', 'USER_LOGIN')} msg={serial}: {rest}"


def _bind(n: int) -> str:
    return (
        f"{when(n):%d-%b-%Y %H:%M:%S}.{when(n).microsecond // 1000:03} {pick(n, 'queries', 'security', 'xfer-out')}: "
        f"{pick(n, 'info', 'warning', 'error')}: client @0x7f{n:04x} 203.0.113.{n % 200}#53: {message(n)}"
    )


def _windows_cbs(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}, {pick(n, 'Info', 'Error', 'Warning'):22}{pick(n, 'CBS', 'CSI'):7}{message(n)}"


def _windows_event(n: int) -> str:
    return (
        f"{when(n):%m/%d/%Y %I:%M:%S %p}\nLogName=Security\nEventCode={4624 + n % 3}\nEventType=0\n"
        f"ComputerName=WIN-DC1\nRecordNumber={1000 + n}\nMessage={message(n)}"
    )


def _android(n: int) -> str:
    return (
        f"{when(n):%m-%d %H:%M:%S}.{when(n).microsecond // 1000:03}  1702 {2395 + n % 7:5} "
        f"{pick(n, 'D', 'I', 'W', 'E', 'V')} {pick(n, 'WindowManager', 'PowerManagerService', 'chatty  ')}: {message(n)}"
    )


def _bgl(n: int) -> str:
    node = f"R02-M1-N{n % 8}-C:J12-U11"
    return (
        f"{pick(n, '-', 'APPREAD')} {int(when(n).timestamp())} {when(n):%Y.%m.%d} {node} {when(n):%Y-%m-%d-%H.%M.%S.%f} "
        f"{node} RAS {pick(n, 'KERNEL', 'APP')} {pick(n, 'INFO', 'FATAL', 'WARNING')} {message(n)}"
    )


def _hpc(n: int) -> str:
    return (
        f"{134681 + n} node-{246 - n % 9} {pick(n, 'unix.hw', 'node', 'boot_cmd')} "
        f"{pick(n, 'state_change.unavailable', 'status', 'new')} {int(when(n).timestamp())} {pick(n, '1', '0')} {message(n)}"
    )


def _thunderbird(n: int) -> str:
    node = f"dn{228 + n % 9}"
    return (
        f"- {int(when(n).timestamp())} {when(n):%Y.%m.%d} {node} {when(n):%b %d %H:%M:%S} {node}/{node} "
        f"{pick(n, 'crond(pam_unix)[2915]', 'kernel', 'sshd[77]')}: {message(n)}"
    )


def _healthapp(n: int) -> str:
    return (
        f"{when(n):%Y%m%d-%H:%M:%S}:{when(n).microsecond // 1000:03}|{pick(n, 'Step_LSC', 'Step_SPUtils', 'HiH_')}|"
        f"30002312|{message(n)}"
    )


def _proxifier(n: int) -> str:
    return (
        f"[{when(n):%m.%d %H:%M:%S}] {pick(n, 'chrome.exe', 'Dropbox.exe', 'svchost.exe *64')} - "
        f"proxy.example.edu:5070 {pick(n, 'open through proxy socks.example.edu:5070 HTTPS', f'close, {n} bytes sent, 7 bytes received')}"
    )


def _vpxd(n: int) -> str:
    return (
        f"{when(n):%Y-%m-%dT%H:%M:%S}.{when(n).microsecond // 1000:03}Z {pick(n, 'info', 'warning', 'error')} "
        f"vpxd[{4711 + n % 5}] [Originator@6876 sub={pick(n, 'vpxLro', 'Default', 'HostGateway')} opID=5f{n:03x}] {message(n)}"
    )


FORMATS: Final[list[LogFormat]] = corpus(
    syslog_rfc3164={
        "record": lambda n: _bsd(n, f"{pick(n, 'cron[77]', 'systemd[1]', 'kernel')}: {message(n)}"),
        "payload": "syslog",
        "host": "web-1",
        "program": "cron",
    },
    syslog_rfc5424={
        "record": _rfc5424,
        "payload": "syslog",
        "time": FIRST,
        "host": "web-1",
        "program": "shop",
        "numbers": (4, 2),
    },
    syslog_iso={
        "record": lambda n: (
            f"{when(n):%Y-%m-%dT%H:%M:%S.%f+00:00} web-1 {pick(n, 'CRON[7]', 'kernel')}: {message(n)}"
        ),
        "payload": "syslog",
        "time": FIRST,
        "host": "web-1",
        "program": "CRON",
    },
    sshd_auth={"record": _sshd, "payload": "syslog", "host": "web-1", "program": "sshd"},
    postfix={"record": _postfix, "payload": "syslog", "host": "web-1", "program": "postfix/smtpd"},
    iptables={
        "record": _iptables,
        "payload": ("syslog", "pattern"),
        "host": "web-1",
        "program": "kernel",
    },
    dnsmasq={"record": _dnsmasq, "payload": "syslog", "program": "dnsmasq"},
    systemd_journal_json={
        "record": _journal,
        "payload": "json",
        "time": FIRST,
        "host": "web-1",
        "level": "6",
        "program": "sshd",
        "numbers": (6, 900),
    },
    auditd={"record": _auditd, "time": FIRST, "numbers": (456,)},
    bind={"record": _bind, "time": FIRST, "level": "info", "program": "queries"},
    windows_cbs={"record": _windows_cbs, "level": "Info", "program": "CBS"},
    windows_event={
        "record": _windows_event,
        "host": "WIN-DC1",
        "numbers": (4624, 1000),
        "unparsed": 0,
        "multiline": True,
    },
    android_logcat={
        "record": _android,
        "time": FIRST,
        "level": "D",
        "program": "WindowManager",
        "numbers": (1702, 2395),
    },
    bgl={"record": _bgl, "host": "R02-M1-N0-C:J12-U11", "level": "INFO", "program": "KERNEL"},
    hpc={"record": _hpc, "host": "node-246", "program": "unix.hw", "numbers": (134681, 1)},
    thunderbird={"record": _thunderbird, "host": "dn228", "program": "crond(pam_unix)"},
    healthapp={
        "record": _healthapp,
        "time": FIRST,
        "program": "Step_LSC",
        "numbers": (30002312,),
    },
    proxifier={"record": _proxifier, "program": "chrome.exe"},
    vpxd={
        "record": _vpxd,
        "time": FIRST,
        "level": "info",
        "program": "vpxd",
        "numbers": (4711,),
    },
)
