"""What inotify tells of folders, and what is done where it tells nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourmark_producer.watch import inotify as module
from hourmark_producer.watch.inotify import FolderNotifications, InotifyWatcher

NOTHING = FolderNotifications(set(), moved=False)


@pytest.fixture
def hints() -> Iterator[InotifyWatcher]:
    hints = InotifyWatcher()
    yield hints
    hints.close()


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def test_a_write_names_its_file_and_nothing_moved(hints: InotifyWatcher, tmp_path: Path) -> None:
    log = tmp_path / "a \udcff.log"
    append(log)
    assert hints.watch({str(tmp_path)})
    assert not hints.watch({str(tmp_path)}), "it is watched already"
    assert hints.take_events() == NOTHING
    append(log)
    assert hints.take_events() == FolderNotifications({str(log)}, moved=False)
    os.truncate(log, 0)
    assert hints.take_events() == FolderNotifications({str(log)}, moved=False)
    assert hints.take_events() == NOTHING


def test_names_that_come_go_and_change_are_hinted(hints: InotifyWatcher, tmp_path: Path) -> None:
    hints.watch({str(tmp_path)})
    log = tmp_path / "a.log"
    log.touch()
    assert hints.take_events().moved
    log.rename(tmp_path / "b.log")
    assert hints.take_events().moved
    (tmp_path / "b.log").unlink()
    assert hints.take_events().moved


def test_a_folder_that_is_moved_away_or_removed_is_watched_again_where_it_comes_back(
    hints: InotifyWatcher, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    for leave in (lambda: folder.rename(tmp_path / "old"), folder.rmdir):
        folder.mkdir()
        assert hints.watch({str(folder)})
        leave()
        assert hints.take_events().moved
        hints.take_events()
        assert not hints.watch({str(folder)}), "it is not there"
    folder.mkdir()
    assert hints.watch({str(folder)})
    append(folder / "a.log")
    assert str(folder / "a.log") in hints.take_events().written


def test_a_folder_of_two_names_is_hinted_by_both_until_neither_is_wanted(
    hints: InotifyWatcher, tmp_path: Path
) -> None:
    folder, link = tmp_path / "logs", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    assert hints.watch({str(folder), str(link)})
    assert not hints.watch({str(folder), str(link)})
    append(folder / "a.log")
    assert hints.take_events().written == {str(folder / "a.log"), str(link / "a.log")}
    hints.watch({str(link)})
    append(folder / "a.log")
    assert hints.take_events().written == {str(link / "a.log")}
    hints.watch(set())
    append(folder / "a.log")
    assert not hints.take_events().written


def test_past_the_limit_the_rest_is_polled_and_that_is_said_once(
    hints: InotifyWatcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "FOLDERS_MAX", 1)
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    hints.watch({str(folder) for folder in folders})
    hints.watch({str(folder) for folder in folders})
    for folder in folders:
        append(folder / "x.log")
    assert hints.take_events().written == {str(folders[0] / "x.log")}
    assert caplog.text.count("max_user_watches") == 1


def test_events_that_were_lost_ask_for_a_full_look(hints: InotifyWatcher, tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in (0, 1)]
    for log in logs:
        log.touch()
    hints.watch({str(tmp_path)})
    files = [os.open(log, os.O_WRONLY | os.O_APPEND) for log in logs]
    for number in range(2 * int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())):
        os.write(
            files[number % 2], b"x"
        )  # in turn, so that no two that follow one another are the same
    assert hints.take_events().moved
    for file in files:
        os.close(file)
