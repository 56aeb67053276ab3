"""Lines of stock system logs: from the files, through tailer and delivery service, to the topic of
the built-in type.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.support.service.live import RUN, Serving, StockReader, serving
from tests.support.tailer.host import Host

from hourmark.config.groups import TailedSource
from hourmark.config.loading import Config
from hourmark.kafka.topic_names import events_topic
from hourmark.rules.event_types import SYSLOG, Source
from hourmark_infra.stack import LocalStack

pytestmark = pytest.mark.stack

SYSTEM = Source(name=f"system-{RUN}", format="syslog", types=[SYSLOG.name])
ZONE = "Asia/Tokyo"  # of the host's clock; none of its hours comes twice
AT = dt.datetime.fromtimestamp(int(time.time()) - 60, ZoneInfo(ZONE))  # old lines would be too late
TRADITIONAL, RFC_3339 = f"{AT:%b} {AT.day:>2} {AT:%H:%M:%S}", f"{AT:%Y-%m-%dT%H:%M:%S}.250417+09:00"
MACHINE = f"web-{RUN}"  # this run's lines: the topic may hold an older one's

# As rsyslogd writes a file by default, and as older ones did; the last by
# RSYSLOG_SyslogProtocol23Format.
LOGS = {
    "syslog": f"""\
{TRADITIONAL} {MACHINE} CRON[801]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)
{TRADITIONAL} {MACHINE} kernel: [    1.533204] eth0: link becomes ready
{RFC_3339} {MACHINE} systemd[1]: Started Daily apt upgrade and clean activities.
{RFC_3339} {MACHINE} rsyslogd: [origin software="rsyslogd" x-pid="612"] rsyslogd was HUPed
""",
    "auth.log": f"""\
{TRADITIONAL} {MACHINE} sshd[4711]: Accepted publickey for ann from 203.0.113.7 port 50022 ssh2: ED25519 SHA256:x
{RFC_3339} {MACHINE} sudo:      ann : TTY=pts/0 ; PWD=/home/ann ; USER=root ; COMMAND=/usr/bin/id
<34>1 {RFC_3339} {MACHINE} su 77 ID47 [auth@32473 user="ann"] 'su root' failed
""",
}
WHOLE, FINE = AT.astimezone(dt.UTC), AT.astimezone(dt.UTC) + dt.timedelta(milliseconds=250)
FOUND = {
    (WHOLE, "CRON", "801", b"(root) CMD (   cd / && run-parts --report /etc/cron.hourly)"),
    (WHOLE, "kernel", None, b"[    1.533204] eth0: link becomes ready"),
    (FINE, "systemd", "1", b"Started Daily apt upgrade and clean activities."),
    (FINE, "rsyslogd", None, b'[origin software="rsyslogd" x-pid="612"] rsyslogd was HUPed'),
    (
        WHOLE,
        "sshd",
        "4711",
        b"Accepted publickey for ann from 203.0.113.7 port 50022 ssh2: ED25519 SHA256:x",
    ),
    (FINE, "sudo", None, b"     ann : TTY=pts/0 ; PWD=/home/ann ; USER=root ; COMMAND=/usr/bin/id"),
    (FINE, "su", "77", b"'su root' failed"),
}


@pytest.fixture
def service(stack: LocalStack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    folder = tmp_path / "service"
    folder.mkdir()
    with serving(stack, config, folder, SYSTEM) as started:
        yield started


def test_lines_of_stock_system_logs_arrive_taken_apart(
    service: Serving, config: Config, tmp_path: Path
) -> None:
    host = Host(tmp_path, service.url)
    host.settings["sources"] = [TailedSource(name=SYSTEM.name, paths=[f"{host.logs}/*"], zone=ZONE)]
    for name, content in LOGS.items():
        host.append(content.encode(), host.logs / name)
    summary = host.drain()
    assert (summary.events, summary.dead_letters, summary.goodbye) == (len(FOUND), 0, True)
    rows = [
        row
        for row in StockReader(config).events(events_topic(SYSLOG.name))
        if row["host"] == MACHINE
    ]
    assert {
        (row["event_time"], row["program"], row["pid"], row["message"]) for row in rows
    } == FOUND
    assert {row["source"].rpartition("/")[2] for row in rows} == set(LOGS)
    (failed,) = [row for row in rows if row["program"] == "su"]
    said: dict[str, Any] = {
        name: failed[name] for name in ("facility", "severity", "msgid", "structured_data")
    }
    assert said == {
        "facility": 4,
        "severity": 2,
        "msgid": "ID47",
        "structured_data": {"auth@32473 user": "ann"},
    }
