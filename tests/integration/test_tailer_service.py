"""The tailer against the real delivery service, whose queue is in memory: the contract between
them, over HTTP.
"""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from tests.support.service.examples import decoded, syslog
from tests.support.service.harness import Harness
from tests.support.tailer.host import Host
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark.records.audit import AuditRecord
from hourmark.records.host_reports import HostReport
from hourmark_delivery_service.edge.app import create_app
from hourmark_delivery_service.parsing import ParsedRecord


@contextmanager
def serving(harness: Harness) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(create_app(harness.service), log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "the service listens")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def test_a_last_line_without_a_newline_becomes_an_event_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    harness = Harness()
    with serving(harness) as url:
        host = Host(tmp_path, url)
        host.final_lines = True
        host.settings["sources"] = [
            TailedSource(name="app", paths=[f"{host.logs}/app.log*"], flush_seconds=0.2)
        ]
        summary = host.drain(syslog() + syslog()[:-1])
    assert (summary.events, summary.dead_letters, summary.pending_bytes) == (2, 0, 0)


def test_every_line_but_a_blank_one_becomes_an_event_or_a_dead_letter(tmp_path: Path) -> None:
    harness = Harness()
    lines = [
        b"no structure at all",
        b"",
        b"\xff\xfe\0",
        b"m" * 1_000_000,
        b"crlf\r",
        b"2026-01-01T00:00:00Z something",
        *(b"line %d" % n for n in range(20_000)),
    ]
    with serving(harness) as url:
        host = Host(tmp_path, url)
        host.append(b"".join(line + b"\n" for line in lines) + b"unterminated")
        summary = host.drain()
        host.append(b" no more\n" + b"L" * (5 << 20) + b"\n")
        again = host.drain()
    assert summary.events + summary.dead_letters == len(lines) - 1, "each but the blank one"
    assert (summary.goodbye, summary.lost_bytes, summary.pending_bytes) == (
        True,
        0,
        len(b"unterminated"),
    )
    assert again.events + again.dead_letters == 3, "a line, and two pieces of one that is too long"
    reports = [HostReport.decode(record.value[5:]) for record in harness.queue.of(HOSTS)]
    assert reports[-1].goodbye and reports[-1].sources[0].caught_up_at_ms == harness.clock.now_ms()


def test_records_of_more_than_one_line_are_one_each_however_the_file_grows(tmp_path: Path) -> None:
    harness = Harness()
    records = [
        b"2026-11-21 request %d\n" % n + b"  at x\n\n  at y\n" * (n % 3) for n in range(3000)
    ]
    whole = b"".join(records)
    with serving(harness) as url:
        host = Host(tmp_path, url)
        host.settings["sources"] = [
            TailedSource(
                name="anything",
                paths=[f"{host.logs}/app.log*"],
                record_start=r"^\d{4}-",
                flush_seconds=2,
            )
        ]
        host.settings["range_bytes"] = 4096
        with host.running():
            for at in range(0, len(whole), 20_011):  # now and then within a line
                host.append(whole[at : at + 20_011])
                time.sleep(0.02)
        summary = host.drain()
    rows = [
        decoded(ParsedRecord("raw", record.key, record.value, 0))
        for record in harness.queue.of("events.raw")
    ]
    made = {row["position"]: row["line"] for row in rows}
    at = 0
    for record in records:
        assert made.pop(at) == record[:-1]
        at += len(record)
    assert not made and len(rows) == len(records)
    assert (summary.pending_bytes, summary.goodbye) == (0, True)
    audited = [AuditRecord.decode(record.value[5:]) for record in harness.queue.of(AUDIT)]
    assert sum(audit.lines for audit in audited) == len(records)


@pytest.mark.slow
def test_what_a_container_wrote_on_a_line_is_one_event_across_a_rotation_and_a_reread(
    tmp_path: Path,
) -> None:
    harness = Harness()
    texts = {
        "stdout": [b"out %d " % n + b"x" * (n % 40) for n in range(1500)],
        "stderr": [b"err %d" % n for n in range(500)],
    }
    lines, chance = list[bytes](), random.Random(20261123)
    left = {
        stream: [part for text in found for part in split(text, chance)]
        for stream, found in texts.items()
    }
    while any(left.values()):
        stream = chance.choice([stream for stream, parts in left.items() if parts])
        tag, text = left[stream].pop(0)
        lines.append(b"2026-11-21T01:39:58.123456789Z " + stream.encode() + tag + text + b"\n")
    with serving(harness) as url:
        host = Host(tmp_path, url)
        log = host.logs / "pods" / "shop_web-0_3f2a" / "nginx" / "0.log"
        log.parent.mkdir(parents=True)
        source = TailedSource(
            name="anything", paths=[f"{host.logs}/pods/*/*/*.log*"], format="cri", flush_seconds=3
        )
        host.settings |= {"sources": [source], "range_bytes": 2048}
        with host.running():
            for at in range(0, len(lines), 37):
                host.append(b"".join(lines[at : at + 37]), log)
                time.sleep(0.01)
        log.rename(log.with_name("0.log.20261121-013958"))
        host.drain()
        first = {record.key[:16] for record in harness.queue.of("events.raw")}
        (host.state / "checkpoint.sqlite").unlink()
        host.drain(reread=True)
    rows = [
        decoded(ParsedRecord("raw", record.key, record.value, 0))
        for record in harness.queue.of("events.raw")
    ]
    assert {record.key[:16] for record in harness.queue.of("events.raw")} == first, (
        "read again, each is the event that it was"
    )
    assert len(first) == sum(map(len, texts.values()))
    assert sorted({row["position"]: row["line"] for row in rows}.values()) == sorted(
        itertools.chain(*texts.values())
    )


def split(text: bytes, chance: random.Random) -> list[tuple[bytes, bytes]]:
    """A text as a runtime may write it: tags and parts."""
    cuts = sorted(chance.choices(range(len(text) + 1), k=chance.choice([0, 0, 0, 1, 3])))
    parts = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    return [*((b" P ", part) for part in parts[:-1]), (b" F ", parts[-1])]
