"""Each way to rotate, while the tailer runs and while it is down: every line once, and nothing
unknown.

Without birth times a file on the inode of one that was packed cannot be told from one that was
truncated.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.process.file_identity import identify

ROUNDS = 5


def by_rename(app: Path, number: int) -> None:
    for old in range(number, 0, -1):
        app.with_name(f"app.log.{old}").rename(app.with_name(f"app.log.{old + 1}"))
    app.rename(app.with_name("app.log.1"))


def by_date(app: Path, number: int) -> None:
    app.rename(app.with_name(f"app.log-2026112{number}"))


def by_date_before_the_extension(app: Path, number: int) -> None:
    app.rename(app.with_name(f"app-2026112{number}.log"))


def by_hard_link(app: Path, number: int) -> None:
    app.with_name(f"app.log.{number}").hardlink_to(app)
    app.unlink()


def packed_at_once(app: Path, number: int) -> None:
    app.rename(app.with_name("app.log.1"))
    pack(app.with_name("app.log.1"), app.with_name(f"app.log.{number}.gz"))


def packed_a_round_later(app: Path, number: int) -> None:
    if number:
        pack(app.with_name("app.log.1"), app.with_name(f"app.log.{number + 1}.gz"))
    app.rename(app.with_name("app.log.1"))


def pack(plain: Path, packed: Path) -> None:
    with gzip.open(packed, "wb") as file:
        file.write(plain.read_bytes())
    plain.unlink()


WAYS = (
    by_rename,
    by_date,
    by_date_before_the_extension,
    by_hard_link,
    packed_at_once,
    packed_a_round_later,
)
every_way = pytest.mark.parametrize("rotate", WAYS, ids=lambda way: way.__name__)
patterns = pytest.mark.parametrize("pattern", ["app.log*", "app.log"], ids=["wide", "narrow"])
births = pytest.mark.parametrize("births", [True, False], ids=["birth times", "no birth times"])
Rotate = Callable[[Path, int], None]


def prepare(host: Host, pattern: str, births: bool) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/{pattern}"])]
    if not births:
        host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=0)


def once(recorder: Recorder, count: int) -> None:
    assert sorted(recorder.text().splitlines()) == lines(count).splitlines()


@pytest.mark.slow
@every_way
@patterns
@births
def test_while_it_runs(
    host: Host, recorder: Recorder, rotate: Rotate, pattern: str, births: bool
) -> None:
    prepare(host, pattern, births)
    with host.running():
        for number in range(ROUNDS):
            host.append(lines(100, number * 200))
            recorder.wait_text(lines(number * 200 + 100))
            host.append(lines(100, number * 200 + 100))
            rotate(host.app, number)
        recorder.wait_text(lines(ROUNDS * 200))
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is read")
    once(recorder, ROUNDS * 200)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


@every_way
@patterns
@births
def test_while_it_is_down(
    host: Host, recorder: Recorder, rotate: Rotate, pattern: str, births: bool
) -> None:
    prepare(host, pattern, births)
    for number in range(ROUNDS):
        host.drain(lines(100, number * 200))
        host.append(lines(100, number * 200 + 100))
        rotate(host.app, number)
    summary = host.drain(lines(10, ROUNDS * 200))
    once(recorder, ROUNDS * 200 + 10)
    assert summary.lost_bytes == 0
    assert summary.unknown_losses == 0 or (
        not births and rotate in (packed_at_once, packed_a_round_later)
    )


@pytest.mark.slow
@births
def test_a_link_to_the_file_of_the_day(host: Host, recorder: Recorder, births: bool) -> None:
    prepare(host, "app.log", births)
    dated = host.logs.parent / "dated"
    dated.mkdir()
    for number in range(ROUNDS):
        host.append(lines(100, number * 200), dated / f"{number}.log")
        host.app.unlink(missing_ok=True)
        host.app.symlink_to(dated / f"{number}.log")
        host.drain()
        host.append(lines(100, number * 200 + 100), dated / f"{number}.log")
    host.drain()
    once(recorder, ROUNDS * 200)


def test_faster_than_it_is_read(host: Host, recorder: Recorder) -> None:
    """Ten rotations with compression while nothing is acknowledged: files are held open until they
    are read.
    """
    prepare(host, "app.log", True)
    recorder.behaviour = lambda _: 503
    with host.running() as tailer:
        for number in range(10):
            host.append(lines(100, number * 100))
            at = host.app.stat()
            wait_for(
                lambda at=at: tailer.files.at_inode(at.st_dev, at.st_ino) is not None,  # type: ignore[misc]
                "it is seen",
            )
            packed_at_once(host.app, number)
        recorder.behaviour = lambda _: 200
        recorder.wait_text(lines(1000))
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is read")
    once(recorder, 1000)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)
