"""A damaged write-ahead log never becomes an older checkpoint in silence: the same state, or a
refusal.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hourmark.errors import UsageError
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointBroken
from hourmark_producer.checkpoint.installation import open_installation

NAME = "checkpoint.sqlite"
FRAME_BYTES = 4096 + 24
WRITER = """
import os, signal, sys
from pathlib import Path
from hourmark_producer.checkpoint.database import add_loss
from hourmark_producer.checkpoint.installation import open_installation
from hourmark_producer.counters import Loss
checkpoint, _ = open_installation(Path(sys.argv[1]), reread=False)
for number in range(int(sys.argv[2])):
    checkpoint.commit(add_loss(Loss(source="app", path="/log", at_ms=number, bytes=1, unknown=1, what="x" * 900)))
os.kill(os.getpid(), signal.SIGKILL)
"""

# As 0.2.0 did: SQLite begins its log anew by itself, in place, and what was there stays behind what
# it writes.
WRITER_BEFORE = """
import os, signal, sqlite3, sys
from pathlib import Path
from hourmark_producer.checkpoint.installation import open_installation
checkpoint, _ = open_installation(Path(sys.argv[1]), reread=False)
checkpoint.close()
db = sqlite3.connect(Path(sys.argv[1]) / "checkpoint.sqlite", isolation_level=None)
for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=20"):
    db.execute(f"PRAGMA {pragma}").fetchall()
