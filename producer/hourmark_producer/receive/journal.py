"""systemd's journal as a source, read through `journalctl`: first to its end, then as it grows.

Each entry becomes one line of JSON with common fields and its cursor (`entry_to_line`). The input
is the format of `journalctl --output=json`: strings, arrays of byte values for text that is not
UTF-8, arrays for repeated fields, and null for values that are too large.

Reading resumes after the cursor in the last line on disk, so a kill neither loses nor repeats
entries. The source is caught up only after the journal was read to its end and while `journalctl
--follow` runs, which passes on each entry within moments.

The entry of that cursor is requested again and skipped, to verify that it still exists;
`--after-cursor` would skip whichever entry comes first. If it is gone, because the journal was
vacuumed or created anew, unread entries may be gone too, and an unknown loss is recorded. The
journal is then read from its start, and entries with a known sequence number are skipped.

A running `journalctl` silently skips entries that are removed before it reads them, for example
while a full spool pauses it. journald numbers entries consecutively and removes the oldest first.
After a gap in the numbers the last entry read is therefore looked up: if it still exists, the
missing number belongs to an entry that this user may not read; if not, an unknown loss is recorded.
The same check follows a pause and the start of `--follow`.
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
from hourmark_producer.receive.receiver import READ_BYTES, ReadCallback

if TYPE_CHECKING:
    from hourmark_producer.receive.receiver import SourceReceiver

_NUMBER_FIELDS: Final = (("priority", "PRIORITY"), ("pid", "_PID"))
_DIGITS_MAX: Final = 10  # a sender chooses PRIORITY freely; process ids have at most 7 digits
_NUMBER: Final = re.compile(r"(?:^|;)s=([0-9a-f]+);i=([0-9a-f]{1,16})(?:;|$)")
_CURSOR: Final = re.compile(rb'(?<!\\)"__CURSOR"\s*:\s*"([!#-\[\]-~]+)"')
_TEXTS: Final = (
    ("host", "_HOSTNAME"),
    ("unit", "_SYSTEMD_UNIT"),
    ("identifier", "SYSLOG_IDENTIFIER"),
    ("message", "MESSAGE"),
    ("cursor", "__CURSOR"),
)


def entry_to_line(entry: bytes) -> bytes:
    """Convert a journal entry to one line of JSON that ends with a newline.

    The line has the fields `time`, `priority`, `pid`, `host`, `unit`, `identifier`, `message` and
    `cursor`. Fields that the entry does not contain are omitted.

    Args:
        entry: One entry in the format of `journalctl --output=json`.

    Raises:
        ValueError: The entry is not a JSON object with a cursor and a receive time.
    """
    fields = json.loads(entry)
    if not isinstance(fields, dict) or not isinstance(fields.get("__CURSOR"), str):
        raise ValueError(f"not a journal entry: {entry[:100]!r}")
    said: dict[str, Any] = {"time": _receive_time(fields)}
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


def line_cursor(line: bytes) -> str:
    """Return the journal cursor in a line that `entry_to_line` created.

    Args:
        line: One line of JSON.

    Returns:
        The cursor, which identifies the entry in the journal.

    Raises:
        ValueError: The line is not JSON.
        KeyError: The line has no cursor.
        TypeError: The line is not a JSON object.
    """
    return str(json.loads(line)["cursor"])


def parse_sequence_number(cursor: str) -> tuple[str, int] | None:
    """Extract the sequence id and the sequence number from a journal cursor.

    In a cursor (sd_journal_get_cursor(3)), `s=` is the sequence id and `i=` the number, both
    hexadecimal. Numbers increase within a sequence. A new sequence begins when the journal is
    recreated. A volatile journal is recreated at each boot.

    Args:
        cursor: Cursor of a journal entry.

    Returns:
        The sequence id as hexadecimal text and the sequence number; None if the cursor does not
        contain both.
    """
    match = _NUMBER.search(cursor)
    return (match[1], int(match[2], 16)) if match else None


def find_cursor(text: bytes) -> str:
    """Find the journal cursor in a fragment of an entry's JSON text.

    Args:
        text: Part of the output of `journalctl --output=json`.

    Returns:
        The cursor, which identifies the entry; an empty string if the fragment contains none.
    """
    match = _CURSOR.search(text)
    return match[1].decode() if match else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _receive_time(fields: dict[str, Any]) -> str:
    micros = int(_text(fields.get("__REALTIME_TIMESTAMP")))
    at = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z"


def _text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(byte, int) for byte in value):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else ""


_AGAIN_S: Final = 1.0  # delay before journalctl is restarted after a failure
_STOP_S: Final = 5.0
_ASK_S: Final = 30.0
_QUIET_S: Final = (
    1.0  # without output for so long, nothing more is expected from journal files that were removed
)
_OPTIONS: Final = ("--output=json", "--no-pager", "--quiet")
_SEQUENCES_MAX: Final = 1000  # the latest
_SINCE: Final = (
    "since"  # file next to the segments: where reading began, until the last line contains a cursor
)
# file next to the segments: JSON, the highest number written per sequence, updated when one begins
_NUMBERS: Final = "numbers"
ENTRY_BYTES_MAX: Final = 64 << 20  # of an entry's JSON; a longer one is skipped
_ENDS_BYTES: Final = (
    1 << 16
)  # first and last bytes kept of such an entry; one of them contains the cursor
_LOG = logging.getLogger(__name__)


class JournalInput:
    """Receives the entries of systemd's journal through `journalctl`.

    A `SourceReceiver` calls its methods.

    Args:
        read_from: Where the first run begins: `start`, `end` or an ISO 8601 time.
        program: Path or name of the `journalctl` executable.
    """

    loses_while_stopped = False
    has_end = True
    is_resumable = True

    def __init__(self, read_from: str = "start", program: str = "journalctl") -> None:
        self._read_from = read_from
        self._since = ""
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = _EntryBuffer()
        self._cursor = ""
        self._awaited = ""  # the cursor that the first entry must have
        self._is_lost = (
            False  # the entry of the cursor is gone: read all entries that are not known
        )
        self._numbers: dict[str, int] = {}
        self._has_new_sequence = False  # since the numbers were saved
        self._number: int | None = None  # of the last entry from this journalctl process
        self._is_verified = False  # the entry of the cursor existed after the latest read
        self._needs_check = False  # look the entry up although no number is missing
        self._quiet_since_s = 0.0
        self._follows = False
        self._retry_at_s = 0.0

    @property
    def is_caught_up(self) -> bool:
        """Return whether all existing journal entries were read and new entries are followed."""
        return (
            self._process is not None
            and self._follows
            and not self._awaited
            and not self._needs_check
        )

    def open(self, receiver: SourceReceiver) -> None:
        self._receiver = receiver
        last = receiver.segments.last_line()
        try:
            self._cursor = line_cursor(last) if last else ""
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"source {receiver.source}: the last line in {receiver.segments.folder} "
                "is not from the journal, so the position to continue from is unknown; "
                "give the journal's source a name of its own"
            ) from error
        self._numbers = _load_sequence_numbers(receiver.segments.folder / _NUMBERS)
        self._remember(self._cursor)
        if not self._cursor and self._read_from != "start":
            self._since = _load_start_time(
                receiver.segments.folder / _SINCE, self._read_from, receiver.clock.now_ms()
            )
        try:
            self._start(follow=False)
        except OSError as error:
            raise ConfigError(
                f"source {receiver.source}: {self._program} cannot be run "
                f"({error.strerror}); input = 'journald' needs it"
            ) from error

    def tick(self, now_s: float) -> None:
        self._save_sequence_numbers()  # the receiver has written all lines of this round
        if self._process is None and now_s >= self._retry_at_s:
            try:
                self._start(follow=False)
            except OSError as error:
                self._warn_and_retry_later(f"cannot be run: {error.strerror}")
        elif self._receiver.is_paused:
            self._needs_check, self._quiet_since_s = True, now_s
        elif self._needs_check:
            self._is_verified = False
            if self._is_last_entry_present():
                self._needs_check = bool(self._awaited)
            elif now_s - self._quiet_since_s > _QUIET_S:
                self.close()  # and restart from its position

    def close(self) -> None:
        if self._process is not None:
            self._receiver.unwatch(self._descriptor)
            self._process.terminate()
            self._wait_for_process()

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
        self._descriptor, self._follows, self._buffer = (
            self._process.stdout.fileno(),
            follow,
            _EntryBuffer(),
        )
        self._number, self._needs_check, self._quiet_since_s = (
            None,
            follow,
            self._receiver.clock.monotonic_s(),
        )
        os.set_blocking(self._descriptor, False)
        self._receiver.watch(self._descriptor, ReadCallback(self._read))

    def _read(self) -> bool:
        self._is_verified = False
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            self._receiver.unwatch(self._descriptor)
            self._on_process_end(*self._wait_for_process())
            return False
        self._quiet_since_s = self._receiver.clock.monotonic_s()
        try:
            for entry in self._buffer.feed(data):
                if not self._receive_entry(entry):
                    return False
        except ValueError as error:
            self.close()
            self._warn_and_retry_later(f"wrote output that is {error}")
            return False
        return len(data) < READ_BYTES

    def _receive_entry(self, entry: bytes | OversizedEntry) -> bool:
        if isinstance(entry, OversizedEntry):
            cursor, line = find_cursor(entry.ends), b""
        else:
            line = entry_to_line(entry)
            cursor = line_cursor(line)
        awaited, self._awaited = self._awaited, ""
        if awaited and cursor != awaited:
            self.close()
            self._read_all()
            return False
        is_next = self._is_next(cursor)
        if awaited or self._is_known(cursor):
            return True
        if not is_next and not self._is_last_entry_present():
            self.close()  # and restart from its position
            return False
        if isinstance(entry, OversizedEntry):
            self._receiver.losses.add(
                f"entries of the journal longer than {ENTRY_BYTES_MAX} bytes", lost_bytes=entry.size
            )
        else:
            self._receiver.receive(line)
        if cursor:
            self._cursor, self._is_lost = cursor, False
            self._remember(cursor)
        return True

    def _is_next(self, cursor: str) -> bool:
        if (number := parse_sequence_number(cursor)) is None:
            return True
        before, self._number = self._number, number[1]
        return before is None or self._number == before + 1

    def _is_last_entry_present(self) -> bool:
        # if the last entry read is still there, no later one was removed: the oldest go first
        if not self._cursor or self._is_lost or self._is_verified:
            return True
        command = [self._program, *_OPTIONS, f"--cursor={self._cursor}", "--lines=1"]
        try:
            said = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return False
        self._is_verified = find_cursor(said) == self._cursor
        return self._is_verified

    def _is_known(self, cursor: str) -> bool:
        number = parse_sequence_number(cursor)
        return number is not None and number[1] <= self._numbers.get(number[0], -1)

    def _remember(self, cursor: str) -> None:
        if (number := parse_sequence_number(cursor)) is None:
            return
        sequence, at = number
        self._has_new_sequence |= sequence not in self._numbers
        self._numbers[sequence] = max(at, self._numbers.get(sequence, 0))

    def _save_sequence_numbers(self) -> None:
        # The next run skips entries up to a saved number, so all received lines must be on disk
        # first.
        if self._has_new_sequence and not self._receiver.is_paused:
            kept = dict(list(self._numbers.items())[-_SEQUENCES_MAX:])
            with contextlib.suppress(
                OSError
            ):  # then entries may be read twice if the last one is removed
                write_durably(self._receiver.segments.folder / _NUMBERS, json.dumps(kept).encode())
                self._has_new_sequence = False

    def _read_all(self) -> None:
        self._receiver.losses.add(
            "the journal was vacuumed or created anew before all of it was read", unknown=1
        )
        _LOG.warning(
            "source %s: the last journal entry read (%s) no longer exists; all unread "
            "entries are read from the start of the journal",
            self._receiver.source,
            self._cursor,
        )
        self._is_lost = True
        try:
            self._start(follow=False)
        except OSError as error:
            self._warn_and_retry_later(f"cannot be run: {error.strerror}")

    def _on_process_end(self, status: int, said: str) -> None:
        if status or self._follows:
            self._warn_and_retry_later(f"exited with status {status}: {said or 'no error output'}")
            return
        self._receiver.throttle.resolve(f"journal {self._receiver.source}")
        if self._awaited or (
            self._needs_check and not self._is_last_entry_present()
        ):  # neither the entry nor any later one exists
            self._read_all()
            return
        if self._receiver.to_end:
            self._receiver.finish()
            return
        try:
            self._start(follow=True)
        except OSError as error:
            self._warn_and_retry_later(f"cannot be run: {error.strerror}")

    def _wait_for_process(self) -> tuple[int, str]:
        process, self._process = self._process, None
        assert process is not None, "it was started"
        try:
            _, said = process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        return process.returncode, said.decode(errors="replace").strip()[-200:]

    def _warn_and_retry_later(self, what: str) -> None:
        self._retry_at_s = self._receiver.clock.monotonic_s() + _AGAIN_S
        self._receiver.throttle.warn(
            f"journal {self._receiver.source}",
            f"source {self._receiver.source}: {self._program} {what}; it will be restarted",
        )


class OversizedEntry(NamedTuple):
    """A journal entry that exceeds the maximum size.

    Attributes:
        ends: The first bytes of the entry, followed by its last bytes. The cursor (position in the
            journal) can be found in them. The bytes in between are discarded.
        size: Size of the entry in bytes.
    """

    ends: bytes
    size: int


class _EntryBuffer:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        self._begin = b""  # start of an oversized entry

    def feed(self, data: bytes) -> Iterator[bytes | OversizedEntry]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._pop_entry()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._count += len(part)
        if self._count > ENTRY_BYTES_MAX:
            content = b"".join(self._parts)
            self._begin = self._begin or content[:_ENDS_BYTES]
            self._parts = [content[-_ENDS_BYTES:]]

    def _pop_entry(self) -> bytes | OversizedEntry:
        content, count, begin = b"".join(self._parts), self._count, self._begin
        self._parts, self._count, self._begin = [], 0, b""
        return OversizedEntry(begin + b" " + content, count) if begin else content


def _load_sequence_numbers(file: Path) -> dict[str, int]:
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return {str(sequence): int(number) for sequence, number in found.items()}


def _load_start_time(file: Path, read_from: str, now_ms: int) -> str:
    # The time is stored in the file, so that it is determined only once.
    if not file.exists():
        at_ms = (
            now_ms
            if read_from == "end"
            else round(datetime.fromisoformat(read_from).timestamp() * 1000)
        )
        write_durably(file, f"@{at_ms // 1000}.{at_ms % 1000:03}".encode())
    return file.read_text()
