"""The journal is read from the cursor of the last line that is on disk: nothing twice, nothing left
out.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.journals import FakeJournal, entry, real_journal
from tests.support.syslog_senders import receives
from tests.support.tailer.host import Host
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.errors import ConfigError
from hourmark_producer.receive import journal as journal_module
from hourmark_producer.receive import spools
from hourmark_producer.receive.journal import JournalInput, entry_to_line, line_cursor
from hourmark_producer.receive.receiver import ReceivingLosses


@pytest.fixture
def journal(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJournal:
    """That of the host's source `app`."""
    made = FakeJournal(tmp_path / "journal")
    receives(host, "journald")
    monkeypatch.setattr(
        spools, "JournalInput", lambda read_from: JournalInput(read_from, made.program)
    )
    return made


def messages(recorder: Recorder) -> list[str]:
    """In the journal's order, whatever segments they are of."""
    return [
        fields["message"]
        for fields in sorted(
            map(json.loads, recorder.text().splitlines()), key=lambda said: said["time"]
        )
    ]


def numbered(start: int, end: int) -> list[str]:
    return [f"message {n}" for n in range(start, end)]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("plain", "plain"),
        ("two\nlines", "two\nlines"),
        ([255, 0, 114, 97, 119], "\\xff\x00raw"),
        (["first", "second"], "first\nsecond"),
        ([[255], "second"], "\\xff\nsecond"),
        (None, None),
    ],
)
def test_an_entry_is_one_line(message: Any, said: str | None) -> None:
    line = entry_to_line(json.dumps(entry(7, message)).encode())
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    fields = json.loads(line)
    assert fields.pop("message", None) == said
    assert fields == {
        "time": "2026-11-23T16:45:20.000007Z",
        "priority": 6,
        "pid": 812,
        "host": "web-1",
        "unit": "ssh.service",
        "identifier": "sshd",
        "cursor": line_cursor(line),
    }
    assert line_cursor(line).startswith("s=dff25")


@pytest.mark.parametrize("said", [b"no JSON", b"[]", b"{}", b'{"__CURSOR": "s=1"}'])
def test_what_is_no_entry_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError):
        entry_to_line(said)


