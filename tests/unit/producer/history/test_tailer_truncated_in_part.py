"""A log is cut to a part of what was delivered, and emptied before that part was read again."""

from __future__ import annotations

import os

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

LINE = len(lines(1))


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_delivered_before_is_not_lost_with_what_was_left_of_it(
    host: Host, recorder: Recorder, restarts: bool
) -> None:
    host.settings |= {"range_bytes": 4096, "range_bytes_min": 4096}
    with host.running(lines(5000)) as tailer:
        recorder.wait_text(lines(5000))
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.pending_bytes == 0,
            "all is acknowledged",
        )
        recorder.behaviour = lambda one: 200 if one.range.generation == 0 else 503
        os.truncate(host.app, 2500 * LINE)
        wait_for(
            lambda: any(one.range.generation == 1 for one in recorder.received),
            "what is left is sent again",
            30,
        )
        if not restarts:
            os.truncate(host.app, 0)
            (log,) = tailer.files
            wait_for(lambda: log.observed.size == 0, "it is empty, and that was seen", 30)
    recorder.behaviour = lambda _: 200
    if restarts:
        os.truncate(host.app, 0)
    host.drain()
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 2)


def test_what_is_written_behind_what_was_left_is_lost_with_it(
    host: Host, recorder: Recorder
) -> None:
    host.settings |= {"range_bytes": 4096, "range_bytes_min": 4096}
    with host.running(lines(5000)) as tailer:
        recorder.wait_text(lines(5000))
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.pending_bytes == 0,
            "all is acknowledged",
        )
        recorder.behaviour = lambda one: 200 if one.range.generation == 0 else 503
        os.truncate(host.app, 2500 * LINE)
        wait_for(
            lambda: any(one.range.generation == 1 for one in recorder.received),
            "what is left is sent again",
            30,
        )
        host.append(lines(100, 5000))
        (log,) = tailer.files
        wait_for(lambda: log.observed.size == 2600 * LINE, "it grew, and that was seen")
        os.truncate(host.app, 0)
        wait_for(lambda: log.observed.size == 0, "it is empty, and that was seen", 30)
        recorder.behaviour = lambda _: 200
    host.drain()
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (100 * LINE, 2)
