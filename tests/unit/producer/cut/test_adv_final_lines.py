"""Adversary: final lines against copies, truncations, packed files, closed files, NULs, kills."""

from __future__ import annotations

import gzip
import shutil
import threading
import time
from collections import Counter

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.config.groups import TailedSource
from hourmark_producer.send.file_shipper import FileShipper

pytestmark = pytest.mark.timeout(40)


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
    return Counter(
        line for one in recorder.stored for line in one.body.splitlines(keepends=True)
    )


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
    assert summary.lost_bytes == 0
    assert pieces(recorder) == Counter(
        [*lines(20).splitlines(keepends=True), *lines(5, 100).splitlines(keepends=True), b"half", b"tail"]
    )


def test_copytruncate_after_the_final_line(final: Host, recorder: Recorder) -> None:
    final.drain(lines(20) + b"half")
    copytruncate(final)
    summary = final.drain(lines(5, 100) + b"tail")
    assert summary.lost_bytes == 0
    expect(recorder, b"")if False else None
    assert pieces(recorder) == Counter(
        [*lines(20).splitlines(keepends=True), *lines(5, 100).splitlines(keepends=True), b"half", b"tail"]
    )


def test_a_copy_that_is_there_at_first(final: Host, recorder: Recorder) -> None:
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.append(b" more\n" + lines(3, 100) + b"tail")
    final.drain()
    print(sorted(pieces(recorder).items())[:3], bodies(recorder))
    assert pieces(recorder)[b"half"] == 0
    assert max(pieces(recorder).values()) == 1


def test_equal_copies_at_first(final: Host, recorder: Recorder) -> None:
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.drain()
    assert max(pieces(recorder).values()) == 1
    assert pieces(recorder)[b"half"] == 1


def test_packed_with_a_pending_half(final: Host, recorder: Recorder) -> None:
    final.final_lines = False
    final.drain(lines(20) + b"half")
    final.append(b" more\n" + lines(2, 200) + b"tail")
    with gzip.open(final.logs / "app.log.1.gz", "wb") as packed:
        packed.write(final.app.read_bytes())
    final.app.unlink()
    final.final_lines = True
    summary = final.drain(lines(3, 300))
    assert pieces(recorder)[b"half more\n"] == 1
    assert pieces(recorder)[b"tail"] + (summary.lost_bytes == 4) == 1
    assert pieces(recorder)[b"tail"] == 1, f"lost: {summary.lost_bytes}"


def test_truncated_in_part_after_the_final_line(final: Host, recorder: Recorder) -> None:
    final.drain(lines(20) + b"half")
    with final.app.open("r+b") as file:
        file.truncate(len(lines(20)) + 2)  # in the midst of the final line
    summary = final.drain()
    print(summary, bodies(recorder))


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
    one, many = FileShipper.step, FileShipper.step_batch

    def step(self, file):  # type: ignore[no-untyped-def]
        steps[0] += 1
        return one(self, file)

    monkeypatch.setattr(FileShipper, "step", step)
    return steps