@pytest.mark.slow
def test_the_journal_is_read_from_its_start_and_followed(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    journal.add(*numbered(0, 500))
    with host.running():
        wait_for(lambda: len(messages(recorder)) == 500, "what was there")
        journal.add(*numbered(500, 600))
        wait_for(lambda: len(messages(recorder)) == 600, "what came")
        wait_for(
            lambda: recorder.last.pending_bytes == 0 and recorder.last.caught_up_at_ms is not None,
            "it is caught up",
        )
    assert messages(recorder) == numbered(0, 600)
    assert not recorder.last.unrepeatable and recorder.last.unknown_losses == 0


def test_every_run_goes_on_behind_the_last_line_on_disk(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    folder, last = host.state / "spool" / "app", 0
    for count in (100, 150, 150, 300):
        journal.add(*numbered(last, count))
        last = count
        host.drain()
        assert messages(recorder) == numbered(0, count)
        assert not list(folder.glob("*.log")), (
            "all is acknowledged and removed, but the last line is known"
        )
    assert recorder.last.unknown_losses == recorder.last.lost_bytes == 0


def test_a_kill_before_lines_were_whole_or_acknowledged_doubles_none(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    folder = host.state / "spool" / "app"
    folder.mkdir(parents=True)
    journal.add(*numbered(0, 100))
    lines = [entry_to_line(line) for line in (journal.folder / "entries").read_bytes().splitlines()]
    (folder / "0000000004.log").write_bytes(b"".join(lines[:40]) + lines[40][:50])
    (folder / "open").touch()
    host.drain()
    assert messages(recorder) == numbered(0, 100)
    assert recorder.last.unknown_losses == 0, "it can be asked again"


@pytest.mark.slow
def test_a_journal_that_is_longer_than_the_spool_waits(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    receives(host, "journald", spool={"bytes_max": 1 << 16})
    recorder.behaviour = lambda _: 503
    journal.add(*numbered(0, 3000))
    with host.running() as tailer:
        wait_for(lambda: tailer.receivers.receivers["app"].is_paused, "it is full")
        wait_for(lambda: bool(recorder.reports), "a report")
        assert recorder.last.caught_up_at_ms is None
        recorder.behaviour = lambda _: 200
        wait_for(lambda: len(messages(recorder)) == 3000, "all of it")
    assert messages(recorder) == numbered(0, 3000)


@pytest.mark.slow
def test_a_program_that_ends_is_started_again_where_it_was(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    journal.add(*numbered(0, 10))
    with host.running() as tailer:
        wait_for(lambda: len(messages(recorder)) == 10, "what was there")
        journal.set_broken(True)
        wait_for(
            lambda: any(
                "it will be restarted" in t.message for t in tailer.take_snapshot().troubles
            ),
            "it is said",
        )
        journal.add(*numbered(10, 20))
        journal.set_broken(False)
        wait_for(lambda: len(messages(recorder)) == 20, "it goes on")
    assert messages(recorder) == numbered(0, 20)


@pytest.mark.slow
def test_nothing_is_claimed_before_the_journal_was_read_to_its_end(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    journal.set_slow(True)
    journal.add("written before any claim")
    with host.running():
        wait_for(lambda: len(recorder.reports) > 2, "some reports")
        assert recorder.last.caught_up_at_ms is None
        journal.set_slow(False)
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "it is caught up")
        assert messages(recorder) == ["written before any claim"]


@pytest.mark.slow
def test_nothing_is_claimed_while_the_journal_cannot_be_read(
    host: Host, journal: FakeJournal, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with host.running():
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it is caught up",
        )
        journal.set_broken(True)
        wait_for(lambda: "it will be restarted" in caplog.text, "it is noticed")
        broken_from = len(recorder.reports)
        wait_for(
            lambda: len(recorder.reports) > broken_from + 1, "what was reported meanwhile is there"
        )
        journal.add("unread")
        claimed, told = recorder.last.caught_up_at_ms, len(recorder.reports)
        wait_for(lambda: len(recorder.reports) > told + 3, "some reports")
        assert recorder.last.caught_up_at_ms == claimed
        journal.set_broken(False)
        wait_for(lambda: recorder.last.caught_up_at_ms != claimed, "it is caught up again")
        assert messages(recorder) == ["unread"]


def test_a_program_that_is_not_there_and_a_spool_of_others_stop_the_start(
    host: Host, journal: FakeJournal
) -> None:
    Path(journal.program).unlink()
    with pytest.raises(ConfigError, match="cannot be run"):
        host.drain()
    (host.state / "spool" / "app" / "0000000001.log").write_bytes(b"a line of syslog\n")
    with pytest.raises(ConfigError, match="give the journal's source a name of its own"):
        host.drain()


def test_reading_begins_where_it_was_first_said(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    """`end` is the end of the first look, also where nothing came until the second."""
    host.settings["sources"] = [TailedSource(name="app", input="journald", read_from="end")]
    journal.add(*numbered(0, 5))
    host.drain()
    since = (host.state / "spool" / "app" / "since").read_text()
    assert abs(float(since.removeprefix("@")) - time.time()) < 60
    host.drain()
    assert (journal.asked()[-1], recorder.text()) == (f"--since={since}", b""), (
        "the same as at first"
    )
    journal.add("new", realtime_s=time.time() + 1)
    host.drain()
    assert messages(recorder) == ["new"]
    journal.add("newer", realtime_s=time.time() + 2)
    host.drain()
    assert messages(recorder) == ["new", "newer"] and journal.asked()[-1].startswith("--cursor=")
    assert recorder.last.unknown_losses == recorder.last.lost_bytes == 0


def test_reading_begins_at_a_time(host: Host, journal: FakeJournal, recorder: Recorder) -> None:
    host.settings["sources"] = [
        TailedSource(name="app", input="journald", read_from="2026-11-23T16:45:20.5Z")
    ]
    journal.add(*numbered(0, 5))
    journal.add("later", realtime_s=1795452321)
    host.drain()
    assert messages(recorder) == ["later"]
    assert journal.asked()[0] == "--since=@1795452320.500"


def test_a_real_journal(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> None:
    said = [f"message {n}".encode() for n in range(2000)] + [b"\xff\x00raw", b"two\nlines"]
    program = real_journal(tmp_path / "journal", said)
    receives(host, "journald", spool={"bytes_max": 1 << 18})
    monkeypatch.setattr(spools, "JournalInput", lambda read_from: JournalInput(read_from, program))
    with host.running():
        wait_for(lambda: len(messages(recorder)) > 100, "some of it")
    host.drain()
    host.drain()
    assert messages(recorder) == [*numbered(0, 2000), "\\xff\x00raw", "two\nlines"]


def test_a_real_journal_from_a_time_on(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> None:
    program = real_journal(
        tmp_path / "journal", [f"message {n}".encode() for n in range(2000)]
    )  # one a microsecond
    host.settings["sources"] = [
        TailedSource(name="app", input="journald", read_from="2026-11-23T16:45:20.001Z")
    ]
    monkeypatch.setattr(spools, "JournalInput", lambda read_from: JournalInput(read_from, program))
    host.drain()
    assert messages(recorder) == numbered(1000, 2000)


@pytest.mark.parametrize("priority", ["²", "9" * 5000, "", "-1", "7 "])
def test_a_priority_that_is_no_number_does_not_hold_the_journal_up(priority: str) -> None:
    """Any local user can send one: `printf 'PRIORITY=²\\nMESSAGE=x\\n' | logger --journald`."""
    line = entry_to_line(json.dumps({**entry(7, "x"), "PRIORITY": priority}).encode())
    assert "priority" not in json.loads(line) and json.loads(line)["message"] == "x"


def test_entries_behind_one_that_was_vacuumed_are_all_read_and_loss_is_unknown(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    journal.add(*numbered(0, 10))
    host.drain()
    journal.add(*numbered(10, 20))
    journal.vacuum(left=5)
    host.drain()
    assert messages(recorder) == [*numbered(0, 10), *numbered(15, 20)]
    assert recorder.last.unknown_losses == 1
    journal.add(*numbered(20, 25))
    host.drain()
    assert messages(recorder) == [*numbered(0, 10), *numbered(15, 25)]
    assert recorder.last.unknown_losses == 1, "it is reported once"


@pytest.mark.slow
def test_nothing_is_received_behind_a_loss_that_cannot_be_written_down(
    host: Host, journal: FakeJournal, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run after a kill would go on behind the lines, and not see that entries before them are
    gone.
    """
    journal.add(*numbered(0, 10))
    host.drain()
    journal.add(*numbered(10, 20))
    journal.vacuum(left=5)
    tell, is_full = ReceivingLosses.commit, True

    def tell_if_there_is_room(losses: ReceivingLosses, *, at_once: bool = False) -> bool:
        return not (is_full and losses._pending) and tell(losses, at_once=at_once)

    monkeypatch.setattr(ReceivingLosses, "commit", tell_if_there_is_room)
    with host.running() as tailer:
        wait_for(lambda: tailer.receivers.receivers["app"].is_paused, "it waits")
        assert len(messages(recorder)) == 10
        is_full = False
        wait_for(lambda: len(messages(recorder)) == 15, "it goes on")
        assert not tailer.receivers.receivers["app"].is_paused
        wait_for(lambda: recorder.last.unknown_losses == 1, "it is reported")


@pytest.mark.slow
@pytest.mark.parametrize("earlier_s", [-3600, 3600])
def test_a_journal_that_was_made_again_is_read_whatever_its_clock(
    host: Host, journal: FakeJournal, recorder: Recorder, earlier_s: int
) -> None:
    journal.add(*numbered(0, 10))
    host.drain()
    journal.make_again()
    journal.add(*numbered(10, 20), realtime_s=1795452320 + earlier_s)
    host.drain()
    host.drain()
    assert sorted(messages(recorder)) == sorted(numbered(0, 20)), "each once"
    assert recorder.last.unknown_losses == 1


@pytest.mark.slow
def test_a_journal_that_was_made_again_and_is_empty_yet_is_followed(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    journal.add(*numbered(0, 10))
    host.drain()
    journal.make_again()
    recorder.reports.clear()
    with host.running():
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it is caught up",
            30,
        )
        assert recorder.last.unknown_losses == 1
        journal.add(*numbered(10, 20))
        wait_for(lambda: len(messages(recorder)) == 20, "what came")
    assert messages(recorder) == numbered(0, 20)


def test_sequences_that_were_read_are_not_read_again_where_the_last_entry_is_gone(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    journal.add(*numbered(0, 10))
    first = (journal.folder / "entries").read_text()
    journal.make_again()
    journal.add(*numbered(10, 20))
    second = (journal.folder / "entries").read_text()
    (journal.folder / "entries").write_text(first + second)
    host.drain()
    (journal.folder / "entries").write_text(first)
    journal.begin_a_sequence()
    journal.add(*numbered(20, 25))
    host.drain()
    assert sorted(messages(recorder)) == sorted(numbered(0, 25)), "each once"
    assert recorder.last.unknown_losses == 1


def test_entries_that_could_not_be_written_before_a_stop_are_read_again_and_not_lost(
    host: Host, journal: FakeJournal, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a run know an entry of a new sequence before its line is on disk."""
    write = os.write

    def without_room(descriptor: int, content: bytes) -> int:
        if content.startswith(b'{"time"'):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content)

    journal.add(*numbered(0, 10))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", without_room)
        with host.running():
            folder = host.state / "spool" / "app"
            wait_for(lambda: any(folder.glob("*.log")), "it tries to write")
            time.sleep(0.3)
    host.drain()
    assert messages(recorder) == numbered(0, 10)
    assert recorder.last.unknown_losses == recorder.last.lost_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 100])
def test_entries_that_are_vacuumed_while_the_spool_is_full_are_an_unknown_loss(
    host: Host, journal: FakeJournal, recorder: Recorder, left: int
) -> None:
    """journalctl stands still then, and goes on with what is left: perhaps nothing."""
    receives(host, "journald", spool={"bytes_max": 1 << 16})
    journal.add(*numbered(0, 10))
    with host.running() as tailer:
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it follows",
        )
        recorder.behaviour = lambda _: 503
        journal.add(*numbered(10, 3000))
        wait_for(lambda: tailer.receivers.receivers["app"].is_paused, "it is full")
        journal.rotate()
        journal.add(*numbered(3000, 4000))
        vacuumed_at_ms = time.time_ns() // 1_000_000
        journal.vacuum(left=left)
        recorder.behaviour = lambda _: 200
        wait_for(
            lambda: (recorder.last.caught_up_at_ms or 0) > vacuumed_at_ms,
            "it is caught up again",
            30,
        )
        assert recorder.last.unknown_losses == 1
        wait_for(lambda: len(messages(recorder)) == 3000 + left, "what was to be had")
    assert messages(recorder) == [*numbered(0, 3000), *numbered(4000 - left, 4000)]
    assert recorder.last.unknown_losses == 1, "it is reported once"


@pytest.mark.slow
def test_entries_that_are_vacuumed_while_it_cannot_read_are_an_unknown_loss(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    """As where its process is frozen: the spool is not full."""
    journal.add(*numbered(0, 10))
    with host.running() as tailer:
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it follows",
        )
        process = tailer.receivers.receivers["app"].input._process  # type: ignore[attr-defined]
        process.send_signal(signal.SIGSTOP)
        try:
            journal.rotate()
            journal.add(*numbered(10, 20))
            journal.vacuum(left=5)
        finally:
            process.send_signal(signal.SIGCONT)
        wait_for(lambda: len(messages(recorder)) >= 15, "what is left")
        wait_for(lambda: recorder.last.unknown_losses == 1, "it is reported", 20)


def test_numbers_that_the_reader_may_not_see_are_no_loss(
    host: Host, journal: FakeJournal, recorder: Recorder
) -> None:
    """The entries of other users are numbered with those that it sees."""
    journal.add(*numbered(0, 10))
    entries = (journal.folder / "entries").read_text().splitlines(keepends=True)
    (journal.folder / "entries").write_text("".join(entries[::2]))
    host.drain()
    assert messages(recorder) == numbered(0, 10)[::2]
    assert recorder.last.unknown_losses == 0


@pytest.mark.slow
def test_a_journal_that_is_made_again_before_it_is_followed_does_not_hold_claims(
    host: Host, journal: FakeJournal, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry behind which it is followed never comes, nor does another one."""
    journal.add(*numbered(0, 10))
    start, made_again = JournalInput._start, list[bool]()

    def start_after_it_is_made_again(reader: JournalInput, *, follow: bool) -> None:
        if follow and not made_again:
            made_again.append(True)
            journal.make_again()
        start(reader, follow=follow)

    monkeypatch.setattr(JournalInput, "_start", start_after_it_is_made_again)
    with host.running():
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it is caught up",
            30,
        )
        assert recorder.last.unknown_losses == 1
    assert messages(recorder) == numbered(0, 10)


def test_an_entry_that_is_too_long_is_passed_over_and_counted(
    host: Host, journal: FakeJournal, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ENTRY_BYTES_MAX", 300_000)
    journal.add("before", "x" * 1_000_000, "after")
    host.drain()
    assert messages(recorder) == ["before", "after"]
    assert 1_000_000 < recorder.last.lost_bytes < 1_001_000
