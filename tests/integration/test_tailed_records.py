"""Records of more than one line on real servers: from files and a container's log, through tailer
and service, to Kafka.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.service.live import RAW, RUN, Serving, StockReader, serving
from tests.support.tailer.host import Host

from hourmark.config.groups import TailedSource
from hourmark.config.loading import Config
from hourmark.kafka.topic_names import events_topic
from hourmark.rules.event_types import Source
from hourmark_infra.stack import LocalStack

pytestmark = pytest.mark.stack

TRACES = Source(name=f"traces-{RUN}", format="free", types=[RAW.name])
CONTAINERS = Source(name=f"containers-{RUN}", format="free", types=[RAW.name])
AT = dt.datetime.fromtimestamp(int(time.time()) - 60, dt.UTC)  # old ones would be too late
RECORDS = [b"2026-11-23 request %d failed\n  at x\n\n  at y" % n for n in range(200)]
STAMP = f"{AT:%Y-%m-%dT%H:%M:%S}.123456789Z ".encode()
LOG = STAMP + b"stdout P one \n" + STAMP + b"stderr F two\n" + STAMP + b"stdout F three\n"


@pytest.fixture
def service(stack: LocalStack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    folder = tmp_path / "service"
    folder.mkdir()
    with serving(stack, config, folder, TRACES, CONTAINERS) as started:
        yield started


def test_each_is_one_event(service: Serving, config: Config, tmp_path: Path) -> None:
    host = Host(tmp_path, service.url)
    log = host.logs / "pods" / "shop_web-0_3f2a" / "nginx" / "0.log"
    log.parent.mkdir(parents=True)
    host.settings |= {
        "range_bytes": 1024,
        "sources": [
            TailedSource(
                name=TRACES.name,
                paths=[f"{host.logs}/app.log"],
                record_start=r"^\d{4}-",
                flush_seconds=0.5,
            ),
            TailedSource(
                name=CONTAINERS.name,
                paths=[f"{host.logs}/pods/*/*/*.log"],
                format="cri",
                flush_seconds=0.5,
            ),
        ],
    }
    host.append(LOG, log)
    summary = host.drain(b"".join(record + b"\n" for record in RECORDS))
    assert (summary.events, summary.dead_letters, summary.goodbye) == (len(RECORDS) + 2, 0, True)
    rows = StockReader(config).events(events_topic(RAW.name))
    of_traces = [row for row in rows if row["source"] == str(host.app)]
    assert [row["line"] for row in sorted(of_traces, key=lambda row: row["position"])] == RECORDS
    of_container = {
        row["position"]: (row["line"], row["event_time"])
        for row in rows
        if row["source"] == str(log)
    }
    when = AT + dt.timedelta(milliseconds=123)
    assert of_container == {
        0: (b"one three", when),
        len(STAMP + b"stdout P one \n"): (b"two", when),
    }
