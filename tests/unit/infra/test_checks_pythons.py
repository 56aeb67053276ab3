"""Which Pythons `hourmark test --pythons` tries, and what it says of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hourmark_infra.checks.pythons import (
    SUPPORTED,
    describe_missing_versions,
    find_interpreters,
    installation_checks,
)


def a_python(file: Path, says: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {says}\n")
    file.chmod(0o755)
    return file


def test_one_that_is_on_the_path_is_tried_and_one_that_only_says_so_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = a_python(tmp_path / "python3.14", "3.14")
    a_python(tmp_path / "python3.13", "3.10")  # as a shim is, of a version that is not there
    pyenv = a_python(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python", "3.12")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    interpreters = find_interpreters()
    assert interpreters["3.14"] == here
    assert interpreters["3.13"] != tmp_path / "python3.13"
    assert interpreters["3.12"] == pyenv


def test_each_is_a_check_or_is_named_untested() -> None:
    interpreters = {
        version: Path("/python") if version == "3.12" else None for version in SUPPORTED
    }
    assert [check.name for check in installation_checks(interpreters)] == ["Python 3.12"]
    assert [line.split(":")[0].split()[:3] for line in describe_missing_versions(interpreters)] == [
        ["Python", version, "untested"] for version in ("3.11", "3.13", "3.14")
    ]
