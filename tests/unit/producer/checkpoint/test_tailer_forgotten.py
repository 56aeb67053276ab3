"""Files that left a narrow pattern and were deleted are forgotten; one that comes back all the same
is read on.
"""

from __future__ import annotations

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.read_only import read_snapshot
from hourmark_producer.files import waits


@pytest.fixture
def narrow(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose pattern matches the live name alone; what takes minutes takes moments."""
    monkeypatch.setattr(waits, "UNMATCHED_LINGER_S", 0.0)
    monkeypatch.setattr(waits, "FORGET_EVERY_S", 0.05)
    host.settings["sources"] = [TailedSource(name="app", paths=[str(host.app)])]
    return host


def test_rotated_and_deleted_files_of_a_narrow_pattern_leave_nothing_behind(
    narrow: Host, recorder: Recorder
) -> None:
    host, rotations = narrow, 12
    with host.running() as tailer:
        for number in range(rotations):
            host.append(lines(10, 10 * number))
            recorder.wait_text(lines(10 * number + 10))
            host.app.rename(host.logs / f"app.log.{number + 1}")
        wait_for(lambda: all(file.place.missing for file in tailer.files), "all are let go")
        assert len(tailer.files) == rotations, "they are there, and would be known"
        for number in range(rotations):
            (host.logs / f"app.log.{number + 1}").unlink()
        wait_for(lambda: len(tailer.files) == 0, "all are forgotten")
    assert read_snapshot(host.state / CHECKPOINT).files == []
    summary = host.drain()
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)
    with host.tailer() as (tailer, _):
        assert [balance.off_by for balance in tailer.balances().values()] == [0]


def test_one_that_was_forgotten_and_comes_back_is_read_on(narrow: Host, recorder: Recorder) -> None:
    host = narrow
    elsewhere = host.logs.parent / "elsewhere"
    with host.running(lines(100)) as tailer:
        recorder.wait_text(lines(100))
        host.app.rename(elsewhere)
        wait_for(lambda: len(tailer.files) == 0, "it is forgotten")
    elsewhere.rename(host.app)
    host.drain(lines(10, 100))
    assert recorder.text() == lines(110) and len(recorder.contents()) == 1, "nothing twice"
    with host.tailer() as (tailer, _):
        assert [balance.off_by for balance in tailer.balances().values()] == [0]
