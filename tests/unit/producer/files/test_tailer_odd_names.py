"""Names of files that are no UTF-8, that hold newlines, and links that lead in a circle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.printing import printable

NAME = b"app.log-l\xe4tin\n2026-11-28T00:00:00.000Z ERROR hourmark_producer.forged: all is lost"


def tail(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hourmark", "tail", *arguments, "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )


@pytest.mark.slow
def test_a_name_that_is_no_utf8_and_holds_a_newline_is_shown_as_one_line(
    tmp_path: Path, host: Host, recorder: Recorder
) -> None:
    config, path = host.configured(tmp_path), os.fsencode(host.logs) + b"/" + NAME
    Path(os.fsdecode(path)).write_bytes(lines(1))
    drained = tail(config, "--drain")
    assert drained.returncode == 0 and recorder.text() == lines(1)
    for arguments in (["status"], ["--check"], ["trace", os.fsdecode(path) + ":1"]):
        done = tail(config, *arguments)
        assert done.returncode == 0, done.stderr
        assert "app.log-l\\xe4tin\\n2026" in done.stdout
        assert not any(
            line.startswith("2026-11-28T00:00:00.000Z") for line in done.stdout.splitlines()
        )
    assert "\\n2026-11-28T00:00:00.000Z ERROR" in drained.stderr
    assert not any(
        line.startswith("2026-11-28T00:00:00.000Z") for line in drained.stderr.splitlines()
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä", "plain ä"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\udce4", "\\xe4"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_is_printed_is_one_line(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_links_that_lead_in_a_circle_hold_nothing_up(host: Host, recorder: Recorder) -> None:
    (host.logs / "app.log.loop").symlink_to("app.log.loop")
    (host.logs / "app.log.a").symlink_to("app.log.b")
    (host.logs / "app.log.b").symlink_to("app.log.a")
    assert host.drain(lines(10)).finished
    assert recorder.text() == lines(10)
