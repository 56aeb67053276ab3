"""Sample of a log file from which a declaration is proposed: its first and last lines."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import SystemClock
from hourmark.errors import UsageError
from hourmark_delivery_service.parsing.syslog.rfc5424 import BOM

LINES_MAX: Final = 1000  # lines at either end
_BYTES_MAX: Final = 1 << 20  # read at either end
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}


class FileSample(NamedTuple):
    """The first and last lines of a log file.

    Attributes:
        path: Path of the file.
        head: First lines without line feeds, at most 1,000.
        tail: Last lines without line feeds, at most 1,000, excluding the lines in `head`.
        size: Size of the file in bytes.
        written_ms: Time of the last modification in Unix milliseconds.
        read_ms: Time at which the sample was read, in Unix milliseconds.
    """

    path: Path
    head: list[bytes]
    tail: list[bytes]
    size: int
    written_ms: int
    read_ms: int

    @property
    def lines(self) -> list[bytes]:
        return [*self.head, *self.tail]

    @property
    def without_mark(self) -> FileSample:
        """Return the sample without the byte order mark at the start of the file.

        Returns the same object if the file has no byte order mark.
        """
        if not self.head or not self.head[0].startswith(BOM):
            return self
        return self._replace(head=[self.head[0].removeprefix(BOM), *self.head[1:]])

    @property
    def is_whole(self) -> bool:
        """Return whether the sample contains all lines of the file."""
        total = sum(len(line) + 1 for line in self.lines)
        return self.size in (total, total - 1)


def read_sample(path: Path) -> FileSample:
    """Read the first and the last lines of a log file.

    At most 1,000 lines and 1 MiB are read from each end of the file. If the file is short, no line
    is read twice.

    Args:
        path: Path of the log file.

    Returns:
        The lines, the size of the file, and the time of its last modification.

    Raises:
        UsageError: The path is a folder, or the file cannot be read, is compressed, contains no
            lines, or is not a text file.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            head = file.read(_BYTES_MAX)
            file.seek(max(len(head), status.st_size - _BYTES_MAX))
            tail = file.read(_BYTES_MAX)
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder; name its files, such as {path}/*.log") from error
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; name a file that may be read"
        ) from error
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise UsageError(
                f"{path} is packed by {name}; name the log that is written to, or unpack it first"
            )
    whole = status.st_size <= len(head) + len(tail)
    first = (
        (head + tail).split(b"\n") if whole else head.split(b"\n")[:-1]
    )  # the last line may be incomplete
    last = (
        first[LINES_MAX:] if whole else tail.split(b"\n")[1:]
    )  # the first of these may be incomplete
    if not any(first):
        raise UsageError(
            f"{path} has no line yet; name a file that has some, so that their form can be seen"
        )
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UsageError(
            f"{path} is UTF-16, and lines are read as UTF-8; let the program write UTF-8, or convert "
            f"a sample: iconv -f UTF-16 -t UTF-8 {path}"
        )
    if b"\x00" in head[:4096]:
        raise UsageError(
            f"{path} is no text: there are NUL bytes in its first 4 KiB; name a log file"
        )
    return FileSample(
        path,
        first[:LINES_MAX],
        last[-LINES_MAX:],
        status.st_size,
        written_ms=status.st_mtime_ns // 10**6,
        read_ms=SystemClock().now_ms(),
    )


def text_type(sample: FileSample) -> str:
    """Return the Avro type for free text in a log file.

    Args:
        sample: First and last lines of the file.

    Returns:
        `string` if all lines of the sample are valid UTF-8; otherwise `bytes`.
    """
    try:
        for line in sample.lines:
            line.decode()
    except UnicodeDecodeError:
        return "bytes"
    return "string"


def allow_trailing_cr(pattern: str, sample: FileSample) -> str:
    """Adapt a line pattern to a file with CR LF line ends, so that no value includes the CR.

    Args:
        pattern: Regular expression for a line without its LF.
        sample: First and last lines of the file.

    Returns:
        The pattern with an optional CR at its end; unchanged if at most half of the lines end with
        a CR.
    """
    lines = sample.lines
    if 2 * sum(line.endswith(b"\r") for line in lines) <= len(lines):
        return pattern
    lazy = f"{pattern.removesuffix('.*)')}.*?)" if pattern.endswith(".*)") else pattern
    return f"{lazy}\\r?"
