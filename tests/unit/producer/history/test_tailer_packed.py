"""Rotation that packs: the rest of a file that was packed while nobody held it open is found by
content, and finished.
"""

from __future__ import annotations

import bz2
import gzip
import logging
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource

FORMS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.PACKING_S", 0.3)


def narrow(host: Host) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[str(host.app)])]


def pack(host: Host, name: str = "app.log.1.gz", path: Path | None = None) -> Path:
    """As gzip does, of the file and in place of it."""
    packed, plain = host.logs / name, path or host.app
    packed.write_bytes(FORMS[name.rpartition(".")[2]](plain.read_bytes()))
    plain.unlink()
    return packed


def one_content(recorder: Recorder) -> bytes:
    """All there is is one generation of one file."""
    ((key, content),) = recorder.contents().items()
    assert key[1] == 0
    return content


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("narrowly", [False, True])
def test_the_rest_of_a_file_packed_while_the_agent_was_down(
    host: Host, recorder: Recorder, form: str, narrowly: bool
) -> None:
    if narrowly:
        narrow(host)
    host.drain(lines(100))
    host.append(lines(5000, 100))
    pack(host, f"app.log.1.{form}")
    summary = host.drain()
    assert one_content(recorder) == lines(5100), (
        "the ranges of the same file, as if it was still there"
    )
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)
    assert host.drain().files == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "app.log.2.gz",
        "app.log-20261123.gz",
        "app-20261123.log.gz",
        "app.log.gz",
        "app.log-1795424400.zst",
        "app.1.log.xz",
    ],
)
def test_under_any_name_that_rotation_gives(host: Host, recorder: Recorder, name: str) -> None:
    host.drain(lines(100))
    host.append(lines(10, 100))
    pack(host, name)
    host.drain()
    assert one_content(recorder) == lines(110)


