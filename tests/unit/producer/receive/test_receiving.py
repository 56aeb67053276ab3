"""What is received over TCP and from standard input is on disk first, then followed, then
removed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.syslog_senders import address, connect, counted, receives
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.errors import ConfigError
from hourmark.process.file_identity import identify
from hourmark_producer.receive import spools
from hourmark_producer.receive.standard_input import StandardInput

TCP = "syslog+tcp://127.0.0.1:0"


@pytest.fixture(autouse=True)
def small(host: Host) -> None:
    receives(host, TCP, spool={"bytes_max": 1 << 16})


def spooled(host: Host) -> list[Path]:
    return sorted((host.state / "spool" / "app").glob("*.log"))


@pytest.mark.parametrize("framed", [counted, bytes], ids=["counted", "lines"])
def test_messages_over_tcp_are_delivered_as_lines_and_segments_removed(
    host: Host, recorder: Recorder, framed: object
) -> None:
    sent = lines(20_000)
    with host.running() as tailer:
        with connect(tailer) as sender:
            sender.sendall(framed(sent))  # type: ignore[operator]
        recorder.wait_text(sent)
        wait_for(lambda: len(spooled(host)) <= 1, "acknowledged segments are removed")
    assert sorted(recorder.text().splitlines()) == sent.splitlines()
    assert recorder.last.lost_bytes == recorder.last.unknown_losses == 0
    assert not (host.state / "spool" / "app" / "open").exists(), (
        "a stop in order leaves nothing in doubt"
    )


def test_without_birth_times_the_next_segment_on_an_inode_is_its_next_generation(
    host: Host, recorder: Recorder
) -> None:
    """Segments may begin alike, so that not even the head tells them apart."""
    host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=0)
    beat = b"<13>heartbeat ok, and nothing else to say, again and again and again\n"
    for run in range(1, 4):
        with host.running() as tailer, connect(tailer) as sender:
            sender.sendall(beat * 100)
            recorder.wait_text(beat * 100 * run)
        host.drain()
        assert not spooled(host)
        with host.tailer() as (_, checkpoint):
            known = [
                (file.place.missing, file.progress.position.offset) for file in checkpoint.files()
            ]
            generations = [file.progress.position.generation for file in checkpoint.files()]
        assert set(known) == {(True, 0)} and sum(generations) == run, "each that is gone counts"
    assert recorder.last.lost_bytes == recorder.last.unknown_losses == 0


def test_senders_wait_while_the_spool_is_full_and_go_on_when_there_is_room(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: 503
    sent = lines(40_000)
    with host.running() as tailer, connect(tailer) as sender:
        thread = threading.Thread(target=sender.sendall, args=(sent,))
        thread.start()
        wait_for(lambda: tailer.receivers.receivers["app"].is_paused, "it is full")
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.pending_bytes > 1 << 16,
            "it is reported",
        )
        claimed = recorder.last.caught_up_at_ms
        assert thread.is_alive() and sum(path.stat().st_size for path in spooled(host)) < 1 << 18
        recorder.behaviour = lambda _: 200
        recorder.wait_text(sent)
        thread.join()
        wait_for(lambda: (recorder.last.caught_up_at_ms or 0) > (claimed or 0), "it is caught up")
    assert recorder.last.lost_bytes == recorder.last.unknown_losses == 0


def test_a_source_is_not_caught_up_while_what_has_arrived_is_not_on_disk(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: 503
    with host.running() as tailer, connect(tailer) as sender:
        receiver = tailer.receivers.receivers["app"]
        assert receiver.wait_until_written(10)
        thread = threading.Thread(target=sender.sendall, args=(lines(20_000),))
        thread.start()
        wait_for(lambda: receiver.is_paused, "it is full")
        assert not receiver.wait_until_written(0)
        recorder.behaviour = lambda _: 200
        thread.join()
        wait_for(lambda: receiver.wait_until_written(10), "it has room, and all is read")


def test_a_stream_that_is_no_syslog_is_closed_and_others_go_on(
    host: Host, recorder: Recorder
) -> None:
    with host.running() as tailer, connect(tailer) as broken, connect(tailer) as whole:
        broken.sendall(b"2026-11-23 a line that begins with a digit\n")
        assert broken.recv(1) == b"", "it is closed"
        whole.sendall(lines(3))
        recorder.wait_text(lines(3))
        wait_for(lambda: bool(recorder.reports) and recorder.last.unknown_losses == 1, "it is said")


def test_connections_beyond_the_limit_are_refused(host: Host, recorder: Recorder) -> None:
    host.settings["syslog"] = {"connections_max": 1}
    with host.running() as tailer, connect(tailer) as first, connect(tailer) as second:
        assert second.recv(1) == b""
        first.sendall(lines(3))
        recorder.wait_text(lines(3))


def test_a_connection_that_says_nothing_is_closed(host: Host) -> None:
    host.settings["syslog"] = {"idle_seconds": 0.1}
    with host.running() as tailer, connect(tailer) as idle:
        assert idle.recv(1) == b""


def test_a_message_that_is_too_long_is_a_loss_of_known_size(host: Host, recorder: Recorder) -> None:
    host.settings["syslog"] = {"message_bytes_max": 480}
    with host.running() as tailer, connect(tailer) as sender:
        sender.sendall(lines(1) + b"<13>" + b"x" * 1000 + b"\n" + lines(1, 1))
        recorder.wait_text(lines(2))
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.lost_bytes == 1004, "it is counted"
        )
    assert host.drain().lost_bytes == 1004, "it is durable"


def test_a_stop_reads_what_has_arrived_and_delivers_it_with_the_next_start(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda _: 503
    with host.running() as tailer, connect(tailer) as sender:
        sender.sendall(lines(500))
        wait_for(lambda: bool(spooled(host)), "it is accepted")
    recorder.behaviour = lambda _: 200
    summary = host.drain()
    assert recorder.text() == lines(500) and summary.unknown_losses == 0 and not spooled(host)


def test_a_run_after_a_kill_says_that_what_was_received_may_be_lost(
    host: Host, recorder: Recorder
) -> None:
    folder = host.state / "spool" / "app"
    folder.mkdir(parents=True)
    (folder / "open").touch()
    with host.running():
        wait_for(lambda: bool(recorder.reports) and recorder.last.unknown_losses == 1, "it is said")
    with host.running():
        wait_for(lambda: recorder.reports[-1].sequence > 1, "another run")
    assert recorder.last.unknown_losses == 1, "said once"


def test_a_drain_after_a_kill_says_so_too_and_once(host: Host, recorder: Recorder) -> None:
    folder = host.state / "spool" / "app"
    folder.mkdir(parents=True)
    (folder / "open").touch()
    for _ in range(2):
        assert host.drain().unknown_losses == recorder.last.unknown_losses == 1
    with host.running():
        wait_for(lambda: not recorder.reports[-1].goodbye, "another run")
    assert recorder.last.unknown_losses == 1, "said once"


def test_an_address_that_is_taken_stops_the_start(host: Host) -> None:
    with host.running() as tailer:
        host_name, port = address(tailer)
        folder = host.logs / "other"
        folder.mkdir()
        other = Host(folder, "http://127.0.0.1:1")
        receives(other, f"syslog+tcp://{host_name}:{port}")
        with (
            pytest.raises(ConfigError, match=f"cannot listen on .* port {port}"),
            other.running(),
        ):
            pass


@contextlib.contextmanager
def standard_input(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The writing end of a pipe that stands for standard input."""
    reading, writing = os.pipe()
    receives(host, "stdin")
    monkeypatch.setattr(spools, "StandardInput", lambda limit: StandardInput(limit, reading))
    try:
        yield writing
    finally:
        os.close(reading)


