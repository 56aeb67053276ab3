"""A log host: its folders, what is done to them, and a real tailer that is killed and started
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.journals import FakeJournal
from tests.support.tailer_model import births, machine
from tests.support.tailer_model.forms import (
    FOLLOWED,
    SOURCES,
    is_followed,
    joins_lines,
    settings,
    source_of,
)
from tests.support.tailer_model.receiving import JOURNAL, RECEIVED, SYSLOG
from tests.support.tailer_model.services import Services
from tests.support.tailer_model.spawner import Spawner
from tests.support.tailer_model.truth import File, Truth, now_ms

from hourmark.process.file_identity import identify
from hourmark.records.wire import REPORTS_PATH

SETTLES_WITHIN_S: Final = 30.0
DRAINS_WITHIN_S: Final = 60
FILES_OPEN_MIN: Final = 72  # the fewest descriptors that the tailer starts with: eight files


class World:
    """One history's. Paths in the truth are relative to `folder`."""

    def __init__(self, folder: Path, seed: int, spawner: Spawner, planted: str = "") -> None:
        self.rng = random.Random(seed)
        self.truth = Truth()
        self.services = Services(self.truth, self.rng)
        self.folder = folder
        self.doubts: set[str] = set()  # why loss may be unknown, and need not be exact
        self.rereads = 0
        self.done: list[str] = []  # what was done, for whoever reads of a failure
        self._spawner = spawner
        self._planted = planted
        self._pid: int | None = None
        self.range_bytes = 4096
        self.disk_is_full = self.disk_was_full = False
        self.was_reloaded = False  # since it was started
        self._reports_before = 0
        self.journal = FakeJournal(folder / JOURNAL)
        self.in_journal: list[int] = []  # the messages of its entries
        self.journal_is_in_doubt = (
            False  # the entry that was read last may be gone, so losses may be unknown
        )
        self.port = free_udp_port()
        self._has_listened = False  # for syslog, ever
        self._ahead_ms = 0  # of the machine's wall clock
        self.set_clock(0)
        self._copied_up: dict[
            str, int
        ] = {}  # nanoseconds that are added to birth times, by inode and birth time
        for name in FOLLOWED.values():
            (folder / name.rpartition("/")[0]).mkdir(parents=True)

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Services are there; whatever runs is ended."""
        with self.services.running():
            self.configure()
            try:
                yield
            finally:
                if self._pid is not None:
                    self._spawner.end(self._pid, signal.SIGKILL)

    def configure(self) -> None:
        """Write it, as it is to be now."""
        urls = ", ".join(f'"{url}"' for url in self.services.urls)
        self.config.write_text(
            f"""
