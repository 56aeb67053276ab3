"""Log files that grow and are rotated, and the thread that writes them on schedule.

For each file, the size and digest of the written content are recorded for the judge.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark_verify.judge.expectations import WriterRecord


class RecordedLog:
    """A rotatable log file that records the size and digest of all content written to it.

    Sizes and digests are computed when bytes are written; nothing is read back from the files.
    Rotated files are named `path.1`, `path.2` and so on, in order of rotation.

    Args:
        path: Path of the current file; its folder is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rotated: list[WriterRecord] = []
        self._begin_file()

    @property
    def records(self) -> list[WriterRecord]:
        """Size and digest of the content written to each file.

        Rotated files come first, from oldest to newest. The current file comes last.
        """
        now = WriterRecord(
            path=str(self.path),
            bytes=self._bytes,
            blake2b=self._digest.hexdigest(),
            broken=self._broken,
        )
        return [*self.rotated, now]

    def append(self, content: bytes | bytearray, broken: Iterable[int] = ()) -> None:
        """Append content to the current file and pass it to the operating system.

        Args:
            content: Bytes to append.
            broken: Byte offsets within `content` of lines that are malformed on purpose, to test
                that they become dead letters instead of events.
        """
        self._broken += [self._bytes + position for position in broken]
        self._bytes += len(content)
        self._digest.update(content)
        self._file.write(content)
        self._file.flush()

    def rotate(self) -> None:
        """Rename the current file to the next rotated name, and create a new file at `path`."""
        self._file.close()
        self.rotated = self.records
        self.path.rename(self._last_rotated)
        self._begin_file()

    def copy_and_truncate(self) -> None:
        """Copy the current file, truncate it to zero bytes, and continue to write to it.

        This is what logrotate's option `copytruncate` does. Do not call `append` concurrently.
        """
        self._file.close()
        self.rotated = self.records
        shutil.copyfile(self.path, self._last_rotated)
        os.truncate(self.path, 0)
        self._begin_file()

    def close(self) -> None:
        """Close the current file. `append` must not be called afterwards."""
        self._file.close()

    @property
    def _last_rotated(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{len(self.rotated)}")

    def _begin_file(self) -> None:
        self._file = self.path.open("ab")
        self._bytes, self._digest, self._broken = 0, hashlib.blake2b(digest_size=16), list[int]()


_WRITE_BYTES: Final = 1 << 18  # written at once, at most


class ScheduledLine(NamedTuple):
    """A log line and the time at which it must be written.

    Attributes:
        moment: Due time as a fraction (0 to 1) of the time span.
        render: Function that returns the line, without line feed, for a time in Unix milliseconds.
        broken: Whether the line is malformed on purpose, to test that it becomes a dead letter
            instead of an event.
    """

    moment: float
    render: Callable[[int], bytes]
    broken: bool = False


class LiveLog:
    """A log file that receives each line when it is due, and is rotated once by rename.

    The file is renamed from `path` to `path.1` in the middle of the time span.

    Args:
        path: Path of the file.
        event_type: Event type of all lines; None if the lines are of several types.
        lines: Lines in the order of their due times.
        clock: Source of time for the timestamps.

    Attributes:
        written: Number of lines written so far.
        minutes: Minutes in which lines were written, as minutes since the Unix epoch.
    """

    def __init__(
        self, path: Path, event_type: str | None, lines: Iterator[ScheduledLine], clock: Clock
    ) -> None:
        self.path = path
        self.event_type = event_type
        self.written = 0
        self.minutes: set[int] = set()
        self._lines = lines
        self._next = next(lines, None)
        self._clock = clock
        self._log = RecordedLog(path)

    @property
    def records(self) -> list[WriterRecord]:
        """Size and digest of the content of the rotated file, if any, and of the current file."""
        return self._log.records

    @property
    def done(self) -> bool:
        """True if all lines of this log file have been written."""
        return self._next is None

    def write_due_lines(self, moment: float) -> None:
        """Write all lines that are due, and rotate the file when half of the time has elapsed.

        Args:
            moment: Elapsed fraction of the planned time, from 0 to 1.
        """
        pending, broken = bytearray(), list[int]()
        while self._next is not None and self._next.moment <= moment:
            if not self._log.rotated and self._next.moment >= 0.5:
                self._flush(pending, broken)
                self._log.rotate()
            now_ms = self._clock.now_ms()
            if self._next.broken:
                broken.append(len(pending))
            pending += self._next.render(now_ms) + b"\n"
            self.written += 1
            self.minutes.add(now_ms // 60_000)
            self._next = next(self._lines, None)
            if len(pending) >= _WRITE_BYTES:
                self._flush(pending, broken)
        self._flush(pending, broken)

    def close(self) -> None:
        """Close the file. Lines that are not yet written are discarded."""
        self._log.close()

    def _flush(self, pending: bytearray, broken: list[int]) -> None:
        self._log.append(pending, broken)
        pending.clear()
        broken.clear()


_TICK_SECONDS: Final = 0.05


@dataclass
class Traffic:
    """A background thread that writes several log files on schedule.

    Attributes:
        logs: Log files to write. A file that falls behind schedule is still written to its end.
        span_s: Duration of the traffic in seconds.
        clock: Source of time.
        failure: Exception that ended the thread early; None if there was none.
    """

    logs: Sequence[LiveLog]
    span_s: float
    clock: Clock

    def __post_init__(self) -> None:
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._began_s = 0.0
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Start the thread that writes the log files. The time span of the traffic begins now."""
        self._began_s = self.clock.monotonic_s()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. Lines that are not yet due are not written."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def moment(self) -> float:
        """Elapsed fraction of the time span: 0 at the start, greater than 1 after the end."""
        return (self.clock.monotonic_s() - self._began_s) / self.span_s

    @property
    def written(self) -> int:
        """Total number of lines written so far to all log files."""
        return sum(log.written for log in self.logs)

    @property
    def done(self) -> bool:
        """True if the thread has ended, because all lines are written or `stop` was called.

        Raises:
            BaseException: The exception that ended the thread early, if any.
        """
        if self.failure is not None:
            raise self.failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and not all(log.done for log in self.logs):
                for log in self.logs:
                    log.write_due_lines(self.moment)
                self._stop.wait(_TICK_SECONDS)
        except BaseException as error:  # noqa: BLE001  # raised again by `done`
            self.failure = error
        finally:
            for log in self.logs:
                # the error of a full disk was already stored as failure
                with contextlib.suppress(OSError):
                    log.close()