def test_the_tailer_ends_when_standard_input_does_and_all_is_acknowledged(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standard_input(host, monkeypatch) as writing, host.tailer() as (tailer, _):
        ending = threading.Thread(target=tailer.run, args=(threading.Event(),))
        ending.start()
        os.write(writing, lines(100) + b"the last has no end")
        recorder.wait_text(lines(100))
        assert ending.is_alive()
        os.close(writing)
        ending.join(20)
        assert not ending.is_alive()
    assert recorder.text() == lines(100) + b"the last has no end\n"
    assert not recorder.reports[-1].goodbye and not spooled(host)


def test_a_drain_reads_standard_input_to_its_end(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standard_input(host, monkeypatch) as writing:
        os.write(writing, lines(100))
        threading.Timer(0.1, os.close, (writing,)).start()
        assert host.drain().goodbye
    assert recorder.text() == lines(100)


def test_reports_say_that_nobody_can_be_asked_again_also_to_services_of_before(
    host: Host, recorder: Recorder
) -> None:
    recorder.refuses_unknown = True
    with host.running():
        wait_for(lambda: bool(recorder.reports), "a report without it")
        assert not recorder.last.unrepeatable
        recorder.refuses_unknown = False
        wait_for(lambda: recorder.last.unrepeatable, "it is said")


def test_books_balance_for_what_is_received(host: Host, recorder: Recorder) -> None:
    with host.running() as tailer, connect(tailer) as sender:
        sender.sendall(lines(5_000))
        recorder.wait_text(lines(5_000))
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is acknowledged")
        wait_for(
            lambda: tailer.balances()["app"].acknowledged == len(lines(5_000)), "it is in the books"
        )
        assert tailer.balances()["app"].off_by == 0
