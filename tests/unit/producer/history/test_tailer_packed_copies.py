"""A copy that was passed over is packed, while its log still has to read in it what was unread when
that was truncated.
"""

from __future__ import annotations

import gzip
import os
import shutil

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark_producer.cut.lines import RangeCut
from hourmark_producer.files.remainder import RemainderSearch
from hourmark_producer.files.tracked_file import TrackedFile
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.remainders import RemainderFinder

UNREAD = lines(500)
ITS_OWN = lines(50, 5000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.2)


def let_the_copy_be_over_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the log looks into what it was packed into."""
    next_cut = RemainderFinder.next_cut

    def in_order(
        rests: RemainderFinder, file: TrackedFile, rest: RemainderSearch
    ) -> RangeCut | None:
        if rest.truncated_at is not None and any(
            other.place.path.endswith(".1") for other in rests.matcher.files
        ):
            raise RetryLater("the other comes first")
        return next_cut(rests, file, rest)

    monkeypatch.setattr(RemainderFinder, "next_cut", in_order)


def truncate_while_services_are_away(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """The beginning of the log is read, and its copy is passed over."""
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda one: 200 if one.range.end <= 2048 else 503
    with host.running(UNREAD):
        wait_for(lambda: bool(recorder.stored), "some of it is sent")
        shutil.copyfile(host.app, host.logs / "app.log.1")
        os.truncate(host.app, 0)
        wait_for(lambda: "is a copy of" in caplog.text, "the copy is passed over")
    recorder.behaviour = lambda _: 200


def pack(host: Host, own: bytes = b"") -> None:
    copy = host.logs / "app.log.1"
    host.append(own, copy)
    (host.logs / "app.log.1.gz").write_bytes(gzip.compress(copy.read_bytes()))
    copy.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("is_copy_first", [True, False])
@pytest.mark.parametrize("own", [b"", ITS_OWN], ids=["as it was", "written to since"])
def test_each_line_comes_once_whichever_is_looked_for_first(
    host: Host,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_copy_first: bool,
    own: bytes,
) -> None:
    truncate_while_services_are_away(host, recorder, caplog)
    pack(host, own)
    if is_copy_first:
        let_the_copy_be_over_first(monkeypatch)
    summary = host.drain(lines(10, 9000))
    assert recorder.sent() == sorted((UNREAD + own + lines(10, 9000)).splitlines(keepends=True))
    assert summary.lost_bytes == 0
    assert summary.unknown_losses == 1, "what was written between copy and truncation"


def test_a_log_that_is_gone_does_not_wait_for_the_copy_of_what_it_held_last(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has read of that, and the copy waited for somebody to."""
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda one: 200 if one.range.end <= 2048 else 503
    with host.running(UNREAD) as tailer:
        wait_for(lambda: bool(recorder.stored), "some of it is sent")
        shutil.copyfile(host.app, host.logs / "app.log.1")
        os.truncate(host.app, 0)
        wait_for(lambda: "is a copy of" in caplog.text, "the copy is passed over")
        host.append(ITS_OWN)
        (log,) = tailer.files.with_name(str(host.app))
        wait_for(lambda: log.observed.size == len(ITS_OWN), "what it holds now is seen")
    recorder.behaviour = lambda _: 200
    (host.logs / "app.log.1").rename(host.logs / "app.log.2")
    shutil.copyfile(host.app, host.logs / "app.log.1")
    host.app.unlink()
    summary = host.once(give_up_s=15)
    assert summary.finished
    assert recorder.sent() == sorted((UNREAD + ITS_OWN).splitlines(keepends=True))
    assert summary.lost_bytes == 0
