"""The books: bytes seen = acknowledged + in flight + pending + skipped + known lost, by source,
whatever happens to files.
"""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Received, Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark_producer.checkpoint import books
from hourmark_producer.checkpoint.books import SourceBalance

LINE = 23  # bytes of one of `lines`
RANGE = 44 * LINE  # of a range of 1024 at most


def kept(host: Host) -> dict[str, SourceBalance]:
    """Those of a tailer that has ended."""
    with host.tailer() as (tailer, _):
        return tailer.balances()


def is_all(balance: SourceBalance, seen: int, **others: int) -> None:
    """Acknowledged is what the others leave."""
    assert balance.off_by == 0
    rest = dict.fromkeys(("in_flight", "pending", "skipped", "lost"), 0) | others
    assert balance == SourceBalance(seen=seen, acknowledged=seen - sum(rest.values()), **rest)


def test_all_that_is_delivered_is_acknowledged_also_after_a_restart(host: Host) -> None:
    host.drain(lines(1000))
    is_all(kept(host)["app"], 1000 * LINE)
    host.drain(lines(10, 1000))
    is_all(kept(host)["app"], 1010 * LINE)


def test_a_line_without_an_end_is_pending(host: Host) -> None:
    host.drain(lines(10) + b"no end")
    with host.running() as tailer:
        wait_for(lambda: tailer.balances()["app"].seen == 10 * LINE + 6, "the file was looked at")
        is_all(tailer.balances()["app"], 10 * LINE + 6, pending=6)


def test_what_no_service_takes_is_in_flight_or_pending_also_after_a_restart(
    host: Host, recorder: Recorder
) -> None:
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda _: 503
    with host.running(lines(1000)) as tailer:
        recorder.wait_received(1)
        is_all(tailer.balances()["app"], 1000 * LINE, in_flight=RANGE, pending=956 * LINE)
    with host.running() as tailer:
        recorder.wait_received(3)
        wait_for(lambda: tailer.balances()["app"].seen == 1000 * LINE, "the file was looked at")
        is_all(tailer.balances()["app"], 1000 * LINE, in_flight=RANGE, pending=956 * LINE)
    recorder.behaviour = lambda _: 200
    host.drain()
    is_all(kept(host)["app"], 1000 * LINE)


def test_what_a_truncation_destroys_is_lost_and_what_follows_is_seen_anew(
    host: Host, recorder: Recorder
) -> None:
    host.settings |= {"range_bytes": 1024, "ranges_in_flight": 1}
    recorder.behaviour = lambda one: 200 if one.range.start == 0 else 503
    with host.running(lines(500)) as tailer:
        wait_for(lambda: tailer.balances()["app"].acknowledged == RANGE, "a range is acknowledged")
        wait_for(lambda: tailer.balances()["app"].in_flight == RANGE, "one is on its way")
        host.app.write_bytes(lines(3, 5000))
        wait_for(lambda: tailer.balances()["app"].seen == 503 * LINE, "the truncation is seen")
        is_all(
            tailer.balances()["app"], 503 * LINE, in_flight=RANGE, pending=503 * LINE - 2 * RANGE
        )
        recorder.behaviour = lambda _: 200
        wait_for(
            lambda: tailer.balances()["app"].acknowledged == 2 * RANGE + 3 * LINE,
            "what is there is acknowledged",
        )
        is_all(tailer.balances()["app"], 503 * LINE, lost=500 * LINE - 2 * RANGE)
    is_all(kept(host)["app"], 503 * LINE, lost=500 * LINE - 2 * RANGE)


def test_a_truncation_destroys_nothing_of_several_ranges_that_are_on_their_way(
    host: Host, recorder: Recorder
) -> None:
    host.settings |= {"range_bytes": 1024, "ranges_in_flight": 8}
    held = threading.Event()

    def hold(one: Received) -> int:
        if (
            one.range.generation == 0 and one.range.start
        ):  # acknowledged, the first one lets two be on their way
            held.wait(20)
        return 200

    recorder.behaviour = hold
    with host.running(lines(500)) as tailer:
        wait_for(
            lambda: tailer.balances()["app"].in_flight >= 2 * RANGE, "several are on their way"
        )
        host.app.write_bytes(lines(3, 5000))
        wait_for(lambda: tailer.balances()["app"].seen == 503 * LINE, "the truncation is seen")
        held.set()
        wait_for(
            lambda: tailer.balances()["app"].pending + tailer.balances()["app"].in_flight == 0,
            "what is there is acknowledged",
        )
    sent = sum(len(content) for content in recorder.contents().values())
    assert sent >= 3 * RANGE + 3 * LINE, "all that were on their way arrived"
    is_all(kept(host)["app"], 503 * LINE, lost=503 * LINE - sent)


