"""A tailer of records that are more than one line: whole ones at once, the last after a while, the
same range ever after.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.tailer.host import Host
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError
from hourmark.records.ranges import Part, decode_range_fields
from hourmark_producer.settings import validate_settings

FIRST, SECOND = b"S one\n  at a\n  at b\n", b"S two\n"


@pytest.fixture
def host(host: Host) -> Host:
    return flushing(host, 0.3)


def flushing(host: Host, seconds: float) -> Host:
    """Its records begin with S; the last is sent after this."""
    paths = [f"{host.logs}/app.log*"]
    host.settings["sources"] = [
        TailedSource(name="app", paths=paths, record_start="^S", flush_seconds=seconds)
    ]
    return host


def bodies(recorder: Recorder) -> list[bytes]:
    return [one.body for one in sorted(recorder.stored, key=lambda one: one.range.start)]


def test_a_record_is_sent_once_the_next_begins(host: Host, recorder: Recorder) -> None:
    flushing(host, 3600)
    with host.running(b"S one\n"):
        for piece in (b"  at a\n", b"  at b\n", b"S t"):
            host.append(piece)
            time.sleep(0.1)
        assert not recorder.received, "it may go on"
        host.append(b"wo\n")
        recorder.wait_stored(1)
        wait_for(lambda: recorder.last.pending_bytes == len(SECOND), "the second waits")
    (one,) = recorder.stored
    assert (one.body, one.range.record_start, one.range.part) == (FIRST, "^S", Part.LINES)


def test_the_last_is_sent_after_a_while_and_what_comes_then_is_a_record_of_its_own(
    host: Host, recorder: Recorder
) -> None:
    with host.running(FIRST + b"  at"):
        recorder.wait_stored(1)
        host.append(b" c\n" + SECOND)
        recorder.wait_stored(3)
    assert bodies(recorder) == [FIRST, b"  at c\n", SECOND]


def test_a_source_is_not_caught_up_while_a_record_waits(host: Host, recorder: Recorder) -> None:
    flushing(host, 3600)
    with host.running(FIRST):
        time.sleep(0.5)
        assert recorder.last.caught_up_at_ms is None
        assert recorder.last.pending_bytes == len(FIRST)
        appended_ms, told = recorder.clock(), len(recorder.reports)
        host.append(SECOND)
        host.append(SECOND)
        wait_for(
            lambda: len(recorder.stored) > 0 and len(recorder.reports) > told + 3,
            "the first is sent",
        )
    claimed_ms = recorder.last.caught_up_at_ms
    assert claimed_ms is None or claimed_ms <= appended_ms, (
        "up to then all was sent; from then on a record waits"
    )


def test_a_busy_source_is_caught_up_again_and_again(host: Host, recorder: Recorder) -> None:
    flushing(host, 3600)
    claims = set[int]()
    with host.running():
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s and len(claims) < 3:
            host.append(FIRST)
            time.sleep(0.05)
            if recorder.reports and recorder.last.caught_up_at_ms is not None:
                claims.add(recorder.last.caught_up_at_ms)
    assert len(claims) >= 3, (
        "there is always a record that waits for its end, and none that waits for ever"
    )


def test_a_drain_sends_the_last_record_too(host: Host, recorder: Recorder) -> None:
    summary = host.drain(FIRST + SECOND)
    assert recorder.text() == FIRST + SECOND
    assert (summary.goodbye, summary.pending_bytes) == (True, 0)


def test_a_spooled_range_is_the_same_whatever_is_configured_by_then(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: "drop"
    with host.running(FIRST + SECOND):
        recorder.wait_received(2)
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/app.log*"])]
    recorder.behaviour = lambda _: 200
    host.drain()
    by_start = {one.range.start: one.range.record_start for one in recorder.stored}
    assert by_start[0] == "^S"
    assert recorder.text() == FIRST + SECOND, "which holds that a range sent twice was the same"


def test_a_record_waits_over_a_restart(host: Host, recorder: Recorder) -> None:
    flushing(host, 3600)
    with host.running(b"S one\n  at a\n"):
        time.sleep(0.2)
    with host.running(b"  at b\n" + SECOND):
        recorder.wait_stored(1)
    assert bodies(recorder) == [FIRST]


def test_a_rotated_file_gives_its_last_record(host: Host, recorder: Recorder) -> None:
    with host.running(FIRST):
        wait_for(lambda: bool(recorder.reports), "it runs")
        host.app.rename(host.logs / "app.log.1")
        host.append(SECOND)
        recorder.wait_stored(2)
        (host.logs / "app.log.1").unlink()
    assert recorder.files() == sorted([FIRST, SECOND])


def test_the_rest_of_a_packed_file_is_cut_where_records_begin(
    host: Host, recorder: Recorder
) -> None:
    host.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    before = b"".join(b"S %04d\n  at x\n" % n for n in range(100))
    rest = (
        b"".join(b"S %04d\n  at x\n" % n for n in range(100, 200))
        + b"S\n"
        + b"  at long\n" * 500
        + SECOND
    )
    host.drain(before)
    host.append(rest)
    (host.logs / "app.log.1.gz").write_bytes(gzip.compress(host.app.read_bytes()))
    host.app.unlink()
    host.drain()
    assert recorder.text() == before + rest
    assert all(
        body.startswith(b"S")
        for body in (one.body for one in recorder.stored if one.range.part is Part.LINES)
    )
    assert {one.range.part for one in recorder.stored} == set(Part)


def test_a_record_over_the_limit_goes_in_pieces_also_after_a_restart(
    host: Host, recorder: Recorder
) -> None:
    host.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    long = b"S\n" + b"  at x\n" * 400
    with host.running(long):
        wait_for(
            lambda: len(recorder.stored) > 0, "some of it is stored"
        )  # the rest may follow at once
    host.drain(SECOND)
    assert [(one.range.part, len(one.body)) for one in recorder.stored] == [
        (Part.CHUNK, 2048),
        (Part.LAST_CHUNK, len(long) - 2048),
        (Part.LINES, len(SECOND)),
    ]
    assert recorder.text() == long + SECOND


T = b"2026-11-21T01:39:58.123456789Z "


@pytest.fixture
def container(host: Host) -> Path:
    """A container's log, by the link that Kubernetes makes."""
    log = host.logs / "pods" / "shop_web-0_3f2a" / "nginx" / "0.log"
    log.parent.mkdir(parents=True)
    log.touch()
    (host.logs / "containers").mkdir()
    (host.logs / "containers" / f"web-0_shop_nginx-{'0' * 64}.log").symlink_to(log)
    paths = [f"{host.logs}/containers/*.log"]
    host.settings["sources"] = [
        TailedSource(
            name="app", paths=paths, format="cri", flush_seconds=0.3, fields={"team": "pay"}
        )
    ]
    return log


