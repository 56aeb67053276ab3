"""The merged log of `hourmark run`: the new lines of all components, with stack traces folded.

A stack trace of Spark, py4j or Python is printed as one line: the log record before it, the
exception that caused it, and the log file that contains the whole trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from hourmark.printing import cut_text

_CHUNK_BYTES: Final = 1 << 16  # bytes per read; a longer line is printed in parts
_PART_MAX: Final = 300  # characters of a record and of an exception in the line of a stack trace
# a log record of Hourmark (2026-11-29T21:03:04) or Spark (26/11/29 21:03:04)
_RECORD: Final = re.compile(r"\d{2,4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d")
_PYTHON: Final = "Traceback (most recent call last):"
_TRACE: Final = re.compile(
    r"\s+at [\w.$<>/@-]+\(|\s+File \".*\", line \d+|(Caused by|Suppressed): "
)
_EXCEPTION: Final = re.compile(r"(?:Caused by: |: )?((?:[A-Za-z_][\w$]*\.)*\w*[A-Z][\w$]*: .*)")
# a stack trace within a message, whose line breaks are escaped
_ESCAPED: Final = re.compile(r"(?:\\n)+(?:\\t|\s)*(?:at [\w.$]+\(|File \\?\"|Traceback )")


class MergedLog:
    """A reader that merges the lines appended to several log files.

    Only lines that are written after the object was created are reported. Each line is prefixed
    with a name. Not thread-safe.

    Args:
        files: Maps the prefix of the lines to the path of the log file. Files need not exist.
        report: Function that receives each line as text.
    """

    def __init__(self, files: Mapping[str, Path], report: Callable[[str], None]) -> None:
        self._files, self._report = files, report
        self._offsets = {
            name: file.stat().st_size if file.exists() else 0 for name, file in files.items()
        }
        self._traces = {name: StackTraceFolder(file) for name, file in files.items()}
        self._width = max(map(len, files), default=0)

    def print_new_lines(self) -> None:
        """Report all complete lines that were appended since the last call, file by file.

        An incomplete last line is reported when it is complete, and a stack trace when a call finds
        no more lines of it. Files that do not exist are skipped.
        """
        for name in self._files:
            if not self._print_file(name):
                self._print(name, self._traces[name].end_trace())

    def close(self) -> None:
        """Report the remaining complete lines. Call this method last."""
        for name in self._files:
            self._print_file(name)
            self._print(name, self._traces[name].end_trace())

    def _print_file(self, name: str) -> bool:
        # whether there were new lines
        traces, has_new = self._traces[name], False
        while lines := self._read_lines(name, self._files[name]):
            has_new = True
            for line in lines.splitlines():
                self._print(name, traces.fold(line.decode(errors="replace")))
        self._print(name, traces.take_held())
        return has_new

    def _print(self, name: str, lines: Iterator[str]) -> None:
        for line in lines:
            self._report(f"{name:<{self._width}} | {line}")

    def _read_lines(self, name: str, file: Path) -> bytes:
        try:
            with file.open("rb") as opened:
                opened.seek(self._offsets[name])
                chunk = opened.read(_CHUNK_BYTES)
        except FileNotFoundError:  # its component has not started yet
            return b""
        whole = chunk[: chunk.rfind(b"\n") + 1] or (chunk if len(chunk) == _CHUNK_BYTES else b"")
        self._offsets[name] += len(whole)
        return whole


class StackTraceFolder:
    """Replaces each stack trace in the lines of one log by a line that names its cause.

    A trace ends at the next log record. A record and the lines after it are held until the next
    record, as a trace may follow. Not thread-safe.

    Args:
        log: Path of the log file, which is named in place of a trace.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._held: list[str] = []  # a record and the lines after it, before any trace
        self._cause: str | None = None  # of the present trace; None if there is none
        self._length = 0  # lines of the present trace

    def fold(self, line: str) -> Iterator[str]:
        """Add the next line of the log.

        Yields:
            The lines to print. `line` may be held, or be part of a trace that is omitted.
        """
        if _RECORD.match(line):
            yield from self.end_trace()
            yield from self.take_held()
            self._held.append(line)
        elif self._cause is not None:
            self._add_to_trace(line)
        elif _TRACE.match(line) or line.endswith(_PYTHON):
            yield from self._begin_trace(line)
        else:
            self._held.append(line)

    def take_held(self) -> Iterator[str]:
        """Yield the lines that are held, unless they precede a trace that has begun."""
        if self._cause is None:
            held, self._held = self._held, []
            for line in held:
                escaped = _ESCAPED.search(line)
                yield f"{line[: escaped.start()]} (more in {self._log})" if escaped else line

    def end_trace(self) -> Iterator[str]:
        """Yield the line that stands for the present trace; nothing if there is none."""
        if self._cause is None:
            return
        record = self._held[0].removesuffix(_PYTHON).rstrip() if self._held else ""
        texts = [cut_text(text, _PART_MAX) for text in (record, self._cause) if text]
        yield f"{': '.join(texts)} (stack trace of {self._length} lines in {self._log})".lstrip()
        self._held, self._cause, self._length = [], None, 0

    def _begin_trace(self, line: str) -> Iterator[str]:
        # The lines after a record are its exception. Without a record it is the last line, and none
        # before a trace of Python, which ends with the exception or follows it on its line.
        held, self._held, self._cause = self._held, [], ""
        if held and _RECORD.match(held[0]):
            self._held, exception = held[:1], held[1:]
        else:
            first = len(held) if line.endswith(_PYTHON) else max(len(held) - 1, 0)
            yield from held[:first]
            exception = held[first:]
        for traced in (*exception, line):
            self._add_to_trace(traced)

    def _add_to_trace(self, line: str) -> None:
        self._length += 1
        if exception := _EXCEPTION.match(line.removesuffix(_PYTHON)):
            self._cause = exception[1].strip()