def test_several_rotations_while_the_agent_was_down(host: Host, recorder: Recorder) -> None:
    """Of two files that were followed, each rest is found; what nobody ever saw stays unseen."""
    host.drain(lines(100))
    older = host.app.rename(host.logs / "app.log.1")
    host.drain(lines(50, 1000))
    host.append(lines(7, 100), older)
    host.append(lines(7, 1050))
    pack(host, "app.log.3.gz", older)
    pack(host, "app.log.2.gz")
    host.append(lines(3, 5000))
    summary = host.drain()
    assert recorder.files() == sorted([lines(107), lines(57, 1000), lines(3, 5000)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_a_file_that_was_read_to_its_end_leaves_nothing_unknown_once_packed(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    pack(host)
    summary = host.drain()
    assert recorder.text() == lines(100)
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_a_file_that_was_seen_and_not_read_at_all(host: Host, recorder: Recorder) -> None:
    recorder.report_status = 503
    with host.running(lines(100)) as tailer:
        wait_for(lambda: tailer.scanner.scans > 3, "it is seen")
    recorder.report_status = 200
    pack(host)
    assert host.drain().lost_bytes == 0
    assert one_content(recorder) == lines(100)


def test_a_file_that_was_read_to_its_end_before_the_look_that_found_it_was_over(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr("hourmark_producer.watch.scanner.save_changed_accounts", lambda *_: None)
        host.drain(lines(100))
    host.append(lines(10, 100))
    pack(host)
    assert host.drain().unknown_losses == 0
    assert one_content(recorder) == lines(110)


def test_what_was_on_its_way_arrives_before_the_rest(host: Host, recorder: Recorder) -> None:
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda _: 503
    with host.running(lines(1000)):
        recorder.wait_received(1)
    recorder.behaviour = lambda _: 200
    pack(host)
    host.drain()
    assert one_content(recorder) == lines(1000)


def test_an_unterminated_end_is_lost_and_counted(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    host.append(lines(1, 100) + b"half")
    pack(host)
    summary = host.drain()
    assert one_content(recorder) == lines(101)
    assert (summary.lost_bytes, summary.unknown_losses) == (4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_one_still_being_written_is_waited_for_and_holds_the_claim_back(
    host: Host, recorder: Recorder, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a loaded machine, eight scans take longer than the 0.3 s of the other tests
    monkeypatch.setattr("hourmark_producer.files.waits.PACKING_S", 600.0)
    host.drain(lines(100))
    host.append(lines(20_000, 100))
    packed = pack(host, f"app.log.1.{form}")
    content = packed.read_bytes()
    packed.write_bytes(content[: len(content) // 2])
    recorder.reports.clear()
    with host.running() as tailer:
        scans = tailer.scanner.scans
        wait_for(lambda: tailer.scanner.scans > scans + 8, "it is seen")
        assert all(
            source.caught_up_at_ms is None
            for report in recorder.reports
            for source in report.sources
        )
        with packed.open("ab") as file:
            file.write(content[len(content) // 2 :])
        recorder.wait_text(lines(20_100))
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "caught up")
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_one_cut_off_for_good_gives_what_it_has_and_the_rest_is_unknown(
    host: Host, recorder: Recorder, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    host.drain(lines(100))
    host.append(lines(100_000, 100))
    packed = pack(host, f"app.log.1.{form}")
    os.truncate(packed, packed.stat().st_size - 9)
    with caplog.at_level(logging.WARNING):
        summary = host.drain()
    assert summary.unknown_losses == 1
    assert lines(100_100).startswith(one_content(recorder))
    assert str(packed) in caplog.text and "ends before its end" in caplog.text


@pytest.mark.parametrize("form", FORMS)
def test_flipped_bytes_never_become_lines(host: Host, recorder: Recorder, form: str) -> None:
    host.drain(lines(100))
    host.append(lines(3000, 100))
    packed = pack(host, f"app.log.1.{form}")
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 0x55
    packed.write_bytes(content)
    summary = host.drain()
    assert one_content(recorder) == lines(100)
    assert summary.unknown_losses == 1


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_bomb_ends_in_time_and_memory_and_is_unknown(
    host: Host, recorder: Recorder, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.compressed._FREE_BYTES", 1 << 20)
    monkeypatch.setattr("hourmark_producer.files.compressed.RATIO_MAX", 100)
    host.drain(lines(100))
    packed = host.logs / f"app.log.1.{form}"
    packed.write_bytes(FORMS[form](lines(100) + bytes(64 << 20)))
    host.app.unlink()
    assert host.drain().unknown_losses == 1
    assert one_content(recorder) == lines(100)


def test_packed_files_of_other_content_are_no_rest(host: Host, recorder: Recorder) -> None:
    """They are read as files of their own, but for one that may be the beginning of what was
    read.
    """
    host.drain(lines(100))
    others = [lines(100, 7), lines(99) + lines(50, 500)]
    for number, content in enumerate([lines(90), *others, b"", b"half a li"]):
        (host.logs / f"app.log.{number}.gz").write_bytes(gzip.compress(content))
    host.app.unlink()
    summary = host.drain()
    assert (summary.lost_bytes, summary.unknown_losses) == (len(b"half a li"), 1)
    assert recorder.files() == sorted([lines(100), *others])


def test_a_small_file_is_told_where_there_is_but_one(host: Host, recorder: Recorder) -> None:
    host.drain(lines(1))
    host.append(lines(100, 1))
    pack(host)
    assert host.drain().unknown_losses == 0
    assert one_content(recorder) == lines(101)


def test_where_several_begin_alike_little_tells_nothing(host: Host, recorder: Recorder) -> None:
    host.drain(b"=== started ===\n")
    for number in range(2):
        (host.logs / f"app.log.{number}.gz").write_bytes(
            gzip.compress(b"=== started ===\n" + lines(10, number * 10))
        )
    host.app.unlink()
    assert host.drain().unknown_losses == 2, (
        "one of them is the file's, perhaps, and the other is not"
    )
    assert one_content(recorder) == b"=== started ===\n"


def test_two_files_never_take_their_rest_from_one(host: Host, recorder: Recorder) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/*.log*"])]
    host.append(lines(100), host.logs / "other.log")
    host.once(lines(100))
    (host.logs / "other.log").unlink()
    host.append(lines(100, 100))
    pack(host)
    summary = host.drain()
    assert len(recorder.text()) == len(lines(300))
    assert summary.unknown_losses == 1


@pytest.mark.slow
def test_killed_while_the_rest_is_read(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    host.append(lines(5000, 100))
    host.settings["range_bytes"] = 1024
    pack(host)
    recorder.behaviour = lambda one: 503 if one.number > 20 else 200
    with host.running():
        recorder.wait_received(23)
    recorder.behaviour = lambda _: 200
    summary = host.drain()
    assert one_content(recorder) == lines(5100)
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_many_packed_at_once(host: Host, recorder: Recorder) -> None:
    for number in range(20):
        host.append(lines(100, number * 1000), host.logs / f"app.log.{number}")
    host.drain()
    for number in range(20):
        host.append(lines(10, number * 1000 + 100), host.logs / f"app.log.{number}")
        pack(host, f"app.log.{number + 1}.gz", host.logs / f"app.log.{number}")
    assert host.drain().unknown_losses == 0
    assert recorder.files() == sorted(lines(110, number * 1000) for number in range(20))


def test_over_long_lines_of_a_rest(host: Host, recorder: Recorder) -> None:
    host.settings |= {"range_bytes": 1024, "line_bytes_max": 4096}
    host.drain(lines(100))
    more = b"x" * 20_000 + b"\n" + lines(10, 100)
    host.append(more)
    pack(host)
    host.drain()
    assert one_content(recorder) == lines(100) + more


def test_without_birth_times_the_successor_has_the_next_generation(
    host: Host, recorder: Recorder
) -> None:
    from hourmark.process.file_identity import identify

    host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=0)
    host.drain(lines(100))
    host.append(lines(10, 100))
    pack(host)
    assert host.drain().unknown_losses == 0
    assert one_content(recorder) == lines(110)


@pytest.mark.parametrize("read_on", [0, 50])
def test_a_copy_that_is_packed_before_it_was_looked_into_is_not_sent_again(
    host: Host,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    read_on: int,
) -> None:
    """It waited to be looked into when the tailer was stopped."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 60.0)
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/app.log*"])]
    host.drain(lines(100))
    copy = host.logs / "app.log.1"
    copy.write_bytes(lines(100))
    with host.running(lines(read_on, 100)):
        recorder.wait_text(lines(100 + read_on))
        wait_for(lambda: f"{copy} is followed" in caplog.text, "the copy is seen")
    pack(host, path=copy)
    host.append(lines(10, 5000))
    summary = host.drain()
    assert sorted(recorder.contents().values()) == [lines(100 + read_on) + lines(10, 5000)]
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)
