"""The merged log of `hourmark run`: the new lines of all components, with stack traces folded.

A stack trace of Spark, py4j or Python is printed as one line: the log record before it, the
exception that caused it, and the log file that contains the whole trace. Warnings of Spark without
a stack trace, and the lines that Spark prints before its log is configured, are only in the log
file: they occur at each start and say nothing about the events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
# what Spark writes at each start, and its warnings
_SPARK_NOTICE: Final = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN |WARNING: Using incubator modules: "
    r"|Using Spark's default log4j profile: |Setting default log level to "
    r"|To adjust logging level use "
)


class MergedLog:
    """A reader that follows several log files, like `tail -f`, and merges their new lines.

    Only lines that are written after the object was created are reported. Each line is prefixed
    with the name of its file. A stack trace is reported as one line. Warnings of Spark without a
    stack trace are not reported. Not thread-safe.

    Args:
        files: Maps the name of each log file to its path. Files need not exist yet.
        report: Function that receives each line as text.
    """

    def __init__(self, files: Mapping[str, Path], report: Callable[[str], None]) -> None:
        self._files, self._report = files, report
        self._offsets = {
            name: file.stat().st_size if file.exists() else 0 for name, file in files.items()
        }
        self._traces = {name: StackTraceSummarizer(file) for name, file in files.items()}
        self._width = max(map(len, files), default=0)

    def report_new_lines(self) -> None:
        """Read the lines appended since the last call, and pass them to the `report` function.

        The files are read one after another; files that do not exist are skipped. An incomplete
        last line is left for a later call. A stack trace at the end of a file is reported by the
        first call that finds no further lines in this file.
        """
        for name in self._files:
            if not self._print_file(name):
                self._print(name, self._traces[name].finish_trace())

    def close(self) -> None:
        """Report all lines that were not reported yet, including stack traces.

        An incomplete last line is not reported. Call this method once, after the last call of
        `report_new_lines`.
        """
        for name in self._files:
            self._print_file(name)
            self._print(name, self._traces[name].finish_trace())

    def _print_file(self, name: str) -> bool:
        # whether there were new lines
        traces, has_new = self._traces[name], False
        while lines := self._read_lines(name, self._files[name]):
            has_new = True
            for line in lines.splitlines():
                self._print(name, traces.add_line(line.decode(errors="replace")))
        self._print(name, traces.take_buffered())
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


class StackTraceSummarizer:
    """A filter that replaces each stack trace in a log with one line.

    The line consists of the log record before the stack trace, the exception that caused it, and
    the path of the log. Warnings of Spark without a stack trace are omitted. A log record is buffered until the next one, because a stack trace may
    follow it. Not thread-safe.

    Args:
        log: Path of the log file, mentioned in the lines that replace stack traces.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._buffered: list[str] = []  # a record and the lines after it, before any trace
        self._cause: str | None = None  # of the present trace; None if there is none
        self._length = 0  # lines of the present trace

    def add_line(self, line: str) -> Iterator[str]:
        """Process the next line of the log.

        Args:
            line: The line, without its line feed.

        Yields:
            The lines to print now. These are earlier lines: `line` itself is buffered, or omitted
            because it belongs to a stack trace.
        """
        if _RECORD.match(line):
            yield from self.finish_trace()
            yield from self.take_buffered()
            self._buffered.append(line)
        elif self._cause is not None:
            self._add_to_trace(line)
        elif _TRACE.match(line) or line.endswith(_PYTHON):
            yield from self._begin_trace(line)
        else:
            self._buffered.append(line)

    def take_buffered(self) -> Iterator[str]:
        """Yield the buffered lines and clear the buffer.

        Yields nothing if the last line belongs to a stack trace; call `finish_trace` instead.
        """
        if self._cause is None:
            buffered, self._buffered = self._buffered, []
            for line in _without_notices(buffered):
                escaped = _ESCAPED.search(line)
                yield f"{line[: escaped.start()]} (more in {self._log})" if escaped else line

    def finish_trace(self) -> Iterator[str]:
        """Yield the line that replaces the current stack trace, and end this stack trace.

        Yields nothing if the last line does not belong to a stack trace.
        """
        if self._cause is None:
            return
        record = self._buffered[0].removesuffix(_PYTHON).rstrip() if self._buffered else ""
        texts = [cut_text(text, _PART_MAX) for text in (record, self._cause) if text]
        yield f"{': '.join(texts)} (stack trace of {self._length} lines in {self._log})".lstrip()
        self._buffered, self._cause, self._length = [], None, 0

    def _begin_trace(self, line: str) -> Iterator[str]:
        # The lines after a record are its exception. Without a record it is the last line, and none
        # before a trace of Python, which ends with the exception or follows it on its line.
        buffered, self._buffered, self._cause = self._buffered, [], ""
        if buffered and _RECORD.match(buffered[0]):
            self._buffered, exception = buffered[:1], buffered[1:]
        else:
            first = len(buffered) if line.endswith(_PYTHON) else max(len(buffered) - 1, 0)
            yield from _without_notices(buffered[:first])
            exception = buffered[first:]
        for traced in (*exception, line):
            self._add_to_trace(traced)

    def _add_to_trace(self, line: str) -> None:
        self._length += 1
        if exception := _EXCEPTION.match(line.removesuffix(_PYTHON)):
            self._cause = exception[1].strip()


def _without_notices(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if not _SPARK_NOTICE.match(line))
