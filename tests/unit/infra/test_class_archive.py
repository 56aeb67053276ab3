"""Spark drivers of the tests are told of the class-data archive if there is one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hourmark_infra.checks.class_archive import archive_file, submit_arguments


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an archive that does not exist, for a Java with the file `release`."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    file = archive_file()
    assert file is not None
    return file


def test_drivers_get_an_archive_that_exists(archive: Path) -> None:
    assert submit_arguments() == {}
    archive.touch()
    assert submit_arguments() == {
        "PYSPARK_SUBMIT_ARGS": (
            "--conf 'spark.driver.defaultJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
            f"-XX:SharedArchiveFile={archive}' pyspark-shell"
        )
    }


def test_arguments_of_the_user_are_kept(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.touch()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    assert submit_arguments() == {}


def test_another_java_has_another_archive(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.2"\n')
    assert archive_file() not in (archive, None)
    (tmp_path / "jdk" / "release").unlink()
    assert archive_file() is None
