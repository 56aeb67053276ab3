"""Host id, checkpoint, lock: a start from zero never happens silently."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.cli import root
from hourmark.errors import UsageError

CHECKPOINT = "checkpoint.sqlite"


def test_a_first_start_makes_both_and_a_second_keeps_them(host: Host) -> None:
    first = host.drain().host_id
    assert host.drain().host_id == first == (host.state / "host-id").read_text().strip()


def test_a_lost_checkpoint_is_refused_and_reread_repeats_with_the_same_host_and_file_ids(host: Host, recorder: Recorder) -> None:
    host.drain(lines(10))
    (host.state / CHECKPOINT).unlink()
    with pytest.raises(UsageError, match=r"--reread.*sent again.*may repeat"):
        host.drain()
    host.drain(reread=True)
    first, again = recorder.received
    assert again.body == first.body
    assert dataclasses.replace(again.range, observed_at_ms=0) == dataclasses.replace(first.range, observed_at_ms=0)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"SQLite format 3\0 and then nothing"], ids=["empty", "zeros", "torn"])
def test_an_empty_or_corrupt_checkpoint_after_a_kill_is_refused(host: Host, recorder: Recorder, content: bytes) -> None:
    host.drain(lines(10))
    (host.state / CHECKPOINT).write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot be used.*--reread"):
        host.drain()
    assert (host.state / CHECKPOINT).read_bytes() == content, "left as it was, for those who want to look"
    host.drain(reread=True)
    assert len(recorder.received) == 2
    assert (host.state / f"{CHECKPOINT}.broken-1").read_bytes() == content


def test_reread_has_no_effect_while_the_checkpoint_is_in_order(host: Host, recorder: Recorder) -> None:
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
    result = CliRunner().invoke(root, ["tail", "--config", str(host.configured(host.logs.parent)), "--drain", "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["bytes"], summary["events"], summary["pending_bytes"], summary["goodbye"]) == (len(lines(10)), 10, 4, True)
    assert summary["unterminated"] == {str(host.app): 4}


def test_help_says_what_reread_may_repeat_and_gives_examples() -> None:
    text = CliRunner().invoke(root, ["tail", "--help"]).output
    assert "may" in text and "repeat" in text and "hourmark tail --drain --json" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("sources = []", "tailer.sources is empty"),
        ('[[tailer.sources]]\nname = "a"\npaths = ["logs/*"]', "tailer.sources.0.paths = 'logs/\\*': allowed: absolute"),
        ('[[tailer.sources]]\nname = "a"\npaths = ["/l/*"]\nzone = "Mars/North"', "tailer.sources.0.zone = 'Mars/North'"),
        (
            '[[tailer.sources]]\nname = "a"\npaths = ["/a"]\n[[tailer.sources]]\nname = "a"\npaths = ["/b"]',
            "tailer.sources.1.name",
        ),
    ],
)
def test_wrong_settings_stop_the_start(host: Host, more: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(root, ["tail", "--config", str(host.configured(host.logs.parent, more))], catch_exceptions=False)
