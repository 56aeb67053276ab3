"""Host id, checkpoint, lock: a start from zero never happens silently."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.cli import root
from hourmark.errors import UsageError
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointBroken, add_loss
from hourmark_producer.checkpoint.installation import open_installation
from hourmark_producer.counters import Loss

CHECKPOINT = "checkpoint.sqlite"


def test_a_first_start_makes_both_and_a_second_keeps_them(host: Host) -> None:
    first = host.drain().host_id
    assert host.drain().host_id == first == (host.state / "host-id").read_text().strip()


def test_a_lost_checkpoint_is_refused_and_reread_repeats_with_the_same_host_and_file_ids(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    (host.state / CHECKPOINT).unlink()
    with pytest.raises(UsageError, match=r"--reread.*sent again.*may be duplicated"):
        host.drain()
    host.drain(reread=True)
    first, again = recorder.received
    assert again.body == first.body
    assert dataclasses.replace(again.range, observed_at_ms=0) == dataclasses.replace(
        first.range, observed_at_ms=0
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 4096, b"SQLite format 3\0 and then nothing"],
    ids=["empty", "zeros", "torn"],
)
def test_an_empty_or_corrupt_checkpoint_after_a_kill_is_refused(
    host: Host, recorder: Recorder, content: bytes
) -> None:
    host.drain(lines(10))
    (host.state / CHECKPOINT).write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot be used.*--reread"):
        host.drain()
    assert (host.state / CHECKPOINT).read_bytes() == content, (
        "left as it was, for those who want to look"
    )
    host.drain(reread=True)
    assert len(recorder.received) == 2
    assert (host.state / f"{CHECKPOINT}.broken-1").read_bytes() == content


def test_reread_has_no_effect_while_the_checkpoint_is_in_order(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    host.drain(reread=True)
    assert len(recorder.received) == 1


def test_a_first_start_killed_between_checkpoint_and_host_id_goes_on(host: Host) -> None:
    first = host.drain().host_id
    (host.state / "host-id").unlink()
    assert host.drain().host_id == first


def test_a_checkpoint_of_another_host_is_refused(host: Host) -> None:
    host.drain()
    (host.state / "host-id").write_text("0" * 32)
    with pytest.raises(UsageError, match="belongs to host id"):
        host.drain()


def test_a_second_tailer_is_refused_with_the_first_ones_pid(host: Host) -> None:
    with host.tailer(), pytest.raises(UsageError, match=f"process {os.getpid()}"), host.tailer():
        pass


def test_the_command_drains_and_sums_up(host: Host) -> None:
    host.append(lines(10) + b"half")
    result = CliRunner().invoke(
        root, ["tail", "--config", str(host.configured(host.logs.parent)), "--drain", "--json"]
    )
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["bytes"], summary["events"], summary["pending_bytes"], summary["goodbye"]) == (
        len(lines(10)),
        10,
        4,
        True,
    )
    assert summary["unterminated"] == {str(host.app): 4}


def test_help_says_what_reread_may_repeat_and_gives_examples() -> None:
    text = CliRunner().invoke(root, ["tail", "--help"]).output
    assert "may be" in text and "duplicated" in text and "hourmark tail --drain --json" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("sources = []", "tailer.sources is empty"),
        (
            '[[tailer.sources]]\nname = "a"\npaths = ["logs/*"]',
            "tailer.sources.0.paths = 'logs/\\*': allowed: absolute",
        ),
        (
            '[[tailer.sources]]\nname = "a"\npaths = ["/l/*"]\nzone = "Mars/North"',
            "tailer.sources.0.zone = 'Mars/North'",
        ),
        (
            (
                '[[tailer.sources]]\nname = "a"\npaths = ["/a"]\n[[tailer.sources]]\nname = '
                '"a"\npaths = ["/b"]'
            ),
            "tailer.sources.1.name",
        ),
    ],
)
def test_wrong_settings_stop_the_start(host: Host, more: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(
            root,
            ["tail", "--config", str(host.configured(host.logs.parent, more))],
            catch_exceptions=False,
        )


def killed(host: Host, recorder: Recorder, content: bytes) -> None:
    """A run that ends by `kill -9`: its newest commits are in the write-ahead log alone."""
    host.append(content)
    command = [
        sys.executable,
        "-P",
        "-m",
        "hourmark",
        "tail",
        "--config",
        str(host.configured(host.logs.parent)),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            recorder.wait_text(content)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_checkpoint_without_its_write_ahead_log_is_refused_as_it_would_rewind(
    host: Host, recorder: Recorder
) -> None:
    killed(host, recorder, lines(10))
    log = host.state / f"{CHECKPOINT}-wal"
    content = log.read_bytes()
    log.unlink()
    with pytest.raises(UsageError, match=r"write-ahead log .* is missing"):
        host.drain(lines(10, 10))
    assert len(recorder.received) == 1, "nothing was sent again, cut otherwise"
    log.write_bytes(content)
    host.drain()
    assert recorder.text() == lines(20)


@pytest.mark.slow
def test_a_checkpoint_that_another_program_closed_in_order_is_whole(
    host: Host, recorder: Recorder
) -> None:
    """Whoever looks at it after a kill, by sqlite3 say, moves the log into the database, and
    removes it.
    """
    killed(host, recorder, lines(10))
    db = sqlite3.connect(host.state / CHECKPOINT)
    assert db.execute("SELECT count(*) FROM files").fetchone() == (1,)
    db.close()
    assert not (host.state / f"{CHECKPOINT}-wal").exists()
    host.drain(lines(10, 10))
    assert recorder.text() == lines(20)


def test_a_log_that_was_begun_anew_many_times_is_missed_as_well(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.checkpoint.database._LOG_BYTES_MAX", 50_000)
    host.drain()
    checkpoint, _ = open_installation(host.state, reread=False)
    aside = host.state / "copy"
    aside.mkdir()
    path, log = host.state / CHECKPOINT, host.state / f"{CHECKPOINT}-wal"
    for number in range(200):
        checkpoint.commit(
            add_loss(
                Loss(source="app", path="/log", at_ms=number, bytes=0, unknown=1, what="x" * 500)
            )
        )
        assert log.stat().st_size < 100_000
    shutil.copy(path, aside / CHECKPOINT)
    with pytest.raises(CheckpointBroken, match="write-ahead log"):
        Checkpoint.open(aside / CHECKPOINT)
    shutil.copy(log, aside / log.name)
    copied, _ = Checkpoint.open(aside / CHECKPOINT)
    assert [loss.at_ms for loss in copied.recent_losses()] == list(range(200))
    copied.close()
    checkpoint.close()


def test_a_reread_says_that_what_was_lost_with_the_checkpoint_is_unknown(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    (host.state / CHECKPOINT).unlink()
    assert host.drain(reread=True).unknown_losses == 1
    assert recorder.last.unknown_losses == 1
    assert host.drain().unknown_losses == 1


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True], ids=["first start", "later start"])
def test_a_full_disk_at_the_start_is_said_in_a_line(host: Host, there: bool) -> None:
    folder = host.logs.parent / "settings"
    folder.mkdir()
    config = host.configured(folder)
    host.state.mkdir()
    if there:
        host.drain(lines(10))
    else:
        (host.state / "lock").write_text("1")
    command = [sys.executable, "-P", "-m", "hourmark", "tail", "--config", str(config), "--drain"]
    full = ["sh", "-c", 'ulimit -f 1; exec "$@"', "tail", *command]
    done = subprocess.run(full, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr and "free space" in done.stderr, done.stderr
    assert "--reread" not in done.stderr, "nothing is wrong with the checkpoint"
