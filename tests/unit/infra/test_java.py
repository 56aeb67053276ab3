"""Which Java is taken, and the wrapper around the one that is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hourmark.java_version import parse_java_version
from hourmark_infra.java.find import export_java_home, find_java
from hourmark_infra.java.install import render_wrapper


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_202"', 8),
        ("command not found", None),
    ],
)
def test_versions_are_read_as_java_writes_them(words: str, version: int | None) -> None:
    assert parse_java_version(words) == version


def _fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, other = _fake_java(tmp_path / "home", "21.0.1"), _fake_java(tmp_path / "other", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}) == home


def test_other_versions_are_passed_over(tmp_path: Path) -> None:
    _fake_java(tmp_path / "home", "11.0.1")
    good = _fake_java(tmp_path / "good", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(good.parent)}) == good
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}) is None


@pytest.mark.parametrize(("first", "exported"), [("17.0.1", False), ("11.0.1", True)])
def test_java_home_is_set_only_where_spark_would_take_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, exported: bool
) -> None:
    _fake_java(tmp_path / "home", first)
    good = _fake_java(tmp_path / "good", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(good.parent))
    export_java_home()
    assert os.environ["JAVA_HOME"] == str(tmp_path / ("good" if exported else "home"))


def test_the_wrapper_drops_the_one_argument_and_keeps_all_others_as_they_are(
    tmp_path: Path,
) -> None:
    real = tmp_path / "a folder" / "real"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\nfor a; do printf '[%s]' \"$a\"; done\n")
    real.chmod(0o755)
    wrapper = tmp_path / "java"
    wrapper.write_text(render_wrapper(real))
    wrapper.chmod(0o755)
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "a b",
        "",
        "*",
        "--add-modules=other",
    ]
    said = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "[-Xmx1g][a b][][*][--add-modules=other]"
