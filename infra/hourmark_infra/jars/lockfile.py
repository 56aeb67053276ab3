"""`jars.lock`: one JSON object a line and file, sorted, so that a change of version reads well in a
diff.

A line holds set, organisation, module, revision, classifier, ext, sha256, size (bytes).
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
    """One locked file."""

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
        """As Maven writes it, for messages."""
        return f"{self.organisation}:{self.module}:{self.ext}{self._tail(':')}:{self.revision}"

    @property
    def file_name(self) -> str:
        """Its name in the cache, as Maven writes it."""
        return f"{self.module}-{self.revision}{self._tail('-')}.{self.ext}"

    @property
    def ivy_path(self) -> Path:
        """Where Ivy leaves it, below the folder it was given (see `hourmark_infra.jars.ivy`)."""
        return Path(
            self.organisation,
            self.module,
            self.revision,
            f"{self.module}{self._tail('-')}.{self.ext}",
        )

    def _tail(self, sign: str) -> str:
        return f"{sign}{self.classifier}" if self.classifier else ""


def read_lock(name: str, path: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """The files of one set; an unknown set is a mistake in the program."""
    jars = tuple(Jar(**json.loads(line)) for line in path.read_text().splitlines() if line)
    chosen = tuple(jar for jar in jars if jar.set == name)
    assert chosen, f"no set {name!r} in {path}"
    return chosen


def set_names(path: Path = LOCK_FILE) -> tuple[str, ...]:
    """Of all sets."""
    return tuple(
        sorted({str(json.loads(line)["set"]) for line in path.read_text().splitlines() if line})
    )


def render_lock(jars: Iterable[Jar]) -> str:
    """The lock file's text."""
    return "".join(json.dumps(asdict(jar)) + "\n" for jar in sorted(jars))


def digest_of(jars: Iterable[Jar]) -> str:
    """Changes with anything in the set; names the set's folder in the cache."""
    return hashlib.sha256(render_lock(jars).encode()).hexdigest()[:12]


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
