"""`hourmark init` with paths, names and folders that are unusual or cannot be used."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hourmark.config.loading import load_config
from hourmark.errors import ConfigError, HourmarkError, UsageError
from hourmark.records.named_files import NAMED_FILES, read_named_files
from hourmark.rules.event_types import read_declarations
from hourmark_declare.init_cli import init
from hourmark_producer.files.patterns import PathPattern, scan_patterns
from hourmark_producer.settings import validate_settings

LINE = "2026-11-21 10:00:00 INFO one\n"


def invoked(*arguments: str | Path) -> Any:
    return CliRunner().invoke(init, [*map(str, arguments), "--yes"], catch_exceptions=False)


def log_file(path: Path, content: str = LINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def tailed_files(out: Path) -> list[list[str]]:
    """By source, the files that the tailer finds with the written configuration."""
    sources = validate_settings(load_config(out / "hourmark.toml").tailer).sources
    return [
        [*scan_patterns([PathPattern(path) for path in source.paths]).files] for source in sources
    ]


@pytest.mark.parametrize(
    "name",
    ["a[1].log", "star*.log", "what?.log", "a{1,2}.log", "a b.log", "журнал.log", "q'uote\".log"],
)
def test_the_tailer_finds_exactly_the_named_file(tmp_path: Path, name: str) -> None:
    log = log_file(tmp_path / "in[x]" / name)
    for other in ("a1.log", "star-x.log", "whatx.log", "a1.log", "a2.log"):
        log_file(log.parent / other)
    invoked(log, "--out", tmp_path / "out")
    assert tailed_files(tmp_path / "out") == [[str(log)]]
    read_declarations(tmp_path / "out/types")
    with pytest.raises(UsageError, match="is followed already"):
        invoked(log, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"a\nb.log", "contains a control character"),
        (b"bad\xff.log", "is not valid UTF-8"),
        (b"plain.log.gz", "treats files whose names end in .gz as compressed"),
        (b"plain.log.Z", "treats files whose names end in .Z as compressed"),
    ],
)
def test_a_name_that_the_tailer_cannot_use_is_refused_with_the_next_step(
    tmp_path: Path, name: bytes, reason: str
) -> None:
    log = log_file(tmp_path / os.fsdecode(name))
    with pytest.raises(UsageError, match=reason) as error:
        invoked(log, "--out", tmp_path / "out")
    assert "rename it" in str(error.value)
    assert not (tmp_path / "out").exists()


def test_the_files_are_recorded_as_they_were_before_their_lines_were_read(tmp_path: Path) -> None:
    first, second = log_file(tmp_path / "a.log"), log_file(tmp_path / "b.log")
    invoked(first, "--out", tmp_path / "out")
    first.rename(tmp_path / "a.log.1")
    log_file(first)
    invoked(second, "--out", tmp_path / "out")
    one, two = read_named_files(tmp_path / "out" / NAMED_FILES)
    assert (one.path, two.path) == (str(first), str(second))
    assert one.identity.inode == (tmp_path / "a.log.1").stat().st_ino != first.stat().st_ino
    assert (one.head, one.size) == (LINE.encode(), len(LINE))


def test_nothing_is_recorded_without_a_configuration(tmp_path: Path) -> None:
    log = log_file(tmp_path / "a.log")
    CliRunner().invoke(init, [str(log), "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_without_opening_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.log"))
        for name, kind in (
            (tmp_path / "pipe.log", "a named pipe"),
            (tmp_path / "socket.log", "a socket"),
            (Path("/dev/null"), "a device"),
        ):
            with pytest.raises(
                UsageError, match=f"is {kind}.*docs/how-to/receive-syslog-and-journal.md"
            ):
                invoked(name, "--out", tmp_path / "out")


def test_each_file_that_cannot_be_used_is_named_at_once(tmp_path: Path) -> None:
    log_file(tmp_path / "good.log")
    log_file(tmp_path / "empty.log", "")
    with pytest.raises(UsageError) as error:
        invoked(*(tmp_path / f"{name}.log" for name in ("good", "empty", "absent")))
    assert "empty.log has no line yet" in str(error.value)
    assert "absent.log: No such file" in str(error.value)
    assert "good.log" not in str(error.value)


def test_each_file_is_named_while_it_is_analyzed(tmp_path: Path) -> None:
    logs = [log_file(tmp_path / f"{name}.log") for name in "abc"]
    said = invoked(*logs, "--out", tmp_path / "out")
    assert said.stderr.splitlines()[:3] == [
        f"analyzing {log} ({number} of 3)" for number, log in enumerate(logs, 1)
    ]


@pytest.mark.parametrize("content", ["\r\n\r\n", "\r\n\n"])
def test_blank_lines_are_no_lines(tmp_path: Path, content: str) -> None:
    # blank lines (no byte but CR) make neither an event nor a dead letter: docs/reference/event-types.md
    with pytest.raises(UsageError, match="has no lines yet"):
        invoked(log_file(tmp_path / "a.log", content), "--out", tmp_path / "out")


def test_a_file_whose_first_line_is_long_is_not_called_empty(tmp_path: Path) -> None:
    log = log_file(tmp_path / "a.log", f"{LINE.strip()} {'x' * (5 << 20)}\n{LINE}")
    with pytest.raises(UsageError, match=r"first line.*over 1 MiB"):
        invoked(log, "--out", tmp_path / "out")


@pytest.mark.parametrize("kind", ["the same path", "a symbolic link", "a hard link"])
def test_a_file_with_two_names_has_one_source(tmp_path: Path, kind: str) -> None:
    log, other = log_file(tmp_path / "app.log"), tmp_path / "other.log"
    if kind == "the same path":
        other = tmp_path / "x" / ".." / "app.log"
        (tmp_path / "x").mkdir()
    elif kind == "a symbolic link":
        other.symlink_to(log)
    else:
        other.hardlink_to(log)
    said = invoked(log, other, "--out", tmp_path / "out").output
    assert tailed_files(tmp_path / "out") == [[str(log)]]
    assert f"is the same file as {log} and is ignored" in said
    with pytest.raises(UsageError, match="is followed already, as source app"):
        invoked(other, "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["sources", "hourmark-canary", "dead-letters", "syslog"])
def test_a_file_with_a_reserved_name_has_a_type_of_another_name(tmp_path: Path, name: str) -> None:
    invoked(log_file(tmp_path / f"{name}.log"), "--out", tmp_path / "out")
    (source,) = read_declarations(tmp_path / "out/types").sources
    assert source.name == f"{name}-2"


@pytest.mark.parametrize(
    "name",
    ["", "Foo", "../x", "a.b", "1a", "ü", "-a", "x" * 101, "sources", "hourmark-canary"],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    log = log_file(tmp_path / "a.log")
    with pytest.raises(UsageError, match="--name "):
        invoked(log, f"--name={name}", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    system = log_file(tmp_path / "messages", "Nov 21 10:00:00 web-1 sshd[4711]: Accepted\n" * 3)
    invoked(system, "--name=machine", "--out", tmp_path / "out")  # the built-in type: no file of it
    with pytest.raises(UsageError, match=r"--name machine: .* is taken"):
        invoked(log_file(tmp_path / "a.log"), "--name=machine", "--out", tmp_path / "out")
    read_declarations(tmp_path / "out/types")


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("hourmark.toml", "[[tailer.sources]]", "[tailer]\nsources = 3\n[other]", "tailer.sources"),
        ("hourmark.toml", "[[tailer.sources]]", "[[tailer]]", "tailer"),
        ("hourmark.toml", "paths = [", "paths = 3 # [", "tailer.sources.0.paths"),
        ("hourmark.toml", "bucket_seconds = 3600", 'bucket_seconds = "x"', "bucket_seconds"),
        ("hourmark.toml", "bucket_seconds = 3600", "bucket_seconds = 0", "bucket_seconds"),
        ("hourmark.toml", "[parsing]\nbucket_seconds = ", "[parsing]\nx = ", "parsing.x"),
        ("hourmark.toml", 'first_hour = "', 'first_hour = 3  # "', "types.first_hour"),
        ("types/sources.toml", "[[source]]", "[source]", "source"),
        ("types/sources.toml", "lateness_seconds = ", 'lateness_seconds = "x" # ', "limits"),
        ("types/sources.toml", 'types = ["app"]', 'types = ["gone"]', "gone"),
        ("types/app.toml", 'name = "app"', 'name = "app', "app.toml is not valid TOML"),
    ],
)
def test_a_wrong_configuration_is_not_extended_and_the_setting_is_named(
    tmp_path: Path, file: str, old: str, new: str, named: str
) -> None:
    out = tmp_path / "out"
    invoked(log_file(tmp_path / "app.log"), "--out", out)
    text = (out / file).read_text()
    assert old in text
    (out / file).write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as error:
        invoked(log_file(tmp_path / "b.log"), "--out", out)
    assert named in str(error.value)
    assert not (out / "types/b.toml").exists()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("hourmark.toml", '[tailer]\nsources = [{name = "app", paths = ["/app.log"]}]\n'),
        ("types/sources.toml", 'source = [{name = "app", format = "free", types = ["app"]}]\n'),
    ],
)
def test_what_would_become_invalid_is_not_extended(tmp_path: Path, file: str, text: str) -> None:
    out = tmp_path / "out"
    invoked(log_file(tmp_path / "app.log"), "--out", out)
    (out / file).write_text(text)
    with pytest.raises(HourmarkError, match=rf"{file} would not be valid TOML.*\[\["):
        invoked(log_file(tmp_path / "b.log"), "--out", out)
    assert (out / file).read_text() == text
    assert not (out / "types/b.toml").exists()


def test_a_storage_that_cannot_be_used_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"storage\.root = 'ftp://x'"):
        invoked(log_file(tmp_path / "a.log"), "--storage", "ftp://x", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*file/out.*--out"):
        invoked(log_file(tmp_path / "a.log"), "--out", tmp_path / "file" / "out")
