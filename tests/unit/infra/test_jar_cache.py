"""The cache of jars: only files of the locked digest get in, and an interrupted try costs nothing
but itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hourmark.errors import Finding, Unavailable
from hourmark_infra.jars.cache import ensure_jars
from hourmark_infra.jars.lockfile import Jar

CONTENT = {"one": b"first", "two": b"second"}
JARS = tuple(
    Jar(
        set="kafka",
        organisation="org.example",
        module=name,
        revision="1.0",
        classifier="",
        ext="jar",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )
    for name, content in CONTENT.items()
)


@dataclass
class FakeFetch:
    """Writes `content`; remembers what was asked for."""

    content: dict[str, bytes] = field(default_factory=lambda: dict(CONTENT))
    asked: list[str] = field(default_factory=list)

    def __call__(self, jars: Sequence[Jar], folder: Path, progress: Callable[[], None]) -> None:
        for jar in jars:
            self.asked.append(jar.module)
            if jar.module in self.content:
                path = folder / "files" / jar.ivy_path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.content[jar.module])
            progress()


class DiesAfterTheFirst(FakeFetch):
    """As a kill -9 after one file."""

    def __call__(self, jars: Sequence[Jar], folder: Path, progress: Callable[[], None]) -> None:
        super().__call__(jars[:1], folder, progress)
        raise KeyboardInterrupt


def _ensure(root: Path, fetch: FakeFetch, said: list[str] | None = None) -> Path:
    return ensure_jars("kafka", JARS, root, fetch, (said if said is not None else []).append)


def _asked_again(root: Path) -> list[str]:
    """What the next try fetches."""
    again = FakeFetch()
    _ensure(root, again)
    return again.asked


def test_all_files_arrive_under_their_maven_names(tmp_path: Path) -> None:
    folder = _ensure(tmp_path, FakeFetch())
    assert (folder / "one-1.0.jar").read_bytes() == b"first"
    assert (folder / "two-1.0.jar").read_bytes() == b"second"
    assert not list(tmp_path.glob(".*partial"))


def test_a_complete_set_asks_the_network_nothing(tmp_path: Path) -> None:
    _ensure(tmp_path, FakeFetch())
    assert _asked_again(tmp_path) == []


def test_a_planted_file_is_refused_with_coordinate_expected_and_found_and_the_next_try_just_works(
    tmp_path: Path,
) -> None:
    with pytest.raises(Finding) as refused:
        _ensure(tmp_path, FakeFetch({**CONTENT, "two": b"planted"}))
    message = str(refused.value)
    assert "org.example:two:jar:1.0" in message
    assert JARS[1].sha256 in message
    assert hashlib.sha256(b"planted").hexdigest() in message
    assert not list(tmp_path.rglob("two-1.0.jar"))
    assert not list(tmp_path.rglob(".complete"))
    assert _asked_again(tmp_path) == ["two"]


def test_what_an_interrupted_try_brought_is_not_fetched_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _ensure(tmp_path, DiesAfterTheFirst())
    assert _asked_again(tmp_path) == ["two"]


def test_a_torn_file_in_the_set_is_fetched_again(tmp_path: Path) -> None:
    folder = _ensure(tmp_path, FakeFetch())
    (folder / ".complete").unlink()
    (folder / "one-1.0.jar").write_bytes(b"fir")
    assert _asked_again(tmp_path) == ["one"]
    assert (folder / "one-1.0.jar").read_bytes() == b"first"


def test_a_file_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"org\.example:two:jar:1\.0 could not be downloaded"):
        _ensure(tmp_path, FakeFetch({"one": b"first"}))


def test_progress_tells_files_and_sizes(tmp_path: Path) -> None:
    said: list[str] = []
    _ensure(tmp_path, FakeFetch(), said)
    assert said[0] == "kafka: downloading 2 of 2 files, 0.0 MB"
    assert "kafka: 1 of 2 files" in said[1]
