"""What is lost is counted once, whichever way it is found out."""

from __future__ import annotations

import gzip

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark_producer.files import waits


def test_the_unended_line_of_a_file_that_was_packed_while_it_was_open_is_counted_once(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        waits, "DELETED_LINGER_S", -1.0
    )  # it is let go by the look that finds it deleted
    content = lines(500) + b"no end"
    rotated, packed = host.logs / "app.log.1", host.logs / "app.log.1.gz"
    host.append(lines(1, 10_000))
    host.append(content, rotated)
    with host.running():
        wait_for(lambda: len(recorder.sent()) == 501, "all lines")
        with gzip.open(packed, "wb") as file:
            file.write(content)
        rotated.unlink()
        wait_for(lambda: recorder.last.lost_bytes > 0, "the end of the file is counted")
        since_ms = recorder.last.caught_up_at_ms or 0
        wait_for(
            lambda: (recorder.last.caught_up_at_ms or 0) > since_ms,
            "the packed file was looked into",
            30,
        )
    host.drain()
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (len(b"no end"), 0)
    assert len(recorder.sent()) == 501


def test_what_the_packed_file_holds_beyond_that_is_delivered(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "DELETED_LINGER_S", -1.0)
    content = lines(500) + b"its end comes"
    rotated, packed = host.logs / "app.log.1", host.logs / "app.log.1.gz"
    host.append(content, rotated)
    with host.running():
        wait_for(lambda: len(recorder.sent()) == 500, "all lines")
        rotated.unlink()
        wait_for(lambda: recorder.last.lost_bytes > 0, "the end of the file is counted")
        with gzip.open(packed, "wb") as file:
            file.write(content + b" later\n")
        wait_for(
            lambda: b"its end comes later\n" in recorder.sent(),
            "the line that has its end by now",
            30,
        )
    assert recorder.last.lost_bytes == len(b"its end comes"), "what was counted stays counted"
