"""Formats of operating systems, devices, VPNs, storage and batch systems."""

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


def _ossec(n: int) -> str:
    return f"** Alert {epoch(n)}.{1234 + n}: - {pick(n, 'syslog,sudo', 'sshd,authentication_failed')}\n{when(n):%Y %b %d %H:%M:%S} web-1->/var/log/auth.log\nRule: {5402 + n % 9} (level {n % 9 + 3}) -> '{pick(n, 'Successful sudo', 'SSHD authentication failed.')}'\n{message(n)}\n"


FORMATS: Final[list[LogFormat]] = corpus(
    charon_file={
        "record": lambda n: (
            f"{when(n):%b %d %H:%M:%S} {n % 16:02}[{pick(n, 'IKE', 'NET', 'ENC', 'CFG', 'KNL')}] {pick(n, '<roadwarrior|1> ', '', '<roadwarrior|12> ', '<site-b|3> ')}{message(n)}"
        ),
        "program": "IKE",
    },
    charon_iso={
        "record": lambda n: (
            f"{iso(n)} {n % 16:02}[{pick(n, 'IKE', 'NET', 'ENC', 'CFG')}] <{pick(n, 'a', 'b')}|{n}> {message(n)}"
        ),
        "program": "IKE",
    },
    osquery={
        "record": lambda n: json.dumps(
            {
                "name": pick(n, "pack_incident_processes", "pack_it_usb", "pack_osx_launchd"),
                "hostIdentifier": "pc-7.example.com",
                "calendarTime": f"{when(n):%a %b %d %H:%M:%S %Y} UTC",
                "unixTime": int(when(n).timestamp()),
                "epoch": 0,
                "counter": n,
                "numerics": False,
                "decorations": {"host_uuid": "ABC", "username": "ann"},
                "columns": {"pid": str(n + 100), "path": "/bin/x"},
                "action": pick(n, "added", "removed"),
            }
        ),
        "payload": "json",
        "host": "pc-7.example.com",
        "numbers": (0,),
    },
    exchange_tracking={
        "record": lambda n: (
            f'{iso(n)}.{ms(n)}Z,10.0.0.{n % 9 + 1},{pick(n, "client-1", "client-2")},10.0.0.250,EX-1,"{n};x",EX-1\\Default EX-1,SMTP,{pick(n, "RECEIVE", "SEND", "DELIVER")},{85000 + n},<{n}@example.com>,,ann@example.com;bob@example.com,{pick(n, "", "250 2.1.5")},{4096 + n},2,,,"Re: a, b {n}",bob@example.com'
        ),
        "header": (
            "#Software: Microsoft Exchange Server",
            "#Version: 15.00.0001.000",
            "#Log-type: Message Tracking Log",
            "#Date: 2026-11-21T00:00:00.000Z",
            "#Fields: date-time,client-ip,client-hostname,server-ip,server-hostname,source-context,connector-id,source,event-id,internal-message-id,message-id,network-message-id,recipient-address,recipient-status,total-bytes,recipient-count,related-recipient-address,reference,message-subject,sender-address",
        ),
        "time": FIRST,
        "host": "EX-1",
        "numbers": (85000, 4096, 2),
        "unparsed": 6,
    },
    nps_ias={
        "record": lambda n: (
            f"10.0.0.{n % 9 + 1},EXAMPLE\\ann{n % 9},{when(n):%m/%d/%Y},{when(n):%H:%M:%S},IAS,NPS-1,4,10.0.0.1,5,{n + 1},4108,10.0.0.1,4136,{pick(n, '1', '2', '3')},4142,{pick(n, '0', '16', '48')}"
        ),
        "host": "NPS-1",
    },
    nps_odbc={
        "record": lambda n: (
            f'"NPS-1","IAS",{when(n):%m/%d/%Y},{when(n):%H:%M:%S},{n % 3 + 1},"EXAMPLE\\ann{n % 9}","example.com/Users/Ann",,,,,"10.0.0.1",{n % 9},{pick(n, "0", "16", "48")},"AP-{n % 4}","10.0.0.{n % 9}",,,1,"Secure {n % 2}",,'
        ),
        "host": "NPS-1",
        "numbers": (1,),
    },
    cmtrace={
        "record": lambda n: (
            f'<![LOG[{message(n)}]LOG]!><time="{when(n):%H:%M:%S}.{ms(n)}+000" date="{when(n):%m-%d-%Y}" component="{pick(n, "CcmExec", "AppIntentEval", "UpdatesAgent")}" context="" type="{n % 3 + 1}" thread="{1234 + n}" file="x.cpp:{n + 1}">'
        ),
        "time": FIRST,
        "program": "CcmExec",
        "numbers": (1234,),
    },
    nccl={
        "record": lambda n: (
            f"gpu-node-3:{4711 + n % 8}:{4800 + n % 40} [{n % 8}] NCCL {pick(n, 'INFO', 'WARN')} {message(n)}"
        ),
        "time": None,
        "host": "gpu-node-3",
        "level": "INFO",
        "numbers": (4711, 4800),
    },
    ossec={"record": _ossec, "host": "web-1", "unparsed": 0, "multiline": True},
    vmware_vmx={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}Z {pick(n, 'In(05)', 'Wa(03)', 'Er(02)')} {pick(n, 'vmx', 'vcpu-0', 'mks')} - {message(n)}"
        ),
        "time": FIRST,
        "program": "vmx",
    },
    netbackup_uni={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S}.{ms(n)} [{pick(n, 'Debug', 'Info', 'Error')}] NB 51216 {pick(n, 'nbjm', 'nbpem')} 117 PID:{4711 + n % 3} TID:{1234 + n} File ID:117 [No context] {n % 6 + 1} [f()] {message(n)}"
        ),
        "time": FIRST,
        "level": "Debug",
        "program": "nbjm",
    },
    pbs_acct={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S};{pick(n, 'E', 'S', 'Q')};{1234 + n}.pbs-1;user=ann group=hpc jobname=j{n} queue=batch ctime={epoch(n)} Exit_status={n % 3}"
        ),
        "payload": ("pattern",),
    },
    beegfs={
        "record": lambda n: (
            f"({n % 5}) {when(n):%b%d %H:%M:%S} {pick(n, 'Main', 'Worker1', 'XNodeSync')} [{pick(n, 'App', 'RegDGramLis')}] >> {message(n)}"
        ),
        "program": "App",
        "numbers": (0,),
    },
    msi_log={
        "record": lambda n: (
            f"MSI ({pick(n, 's', 'c')}) (4C:{n % 100:02}) [{when(n):%H:%M:%S}:{ms(n)}]: {message(n)}"
        ),
        "time": FIRST,
    },
    short_full={
        "record": lambda n: (
            f"{when(n):%a %Y-%m-%d %H:%M:%S} UTC web-1 {pick(n, 'sshd', 'cron')}[{4711 + n}]: {message(n)}"
        ),
        "host": "web-1",
        "program": "sshd",
        "payload": ("syslog", "pattern"),
    },
    windows_cluster={
        "record": lambda n: (
            f"{4711 + n % 3:08x}.{n:08x}::{when(n):%Y/%m/%d-%H:%M:%S}.{ms(n)} {pick(n, 'INFO', 'WARN', 'ERR'):5} [{pick(n, 'RES', 'NM', 'GUM')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "RES",
    },
    snort_full={
        "record": lambda n: (
            f"[**] [1:{2000 + n}:{n % 9 + 1}] {pick(n, 'ET SCAN', 'GPL ICMP')} [**]\n[Classification: Misc] [Priority: {n % 3 + 1}]\n{when(n):%m/%d-%H:%M:%S}.{micros(n)} 10.0.0.1:{40000 + n} -> 10.0.0.2:22\nTCP TTL:64 TOS:0x0 ID:{n} IpLen:20\n"
        ),
        "time": FIRST,
        "unparsed": 0,
        "multiline": True,
    },
    extreme_xos={
        "record": lambda n: (
            f"{when(n):%m/%d/%Y %H:%M:%S}.{ms(n)[:2]} <{pick(n, 'Info', 'Warn', 'Erro')}:{pick(n, 'vlan.msgs', 'AAA.authPass', 'HAL.Port')}> Slot-{n % 2 + 1}: {message(n)}"
        ),
        "time": "2026-11-21T10:00:00.120Z",
        "level": "Info",
        "program": "vlan.msgs",
    },
    linkerd={
        "record": lambda n: (
            f"[{0.123456 + n:13.6f}s]  {pick(n, 'INFO', 'WARN')} ThreadId({n % 4 + 1:02}) linkerd2_proxy{pick(n, '', '::inbound')}: {message(n)}"
        ),
        "time": None,
        "level": "INFO",
    },
    postfix_mail_iso={
        "record": lambda n: (
            f"{iso(n)}.{micros(n)}+00:00 mx-1 postfix/smtp[{4711 + n}]: {n:X}A: to=<a@example.com>, relay=mx.example.net[10.0.0.1]:25, delay={1.5 + n:.1f}, delays=0.1/0/0.2/0.3, dsn=2.0.0, status=sent (250 ok)"
        ),
        "time": FIRST,
        "host": "mx-1",
        "program": "postfix/smtp",
        "payload": ("syslog", "pattern"),
    },
    windows_dhcp={
        "record": lambda n: (
            f"{pick(n, '10', '11', '30')},{when(n):%m/%d/%y},{when(n):%H:%M:%S},{pick(n, 'Assign', 'Renew', 'DNS Update Request')},10.0.0.{n % 200},pc-{n % 40}.example.com,{n * 7919:012X},,{n},0,,,,,,,,,0"
        ),
        "header": (
            "\t\tMicrosoft DHCP Service Activity Log",
            "",
            "Event ID  Meaning",
            "00\tThe log was started.",
            "",
            "ID,Date,Time,Description,IP Address,Host Name,MAC Address,User Name, TransactionID, QResult,Probationtime, CorrelationID,Dhcid,VendorClass(Hex),VendorClass(ASCII),UserClass(Hex),UserClass(ASCII),RelayAgentInformation,DnsRegError.",
        ),
        "numbers": (10, 0),
        "unparsed": 5,
    },
    bluecoat={
        "record": lambda n: (
            f'{day(n)} {120 + n} 10.0.0.{n % 200} {pick(n, "200", "403")} TCP_{pick(n, "HIT", "NC_MISS")} {512 + n} {300 + n} GET http www.example.com /a/{n} - ann - "text/html" "Mozilla/5.0 (X11; Linux)" {pick(n, "OBSERVED", "DENIED")} "Technology/Internet" - 10.0.0.250'
        ),
        "header": (
            "#Software: SGOS 6.7.4.1",
            "#Version: 1.0",
            "#Date: 2026-11-21 10:00:00",
            "#Fields: date time time-taken c-ip sc-status s-action sc-bytes cs-bytes cs-method cs-uri-scheme cs-host cs-uri-path cs-uri-query cs-username cs-auth-group rs(Content-Type) cs(User-Agent) sc-filter-result cs-categories x-virus-id s-ip",
        ),
        "numbers": (120, 200, 512, 300),
        "unparsed": 5,
    },
    ping_d={
        "record": lambda n: (
            f"[{epoch(n)}.{micros(n)}] 64 bytes from 10.0.0.1: icmp_seq={n + 1} ttl={pick(n, '64', '63')} time={0.123 + n / 100:.3f} ms"
        ),
        "time": FIRST,
        "numbers": (1, 64, 0.123),
    },
    tcpdump={
        "record": lambda n: (
            f"{when(n):%H:%M:%S}.{micros(n)} IP 10.0.0.{n % 200}.{40000 + n} > 10.0.0.2.443: Flags [{pick(n, 'S', 'P.', 'F.')}], seq {n * 7 + 1}, win {512 + n}, length {n}"
        ),
        "time": FIRST,
        "numbers": (512, 0),
    },
)
