"""The inode of a log that is gone is given to another file, or to something that the tailer cannot
read: the log is gone, and what has its inode is not this log, even with the same content.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.config.groups import TailedSource


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def link_loop(path: Path) -> None:
    path.symlink_to(path.name)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def takes_the_inode(path: Path, make: Callable[[Path], None]) -> bool:
    """Delete the file, and make others until one has its inode; whether the file system gave it
    again.
    """
    inode, others = path.stat().st_ino, path.parent / "others"
    path.unlink()
    for number in range(2000):
        other = path.parent / f"other-{number}"
        make(other)
        if other.lstat().st_ino == inode:
            return True
        others.mkdir(exist_ok=True)
        other.rename(others / other.name)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("make", [dangling_link, link_loop, unix_socket, fifo, folder])
def test_an_inode_that_is_no_regular_file_any_more_holds_nothing_up(
    host: Host, recorder: Recorder, make: Callable[[Path], None]
) -> None:
    host.append(lines(10), host.logs / "app.log.keep")
    host.drain(lines(10, 100))
    if not takes_the_inode(host.app, make):
        pytest.skip("this file system does not give an inode again")
    summary = host.drain()
    assert summary.finished and summary.lost_bytes == 0, "read to its end, and gone"
    assert recorder.sent() == sorted((lines(10) + lines(10, 100)).splitlines(keepends=True))


def test_an_unreadable_file_on_the_inode_of_a_log_holds_nothing_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever user runs this test: opening the file for reading is refused, as for a user who may
    not read it.
    """
    host.append(lines(10), host.logs / "app.log.keep")
    host.drain(lines(10, 100))
    if not takes_the_inode(host.app, Path.touch):
        pytest.skip("this file system does not give an inode again")
    really_open = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, **given: int) -> int:
        if "other-" in str(path) and not flags & os.O_PATH:
            raise PermissionError(13, "Permission denied", path)
        return really_open(path, flags, mode, **given)

    monkeypatch.setattr(os, "open", refusing)
    assert host.drain().finished


def test_a_file_with_another_birth_time_is_known_by_inode_and_content(
    host: Host, recorder: Recorder
) -> None:
    """As after overlayfs copied it up from a lower layer."""
    host.drain(lines(20))
    host.copy_up()
    host.drain(lines(1, 20))
    host.drain(lines(1, 21))
    assert recorder.text() == lines(22) and len(recorder.contents()) == 1
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


def test_a_file_with_another_birth_time_is_known_under_a_name_that_no_source_has(
    host: Host, recorder: Recorder
) -> None:
    """As after overlayfs copied it up, and it was rotated out of the pattern before the next
    start.
    """
    host.drain(lines(20))
    host.copy_up()
    host.append(lines(1, 20))
    host.app.rename(host.logs / "old.log")
    host.drain()
    assert recorder.text() == lines(21) and len(recorder.contents()) == 1
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


def test_another_file_on_the_inode_is_another_file(host: Host, recorder: Recorder) -> None:
    host.drain(lines(20))
    host.copy_up()
    host.app.write_bytes(lines(30, 100))
    host.drain()
    assert recorder.files() == sorted([lines(20), lines(30, 100)]) and len(recorder.contents()) == 2


@pytest.mark.parametrize(
    ("name", "is_sent_again"),
    [
        ("other.log", True),
        ("other-app.log", True),
        ("app.log.1", False),
        ("app-20261124.log", False),
    ],
)
def test_equal_content_on_the_inode_is_another_file_unless_the_name_derives_from_it(
    host: Host, recorder: Recorder, name: str, is_sent_again: bool
) -> None:
    """Two programs may write the same lines, and the second file may get the inode of the first.
    Names as rotation gives them are compared by content, as for any other copy.
    """
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/*.log*"])]
    host.once(lines(20))
    host.copy_up()
    host.app.rename(host.logs / name)
    summary = host.drain()
    assert summary.finished
    expected = [lines(20), lines(20)] if is_sent_again else [lines(20)]
    assert recorder.files() == expected and len(recorder.contents()) == len(expected)
    # what a deleted log got after the latest scan is not known
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, int(is_sent_again))


def test_equal_content_under_the_same_name_on_the_inode_is_another_file(
    host: Host, recorder: Recorder
) -> None:
    """A program that deletes its log and writes the same lines again, where files are not copied
    up: the birth time tells the files apart.
    """
    host.once(lines(20))
    host.copy_up()
    host.may_be_copied_up = lambda _: False
    summary = host.drain()
    assert summary.finished and recorder.files() == [lines(20), lines(20)]
    # what the deleted log got after the latest scan is not known
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 1)


@pytest.mark.skipif(os.getuid() != 0, reason="root may mount")
def test_a_log_that_overlayfs_copies_up_is_the_same_log(tmp_path: Path, recorder: Recorder) -> None:
    host = Host(tmp_path, recorder.url)
    layers = [tmp_path / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir()
    lower, upper, work = layers
    (lower / "app.log").write_bytes(lines(20))
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, str(host.logs)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no overlay can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        host.drain()
        host.drain(lines(1, 20))
        host.drain(lines(1, 21))
    finally:
        subprocess.run(["umount", str(host.logs)], check=True)
    assert recorder.text() == lines(22), "nothing twice"
