"""The user's cache of jars: `ensure` returns a folder that holds exactly the locked files of a set, each of the right digest.

    <cache>/hourmark/jars/<set>-<digest of the lock's lines>/*.jar    and `.complete`, written last
    <cache>/hourmark/jars/.<set>-<digest>.partial/                    Ivy's folder while it downloads

A file is moved into the set's folder only after its SHA-256 was checked, so a kill -9 at any moment costs at most the file
under way; two at once wait for each other on a lock. A changed lock names another folder, so running servers keep theirs.
With `.complete` there, nothing is asked of the network or of the files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hourmark.durable import sync_folder, write_durably
from hourmark.errors import Finding, Unavailable
from hourmark_infra.jars.ivy import last_words, locked_dependencies, start_ivy
from hourmark_infra.jars.lockfile import Jar, digest_of, read_lock, sha256_of
from hourmark_infra.locks import one_at_a_time

PROGRESS_SECONDS = 2.0
Say = Callable[[str], None]


class Fetch(Protocol):
    """Brings files below `folder/files`, each at its `Jar.ivy_path`; raises Unavailable."""

    def __call__(self, jars: Sequence[Jar], folder: Path, progress: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class IvyFetch:
    """`Fetch` through Ivy; `java` is asked for only when something must be fetched."""

    java: Callable[[], Path]

    def __call__(self, jars: Sequence[Jar], folder: Path, progress: Callable[[], None]) -> None:
        with start_ivy(self.java(), folder, locked_dependencies(jars)) as process:
            try:
                while process.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(PROGRESS_SECONDS)
                        return
                    progress()
            finally:
                process.kill()


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/hourmark`, else `~/.cache/hourmark`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "hourmark"


def say_on_stderr(line: str) -> None:
    """One plain line of progress."""
    print(line, file=sys.stderr, flush=True)


def ensure(name: str, java: Callable[[], Path], say: Say = say_on_stderr) -> Path:
    """The folder of the set `name`, fetched if need be.

    Raises Finding where a file's digest differs from the lock, Unavailable where files cannot be had.
    """
    return ensure_jars(name, read_lock(name), cache_root() / "jars", IvyFetch(java), say)


def ensure_jars(name: str, jars: Sequence[Jar], root: Path, fetch: Fetch, say: Say) -> Path:
    """`ensure` with everything it touches as arguments."""
    digest = digest_of(jars)
    target = root / f"{name}-{digest}"
    if (target / ".complete").is_file():
        return target
    target.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(root / f".{name}.lock", lambda: say(f"waiting for another hourmark that fetches into {root}")):
        if not (target / ".complete").is_file():
            _complete(name, jars, target, root / f".{name}-{digest}.partial", fetch, say)
    return target


def _complete(name: str, jars: Sequence[Jar], target: Path, partial: Path, fetch: Fetch, say: Say) -> None:
    missing = [jar for jar in jars if not _placed(jar, target)]
    missing = [jar for jar in missing if not _move_if_right(jar, partial, target)]
    if missing:
        total = sum(jar.size for jar in jars)
        say(f"{name}: fetching {len(missing)} of {len(jars)} files, {_mb(sum(jar.size for jar in missing))} MB")
        try:
            fetch(missing, partial, _told_once(say, lambda: _progress(name, jars, missing, partial)))
            for jar in missing:
                _move(jar, partial, target)
        except OSError as error:
            raise Unavailable(
                f"{name}: cannot keep jars in {target}: {error.strerror}; free space or set XDG_CACHE_HOME"
            ) from error
        say(f"{name}: {len(jars)} of {len(jars)} files, {_mb(total)} of {_mb(total)} MB, digests checked")
    sync_folder(target)
    write_durably(target / ".complete", b"")
    shutil.rmtree(partial, ignore_errors=True)


def _placed(jar: Jar, target: Path) -> bool:
    path = target / jar.file_name
    return path.is_file() and path.stat().st_size == jar.size and sha256_of(path) == jar.sha256


def _move_if_right(jar: Jar, partial: Path, target: Path) -> bool:
    """Take over what an interrupted try left; what is not whole is fetched again."""
    path = partial / "files" / jar.ivy_path
    if path.is_file() and sha256_of(path) == jar.sha256:
        path.replace(target / jar.file_name)
        return True
    path.unlink(missing_ok=True)
    return False


def _move(jar: Jar, partial: Path, target: Path) -> None:
    path = partial / "files" / jar.ivy_path
    if not path.is_file():
        raise Unavailable(
            f"{jar.coordinate} could not be fetched; check the network and repeat the command (what came is kept).\n"
            + last_words(partial)
        )
    found = sha256_of(path)
    if found != jar.sha256:
        path.unlink()
        raise Finding(
            f"{jar.coordinate} is refused: expected sha256 {jar.sha256}, found {found}; repeat the command, and if it "
            "stays so, find out who changes files on the way here"
        )
    path.replace(target / jar.file_name)


def _progress(name: str, jars: Sequence[Jar], missing: Sequence[Jar], partial: Path) -> str:
    here = {jar.file_name for jar in missing if (partial / "files" / jar.ivy_path).is_file()}
    files = len(jars) - len(missing) + len(here)
    waiting = {jar.file_name for jar in missing} - here
    size = sum(jar.size for jar in jars if jar.file_name not in waiting)
    size += sum(path.stat().st_size for path in (partial / "files").rglob("*.part") if path.is_file())
    return f"{name}: {files} of {len(jars)} files, {_mb(size)} of {_mb(sum(jar.size for jar in jars))} MB"


def _told_once(say: Say, line: Callable[[], str]) -> Callable[[], None]:
    """Says the line only where it differs from the last: Ivy looks all files up before it fetches the first."""
    said = ""

    def tell() -> None:
        nonlocal said
        if (now := line()) != said:
            say(now)
            said = now

    return tell


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f}"
