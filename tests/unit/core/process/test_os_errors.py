"""File system errors of `hourmark init` and `hourmark run` are messages with a next step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hourmark.errors import Unavailable
from hourmark.process.durable import write_durably
from hourmark.process.os_errors import file_errors_reported


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match=rf"cannot use {tmp_path}: Is a directory; "),
        file_errors_reported(),
    ):
        tmp_path.read_text()


def test_a_full_disk_is_reported_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(
            Unavailable, match=r"cannot write .*some/file: No space left .* free disk space"
        ),
        file_errors_reported(),
    ):
        write_durably(tmp_path / "some/file", b"x")


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(OSError, match="odd"), file_errors_reported():
        raise OSError(errno.EIO, "odd")