for number in range(int(sys.argv[2])):
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO losses VALUES ('app', 1) ON CONFLICT (source) DO UPDATE SET bytes = bytes + 1")
    row = ("app", "", number, 1, 1, "x" * 900)
    db.execute("INSERT INTO occasions (source, path, at_ms, bytes, unknown, what) VALUES (?,?,?,?,?,?)", row)
    db.execute("COMMIT")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, commits: int, writer: str = WRITER) -> Path:
    """The state folder of a process that made so many commits, and was killed."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", writer, str(folder), str(commits)], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    return folder


def state(folder: Path) -> list[tuple[object, ...]]:
    """All that a checkpoint holds; CheckpointBroken."""
    checkpoint, _ = Checkpoint.open(folder / NAME)
    checkpoint.close()
    db = sqlite3.connect(folder / NAME)
    try:
        return [
            *db.execute("SELECT * FROM losses"),
            *db.execute("SELECT at_ms FROM occasions ORDER BY number"),
        ]
    finally:
        db.close()


def copy_of(folder: Path, log: bytes, *, index: bool = True) -> Path:
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    (copy / f"{NAME}-wal").write_bytes(log)
    if not index:
        (copy / f"{NAME}-shm").unlink()
    return copy


def outcome(folder: Path, log: bytes, *, index: bool = True) -> list[tuple[object, ...]] | str:
    try:
        return state(copy_of(folder, log, index=index))
    except CheckpointBroken as error:
        return str(error)


@pytest.mark.slow
def test_each_flipped_byte_loads_the_same_state_or_is_refused(tmp_path: Path) -> None:
    folder = killed(tmp_path / "state", 12)
    log = (folder / f"{NAME}-wal").read_bytes()
    whole = outcome(folder, log)
    assert whole[0] == ("app", 12)
    headers = {
        at + field for at in range(32, len(log), FRAME_BYTES) for field in (0, 5, 9, 14, 17, 23)
    }
    flips = sorted({*range(32), *headers, *range(37, len(log), 1999)})
    outcomes: list[list[tuple[object, ...]] | str] = []
    for at in flips:
        flipped = bytearray(log)
        flipped[at] ^= 1 << (at % 8)
        outcomes.append(outcome(folder, bytes(flipped)))
    assert all(one == whole or isinstance(one, str) for one in outcomes)
    assert sum(isinstance(one, str) for one in outcomes) > len(flips) // 2
    assert any("was damaged" in one for one in outcomes if isinstance(one, str))


def generations(log: bytes) -> list[bytes]:
    """The salts of each frame."""
    return [log[at + 8 : at + 16] for at in range(32, len(log), FRAME_BYTES)]


@pytest.mark.parametrize("index", [True, False], ids=["with wal-index", "without"])
def test_what_an_older_log_left_behind_the_end_is_no_damage_of_this_one(
    tmp_path: Path, index: bool
) -> None:
    folder = killed(tmp_path / "state", 40, WRITER_BEFORE)
    log = (folder / f"{NAME}-wal").read_bytes()
    salts = generations(log)
    assert salts[0] == log[16:24] and salts.count(salts[0]) + 3 < len(
        salts
    )  # several commits of an older one follow
    whole = outcome(folder, log, index=index)
    assert whole[0] == ("app", 40), whole


def test_a_flipped_byte_of_a_log_before_an_older_ones_rest_is_refused(tmp_path: Path) -> None:
    folder = killed(tmp_path / "state", 40, WRITER_BEFORE)
    log = (folder / f"{NAME}-wal").read_bytes()
    whole = outcome(folder, log)
    own = generations(log).count(log[16:24])
    assert own > 3
    for at in (
        5,
        18,
        30,
        *(32 + n * FRAME_BYTES + field for n in range(own) for field in (6, 10, 18, 999)),
    ):
        flipped = bytearray(log)
        flipped[at] ^= 0x10
        found = outcome(folder, bytes(flipped))
        assert found == whole or "was damaged" in str(found), at


@pytest.mark.parametrize("index", [True, False], ids=["with wal-index", "without"])
def test_a_torn_middle_is_refused(tmp_path: Path, index: bool) -> None:
    folder = killed(tmp_path / "state", 12)
    log = bytearray((folder / f"{NAME}-wal").read_bytes())
    middle = 32 + len(log) // FRAME_BYTES // 2 * FRAME_BYTES
    log[middle : middle + 512] = bytes(512)
    assert "was damaged" in outcome(folder, bytes(log), index=index)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 16, 32, FRAME_BYTES, 10 * FRAME_BYTES])
def test_a_log_cut_off_after_a_kill_is_refused(tmp_path: Path, size: int) -> None:
    folder = killed(tmp_path / "state", 12)
    log = (folder / f"{NAME}-wal").read_bytes()
    assert "was damaged" in outcome(folder, log[:size])


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1, 700, FRAME_BYTES - 1])
def test_a_commit_torn_by_a_power_cut_is_legal(tmp_path: Path, kept: int) -> None:
    """Pages reach the disk in any order, and the wal-index is an older one, or none."""
    folder = killed(tmp_path / "state", 12)
    before = killed(tmp_path / "before", 11)
    log = (folder / f"{NAME}-wal").read_bytes()
    commits = [at for at in range(32, len(log), FRAME_BYTES) if log[at + 4 : at + 8] != bytes(4)]
    torn_at = commits[-2] + FRAME_BYTES
    torn = bytearray(log)
    torn[torn_at + kept : torn_at + FRAME_BYTES] = bytes(FRAME_BYTES - kept)
    expected = outcome(before, (before / f"{NAME}-wal").read_bytes())
    assert outcome(folder, bytes(torn), index=False) == expected
    shutil.copy(before / f"{NAME}-shm", folder / f"{NAME}-shm")  # other salts, so another log's
    assert outcome(folder, bytes(torn)) == expected


@pytest.mark.slow
def test_a_kill_at_any_moment_is_no_damage(tmp_path: Path) -> None:
    folder, seed = tmp_path / "state", random.randrange(1 << 30)
    rng = random.Random(seed)
    folder.mkdir()
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-P", "-c", WRITER, str(folder), "100000"], stderr=subprocess.PIPE
        ) as process:
            try:
                process.wait(rng.uniform(0.2, 0.6))
            except subprocess.TimeoutExpired:
                process.kill()
            else:
                assert process.stderr is not None
                raise AssertionError(f"seed {seed}: {process.stderr.read()!r}")


def test_the_refusal_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    folder = killed(tmp_path / "state", 12)
    os.truncate(folder / f"{NAME}-wal", 5 * FRAME_BYTES)
    for _ in range(2):  # a refusal changes nothing
        with pytest.raises(
            UsageError,
            match=r"write-ahead log contains \d+ valid frames of \d+: it was damaged.*--reread",
        ):
            open_installation(folder, reread=False)
