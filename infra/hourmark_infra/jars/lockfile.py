"""The lock file `jars.lock`: one line with a JSON object for each file, sorted for readable diffs.

Fields: set, organisation, module, revision, classifier, ext, sha256, size (bytes).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

LOCK_FILE = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Jar:
    """A file in the lock file, with its Maven coordinates, SHA-256 digest and size.

    Attributes:
        set: Name of the jar set that contains the file, for example `kafka`.
        organisation: Maven group ID.
        module: Maven artifact ID.
        revision: Maven version.
        classifier: Maven classifier; empty if there is none.
        ext: File extension without the dot.
        sha256: SHA-256 digest as 64 hexadecimal digits.
        size: Size in bytes.
    """

    set: str
    organisation: str
    module: str
    revision: str
    classifier: str
    ext: str
    sha256: str
    size: int

    @property
    def coordinate(self) -> str:
        """Return the Maven coordinate `group:module:ext[:classifier]:version`, for messages."""
        return f"{self.organisation}:{self.module}:{self.ext}{self._tail(':')}:{self.revision}"

    @property
    def file_name(self) -> str:
        """Return the file's name in the jar cache, `module-version[-classifier].ext`."""
        return f"{self.module}-{self.revision}{self._tail('-')}.{self.ext}"

    @property
    def ivy_path(self) -> Path:
        """Return the path of the downloaded file, relative to Ivy's output folder."""
        return Path(
            self.organisation,
            self.module,
            self.revision,
            f"{self.module}{self._tail('-')}.{self.ext}",
        )

    def _tail(self, sign: str) -> str:
        return f"{sign}{self.classifier}" if self.classifier else ""


def read_lock(name: str, path: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """Read the jars of one set from the lock file.

    Args:
        name: Name of the set, for example `kafka`.
        path: Path of the lock file.

    Returns:
        The jars in the order of the file; never empty.

    Raises:
        AssertionError: The lock file has no such set.
    """
    jars = tuple(Jar(**json.loads(line)) for line in path.read_text().splitlines() if line)
    chosen = tuple(jar for jar in jars if jar.set == name)
    assert chosen, f"no set {name!r} in {path}"
    return chosen


def set_names(path: Path = LOCK_FILE) -> tuple[str, ...]:
    """Return the sorted names of all jar sets in the lock file.

    Args:
        path: Path of the lock file.
    """
    return tuple(
        sorted({str(json.loads(line)["set"]) for line in path.read_text().splitlines() if line})
    )


def render_lock(jars: Iterable[Jar]) -> str:
    """Return the text of a lock file: one JSON object per line for each jar, sorted."""
    return "".join(json.dumps(asdict(jar)) + "\n" for jar in sorted(jars))


def digest_of(jars: Iterable[Jar]) -> str:
    """Return a digest of a set of jars, as 12 hexadecimal digits.

    The digest covers all fields of all jars. The name of the set's folder in the cache contains it.
    """
    return hashlib.sha256(render_lock(jars).encode()).hexdigest()[:12]


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of the file at `path`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