[tailer]
state_dir = "{self.folder}/state"
service_urls = [{urls}]
range_bytes = {self.range_bytes}
scan_seconds = 0.02
report_seconds = 0.05
backoff_max_seconds = 0.05
{settings(str(self.folder))}
[[tailer.sources]]
name = "{JOURNAL}"
input = "journald"
[[tailer.sources]]
name = "{SYSLOG}"
input = "syslog+udp://127.0.0.1:{self.port}"
"""
        )

    @property
    def state(self) -> Path:
        """The tailer's folder."""
        return self.folder / "state"

    @property
    def config(self) -> Path:
        """The tailer's configuration."""
        return self.folder / "hourmark.toml"

    @property
    def log(self) -> Path:
        """What the tailer said."""
        return self.folder / "tailer.log"

    @property
    def is_running(self) -> bool:
        return self._pid is not None

    @property
    def has_reported(self) -> bool:
        """Whether the tailer was heard of since it was started."""
        return self._reports() > self._reports_before

    @property
    def is_away(self) -> bool:
        """Whether the folder with the logs is not there."""
        return self.services.away_since_ms is not None

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, count: int, *, unfinished: bool = False) -> None:
        """Add lines to a file, made where there is none; perhaps the last one without its end."""
        source = source_of(name)
        with self.services.lock:
            file = self.truth.at(name) or self.truth.create(name, source)
            lines = self.truth.new_lines(count, 200, source)
            content = file.body.missing + b"".join(line.content for line in lines)
            if unfinished and lines:
                content = content[: -self.rng.randrange(1, len(lines[-1].content))]
            since_ms = now_ms()
            opened, at = (
                os.open(self.path(name), os.O_WRONLY | os.O_CREAT, 0o644),
                len(file.body.content),
            )
            try:  # behind what was written: what is reserved for the file is behind that
                half = (
                    self.rng.randrange(len(content) + 1)
                    if not joins_lines(source)
                    else len(content)
                )
                os.pwrite(opened, content[:half], at)
                os.pwrite(opened, content[half:], at + half)
            finally:
                os.close(opened)
            self.stamp(name)
            self.truth.wrote(file, content, lines, since_ms)

    def reserve(self, file: File, size: int) -> None:
        """So many NULs behind what it holds, in whose place lines are written later; with 0 what is
        reserved is given back.
        """
        with self.services.lock:
            assert file.name is not None
            os.truncate(self.path(file.name), len(file.body.content) + size)
            self.stamp(file.name)

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, that of nobody else."""
        with self.services.lock:
            file = self.truth.at(name)
            assert file is not None and self.truth.at(to) is None
            self.path(name).rename(self.path(to))
            file.name = to
            file.is_followed = any(map(is_followed, (to, *file.links)))

    def link(self, file: File, to: str) -> None:
        """One more name for it."""
        with self.services.lock:
            assert file.name is not None and self.truth.at(to) is None
            self.path(to).hardlink_to(self.path(file.name))
            file.links.append(to)

    def unlink(self, file: File) -> None:
        """It goes by its other name."""
        with self.services.lock:
            assert file.name is not None
            self.path(file.name).unlink()
            file.name = file.links.pop()
            file.is_followed = any(map(is_followed, (file.name, *file.links)))

    def truncate(self, file: File, lines: int = 0) -> None:
        """It holds nothing any more; or at once this many new lines."""
        with self.services.lock:
            assert file.name is not None
            with self.path(file.name).open("r+b", buffering=0) as opened:
                opened.truncate(0)
            self.stamp(file.name)
            self.truth.destroyed(file)
            if lines:
                self.write(file.name, lines)

    def delete(self, file: File) -> None:
        """No name leads to it any more."""
        with self.services.lock:
            assert file.name is not None
            for name in (file.name, *file.links):
                self.path(name).unlink()
            file.name = None
            file.body.destroyed = True

    def copy_up(self, file: File) -> None:
        """Give it another birth time, from the next start on."""
        assert self._pid is None and file.name is not None
        opened = os.open(self.path(file.name), os.O_RDONLY)
        try:
            _, inode, birth_ns = identify(opened)
        finally:
            os.close(opened)
        self._copied_up[f"{inode}/{birth_ns}"] = (
            self._copied_up.get(f"{inode}/{birth_ns}", 0) + 1_000_000
        )
        self.path("births.json").write_text(json.dumps(self._copied_up))

    def start(self, *more: str, open_files_max: int = 0, file_bytes_max: int = 0) -> None:
        """A tailer; where it refuses because its checkpoint is lost, it is told to read
        all again.
        """
        assert self._pid is None
        self.disk_is_full, self.was_reloaded = bool(file_bytes_max), False
        self.disk_was_full |= self.disk_is_full
        self._reports_before = self._reports()
        self.services.forget_who_waits()
        self._pid = self._spawner.start(
            ["--config", str(self.config), *more],
            self.log,
            planted=self._planted,
            open_files_max=open_files_max,
            file_bytes_max=file_bytes_max,
            environment=self._environment(),
        )
        self.services.received[SYSLOG].unknown_max += 1

    def reload(self) -> None:
        """Ask it to go on with the configuration as it is now."""
        assert self._pid is not None
        self._spawner.tell(self._pid, signal.SIGHUP)

    def begins_anew(self) -> None:
        """It is about to take its configuration: nobody listens for a moment."""
        self._notice_listening()
        self.was_reloaded = True
        self.services.received[SYSLOG].unknown_max += 2
        self.services.received[SYSLOG].forget()
        self.services.forget_who_waits()

    def tell(self, number: signal.Signals) -> None:
        """A signal that it does not end by."""
        assert self._pid is not None
        self._spawner.tell(self._pid, number)

    def end(self, number: signal.Signals) -> int:
        """The tailer's end, by this signal."""
        assert self._pid is not None
        self._notice_listening()
        pid, self._pid = self._pid, None
        status = self._spawner.end(pid, number)
        self._listens_no_more()
        return status

    def notice_an_end(self) -> None:
        """It may end by itself only where the disk was full."""
        if self._pid is not None and (status := self._spawner.ended(self._pid)) is not None:
            self._pid = None
            self._listens_no_more()
            if not self.disk_is_full:
                self.services.findings.append(f"it ended by itself, with exit status {status}")

    def pause(self) -> None:
        """Nothing, a moment, or some looks."""
        time.sleep(self.rng.choice((0.0, 0.0, 0.01, 0.05, 0.1)))

    def ended_soon(self) -> int | None:
        """How the tailer that was just started ended; None where it is at work."""
        assert self._pid is not None
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while time.monotonic() < deadline and not self.has_reported:
            if (ended := self._spawner.ended(self._pid)) is not None:
                self._pid = None
                self._listens_no_more()
                return ended
            time.sleep(0.01)
        return None

    def set_clock(self, ahead_ms: int) -> None:
        """The wall clock of this host, before or behind that of whoever judges."""
        self._ahead_ms = ahead_ms
        machine.set_clock(self.folder / "clock", ahead_ms)

    def stamp(self, name: str) -> None:
        """A file was written, at this host's time."""
        if self._ahead_ms:
            at_ns = time.time_ns() + self._ahead_ms * 1_000_000
            os.utime(self.path(name), ns=(at_ns, at_ns))

    @property
    def can_receive(self) -> bool:
        """Whether datagrams that are sent now are the tailer's."""
        self._notice_listening()
        return (
            self.is_running
            and not (self.was_reloaded or self.disk_is_full)
            and self.dropped_datagrams() is not None
        )

    def dropped_datagrams(self) -> int | None:
        """How many the kernel has dropped of those that came for the tailer; None where nobody
        listens.
        """
        for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1] == f"0100007F:{self.port:04X}":
                return int(fields[-1])
        return None

    def _notice_listening(self) -> None:
        self._has_listened |= SYSLOG in self.services.claims_ms or (
            self.is_running and self.dropped_datagrams() is not None
        )

    def _listens_no_more(self) -> None:
        """What was under way is one unknown loss of the next run; the first run of all has none."""
        with self.services.lock:
            syslog = self.services.received[SYSLOG]
            syslog.forget()
            syslog.unknown_max += 1  # as where a stop does not read all that has arrived
            if self._has_listened:
                syslog.owe(1, now_ms())

    def _environment(self) -> dict[str, str]:
        return {
            births.VARIABLE: str(self.folder / "births.json"),
            machine.CLOCK: str(self.folder / "clock"),
            "PATH": f"{self.journal.folder}:{os.environ['PATH']}",
        }

    def reloads_and_says(self, what: str) -> bool:
        """Whether it logs this soon, once more than before."""
        before, deadline = self._said(what), time.monotonic() + SETTLES_WITHIN_S
        self.reload()
        while self._said(what) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._said(what) > before

    def _said(self, what: str) -> int:
        return self.log.read_text().count(what)

    def _reports(self) -> int:
        return sum(
            path == REPORTS_PATH
            for recorder in self.services.recorders
            for path in recorder.requests
        )

    def drained(self) -> int:
        """Deliver all there is; the exit status."""
        self.start("--drain")
        assert self._pid is not None
        pid, deadline = self._pid, time.monotonic() + DRAINS_WITHIN_S
        while time.monotonic() < deadline:
            if (ended := self._spawner.ended(pid)) is not None:
                self._pid = None
                return ended
            time.sleep(0.01)
        return 124

    def wait_for_a_look(self, within_s: float = SETTLES_WITHIN_S) -> bool:
        """Until the tailer has said of all sources that it looked at them since now, and has
        delivered what it found.
        """
        since_ms, deadline = now_ms(), time.monotonic() + within_s
        while time.monotonic() < deadline:
            with self.services.lock:
                if all(
                    self.services.claims_ms.get(source, 0) > since_ms
                    for source in (*SOURCES, *RECEIVED)
                ):
                    self._was_looked_at()
                    return True
            self.notice_an_end()
            if self._pid is None:
                return False
            time.sleep(0.01)
        return False

    def _was_looked_at(self) -> None:
        for file in self.truth.named():
            if file.is_followed:
                file.looked_at = True
                file.body.looked_at |= bool(file.body.content)


def free_udp_port() -> int:
    """Return an unused UDP port below the range of ephemeral ports.

    It does not depend on the seed: two histories of one seed may run at the same time, and each
    would receive the other's datagrams.
    """
    rng = random.SystemRandom()
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried,
            contextlib.suppress(OSError),
        ):
            port = rng.randrange(10_000, 30_000)
            tried.bind(("127.0.0.1", port))
            return port


def size_of(path: Path) -> int:
    """0 where there is nothing."""
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0
