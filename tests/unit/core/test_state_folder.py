"""Who holds a state folder is told without holding it."""

from __future__ import annotations

import os
from pathlib import Path

from hourmark.state_folder import StateFolder


def test_a_folder_that_was_never_used_is_held_by_nobody_and_not_made(tmp_path: Path) -> None:
    assert StateFolder(tmp_path / "state", "tailer").holder() is None
    assert not (tmp_path / "state").exists()


def test_the_holder_is_named_while_it_lives_and_not_after(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "tailer")
    with folder.lock():
        assert folder.holder() == os.getpid()
    assert folder.holder() is None
    assert (tmp_path / "lock").read_text() == str(os.getpid()), "asking changes nothing"


def test_who_is_looked_at_can_be_started_meanwhile(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "tailer")
    folder.lock().close()
    for _ in range(100):
        assert folder.holder() is None
        folder.lock().close()
