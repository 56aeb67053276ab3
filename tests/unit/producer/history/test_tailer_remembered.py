"""A file whose inode is another's by now is remembered until what may be its copy was looked
into.
"""

from __future__ import annotations

import errno
import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import recording
from tests.support.waiting import wait_for

from hourmark_producer.history import copies, match


def test_a_file_is_remembered_until_what_may_be_its_copy_was_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file has its inode by then: what is forgotten too early is sent again, from
    the copy.
    """
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        inode = host.app.stat().st_ino
        host.app.with_name("app.log.1").write_bytes(host.app.read_bytes())
        take_inode(host.app, inode)
        until_s, ask = time.monotonic() + 1.0, copies.find_origin

        def late(*given: Any) -> Any:
            if time.monotonic() < until_s:
                raise OSError(errno.EIO, "the disk is slow")
            return ask(*given)

        monkeypatch.setattr(match, "find_origin", late)
        with host.running():
            wait_for(lambda: time.monotonic() > until_s, "the disk is quick again")
            host.append(lines(100, 200))
            recorder.wait_text(lines(100) + lines(100, 200))
            wait_for(
                lambda: (
                    recorder.last.caught_up_at_ms is not None and not recorder.last.pending_bytes
                ),
                "all is read",
            )
    assert sorted(recorder.text().splitlines()) == [
        *lines(100).splitlines(),
        *lines(100, 200).splitlines(),
    ]


def test_a_file_is_remembered_until_what_its_copy_was_packed_into_was_looked_into(
    tmp_path: Path,
) -> None:
    """The copy was seen by a run before, which could not tell yet whether it was whole: the log
    went on, and then began anew.
    """
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(10))
        inode, copy = host.app.stat().st_ino, host.app.with_name("app.log.1")
        with host.running() as tailer:
            copy.write_bytes(host.app.read_bytes())
            os.utime(copy, times=(time.time() + 3600,) * 2)  # perhaps it still grows
            host.append(lines(90, 10))
            recorder.wait_text(lines(100))
            host.app.write_bytes(b"")
            wait_for(
                lambda: any(file.progress.position.generation for file in tailer.files),
                "it is seen to begin anew",
            )
            wait_for(
                lambda: len(tailer.files) == 2 and all(file.saved for file in tailer.files),
                "what is known of it is kept",
            )
        copy.with_name("app.log.1.gz").write_bytes(gzip.compress(copy.read_bytes()))
        copy.unlink()
        take_inode(host.app, inode)
        host.drain(lines(100, 200))
    assert recorder.sent() == (lines(100) + lines(100, 200)).splitlines(keepends=True)
    assert recorder.last.lost_bytes == 0


def take_inode(path: Path, inode: int) -> None:
    """Delete a file, and have another one by its name and on its inode; skips where the file system
    does not reuse them.
    """
    path.unlink()
    for _ in range(20):
        path.touch()
        if path.stat().st_ino == inode:
            return
        path.rename(path.with_name(f"{time.monotonic_ns()}.aside"))
    pytest.skip("inode numbers are not reused at once here")