def test_a_containers_log_is_never_cut_within_what_it_wrote_on_a_line(
    host: Host, recorder: Recorder, container: Path
) -> None:
    pieces = [T + b"stdout P a\n", T + b"stderr F b\n", T + b"stdout F c\n", T + b"stderr F d\n"]
    with host.running():
        for piece in pieces:
            host.append(piece, container)
            time.sleep(0.1)
        recorder.wait_text(b"".join(pieces))
    assert bodies(recorder)[0] == b"".join(pieces[:3])
    told = recorder.stored[0].range
    assert (told.format, told.path) == (
        "cri",
        f"{host.logs}/containers/web-0_shop_nginx-{'0' * 64}.log",
    )
    assert decode_range_fields(told.fields) == {
        "pod": "web-0",
        "namespace": "shop",
        "container": "nginx",
        "container_id": "0" * 64,
        "team": "pay",
    }


def test_rotated_by_kubernetes_within_a_line_both_parts_arrive(
    host: Host, recorder: Recorder, container: Path
) -> None:
    with host.running():
        host.append(T + b"stdout P a\n", container)
        wait_for(lambda: bool(recorder.reports) and recorder.last.pending_bytes > 0, "it waits")
        container.rename(container.with_name("0.log.20261121-013958"))
        host.append(T + b"stdout F b\n", container)
        recorder.wait_stored(2)
    assert recorder.files() == sorted([T + b"stdout P a\n", T + b"stdout F b\n"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"record_start": "^S"}, "record_start cannot be combined with"),
        ({"fields": {"pod": "x"}}, "fields.pod"),
        ({"fields": {"a": "x" * 3000}}, "including the fields of containers"),
    ],
)
def test_what_goes_not_with_containers_stops_the_start(more: dict[str, Any], said: str) -> None:
    source = TailedSource(name="app", paths=["/x"], format="cri", **more)
    with pytest.raises(ConfigError, match=said):
        validate_settings(TailerConfig(sources=[source]))


def test_what_a_source_says_of_every_event_is_in_its_ranges(host: Host, recorder: Recorder) -> None:
    fields = {"team": "pay", "env": "prød"}
    host.settings["sources"] = [
        TailedSource(name="app", paths=[f"{host.logs}/app.log*"], fields=fields)
    ]
    recorder.behaviour = lambda _: "drop"
    with host.running(FIRST):
        recorder.wait_received(2)
    host.settings["sources"] = [
        TailedSource(name="app", paths=[f"{host.logs}/app.log*"], fields={"team": "other"})
    ]
    recorder.behaviour = lambda _: 200
    host.drain(SECOND)
    assert {one.range.start: decode_range_fields(one.range.fields) for one in recorder.stored} == {
        0: fields,
        len(FIRST): {"team": "other"},
    }


@pytest.mark.parametrize(
    ("fields", "said"), [({"a b": "x"}, "letters"), ({"a": "x" * 5000}, "bytes in total")]
)
def test_fields_beyond_their_limits_stop_the_start(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"tailer.sources.0.fields.*{said}"):
        validate_settings(
            TailerConfig(sources=[TailedSource(name="app", paths=["/x"], fields=fields)])
        )


@pytest.mark.parametrize(
    ("pattern", "said"), [("(", "not a valid RE2 pattern"), (r"\Ax", r"use \^")]
)
def test_a_pattern_that_is_none_stops_the_start_by_its_name(pattern: str, said: str) -> None:
    source = TailedSource(name="app", paths=["/x"], record_start=pattern)
    with pytest.raises(ConfigError, match=f"tailer.sources.0.record_start.*{said}"):
        validate_settings(TailerConfig(sources=[source]))