def test_a_deleted_file_stays_in_the_books(host: Host) -> None:
    with host.running(lines(100)) as tailer:
        wait_for(lambda: tailer.balances()["app"].acknowledged == 100 * LINE, "all is acknowledged")
    host.app.unlink()
    with host.running() as tailer:
        wait_for(
            lambda: not any(not file.is_gone for file in tailer.files),
            "it is not followed any more",
        )
        is_all(tailer.balances()["app"], 100 * LINE)


def test_bytes_that_vanish_unread_are_lost(host: Host, recorder: Recorder) -> None:
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda _: 503
    with host.running(lines(100)):
        recorder.wait_received(1)
    host.app.unlink()
    recorder.behaviour = lambda _: 200
    with host.running() as tailer:
        wait_for(lambda: tailer.balances()["app"].lost > 0, "it is known to be gone")
        wait_for(lambda: tailer.balances()["app"].acknowledged > 0, "what was spooled is delivered")
        is_all(tailer.balances()["app"], 100 * LINE, lost=100 * LINE - RANGE)
    is_all(kept(host)["app"], 100 * LINE, lost=100 * LINE - RANGE)


@pytest.mark.slow
def test_a_copy_is_skipped(host: Host) -> None:
    with host.running(lines(100)) as tailer:
        wait_for(lambda: tailer.balances()["app"].acknowledged == 100 * LINE, "all is acknowledged")
        (host.logs / "app.log.1").write_bytes(host.app.read_bytes())
        wait_for(lambda: tailer.balances()["app"].skipped == 100 * LINE, "the copy is known")
        is_all(tailer.balances()["app"], 200 * LINE, skipped=100 * LINE)


def test_a_source_of_another_name_takes_over_what_is_to_be_read_and_no_more(host: Host) -> None:
    host.drain(lines(100))
    host.settings["sources"] = [TailedSource(name="web", paths=[f"{host.logs}/app.log*"])]
    host.drain(lines(7, 100))
    found = kept(host)
    is_all(found["app"], 100 * LINE)
    is_all(found["web"], 7 * LINE)


@pytest.mark.slow
def test_they_balance_at_every_moment_under_load(host: Host, recorder: Recorder) -> None:
    host.settings |= {
        "range_bytes": 1024,
        "sources": [TailedSource(name=n, paths=[f"{host.logs}/{n}.log*"]) for n in ("a", "b")],
    }
    writing, seen = threading.Event(), list[dict[str, SourceBalance]]()
    recorder.behaviour = lambda one: 503 if one.number % 5 == 0 else 200

    def write() -> None:
        for number in range(150):
            for name in ("a", "b"):
                host.append(lines(40, 40 * number), host.logs / f"{name}.log")
            time.sleep(0.01)
            if number % 40 == 39:
                (host.logs / "a.log").rename(host.logs / f"a.log.{number}")
        writing.set()

    with host.running() as tailer:
        writer, until_s = threading.Thread(target=write), time.monotonic() + 60
        writer.start()
        while not (
            writing.is_set()
            and all(one.acknowledged == 6000 * LINE for one in tailer.balances().values())
        ):
            seen.append(tailer.balances())
            assert time.monotonic() < until_s, seen[-1]
            time.sleep(0.01)
        writer.join()
    assert [
        balance.off_by for moment in seen for balance in moment.values() if balance.off_by
    ] == []
    for name in ("a", "b"):
        course = [moment[name].seen for moment in seen if name in moment]
        assert course == sorted(course) and len(set(course)) > 10, (
            "what was seen does not become less"
        )
    assert {
        name: (one.seen, one.acknowledged) for name, one in kept(host).items()
    } == dict.fromkeys(("a", "b"), (6000 * LINE, 6000 * LINE))


def test_a_checkpoint_of_a_version_without_books_begins_them_balanced(
    host: Host, recorder: Recorder
) -> None:
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda _: 503
    with host.running(lines(100)):
        recorder.wait_received(1)
    path = host.state / "checkpoint.sqlite"
    db = sqlite3.connect(path)
    db.execute("DROP TABLE totals")
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    db.commit()
    db.close()
    recorder.behaviour = lambda _: 200
    host.drain()
    balance = kept(host)["app"]
    assert (
        balance.off_by == 0
        and balance.pending == balance.in_flight == 0
        and balance.acknowledged >= 100 * LINE
    )


def test_a_byte_that_is_nowhere_puts_them_out_of_balance(host: Host) -> None:
    host.drain(lines(100))
    with host.tailer() as (tailer, checkpoint):
        checkpoint.commit([("UPDATE files SET offset = offset - 23", ())])
        assert tailer.balances()["app"].off_by == -LINE
        checkpoint.commit([books.count_skipped("app", -LINE)])
        assert tailer.balances()["app"].off_by == 0
