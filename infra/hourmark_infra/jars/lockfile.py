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
        set: Name of the jar set that contains the file, such as `kafka`.
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
        """Return the Maven coordinates of the file, for messages to users.

        Returns:
            `group:module:ext[:classifier]:version`. The classifier is omitted if it is empty.
        """
        return f"{self.organisation}:{self.module}:{self.ext}{self._tail(':')}:{self.revision}"

    @property
    def file_name(self) -> str:
        """Return the name of the file in the jar cache.

        Returns:
            `module-version[-classifier].ext`. The classifier is omitted if it is empty.
        """
        return f"{self.module}-{self.revision}{self._tail('-')}.{self.ext}"

    @property
    def ivy_path(self) -> Path:
        """Return the path at which Apache Ivy stores the downloaded file.

        Returns:
            `group/module/version/module[-classifier].ext`, relative to Ivy's output folder.
        """
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
        name: Name of the set, such as `kafka`.
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
    """Return the names of all jar sets in the lock file, in alphabetical order.

    A jar set, such as `kafka`, contains all jars of one server.

    Args:
        path: Path of the lock file.
    """
    return tuple(
        sorted({str(json.loads(line)["set"]) for line in path.read_text().splitlines() if line})
    )


def render_lock(jars: Iterable[Jar]) -> str:
    """Render a lock file that pins the given jars.

    Args:
        jars: Jars of one or more sets, in any order.

    Returns:
        Text with one JSON object per line for each jar, in sorted order, in the format of
        `read_lock`.
    """
    return "".join(json.dumps(asdict(jar)) + "\n" for jar in sorted(jars))


def digest_of(jars: Iterable[Jar]) -> str:
    """Return a digest that identifies a set of jars.

    The digest covers all fields of all jars and does not depend on their order. It is part of the
    name of the folder in the jar cache, so a changed lock file results in a new folder.

    Args:
        jars: Jars of the set.

    Returns:
        The first 12 hexadecimal digits of a SHA-256 digest.
    """
    return hashlib.sha256(render_lock(jars).encode()).hexdigest()[:12]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file's content.

    Args:
        path: Path of the file.

    Returns:
        64 hexadecimal digits in lower case.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
