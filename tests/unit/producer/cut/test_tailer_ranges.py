"""Lines of any kind arrive as they were, once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.config.groups import TailedSource
from hourmark.records.ranges import Part


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"one\ntwo\n", id="plain"),
        pytest.param(b"one\r\ntwo\r\n", id="crlf"),
        pytest.param(b"a\0b\n\0\n", id="nul"),
        pytest.param(b"\xff\xfe no utf-8 \xc3\n", id="no-utf-8"),
        pytest.param(b"\n\n\n", id="empty-lines"),
        pytest.param(b"x" * 1_000_000 + b"\n" + b"short\n", id="a-line-of-a-megabyte"),
        pytest.param(lines(100_000), id="many-ranges"),
    ],
)
def test_bytes_arrive_unaltered(host: Host, recorder: Recorder, content: bytes) -> None:
    summary = host.drain(content)
    assert recorder.text() == content
    assert (summary.bytes, summary.pending_bytes, summary.lost_bytes) == (len(content), 0, 0)
    assert all(
        one.range.part is Part.LINES and one.body.endswith(b"\n") for one in recorder.received
    )


def test_an_over_long_line_neither_stops_the_file_nor_vanishes(
    host: Host, recorder: Recorder
) -> None:
    content = b"before\n" + b"L" * (5 << 20) + b"\nafter\n"
    host.drain(content)
    assert recorder.text() == content
    parts = [
        (one.range.part, len(one.body))
        for one in sorted(recorder.received, key=lambda one: one.range.start)
    ]
    assert parts == [
        (Part.LINES, 7),
        (Part.CHUNK, 4 << 20),
        (Part.LAST_CHUNK, (1 << 20) + 1),
        (Part.LINES, 6),
    ]


def test_the_rest_of_an_over_long_line_is_known_as_such_after_a_restart(
    host: Host, recorder: Recorder
) -> None:
    host.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    host.drain(b"L" * 3000)
    host.drain(b"M" * 10 + b"\nnext\n")
    parts = [(one.range.part, len(one.body)) for one in recorder.received]
    assert parts == [(Part.CHUNK, 2048), (Part.LAST_CHUNK, 963), (Part.LINES, 5)]
    assert recorder.text() == b"L" * 3000 + b"M" * 10 + b"\nnext\n"


def test_an_unterminated_last_line_is_never_sent_and_blocks_nothing(
    host: Host, recorder: Recorder
) -> None:
    summary = host.drain(b"whole\nhalf")
    assert recorder.text() == b"whole\n"
    assert summary.unterminated == {str(host.app): 4}
    assert recorder.reports[-1].goodbye
    host.drain(b" now whole\n")
    assert recorder.text() == b"whole\nhalf now whole\n"


def test_an_empty_file_is_no_range(host: Host, recorder: Recorder) -> None:
    assert host.drain(b"").files == 1
    assert not recorder.received


def test_what_a_range_is_given(host: Host, recorder: Recorder) -> None:
    recorder.clock = lambda: 1_800_000_000_123
    recorder.rules = "rules-7"
    host.settings["sources"] = [
        TailedSource(name="app", paths=[str(host.app)], zone="Europe/Vienna")
    ]
    host.drain(b"one\n")
    (one,) = recorder.received
    sent = one.range
    assert (sent.observed_at_ms, sent.rules, sent.zone, sent.source) == (
        1_800_000_000_123,
        "rules-7",
        "Europe/Vienna",
        "app",
    )
    assert (sent.path, sent.host_name, sent.generation, sent.start, sent.end) == (
        str(host.app),
        "host-1",
        0,
        0,
        4,
    )
    assert sent.host_id == (host.state / "host-id").read_text().strip()


def test_a_name_that_is_no_utf_8(host: Host, recorder: Recorder) -> None:
    path = Path(os.fsdecode(bytes(host.logs) + b"/app.log\xff"))
    host.append(b"one\n", path)
    host.drain()
    host.append(b"two\n", path)
    host.drain()
    assert recorder.text() == b"one\ntwo\n"
    assert recorder.received[0].range.path == str(path)


def test_two_files_whose_first_1000_bytes_agree_are_two(host: Host, recorder: Recorder) -> None:
    header = b"#" * 999 + b"\n"
    host.append(header + b"one\n", host.logs / "app.log.a")
    host.append(header + b"two\n", host.logs / "app.log.b")
    host.drain()
    assert recorder.files() == [header + b"one\n", header + b"two\n"]


def test_a_symbolic_link_is_its_target_and_counts_once(host: Host, recorder: Recorder) -> None:
    host.append(b"one\n", host.logs / "target")
    (host.logs / "app.log").symlink_to(host.logs / "target")
    (host.logs / "app.log.dangling").symlink_to(host.logs / "nowhere")
    os.link(host.logs / "target", host.logs / "app.log.again")
    host.drain()
    assert recorder.text() == b"one\n"
    assert len(recorder.received) == 1


def test_of_two_sources_that_match_a_file_the_first_has_it(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    host.settings["sources"].append(TailedSource(name="other", paths=[f"{host.logs}/*"]))
    host.drain(b"one\n")
    assert [one.range.source for one in recorder.received] == ["app"]
    assert "matches source other too" in caplog.text


def test_the_tailers_own_packed_files_are_passed_over(host: Host) -> None:
    host.append(b"\x1f\x8b packed\n", host.logs / "app.log.1.gz")
    assert host.drain().files == 0


def test_more_files_than_may_be_open(host: Host, recorder: Recorder) -> None:
    host.open_files_max = 16
    paths = [host.logs / f"app.log.{n:03}" for n in range(60)]
    for path in paths:
        host.append(path.name.encode() + b" one\n", path)
    with host.running():
        recorder.wait_stored(60)
        for path in paths:
            host.append(path.name.encode() + b" two\n", path)
        recorder.wait_stored(120)
    expected = sorted(
        path.name.encode() + b" one\n" + path.name.encode() + b" two\n" for path in paths
    )
    assert recorder.files() == expected
