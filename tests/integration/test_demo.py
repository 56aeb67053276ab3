"""`hourmark demo` as a user runs it, with lines that nobody planned for: the main job, and the
judge's word on it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

FIELDS = {
    "types",
    "lost",
    "doubled",
    "altered",
    "buckets_root",
    "webhdfs",
    "bootstrap",
    "registry",
    "seconds",
}
TYPE_FIELDS = {
    "acknowledged",
    "in_buckets",
    "late",
    "duplicates_removed",
    "dead_letters",
    "lost",
    "grades",
}


def nasty_lines() -> bytes:
    """Whatever a log may hold: bytes that are no text, NUL, CR, nothing at all, a megabyte, an end
    without an end.
    """
    chance = random.Random(7)
    lines = [
        b"",
        b"plain",
        b"a\r",
        b"\r\rlone\rreturns\r",
        b"\x00nul\x00",
        b"\xff\xfe\x80 no utf-8 \xc3",
        "zażółć 東京 🙂".encode(),
        b"<34>1 2003-10-11T22:14:15.003Z host app - other - a line that looks like one of ours",
        b'{"json": [1, 2',
        b"x" * (1 << 20),
        b" leading and trailing ",
        b"\t",
        b"081109 203615 148 INFO dfs.DataNode: as the real ones",
    ]
    lines += [chance.randbytes(chance.randrange(1, 300)).replace(b"\n", b"?") for _ in range(300)]
    lines += [b"the same line"] * 20
    return b"\n".join(lines) + b"\nwithout an end"


def demo(home: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "hourmark", "demo", "--json", *arguments],
        env={**os.environ, "HOURMARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_the_demo_closes_buckets_of_unseen_lines_and_the_judge_is_content(tmp_path: Path) -> None:
    (tmp_path / "nasty file.log").write_bytes(nasty_lines())
    (tmp_path / "empty.log").touch()
    count = nasty_lines().count(b"\n") + 1
    named = [str(tmp_path / "nasty file.log"), str(tmp_path / "empty.log")]
    said = demo(tmp_path / "home", "--lines", *named)
    assert set(said) == FIELDS
    assert (said["lost"], said["doubled"], said["altered"]) == (0, 0, 0)
    lines = said["types"]["lines"]
    assert lines["in_buckets"] + lines["dead_letters"] == count
    for name, numbers in said["types"].items():
        assert set(numbers) == TYPE_FIELDS
        assert numbers["grades"]["proved"] >= 3, name
        assert numbers["grades"]["timed_out"] == numbers["grades"]["forced"] == 0
        assert numbers["in_buckets"] >= numbers["acknowledged"], name
    assert said["types"]["track-played"]["dead_letters"] > 0, (
        "the planted bad lines are dead letters with the type they claimed"
    )


@pytest.mark.long
def test_the_demo_keeps_its_promise_with_one_cluster_and_no_mirror(tmp_path: Path) -> None:
    said = demo(tmp_path / "home", "--clusters", "1", "--buckets", "1")
    assert (said["lost"], said["doubled"], said["altered"]) == (0, 0, 0)
    for name, numbers in said["types"].items():
        assert numbers["grades"]["proved"] >= 1, name
        assert numbers["in_buckets"] >= numbers["acknowledged"], name
