"""The service misbehaves; nothing is lost, altered or held up for ever."""

from __future__ import annotations

import random
import sqlite3
import threading

import pytest
import zstandard
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed, add_loss
from hourmark_producer.counters import Loss, Losses
from hourmark_producer.send.client import DeliveryServiceClient, NoServiceAvailable, RequestRefused
from hourmark_producer.send.senders import retry_delay_s


def test_a_lost_ack_makes_the_same_range_again(host: Host, recorder: Recorder) -> None:
    recorder.behaviour = lambda one: "drop" if one.number in (0, 1, 3) else 200
    host.drain(lines(30_000))
    assert recorder.text() == lines(30_000)
    assert len(recorder.received) > len(recorder.contents())


def test_a_range_carries_a_checksum_so_that_no_flipped_bit_is_taken(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    assert all(
        zstandard.get_frame_parameters(one.compressed).has_checksum for one in recorder.received
    )
    assert recorder.received


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_busy_answers_are_retried_with_the_same_range(
    host: Host, recorder: Recorder, status: int
) -> None:
    recorder.behaviour = lambda one: status if one.number < 3 else 200
    host.drain(lines(10))
    assert [one.compressed for one in recorder.received] == [recorder.received[0].compressed] * 4
    assert recorder.text() == lines(10)


def test_rules_that_change_before_a_retry_do_not_change_the_range(
    host: Host, recorder: Recorder
) -> None:
    def change(one: object) -> int:
        recorder.rules = "rules-2"
        return 503 if len(recorder.received) == 1 else 200

    recorder.behaviour = change
    host.drain(lines(1))
    assert [one.range.rules for one in recorder.received] == ["rules-1", "rules-1"]
    host.drain(lines(1, 1))
    assert recorder.received[-1].range.rules == "rules-2"


def test_a_permanent_refusal_of_one_file_does_not_hold_up_others_and_loses_nothing(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    allow = threading.Event()
    recorder.behaviour = lambda one: 413 if b"bad" in one.body and not allow.is_set() else 200
    for n in range(20):  # more than there are sender threads
        host.append(b"bad %d\n" % n, host.logs / f"app.log.bad{n}")
    with host.running():
        recorder.wait_received(20)
        host.append(lines(10))
        recorder.wait_stored(1)
        assert recorder.last.caught_up_at_ms is None
        allow.set()
        recorder.wait_stored(21)
    assert (
        "responded with status 413" in caplog.text
        and "app.log.bad" in caplog.text
        and recorder.url in caplog.text
    )
    assert len(recorder.contents()) == 21


def test_an_ack_of_another_end_is_no_ack(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.acknowledged_end = lambda one: one.range.end - (one.number == 0)
    host.drain(lines(1))
    assert len(recorder.received) == 2
    assert "acknowledged up to byte" in caplog.text


def test_the_next_address_is_tried_in_turn(host: Host, recorder: Recorder) -> None:
    with recording() as dead:
        pass
    host.settings["service_urls"] = [dead.url, recorder.url]
    host.drain(lines(10))
    assert recorder.text() == lines(10)


def test_no_service_for_a_while(host: Host) -> None:
    with recording() as gone:
        port = int(gone.url.rsplit(":", 1)[1])
    host.settings["service_urls"] = [gone.url]
    host.append(lines(10))
    back = Recorder()
    with host.running() as tailer:
        wait_for(lambda: len(tailer.files) == 1, "the file was found")
        with recording(back, port):
            back.wait_stored(1)
        host.append(lines(10, 10))
        with recording(back, port):
            back.wait_stored(2)
    assert back.text() == lines(20)


def test_no_rules_yet(host: Host, recorder: Recorder) -> None:
    recorder.rules = ""
    with host.running(lines(10)):
        wait_for(lambda: len(recorder.reports) > 3, "reports go on")
        assert not recorder.received
        recorder.rules = "rules-1"
        recorder.wait_stored(1)


def test_a_checkpoint_that_cannot_be_written_stops_the_send(
    host: Host,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = threading.Event()
    write = Checkpoint._write
    stored_when_full: list[int] = []

    def failing(self: Checkpoint, batch: list) -> None:  # type: ignore[type-arg]
        if not full.is_set():
            write(self, batch)
            return
        for ticket in batch:
            ticket.error, ticket.done = sqlite3.OperationalError("database or disk is full"), True

    monkeypatch.setattr(Checkpoint, "_write", failing)
    with host.running(lines(10)):
        recorder.wait_stored(1)
        full.set()
        stored_when_full.append(len(recorder.received))
        host.append(lines(10, 10))
        wait_for(lambda: "disk is full" in caplog.text, "it says so")
        host.append(lines(10, 500), host.logs / "app.log.new")
        wait_for(lambda: caplog.text.count("disk is full") >= 2, "it says so of the new file too")
        assert len(recorder.received) == stored_when_full[0], "nothing is sent that is not durable"
        full.clear()
        wait_for(
            lambda: len(recorder.contents()) == 2 and len(recorder.text()) == len(lines(30)),
            "all, once there is room",
        )
    assert recorder.files() == sorted([lines(20), lines(10, 500)])


def test_a_full_database_changes_nothing_and_says_so(host: Host) -> None:
    too_large = ("INSERT INTO ranges VALUES (1, 'f', '', zeroblob(?))", (1_000_000,))
    one = Loss(source="app", path="/app.log", at_ms=1, bytes=1, unknown=0, what="it was truncated")

    with host.tailer() as (_, checkpoint):
        checkpoint._db.execute("PRAGMA max_page_count = 10")
        with pytest.raises(CheckpointFailed, match="full"):
            checkpoint.commit([*add_loss(one), too_large])
        assert checkpoint.losses() == {}
        checkpoint.commit(add_loss(one))
        assert checkpoint.losses() == {"app": Losses(1, 0)}


def test_pauses_grow_to_the_maximum_and_honour_retry_after() -> None:
    rng = random.Random(7)

    def pause(error: Exception, failures: int) -> float:
        return retry_delay_s(error, failures=failures, max_s=10.0, rng=rng)

    assert 0.05 <= pause(NoServiceAvailable(""), 1) <= 0.1
    assert all(5.0 <= pause(NoServiceAvailable(""), n) <= 10.0 for n in range(8, 2000, 100))
    assert pause(NoServiceAvailable("", retry_after_s=30.0), 1) == 30.0
    assert pause(RequestRefused(""), 1) == 10.0


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="service_urls"):
        DeliveryServiceClient(TailerConfig(service_urls=["127.0.0.1:8780"]), SystemClock())


def test_a_service_that_knows_no_unknown_losses_is_told_the_rest(
    host: Host, recorder: Recorder
) -> None:
    """A tailer may be upgraded before its services: they must not refuse all that it says."""
    recorder.refuses_unknown = True
    with host.running(lines(10)):
        recorder.wait_text(lines(10))
        host.app.write_bytes(lines(3, 10))
        recorder.wait_text(lines(13))
        said = len(recorder.reports)
        wait_for(lambda: len(recorder.reports) > said + 2, "reports are taken")
        assert recorder.last.unknown_losses == 0
        recorder.refuses_unknown = False
        wait_for(lambda: recorder.last.unknown_losses == 1, "it is told once the service knows it")