def test_steps_of_a_read_file_that_is_followed(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_source(host, record_start="^line")
    steps = count_steps(monkeypatch)
    with host.running(lines(5)):
        recorder.wait_stored(2)
        time.sleep(1)
        steps[0] = 0
        time.sleep(2)
        assert steps[0] < 10, steps


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
        print("files left", len(tailer.files))
        time.sleep(0.5)
        steps[0] = 0
        time.sleep(2)
        assert steps[0] < 10, steps


def test_a_copy_that_was_passed_over_up_to_its_half(final: Host, recorder: Recorder) -> None:
    final.final_lines = False
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.drain()
    final.final_lines = True
    final.drain()
    assert max(pieces(recorder).values()) == 1
    assert pieces(recorder)[b"half"] == 1, "sent by the log and by its copy"


def test_a_copy_with_the_beginning_of_a_line(final: Host, recorder: Recorder) -> None:
    final.final_lines = False
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.drain()
    final.final_lines = True
    final.drain(b" more\n")
    assert pieces(recorder)[b"half more\n"] == 1
    assert pieces(recorder)[b"half"] == 0, "the copy sends the beginning of that line again"


def test_equal_copies_and_a_long_flush(final: Host, recorder: Recorder) -> None:
    of_source(final, flush_seconds=8.0)
    final.append(lines(20) + b"half")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.drain()
    assert pieces(recorder)[b"half"] == 1


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
    print(bodies(recorder))
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


def test_a_packed_file_that_nobody_saw_with_a_half(final: Host, recorder: Recorder) -> None:
    final.drain(lines(3))
    with gzip.open(final.logs / "app.log.1.gz", "wb") as packed:
        packed.write(lines(20, 400) + b"tail")
    summary = final.drain()
    assert pieces(recorder)[b"tail"] or summary.lost_bytes == 4, "neither sent nor counted"
    assert pieces(recorder)[b"tail"] == 1


def test_many_whole_files_cost_as_much_as_without_final_lines(
    final: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file is quiet for a while before its final line may be sent; the others are read."""
    steps = [0]
    really = FileShipper._find_next_cut

    def find(self, file, buffer):  # type: ignore[no-untyped-def]
        steps[0] += 1
        return really(self, file, buffer)

    monkeypatch.setattr(FileShipper, "_find_next_cut", find)
    of_source(final, flush_seconds=5.0)
    for n in range(300):
        final.append(lines(3, 10 * n), final.logs / f"app.log{n}")
    final.append(lines(3, 9000) + b"half")
    began, cpu = time.monotonic(), time.process_time()
    final.drain()
    print(time.monotonic() - began, time.process_time() - cpu, steps)
    assert steps[0] < 301 * 6, steps


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
        [*lines(20).splitlines(keepends=True), b"half", *lines(2, 700).splitlines(keepends=True), b"end"]
    )
    assert (summary.lost_bytes, summary.pending_bytes) == (0, 0)


def test_a_final_line_in_a_file_of_another_name_by_rename(final: Host, recorder: Recorder) -> None:
    final.drain(lines(20) + b"half")
    final.app.rename(final.logs / "app.log.1")
    final.append(b" more\n", final.logs / "app.log.1")
    final.drain(b"x")
    assert pieces(recorder)[b" more\n"] == 1 and pieces(recorder)[b"x"] == 1
    assert max(pieces(recorder).values()) == 1


def test_a_file_that_gets_halves_all_the_time_ends_a_drain(
    final: Host, recorder: Recorder
) -> None:
    """A progress bar: bytes without a newline, more often than flush_seconds."""
    of_source(final, flush_seconds=1.0)
    final.append(lines(3) + b"half")
    stop, ended = threading.Event(), threading.Event()

    def write() -> None:
        while not ended.wait(0.3):
            final.append(b".")

    writer = threading.Thread(target=write)
    writer.start()
    threading.Timer(12, stop.set).start()
    try:
        with final.tailer() as (tailer, _):
            summary = tailer.run(stop, drain=True)
    finally:
        ended.set()
        writer.join()
    assert summary.finished, "a drain that goes on as long as its writer"


def test_a_pause_within_a_very_long_line_of_standard_input(
    final: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from hourmark_producer.receive import spools
    from hourmark_producer.receive.standard_input import StandardInput

    final.settings["sources"] = [TailedSource(name="app", input="stdin", flush_seconds=0.2)]
    final.settings |= {"line_bytes_max": 2048, "range_bytes": 1024}
    reading, writing = os.pipe()
    monkeypatch.setattr(spools, "StandardInput", lambda limit: StandardInput(limit, reading))

    def write() -> None:
        os.write(writing, b"L" * 2500)
        time.sleep(0.1)
        os.write(writing, b"L" * 500)
        time.sleep(2.0)
        os.write(writing, b"rest of it\n")
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    final.drain()
    writer.join()
    os.close(reading)
    said = [(one.range.part.value, one.range.ending, len(one.body)) for one in recorder.stored]
    print(said)
    assert "lines" not in [part for part, _, _ in said], said


def test_trace_of_a_line_of_which_the_rest_is_not_read(
    final: Host, recorder: Recorder, tmp_path: object
) -> None:
    import json

    from click.testing import CliRunner

    from hourmark.cli import root

    final.drain(lines(3) + b"half")
    final.append(b" and more\n")
    config = final.configured(final.state.parent)
    result = CliRunner().invoke(
        root, ["tail", "trace", "--json", "--config", str(config), f"{final.app}:4"]
    )
    assert json.loads(result.stdout)["stage"] == "not_read"


def test_a_copied_up_log_in_another_folder(host: Host, recorder: Recorder) -> None:
    """As `olddir` under a pattern, on overlayfs; elsewhere it is known by its identity."""
    old = host.logs / "old"
    old.mkdir()
    host.settings["sources"] = [
        TailedSource(name="app", paths=[f"{host.logs}/app.log*", f"{old}/app.log*"])
    ]
    host.drain(lines(20))
    host.copy_up()
    host.app.rename(old / "app.log.1")
    host.drain()
    assert recorder.text() == lines(20)


def test_cpu_after_some_files_were_deleted(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A following tailer with records of several lines, no option of this change."""
    from hourmark_producer.files import waits

    monkeypatch.setattr(waits, "DELETED_LINGER_S", 0.2)
    of_source(host, record_start="^line")
    host.settings["scan_seconds"] = 0.5
    names = [host.logs / f"app.log{n}" for n in range(3)]
    for n, name in enumerate(names):
        host.append(lines(5, 10 * n), name)
    with host.running() as tailer:
        recorder.wait_stored(6)
        for name in names:
            name.unlink()
        until = time.monotonic() + 10
        while len(tailer.files) and time.monotonic() < until:
            time.sleep(0.05)
        assert not len(tailer.files)
        began = time.process_time()
        time.sleep(3)
        used = (time.process_time() - began) / 3
    assert used < 0.3, f"{used:.0%} of a core, without any file to follow"


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


def test_final_lines_of_a_copy_of_several_line_records(final: Host, recorder: Recorder) -> None:
    of_source(final, record_start="^line")
    final.append(lines(20) + b"  at x\n  at y")
    shutil.copy(final.app, final.logs / "app.log.1")
    final.final_lines = False
    final.drain()
    final.final_lines = True
    final.drain()
    assert pieces(recorder)[b"  at x\n"] == 1
    assert pieces(recorder)[b"  at y"] == 1


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
