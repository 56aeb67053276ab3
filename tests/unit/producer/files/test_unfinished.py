"""How long a packed file without an end has been as it is, whoever asks."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.clock import FakeClock

from hourmark_producer.files.compressed import IncompleteFileTimer


def test_time_counts_from_its_last_change(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "app.log.1.gz"
    path.write_bytes(b"half")
    known = IncompleteFileTimer(clock)
    assert known.unchanged_s(path.stat()) == 0
    clock.sleep(3)
    assert known.unchanged_s(path.stat()) == 3
    path.write_bytes(b"a half")
    assert known.unchanged_s(path.stat()) == 0
    clock.sleep(2)
    os.utime(path, (1, 1))
    assert known.unchanged_s(path.stat()) == 0, "written again, in the same size"


def test_few_are_remembered(tmp_path: Path) -> None:
    clock = FakeClock()
    known = IncompleteFileTimer(clock, files_max=3)
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.touch()
        known.unchanged_s(path.stat())
    clock.sleep(1)
    assert [known.unchanged_s(path.stat()) for path in (paths[-1], paths[0])] == [1, 0]
