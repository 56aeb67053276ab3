"""Large bodies of spooled ranges lie beside the checkpoint, and are the same at every retry, or the
tailer says so.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.errors import UsageError
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointBroken
from hourmark_producer.checkpoint.spooled_ranges import (
    BESIDE,
    FORMAT,
    BodyDamaged,
    BodyFile,
    Extent,
)

TEXT = b"".join(
    b"%d %s\n" % (number, os.urandom(40).hex().encode()) for number in range(4000)
)  # of which much remains, packed


@pytest.fixture
def refused(host: Host, recorder: Recorder) -> Iterator[Path]:
    """The state folder of a host that was killed with a large range on its way."""
    recorder.behaviour = lambda _: 503
    killed = host.state.with_name("as it was killed")
    with host.running(TEXT):
        recorder.wait_received(1)
        shutil.copytree(host.state, killed)
    shutil.rmtree(host.state)
    killed.rename(host.state)
    recorder.behaviour = lambda _: 200
    yield host.state


def beside(state: Path) -> Path:
    return state / "checkpoint.sqlite-bodies"


def table(state: Path, sql: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(f"file:{state}/checkpoint.sqlite?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def test_after_a_kill_the_same_range_is_sent_though_its_file_is_gone(
    refused: Path, host: Host, recorder: Recorder
) -> None:
    assert table(refused, "SELECT typeof(body) FROM ranges") == [("text",)], "it lies beside"
    assert table(refused, "SELECT format FROM meta") == [(BESIDE,)], (
        "no version before may go on with it"
    )
    (first, *_) = recorder.received
    host.app.unlink()
    host.drain()
    assert recorder.stored and recorder.text() == TEXT[: first.range.end]
    assert [one.range for one in recorder.received] == [first.range] * len(recorder.received)
    assert table(refused, "SELECT format FROM meta") == [(FORMAT,)]


def test_a_stop_in_order_leaves_all_in_the_database(host: Host, recorder: Recorder) -> None:
    recorder.behaviour = lambda _: 503
    with host.running(TEXT):
        recorder.wait_received(1)
    assert table(host.state, "SELECT typeof(body), format FROM ranges, meta") == [
        ("blob", FORMAT)
    ], "any version can go on"
    beside(host.state).unlink()
    recorder.behaviour = lambda _: 200
    host.drain()
    assert recorder.text() == TEXT


@pytest.mark.parametrize("harm", ["removed", "emptied", "one bit", "other bytes"])
def test_a_body_that_is_not_as_it_was_written_is_no_other_range(
    refused: Path, host: Host, recorder: Recorder, harm: str
) -> None:
    content = bytearray(beside(refused).read_bytes())
    if harm == "removed":
        beside(refused).unlink()
    else:
        content[len(content) // 2] ^= 1
        beside(refused).write_bytes(
            {"emptied": b"", "one bit": bytes(content)}.get(harm, bytes(len(content)))
        )
    with pytest.raises(UsageError, match="the body of a range"):
        host.drain()
    recorder.received.clear()  # what is sent from now on need not be cut as it was
    host.drain(reread=True)
    assert recorder.text() == TEXT


def test_what_is_put_aside_keeps_its_bodies(refused: Path, host: Host) -> None:
    path = refused / "checkpoint.sqlite"
    path.write_bytes(b"damaged" + path.read_bytes())
    host.drain(reread=True)
    assert beside(refused).with_name("checkpoint.sqlite.broken-1-bodies").stat().st_size > 0


def packed(size: int, number: int) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(
        number.to_bytes(4, "big") + os.urandom(size)
    )


@given(
    steps=st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 3), st.booleans()), max_size=40)
)
def test_no_body_is_written_over_while_a_row_may_name_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("state") / "bodies"
    bodies, named, doubted = (
        BodyFile(path, {}),
        dict[int, tuple[Extent, bytes]](),
        dict[int, tuple[Extent, bytes]](),
    )
    for number, (size, left, fails) in enumerate(steps):
        body = packed(size, number)
        extents = bodies.put({number: body})
        out = sorted(named)[:left]
        if fails:
            bodies.keep_space_reserved([number])
            doubted[number] = extents[number], body
        else:
            bodies.free(out)
            doubted.clear()
            named = {at: one for at, one in named.items() if at not in out} | {
                number: (extents[number], body)
            }
        for extent, content in (*named.values(), *doubted.values()):
            assert bodies.get(extent) == content
    most = sum(-(-(size + 100) // 4096) * 4096 for size, _, _ in steps)
    assert path.stat().st_size <= most
    bodies.close()


def test_room_is_used_again(tmp_path: Path) -> None:
    bodies = BodyFile(tmp_path / "bodies", {})
    for number in range(50):
        bodies.put({number: packed(20_000, number)})
        bodies.free([number - 1] if number else [])
    assert (tmp_path / "bodies").stat().st_size < 3 * 24_576
    bodies.close()


def test_an_extent_is_read_as_it_was_written() -> None:
    extent = Extent(4096, 77, b"\x00\x01\xfe\xff")
    assert Extent.read(str(extent)) == extent
    with pytest.raises(ValueError):
        Extent.read("here")


def test_a_body_of_another_length_is_damaged(tmp_path: Path) -> None:
    bodies = BodyFile(tmp_path / "bodies", {})
    bodies.put({1: packed(100, 1)})
    bodies.check({1: 104})
    with pytest.raises(BodyDamaged):
        bodies.check({1: 105})
    bodies.close()


def test_a_checkpoint_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.sqlite"
    Checkpoint.create(path, "0" * 32)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET format=4")
    db.close()
    with pytest.raises(CheckpointBroken, match="formats 1 to 3"):
        Checkpoint.open(path)


def test_lines_that_come_one_by_one_stay_in_the_database(host: Host, recorder: Recorder) -> None:
    recorder.behaviour = lambda _: 503
    with host.running(lines(10)):
        recorder.wait_received(1)
        assert table(host.state, "SELECT typeof(body), format FROM ranges, meta") == [
            ("blob", FORMAT)
        ], "one fsync, not two"


def test_a_thread_that_is_late_writes_into_no_other_file(tmp_path: Path) -> None:
    bodies = BodyFile(tmp_path / "bodies", {})
    bodies.close()
    (tmp_path / "another").write_bytes(b"as it was")
    with (tmp_path / "another").open("r+b"), pytest.raises(OSError):
        bodies.put({1: packed(100, 1)})
    assert (tmp_path / "another").read_bytes() == b"as it was"
