"""Traffic: every byte of a named file comes out again, whatever it holds; rotation loses nothing;
equal seeds, equal events.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

from hourmark_verify.demo.log_lines import (
    AD_SHOWN,
    TRACK_PLAYED,
    app_name,
    rfc5424_line,
    rfc5424_lines,
    structured_lines,
    write_sample_file,
)
from hourmark_verify.demo.traffic import LiveLog, RecordedLog, ScheduledLine, Traffic
from hourmark_verify.judge.rfc5424 import split_rfc5424

_NOW_MS = 1_795_222_825_123


@given(
    st.integers(0, 4_000_000_000_000),
    st.text(max_size=60),
    st.binary(max_size=200).map(lambda b: b.replace(b"\n", b"")),
)
def test_the_message_of_a_rendered_line_is_the_line_itself(
    time_ms: int, name: str, message: bytes
) -> None:
    parts = split_rfc5424(rfc5424_line(time_ms, app_name(name), "lines", message))
    assert parts is not None
    assert (parts.time_ms, parts.msgid, parts.message) == (time_ms, "lines", message)


def written(path: Path) -> list[bytes]:
    """The lines of a live log and of its rotated part, in the order of their writing."""
    rotated = path.with_name(path.name + ".1")
    content = (rotated.read_bytes() if rotated.exists() else b"") + path.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return content.split(b"\n")[:-1]


def play(
    path: Path, lines: itertools.chain[ScheduledLine] | list[ScheduledLine], steps: int = 7
) -> LiveLog:
    clock = FakeClock(_NOW_MS)
    log = LiveLog(path, "lines", iter(lines), clock)
    for step in range(steps + 1):
        log.write_due_lines(step / steps)
        clock.advance(60)
    assert log.done
    log.close()
    return log


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"one",
        b"one\ntwo",
        b"one\r\ntwo\r\n\r\n\n",
        b"\x00\xff\xfe\n\rlone\rCR\r\n" + b"m" * 1_500_000 + b"\nlast",
        b"".join(b"%d\n" % n for n in range(1000)),
    ],
)
def test_a_named_file_is_written_line_by_line_byte_for_byte_through_a_rotation(
    tmp_path: Path, content: bytes
) -> None:
    source = tmp_path / "a file"
    source.write_bytes(content)
    log = play(tmp_path / "live.log", list(rfc5424_lines(source)))
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    parts = [split_rfc5424(line) for line in written(log.path)]
    assert [part.message for part in parts if part] == expected
    assert log.written == len(expected)
    assert (tmp_path / "live.log.1").exists() == (len(expected) > 1)


def test_the_rotated_file_keeps_its_inode_and_the_new_one_has_another(tmp_path: Path) -> None:
    lines = [ScheduledLine(0.1, lambda _: b"a"), ScheduledLine(0.9, lambda _: b"b")]
    log = LiveLog(tmp_path / "x.log", "lines", iter(lines), FakeClock())
    log.write_due_lines(0.2)
    inode = (tmp_path / "x.log").stat().st_ino
    log.write_due_lines(1.0)
    log.close()
    assert (tmp_path / "x.log.1").stat().st_ino == inode
    assert (tmp_path / "x.log").read_bytes() == b"b\n"


def test_a_copied_and_truncated_file_keeps_its_inode_and_each_content_its_digest(
    tmp_path: Path,
) -> None:
    log = RecordedLog(tmp_path / "x.log")
    log.append(b"one\nbroken\n", [4])
    inode = (tmp_path / "x.log").stat().st_ino
    log.copy_and_truncate()
    log.append(b"two\n")
    log.close()
    contents = [(tmp_path / name).read_bytes() for name in ("x.log.1", "x.log")]
    assert contents == [b"one\nbroken\n", b"two\n"]
    assert (tmp_path / "x.log").stat().st_ino == inode
    digests = [hashlib.blake2b(content, digest_size=16).hexdigest() for content in contents]
    assert [(of.bytes, of.blake2b, of.broken) for of in log.records] == [
        (11, digests[0], [4]),
        (4, digests[1], []),
    ]


def test_lines_carry_the_time_of_their_writing(tmp_path: Path) -> None:
    source = tmp_path / "f"
    source.write_bytes(b"x\n" * 4)
    log = play(tmp_path / "live.log", list(rfc5424_lines(source)), steps=3)
    assert [part.time_ms for line in written(log.path) if (part := split_rfc5424(line))] == [
        _NOW_MS + n * 60_000 for n in range(4)
    ]
    assert len(log.minutes) == 4


def rendered(count: int, seed: int, broken_each: int) -> list[bytes]:
    return [
        due.render(_NOW_MS)
        for due in structured_lines(count, seed, broken_at_least_each=broken_each)
    ]


@pytest.mark.slow
def test_events_are_seeded_seven_to_three_and_a_few_are_broken() -> None:
    lines = rendered(20_000, 5, 2000)
    assert lines == rendered(20_000, 5, 2000) != rendered(20_000, 6, 2000)
    parts = [split_rfc5424(line) for line in lines]
    kinds = Counter(part.msgid if part else None for part in parts)
    assert 2.1 < kinds[TRACK_PLAYED] / kinds[AD_SHOWN] < 2.6
    assert kinds["no-such-type"] > 0 and kinds[None] > 0
    broken = sum(
        not part or part.time_ms != _NOW_MS or not _is_whole(part.message) for part in parts
    )
    assert 0.005 < broken / len(lines) < 0.05


def test_even_a_slow_stream_has_a_broken_event_in_time() -> None:
    lines = rendered(100, 1, 10)
    assert all(any(_is_broken(line) for line in lines[at : at + 10]) for at in range(0, 100, 10))


def test_the_writer_s_record_is_that_of_the_files_and_names_the_broken_lines(
    tmp_path: Path,
) -> None:
    due = list(structured_lines(400, 3, broken_at_least_each=50))
    records = play(tmp_path / "player.log", due).records
    files = [tmp_path / "player.log.1", tmp_path / "player.log"]
    positions: list[list[int]] = []
    for file in files:
        lines = file.read_bytes().split(b"\n")[:-1]
        starts = itertools.accumulate((len(line) + 1 for line in lines), initial=0)
        times = {part.time_ms for line in lines if (part := split_rfc5424(line))}
        real = {time_ms for time_ms in times if time_ms and abs(time_ms - _NOW_MS) < 10**9}
        positions.append(
            [at for at, line in zip(starts, lines, strict=False) if _is_broken(line, real)]
        )
    assert [record.broken for record in records] == positions
    digests = [hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest() for file in files]
    assert [(record.bytes, record.blake2b) for record in records] == [
        (file.stat().st_size, digest) for file, digest in zip(files, digests, strict=True)
    ]


def test_the_record_is_what_was_written_though_the_file_is_cut_short(tmp_path: Path) -> None:
    log = play(
        tmp_path / "x.log", [ScheduledLine(0.1, lambda _: b"a"), ScheduledLine(0.2, lambda _: b"b")]
    )
    (tmp_path / "x.log").write_bytes(b"a\n")
    assert [record.bytes for record in log.records] == [4]


def test_the_traffic_thread_writes_all_and_hands_on_what_goes_wrong(tmp_path: Path) -> None:
    from hourmark.clock import SystemClock

    clock = SystemClock()
    # n is bound now
    due = [ScheduledLine(n / 50, lambda _ms, n=n: b"%d" % n) for n in range(50)]  # type: ignore[misc]
    traffic = Traffic([LiveLog(tmp_path / "a.log", None, iter(due), clock)], 0.3, clock)
    traffic.start()
    wait_for(lambda: traffic.done, "all lines to be written", 10)
    assert traffic.written == 50
    assert written(tmp_path / "a.log") == [b"%d" % n for n in range(50)]

    def broken(_ms: int) -> bytes:
        raise OSError("disk full")

    failing = Traffic(
        [LiveLog(tmp_path / "b.log", None, iter([ScheduledLine(0.0, broken)]), clock)], 0.1, clock
    )
    failing.start()
    with pytest.raises(OSError, match="disk full"):
        wait_for(lambda: failing.done, "the failure to be reported", 10)


def test_a_traffic_that_is_stopped_before_its_start_ends_at_once(tmp_path: Path) -> None:
    Traffic([], 1.0, FakeClock()).stop()


def test_the_demo_s_own_file_holds_the_odd_lines_of_real_ones(tmp_path: Path) -> None:
    content = write_sample_file(tmp_path / "own.log").read_bytes()
    assert not content.endswith(b"\n")
    lines = set(content.split(b"\n"))
    assert {b"", b"\r", b"\xff\xfe no UTF-8", b"a NUL \x00 within", b"x" * 100_000} <= lines


def _is_whole(message: bytes) -> bool:
    try:
        return {"user", "number"} <= set(json.loads(message)) and "surprise" not in json.loads(
            message
        )
    except ValueError:
        return False


def _is_broken(line: bytes, times: Collection[int] = (_NOW_MS,)) -> bool:
    part = split_rfc5424(line)
    return (
        part is None
        or part.msgid not in (TRACK_PLAYED, AD_SHOWN)
        or part.time_ms not in times
        or not _is_whole(part.message)
    )
