"""Checks of the log files that `hourmark init` is called with, before their lines are read.

A file passes if the tailer can follow it by its path: a regular file, whose path can be written to
a configuration, that is not named twice. All files that cannot be used are reported together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from hourmark.config.groups import COMPRESSED_SUFFIXES, normalize_log_path
from hourmark.errors import UsageError
from hourmark_declare.proposing.file_sample import FileSample, read_sample

_START_BYTES: Final = 1 << 20  # as much as a sample reads at the start of a file
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def distinct_log_files(files: Iterable[Path], report: Callable[[str], None]) -> list[Path]:
    """Return the normalized paths of log files, and omit files that are named more than once.

    Args:
        files: Paths as the user entered them. Links to the same file count as one file.
        report: Called with a message for each omitted path.

    Returns:
        Absolute paths, in the order of `files`.
    """
    distinct: dict[object, Path] = {}
    for file in map(normalize_log_path, files):
        identity: object = file
        with suppress(OSError):
            status = file.stat()
            identity = (status.st_dev, status.st_ino)
        first = distinct.setdefault(identity, file)
        if first is not file:
            report(f"{file} is the same file as {first} and is ignored")
    return [*distinct.values()]


def read_log_samples(files: Iterable[Path]) -> list[FileSample]:
    """Read the first and last lines of log files.

    First, each file is checked for whether the tailer (the component that reads log files) can
    follow it.

    Args:
        files: Absolute paths of the files.

    Returns:
        A sample of each file, in the order of `files`.

    Raises:
        UsageError: Some files cannot be used. The message names each of them with its reason.
    """
    samples, problems = [], []
    for file in files:
        if found := [f"{file} {problem}" for problem in _problems(file)]:
            problems += found
            continue
        try:
            samples.append(read_sample(file))
        except UsageError as error:
            problems.append(str(error))
            continue
        if file.name.endswith(COMPRESSED_SUFFIXES):
            problems.append(
                f"{file} is text, but the tailer treats files whose names end in {file.suffix} "
                "as compressed; rename it"
            )
    if problems:
        raise UsageError("\n".join(problems))
    return samples


def _problems(file: Path) -> Iterator[str]:
    name = str(file)
    if any(character < " " or character == "\x7f" for character in name):
        yield "contains a control character in its path; rename it"
        return
    try:
        os.fsencode(name).decode()
    except UnicodeDecodeError:
        yield "is a path that is not valid UTF-8, which a configuration cannot contain; rename it"
        return
    try:
        mode = file.stat().st_mode
        if (kind := _KINDS.get(stat.S_IFMT(mode))) is not None:
            yield f"is {kind}; specify a regular file, or receive the lines (docs/receiving.md)"
        elif stat.S_ISREG(mode):
            yield from _content_problems(file)
    except OSError:
        return  # reading the sample reports the reason


def _content_problems(file: Path) -> Iterator[str]:
    with file.open("rb") as opened:
        start = opened.read(_START_BYTES)
    if start and not start.strip(b"\r\n"):
        yield "has no lines yet; specify a file that contains lines"
    elif len(start) == _START_BYTES and b"\n" not in start:
        yield (
            "cannot be analyzed: its first line is over 1 MiB long; declare its type manually "
            "(docs/event-types.md)"
        )
