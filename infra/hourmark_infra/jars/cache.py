"""The user's cache of jars: `ensure` returns a folder with the locked files of a set.

    <cache>/hourmark/jars/<set>-<digest of the lock's lines>/*.jar    and `.complete`, written last
    <cache>/hourmark/jars/.<set>-<digest>.partial/                    Ivy's folder during a download

A file is moved into the set's folder only after its SHA-256 digest has been verified, so a kill -9
loses at most the file being downloaded. A lock serializes concurrent downloads. A changed lock file
selects another folder, so running servers keep theirs. If `.complete` exists, neither the network
nor the jars are read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hourmark.errors import Finding, Unavailable
from hourmark.process.durable import sync_folder, write_durably
from hourmark_infra.jars.ivy import read_log_tail, render_locked_dependencies, start_ivy
from hourmark_infra.jars.lockfile import Jar, digest_of, read_lock, sha256_of
from hourmark_infra.locks import exclusive_lock

PROGRESS_SECONDS = 2.0

Reporter = Callable[[str], None]
"""A function that receives progress messages, one line each."""

JarFetcher = Callable[[Sequence[Jar], Path, Callable[[], None]], None]
"""A function that downloads jars to the folder `files` in a given folder, each to its `ivy_path`.

It calls its third argument regularly during the download and raises `Unavailable` on failure.
"""


@dataclass(frozen=True, slots=True)
class IvyFetch:
    """A callable that downloads jars with Apache Ivy, to be passed to `ensure_jars`.

    It takes three arguments: the jars, a folder, and a function that is called every two seconds
    during the download. The jars are stored in the subfolder `files`.

    Attributes:
        java: Function that returns the path of a `java` executable, called for each download.
    """

    java: Callable[[], Path]

    def __call__(self, jars: Sequence[Jar], folder: Path, progress: Callable[[], None]) -> None:
        with start_ivy(self.java(), folder, render_locked_dependencies(jars)) as process:
            try:
                while process.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(PROGRESS_SECONDS)
                        return
                    progress()
            finally:
                process.kill()


def cache_root() -> Path:
    """Return the folder in which Hourmark caches downloaded programs.

    Returns:
        An absolute path: `$XDG_CACHE_HOME/hourmark` if this variable is set, otherwise
        `~/.cache/hourmark`. The folder may not exist yet.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "hourmark"


def print_progress(line: str) -> None:
    """Print a progress message to stderr and flush the stream.

    Args:
        line: Text of the message, without a line feed.
    """
    print(line, file=sys.stderr, flush=True)


def ensure(name: str, java: Callable[[], Path], report: Reporter = print_progress) -> Path:
    """Download the missing jars of a server, and return the folder that contains all of them.

    Args:
        name: Name of a jar set in the lock file: `kafka`, `hadoop` or `registry`.
        java: Function that returns the path of a `java` executable, called only if a download is
            necessary.
        report: Function that receives progress messages, one line each.

    Returns:
        The folder in the user's cache.

    Raises:
        Finding: The SHA-256 digest of a downloaded file differs from the lock file.
        Unavailable: A file cannot be downloaded or stored.
        AssertionError: The lock file has no such set.
    """
    return ensure_jars(name, read_lock(name), cache_root() / "jars", IvyFetch(java), report)


def ensure_jars(
    name: str, jars: Sequence[Jar], root: Path, fetch: JarFetcher, report: Reporter
) -> Path:
    """Download missing jars, and return the folder that contains all of them.

    Args:
        name: Name of the jar set, used in the name of the folder and in messages.
        jars: Jars to provide.
        root: Folder of the jar cache.
        fetch: Function that downloads jars.
        report: Function that receives progress messages, one line each.

    Returns:
        The folder below `root`. Its name contains a digest of `jars`.

    Raises:
        Finding: The SHA-256 digest of a downloaded file differs from that in `jars`.
        Unavailable: A file cannot be downloaded or stored.
    """
    digest = digest_of(jars)
    target = root / f"{name}-{digest}"
    if (target / ".complete").is_file():
        return target
    target.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(
        root / f".{name}.lock",
        lambda: report(f"waiting for another hourmark process that downloads to {root}"),
    ):
        if not (target / ".complete").is_file():
            _fetch_missing(name, jars, target, root / f".{name}-{digest}.partial", fetch, report)
    return target


def _fetch_missing(
    name: str, jars: Sequence[Jar], target: Path, partial: Path, fetch: JarFetcher, report: Reporter
) -> None:
    missing = [
        jar
        for jar in jars
        if not _is_verified(jar, target) and _take_downloaded(jar, partial, target) != jar.sha256
    ]
    if missing:
        total = _megabytes(jars)
        report(f"{name}: downloading {len(missing)} of {len(jars)} files, {_megabytes(missing)} MB")
        try:
            fetch(
                missing,
                partial,
                _without_repeats(report, lambda: _progress_line(name, jars, missing, partial)),
            )
            for jar in missing:
                _take_required(jar, partial, target)
        except OSError as error:
            raise Unavailable(
                f"{name}: cannot store jars in {target}: {error.strerror}; free disk space or "
                "set XDG_CACHE_HOME to another folder"
            ) from error
        report(f"{name}: {len(jars)} of {len(jars)} files, {total} of {total} MB, digests checked")
    sync_folder(target)
    write_durably(target / ".complete", b"")
    shutil.rmtree(partial, ignore_errors=True)


def _is_verified(jar: Jar, target: Path) -> bool:
    path = target / jar.file_name
    return path.is_file() and path.stat().st_size == jar.size and sha256_of(path) == jar.sha256


def _take_downloaded(jar: Jar, partial: Path, target: Path) -> str | None:
    path = partial / "files" / jar.ivy_path
    if not path.is_file():
        return None
    digest = sha256_of(path)
    if digest == jar.sha256:
        path.replace(target / jar.file_name)
    else:
        path.unlink()
    return digest


def _take_required(jar: Jar, partial: Path, target: Path) -> None:
    digest = _take_downloaded(jar, partial, target)
    if digest is None:
        raise Unavailable(
            (
                f"{jar.coordinate} could not be downloaded; check the network and repeat the "
                "command (downloaded files are kept).\n"
            )
            + read_log_tail(partial)
        )
    if digest != jar.sha256:
        raise Finding(
            f"{jar.coordinate} is refused: expected sha256 {jar.sha256}, found {digest}; repeat "
            "the command, and if the digest differs again, find out which proxy or repository "
            "changes the file"
        )


def _progress_line(name: str, jars: Sequence[Jar], missing: Sequence[Jar], partial: Path) -> str:
    waiting = {jar for jar in missing if not (partial / "files" / jar.ivy_path).is_file()}
    partial_bytes = sum(
        path.stat().st_size for path in (partial / "files").rglob("*.part") if path.is_file()
    )
    complete = [jar for jar in jars if jar not in waiting]
    return (
        f"{name}: {len(complete)} of {len(jars)} files, "
        f"{_megabytes(complete, partial_bytes)} of {_megabytes(jars)} MB"
    )


def _without_repeats(report: Reporter, render_line: Callable[[], str]) -> Callable[[], None]:
    reported: set[str] = set()

    def report_new_line() -> None:
        if (line := render_line()) not in reported:
            report(line)
            reported.add(line)

    return report_new_line


def _megabytes(jars: Iterable[Jar], partial_bytes: int = 0) -> str:
    return f"{(sum(jar.size for jar in jars) + partial_bytes) / 1e6:.1f}"
