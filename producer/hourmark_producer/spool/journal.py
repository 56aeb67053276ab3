"""systemd's journal, read by `journalctl`: first to its end, then as it grows.

It can be asked again, from a cursor on: the one in the last line that is on disk. So nothing of it is lost or doubled by a kill.
It is called caught up only once it was read to its end, and while journalctl follows it, which hands on each entry within
moments.
"""

from __future__ import annotations

import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hourmark.durable import write_durably
from hourmark.errors import ConfigError
from hourmark_producer.spool.journal_entry import cursor_of, entry_line
from hourmark_producer.spool.receiver import READ_BYTES, Polled

if TYPE_CHECKING:
    from hourmark_producer.spool.receiver import Receiver

_AGAIN_S: Final = 1.0  # after journalctl ended otherwise than well
_STOP_S: Final = 5.0
_SINCE: Final = "since"  # beside the segments: where reading began, as long as no line tells where to go on


class Journal:
    """All of it, or from `read_from` on, as of a source. `program`: another one, in tests."""

    is_lost_in_between = False
    has_end = True
    resumes = True

    def __init__(self, read_from: str = "start", program: str = "journalctl") -> None:
        self._read_from = read_from
        self._since = ""
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._cursor = ""
        self._follows = False
        self._again_s = 0.0

    @property
    def is_at_hand(self) -> bool:
        """Whether it was read to its end, and is followed."""
        return self._process is not None and self._follows

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        last = receiver.segments.last_line()
        try:
            self._cursor = cursor_of(last) if last else ""
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"source {receiver.source}: the last line in {receiver.segments.folder} is none of the journal, so it is not "
                "known where to go on; give the source of the journal a name of its own"
            ) from error
        if not self._cursor and self._read_from != "start":
            self._since = _beginning(receiver.segments.folder / _SINCE, self._read_from, receiver.clock.now_ms())
        try:
            self._start(follow=False)
        except OSError as error:
            raise ConfigError(
                f"source {receiver.source}: {self._program} cannot be run ({error.strerror}); input = 'journald' needs it"
            ) from error

    def tend(self, now_s: float) -> None:
        if self._process is None and now_s >= self._again_s:
            try:
                self._start(follow=False)
            except OSError as error:
                self._fail(f"cannot be run: {error.strerror}")

    def close(self) -> None:
        if self._process is not None:
            self._receiver.unwatch(self._descriptor)
            self._process.terminate()
            self._end()

    def _start(self, *, follow: bool) -> None:
        command = [self._program, "--output=json", "--all", "--no-pager", "--quiet", "--no-tail"]
        if self._cursor or self._since:
            command.append(f"--after-cursor={self._cursor}" if self._cursor else f"--since={self._since}")
        command += ["--follow"] if follow else []
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdout is not None, "it is a pipe"
        self._descriptor, self._follows, self._rest = self._process.stdout.fileno(), follow, b""
        os.set_blocking(self._descriptor, False)
        self._receiver.watch(self._descriptor, Polled(self._read))

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            self._receiver.unwatch(self._descriptor)
            self._ended(*self._end())
            return False
        *entries, self._rest = (self._rest + data).split(b"\n")
        try:
            for entry in entries:
                line = entry_line(entry)
                self._receiver.receive(line)
                self._cursor = cursor_of(line)
        except ValueError as error:
            self.close()
            self._fail(f"said what is {error}")
            return False
        return len(data) < READ_BYTES

    def _ended(self, status: int, said: str) -> None:
        if status or self._follows:
            self._fail(f"ended with status {status}: {said or 'it said nothing'}")
            return
        self._receiver.throttle.over(f"journal {self._receiver.source}")
        if self._receiver.to_end:
            self._receiver.end()
            return
        try:
            self._start(follow=True)
        except OSError as error:
            self._fail(f"cannot be run: {error.strerror}")

    def _end(self) -> tuple[int, str]:
        """Its status, and what it said last."""
        process, self._process = self._process, None
        assert process is not None, "it was started"
        try:
            _, said = process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        return process.returncode, said.decode(errors="replace").strip()[-200:]

    def _fail(self, what: str) -> None:
        self._again_s = self._receiver.clock.monotonic_s() + _AGAIN_S
        self._receiver.throttle.warn(
            f"journal {self._receiver.source}", f"source {self._receiver.source}: {self._program} {what}. It is tried again"
        )


def _beginning(file: Path, read_from: str, now_ms: int) -> str:
    """As journalctl takes it, `@` and Unix seconds. A first look decides it, and the next ones go by it until there is a line."""
    if not file.exists():
        at_ms = now_ms if read_from == "end" else round(datetime.fromisoformat(read_from).timestamp() * 1000)
        write_durably(file, f"@{at_ms // 1000}.{at_ms % 1000:03}".encode())
    return file.read_text()
