"""Several ranges of one file are on their way at a time, and come to their end in any order."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Received, Recorder
from tests.support.waiting import wait_for

from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.checkpoint.spooled_ranges import FORMAT, SEVERAL
from hourmark_producer.send.file_shipper import RANGES_PER_TURN
from hourmark_producer.send.flight import IN_FLIGHT_SLOTS, InFlightSlots
from hourmark_producer.send.senders import SENDERS

BACKLOG = lines(2000)  # 45 ranges
RANGE_BYTES_MAX = 1024
RANGE_BYTES = RANGE_BYTES_MAX // len(lines(1)) * len(lines(1))  # of each range but the last


class Gate:
    """The service holds some ranges back."""

    def __init__(self, recorder: Recorder, *, held: int) -> None:
        """Hold the range number `held` of the file, counted from 0, and no other."""
        self.open = threading.Event()
        self.status: int | str = 200
        recorder.behaviour = self._answer
        self._start = held * RANGE_BYTES

    def _answer(self, one: Received) -> int | str:
        if one.range.start == self._start and not self.open.is_set():
            self.open.wait(60)
            return self.status
        return 200


@pytest.fixture
def busy(host: Host) -> Host:
    host.settings["range_bytes"] = RANGE_BYTES_MAX
    return host


def table(host: Host, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(host.state / "checkpoint.sqlite") as db:
        found = db.execute(sql).fetchall()
    db.close()
    return found


def test_one_that_is_held_up_holds_up_no_other_and_no_claim_is_made_past_it(
    busy: Host, recorder: Recorder
) -> None:
    gate = Gate(recorder, held=5)
    with busy.running(BACKLOG) as tailer:
        wait_for(lambda: len(recorder.stored) >= 8, "those after it are acknowledged")
        seen = len(recorder.reports)
        wait_for(lambda: len(recorder.reports) > seen + 3, "reports")
        assert recorder.last.caught_up_at_ms is None and recorder.last.pending_bytes > 0
        balance = tailer.balances()["app"]
        assert balance.off_by == 0 and balance.in_flight >= RANGE_BYTES
        gate.open.set()
        recorder.wait_text(BACKLOG)
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "caught up")
        assert (tailer.balances()["app"].off_by, tailer.balances()["app"].acknowledged) == (
            0,
            len(BACKLOG),
        )


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 4])
def test_so_many_are_on_their_way_as_the_setting_says(
    busy: Host, recorder: Recorder, most: int
) -> None:
    busy.settings["ranges_in_flight"] = most
    lock, now, highest, reached = threading.Lock(), [0], [0], threading.Event()

    def count(_: Received) -> int:
        with lock:
            now[0] += 1
            highest[0] = max(highest[0], now[0])
            if now[0] == most:
                reached.set()
        reached.wait(0.1)
        with lock:
            now[0] -= 1
        return 200

    recorder.behaviour = count
    busy.drain(BACKLOG)
    assert recorder.text() == BACKLOG and highest[0] == most


def test_killed_with_several_on_their_way_it_sends_the_same_ranges_again(
    busy: Host, recorder: Recorder, tmp_path: Path
) -> None:
    gate = Gate(recorder, held=5)
    with busy.running(BACKLOG):
        recorder.wait_stored(RANGES_PER_TURN - 1)  # a step ends when all have been answered
        shutil.copytree(busy.state, tmp_path / "as it was killed")
        assert table(busy, "SELECT count(*) FROM ranges")[0][0] >= 2, "several are in the spool"
        again = len(recorder.received)
        assert table(busy, "SELECT format FROM meta") == [(SEVERAL,)], (
            "no version before may go on with it"
        )
        gate.open.set()
    del recorder.received[again:]  # it was killed before it sent these
    shutil.rmtree(busy.state)
    (tmp_path / "as it was killed").rename(busy.state)
    busy.drain()
    assert recorder.text() == BACKLOG, (
        "`contents` asserts that a range sent twice is the same, byte for byte"
    )
    starts = [one.range.start for one in recorder.received]
    assert set(starts[:again]) & set(starts[again:]), "some were sent twice"
    assert table(busy, "SELECT format FROM meta") == [(FORMAT,)]


def test_what_fails_is_sent_again_and_the_others_are_not(busy: Host, recorder: Recorder) -> None:
    gate = Gate(recorder, held=5)
    gate.status = 503
    with busy.running(BACKLOG):
        wait_for(lambda: len(recorder.stored) >= 8, "those after it are acknowledged")
        gate.open.set()
        recorder.wait_text(BACKLOG)
    starts = [one.range.start for one in recorder.received]
    assert len(starts) == len(set(starts)) + 1


@pytest.mark.slow
def test_an_outage_leaves_few_ranges_in_the_spool_however_long_it_is(
    busy: Host, recorder: Recorder
) -> None:
    files = 20
    busy.settings["backoff_max_seconds"] = 0.02
    with busy.running():
        for number in range(files):
            busy.append(lines(1000, number), busy.logs / f"app.log.{number}")
        recorder.wait_received(files * 2)
        recorder.behaviour = lambda _: 503
        asked = len(recorder.received)
        recorder.wait_received(asked + 200)
        (few,) = table(busy, "SELECT count(*) FROM ranges")[0]
        recorder.wait_received(asked + 1000)
        (still,) = table(busy, "SELECT count(*) FROM ranges")[0]
        assert still <= few <= files + IN_FLIGHT_SLOTS + SENDERS
        recorder.behaviour = lambda _: 200
        recorder.wait_size(sum(len(lines(1000, number)) for number in range(files)))


def test_a_checkpoint_that_allowed_one_range_of_a_file_goes_on(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: 503
    with host.running(lines(10)):
        recorder.wait_received(1)
    path = host.state / "checkpoint.sqlite"
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT * FROM ranges").fetchall()
        db.execute("DROP TABLE ranges")
        db.execute(
            "CREATE TABLE ranges (sequence INTEGER PRIMARY KEY, file_id TEXT NOT NULL UNIQUE, "
            "range TEXT NOT NULL, "
            "body BLOB NOT NULL)"
        )
        db.executemany("INSERT INTO ranges VALUES (?,?,?,?)", rows)
    db.close()
    checkpoint, _ = Checkpoint.open(path)
    (file,) = checkpoint.files()
    checkpoint.close()
    assert len(rows) == 1 and [sent.sequence for sent in file.progress.in_flight] == [rows[0][0]]
    recorder.behaviour = lambda _: 200
    host.settings["range_bytes"] = 1024
    host.drain(lines(500, 10))
    assert recorder.text() == lines(510)
    with host.tailer() as (tailer, _):
        balance = tailer.balances()["app"]
    assert (balance.off_by, balance.acknowledged) == (0, len(lines(510)))


def test_where_all_lanes_are_taken_nobody_waits_for_one() -> None:
    lanes = InFlightSlots(2)
    assert [lanes.try_acquire() for _ in range(3)] == [True, True, False]
    lanes.release()
    assert lanes.try_acquire()
