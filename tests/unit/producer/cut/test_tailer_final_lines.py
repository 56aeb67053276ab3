"""`hourmark tail --drain --final-lines`: a last line without a newline is delivered too."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.cli import root
from hourmark.config.groups import TailedSource
from hourmark.errors import UsageError
from hourmark.records.ranges import Part


@pytest.fixture
def final(host: Host) -> Host:
    host.final_lines = True
    of_source(host)
    return host


def of_source(host: Host, flush_seconds: float = 0.2, **more: str) -> None:
    host.settings["sources"] = [
        TailedSource(
            name="app", paths=[f"{host.logs}/app.log*"], flush_seconds=flush_seconds, **more
        )
    ]


def sent(recorder: Recorder) -> list[tuple[Part, str, bytes]]:
    return [(one.range.part, one.range.ending, one.body) for one in recorder.received]


def test_a_last_line_without_a_newline_is_delivered_and_what_follows_is_another_line(
    final: Host, recorder: Recorder
) -> None:
    summary = final.drain(b"whole\nhalf")
    assert sent(recorder) == [(Part.LINES, "", b"whole\n"), (Part.LINES, "eof", b"half")]
    assert (summary.pending_bytes, summary.unterminated, summary.lost_bytes) == (0, {}, 0)
    assert recorder.last.caught_up_at_ms is not None and recorder.reports[-1].goodbye
    final.drain()
    assert len(recorder.received) == 2, "nothing is sent twice"
    final.drain(b" more\n")
    assert sent(recorder)[2:] == [(Part.LINES, "", b" more\n")]


def test_a_file_of_one_line_without_a_newline_is_delivered(final: Host, recorder: Recorder) -> None:
    final.drain(b"x")
    assert sent(recorder) == [(Part.LINES, "eof", b"x")]


def test_a_line_that_is_still_being_written_is_waited_for(final: Host, recorder: Recorder) -> None:
    of_source(final, flush_seconds=1.0)
    final.append(lines(3) + b"half")
    with final.running():
        recorder.wait_stored(1)
        for word in (b" a", b" b", b" c", b"\n"):
            time.sleep(0.5)
            final.append(word)
        recorder.wait_stored(2)
    assert sent(recorder)[1:] == [(Part.LINES, "", b"half a b c\n")]


def test_a_last_record_of_several_lines_is_delivered_as_one(
    final: Host, recorder: Recorder
) -> None:
    of_source(final, record_start="^START")
    final.drain(b"START a\n  at a\nSTART b\n  at b\n  at c")
    assert sent(recorder) == [
        (Part.LINES, "", b"START a\n  at a\n"),
        (Part.LINES, "eof", b"START b\n  at b\n  at c"),
    ]


def test_a_last_record_that_ends_with_a_newline_needs_no_ending(
    final: Host, recorder: Recorder
) -> None:
    of_source(final, record_start="^START")
    final.drain(b"START a\n  at a\n")
    assert sent(recorder) == [(Part.LINES, "", b"START a\n  at a\n")]


def test_the_last_piece_of_an_over_long_line_is_delivered_as_such(
    final: Host, recorder: Recorder
) -> None:
    final.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    final.drain(b"L" * 3000)
    assert [(part, ending, len(body)) for part, ending, body in sent(recorder)] == [
        (Part.CHUNK, "", 2048),
        (Part.LAST_CHUNK, "eof", 952),
    ]


def test_it_survives_a_stop_before_it_was_acknowledged(final: Host, recorder: Recorder) -> None:
    recorder.behaviour = lambda one: 503 if one.range.ending else 200
    final.append(b"whole\nhalf")
    with final.running():
        recorder.wait_stored(1)
        while not any(one.range.ending for one in list(recorder.received)):
            time.sleep(0.02)
    recorder.behaviour = lambda _: 200
    final.final_lines = False
    final.drain(b" and more\n")
    assert recorder.text() == b"whole\nhalf and more\n", "the range is sent as it was spooled"
    assert [one.range.ending for one in recorder.stored] == ["", "eof", ""]


def test_it_is_an_option_of_a_run_that_ends(host: Host) -> None:
    command = ["tail", "--final-lines", "--config", str(host.configured(host.state.parent))]
    answer = CliRunner().invoke(root, command)
    assert isinstance(answer.exception, UsageError)
    assert "--final-lines needs --drain or --once" in str(answer.exception)
