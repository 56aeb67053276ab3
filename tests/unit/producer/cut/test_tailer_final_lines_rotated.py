"""`--final-lines` where files are copied, truncated, allocated ahead, closed, deleted or renamed."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.config.groups import TailedSource
from hourmark_producer.send.file_shipper import FileShipper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def final(host: Host) -> Host:
    host.final_lines = True
    of_source(host)
    return host


def of_source(host: Host, flush_seconds: float = 0.2, **more: str) -> None:
    host.settings["sources"] = [
        TailedSource(
            name="app", paths=[f"{host.logs}/app.log*"], flush_seconds=flush_seconds, **more
        )
    ]


def bodies(recorder: Recorder) -> list[bytes]:
    return [one.body for one in recorder.received]


def pieces(recorder: Recorder) -> Counter[bytes]:
    return Counter(line for one in recorder.stored for line in one.body.splitlines(keepends=True))


def copytruncate(host: Host, name: str = "app.log.1") -> None:
    shutil.copy(host.app, host.logs / name)
    with host.app.open("r+b") as file:
        file.truncate(0)


def expect(recorder: Recorder, content: bytes) -> None:
    assert pieces(recorder) == Counter(content.splitlines(keepends=True))


def test_copytruncate_with_a_pending_half(final: Host, recorder: Recorder) -> None:
    final.final_lines = False
    final.drain(lines(20) + b"half")
    copytruncate(final)
    final.append(lines(5, 100) + b"tail")
    final.final_lines = True
    summary = final.drain()
    assert pieces(recorder) == Counter(
        [*(lines(20) + lines(5, 100)).splitlines(keepends=True), b"half", b"tail"]
    )
    assert summary.lost_bytes in (0, len(b"half")), "counted if the copy is examined first"


def test_copytruncate_after_the_final_line(final: Host, recorder: Recorder) -> None:
    final.drain(lines(20) + b"half")
    copytruncate(final)
    summary = final.drain(lines(5, 100) + b"tail")
    assert summary.lost_bytes == 0
    expect(recorder, b"") if False else None
    assert pieces(recorder) == Counter(
        [
            *lines(20).splitlines(keepends=True),
            *lines(5, 100).splitlines(keepends=True),
            b"half",
            b"tail",
        ]
    )


def test_a_copy_that_is_there_at_first(final: Host, recorder: Recorder) -> None:
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.append(b" more\n" + lines(3, 100) + b"tail")
    final.drain()
    assert pieces(recorder)[b"half"] == 0
    assert max(pieces(recorder).values()) == 1


def test_equal_copies_at_first(final: Host, recorder: Recorder) -> None:
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.drain()
    assert max(pieces(recorder).values()) == 1
    assert pieces(recorder)[b"half"] == 1


def test_nuls_behind_a_final_line(final: Host, recorder: Recorder) -> None:
    final.drain(lines(20) + b"half" + bytes(1000))
    assert pieces(recorder)[b"half"] == 1
    with final.app.open("r+b") as file:
        file.seek(len(lines(20)) + 4)
        file.write(b" more\n" + b"end")
    final.drain()
    assert pieces(recorder)[b" more\n"] == 1
    assert pieces(recorder)[b"end"] == 1


def test_only_nuls(final: Host, recorder: Recorder) -> None:
    summary = final.drain(bytes(1000))
    assert not recorder.received and summary.finished


def test_a_final_line_with_nuls_inside(final: Host, recorder: Recorder) -> None:
    final.drain(b"a\0\0b")
    assert bodies(recorder) == [b"a\0\0b"]


def test_more_files_than_descriptors(final: Host, recorder: Recorder) -> None:
    final.open_files_max = 2
    for n in range(12):
        final.append(lines(3, 100 * n) + b"half%d" % n, final.logs / f"app.log{n}")
    summary = final.drain()
    assert summary.pending_bytes == 0
    assert max(pieces(recorder).values()) == 1
    assert sum(pieces(recorder).values()) == 48


def test_deleted_while_it_waits(final: Host, recorder: Recorder) -> None:
    of_source(final, flush_seconds=1.0)
    final.append(lines(3) + b"half")
    stop = threading.Event()
    with final.tailer() as (tailer, _):
        timer = threading.Timer(0.4, final.app.unlink)
        timer.start()
        summary = tailer.run(stop, drain=True)
    assert summary.lost_bytes == 0
    assert pieces(recorder)[b"half"] == 1


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    steps = [0]
    one = FileShipper.step

    def step(self, file):  # type: ignore[no-untyped-def]
        steps[0] += 1
        return one(self, file)

    monkeypatch.setattr(FileShipper, "step", step)
    return steps


def test_steps_of_a_deleted_file(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hourmark_producer.files import waits

    monkeypatch.setattr(waits, "DELETED_LINGER_S", 0.2)
    of_source(host, record_start="^line")
    steps = count_steps(monkeypatch)
    with host.running(lines(5)) as tailer:
        recorder.wait_stored(2)
        host.app.unlink()
        until = time.monotonic() + 10
        while len(tailer.files) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        steps[0] = 0
        time.sleep(2)
        assert steps[0] < 10, steps


def test_steps_of_files_that_were_closed(
    final: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    final.open_files_max = 2
    of_source(final, flush_seconds=2.0)
    steps = count_steps(monkeypatch)
    for n in range(6):
        final.append(lines(3, 100 * n) + b"half%d" % n, final.logs / f"app.log{n}")
    final.drain()
    assert steps[0] < 2000, steps


def test_a_final_record_of_cri(final: Host, recorder: Recorder) -> None:
    of_source(final, format="cri")
    at = b"2026-11-01T00:00:00.000000000Z stdout "
    final.drain(at + b"F one\n" + at + b"P two\n" + at + b"F three")
    assert b"".join(bodies(recorder)) == final.app.read_bytes()
    assert bodies(recorder)[-1] == at + b"P two\n" + at + b"F three"


def test_a_final_record_over_the_limit(final: Host, recorder: Recorder) -> None:
    of_source(final, record_start="^START")
    final.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    content = b"START a\n" + b"x" * 1500 + b"\n" + b"y" * 1500 + b"\n" + b"z" * 1500
    final.drain(content)
    assert b"".join(bodies(recorder)) == content


def test_exactly_the_limit(final: Host, recorder: Recorder) -> None:
    final.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    for n, size in enumerate((2047, 2048, 2049, 4095, 4096, 4097)):
        final.append(bytes([65 + n]) * size, final.logs / f"app.log{n}")
    final.drain()
    assert Counter(b"".join(bodies(recorder))) == Counter(
        {65 + n: size for n, size in enumerate((2047, 2048, 2049, 4095, 4096, 4097))}
    )


def test_kill_and_truncate_with_a_final_range_in_flight(final: Host, recorder: Recorder) -> None:
    recorder.behaviour = lambda one: 503 if one.range.ending else 200
    final.append(lines(20) + b"half")
    with final.running():
        recorder.wait_stored(1)
        while not any(one.range.ending for one in list(recorder.received)):
            time.sleep(0.02)
    recorder.behaviour = lambda _: 200
    copytruncate(final)
    summary = final.drain(lines(2, 700) + b"end")
    assert pieces(recorder) == Counter(
        [
            *lines(20).splitlines(keepends=True),
            b"half",
            *lines(2, 700).splitlines(keepends=True),
            b"end",
        ]
    )
    assert (summary.lost_bytes, summary.pending_bytes) == (0, 0)


def test_a_final_line_in_a_file_of_another_name_by_rename(final: Host, recorder: Recorder) -> None:
    final.drain(lines(20) + b"half")
    final.app.rename(final.logs / "app.log.1")
    final.append(b" more\n", final.logs / "app.log.1")
    final.drain(b"x")
    assert pieces(recorder)[b" more\n"] == 1 and pieces(recorder)[b"x"] == 1
    assert max(pieces(recorder).values()) == 1


def test_a_copy_with_more_of_a_line_whose_beginning_was_final(
    final: Host, recorder: Recorder
) -> None:
    final.drain(lines(20) + b"half")
    final.append(b" mor")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.final_lines = False
    final.drain()
    final.append(b"e\n", final.logs / "app.log.1")
    final.drain(b"e\n")
    assert pieces(recorder)[b"half"] == 1
    assert not [body for body in bodies(recorder) if b"half mor" in body], "bytes sent twice"


def test_a_log_that_is_closed_for_others_and_has_a_half_at_last(
    final: Host, recorder: Recorder
) -> None:
    final.open_files_max = 1
    of_source(final, flush_seconds=1.0, record_start="^line")
    for n in range(5):
        final.append(lines(3, 100 * n) + b"  half%d" % n, final.logs / f"app.log{n}")
    summary = final.drain()
    assert (summary.pending_bytes, summary.lost_bytes) == (0, 0)
    assert max(pieces(recorder).values()) == 1 and sum(pieces(recorder).values()) == 20
