"""systemd's journal, read by `journalctl`: first to its end, then as it grows.

An entry of systemd's journal as a line: JSON, with the fields that everybody asks for. Pure.

The form that is read is that of `journalctl --output=json`: strings, numbers of bytes where a value
is no UTF-8, lists where a field is there more than once, null where a value was too large. The line
ends with the entry's cursor: from the last line on disk the journal is read on.

systemd's journal, read by `journalctl`: first to its end, then as it grows.

It can be asked again, from a cursor on: the one in the last line that is on disk. So nothing of it
is lost or doubled by a kill. It is called caught up only once it was read to its end, and while
journalctl follows it, which hands on each entry within moments.

The entry of that cursor must be there still, so it is asked for, too, and passed over
(`--after-cursor` passes over whichever entry comes first). Where it is gone, by vacuuming or
because the journal was made again, entries may have gone unread: loss is unknown. Then the journal
is read from its start, as a new one may be earlier than the old by its clock. Entries that are
known are passed over: those of a sequence (`number_of`) up to the number that was read of it.

A journalctl that runs passes over entries that are removed before it reads them, as while a full
spool holds it back, and says nothing. journald numbers all entries in one row and removes the
oldest first. So where a number is left out, the entry that was read last is asked for: if it is
there, the number is of an entry that the reader may not see; if not, loss is unknown, as above. The
same is asked where nothing may come that has a number: once the source was held, and when following
begins.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hourmark.errors import ConfigError
from hourmark.process.durable import write_durably
from hourmark_producer.receive.receiver import READ_BYTES, Polled

if TYPE_CHECKING:
    from hourmark_producer.receive.receiver import Receiver

_NUMBER_FIELDS: Final = (("priority", "PRIORITY"), ("pid", "_PID"))
_DIGITS_MAX: Final = 10  # a sender chooses PRIORITY freely; process ids have 7 digits
_NUMBER: Final = re.compile(r"(?:^|;)s=([0-9a-f]+);i=([0-9a-f]{1,16})(?:;|$)")
_CURSOR: Final = re.compile(rb'(?<!\\)"__CURSOR"\s*:\s*"([!#-\[\]-~]+)"')
_TEXTS: Final = (
    ("host", "_HOSTNAME"),
    ("unit", "_SYSTEMD_UNIT"),
    ("identifier", "SYSLOG_IDENTIFIER"),
    ("message", "MESSAGE"),
    ("cursor", "__CURSOR"),
)


def entry_line(entry: bytes) -> bytes:
    """With its newline. ValueError where it is no entry."""
    fields = json.loads(entry)
    if not isinstance(fields, dict) or not isinstance(fields.get("__CURSOR"), str):
        raise ValueError(f"no entry of a journal: {entry[:100]!r}")
    said: dict[str, Any] = {"time": _time(fields)}
    said |= {
        name: int(value)
        for name, field in _NUMBER_FIELDS
        if _is_number(value := _text(fields.get(field)))
    }
    said |= {name: value for name, field in _TEXTS if (value := _text(fields.get(field)))}
    return (
        json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(
            errors="backslashreplace"
        )
        + b"\n"
    )


def cursor_of(line: bytes) -> str:
    """Of a line that `entry_line` made; ValueError."""
    return str(json.loads(line)["cursor"])


def number_of(cursor: str) -> tuple[str, int] | None:
    """Return the id of the sequence that an entry is of, and its number there; None where the
    cursor does not say.

    A cursor is what sd_journal_get_cursor(3) gives: `s=` the id, `i=` the number, both hexadecimal,
    then boot and times. Numbers of one sequence rise; another sequence begins where the journal is
    made again, as by a volatile one with each boot.
    """
    match = _NUMBER.search(cursor)
    return (match[1], int(match[2], 16)) if match else None


def cursor_within(parts: bytes) -> str:
    """Return the cursor in a part of an entry's JSON; empty where it is not there.

    Quotes within texts are escaped.
    """
    match = _CURSOR.search(parts)
    return match[1].decode() if match else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _time(fields: dict[str, Any]) -> str:
    """When the journal received it, to the microsecond."""
    micros = int(_text(fields.get("__REALTIME_TIMESTAMP")))
    at = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z"


def _text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(byte, int) for byte in value):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else ""


_AGAIN_S: Final = 1.0  # after journalctl ended otherwise than well
_STOP_S: Final = 5.0
_ASK_S: Final = 30.0
_QUIET_S: Final = (
    1.0  # then nothing more is expected of what it still had of files that were removed
)
_OPTIONS: Final = ("--output=json", "--no-pager", "--quiet")
_SEQUENCES_MAX: Final = 1000  # the latest
_SINCE: Final = (
    "since"  # beside the segments: where reading began, as long as no line tells where to go on
)
# beside the segments: JSON, by sequence the highest number that was read, at the end of each
_NUMBERS: Final = "numbers"
ENTRY_BYTES_MAX: Final = 64 << 20  # of an entry's JSON; a longer one is passed over
_ENDS_BYTES: Final = (
    1 << 16
)  # of such an entry these first and last ones are kept: the cursor is in either
_LOG = logging.getLogger(__name__)


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
        self._rest = _Rest()
        self._cursor = ""
        self._awaited = ""  # the cursor of the entry that must come first
        self._is_lost = False  # the entry of the cursor is gone: all is read that is not known
        self._numbers: dict[str, int] = {}
        self._number: int | None = None  # of the entry that this process said last
        self._is_sure = False  # the entry of the cursor was there after the latest read
        self._is_doubted = False  # it is to be asked for, though no number was left out
        self._quiet_since_s = 0.0
        self._follows = False
        self._again_s = 0.0

    @property
    def is_at_hand(self) -> bool:
        """Whether it was read to its end, and is followed from there."""
        return (
            self._process is not None
            and self._follows
            and not self._awaited
            and not self._is_doubted
        )

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        last = receiver.segments.last_line()
        try:
            self._cursor = cursor_of(last) if last else ""
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"source {receiver.source}: the last line in {receiver.segments.folder} is none "
                "of the journal, so it is not "
                "known where to go on; give the source of the journal a name of its own"
            ) from error
        self._numbers = _read_numbers(receiver.segments.folder / _NUMBERS)
        self._know(self._cursor)
        if not self._cursor and self._read_from != "start":
            self._since = _beginning(
                receiver.segments.folder / _SINCE, self._read_from, receiver.clock.now_ms()
            )
        try:
            self._start(follow=False)
        except OSError as error:
            raise ConfigError(
                f"source {receiver.source}: {self._program} cannot be run "
                f"({error.strerror}); input = 'journald' needs it"
            ) from error

    def tend(self, now_s: float) -> None:
        if self._process is None and now_s >= self._again_s:
            try:
                self._start(follow=False)
            except OSError as error:
                self._fail(f"cannot be run: {error.strerror}")
        elif self._receiver.is_held:
            self._is_doubted, self._quiet_since_s = True, now_s
        elif self._is_doubted:
            self._is_sure = False
            if self._is_there():
                self._is_doubted = bool(self._awaited)
            elif now_s - self._quiet_since_s > _QUIET_S:
                self.close()  # and begin again at its place

    def close(self) -> None:
        if self._process is not None:
            self._receiver.unwatch(self._descriptor)
            self._process.terminate()
            self._end()

    def _start(self, *, follow: bool) -> None:
        command = [self._program, *_OPTIONS, "--all", "--no-tail"]
        self._awaited = "" if self._is_lost else self._cursor
        if self._awaited:
            command.append(f"--cursor={self._awaited}")
        elif self._since and not self._is_lost:
            command.append(f"--since={self._since}")
        command += ["--follow"] if follow else []
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdout is not None, "it is a pipe"
        self._descriptor, self._follows, self._rest = self._process.stdout.fileno(), follow, _Rest()
        self._number, self._is_doubted, self._quiet_since_s = (
            None,
            follow,
            self._receiver.clock.monotonic_s(),
        )
        os.set_blocking(self._descriptor, False)
        self._receiver.watch(self._descriptor, Polled(self._read))

    def _read(self) -> bool:
        self._is_sure = False
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            self._receiver.unwatch(self._descriptor)
            self._ended(*self._end())
            return False
        self._quiet_since_s = self._receiver.clock.monotonic_s()
        try:
            for entry in self._rest.feed(data):
                if not self._take(entry):
                    return False
        except ValueError as error:
            self.close()
            self._fail(f"said what is {error}")
            return False
        return len(data) < READ_BYTES

    def _take(self, entry: bytes | Passed) -> bool:
        """Receive an entry that is not known; whether the next one follows.

        ValueError where it is none.
        """
        if isinstance(entry, Passed):
            cursor, line = cursor_within(entry.ends), b""
        else:
            line = entry_line(entry)
            cursor = cursor_of(line)
        awaited, self._awaited = self._awaited, ""
        if awaited and cursor != awaited:
            self.close()
            self._read_all()
            return False
        is_next = self._is_next(cursor)
        if awaited or self._is_known(cursor):
            return True
        if not is_next and not self._is_there():
            self.close()  # and begin again at its place
            return False
        if isinstance(entry, Passed):
            self._receiver.losses.add(
                f"entries of the journal longer than {ENTRY_BYTES_MAX} bytes", lost_bytes=entry.size
            )
        else:
            self._receiver.receive(line)
        if cursor:
            self._cursor, self._is_lost = cursor, False
            self._know(cursor)
        return True

    def _is_next(self, cursor: str) -> bool:
        """Whether no number was left out before this entry."""
        if (number := number_of(cursor)) is None:
            return True
        before, self._number = self._number, number[1]
        return before is None or self._number == before + 1

    def _is_there(self) -> bool:
        """Whether the entry that was read last is known to be in the journal: then none behind it
        was removed.
        """
        if not self._cursor or self._is_lost or self._is_sure:
            return True
        command = [self._program, *_OPTIONS, f"--cursor={self._cursor}", "--lines=1"]
        try:
            said = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return False
        self._is_sure = cursor_within(said) == self._cursor
        return self._is_sure

    def _is_known(self, cursor: str) -> bool:
        number = number_of(cursor)
        return number is not None and number[1] <= self._numbers.get(number[0], -1)

    def _know(self, cursor: str) -> None:
        """Remember the entry's number; durably where a sequence begins, as the last line tells of
        the latest one only.
        """
        if (number := number_of(cursor)) is None:
            return
        sequence, at = number
        is_new = sequence not in self._numbers
        self._numbers[sequence] = max(at, self._numbers.get(sequence, 0))
        if is_new:
            kept = dict(list(self._numbers.items())[-_SEQUENCES_MAX:])
            with contextlib.suppress(
                OSError
            ):  # then a journal whose last entry is gone may be read twice
                write_durably(self._receiver.segments.folder / _NUMBERS, json.dumps(kept).encode())

    def _read_all(self) -> None:
        """The entry that was read last is gone: report that others may be, too, and read all that
        is not known.
        """
        self._receiver.losses.add(
            "the journal was vacuumed, or made again, before all of it was read", unknown=1
        )
        _LOG.warning(
            "source %s: the entry of the journal that was read last (%s) is not in it any "
            "more; all entries that were not read "
            "are read from the start of the journal",
            self._receiver.source,
            self._cursor,
        )
        self._is_lost = True
        try:
            self._start(follow=False)
        except OSError as error:
            self._fail(f"cannot be run: {error.strerror}")

    def _ended(self, status: int, said: str) -> None:
        if status or self._follows:
            self._fail(f"ended with status {status}: {said or 'it said nothing'}")
            return
        self._receiver.throttle.resolve(f"journal {self._receiver.source}")
        if self._awaited or (
            self._is_doubted and not self._is_there()
        ):  # nothing is behind its place, nor is it itself
            self._read_all()
            return
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
            f"journal {self._receiver.source}",
            f"source {self._receiver.source}: {self._program} {what}. It is tried again",
        )


class Passed(NamedTuple):
    """An entry that is too long. `ends`: its first and last bytes; `size`: all of them."""

    ends: bytes
    size: int


class _Rest:
    """What has come of an entry that is not whole yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        self._begin = b""  # of one that is too long

    def feed(self, data: bytes) -> Iterator[bytes | Passed]:
        """Yield entries that are whole by now."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._whole()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._count += len(part)
        if self._count > ENTRY_BYTES_MAX:
            content = b"".join(self._parts)
            self._begin = self._begin or content[:_ENDS_BYTES]
            self._parts = [content[-_ENDS_BYTES:]]

    def _whole(self) -> bytes | Passed:
        content, count, begin = b"".join(self._parts), self._count, self._begin
        self._parts, self._count, self._begin = [], 0, b""
        return Passed(begin + b" " + content, count) if begin else content


def _read_numbers(file: Path) -> dict[str, int]:
    """Return what an earlier run noted; nothing where none did, as versions up to 0.3.0."""
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return {str(sequence): int(number) for sequence, number in found.items()}


def _beginning(file: Path, read_from: str, now_ms: int) -> str:
    """As journalctl takes it, `@` and Unix seconds.

    A first look decides it, and the next ones go by it until there is a line.
    """
    if not file.exists():
        at_ms = (
            now_ms
            if read_from == "end"
            else round(datetime.fromisoformat(read_from).timestamp() * 1000)
        )
        write_durably(file, f"@{at_ms // 1000}.{at_ms % 1000:03}".encode())
    return file.read_text()
