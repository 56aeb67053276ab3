"""A copy whose time lies ahead, as after the clock was set back."""

from __future__ import annotations

import os
import shutil
import time

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark_producer.files import waits


def test_a_copy_from_the_future_is_not_waited_for_for_ever(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "COPYING_S", 0.5)
    with host.running(lines(200)):
        recorder.wait_text(lines(200))
        copy = host.logs / "app.log.bak"
        shutil.copy(host.app, copy)
        ahead_s = time.time() + 3600
        os.utime(copy, (ahead_s, ahead_s))
        since_ms = time.time_ns() // 1_000_000
        wait_for(lambda: (recorder.last.caught_up_at_ms or 0) > since_ms, "it is caught up", 30)
    assert recorder.text() == lines(200), "nothing of the copy is sent again"
