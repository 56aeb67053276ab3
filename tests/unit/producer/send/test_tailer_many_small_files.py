"""At a start with many small files, what is durable is durable for many of them at a time."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Received, Recorder
from tests.support.waiting import wait_for

from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.send.file_shipper import SENT_TOGETHER
from hourmark_producer.send.flight import IN_FLIGHT_SLOTS
from hourmark_producer.send.senders import SENDERS

FILES = 400


@pytest.fixture
def many(host: Host) -> Host:
    for number in range(FILES):
        Path(f"{host.app}-{number:04}").write_bytes(lines(3, 3 * number))
    return host


@pytest.mark.slow
def test_many_small_files_share_the_transactions_that_send_and_acknowledge_them(
    many: Host, recorder: Recorder
) -> None:
    with many.tailer() as (tailer, checkpoint):
        commits = _commits(checkpoint)
        tailer.run(threading.Event(), drain=True)
        assert len(recorder.stored) == len(recorder.received) == FILES
        assert len(commits) <= FILES / 4, (
            "each small file needs a spool and an acknowledgement, with a transaction of "
            "its own two"
        )
        balance = tailer.balances()["app"]
    assert (balance.off_by, balance.acknowledged) == (0, FILES * len(lines(3)))


def _commits(checkpoint: Checkpoint) -> list[int]:
    """The changes of each commit from now on."""
    counted, real = list[int](), checkpoint.commit

    def commit(changes: list[object]) -> None:
        counted.append(len(changes))
        real(changes)  # type: ignore[arg-type]

    checkpoint.commit = commit  # type: ignore[method-assign, assignment]
    return counted


@pytest.mark.slow
def test_a_small_file_that_no_service_takes_holds_up_no_other(
    many: Host, recorder: Recorder
) -> None:
    refused = f"{many.app}-0007"
    recorder.behaviour = lambda one: 400 if one.range.path == refused else 200
    with many.running() as tailer:
        wait_for(lambda: len(recorder.stored) == FILES - 1, "all others are acknowledged")
        balance = tailer.balances()["app"]
        assert balance.off_by == 0 and recorder.last.caught_up_at_ms is None
        recorder.behaviour = lambda _: 200
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "caught up")
    assert Counter(one.range.path for one in recorder.stored).most_common(1)[0][1] == 1


@pytest.mark.slow
def test_no_more_ranges_of_small_files_are_sent_at_a_time_than_the_limit(
    many: Host, recorder: Recorder
) -> None:
    lock, now, highest, reached = threading.Lock(), [0], [0], threading.Event()

    def count(_: Received) -> int:
        with lock:
            now[0] += 1
            highest[0] = max(highest[0], now[0])
            if now[0] > SENDERS:
                reached.set()
        reached.wait(1)
        with lock:
            now[0] -= 1
        return 200

    recorder.behaviour = count
    many.drain()
    assert SENDERS < highest[0] <= SENDERS * SENT_TOGETHER + IN_FLIGHT_SLOTS


@pytest.mark.slow
def test_small_files_spooled_in_an_outage_are_sent_as_they_were_after_a_restart(
    many: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: 503
    with many.running():
        wait_for(lambda: len(recorder.received) >= SENDERS, "ranges are refused")
    refused = {(one.range.file_id, one.range.start): one.compressed for one in recorder.received}
    recorder.behaviour = lambda _: 200
    many.drain()
    taken = {(one.range.file_id, one.range.start): one.compressed for one in recorder.stored}
    assert len(taken) == len(recorder.stored) == FILES
    assert refused.items() <= taken.items()


@pytest.mark.slow
def test_copies_among_many_small_files_are_not_sent_again(host: Host, recorder: Recorder) -> None:
    """A copy and its file are in one step: the file's position is not known yet when the copy is
    looked at.
    """
    for number in range(40):
        log = Path(f"{host.app}-{number:02}")
        log.write_bytes(lines(3, 3 * number))
        Path(f"{log}.1").write_bytes(log.read_bytes())
    host.drain()
    delivered = Counter(line for one in recorder.stored for line in one.body.splitlines())
    assert len(delivered) == 120 and set(delivered.values()) == {1}
